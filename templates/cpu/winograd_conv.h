// A convolution of 3 by 3 with constant weights by Winograd's filtering, of images as ONNX has them. Where a result is
// not finite, ONNX Runtime's convolution runs instead.
#pragma once

#include <cstring>
#include <mutex>
#include <string>
#include <vector>

#include "cpu/vendor.h"
#include "cpu/winograd.h"

namespace fusion {
namespace cpu {

class WinogradConv {
 public:
  // `slot` is the operator's input that the weights are.
  WinogradConv(const Api& api, const OrtKernelInfo* info, int type, bool bias, bool channels_last, const Ints& strides,
               const Ints& pads, const Ints& dilations, int64_t group, const char* auto_pad, int slot)
      : vendor_(api, info, type, bias, channels_last, strides, pads, dilations, group, auto_pad),
        pads_(pads), auto_pad_(auto_pad), is_kept_(is_constant(api, info, slot)) {}

  void operator()(Run& run, const std::vector<Array<float>>& inputs, const Array<float>& out) {
    const Call call = call_of(inputs, out);
    if (!is_kept_ || !count(inputs[0].dims) || !count(inputs[1].dims) || call.tiles() < kFewest || !convolved(run, call))
      vendor_(run, inputs, out);
  }

 private:
  static constexpr int kSide = 4, kReach = kSide + 2, kPoints = kReach * kReach;
  static constexpr int kRows = 6;          // channels of the result that are computed together
  static constexpr int64_t kFewest = 16;   // tiles: fewer leave vectors empty
  static constexpr int64_t kTogether = 64; // tiles whose sums stay in a core's own cache
  static constexpr int64_t kWide = 16;     // numbers of a vector, or twice as many
  static constexpr int64_t kLine = kSide * kTogether + 6 * kWide;

  struct Call {
    const float *x, *w, *bias;
    float* out;
    int64_t images, channels, made, height, width, out_height, out_width, above, before;
    int64_t across() const { return (out_width + kSide - 1) / kSide; }
    int64_t per_image() const { return (out_height + kSide - 1) / kSide * across(); }
    int64_t tiles() const { return images * per_image(); }
    int64_t groups() const { return (made + kRows - 1) / kRows; }
  };

  Call call_of(const std::vector<Array<float>>& inputs, const Array<float>& out) const {
    const Ints &x = inputs[0].dims, &w = inputs[1].dims, &y = out.dims;
    Call c{inputs[0].data, inputs[1].data, inputs.size() > 2 ? inputs[2].data : nullptr, out.data,
           x[0], x[1], w[0], x[2], x[3], y[2], y[3], 0, 0};
    const std::string pad = auto_pad_;
    if (pad == "NOTSET" && pads_.size()) c.above = pads_[0], c.before = pads_[1];
    if (pad == "SAME_UPPER" || pad == "SAME_LOWER") c.above = c.before = 1;
    return c;
  }

  // Tiles of a block in one row of an image: `count` from the block's `begin` on; `top` and `left` of the first's results.
  struct Span {
    int64_t begin, image, top, left, count;
  };

  // Tiles that are computed together, and memory for what is made of them: sums of the inputs by place, channel and tile,
  // the products by place, channel and tile, and lines of one row of tiles. Places lie an odd number of cache lines apart,
  // so that they do not all fall into the same few sets.
  struct Block {
    Block(const Call& c, int64_t first, int64_t count)
        : count(count), place(c.channels * kTogether + 3 * kWide), made(c.groups() * kRows * kTogether + kWide),
          sums(thread_row<float>(0, kPoints * place)), products(thread_row<float>(1, kPoints * made)),
          lines(thread_row<float>(2, 2 * kReach * kLine)) {
      std::memset(lines, 0, sizeof(float) * 2 * kReach * kLine);
      for (int64_t begin = 0; begin < count; begin += spans.back().count) {
        const int64_t tile = first + begin, in_image = tile % c.per_image(), in_row = in_image % c.across();
        spans.push_back({begin, tile / c.per_image(), in_image / c.across() * kSide, in_row * kSide,
                         std::min(count - begin, c.across() - in_row)});
      }
    }
    int64_t count, place, made;
    float *sums, *products, *lines;
    std::vector<Span> spans;
  };

  // False where a result is not finite.
  bool convolved(Run& run, const Call& c) {
    std::call_once(once_, [&] { weights_ = sums_of_weights(c); });
    std::atomic<bool> finite{true};
    parallel(run, (c.tiles() + kTogether - 1) / kTogether, 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end && finite; ++i) {
        const Block block(c, i * kTogether, std::min(kTogether, c.tiles() - i * kTogether));
        if (!(has_wide_vectors() ? wide(c, weights_.data(), block) : narrow(c, weights_.data(), block))) finite = false;
      }
    });
    return finite;
  }

  // By place, group of channels made, channel read, and channel of the group.
  static std::vector<float> sums_of_weights(const Call& c) {
    std::vector<float> sums(static_cast<size_t>(kPoints * c.groups() * c.channels * kRows));
    for (int64_t o = 0; o < c.made; ++o)
      for (int64_t i = 0; i < c.channels; ++i) {
        const auto made = winograd::weights_of<kSide>(c.w + (o * c.channels + i) * 9);
        for (int place = 0; place < kPoints; ++place) {
          const int64_t at = ((place * c.groups() + o / kRows) * c.channels + i) * kRows + o % kRows;
          sums[static_cast<size_t>(at)] = made[static_cast<size_t>(place)];
        }
      }
    return sums;
  }

  FUSION_WIDE static bool wide(const Call& c, const float* weights, const Block& b) { return compute<16>(c, weights, b); }
  static bool narrow(const Call& c, const float* weights, const Block& b) { return compute<8>(c, weights, b); }

  template <int kLanes>
  FUSION_INLINE static bool compute(const Call& c, const float* weights, const Block& b) {
    for (int64_t channel = 0; channel < c.channels; ++channel)
      for (const Span& span : b.spans) add_inputs<kLanes>(c, b, span, channel);
    for (int place = 0; place < kPoints; ++place)
      for (int64_t tile = 0; tile < b.count; tile += 2 * kLanes)
        for (int64_t group = 0; group < c.groups(); ++group)
          multiply<kLanes>(weights + (place * c.groups() + group) * c.channels * kRows, b.sums + place * b.place + tile,
                           c.channels, b.products + place * b.made + group * kRows * kTogether + tile);
    float spoilt = 0;
    for (int64_t channel = 0; channel < c.made; ++channel) {
      add_products<kLanes>(b, channel, c.bias ? c.bias[channel] : 0.0f);
      for (const Span& span : b.spans) spoilt += store(c, b, span, channel);
    }
    return spoilt == 0;
  }

  // (In vectorised loops arrays would be memory.)
  typedef winograd::Filter<kSide> Filter;
  typedef Filter::Six<float> Six;
  typedef Filter::Four<float> Four;

  // The sums of a channel's inputs: down the columns of all tiles, then along their rows, which begin four numbers apart.
  // Whole vectors are written: what lies beyond the span's tiles is written again with those that follow.
  template <int kLanes>
  FUSION_INLINE static void add_inputs(const Call& c, const Block& b, const Span& span, int64_t channel) {
    const int64_t reach = kSide * span.count + 2, top = span.top - c.above, left = span.left - c.before;
    const int64_t skipped = std::max<int64_t>(0, -left), end = std::max(skipped, std::min(reach, c.width - left));
    const float* const plane = c.x + (span.image * c.channels + channel) * c.height * c.width;
    float *const zeros = b.lines, *const down = b.lines + kReach * kLine;
    const float* rows[kReach];
    for (int i = 0; i < kReach; ++i) {
      const bool inside = top + i >= 0 && top + i < c.height;
      rows[i] = inside ? plane + (top + i) * c.width + left + skipped : zeros;
      std::fill(down + i * kLine, down + i * kLine + skipped, 0.0f);
      std::fill(down + i * kLine + end, down + i * kLine + reach, 0.0f);
    }
    float* const first_sum = down + skipped;
#pragma omp simd
    for (int64_t i = 0; i < end - skipped; ++i) {
      const Six sum = Filter::transform(rows[0][i], rows[1][i], rows[2][i], rows[3][i], rows[4][i], rows[5][i]);
      first_sum[i] = sum.s0, first_sum[kLine + i] = sum.s1, first_sum[2 * kLine + i] = sum.s2;
      first_sum[3 * kLine + i] = sum.s3, first_sum[4 * kLine + i] = sum.s4, first_sum[5 * kLine + i] = sum.s5;
    }
    float* const fourth = b.lines + kLine;
    for (int k = 0; k < kReach; ++k) {
      const float* const line = down + k * kLine;
      for (int64_t first = 0; first <= span.count; first += kLanes)
#pragma omp simd
        for (int64_t t = first; t < first + kLanes; ++t) {
          fourth[t] = line[4 * t], fourth[kLine + t] = line[4 * t + 1];
          fourth[2 * kLine + t] = line[4 * t + 2], fourth[3 * kLine + t] = line[4 * t + 3];
        }
      float* const to = b.sums + k * kReach * b.place + channel * kTogether + span.begin;
      for (int64_t first = 0; first < span.count; first += kLanes)
#pragma omp simd
        for (int64_t t = first; t < first + kLanes; ++t) {
          const float* const x = fourth + t;
          const Six sum = Filter::transform(x[0], x[kLine], x[2 * kLine], x[3 * kLine], x[1], x[kLine + 1]);
          to[t] = sum.s0, to[b.place + t] = sum.s1, to[2 * b.place + t] = sum.s2;
          to[3 * b.place + t] = sum.s3, to[4 * b.place + t] = sum.s4, to[5 * b.place + t] = sum.s5;
        }
    }
  }

  // kRows rows of the products of two vectors of tiles.
  template <int kLanes>
  FUSION_INLINE static void multiply(const float* weights, const float* sums, int64_t channels, float* products) {
    typedef float Vector __attribute__((vector_size(4 * kLanes), aligned(4), may_alias));
    Vector made[kRows][2] = {};
    for (int64_t i = 0; i < channels; ++i, sums += kTogether, weights += kRows) {
      const Vector first = *reinterpret_cast<const Vector*>(sums);
      const Vector second = *reinterpret_cast<const Vector*>(sums + kLanes);
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) made[r][0] += weights[r] * first, made[r][1] += weights[r] * second;
    }
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 2
      for (int i = 0; i < 2; ++i) *reinterpret_cast<Vector*>(products + r * kTogether + i * kLanes) = made[r][i];
  }

  // Four lines of results of all tiles side by side.
  template <int kLanes>
  FUSION_INLINE static void add_products(const Block& b, int64_t channel, float bias) {
    const float* const from = b.products + channel * kTogether;
    for (int64_t first = 0; first < b.count; first += kLanes)
#pragma omp simd
      for (int64_t t = first; t < first + kLanes; ++t) {
        const float* const x = from + t;
        const Four y0 = down(x, b.made), y1 = down(x + b.made, b.made), y2 = down(x + 2 * b.made, b.made);
        const Four y3 = down(x + 3 * b.made, b.made), y4 = down(x + 4 * b.made, b.made), y5 = down(x + 5 * b.made, b.made);
        float* const to = b.lines + kReach * kLine + kSide * t;
        put(to, Filter::invert(y0.s0, y1.s0, y2.s0, y3.s0, y4.s0, y5.s0), bias);
        put(to + kLine, Filter::invert(y0.s1, y1.s1, y2.s1, y3.s1, y4.s1, y5.s1), bias);
        put(to + 2 * kLine, Filter::invert(y0.s2, y1.s2, y2.s2, y3.s2, y4.s2, y5.s2), bias);
        put(to + 3 * kLine, Filter::invert(y0.s3, y1.s3, y2.s3, y3.s3, y4.s3, y5.s3), bias);
      }
  }
  FUSION_INLINE static Four down(const float* x, int64_t place) {
    return Filter::invert(x[0], x[6 * place], x[12 * place], x[18 * place], x[24 * place], x[30 * place]);
  }
  FUSION_INLINE static void put(float* to, const Four& y, float bias) {
    to[0] = y.s0 + bias, to[1] = y.s1 + bias, to[2] = y.s2 + bias, to[3] = y.s3 + bias;
  }

  // Zero, or NaN where one of them is not finite.
  FUSION_INLINE static float store(const Call& c, const Block& b, const Span& span, int64_t channel) {
    const int64_t wide = std::min(kSide * span.count, c.out_width - span.left);
    const int64_t high = std::min<int64_t>(kSide, c.out_height - span.top);
    float* const to = c.out + ((span.image * c.made + channel) * c.out_height + span.top) * c.out_width + span.left;
    float spoilt = 0;
    for (int64_t y = 0; y < high; ++y) {
      const float* const from = b.lines + (kReach + y) * kLine + kSide * span.begin;
#pragma omp simd reduction(+ : spoilt)
      for (int64_t x = 0; x < wide; ++x) {
        to[y * c.out_width + x] = from[x];
        spoilt += from[x] * 0.0f;
      }
    }
    return spoilt;
  }

  Conv vendor_;
  Ints pads_;
  const char* auto_pad_;
  bool is_kept_;
  std::once_flag once_;
  std::vector<float> weights_;
};

}  // namespace cpu
}  // namespace fusion

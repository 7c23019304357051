// A convolution of images whose channels come last, with what is added to it: a product of rows, the pixels below each
// tap, by its weights; by Winograd's filtering where that needs fewer multiplications.
#pragma once

#include <memory>
#include <mutex>

#include "cpu/conv_axis.h"
#include "cpu/winograd_tiles.h"

namespace fusion {
namespace cpu {

// What a convolution's result is with: a number for each channel, one for each of its own, where they are not nullptr;
// with `relu` what is negative becomes zero.
struct LastAddends {
  const float *bias, *added;
  bool relu;
};

class LastConv {
 public:
  // `slot` is the operator's input that the weights are.
  LastConv(const Api& api, const OrtKernelInfo* info, const Ints& strides, const Ints& pads, const Ints& dilations,
           int64_t, const char* auto_pad, int slot)
      : strides_(strides), pads_(pads), dilations_(dilations), auto_pad_(auto_pad),
        is_kept_(is_constant(api, info, slot)) {}

  // x [n, h, w, c], weights [m, c, taps of h, taps of w], out [n, h', w', m]; or x [..., c], weights [m, c], out
  // [..., m].
  void operator()(Run& run, const Array<float>& x, const Array<float>& w, const LastAddends& with,
                  const Array<float>& out) {
    if (!count(out.dims)) return;
    const Call c(*this, x, w, out, with);
    if (!filtered(run, c)) convolve(run, c);
  }

 private:
  struct Axis {
    bool is_point() const { return taps == 1 && stride == 1 && in == out && !before; }
    int64_t in = 1, out = 1, taps = 1, stride = 1, dilation = 1, before = 0;
  };

  struct Call {
    Call(const LastConv& conv, const Array<float>& x, const Array<float>& w, const Array<float>& out,
         const LastAddends& with)
        : x(x.data), w(w.data), out(out.data), with(with), images(1), made(w.dims[0]), channels(w.dims[1]) {
      if (w.dims.size() == 2) {
        across.in = across.out = count(out.dims) / made;
        return;
      }
      images = x.dims[0];
      down = conv.axis(x, w, out, 0), across = conv.axis(x, w, out, 1);
    }
    int64_t pixels() const { return images * down.out * across.out; }
    int64_t taps() const { return down.taps * across.taps; }
    // Whether each pixel is made of that in its place.
    bool is_point() const { return down.is_point() && across.is_point(); }
    const float *x, *w;
    float* out;
    LastAddends with;
    int64_t images, made, channels;
    Axis down, across;
  };

  Axis axis(const Array<float>& x, const Array<float>& w, const Array<float>& out, int i) const {
    Axis a{x.dims[1 + i], out.dims[1 + i], w.dims[2 + i], strides_[i], dilations_[i], 0};
    a.before = zeros_before(a, auto_pad_, pads_, i);
    return a;
  }

  // What stays in a core's own cache beside the weights, in bytes, and how many pieces leave no thread without one.
  static constexpr int64_t kNear = 1 << 17, kOwn = 1 << 19, kPieces = 8;
  static constexpr int64_t kFewest = 8;  // tiles, with fewer of which weights are read for too little

  // Weights as they are multiplied by; kept where they are constant.
  class Weights {
   public:
    template <class F>
    std::shared_ptr<const StripMatrix> get(bool is_kept, F make) {
      if (!is_kept) return make();
      std::call_once(once_, [&] { kept_ = make(); });
      return kept_;
    }

   private:
    std::once_flag once_;
    std::shared_ptr<const StripMatrix> kept_;
  };

  // By Winograd's filtering; false where it is not for a convolution, or a result is not finite.
  bool filtered(Run& run, const Call& c) {
    const int64_t lanes = StripMatrix::width() / 2;
    const bool is_small = c.down.taps == 3 && c.across.taps == 3 && c.down.stride == 1 && c.across.stride == 1 &&
                          c.down.dilation == 1 && c.across.dilation == 1;
    if (!is_small || c.channels % lanes || c.made % lanes) return false;
    const winograd::Call call{c.x,         c.with.bias, c.with.added, c.out,        c.images,
                              c.down.in,   c.across.in, c.channels,   c.down.out,   c.across.out,
                              c.made,      c.down.before, c.across.before, c.with.relu};
    if (call.tiles(4) >= kFewest) return filtered<4>(run, c, call, large_);
    return call.tiles(2) >= kFewest && filtered<2>(run, c, call, little_);
  }

  template <int kSide>
  bool filtered(Run& run, const Call& call, const winograd::Call& c, Weights& kept) {
    typedef winograd::Tiles<kSide> Tiles;
    const auto held = kept.get(is_kept_, [&] {
      auto made = std::make_shared<StripMatrix>(Tiles::kPoints, c.channels, c.made);
      Tiles::fill(*made, call.w, c.made, c.channels);
      return made;
    });
    const StripMatrix& weights = *held;
    const int64_t most = kOwn / (Tiles::kPoints * 4 * (c.channels + StripMatrix::width()));
    const Parts blocks(c.tiles(kSide), std::max(most, most_rows()));
    std::atomic<bool> finite{true};
    if (blocks.count >= kPieces / 2) {
      parallel(run, blocks.count, 1, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end && finite; ++i) {
          winograd::Sums sums(c, blocks.begin(i), blocks.begin(i + 1) - blocks.begin(i));
          sums.data = thread_row<float>(3, Tiles::kPoints * sums.place);
          Tiles::add_inputs(c, sums, 0, sums.count);
          for (int64_t s = 0; s < weights.strips(); ++s)
            if (!Tiles::multiply(c, weights, sums, s, 0, sums.count)) finite = false;
        }
      });
      return finite;
    }
    winograd::Sums sums(c, 0, c.tiles(kSide));
    sums.data = static_cast<float*>(run.scratch(static_cast<size_t>(Tiles::kPoints * sums.place) * sizeof(float)));
    parallel(run, sums.count, 4, [&](int64_t begin, int64_t end) { Tiles::add_inputs(c, sums, begin, end); });
    parallel(run, blocks.count * weights.strips(), 1, [&](int64_t begin, int64_t end) {
      for (int64_t u = begin; u < end; ++u) {
        const int64_t i = u / weights.strips();
        if (!Tiles::multiply(c, weights, sums, u % weights.strips(), blocks.begin(i), blocks.begin(i + 1)))
          finite = false;
      }
    });
    return finite;
  }

  void convolve(Run& run, const Call& c) {
    const auto held = direct_.get(is_kept_, [&] {
      auto made = std::make_shared<StripMatrix>(c.taps(), c.channels, c.made);
      const float* w = c.w;
      for (int64_t o = 0; o < c.made; ++o)
        for (int64_t i = 0; i < c.channels; ++i)
          for (int64_t tap = 0; tap < c.taps(); ++tap) made->at(tap, i, o) = *w++;
      return made;
    });
    const StripMatrix& weights = *held;
    const int64_t numbers = c.channels + (is_near(c) ? 2 * c.made : 0);
    const int64_t most = std::max<int64_t>(kNear / (numbers * 4) / most_rows(), 2) * most_rows();
    const int64_t chunks = (c.pixels() + most - 1) / most;
    const Parts shares(weights.strips(), std::max<int64_t>(1, weights.strips() * chunks / kPieces));
    parallel(run, chunks * shares.count, 1, [&](int64_t begin, int64_t end) {
      for (int64_t u = begin; u < end; ++u) {
        const int64_t i = u / shares.count, j = u % shares.count;
        multiply(c, weights, i * most, std::min((i + 1) * most, c.pixels()), shares.begin(j), shares.begin(j + 1));
      }
    });
  }

  // Whether all weights stay in a core's own cache.
  static bool is_near(const Call& c) { return c.taps() * c.channels * c.made * 4 <= 2 * kNear; }

  // Pixels [begin, end) of the strips from `first` to `last`.
  static void multiply(const Call& c, const StripMatrix& weights, int64_t begin, int64_t end, int64_t first,
                       int64_t last) {
    const Parts parts(end - begin, most_rows());
    const float** const rows = thread_row<const float*>(0, (end - begin) * c.taps());
    float* const zeros = thread_row<float>(1, c.channels);
    std::fill(zeros, zeros + c.channels, 0.0f);
    for (int64_t i = 0; i < parts.count; ++i)
      below_taps(c, begin + parts.begin(i), begin + parts.begin(i + 1), zeros, rows + parts.begin(i) * c.taps());
    for (int64_t s = first; s < last; ++s) {
      const int64_t column = s * StripMatrix::width(), columns = std::min(StripMatrix::width(), c.made - column);
      const int64_t at = begin * c.made + column;
      multiply_parts(parts, rows, c.taps(), c.channels, weights.strip(s), is_near(c) && c.taps() == 1 && s == first,
                     {c.out + at, c.made, columns, c.with.bias ? c.with.bias + column : nullptr,
                      c.with.added ? c.with.added + at : nullptr, c.with.relu});
    }
  }

  // By tap, the pixels below it for the results [begin, end); `zeros` where there is none.
  static void below_taps(const Call& c, int64_t begin, int64_t end, const float* zeros, const float** rows) {
    if (c.is_point()) {
      for (int64_t p = begin; p < end; ++p) *rows++ = c.x + p * c.channels;
      return;
    }
    const int64_t rest = end - begin, line = begin / c.across.out;
    int64_t image = line / c.down.out, y = line % c.down.out, x = begin % c.across.out;
    for (int64_t p = begin; p < end; ++p, ++rows) {
      const int64_t top = y * c.down.stride - c.down.before, left = x * c.across.stride - c.across.before;
      const float** row = rows;
      for (int64_t i = 0; i < c.down.taps; ++i)
        for (int64_t j = 0; j < c.across.taps; ++j, row += rest) {
          const int64_t down = top + i * c.down.dilation, across = left + j * c.across.dilation;
          const bool inside = down >= 0 && down < c.down.in && across >= 0 && across < c.across.in;
          *row = inside ? c.x + ((image * c.down.in + down) * c.across.in + across) * c.channels : zeros;
        }
      if (++x < c.across.out) continue;
      x = 0;
      if (++y == c.down.out) y = 0, ++image;
    }
  }

  Ints strides_, pads_, dilations_;
  const char* auto_pad_;
  bool is_kept_;
  Weights large_, little_, direct_;
};

}  // namespace cpu
}  // namespace fusion

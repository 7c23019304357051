// A convolution with constant weights in tiles; ONNX Runtime's where the processor has none, or with groups.
//
// A product of the weights with images shifted by each tap: as the rows of an image lie one after the other, a shift is
// an offset, so that nothing is gathered but pairs of channels. With strides an image is cut into one for each phase.
// Columns beyond the result's, where a row of it ends and the next begins, are computed and left out.
#pragma once

#include "cpu/conv_axis.h"
#include "cpu/tiles.h"

namespace fusion {
namespace cpu {

#if defined(FUSION_NO_TILES)
class TileConv : public Conv {
 public:
  TileConv(const Api& api, const OrtKernelInfo* info, int type, bool bias, bool channels_last, const Ints& strides,
           const Ints& pads, const Ints& dilations, int64_t group, const char* auto_pad, int)
      : Conv(api, info, type, bias, channels_last, strides, pads, dilations, group, auto_pad) {}
};
#else
class TileConv {
 public:
  // `slot` is the operator's input that the weights are.
  TileConv(const Api& api, const OrtKernelInfo* info, int type, bool bias, bool channels_last, const Ints& strides,
           const Ints& pads, const Ints& dilations, int64_t group, const char* auto_pad, int slot)
      : vendor_(api, info, type, bias, channels_last, strides, pads, dilations, group, auto_pad),
        strides_(strides), pads_(pads), dilations_(dilations), auto_pad_(auto_pad),
        kept_(group == 1 && !channels_last && is_kept(api, info, slot)) {}

  void operator()(Run& run, const std::vector<Array<float>>& inputs, const Array<float>& out) {
    const int rank = out.dims.size();
    if (!kept_ || rank < 3 || rank > 4 || !count(inputs[0].dims) || !count(inputs[1].dims) || !count(out.dims) ||
        !convolved(run, inputs, out))
      vendor_(run, inputs, out);
  }

 private:
  struct Axis {
    int64_t in, out, taps, stride, dilation, before;
    int64_t shift(int64_t tap) const { return tap * dilation / stride; }
    int64_t phase(int64_t tap) const { return tap * dilation % stride; }
    int64_t phases() const {
      int64_t most = 0;
      for (int64_t tap = 0; tap < taps; ++tap) most = std::max(most, phase(tap));
      return most + 1;
    }
  };

  Axis axis(const Array<float>& x, const Array<float>& w, const Array<float>& out, int back) const {
    const int i = x.dims.size() - 3 - back;  // of the axes of space, of which there may be one
    if (i < 0) return {1, 1, 1, 1, 1, 0};
    Axis a{x.dims[2 + i], out.dims[2 + i], w.dims[2 + i], strides_[i], dilations_[i], 0};
    a.before = zeros_before(a, auto_pad_, pads_, i);
    return a;
  }

  // Images as tiles see them, one below the other: for each phase of the strides a plane of every channel, in pairs. Of
  // few channels there is one for each tap of a row instead, so that tiles are not mostly zeros.
  struct Image {
    Image(const Axis& h, const Axis& w, int64_t images, int64_t channels)
        : h(h), w(w), images(images), channels(channels), row_taps(channels < 8 ? w.taps : 1),
          depth(channels * row_taps), taps_x(row_taps > 1 ? 1 : w.taps), phases_x(row_taps > 1 ? 1 : w.phases()),
          frame(h.out + h.shift(h.taps - 1)), width(w.out + (taps_x > 1 ? w.shift(w.taps - 1) : 0)) {}

    int64_t taps() const { return h.taps * taps_x; }
    int64_t steps() const { return depth.blocks * taps(); }
    int64_t halo() const { return frame - h.out; }  // rows below its own that a row of the result needs
    int64_t phase_pairs() const { return depth.blocks * depth.pairs; }
    int64_t pairs() const { return phase_pairs() * h.phases() * phases_x; }
    int64_t total_rows() const { return images * frame; }
    int64_t row_bytes() const { return pairs() * width * 8; }

    Axis h, w;
    int64_t images, channels, row_taps;
    Depth depth;
    int64_t taps_x, phases_x, frame, width;
  };

  // Rows [first, last) of the result, as the planes have them.
  struct Band {
    Band(const Image& image, int64_t first, int64_t last)
        : first(first), last(std::min(last, image.total_rows())),
          packed(std::min(this->last + image.halo(), image.total_rows())),
          plane(apart((this->last + image.halo() + 1 - first) * image.width + 2 * kBlock2)),
          half(image.pairs() * plane) {}
    // An odd number of cache lines, so that the rows of a tile do not all fall into the same few sets.
    static int64_t apart(int64_t n) { return ((n + kTile - 1) / kTile | 1) * kTile; }
    int64_t first, last, packed;
    int64_t plane, half;  // numbers of a plane, with room for what whole tiles reach beyond it, and of all
  };
  static constexpr int64_t kBandBytes = 1 << 19;  // what stays in a core's own cache beside the weights

  struct Call {
    const Image& image;
    const char* weights;
    const float *x, *bias;
    const Array<float>& out;
    std::atomic<bool>* sound;
  };

  // False where a number has no parts.
  bool convolved(Run& run, const std::vector<Array<float>>& inputs, const Array<float>& out) {
    const Array<float>&x = inputs[0], &w = inputs[1];
    const Image image(axis(x, w, out, 1), axis(x, w, out, 0), x.dims[0], x.dims[1]);
    if (image.w.stride > 2) return false;  // its rows would have to be gathered number by number
    const char* const weights = packed_.get([&] { return tiles_of(w.data, w.dims[0], image); });
    if (!weights) return false;
    std::atomic<bool> sound{true};
    const Call call{image, weights, x.data, inputs.size() > 2 ? inputs[2].data : nullptr, out, &sound};
    const int64_t rows = std::max<int64_t>(kBandBytes / image.row_bytes() - image.halo(), 2 * image.halo() + 1);
    const int64_t bands = (image.total_rows() + rows - 1) / rows;
    if (bands >= kManyBands) {
      parallel(run, bands, 1, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end && sound; ++i) {
          const Band band(image, i * rows, (i + 1) * rows);
          uint32_t* const planes = thread_row<uint32_t>(0, 2 * band.half);
          pack(call, band, planes, 0, image.pairs());
          const Shares shares(call, band, 1);
          multiply_band(call, band, planes, shares, 0, shares.count());
        }
      });
      return sound;
    }
    const Band whole(image, 0, image.total_rows());
    uint32_t* const planes = static_cast<uint32_t*>(run.scratch(static_cast<size_t>(2 * whole.half) * 4));
    parallel(run, image.pairs(), std::max<int64_t>(1, 16384 / whole.plane),
             [&](int64_t begin, int64_t end) { pack(call, whole, planes, begin, end); });
    if (!sound) return false;
    const Shares shares(call, whole, kManyBlocks);
    parallel(run, shares.count(), std::max<int64_t>(1, 128 / (image.steps() * shares.channels * shares.pixels)),
             [&](int64_t begin, int64_t end) { multiply_band(call, whole, planes, shares, begin, end); });
    return true;
  }

  static int64_t in_blocks(int64_t n) { return (n + kBlock2 - 1) / kBlock2; }
  static int64_t pixels_of(const Image& image, const Band& band) { return (band.last - band.first) * image.width; }

  // How a band's blocks are shared out: so many of pixels and so many of channels at a time. Weights are read once for
  // all of a share's pixels; all its results stay in a core's own cache.
  struct Shares {
    // `least` is how many shares there should be, so that threads have one each.
    Shares(const Call& call, const Band& band, int64_t least)
        : wide(in_blocks(pixels_of(call.image, band))), tall(in_blocks(call.out.dims[1])) {
      channels = tall;
      while (channels > kFewBlocks && wide * across() < least) channels = (channels + 1) / 2;
      pixels = std::max<int64_t>(1, std::min(kMostPixels, kMostBlocks / channels));
      while (pixels > 1 && count() < least) pixels = (pixels + 1) / 2;
    }
    int64_t across() const { return (tall + channels - 1) / channels; }
    int64_t count() const { return (wide + pixels - 1) / pixels * across(); }
    int64_t wide, tall, channels, pixels;
  };
  static constexpr int64_t kFewBlocks = 4, kMostPixels = 8, kMostBlocks = 64;
  static constexpr int64_t kManyBands = 4, kManyBlocks = 8;  // enough for threads to have one each

  // Shares [begin, end) of a band. The tiles of pixels are gathered for some steps at a time, for a row of one may lie
  // anywhere.
  static void multiply_band(const Call& call, const Band& band, const uint32_t* planes, const Shares& shares,
                            int64_t begin, int64_t end) {
    const Image& image = call.image;
    const int64_t steps = image.steps(), row = steps * 2 * kTileBytes;
    const int64_t made = call.out.dims[1], pixels = pixels_of(image, band);
    const Tiles tiles(image.depth.pairs);
    Block* const blocks = thread_row<Block>(0, shares.pixels * shares.channels);
    char* const panels = thread_row<char>(0, shares.pixels * kChunk * 4 * kTileBytes);
    Span spans[kBlock2];
    for (int64_t u = begin; u < end; ++u) {
      const int64_t left = u / shares.across() * shares.pixels, right = std::min(left + shares.pixels, shares.wide);
      const int64_t first = u % shares.across() * shares.channels;
      const int64_t last = std::min(first + shares.channels, shares.tall);
      const auto block = [&](int64_t i, int64_t j) { return blocks + (i - first) * shares.pixels + j - left; };
      const auto is_wide = [&](int64_t j) { return j * kBlock2 + kTile < pixels; };
      for (int64_t s = 0; s < steps; s += kChunk) {
        const int64_t count = std::min(kChunk, steps - s);
        for (int64_t j = left; j < right; ++j)
          for (int64_t k = 0; k < count; ++k)
            gather(image, band, planes + j * kBlock2, s + k, is_wide(j),
                   panels + ((j - left) * kChunk + k) * 4 * kTileBytes);
        for (int64_t i = first; i < last; ++i) {
          const Side weight{call.weights + 2 * i * row + s * 2 * kTileBytes, 2 * kTileBytes, row, kTileBytes};
          for (int64_t j = left; j < right; ++j) {
            const Side pixel{panels + (j - left) * kChunk * 4 * kTileBytes, 4 * kTileBytes, kTileBytes, 2 * kTileBytes};
            multiply(weight, pixel, count, s == 0, i * kBlock2 + kTile < made, is_wide(j), block(i, j));
          }
        }
      }
      for (int64_t j = left; j < right; ++j) {
        const int found = spans_of(image, band, j * kBlock2, spans);
        for (int64_t i = first; i < last; ++i)
          store(block(i, j)->data, spans, found, call.out, image.h.out * image.w.out, i * kBlock2, call.bias);
      }
    }
  }

  // A step's tiles: high parts of sixteen pixels and of the next sixteen, and their low parts.
  FUSION_TILES static void gather(const Image& image, const Band& band, const uint32_t* planes, int64_t step, bool wide,
                                  char* panel) {
    const int64_t block = step / image.taps(), tap = step % image.taps();
    const int64_t y = tap / image.taps_x, x = tap % image.taps_x;
    const int64_t phase = image.h.phase(y) * image.phases_x + (image.taps_x > 1 ? image.w.phase(x) : 0);
    const int64_t shift = image.h.shift(y) * image.width + (image.taps_x > 1 ? image.w.shift(x) : 0);
    const uint32_t* from = planes + (phase * image.depth.blocks + block) * image.depth.pairs * band.plane + shift;
    for (int64_t q = 0; q < image.depth.pairs; ++q, from += band.plane, panel += 64) {
      _mm512_store_si512(panel, _mm512_loadu_si512(from));
      _mm512_store_si512(panel + 2 * kTileBytes, _mm512_loadu_si512(from + band.half));
      if (!wide) continue;
      _mm512_store_si512(panel + kTileBytes, _mm512_loadu_si512(from + kTile));
      _mm512_store_si512(panel + 3 * kTileBytes, _mm512_loadu_si512(from + band.half + kTile));
    }
  }

  // Sixteen channels after the other, step by step: high parts, then low ones; a row holds the pairs of its channel.
  static Aligned tiles_of(const float* w, int64_t made, const Image& image) {
    const int64_t window = image.h.taps * image.w.taps, steps = image.steps(), pairs = image.depth.pairs;
    if (!has_parts(w, made * image.channels * window)) return {};
    Aligned tiles((made + 2 * kTile - 1) / kTile * steps * 2 * kTileBytes);
    for (int64_t o = 0; o < made; ++o)
      for (int64_t c = 0; c < image.channels; ++c)
        for (int64_t t = 0; t < window; ++t) {
          const Halves x(w[(o * image.channels + c) * window + t]);
          const int64_t number = image.row_taps > 1 ? c * image.row_taps + t % image.row_taps : c;
          const int64_t tap = image.row_taps > 1 ? t / image.row_taps : t, pair = number / 2;
          const int64_t tile = (o / kTile * steps + pair / pairs * image.taps() + tap) * 2;
          x.put(tiles.data() + tile * kTileBytes + o % kTile * 64 + pair % pairs * 4 + number % 2 * 2);
        }
    return tiles;
  }

  // Pairs [begin, end) of a band's planes.
  FUSION_TILES static void pack(const Call& call, const Band& band, uint32_t* planes, int64_t begin, int64_t end) {
    const Image& image = call.image;
    const int64_t area = image.h.in * image.w.in;
    bool sound = true;
    for (int64_t i = begin; i < end; ++i) {
      const int64_t phase = i / image.phase_pairs();
      uint32_t *high = planes + i * band.plane, *low = high + band.half;
      for (int64_t row = band.first; row < band.packed; ++row, high += image.width, low += image.width) {
        const int64_t y = row % image.frame * image.h.stride + phase / image.phases_x - image.h.before;
        const float* rows[2];
        int64_t starts[2];
        for (int p = 0; p < 2; ++p) {
          const int64_t number = i % image.phase_pairs() * 2 + p, channel = number / image.row_taps;
          const bool there = channel < image.channels && y >= 0 && y < image.h.in;
          rows[p] = there ? call.x + (row / image.frame * image.channels + channel) * area + y * image.w.in : nullptr;
          const int64_t tap = number % image.row_taps;
          starts[p] = (image.row_taps > 1 ? tap * image.w.dilation : phase % image.phases_x) - image.w.before;
        }
        // Past the end of a row lies the next one, which is written after it.
        for (int64_t x = 0; x < image.width; x += kTile) {
          const int64_t skipped = x * image.w.stride;
          store_pairs(sixteen(rows[0], image.w, starts[0] + skipped), sixteen(rows[1], image.w, starts[1] + skipped),
                      high + x, low + x, &sound);
        }
      }
      const size_t left = static_cast<size_t>(band.plane - (band.packed - band.first) * image.width) * sizeof(uint32_t);
      std::memset(high, 0, left);
      std::memset(low, 0, left);
    }
    if (!sound) *call.sound = false;
  }

  // Numbers of a row from `start` on, a stride of one or two apart; zeros outside of it.
  FUSION_TILES static __m512 sixteen(const float* row, const Axis& w, int64_t start) {
    if (!row) return _mm512_setzero_ps();
    const auto lanes = [&](int64_t first) {  // of sixteen neighbours from there on, those within the row
      return static_cast<__mmask16>(first_lanes(w.in - first) & ~first_lanes(-first));
    };
    if (w.stride == 1) return _mm512_maskz_loadu_ps(lanes(start), row + start);
    const __m512i even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    return _mm512_permutex2var_ps(_mm512_maskz_loadu_ps(lanes(start), row + start), even,
                                  _mm512_maskz_loadu_ps(lanes(start + kTile), row + start + kTile));
  }

  // Neighbours in a block's columns that are neighbours in the result too: lanes of its sixteen columns from `part` on,
  // and where the first of them is within an image's first channel.
  struct Span {
    int part;
    __mmask16 lanes, kept;
    int64_t image, first;
  };

  // Those of a band's columns from `j` on; how many.
  static int spans_of(const Image& image, const Band& band, int64_t j, Span* spans) {
    int64_t x = j % image.width;
    int found = 0, lane = 0;
    for (int64_t row = band.first + j / image.width; lane < kBlock2 && row < band.last; ++row, x = 0) {
      const int64_t y = row % image.frame, n = row / image.frame;
      const int next = static_cast<int>(std::min<int64_t>(lane + image.width - x, kBlock2));
      const int64_t there = y < image.h.out ? std::max<int64_t>(image.w.out - x, 0) : 0;
      const int end = static_cast<int>(std::min<int64_t>(next, lane + there));
      for (int64_t place = y * image.w.out + x; lane < end;) {
        const int part = lane / kTile * kTile, stop = std::min(end, part + kTile);
        if (!found || spans[found - 1].image != n || spans[found - 1].part != part)
          spans[found++] = {part, 0, 0, n, place};
        Span& s = spans[found - 1];
        s.lanes = static_cast<__mmask16>(s.lanes | (first_lanes(stop - part) & ~first_lanes(lane - part)));
        place += stop - lane;
        lane = stop;
      }
      lane = next;
    }
    for (int i = 0; i < found; ++i) spans[i].kept = first_lanes(__builtin_popcount(spans[i].lanes));
    return found;
  }

  // A block's rows are channels from `i` on.
  FUSION_TILES static void store(const float* block, const Span* spans, int count, const Array<float>& out,
                                 int64_t area, int64_t i, const float* bias) {
    const int64_t made = out.dims[1], rows = std::min<int64_t>(kBlock2, made - i);
    for (int k = 0; k < count; ++k) {
      const Span& s = spans[k];
      float* to = out.data + (s.image * made + i) * area + s.first;
      for (int64_t r = 0; r < rows; ++r, to += area) {
        const __m512 all = _mm512_load_ps(block + r * kBlock2 + s.part);
        const __m512 found = s.lanes == s.kept ? all : _mm512_maskz_compress_ps(s.lanes, all);
        _mm512_mask_storeu_ps(to, s.kept, _mm512_add_ps(found, _mm512_set1_ps(bias ? bias[i + r] : 0.0f)));
      }
    }
  }

  Conv vendor_;
  Ints strides_, pads_, dilations_;
  const char* auto_pad_;
  bool kept_;
  Packed packed_;
};
#endif

}  // namespace cpu
}  // namespace fusion

// Windows over images whose channels come last: the largest number of each channel, or the mean.
#pragma once

#include <limits>

#include "cpu/vendor.h"

namespace fusion {
namespace cpu {

class Pool {
 public:
  // What lies outside the image is left out; with `counts_pads` it is part of the mean, as zeros.
  Pool(const Api&, const OrtKernelInfo*, const Ints& kernel, const Ints& strides, const Ints& pads, const Ints& dilations,
       bool mean, bool counts_pads)
      : down_(kernel, strides, pads, dilations, 0), across_(kernel, strides, pads, dilations, 1), mean_(mean),
        counts_pads_(counts_pads) {}

  // x [n, h, w, c] or [n, w, c], out likewise.
  template <class T>
  void operator()(Run& run, const Array<T>& x, const Array<T>& out) const {
    const int64_t total = count(out.dims);
    if (!total) return;
    const bool flat = out.dims.size() == 3;
    const int64_t channels = out.dims.back(), wide = x.dims[flat ? 1 : 2], high = flat ? 1 : x.dims[1];
    const int64_t out_wide = out.dims[flat ? 1 : 2], out_high = flat ? 1 : out.dims[1];
    const int64_t taps = down_.taps * across_.taps;
    parallel(run, total / channels, std::max<int64_t>(1, kGrain / (taps * channels)), [&](int64_t begin, int64_t end) {
      for (int64_t p = begin; p < end; ++p) {
        const int64_t row = p / out_wide, top = down_.first(row % out_high), left = across_.first(p % out_wide);
        const T* const image = x.data + row / out_high * high * wide * channels;
        T* const to = out.data + p * channels;
        std::fill(to, to + channels, mean_ ? T(0) : -std::numeric_limits<T>::infinity());
        int64_t seen = 0;
        for (int64_t i = 0; i < down_.taps; ++i) {
          const int64_t y = top + i * down_.dilation;
          for (int64_t j = 0; j < across_.taps && y >= 0 && y < high; ++j) {
            const int64_t at = left + j * across_.dilation;
            if (at < 0 || at >= wide) continue;
            add(image + (y * wide + at) * channels, channels, to);
            ++seen;
          }
        }
        const T each = T(1) / T(counts_pads_ ? taps : seen);
        for (int64_t c = 0; mean_ && c < channels; ++c) to[c] *= each;
      }
    });
  }

 private:
  static constexpr int64_t kGrain = 1 << 14;  // numbers that are read by one piece of the work

  // A window along an axis of the image: down or, the only one of an image that is one row, across.
  struct Axis {
    Axis(const Ints& kernel, const Ints& strides, const Ints& pads, const Ints& dilations, int axis) {
      const int i = axis - 2 + kernel.size();
      if (i >= 0) taps = kernel[i], stride = strides[i], before = pads[i], dilation = dilations[i];
    }
    int64_t first(int64_t result) const { return result * stride - before; }
    int64_t taps = 1, stride = 1, before = 0, dilation = 1;
  };

  template <class T>
  void add(const T* x, int64_t channels, T* to) const {
    if (mean_) {
      for (int64_t c = 0; c < channels; ++c) to[c] += x[c];
    } else {
      for (int64_t c = 0; c < channels; ++c) to[c] = x[c] > to[c] || x[c] != x[c] ? x[c] : to[c];
    }
  }

  Axis down_, across_;
  bool mean_, counts_pads_;
};

}  // namespace cpu
}  // namespace fusion

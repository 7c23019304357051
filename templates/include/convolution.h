// The sizes of one convolution whose channels come last: x [N, ..., C], filters [M, C / groups, ...], out [N, ..., M].
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "include/dims.h"
#include "include/half.h"

namespace fusion::gpu {

// Always three axes to move along: those that an image has not got lie in front, with one position.
struct Convolution {
  static constexpr int kAxes = 3;
  using Axes = std::array<int64_t, kAxes>;
  int axes;  // that the image has, 2 at least
  int64_t batch, channels, filters, groups;
  Axes in, out, kernel, stride, before, after, dilation;

  FUSION_FN int64_t channels_each() const { return channels / groups; }
  FUSION_FN int64_t positions() const { return batch * in[0] * in[1] * in[2]; }  // of the images
  FUSION_FN int64_t depth() const { return taps() * channels_each(); }           // what a result sums
  FUSION_FN int64_t taps() const { return kernel[0] * kernel[1] * kernel[2]; }
  FUSION_FN int64_t results() const { return batch * out[0] * out[1] * out[2] * filters; }
};

inline Convolution convolution(const Ints& x, const Ints& w, const Ints& out, const Ints& strides, const Ints& pads,
                               const Ints& dilations, int64_t groups, const char* auto_pad) {
  const int n = x.size() - 2, skip = Convolution::kAxes - n;
  const std::string padding(auto_pad);
  Convolution c{n < 2 ? 2 : n, x[0], x[n + 1], w[0], groups, {1, 1, 1}, {1, 1, 1}, {1, 1, 1}, {1, 1, 1}, {}, {}, {1, 1, 1}};
  if (n < 1 || skip < 0) throw Error("a convolution along more than three axes");
  if (groups < 1 || w[1] * groups != c.channels || c.filters % groups != 0) throw Error("channels do not fit the filters");
  for (int i = 0; i < n; ++i) {
    const int a = skip + i;
    c.in[a] = x[1 + i], c.out[a] = out[1 + i], c.kernel[a] = w[2 + i];
    c.stride[a] = strides[i], c.dilation[a] = dilations[i];
    if (padding == "NOTSET") {
      c.before[a] = pads[i], c.after[a] = pads[n + i];
    } else if (padding != "VALID") {
      const int64_t covered = (c.out[a] - 1) * c.stride[a] + c.dilation[a] * (c.kernel[a] - 1) + 1;
      const int64_t total = covered > c.in[a] ? covered - c.in[a] : 0;
      c.before[a] = (total + (padding == "SAME_LOWER")) / 2, c.after[a] = total - c.before[a];
    }
  }
  return c;
}

}  // namespace fusion::gpu

// The mean and the inverse deviation of groups of channels of images whose channels come last.
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include "cpu/vendor.h"

namespace fusion {
namespace cpu {

class Moments {
 public:
  Moments(const Api&, const OrtKernelInfo*, int64_t groups, float epsilon) : groups_(groups), epsilon_(epsilon) {}

  // x [n, ..., c], out [2, n, c].
  void operator()(Run& run, const Array<float>& x, const Array<float>& out) const {
    const int64_t channels = x.dims.back(), images = x.dims[0], total = images * channels;
    if (!total) return;
    float* const means = out.data;
    float* const inverses = out.data + total;
    std::fill_n(means, total, 0.0f);
    average(summed<false>(run, x, means), channels, count(x.dims) / total, means);
    average(summed<true>(run, x, means), channels, count(x.dims) / total, inverses);
    for (int64_t i = 0; i < total; ++i) inverses[i] = 1.0f / std::sqrt(inverses[i] + epsilon_);
  }

 private:
  static constexpr int64_t kPositions = 128;  // that are summed up before the sum is added to those of others

  // The sums, for each channel of each image, of the distances of its numbers from one of `from`, or of their squares.
  template <bool kSquares>
  std::vector<double> summed(Run& run, const Array<float>& x, const float* from) const {
    const int64_t channels = x.dims.back(), images = x.dims[0], places = count(x.dims) / (images * channels);
    const int64_t blocks = (places + kPositions - 1) / kPositions;
    std::vector<float> parts(images * blocks * channels);
    parallel(run, images * blocks, 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t image = i / blocks, first = i % blocks * kPositions, last = std::min(places, first + kPositions);
        const float* const center = from + image * channels;
        float* const sum = parts.data() + i * channels;
        for (int64_t p = first; p < last; ++p) {
          const float* const at = x.data + (image * places + p) * channels;
          for (int64_t c = 0; c < channels; ++c) {
            const float distance = at[c] - center[c];
            sum[c] += kSquares ? distance * distance : distance;
          }
        }
      }
    });
    std::vector<double> sums(images * channels);
    for (int64_t i = 0; i < images * blocks; ++i) {
      for (int64_t c = 0; c < channels; ++c) sums[i / blocks * channels + c] += parts[i * channels + c];
    }
    return sums;
  }

  // What the sums of a group's channels come to for each number, at each of its channels.
  void average(const std::vector<double>& sums, int64_t channels, int64_t places, float* to) const {
    const int64_t each = channels / groups_;
    for (size_t first = 0; first < sums.size(); first += each) {
      double total = 0.0;
      for (int64_t c = 0; c < each; ++c) total += sums[first + c];
      std::fill_n(to + first, each, static_cast<float>(total / static_cast<double>(places * each)));
    }
  }

  int64_t groups_;
  float epsilon_;
};

}  // namespace cpu
}  // namespace fusion

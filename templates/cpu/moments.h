// The mean and the inverse deviation of groups of channels of images whose channels come last.
#pragma once

#include <cmath>

#include "cpu/vendor.h"

namespace fusion {
namespace cpu {

class Moments {
 public:
  Moments(const Api&, const OrtKernelInfo*, int64_t groups, float epsilon) : groups_(groups), epsilon_(epsilon) {}

  // x [n, ..., c], out [2, n, c].
  void operator()(Run& run, const Array<float>& x, const Array<float>& out) const {
    const int64_t channels = x.dims.back(), images = x.dims[0];
    if (!images || !channels) return;
    const int64_t each = channels / groups_, places = count(x.dims) / (images * channels);
    parallel(run, images * groups_, std::max<int64_t>(1, kGrain / std::max<int64_t>(1, places * each)),
             [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t to = i / groups_ * channels + i % groups_ * each;
        const float* const first = x.data + i / groups_ * places * channels + i % groups_ * each;
        const double mean = summed(first, places, channels, each, 0.0, false) / (places * each);
        const double variance = summed(first, places, channels, each, mean, true) / (places * each);
        std::fill_n(out.data + to, each, static_cast<float>(mean));
        std::fill_n(out.data + images * channels + to, each, static_cast<float>(1.0 / std::sqrt(variance + epsilon_)));
      }
    });
  }

 private:
  static constexpr int64_t kGrain = 1 << 14;  // numbers that are read by one piece of the work

  // Of the distances from a number, or of their squares.
  static double summed(const float* x, int64_t places, int64_t step, int64_t each, double from, bool squares) {
    double total = 0.0;
    for (int64_t p = 0; p < places; ++p) {
      for (int64_t c = 0; c < each; ++c) {
        const double distance = x[p * step + c] - from;
        total += squares ? distance * distance : distance;
      }
    }
    return total;
  }

  int64_t groups_;
  float epsilon_;
};

}  // namespace cpu
}  // namespace fusion

// Winograd's minimal filtering of 3 by 3 (Lavin and Gray, "Fast Algorithms for Convolutional Neural Networks", 2016):
// tiles of 4 by 4 results need 36 multiplications a channel instead of 144, those of 2 by 2 need 16 instead of 36.
//
// Of each tile's 6 by 6 (4 by 4) inputs as many sums are made, the same of weights ahead of time; sums of equal place
// are multiplied as matrices, channels by tiles, and the results are made of the products. Rounding is some times that of
// a plain sum: about 5e-6 of the largest result. What is not finite spreads over its tile: it has to be done otherwise.
#pragma once

#include <array>

#include "cpu/loop.h"

namespace fusion {
namespace cpu {
namespace winograd {

// Along one axis: the sums of weights that are multiplied, those of a tile's inputs, and of products; of numbers, or of
// vectors.
template <int kSide>
struct Filter;

template <>
struct Filter<4> {
  static constexpr double kWeights[6][3] = {{1 / 4., 0, 0},
                                            {-1 / 6., -1 / 6., -1 / 6.},
                                            {-1 / 6., 1 / 6., -1 / 6.},
                                            {1 / 24., 1 / 12., 1 / 6.},
                                            {1 / 24., -1 / 12., 1 / 6.},
                                            {0, 0, 1}};
  template <class T>
  struct Six {
    T s0, s1, s2, s3, s4, s5;
  };
  template <class T>
  struct Four {
    T s0, s1, s2, s3;
  };
  template <class T>
  FUSION_INLINE static Six<T> transform(const T& x0, const T& x1, const T& x2, const T& x3, const T& x4, const T& x5) {
    const T p = x4 - 4 * x2, q = x3 - 4 * x1, r = x4 - x2, s = 2 * (x3 - x1);
    return {4 * x0 - 5 * x2 + x4, p + q, p - q, r + s, r - s, 4 * x1 - 5 * x3 + x5};
  }
  template <class T>
  FUSION_INLINE static Four<T> invert(const T& x0, const T& x1, const T& x2, const T& x3, const T& x4, const T& x5) {
    const T p = x1 + x2, q = x1 - x2, r = x3 + x4, s = x3 - x4;
    return {x0 + p + r, q + 2 * s, p + 4 * r, q + 8 * s + x5};
  }
  template <class T>
  FUSION_INLINE static void transform(const T* x, T* y) {
    const Six<T> s = transform(x[0], x[1], x[2], x[3], x[4], x[5]);
    y[0] = s.s0, y[1] = s.s1, y[2] = s.s2, y[3] = s.s3, y[4] = s.s4, y[5] = s.s5;
  }
  template <class T>
  FUSION_INLINE static void invert(const T* x, T* y) {
    const Four<T> s = invert(x[0], x[1], x[2], x[3], x[4], x[5]);
    y[0] = s.s0, y[1] = s.s1, y[2] = s.s2, y[3] = s.s3;
  }
};

template <>
struct Filter<2> {
  static constexpr double kWeights[4][3] = {{1, 0, 0}, {.5, .5, .5}, {.5, -.5, .5}, {0, 0, 1}};
  template <class T>
  FUSION_INLINE static void transform(const T* x, T* y) {
    y[0] = x[0] - x[2], y[1] = x[1] + x[2], y[2] = x[2] - x[1], y[3] = x[1] - x[3];
  }
  template <class T>
  FUSION_INLINE static void invert(const T* x, T* y) {
    y[0] = x[0] + x[1] + x[2], y[1] = x[1] - x[2] - x[3];
  }
};

// A window's weights as they are multiplied, by place.
template <int kSide>
std::array<float, (kSide + 2) * (kSide + 2)> weights_of(const float* w) {
  constexpr int kReach = kSide + 2;
  const auto& g = Filter<kSide>::kWeights;
  std::array<float, kReach * kReach> sums;
  for (int y = 0; y < kReach; ++y) {
    double down[3];
    for (int x = 0; x < 3; ++x) down[x] = g[y][0] * w[x] + g[y][1] * w[3 + x] + g[y][2] * w[6 + x];
    for (int x = 0; x < kReach; ++x)
      sums[static_cast<size_t>(y * kReach + x)] =
          static_cast<float>(g[x][0] * down[0] + g[x][1] * down[1] + g[x][2] * down[2]);
  }
  return sums;
}

}  // namespace winograd
}  // namespace cpu
}  // namespace fusion

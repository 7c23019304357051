// ONNX's elementwise operators on scalars.
#pragma once

#include <cstdint>
#include <limits>
#include <type_traits>

#include "include/elementary.h"

namespace fusion {

// The start values of max and min reductions.
template <class T>
FUSION_FN constexpr T lowest() {
  return std::is_floating_point<T>::value ? T(-inf<double>()) : std::numeric_limits<T>::lowest();
}
template <class T>
FUSION_FN constexpr T highest() {
  return std::is_floating_point<T>::value ? T(inf<double>()) : std::numeric_limits<T>::max();
}

FUSION_FN float round(float x) { return FUSION_LIBM(rintf)(x); }  // half to even
FUSION_FN double round(double x) { return FUSION_LIBM(rint)(x); }

template <class T>
FUSION_FN T abs(T x) {
  if constexpr (std::is_same<T, float>::value) return FUSION_LIBM(fabsf)(x);
  else if constexpr (std::is_same<T, double>::value) return FUSION_LIBM(fabs)(x);
  else return x < T(0) ? T(-x) : x;
}

template <class T>
FUSION_FN T sign(T x) {
  const T s = T(x > T(0)) - T(x < T(0));
  if constexpr (std::is_floating_point<T>::value) return x == x ? s : x;
  else return s;
}

// Integer division truncates; by zero it gives 0 where a CPU would trap.
template <class T>
FUSION_FN T div(T x, T y) {
  if constexpr (std::is_floating_point<T>::value) return x / y;
  else if constexpr (std::is_signed<T>::value) return y == T(0) ? T(0) : y == T(-1) ? T(T(0) - x) : T(x / y);
  else return y == T(0) ? T(0) : T(x / y);
}

template <class T>
FUSION_FN T mod(T x, T y) {  // of integers, with the sign of the divisor
  const T r = T(x - div(x, y) * y);
  return r != T(0) && (r < T(0)) != (y < T(0)) ? T(r + y) : r;
}

// A NaN on either side is the result.
template <class T>
FUSION_FN T max(T x, T y) {
  return ((x > y) | (x != x)) ? x : y;
}
template <class T>
FUSION_FN T min(T x, T y) {
  return ((x < y) | (x != x)) ? x : y;
}

template <class T>
FUSION_FN T pow(T x, T y) {
  if constexpr (std::is_same<T, float>::value) return FUSION_LIBM(powf)(x, y);
  else return static_cast<T>(FUSION_LIBM(pow)(static_cast<double>(x), static_cast<double>(y)));
}
template <class T>
FUSION_FN T pow_half(T x) {  // x^0.5, which at -inf and -0 is not sqrt(x)
  return x == -inf<T>() ? inf<T>() : sqrt(x + T(0));
}

template <class T>
FUSION_FN T reciprocal(T x) {
  return T(1) / x;
}
template <class T>
FUSION_FN T sigmoid(T x) {
  return T(1) / (T(1) + exp(-x));
}
#if defined(__CUDA_ARCH__)
// Within 2 units in the last place, and without the branches of a division.
FUSION_FN float sigmoid(float x) { return __fdividef(1.0f, 1.0f + exp(-x)); }
#endif
// 1 / sqrt(x), within 2 units in the last place.
FUSION_FN float inverse_root(float x) {
#if defined(__CUDA_ARCH__)
  return ::rsqrtf(x);
#else
  return 1.0f / sqrt(x);
#endif
}
// A sum's share of each of so many; on GPUs within 2 units in the last place, and without the branches of a division.
template <class T>
FUSION_FN T share(T sum, int64_t count) {
  return sum / static_cast<T>(count);
}
#if defined(__CUDA_ARCH__)
FUSION_FN float share(float sum, int64_t count) { return __fdividef(sum, static_cast<float>(count)); }
#endif
// Of the normal distribution what lies below x, where 2^p is what lies beyond |x|.
FUSION_FN float normal_of(float x, float p) {
#if defined(__CUDA_ARCH__)
  float tail;
  asm("ex2.approx.ftz.f32 %0, %1;\n" : "=f"(tail) : "f"(p));
#else
  const float tail = exp(p * 0.693147181f);
#endif
  return x < 0.0f ? tail : 1.0f - tail;
}
// (1 + erf(x / sqrt(2))) / 2, by which GELU multiplies x, for results of 16 bits: within 1e-5 of its value down to
// x = -5.9, where 16-bit floats end, and 2e-6 of one elsewhere. -log2 of what lies beyond |x| is smooth: a polynomial, of
// least relative error in what 2 is raised to, falls on beyond.
FUSION_FN float normal(float x) {
  const float a = abs(x);
  const float p = polynomial(a, -1.8339356e-6f, 6.158334e-5f, -9.304264e-4f, 0.008507577f, -0.053959567f, -0.45846477f,
                             -1.151251f, -0.9999953f);
  return normal_of(x, p);
}
// The same for results of float16, which they round to one of the two beside x * normal(x): within 6e-5 of its value, and x times it
// within 1.5e-8, a quarter of float16's smallest, down to x = -6.2. A polynomial of fewer terms, with as much more room beyond -4.
FUSION_FN float normal_half(float x) {
  const float a = abs(x);
  const float p = polynomial(a, -3.4633207e-4f, 0.0060739369f, -0.049051272f, -0.46304188f, -1.1496667f, -1.0000858f);
  return normal_of(x, p);
}
// A sigmoid for results of 16 bits, within 6e-6 of its value, and 0 where floats end.
FUSION_FN float logistic(float x) {
#if defined(__CUDA_ARCH__)
  float power, y;
  asm("ex2.approx.ftz.f32 %0, %1;\n" : "=f"(power) : "f"(x * -1.44269504f));
  asm("rcp.approx.ftz.f32 %0, %1;\n" : "=f"(y) : "f"(1.0f + power));
  return y;
#else
  return sigmoid(x);
#endif
}
// The normal distribution for results of float32: within 1.2e-7, what 1 + erf rounds, and within 3e-5 of its value down to
// x = -4.9. -log2 of what lies beyond |x| is smooth: a polynomial that falls on beyond, fitted to within 4e-9.
FUSION_FN float normal_float(float x) {
  const float a = abs(x);
  const float p = polynomial(a, -4.2801673e-8f, 1.1311038e-6f, -1.3121336e-5f, 8.529986e-5f, -2.995491e-4f,
                             2.3317785e-5f, 0.006936022f, -0.052443355f, -0.45921773f, -1.1511048f, -1.0f);
  return normal_of(x, p);
}
template <class T>
FUSION_FN T relu(T x) {
  return max(x, T(0));
}
template <class T>
FUSION_FN T softplus(T x) {
  return max(x, T(0)) + log1p(exp(-abs(x)));
}
template <class T>
FUSION_FN T softsign(T x) {
  return x / (T(1) + abs(x));
}
template <class T>
FUSION_FN bool is_nan(T x) {
  return x != x;
}
template <class T>
FUSION_FN bool is_inf(T x) {
  return abs(x) == inf<T>();
}

// The row of a table of `count` rows that a number means, which may count from the end; a number of none the nearest's.
template <class Number>
FUSION_FN int64_t row_of(Number number, int64_t count) {
  const int64_t row = number < 0 ? number + count : number;
  return row < 0 ? 0 : row < count ? row : count - 1;
}

}  // namespace fusion

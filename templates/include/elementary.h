// Elementary functions of floats and doubles.
//
// The float versions for g++ are branch-free, so loops over them vectorise without -ffast-math; they keep NaN,
// infinities and signed zeros and are within 4 ulp. For nvcc the device library has them.
#pragma once

#include <cstdint>

#include "include/half.h"

// The C library's functions. g++ knows them without <cmath>, which is a good part of a kernel's compile time.
#if defined(__CUDACC__)
#include <cmath>
#define FUSION_LIBM(name) ::name
#else
#define FUSION_LIBM(name) __builtin_##name
#endif

namespace fusion {

template <class T>
FUSION_FN constexpr T inf() {
  return T(__builtin_huge_val());
}
template <class T>
FUSION_FN constexpr T nan() {
  return T(__builtin_nanf(""));
}

// By Horner's rule, the coefficient of the highest power first.
template <class... More>
FUSION_FN float polynomial(float x, float first, More... more) {
  ((first = first * x + more), ...);
  return first;
}

#if defined(__CUDACC__)

FUSION_FN float exp(float x) { return ::expf(x); }
FUSION_FN float log(float x) { return ::logf(x); }
FUSION_FN float log1p(float x) { return ::log1pf(x); }
FUSION_FN float tanh(float x) { return ::tanhf(x); }
FUSION_FN float erf(float x) { return ::erff(x); }

#else

FUSION_FN float select(bool c, float a, float b) { return c ? a : b; }

// e^x = 2^n e^r with |r| <= ln2/2, P(r) a minimax polynomial; 2^n in two factors so that results may be subnormal. What is
// zero, as masked scores' weights are, is not computed: a product that underflows takes many times as long.
FUSION_FN float exp(float x) {
  const bool zero = x < -104.0f;
  const float clamped = select(x > 89.0f, 89.0f, select(zero, 0.0f, x));
  const float magic = 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer held in the low bits
  const float shifted = clamped * 1.44269504f + magic;
  const float n = shifted - magic;
  float r = clamped - n * 0.693359375f;
  r = r + n * 2.12194440e-4f;
  float p = polynomial(r, 0.00139517172f, 0.00836959841f, 0.0416661873f, 0.166665129f, 0.50000001f);
  p = p * (r * r) + r + 1.0f;
  const int32_t k = bit_cast<int32_t>(shifted) - 0x4b400000;
  const int32_t half_k = k >> 1;
  const float low = bit_cast<float>((half_k + 127) << 23), high = bit_cast<float>((k - half_k + 127) << 23);
  return select(zero, 0.0f, p * low * high);  // a NaN came through the arithmetic
}

// ln x = e ln2 + ln m with m in [sqrt(1/2), sqrt(2)).
FUSION_FN float log(float x) {
  const bool tiny = x < 1.17549435e-38f;
  const float scaled = tiny ? x * 8388608.0f : x;
  const int32_t bits = bit_cast<int32_t>(scaled);
  const int32_t offset = bits - 0x3f3504f3;
  const int32_t e = offset >> 23;
  const float exponent = static_cast<float>(e) - select(tiny, 23.0f, 0.0f);
  const float m = bit_cast<float>(bits - e * 8388608) - 1.0f;
  const float p = polynomial(m, 0.0691536795f, -0.117898076f, 0.118729763f, -0.123843485f, 0.142186581f, -0.166692508f,
                             0.200022266f, -0.249999866f, 0.333333104f);
  const float m2 = m * m;
  float y = p * m * m2 - exponent * 2.12194440e-4f - 0.5f * m2;
  y = (m + y) + exponent * 0.693359375f;
  y = select(x == inf<float>(), x, y);
  y = select(x == 0.0f, -inf<float>(), y);
  return select(x < 0.0f, nan<float>(), select(x == x, y, x));
}

FUSION_FN float log1p(float x) {
  // ln(1+x) corrected for what rounding 1+x lost.
  const float w = 1.0f + x;
  const float y = log(w) * (x / select(w == 1.0f, 1.0f, w - 1.0f));
  return select((w == 1.0f) | (x == inf<float>()), x, y);
}

FUSION_FN float tanh(float x) {
  const float a = __builtin_fabsf(x), z = x * x;
  const float p = polynomial(z, -0.00566078046f, 0.0206019992f, -0.053729227f, 0.133313289f, -0.333332783f);
  const float small = x + x * z * p;
  const float large = 1.0f - 2.0f / (exp(2.0f * a) + 1.0f);
  return select(a < 0.625f, small, select(x == x, __builtin_copysignf(large, x), x));
}

FUSION_FN float erf(float x) {
  const float a = __builtin_fabsf(x), z = x * x;
  const float p = polynomial(z, 7.88911962e-05f, -0.000802084131f, 0.00518953534f, -0.0268544446f, 0.112836002f,
                             -0.376126271f, 1.12837917f);
  const float t = select(a > 3.92f, 3.92f, a) - 2.5f;  // erfc by a polynomial around 2.5
  float q = polynomial(t, 8.59584474e-06f, -2.12993162e-05f, -5.87140991e-05f, 0.000280254476f, -0.000293590519f,
                       -0.000572915812f, 0.00282538779f, -0.00610118488f, 0.00861204257f, -0.00835390466f,
                       0.00544718693f, -0.00217802106f, 0.000406917845f);
  q = select(a < 3.92f, q, 0.0f);  // beyond, erf is 1 in float: GELU multiplies what is left by x
  return select(a < 1.0f, x * p, select(x == x, __builtin_copysignf(1.0f - q, x), x));
}

#endif

FUSION_FN double exp(double x) { return FUSION_LIBM(exp)(x); }
FUSION_FN double log(double x) { return FUSION_LIBM(log)(x); }
FUSION_FN double log1p(double x) { return FUSION_LIBM(log1p)(x); }
FUSION_FN double tanh(double x) { return FUSION_LIBM(tanh)(x); }
FUSION_FN double erf(double x) { return FUSION_LIBM(erf)(x); }

#define FUSION_UNARY(name)                                      \
  FUSION_FN float name(float x) { return FUSION_LIBM(name##f)(x); }        \
  FUSION_FN double name(double x) { return FUSION_LIBM(name)(x); }
FUSION_UNARY(acos)
FUSION_UNARY(acosh)
FUSION_UNARY(asin)
FUSION_UNARY(asinh)
FUSION_UNARY(atan)
FUSION_UNARY(atanh)
FUSION_UNARY(ceil)
FUSION_UNARY(cos)
FUSION_UNARY(cosh)
FUSION_UNARY(floor)
FUSION_UNARY(sin)
FUSION_UNARY(sinh)
FUSION_UNARY(sqrt)
FUSION_UNARY(tan)
#undef FUSION_UNARY

}  // namespace fusion

// float16 and bfloat16 as storage types: 16 bits that are widened to float to compute and rounded to even when stored.
#pragma once

#include <cstdint>

#if defined(__CUDACC__)
#define FUSION_FN __host__ __device__ __forceinline__
#else
#define FUSION_FN inline __attribute__((always_inline))
#endif
// The compiler's own names for two instructions: <immintrin.h> would take a third of a kernel's compile time.
#if defined(__F16C__) && defined(__GNUC__) && !defined(__clang__) && !defined(__CUDACC__)
#define FUSION_F16C 1
typedef short fusion_v8hi __attribute__((vector_size(16)));
typedef float fusion_v4sf __attribute__((vector_size(16)));
typedef float fusion_v8sf __attribute__((vector_size(32)));
#endif

namespace fusion {

struct half {
  uint16_t bits;
};
struct bfloat {
  uint16_t bits;
};

template <class To, class From>
FUSION_FN To bit_cast(const From& from) {
  static_assert(sizeof(To) == sizeof(From), "bit_cast between sizes");
  To to;
  __builtin_memcpy(&to, &from, sizeof(To));
  return to;
}

FUSION_FN float to_float(bfloat x) { return bit_cast<float>(uint32_t(x.bits) << 16); }

FUSION_FN bfloat to_bfloat(float x) {
#if defined(__CUDA_ARCH__)
  bfloat rounded;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(rounded.bits) : "f"(x));
  return rounded;
#else
  const uint32_t u = bit_cast<uint32_t>(x);
  const uint32_t rounded = (u + 0x7fffu + ((u >> 16) & 1u)) >> 16;
  return bfloat{uint16_t(x == x ? rounded : (u >> 16) | 0x40u)};
#endif
}

FUSION_FN float to_float(half x) {
#if defined(__CUDA_ARCH__)
  float widened;
  asm("cvt.f32.f16 %0, %1;" : "=f"(widened) : "h"(x.bits));  // one instruction, without the toolkit's large header
  return widened;
#elif defined(FUSION_F16C)
  return __builtin_ia32_vcvtph2ps(fusion_v8hi{static_cast<short>(x.bits)})[0];
#else
  // Shift the fields into place, then rescale by 2^112, which also normalises subnormals; 31 is inf or NaN.
  const uint32_t magnitude = uint32_t(x.bits & 0x7fffu) << 13, sign = uint32_t(x.bits & 0x8000u) << 16;
  const float scaled = bit_cast<float>(magnitude) * bit_cast<float>(uint32_t(239) << 23);
  const uint32_t special = magnitude >= (31u << 23) ? 0x7f800000u : 0u;
  return bit_cast<float>(bit_cast<uint32_t>(scaled) | special | sign);
#endif
}

FUSION_FN half to_half(float x) {
#if defined(__CUDA_ARCH__)
  half rounded;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(rounded.bits) : "f"(x));
  return rounded;
#elif defined(FUSION_F16C)
  return half{static_cast<uint16_t>(__builtin_ia32_vcvtps2ph(fusion_v4sf{x}, 0)[0])};
#else
  const uint32_t u = bit_cast<uint32_t>(x), sign = (u >> 16) & 0x8000u, magnitude = u & 0x7fffffffu;
  uint32_t bits;
  if (magnitude > 0x7f800000u) {
    bits = 0x7e00u;
  } else if (magnitude >= 0x477ff000u) {
    bits = 0x7c00u;
  } else if (magnitude < 0x38800000u) {
    // Adding 1/2 aligns the mantissa of a subnormal result at bit 0 and rounds it in the adder.
    bits = bit_cast<uint32_t>(bit_cast<float>(magnitude) + 0.5f) - 0x3f000000u;
  } else {
    bits = (magnitude - 0x38000000u + 0xfffu + ((magnitude >> 13) & 1u)) >> 13;
  }
  return half{uint16_t(bits | sign)};
#endif
}

// An element in the type it is computed in, and back.
template <class T>
FUSION_FN T load(const T* p) {
  return *p;
}
FUSION_FN float load(const half* p) { return to_float(*p); }
FUSION_FN float load(const bfloat* p) { return to_float(*p); }

template <class T, class V>
FUSION_FN void store(T* p, V value) {
  *p = static_cast<T>(value);
}
template <class V>
FUSION_FN void store(half* p, V value) {
  *p = to_half(static_cast<float>(value));
}
template <class V>
FUSION_FN void store(bfloat* p, V value) {
  *p = to_bfloat(static_cast<float>(value));
}

// An explicit Cast to a 16-bit type: round, and go on computing in float.
template <class T, class V>
FUSION_FN float round_to(V value) {
  T narrow;
  store(&narrow, static_cast<float>(value));
  return load(&narrow);
}

}  // namespace fusion

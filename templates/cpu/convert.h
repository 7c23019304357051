// 16-bit floats to float and back, a run at a time: loops that compute then see only float and vectorise.
#pragma once

#include <cstdint>
#include <type_traits>

#include "include/half.h"

namespace fusion {
namespace cpu {

template <class T>
void widen(const T* p, int64_t stride, int64_t n, float* out) {
  for (int64_t i = 0; i < n; ++i) out[i] = static_cast<float>(load(p + i * stride));
}
#if defined(FUSION_F16C)
inline void widen(const half* p, int64_t stride, int64_t n, float* out) {
  int64_t i = 0;
  if (stride == 1)
    for (; i + 8 <= n; i += 8) {
      fusion_v8hi narrow;
      __builtin_memcpy(&narrow, p + i, sizeof(narrow));
      const fusion_v8sf wide = __builtin_ia32_vcvtph2ps256(narrow);
      __builtin_memcpy(out + i, &wide, sizeof(wide));
    }
  for (; i < n; ++i) out[i] = to_float(p[i * stride]);
}
inline void narrow(const float* p, int64_t n, half* out) {
  int64_t i = 0;
  for (; i + 8 <= n; i += 8) {
    fusion_v8sf wide;
    __builtin_memcpy(&wide, p + i, sizeof(wide));
    const fusion_v8hi narrow = __builtin_ia32_vcvtps2ph256(wide, 0);
    __builtin_memcpy(out + i, &narrow, sizeof(narrow));
  }
  for (; i < n; ++i) store(out + i, p[i]);
}
#endif
template <class T>
void narrow(const float* p, int64_t n, T* out) {
  for (int64_t i = 0; i < n; ++i) store(out + i, p[i]);
}

// n elements from one strided run to another, converted.
template <class To, class From>
void copy(const From* from, int64_t from_step, int64_t n, To* to, int64_t to_step) {
  if (from_step != 1 || to_step != 1) {
    for (int64_t i = 0; i < n; ++i) store(to + i * to_step, load(from + i * from_step));
  } else if constexpr (std::is_same<To, From>::value) {
    __builtin_memcpy(to, from, static_cast<size_t>(n) * sizeof(To));
  } else if constexpr (std::is_same<To, float>::value) {
    widen(from, 1, n, to);
  } else if constexpr (std::is_same<From, float>::value) {
    narrow(from, n, to);
  } else {
    for (int64_t i = 0; i < n; ++i) store(to + i, load(from + i));
  }
}

}  // namespace cpu
}  // namespace fusion

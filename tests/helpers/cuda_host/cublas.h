// The vendor's product: what cuBLAS computes, in the same words, for the kernels' `Blas`.
#pragma once

#include <cstddef>
#include <cstring>

#include "include/half.h"

namespace cuda_host {

constexpr int kHandle = 10002;  // ONNX Runtime's number for the handle
inline std::nullptr_t resource(int id, void** out) {
  static int handle;
  return *out = id == kHandle ? &handle : nullptr, nullptr;
}

inline float get(const void* data, int type, int64_t i) {
  if (type == 2) return fusion::load(static_cast<const fusion::half*>(data) + i);
  if (type == 14) return fusion::load(static_cast<const fusion::bfloat*>(data) + i);
  return static_cast<const float*>(data)[i];
}
inline void put(void* data, int type, int64_t i, float value) {
  if (type == 2) return fusion::store(static_cast<fusion::half*>(data) + i, value);
  if (type == 14) return fusion::store(static_cast<fusion::bfloat*>(data) + i, value);
  static_cast<float*>(data)[i] = value;
}

// Column by column: c[m, n] = alpha * op(a)[m, k] * op(b)[k, n].
inline int gemm_batched(void*, int trans_a, int trans_b, int m, int n, int k, const void* alpha, const void* a, int type_a,
                        int lda, long long step_a, const void* b, int type_b, int ldb, long long step_b, const void*,
                        void* c, int type_c, int ldc, long long step_c, int count, int, int) {
  for (int64_t i = 0; i < count; ++i)
    for (int64_t col = 0; col < n; ++col)
      for (int64_t row = 0; row < m; ++row) {
        float sum = 0;
        for (int64_t j = 0; j < k; ++j)
          sum += get(a, type_a, i * step_a + (trans_a ? row * lda + j : j * lda + row)) *
                 get(b, type_b, i * step_b + (trans_b ? j * ldb + col : col * ldb + j));
        put(c, type_c, i * step_c + col * ldc + row, *static_cast<const float*>(alpha) * sum);
      }
  return lda < (trans_a ? k : m) || ldb < (trans_b ? n : k) || ldc < m;
}
inline int gemm(void* handle, int trans_a, int trans_b, int m, int n, int k, const void* alpha, const void* a, int type_a,
                int lda, const void* b, int type_b, int ldb, const void* beta, void* c, int type_c, int ldc, int compute,
                int algorithm) {
  return gemm_batched(handle, trans_a, trans_b, m, n, k, alpha, a, type_a, lda, 0, b, type_b, ldb, 0, beta, c, type_c,
                      ldc, 0, 1, compute, algorithm);
}
inline int get_stream(void*, void** stream) { return *stream = nullptr, 0; }

// A library, or a function of it, by name.
inline void* vendor(const char* name) {
  if (!std::strcmp(name, "cublasGemmEx")) return reinterpret_cast<void*>(gemm);
  if (!std::strcmp(name, "cublasGemmStridedBatchedEx")) return reinterpret_cast<void*>(gemm_batched);
  return reinterpret_cast<void*>(get_stream);
}

}  // namespace cuda_host

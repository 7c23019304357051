// The vendor's product: what cuBLAS computes, in the same words, for the kernels' `Blas`.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <utility>
#include <vector>

#include "graph.h"
#include "include/half.h"

namespace cuda_host {

// What a test asks for, while it runs, in the environment.
inline bool asked(const char* name) { return std::getenv(name) != nullptr; }
inline bool has_cudnn() { return !asked("CUDA_HOST_OWN"); }
inline double vendor_from() { return asked("CUDA_HOST_VENDOR") ? 0 : 1e300; }

constexpr int kDnnHandle = 10001, kHandle = 10002, kUseTf32 = 10011;  // ONNX Runtime's numbers
inline std::nullptr_t resource(int id, void** out) {
  static int handle;
  return *out = id == kHandle || id == kDnnHandle || (id == kUseTf32 && asked("CUDA_HOST_TF32")) ? &handle : nullptr, nullptr;
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
inline void multiply(int trans_a, int trans_b, int m, int n, int k, float alpha, const void* a, int type_a, int lda,
                     long long step_a, const void* b, int type_b, int ldb, long long step_b, void* c, int type_c, int ldc,
                     long long step_c, int count) {
  for (int64_t i = 0; i < count; ++i)
    for (int64_t col = 0; col < n; ++col)
      for (int64_t row = 0; row < m; ++row) {
        float sum = 0;
        for (int64_t j = 0; j < k; ++j)
          sum += get(a, type_a, i * step_a + (trans_a ? row * lda + j : j * lda + row)) *
                 get(b, type_b, i * step_b + (trans_b ? j * ldb + col : col * ldb + j));
        put(c, type_c, i * step_c + col * ldc + row, alpha * sum);
      }
}
inline int gemm_batched(void*, int trans_a, int trans_b, int m, int n, int k, const void* alpha, const void* a, int type_a,
                        int lda, long long step_a, const void* b, int type_b, int ldb, long long step_b, const void*,
                        void* c, int type_c, int ldc, long long step_c, int count, int, int) {
  enqueue([=, scale = *static_cast<const float*>(alpha)] {
    multiply(trans_a, trans_b, m, n, k, scale, a, type_a, lda, step_a, b, type_b, ldb, step_b, c, type_c, ldc, step_c, count);
  });
  return lda < (trans_a ? k : m) || ldb < (trans_b ? n : k) || ldc < m;
}
inline int gemm(void* handle, int trans_a, int trans_b, int m, int n, int k, const void* alpha, const void* a, int type_a,
                int lda, const void* b, int type_b, int ldb, const void* beta, void* c, int type_c, int ldc, int compute,
                int algorithm) {
  return gemm_batched(handle, trans_a, trans_b, m, n, k, alpha, a, type_a, lda, 0, b, type_b, ldb, 0, beta, c, type_c,
                      ldc, 0, 1, compute, algorithm);
}
inline std::vector<float> floats(const void* data, int type, int64_t size) {
  std::vector<float> found(static_cast<size_t>(size));
  for (int64_t i = 0; i < size; ++i) found[i] = get(data, type, i);
  return found;
}
inline int get_stream(void*, void** stream) { return *stream = nullptr, 0; }

// cuBLASLt: what a description says of a product, and matrices that are told in columns.
struct LtDesc {
  int trans[2] = {0, 0}, epilogue = 1;
  const void* bias = nullptr;
};
struct LtLayout {
  int type;
  uint64_t rows, columns;
  int64_t leading;
};
inline int lt_desc(void** made, int, int) { return *made = new LtDesc, 0; }
inline int lt_no_desc(void* made) { return delete static_cast<LtDesc*>(made), 0; }
inline int lt_set_desc(void* made, int what, const void* value, size_t size) {
  auto* const desc = static_cast<LtDesc*>(made);
  void* const place = what == 8 ? static_cast<void*>(&desc->bias) : what == 7 ? &desc->epilogue : &desc->trans[what - 3];
  return std::memcpy(place, value, size), what < 3 || what > 8;
}
inline int lt_layout(void** made, int type, uint64_t rows, uint64_t columns, int64_t leading) {
  return *made = new LtLayout{type, rows, columns, leading}, 0;
}
inline int lt_no_layout(void* made) { return delete static_cast<LtLayout*>(made), 0; }
inline int lt_preference(void** made) { return *made = new int, 0; }
inline int lt_no_preference(void* made) { return delete static_cast<int*>(made), 0; }
inline int lt_set_preference(void*, int, const void*, size_t) { return 0; }
// What the heuristic names: kernels by number, with the tile of each, how often it fills the GPU, and how long it takes.
struct LtKernel {
  uint32_t tile;
  float waves, milliseconds;
};
inline std::vector<LtKernel> lt_kernels = {{20, 1.0f, 0.0f}};
inline std::vector<uint64_t> lt_ran;  // by number
inline bool lt_computes = true;
struct LtResult {  // cublasLtMatmulHeuristicResult_t
  uint64_t algorithm[8];
  size_t workspace;
  int state;
  float waves;
  int reserved[4];
};
inline int lt_heuristic(void*, void*, void*, void*, void*, void*, void*, int most, void* results, int* found) {
  *found = std::min<int>(most, static_cast<int>(lt_kernels.size()));
  for (int i = 0; i < *found; ++i) static_cast<LtResult*>(results)[i] = {{static_cast<uint64_t>(i)}, 0, 0, lt_kernels[i].waves, {}};
  return 0;
}
inline int lt_config(const void* algorithm, int what, void* value, size_t size, size_t* written) {
  const LtKernel& kernel = lt_kernels[*static_cast<const uint64_t*>(algorithm)];
  return std::memcpy(value, &kernel.tile, size), *written = size, what != 1;
}
inline int lt_matmul(void*, void* desc_, const float* alpha_, const void* a, void* la_, const void* b, void* lb_,
                     const float* beta_, const void* c, void*, void* d, void* ld_, const void* algorithm, void*, size_t, void*) {
  const uint64_t number = *static_cast<const uint64_t*>(algorithm);
  cuda_host_took = lt_kernels[number].milliseconds;
  lt_ran.push_back(number);
  if (!lt_computes) return 0;
  const auto desc = *static_cast<LtDesc*>(desc_);
  const auto la = *static_cast<LtLayout*>(la_), lb = *static_cast<LtLayout*>(lb_), ld = *static_cast<LtLayout*>(ld_);
  const int m = static_cast<int>(ld.rows), n = static_cast<int>(ld.columns);
  const int k = static_cast<int>(desc.trans[0] ? la.rows : la.columns);
  if ((desc.trans[1] ? lb.columns : lb.rows) != static_cast<uint64_t>(k)) return 1;
  for (const LtLayout& l : {la, lb, ld}) {
    if (l.leading < static_cast<int64_t>(l.rows)) return 1;
  }
  if (la.leading < (desc.trans[0] ? k : m) || lb.leading < (desc.trans[1] ? n : k)) return 1;
  enqueue([=, alpha = *alpha_, beta = *beta_] {
    std::vector<float> product(static_cast<size_t>(m) * n);
    const std::vector<float> left = floats(a, la.type, la.leading * la.columns), right = floats(b, lb.type, lb.leading * lb.columns);
    multiply(desc.trans[0], desc.trans[1], m, n, k, alpha, left.data(), 0, static_cast<int>(la.leading), 0, right.data(), 0,
             static_cast<int>(lb.leading), 0, product.data(), 0, m, 0, 1);
    for (int64_t i = 0; i < int64_t(m) * n; ++i) {
      float sum = product[i] + (beta != 0 ? beta * get(c, ld.type, i) : 0.0f);
      if (desc.epilogue & 4) sum += get(desc.bias, ld.type, i % m);
      put(d, ld.type, i, desc.epilogue & 2 && !(sum > 0) && sum == sum ? 0.0f : sum);
    }
  });
  return 0;
}

inline void* cublas(const char* name) {
  const std::pair<const char*, void*> lt[] = {
      {"cublasLtMatmulDescCreate", reinterpret_cast<void*>(lt_desc)},
      {"cublasLtMatmulDescDestroy", reinterpret_cast<void*>(lt_no_desc)},
      {"cublasLtMatmulDescSetAttribute", reinterpret_cast<void*>(lt_set_desc)},
      {"cublasLtMatrixLayoutCreate", reinterpret_cast<void*>(lt_layout)},
      {"cublasLtMatrixLayoutDestroy", reinterpret_cast<void*>(lt_no_layout)},
      {"cublasLtMatmulPreferenceCreate", reinterpret_cast<void*>(lt_preference)},
      {"cublasLtMatmulPreferenceDestroy", reinterpret_cast<void*>(lt_no_preference)},
      {"cublasLtMatmulPreferenceSetAttribute", reinterpret_cast<void*>(lt_set_preference)},
      {"cublasLtMatmulAlgoGetHeuristic", reinterpret_cast<void*>(lt_heuristic)},
      {"cublasLtMatmulAlgoConfigGetAttribute", reinterpret_cast<void*>(lt_config)},
      {"cublasLtMatmul", reinterpret_cast<void*>(lt_matmul)},
  };
  for (const auto& [known, function] : lt) {
    if (!std::strcmp(name, known)) return function;
  }
  if (!std::strcmp(name, "cublasGemmEx")) return reinterpret_cast<void*>(gemm);
  if (!std::strcmp(name, "cublasGemmStridedBatchedEx")) return reinterpret_cast<void*>(gemm_batched);
  return reinterpret_cast<void*>(get_stream);
}

}  // namespace cuda_host

// The session's own cuBLAS, without its headers: the handle from ONNX Runtime, the functions from the library that the
// CUDA provider has loaded. Either may be missing, then `Blas::find` says so and the caller uses its own kernel.
#pragma once

#include <cuda_runtime.h>
#include <dlfcn.h>

#include <climits>
#include <cstdint>
#include <initializer_list>

#include "include/linear.cuh"
#include "include/provider.h"

namespace fusion::gpu {

enum class BlasType { kFloat = 0, kHalf = 2, kBfloat = 14 };  // cudaDataType_t

template <class T> struct BlasTypeOf;
template <> struct BlasTypeOf<float> { static constexpr BlasType value = BlasType::kFloat; };
template <> struct BlasTypeOf<half> { static constexpr BlasType value = BlasType::kHalf; };
template <> struct BlasTypeOf<bfloat> { static constexpr BlasType value = BlasType::kBfloat; };

// How cuBLAS walks a product's operands: whether each is stored transposed, and its leading dimension. Usable if one of
// the two strides of each is 1.
struct Strides {
  bool usable, trans_a, trans_b;
  int64_t lda, ldb;
};

inline Strides strides(const Product& p) {
  const auto leading = [](int64_t stride, int64_t least) { return stride < least ? least : stride; };
  const bool trans_a = p.a_k != 1 && p.k != 1, trans_b = p.b_column != 1 && p.n != 1;
  const bool usable = !(trans_a && p.a_row != 1 && p.m != 1) && !(trans_b && p.b_k != 1 && p.k != 1);
  const int64_t lda = leading(trans_a ? p.a_k : p.a_row, trans_a ? p.m : p.k);
  return {usable, trans_a, trans_b, lda, leading(trans_b ? p.b_column : p.b_k, trans_b ? p.k : p.n)};
}

// A library that the process has loaded already: the session's handle belongs to it.
inline void* loaded_library(std::initializer_list<const char*> names) {
  void* library = nullptr;
  for (const char* name : names) {
    if (library == nullptr) library = dlopen(name, RTLD_NOW | RTLD_NOLOAD);
  }
  return library;
}

template <class F>
bool get_function(void* library, const char* name, F& function) {
  function = reinterpret_cast<F>(dlsym(library, name));
  return function != nullptr;
}

class Blas {
 public:
  // The provider's cuBLAS handle, on the stream of a run; false where there is none.
  static Blas find(const Api& api, const OrtKernelContext* context, cudaStream_t stream) {
    constexpr int kHandle = 10002;
    Blas blas;
    if (functions().gemm == nullptr) return blas;
    void* handle = nullptr;
    if (!obtain(api, context, kHandle, &handle) || handle == nullptr) return blas;
    cudaStream_t current = nullptr;
    // Setting the stream, even to what it is, would take the handle's workspace away.
    if (functions().get_stream(handle, &current) != 0) return blas;
    if (current != stream && functions().set_stream(handle, stream) != 0) return blas;
    blas.tf32_ = allows_tf32(api, context);
    blas.log_ = Log(api, context);
    blas.handle_ = handle;
    return blas;
  }

  explicit operator bool() const { return handle_ != nullptr; }
  void* handle() const { return handle_; }
  const Log& log() const { return log_; }
  // Whether products of float32 may be rounded.
  bool tf32() const { return tf32_; }
  // CUBLAS_COMPUTE_32F_FAST_TF32, CUBLAS_COMPUTE_32F
  int compute_type(int type) const { return type == 0 && tf32_ ? 77 : 68; }

  // c[batch, m, n] = alpha * a @ b, c contiguous. False if the product has a form that cuBLAS does not take.
  template <class T, int N>
  bool multiply(const T* a, const T* b, T* c, const Product& p, const Space<N>& batches) const {
    const auto [usable, trans_a, trans_b, lda, ldb] = strides(p);
    if (!usable) return false;
    if (p.k == 0 || batches.rank > 2 || (batches.rank == 2 && batches.axis[1].size > kMostCalls)) return false;
    for (int64_t extent : {p.m, p.n, p.k, lda, ldb, batches.count}) {
      if (extent > INT_MAX) return false;
    }
    // cuBLAS thinks in columns: a row-major C is the column-major C^T = B^T A^T. It takes one batch axis; a second one,
    // where the operands' strides do not let the two merge, becomes calls.
    const float alpha = p.alpha, beta = 0.0f;
    const int type = static_cast<int>(BlasTypeOf<T>::value);
    const int compute = compute_type(type);
    const int m = static_cast<int>(p.m), n = static_cast<int>(p.n), k = static_cast<int>(p.k);
    const int64_t calls = batches.rank == 2 ? batches.axis[1].size : 1;
    const int count = batches.rank > 0 ? static_cast<int>(batches.axis[0].size) : 1;
    for (int64_t i = 0; i < calls; ++i) {
      const T* const b_i = b + i * batches.axis[1].stride[1];
      const T* const a_i = a + i * batches.axis[1].stride[0];
      T* const c_i = c + i * count * p.m * p.n;
      const int status =
          count == 1 ? functions().gemm(handle_, trans_b, trans_a, n, m, k, &alpha, b_i, type, static_cast<int>(ldb),
                                        a_i, type, static_cast<int>(lda), &beta, c_i, type, n, compute,
                                        kDefaultAlgorithm)
                     : functions().gemm_batched(handle_, trans_b, trans_a, n, m, k, &alpha, b_i, type,
                                                static_cast<int>(ldb), batches.axis[0].stride[1], a_i, type,
                                                static_cast<int>(lda), batches.axis[0].stride[0], &beta, c_i, type, n,
                                                p.m * p.n, count, compute, kDefaultAlgorithm);
      if (status != 0) throw Error("cuBLAS failed with status " + std::to_string(status));
    }
    return true;
  }

 private:
  using GetStream = int (*)(void*, cudaStream_t*);
  using SetStream = int (*)(void*, cudaStream_t);
  using Gemm = int (*)(void*, int, int, int, int, int, const void*, const void*, int, int, const void*, int, int,
                       const void*, void*, int, int, int, int);
  using GemmBatched = int (*)(void*, int, int, int, int, int, const void*, const void*, int, int, long long,
                              const void*, int, int, long long, const void*, void*, int, int, long long, int, int,
                              int);
  static constexpr int kDefaultAlgorithm = -1;  // CUBLAS_GEMM_DEFAULT
  static constexpr int64_t kMostCalls = 64;

  struct Functions {
    GetStream get_stream = nullptr;
    SetStream set_stream = nullptr;
    Gemm gemm = nullptr;
    GemmBatched gemm_batched = nullptr;

    Functions() {
      void* const library = loaded_library({"libcublas.so.13", "libcublas.so.12", "libcublas.so.11"});
      if (library == nullptr) return;
      get_stream = reinterpret_cast<GetStream>(dlsym(library, "cublasGetStream_v2"));
      set_stream = reinterpret_cast<SetStream>(dlsym(library, "cublasSetStream_v2"));
      gemm_batched = reinterpret_cast<GemmBatched>(dlsym(library, "cublasGemmStridedBatchedEx"));
      if (get_stream && set_stream && gemm_batched) gemm = reinterpret_cast<Gemm>(dlsym(library, "cublasGemmEx"));
    }
  };

  static const Functions& functions() {
    static const Functions loaded;
    return loaded;
  }

  void* handle_ = nullptr;
  bool tf32_ = false;
  Log log_;
};

}  // namespace fusion::gpu

// cuDNN's graph API, without its headers. The handle is the session's, the functions are those of the library that the CUDA
// provider has loaded. The numbers are those of cudnn_graph.h, which have not changed since cuDNN 8.
#pragma once

#include <cuda_runtime.h>
#include <dlfcn.h>

#include <cstdint>
#include <utility>

#include "include/blas.h"

#ifndef FUSION_CUDNN
#define FUSION_CUDNN true  // whether to ask for it at all
#endif

namespace fusion::gpu {

struct CudnnFunctions {
  int (*get_stream)(void*, cudaStream_t*) = nullptr;
  int (*set_stream)(void*, cudaStream_t) = nullptr;
  int (*create)(int, void**) = nullptr;
  int (*destroy)(void*) = nullptr;
  int (*set)(void*, int, int, int64_t, const void*) = nullptr;
  int (*get)(void*, int, int, int64_t, int64_t*, void*) = nullptr;
  int (*finalize)(void*) = nullptr;
  int (*execute)(void*, void*, void*) = nullptr;

  CudnnFunctions() {
    void* const library = loaded_library({"libcudnn.so.9", "libcudnn.so.8"});
    if (library == nullptr) return;
    const bool whole =
        get_function(library, "cudnnGetStream", get_stream) && get_function(library, "cudnnSetStream", set_stream) &&
        get_function(library, "cudnnBackendCreateDescriptor", create) &&
        get_function(library, "cudnnBackendDestroyDescriptor", destroy) &&
        get_function(library, "cudnnBackendSetAttribute", set) && get_function(library, "cudnnBackendGetAttribute", get) &&
        get_function(library, "cudnnBackendFinalize", finalize);
    if (whole) get_function(library, "cudnnBackendExecute", execute);
  }
  static const CudnnFunctions& loaded() {
    static const CudnnFunctions functions;
    return functions;
  }
};

// The provider's cuDNN handle, on the stream of a run; false where there is none.
class Cudnn {
 public:
  static Cudnn find(const Api& api, const OrtKernelContext* context, cudaStream_t stream) {
    constexpr int kHandle = 10001;
    const CudnnFunctions& functions = CudnnFunctions::loaded();
    Cudnn found;
    void* handle = nullptr;
    if (!FUSION_CUDNN || functions.execute == nullptr || !obtain(api, context, kHandle, &handle) || handle == nullptr) return found;
    cudaStream_t current = nullptr;
    if (functions.get_stream(handle, &current) != 0) return found;
    if (current != stream && functions.set_stream(handle, stream) != 0) return found;
    found.tf32_ = gpu::allows_tf32(api, context);
    found.log_ = Log(api, context);
    found.handle_ = handle;
    return found;
  }

  explicit operator bool() const { return handle_ != nullptr; }
  void* handle() const { return handle_; }
  const Log& log() const { return log_; }
  bool allows_tf32() const { return tf32_; }

 private:
  void* handle_ = nullptr;
  bool tf32_ = false;
  Log log_;
};

// One of cuDNN's descriptors, destroyed with this; `ok` as long as every call went well.
class CudnnDescriptor {
 public:
  explicit CudnnDescriptor(int kind) { ok_ = CudnnFunctions::loaded().create(kind, &made_) == 0; }
  CudnnDescriptor(CudnnDescriptor&& other) noexcept : made_(std::exchange(other.made_, nullptr)), ok_(other.ok_) {}
  CudnnDescriptor& operator=(CudnnDescriptor&& other) noexcept {
    std::swap(made_, other.made_), std::swap(ok_, other.ok_);
    return *this;
  }
  ~CudnnDescriptor() {
    if (made_ != nullptr) CudnnFunctions::loaded().destroy(made_);
  }

  template <class T>
  CudnnDescriptor& set(int attribute, int type, const T* values, int64_t count = 1) {
    ok_ = ok_ && CudnnFunctions::loaded().set(made_, attribute, type, count, values) == 0;
    return *this;
  }
  CudnnDescriptor& set(int attribute, const CudnnDescriptor& other) {
    ok_ = ok_ && other.ok_;
    return set(attribute, kDescriptor, &other.made_);
  }
  template <class T>
  bool get(int attribute, int type, T* values, int64_t most, int64_t* count) {
    return ok_ && CudnnFunctions::loaded().get(made_, attribute, type, most, count, values) == 0;
  }
  CudnnDescriptor& finalize() {
    ok_ = ok_ && CudnnFunctions::loaded().finalize(made_) == 0;
    return *this;
  }
  bool ok() const { return ok_; }
  void* const& raw() const { return made_; }

  static constexpr int kDescriptor = 15;  // the type of an attribute that is another descriptor

 private:
  void* made_ = nullptr;
  bool ok_ = false;
};

}  // namespace fusion::gpu

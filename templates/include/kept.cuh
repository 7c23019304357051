// What kernels make of a constant input once and keep.
#pragma once

#include <cuda_runtime.h>

#include <mutex>

#include "include/gpu.cuh"

namespace fusion::gpu {

class Kept {
 public:
  Kept() = default;
  Kept(const Kept&) = delete;
  Kept& operator=(const Kept&) = delete;
  ~Kept() { cudaFree(data_); }

  // The memory that fill(memory) has written to by kernels on `stream`, which on its first use are waited for: runs on other
  // streams may be the next to read it. None while a CUDA graph is captured, and where less than a share of the GPU's memory
  // would stay free.
  template <class F>
  void* get(cudaStream_t stream, size_t bytes, double share, const F& fill) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (data_ != nullptr || is_given_up_) return data_;
    cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
    check(cudaStreamIsCapturing(stream, &capture), "cudaStreamIsCapturing");
    if (capture != cudaStreamCaptureStatusNone) return nullptr;
    size_t free = 0, total = 0;
    check(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
    is_given_up_ = static_cast<double>(free) < static_cast<double>(bytes) + share * static_cast<double>(total);
    if (is_given_up_) return nullptr;
    void* data = allocated(bytes);
    try {
      fill(data);
      check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
    } catch (...) {
      cudaFree(data);
      throw;
    }
    return data_ = data;
  }

 private:
  // Another thread may be capturing a graph, of which this is no part.
  static void* allocated(size_t bytes) {
    void* data = nullptr;
    cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
    check(cudaThreadExchangeStreamCaptureMode(&mode), "cudaThreadExchangeStreamCaptureMode");
    const cudaError_t status = cudaMalloc(&data, bytes);
    check(cudaThreadExchangeStreamCaptureMode(&mode), "cudaThreadExchangeStreamCaptureMode");
    check(status, "cudaMalloc of what is kept of a constant");
    return data;
  }

  std::mutex mutex_;
  void* data_ = nullptr;
  bool is_given_up_ = false;
};

}  // namespace fusion::gpu

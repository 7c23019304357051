// How long the GPU takes from one place of a stream to another.
#pragma once

#include <cuda_runtime.h>

#include "include/gpu.cuh"

namespace fusion::gpu {

class Stopwatch {
 public:
  Stopwatch() {
    check(cudaEventCreate(&begin_), "cudaEventCreate");
    check(cudaEventCreate(&end_), "cudaEventCreate");
  }
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;
  ~Stopwatch() {
    cudaEventDestroy(begin_);
    cudaEventDestroy(end_);
  }

  cudaError_t start(cudaStream_t stream) { return cudaEventRecord(begin_, stream); }
  cudaError_t stop(cudaStream_t stream) { return cudaEventRecord(end_, stream); }
  cudaError_t wait() const { return cudaEventSynchronize(end_); }
  // Milliseconds, or less than none where the GPU is not done with it.
  float took() const {
    float found = 0.0f;
    return cudaEventElapsedTime(&found, begin_, end_) == cudaSuccess ? found : -1.0f;
  }

 private:
  cudaEvent_t begin_ = nullptr, end_ = nullptr;
};

}  // namespace fusion::gpu

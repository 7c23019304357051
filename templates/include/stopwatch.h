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

// Nothing can be timed while a graph is captured.
inline bool can_time(cudaStream_t stream) {
  cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
  check(cudaStreamIsCapturing(stream, &capture), "cudaStreamIsCapturing");
  return capture == cudaStreamCaptureStatusNone;
}

// Milliseconds of the fastest of some runs, each after something else has been through the cache: as much is written to `work`.
// Less than zero where a run fails.
template <class Run>
float least_time(cudaStream_t stream, void* work, size_t bytes, const Run& run) {
  constexpr int kRuns = 5;
  Stopwatch watch;
  float least = -1.0f;
  for (int i = 0; i < kRuns; ++i) {
    check(cudaMemsetAsync(work, 0, bytes, stream), "cudaMemsetAsync");
    const bool ran = watch.start(stream) == cudaSuccess && run() && watch.stop(stream) == cudaSuccess && watch.wait() == cudaSuccess;
    const float took = watch.took();
    if (!ran || took < 0.0f) return -1.0f;
    if (least < 0.0f || took < least) least = took;
  }
  return least;
}

}  // namespace fusion::gpu

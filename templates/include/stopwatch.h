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
  // Whether the GPU has come to the beginning.
  bool has_begun() const {
    const bool found = cudaEventQuery(begin_) == cudaSuccess;
    cudaGetLastError();  // nobody else is to find that it has not
    return found;
  }
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

// Reads all of `data`; `found` is for the compiler, which would leave out what nobody sees.
template <class Four>
__global__ void read_through(const Four* data, size_t count, unsigned* found) {
  unsigned seen = 0;
  for (size_t i = blockIdx.x * size_t{blockDim.x} + threadIdx.x; i < count; i += size_t{gridDim.x} * blockDim.x) {
    const Four x = data[i];
    seen |= x.x & x.y & x.z & x.w;
  }
  if (seen == 1) *found = seen;
}

// Memory that is read to push out of the cache what is there, as weights of other layers do; where there is none left, nothing is pushed
// out. On an H200, cuBLASLt's first kernel for 1024x768x3072 with a bias and a residual takes 11.2 us, and from one event to the next 13.4
// behind this; behind 32 MB that are written, which are done before the host has asked for a product, 15.7 to 17.1 from time to time.
class Flush {
 public:
  Flush() {
    if (cudaMalloc(&data_, bytes()) != cudaSuccess) cudaGetLastError();  // or the next launch would be told of it
  }
  Flush(const Flush&) = delete;
  Flush& operator=(const Flush&) = delete;
  ~Flush() { cudaFree(data_); }

  void operator()(cudaStream_t stream) const {
    constexpr unsigned kBlocks = 4, kThreads = 256;
    if (data_ == nullptr) return;
    launch(read_through<uint4>, kBlocks * device_.multiprocessors, kThreads, 0, stream, "read_through",
           static_cast<const uint4*>(data_), bytes() / sizeof(uint4), static_cast<unsigned*>(data_));
  }

 private:
  size_t bytes() const { return size_t{4} * device_.cache; }

  Device device_;
  void* data_ = nullptr;
};

// Milliseconds of the fastest of some runs, each after so much flushing that the host has asked for all of it before the GPU begins: what
// that waits for the host would count as the run's. Less than zero where a run fails.
template <class Run>
float least_time(cudaStream_t stream, const Flush& flush, const Run& run) {
  constexpr int kRuns = 5, kMostFlushes = 16;
  Stopwatch watch;
  float least = -1.0f;
  for (int runs = 0, flushes = 1; runs < kRuns;) {
    for (int i = 0; i < flushes; ++i) flush(stream);
    const bool ran = watch.start(stream) == cudaSuccess && run() && watch.stop(stream) == cudaSuccess;
    const bool is_late = watch.has_begun();
    const bool is_done = watch.wait() == cudaSuccess;
    const float took = watch.took();
    if (!ran || !is_done || took < 0.0f) return -1.0f;
    if (is_late && flushes < kMostFlushes) {
      flushes *= 2;
      continue;
    }
    if (runs++ == 0 || took < least) least = took;
  }
  return least;
}

}  // namespace fusion::gpu

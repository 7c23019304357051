// How long the GPU takes from one place of a stream to another.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <string>

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

  cudaError_t start(cudaStream_t stream) const { return cudaEventRecord(begin_, stream); }
  cudaError_t stop(cudaStream_t stream) const { return cudaEventRecord(end_, stream); }
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
    const bool is_done = cudaEventElapsedTime(&found, begin_, end_) == cudaSuccess;
    cudaGetLastError();  // nor is anybody to find that
    return is_done ? found : -1.0f;
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

// Milliseconds of a run that is asked for while the GPU does what `ahead` has it do `times` times; twice as often where the host was not
// done asking by then, up to `most`, as the time that a GPU waits for it would count. Less than zero where a run fails.
template <class Ahead, class Run>
float time_behind(const Ahead& ahead, int& times, int most, cudaStream_t stream, const Run& run) {
  const Stopwatch watch;
  for (;; times *= 2) {
    for (int i = 0; i < times; ++i) ahead();
    const bool ran = watch.start(stream) == cudaSuccess && run() && watch.stop(stream) == cudaSuccess;
    const bool is_late = watch.has_begun();
    if (!ran || watch.wait() != cudaSuccess) return -1.0f;
    if (!is_late || times >= most) return watch.took();
  }
}

// Milliseconds of the fastest of some runs, each after `flush`. Less than zero where a run fails.
template <class Run>
float least_time(cudaStream_t stream, const Flush& flush, const Run& run) {
  constexpr int kRuns = 5, kMostFlushes = 16;
  int flushes = 1;
  float least = inf<float>();
  for (int i = 0; i < kRuns && least >= 0.0f; ++i) {
    least = std::min(least, time_behind([&] { flush(stream); }, flushes, kMostFlushes, stream, run));
  }
  return least;
}

// What has been tried, in words.
class Tried {
 public:
  explicit Tried(const std::string& what) : text_("tried " + what) {}
  void add(const char* whose, float milliseconds) { text_ += ", " + one(whose, milliseconds); }
  std::string taken(const char* whose, float milliseconds) const { return text_ + "; taken is " + one(whose, milliseconds); }

 private:
  static std::string one(const char* whose, float milliseconds) {
    std::array<char, 64> text;
    std::snprintf(text.data(), text.size(), milliseconds < 0.0f ? "%s, which fails" : "%s of %.2f us", whose, 1e3f * milliseconds);
    return text.data();
  }

  std::string text_;
};

}  // namespace fusion::gpu

// Device memory for a plan's intermediates.
//
// One block per stream, shared by all operators of the library: kernels of one stream run one after the other, so one
// operator's intermediates are dead when the next begins, and 32 layers need the memory of one. ONNX Runtime's arena
// would not do: freed at the end of a call that has only been *enqueued*, memory may go to a run on another stream.
//
// A CUDA graph keeps the addresses it was captured with, so a block that has been handed out is never moved or
// freed while an operator of the library lives; growing adds a block, at least twice as large.
#pragma once

#include <cuda_runtime.h>

#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "include/gpu.cuh"

namespace fusion::gpu {

// Before what is reserved lie numbers that are zero between kernels: those that count leave them so. Before these, what blocks
// of one launch leave for one another: zeros at first, and then as skinny_phases.cuh has it.
constexpr int kCounters = 1024;
constexpr size_t kTaggedBytes = 2400 * 1024;
inline unsigned* counters(char* reserved) {
  return reserved == nullptr ? nullptr : reinterpret_cast<unsigned*>(reserved) - kCounters;
}
inline char* tagged(char* reserved) { return reinterpret_cast<char*>(counters(reserved)) - kTaggedBytes; }

// Whether this block is the last of so many that count themselves there. For all its threads, after what they leave for it: they have
// met, so that with the first one's word goes what all of them left, and with the others' word what those left.
__device__ __forceinline__ bool is_last(unsigned* done, int count) {
  __syncthreads();
  bool last = false;
  if (threadIdx.x == 0) {
    const unsigned most = count - 1;
    unsigned before;
    asm volatile("atom.acq_rel.gpu.global.inc.u32 %0, [%1], %2;" : "=r"(before) : "l"(done), "r"(most) : "memory");
    last = before == most;
  }
  return __syncthreads_or(last);
}

class Workspace {
 public:
  Workspace() {
    std::lock_guard<std::mutex> lock(shared().mutex);
    ++shared().users;
  }
  Workspace(const Workspace&) = delete;
  Workspace& operator=(const Workspace&) = delete;
  ~Workspace() {
    std::lock_guard<std::mutex> lock(shared().mutex);
    if (--shared().users > 0) return;
    for (void* block : shared().blocks) cudaFree(block);
    shared().blocks.clear();
    shared().current.clear();
  }

  // At least `bytes`, valid for work enqueued on `stream` until the next operator's.
  char* reserve(cudaStream_t stream, size_t bytes) {
    if (bytes == 0) return nullptr;
    int device = 0;
    check(cudaGetDevice(&device), "cudaGetDevice");
    std::lock_guard<std::mutex> lock(shared().mutex);
    Block& block = shared().current[{device, stream}];
    if (block.size < bytes) {
      cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
      check(cudaStreamIsCapturing(stream, &capture), "cudaStreamIsCapturing");
      if (capture != cudaStreamCaptureStatusNone) {
        throw Error("the workspace must grow while a CUDA graph is captured; run these shapes once without it first");
      }
      const size_t size = bytes > 2 * block.size ? bytes : 2 * block.size;
      void* data = nullptr;
      constexpr size_t kBefore = kTaggedBytes + kCounters * sizeof(unsigned);
      check(cudaMalloc(&data, kBefore + size), "cudaMalloc of the workspace");
      shared().blocks.push_back(data);
      check(cudaMemsetAsync(data, 0, kBefore, stream), "cudaMemsetAsync");
      block = {static_cast<char*>(data) + kBefore, size};
    }
    return block.data;
  }

 private:
  struct Block {
    char* data = nullptr;
    size_t size = 0;
  };
  struct Shared {
    std::mutex mutex;
    int users = 0;
    std::map<std::pair<int, cudaStream_t>, Block> current;
    std::vector<void*> blocks;
  };
  // Never destroyed: sessions may end after the library's statics would.
  static Shared& shared() {
    static Shared* const instance = new Shared;
    return *instance;
  }
};

// Lays out buffers one behind the other, each on a 256-byte boundary.
class Layout {
 public:
  size_t add(size_t bytes) {
    const size_t offset = size_;
    size_ += (bytes + 255) / 256 * 256;
    return offset;
  }
  size_t size() const { return size_; }

 private:
  size_t size_ = 0;
};

}  // namespace fusion::gpu

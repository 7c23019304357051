// A call's kernels as a CUDA graph of the operator's own: where a session calls with the same memory and sizes once more, the
// host starts one graph instead of kernel after kernel.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <initializer_list>
#include <mutex>
#include <utility>
#include <vector>

#include "include/gpu.cuh"

namespace fusion::gpu {

// What a call's launches depend on, in numbers: its stream, sizes and memory.
using Call = std::vector<int64_t>;

inline Call call_of(cudaStream_t stream, std::initializer_list<const Ints*> sizes, std::initializer_list<const void*> memory) {
  Call call{reinterpret_cast<int64_t>(stream)};
  for (const void* p : memory) call.push_back(reinterpret_cast<int64_t>(p));
  for (const Ints* x : sizes) {
    call.push_back(x->size());
    call.insert(call.end(), x->data(), x->data() + x->size());
  }
  return call;
}

class Replay {
 public:
  Replay() = default;
  Replay(const Replay&) = delete;
  Replay& operator=(const Replay&) = delete;
  ~Replay() {
    for (const auto& [call, graph] : graphs_) cudaGraphExecDestroy(graph);
  }

  // Has the GPU do what launch() launches on `stream`. The first time it is called: what is chosen, timed and kept of constants
  // by then is part of the graph that is captured the second time. Within a graph of the session's it is always called.
  template <class Launch>
  void operator()(cudaStream_t stream, Call call, const Launch& launch) {
    cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
    check(cudaStreamIsCapturing(stream, &capture), "cudaStreamIsCapturing");
    if (capture != cudaStreamCaptureStatusNone || !replayed(stream, std::move(call), launch)) launch();
  }

 private:
  static constexpr size_t kGraphs = 8, kRemembered = 64;  // of as many calls

  template <class Launch>
  bool replayed(cudaStream_t stream, Call call, const Launch& launch) {
    const std::lock_guard<std::mutex> lock(mutex_);
    auto found = std::find_if(graphs_.begin(), graphs_.end(), [&](const auto& known) { return known.first == call; });
    if (found == graphs_.end()) {
      if (is_given_up_ || graphs_.size() == kGraphs || !came_before(call)) return false;
      const cudaGraphExec_t graph = captured(stream, launch);
      is_given_up_ = graph == nullptr;
      if (is_given_up_) return false;
      found = graphs_.insert(found, {std::move(call), graph});
    }
    check(cudaGraphLaunch(found->second, stream), "cudaGraphLaunch");
    return true;
  }

  // By their hashes: one that is taken for another would only be captured a call earlier.
  bool came_before(const Call& call) {
    uint64_t hash = 14695981039346656037u;
    for (const int64_t x : call) hash = (hash ^ static_cast<uint64_t>(x)) * 1099511628211u;
    if (std::find(before_.begin(), before_.end(), hash) != before_.end()) return true;
    before_[next_++ % kRemembered] = hash;
    return false;
  }

  // None where the stream or what is launched cannot be captured: launched by itself, it says why.
  template <class Launch>
  static cudaGraphExec_t captured(cudaStream_t stream, const Launch& launch) {
    unsigned flags = 0;
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t made = nullptr;
    // While one that waits for the legacy stream is captured, other threads could not use that.
    if (cudaStreamGetFlags(stream, &flags) != cudaSuccess || flags != cudaStreamNonBlocking) return nullptr;
    bool is_whole = cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal) == cudaSuccess;
    if (is_whole) {
      try {
        launch();
      } catch (...) {
        is_whole = false;
      }
      is_whole = cudaStreamEndCapture(stream, &graph) == cudaSuccess && is_whole;
    }
    if (is_whole && cudaGraphInstantiateWithFlags(&made, graph, 0) != cudaSuccess) made = nullptr;
    if (graph != nullptr) cudaGraphDestroy(graph);
    cudaGetLastError();  // nobody else is to find what went wrong here
    return made;
  }

  std::mutex mutex_;
  std::vector<std::pair<Call, cudaGraphExec_t>> graphs_;
  std::array<uint64_t, kRemembered> before_{};
  size_t next_ = 0;
  bool is_given_up_ = false;
};

}  // namespace fusion::gpu

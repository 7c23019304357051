// A call's kernels as a CUDA graph of the operator's own: where a session calls with the same memory and sizes again and the GPU would
// wait for the host, that starts one graph instead of kernel after kernel. Where it has other work until then, kernels by themselves are
// better: the first of them begins while the last one before it ends, and in BERT-base at 8x128 tokens a graph a layer takes 0.555 ms for
// 0.528. Measured on an H200 is also what asks the GPU alone whether it is idle: it was busy with the last kernel of a layer while the host
// was launching the next too late, and a step of a decoder took 0.21 ms for 0.175.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <mutex>
#include <vector>

#include "include/stopwatch.h"

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

using Clock = std::chrono::steady_clock;
using Milliseconds = std::chrono::duration<float, std::milli>;

// What a call takes, kernel by kernel, in milliseconds.
struct Cost {
  float gpu, launches, between;  // between: of the host, since it was done with the last call

  // Whether the GPU always waits for the host: all is done not long after the last launch. Measured on an H200: layers of BERT-base at
  // 1x128 tokens take 1.1 times as long as their launches, and the model 0.31 ms as graphs, 0.60 without.
  bool is_host_bound() const {
    constexpr float kTail = 1.25f;
    return gpu < kTail * launches;
  }
  // Whether it may come to that. The session's time from one call to the next is the host's too; beyond what launches take, somebody may
  // have waited for results.
  bool may_be_host_bound() const { return gpu < slow_launches() + kSlower * std::min(between, launches); }
  // A host is not as quick a moment later: where virtual machines share one, the same loop took 1.0 to 1.8 times its least from one core
  // to the next.
  float slow_launches() const { return kSlower * launches; }

 private:
  static constexpr float kSlower = 2.0f;
};

// How far a GPU is behind its thread, by what the calls of all operators that are known have cost.
struct Progress {
  Clock::time_point last_call, busy_until;

  static Progress& of_thread() {
    static thread_local Progress progress{Clock::now(), Clock::now()};
    return progress;
  }
  // Milliseconds for which the GPU still has work.
  float backlog() const { return Milliseconds(busy_until - Clock::now()).count(); }
  // A call counts less than it takes by itself, as the next one begins before its end, and a trial may have waited for the host: who
  // takes the GPU to be further behind than it is has it wait.
  void add(const Cost& cost) {
    constexpr float kSurely = 0.75f;
    busy_until = std::max(busy_until, Clock::now()) + std::chrono::duration_cast<Clock::duration>(Milliseconds(kSurely * cost.gpu));
  }
};

class Replay {
 public:
  Replay() = default;
  Replay(const Replay&) = delete;
  Replay& operator=(const Replay&) = delete;
  ~Replay() {
    for (const Known& x : known_) {
      if (x.graph != nullptr) cudaGraphExecDestroy(x.graph);
    }
  }

  // Has the GPU do what launch() launches on `stream`. The first time it is just called: what is chosen, timed and kept of constants by
  // then is part of what is timed the second time and, if the host may be what takes the time, captured once that is known.
  // Within a graph of the session's it is always called.
  template <class Launch>
  void operator()(cudaStream_t stream, const Call& call, const Launch& launch) {
    cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
    check(cudaStreamIsCapturing(stream, &capture), "cudaStreamIsCapturing");
    if (capture != cudaStreamCaptureStatusNone || !launched(stream, call, launch)) launch();
    Progress::of_thread().last_call = Clock::now();
  }

 private:
  static constexpr size_t kCalls = 16, kRemembered = 64;

  // A call that came twice: timed by the GPU until it is done, and then with a graph, if it has one.
  struct Known {
    Call call;
    std::unique_ptr<Stopwatch> watch;
    Cost cost;
    cudaGraphExec_t graph;
  };

  // False where there is nothing to be done but to launch it as ever.
  template <class Launch>
  bool launched(cudaStream_t stream, const Call& call, const Launch& launch) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto found = std::find_if(known_.begin(), known_.end(), [&](const Known& x) { return x.call == call; });
    if (found == known_.end()) {
      if (known_.size() == kCalls || !came_before(call)) return false;
      known_.push_back(timed(stream, call, launch));
      return true;
    }
    if (found->watch != nullptr) {
      found->cost.gpu = found->watch->took();
      if (found->cost.gpu < 0.0f) return false;
      found->watch.reset();
      if (found->cost.may_be_host_bound()) found->graph = captured(stream, launch);
    }
    const bool waits = found->graph != nullptr && waits_for_host(stream, found->cost);
    if (waits) check(cudaGraphLaunch(found->graph, stream), "cudaGraphLaunch");
    Progress::of_thread().add(found->cost);
    return waits;
  }

  template <class Launch>
  static Known timed(cudaStream_t stream, const Call& call, const Launch& launch) {
    Known known{call, std::make_unique<Stopwatch>(), {}, nullptr};
    check(known.watch->start(stream), "cudaEventRecord");
    const Clock::time_point begun = Clock::now();
    launch();
    known.cost.launches = Milliseconds(Clock::now() - begun).count();
    known.cost.between = Milliseconds(begun - Progress::of_thread().last_call).count();
    check(known.watch->stop(stream), "cudaEventRecord");
    return known;
  }

  // Whether the GPU would be out of work before all is launched.
  static bool waits_for_host(cudaStream_t stream, const Cost& cost) {
    Progress& progress = Progress::of_thread();
    if (cost.is_host_bound() || progress.backlog() < cost.slow_launches()) return true;
    if (!is_idle(stream)) return false;
    progress.busy_until = Clock::now();  // it was done sooner than reckoned
    return true;
  }

  static bool is_idle(cudaStream_t stream) {
    const bool found = cudaStreamQuery(stream) == cudaSuccess;
    cudaGetLastError();  // nobody else is to find that it is busy
    return found;
  }

  // By their hashes: one that is taken for another would only be timed a call earlier.
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
  std::vector<Known> known_;
  std::array<uint64_t, kRemembered> before_{};
  size_t next_ = 0;
};

}  // namespace fusion::gpu

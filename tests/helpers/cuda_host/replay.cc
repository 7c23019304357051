// How an operator's launches are replayed: of every case how often its launches were asked for, how often its work was done, how
// often whether the GPU is busy, and how many graphs there then are.
#include <chrono>
#include <cstdio>
#include <stdexcept>
#include <thread>

#include "include/replay.cuh"

namespace gpu = fusion::gpu;

int asked, done;

// Calls one after the other, of the sizes given.
void run(gpu::Replay& replay, std::initializer_list<int64_t> sizes, bool may_be_captured = true) {
  for (const int64_t size : sizes) {
    const fusion::Ints dims{size, 3};
    replay(nullptr, gpu::call_of(nullptr, {&dims}, {&asked}), [&] {
      ++asked;
      if (!may_be_captured && cuda_host::captured != nullptr) throw std::runtime_error("not while it is captured");
      cuda_host::enqueue([size] { done += size; });
    });
  }
}

// Calls with launches that take a while, of which the GPU takes `times` as long, and `between` as long from one call to the next; of each
// whether it comes while the GPU is busy.
void run_slowly(gpu::Replay& replay, float times, int between, std::initializer_list<bool> busy = {true, true, true, true}) {
  constexpr std::chrono::milliseconds kLaunches(60);
  const fusion::Ints dims{1, 3};
  for (const bool is_busy : busy) {
    cuda_host_busy = is_busy;
    replay(nullptr, gpu::call_of(nullptr, {&dims}, {&asked}), [&] {
      ++asked;
      const gpu::Clock::time_point begun = gpu::Clock::now();
      std::this_thread::sleep_for(kLaunches);
      cuda_host_took = times * gpu::Milliseconds(gpu::Clock::now() - begun).count();
      cuda_host::enqueue([] { ++done; });
    });
    std::this_thread::sleep_for(between * kLaunches);
  }
  cuda_host_took = 0.0f;
  cuda_host_busy = false;
}

template <class Body>
void tell(const char* what, Body body) {
  asked = done = cuda_host_queries = 0;
  gpu::Progress::of_thread() = {gpu::Clock::now(), gpu::Clock::now()};
  {
    gpu::Replay replay;
    body(replay);
    std::printf("%s %d %d %d %ld\n", what, asked, done, cuda_host_queries, cuda_host_graphs);
  }
  if (cuda_host_graphs != 0) std::printf("%s left %ld graphs\n", what, cuda_host_graphs);
}

int main() {
  tell("again", [](auto& replay) { run(replay, {1, 1, 1, 1}); });
  tell("others", [](auto& replay) { run(replay, {1, 2, 3, 4}); });
  tell("in_turn", [](auto& replay) { run(replay, {1, 2, 1, 2, 1, 2, 1, 2}); });
  tell("many", [](auto& replay) {
    for (int64_t size = 1; size <= 20; ++size) run(replay, {size, size, size, size});
  });
  tell("long_ago", [](auto& replay) {
    run(replay, {1});
    for (int64_t size = 2; size <= 70; ++size) run(replay, {size});
    run(replay, {1, 1, 1});
  });
  tell("gpu_bound", [](auto& replay) {
    cuda_host_took = 1e6f;
    run(replay, {1, 1, 1, 1});
    cuda_host_took = -1.0f;
    run(replay, {2, 2, 2, 2});
    cuda_host_took = 0.0f;
  });
  tell("not_known_yet", [](auto& replay) {
    run(replay, {1, 1});
    cuda_host_took = -1.0f;
    run(replay, {1});
    cuda_host_took = 0.0f;
    run(replay, {1, 1});
  });
  tell("always_host_bound", [](auto& replay) { run_slowly(replay, 0.9f, 0, {true, true, true, true, true, true}); });
  tell("enough_to_do", [](auto& replay) { run_slowly(replay, 1.6f, 0, {true, true, true, true, true, true}); });
  tell("done_sooner", [](auto& replay) { run_slowly(replay, 1.6f, 0, {true, true, true, true, false, true}); });
  tell("out_of_work_by_then", [](auto& replay) { run_slowly(replay, 1.6f, 2, {true, true, true, true, true}); });
  tell("enough_of_another", [](auto& replay) {
    gpu::Replay other;
    run_slowly(replay, 1.6f, 0, {true, true, true});
    run_slowly(other, 5.0f, 0, {true, true, true});
    run_slowly(replay, 1.6f, 0, {true});
  });
  tell("gpu_takes_longer", [](auto& replay) { run_slowly(replay, 2.6f, 0); });
  tell("host_may_be_slower", [](auto& replay) { run_slowly(replay, 1.6f, 0); });
  tell("session_takes_as_long", [](auto& replay) { run_slowly(replay, 2.6f, 2); });
  tell("somebody_waits", [](auto& replay) { run_slowly(replay, 5.0f, 4); });
  tell("not_captured", [](auto& replay) { run(replay, {1, 1, 1}, false); });
  tell("stream_that_waits", [](auto& replay) {
    cuda_host_stream = cudaStreamDefault;
    run(replay, {1, 1, 1, 1});
    cuda_host_stream = cudaStreamNonBlocking;
  });
  tell("in_a_graph", [](auto& replay) {
    cuda_host::Graph session;
    cuda_host::captured = &session;
    run(replay, {1, 1, 1});
    cuda_host::captured = nullptr;
    for (const auto& work : session) work();
    run(replay, {1, 1, 1});
  });
}

// A CUDA graph: what is launched while a stream is captured, to be run later. There is one stream.
#pragma once

#include <functional>
#include <utility>
#include <vector>

namespace cuda_host {

using Graph = std::vector<std::function<void()>>;
inline Graph* captured = nullptr;

// Runs it, or keeps it for a graph: what it holds must be its own.
inline void enqueue(std::function<void()> work) {
  if (captured != nullptr) captured->push_back(std::move(work));
  else work();
}

}  // namespace cuda_host

// What is timed takes so long.
inline float cuda_host_took = 0.0f;  // milliseconds, or less than none where the GPU is not done

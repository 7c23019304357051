// Launches whose blocks all run at once, each a process: what one writes for another lies in memory that they share.
#pragma once

#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cuda_runtime.h"

namespace cuda_host {

// Memory of all blocks, from `begin` on; a program starts over where it needs none of it any more.
class Arena {
 public:
  Arena() : data(static_cast<char*>(mmap(nullptr, kSize, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0))) {
    if (data == MAP_FAILED) fail("no memory to share");
  }
  ~Arena() { munmap(data, kSize); }
  Arena(const Arena&) = delete;

  // Zeros.
  template <class T>
  T* take(size_t count) {
    T* const found = reinterpret_cast<T*>(data + used);
    used += (count * sizeof(T) + 255) / 256 * 256;
    if (used > kSize) fail("too much memory to share");
    return found;
  }

 private:
  static constexpr size_t kSize = size_t{32} << 20;
  char* data;
  size_t used = 0;
};

inline void launch_at_once(unsigned grid, unsigned threads, size_t shared, const std::function<void()>& kernel) {
  const Blocks blocks(grid, threads, shared, kernel);
  std::fflush(nullptr);
  std::vector<pid_t> running(grid);
  for (unsigned i = 0; i < grid; ++i) {
    running[i] = fork();
    if (running[i] < 0) fail("no process for a block");
    if (running[i] > 0) continue;
    prctl(PR_SET_PDEATHSIG, SIGKILL);  // what waits for ever ends with the program
    blocks.run(i, 0);
    blocks.check();
    _exit(0);
  }
  bool failed = false;
  for (unsigned ended = 0; ended < grid; ++ended) {
    int status = 0;
    const pid_t which = ::wait(&status);
    std::replace(running.begin(), running.end(), which, pid_t{0});
    if (status == 0 || failed) continue;
    failed = true;  // the others would wait for it
    for (const pid_t other : running)
      if (other > 0) kill(other, SIGKILL);
  }
  if (failed) fail("a block failed");
}

}  // namespace cuda_host

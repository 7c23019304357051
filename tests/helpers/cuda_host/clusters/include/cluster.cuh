// Blocks of a cluster as templates/include/cluster.cuh has them, each a process of its own: what one sends another lies in memory
// that they share until that one waits for it.
#pragma once

#include <atomic>
#include <cstring>

#include "at_once.h"
#include "include/vector.cuh"

namespace cuda_host {

// What a block is sent, and where its shared memory is to have it.
struct Mail {
  static constexpr int kMost = 4096;
  std::atomic<int> begun, ended;
  struct {
    ptrdiff_t place;
    float four[4];
  } sent[kMost];
};
inline Mail* mail;        // of every block
inline int cluster_size;  // blocks

}  // namespace cuda_host

namespace fusion::gpu {

constexpr int kMostParts = 8;

struct Mailbox {
  int bytes;

  void open(int n) { bytes = n; }
  static void opened() {}
  static void await_others() { __syncthreads(); }
  void send(const float* place, int block, const Chunk<float, 4>& x) {
    cuda_host::Mail& to = cuda_host::mail[blockIdx.x / cuda_host::cluster_size * cuda_host::cluster_size + block];
    auto& one = to.sent[to.begun++];
    one.place = reinterpret_cast<const char*>(place) - reinterpret_cast<const char*>(dynamic);
    std::memcpy(one.four, &x, sizeof(one.four));
    ++to.ended;
  }
  void await_all() {
    cuda_host::Mail& own = cuda_host::mail[blockIdx.x];
    static bool done[32];  // of each warp, as its first lane sees it
    bool& mine = done[threadIdx.x / 32];
    for (;;) {
      if (threadIdx.x % 32 == 0) mine = own.ended * 16 >= bytes;
      cuda_host::wait(cuda_host::At::kWarp);
      if (mine) break;
      ++cuda_host::waits_for_others;
      cuda_host::wait(cuda_host::At::kBlock);
    }
    if (own.ended * 16 != bytes) cuda_host::fail("a block is sent more than it waits for");
    for (int i = 0; i < own.ended; ++i) {
      std::memcpy(reinterpret_cast<char*>(dynamic) + own.sent[i].place, own.sent[i].four, sizeof(own.sent[i].four));
    }
    cuda_host::wait(cuda_host::At::kWarp);
  }
};

}  // namespace fusion::gpu

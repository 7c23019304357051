// templates/include/blocks.cuh for blocks that are processes: whoever waits lets the other threads and processes run.
#pragma once

#include <sched.h>

#include "include/gpu.cuh"

namespace fusion::gpu {

class Waiting {
 public:
  void turn() {
    if (++turns > 5000000) cuda_host::fail("what no other block does");
    ++cuda_host::waits_for_others;
    sched_yield();
    cuda_host::wait(cuda_host::At::kBlock);
  }

 private:
  long turns = 0;
};

inline void count_up(unsigned* count) { __atomic_fetch_add(count, 1, __ATOMIC_RELEASE); }
inline void await_count(const unsigned* count, unsigned wanted) {
  for (Waiting waiting; __atomic_load_n(count, __ATOMIC_ACQUIRE) != wanted;) waiting.turn();
}
inline void publish_to_copies() {}

// Each number comes with its tag, one of them maybe before the other.
struct alignas(16) Tagged {
  uint32_t first, first_tag, second, second_tag;

  void leave(float a, float b, uint32_t tag) {
    __atomic_store_n(half(0), pair(a, tag), __ATOMIC_RELAXED);
    __atomic_store_n(half(1), pair(b, tag), __ATOMIC_RELAXED);
  }
  Tagged look() const {
    const uint64_t found[] = {__atomic_load_n(half(0), __ATOMIC_RELAXED), __atomic_load_n(half(1), __ATOMIC_RELAXED)};
    Tagged x;
    return std::memcpy(&x, found, sizeof x), x;
  }
  bool has(uint32_t tag) const {
    if (first_tag == tag && second_tag == tag) return true;
    static Waiting all;
    return all.turn(), false;
  }

 private:
  static uint64_t pair(float number, uint32_t tag) { return bit_cast<uint32_t>(number) | uint64_t{tag} << 32; }
  uint64_t* half(int which) const { return const_cast<uint64_t*>(reinterpret_cast<const uint64_t*>(this)) + which; }
};

}  // namespace fusion::gpu

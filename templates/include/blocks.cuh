// What blocks of one launch tell one another while they run, which all do at once.
#pragma once

#include "include/gpu.cuh"

namespace fusion::gpu {

// Tells other blocks that what this thread knows of has been written; and waits for so many of them.
__device__ __forceinline__ void count_up(unsigned* count) {
  asm volatile("red.release.gpu.global.add.u32 [%0], 1;" ::"l"(count) : "memory");
}
__device__ __forceinline__ void await_count(const unsigned* count, unsigned wanted) {
  unsigned found;
  do {
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(found) : "l"(count) : "memory");
  } while (found != wanted);
}
// Between what threads wrote to global memory and what the copy engine reads of it; on either side.
__device__ __forceinline__ void publish_to_copies() { asm volatile("fence.proxy.async.global;" ::: "memory"); }

// Two numbers for another block, each beside one that tells it from all that was there before: who reads it needs no other
// word that it has been written, and nobody has to wait until it is.
struct alignas(16) Tagged {
  uint32_t first, first_tag, second, second_tag;

  __device__ __forceinline__ void leave(float a, float b, uint32_t tag) {
    asm volatile("st.volatile.global.v4.u32 [%0], {%1, %2, %3, %2};" ::"l"(this), "r"(bit_cast<uint32_t>(a)), "r"(tag),
                 "r"(bit_cast<uint32_t>(b))
                 : "memory");
  }
  __device__ __forceinline__ Tagged look() const {
    Tagged x;
    asm volatile("ld.volatile.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(x.first), "=r"(x.first_tag), "=r"(x.second), "=r"(x.second_tag)
                 : "l"(this)
                 : "memory");
    return x;
  }
  __device__ __forceinline__ bool has(uint32_t tag) const { return first_tag == tag && second_tag == tag; }
};

}  // namespace fusion::gpu

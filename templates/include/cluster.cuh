// Blocks of a cluster that send one another floats through shared memory, which GPUs have from Hopper on.
#pragma once

#include "include/mma.cuh"
#include "include/vector.cuh"

namespace fusion::gpu {

// Blocks of a cluster, at most: as many as every GPU with clusters runs at once.
constexpr int kMostParts = FUSION_OVERLAPS ? 8 : 1;

// What a block of a cluster is sent: a barrier that counts its bytes.
struct Mailbox {
  uint64_t state;

#if FUSION_OVERLAPS
  // One thread says how many bytes will come; then every thread of every block calls `opened`, and `await_others` before
  // it sends.
  __device__ __forceinline__ void open(int bytes) {
    const uint32_t at = shared_address(&state);
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(at) : "memory");
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(at), "r"(bytes) : "memory");
  }
  static __device__ __forceinline__ void opened() {
    asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
  }
  static __device__ __forceinline__ void await_others() {
    asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
  }
  // Every thread that is left arrives and waits, so that places that others have read may be sent to.
  static __device__ __forceinline__ void meet() {
    asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
  }
  // Every thread says that it has read what others have, and waits for theirs, so that none leaves too early.
  static __device__ __forceinline__ void leave() {
    asm volatile("barrier.cluster.arrive.relaxed.aligned;\nbarrier.cluster.wait.aligned;" ::: "memory");
  }
  // Four floats for the same place of another block's shared memory.
  __device__ __forceinline__ void send(const float* place, int block, const Chunk<float, 4>& x) {
    uint32_t to, barrier;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(to) : "r"(shared_address(place)), "r"(block));
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(barrier) : "r"(shared_address(&state)), "r"(block));
    asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [%0], {%1,%2,%3,%4}, [%5];" ::"r"(to),
                 "f"(x.element[0]), "f"(x.element[1]), "f"(x.element[2]), "f"(x.element[3]), "r"(barrier)
                 : "memory");
  }
  // Until all that was announced is there.
  __device__ __forceinline__ void await_all() {
    asm volatile(
        "{\n.reg .pred done;\nagain:\nmbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 done, [%0], 0;\n"
        "@!done bra again;\n}" ::"r"(shared_address(&state))
        : "memory");
  }
#else
  __device__ __forceinline__ void open(int) {}
  static __device__ __forceinline__ void opened() {}
  static __device__ __forceinline__ void await_others() {}
  static __device__ __forceinline__ void meet() {}
  static __device__ __forceinline__ void leave() {}
  __device__ __forceinline__ void send(const float*, int, const Chunk<float, 4>&) {}
  __device__ __forceinline__ void await_all() {}
#endif
};

// Four neighbours of what a block of this cluster, or the only one, has at a place of its shared memory.
__device__ __forceinline__ Chunk<float, 4> read_part(const float* place, [[maybe_unused]] int block) {
#if FUSION_OVERLAPS
  uint32_t from;
  Chunk<float, 4> x;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(from) : "r"(shared_address(place)), "r"(block));
  asm volatile("ld.shared::cluster.v4.f32 {%0,%1,%2,%3}, [%4];"
               : "=f"(x.element[0]), "=f"(x.element[1]), "=f"(x.element[2]), "=f"(x.element[3])
               : "r"(from)
               : "memory");
  return x;
#else
  return *reinterpret_cast<const Chunk<float, 4>*>(place);
#endif
}

}  // namespace fusion::gpu

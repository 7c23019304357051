// What a kernel for Hopper (sm_90a) is made of beside its products: barriers that copies arrive at, the copy engine, registers handed
// from one warpgroup to another.
#pragma once

#include "include/mma.cuh"
#include "include/tensor_map.h"

// Whether this is compiled for Hopper alone; host code must not choose kernels that are not there.
#if defined(__CUDA_ARCH_LIST__)
#define FUSION_HOPPER (__CUDA_ARCH_LIST__ == 900)
#else
#define FUSION_HOPPER 0
#endif

namespace fusion::gpu {

constexpr int kWarpgroup = 128;  // threads
// Matrices of 16-bit elements lie in panels of 64 columns, 128 bytes a row, whose 16-byte pieces are swizzled: piece c
// of row r is at c ^ r % 8. Panels begin at multiples of 1024 bytes.
constexpr int kPanel = 64;

}  // namespace fusion::gpu

#if FUSION_HOPPER
namespace fusion::gpu {

// A thread's warp, and its warpgroup. The compiler knows by it that all threads of a warp have the same.
__device__ __forceinline__ int warp_of_block() { return __shfl_sync(0xffffffffu, static_cast<int>(threadIdx.x) / 32, 0); }
__device__ __forceinline__ int warpgroup() { return warp_of_block() / (kWarpgroup / 32); }

// Whether this is the one thread of its warp, whose threads are all here, that is to act for it. The compiler knows that it is one, and
// has what it asks the copy engine for in registers of a whole warp; of a thread that is merely the first it makes loops over all that
// there might be, of 45 instructions for each copy.
__device__ __forceinline__ bool is_elected() {
  int is_one = 0;
  asm volatile("{\n.reg .pred one;\nelect.sync _|one, 0xffffffff;\n@one mov.b32 %0, 1;\n}" : "+r"(is_one));
  return is_one != 0;
}

// Counts arrivals, phase by phase; those who wait for a phase name its parity.
struct Barrier {
  uint64_t state;

  __device__ __forceinline__ void init(int arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(&state)), "r"(arrivals) : "memory");
  }
  __device__ __forceinline__ void arrive() {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(&state)) : "memory");
  }
  // Arrives once all copies that this thread has started are there.
  __device__ __forceinline__ void arrive_after_copies() {
    asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(shared_address(&state)) : "memory");
  }
  // Arrives, and the phase also waits for so many bytes of the copy engine's.
  __device__ __forceinline__ void arrive_expecting(int bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(&state)), "r"(bytes)
                 : "memory");
  }
  __device__ __forceinline__ void wait(int parity) {
    asm volatile(
        "{\n.reg .pred done;\nagain:\nmbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
        "@!done bra again;\n}" ::"r"(shared_address(&state)),
        "r"(parity)
        : "memory");
  }
  // Whether there would be nothing to wait for.
  __device__ __forceinline__ bool has_passed(int parity) {
    int passed;
    asm volatile(
        "{\n.reg .pred done;\nmbarrier.test_wait.parity.shared::cta.b64 done, [%1], %2;\n"
        "selp.b32 %0, 1, 0, done;\n}"
        : "=r"(passed)
        : "r"(shared_address(&state)), "r"(parity)
        : "memory");
    return passed != 0;
  }
};
// Stores sixteen bytes that `stay` in the L2 cache, or `pass` through it, or not at all: without a branch.
__device__ __forceinline__ void store_if(bool stay, bool pass, uint4* p, const uint4& x) {
  asm volatile(
      "{\n.reg .pred stay, pass;\nsetp.ne.b32 stay, %5, 0;\nsetp.ne.b32 pass, %6, 0;\n"
      "@stay st.global.wb.v4.b32 [%0], {%1, %2, %3, %4};\n@pass st.global.cs.v4.b32 [%0], {%1, %2, %3, %4};\n}" ::"l"(p),
      "r"(x.x), "r"(x.y), "r"(x.z), "r"(x.w), "r"(int{stay}), "r"(int{pass})
      : "memory");
}
// Before barriers that were made are used by others.
__device__ __forceinline__ void publish_barriers() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }
// Between what threads (or their copies) wrote to shared memory and the products that read it.
__device__ __forceinline__ void publish_copies() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

// The copies of threads that only copy, for which those who multiply then need no fence. A barrier is arrived at once what
// was copied before is there, which is looked at after the next copies have been started, or at the end.
struct CopiesInOrder {
  Barrier* last = nullptr;

  __device__ __forceinline__ void arrive_at(Barrier& barrier) {
    copy_commit();
    finish<1>();
    last = &barrier;
  }
  template <int kPending = 0>
  __device__ __forceinline__ void finish() {
    if (last == nullptr) return;
    copy_wait<kPending>();
    publish_copies();
    last->arrive();
    last = nullptr;
  }
};

// Barriers of a block by number, 0 being __syncthreads'.
__device__ __forceinline__ void sync_threads(int barrier, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}
__device__ __forceinline__ void arrive_threads(int barrier, int threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}

// From here on a warpgroup has so many registers a thread.
template <int kRegisters>
__device__ __forceinline__ void give_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}
template <int kRegisters>
__device__ __forceinline__ void take_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

// Has the copy engine bring the box at (column, row) of a described matrix to shared memory; the barrier counts its bytes.
// `once`: nobody reads it again; it is the first to leave the L2 cache, and pushes nothing out that is needed. Others go without a hint:
// with that of normal priority 2048x16384x4096 takes 371 us for 364 on an H200.
__device__ __forceinline__ void copy_box(uint32_t shared, const TensorMap& map, Barrier& arrived, int column, int row,
                                         bool once = false) {
  constexpr uint64_t kEvictFirst = 0x12F0000000000000;  // as createpolicy encodes it
  if (once) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1, {%3, %4}], [%2], %5;" ::"r"(shared),
        "l"(&map), "r"(shared_address(&arrived.state)), "r"(column), "r"(row), "l"(kEvictFirst)
        : "memory");
  } else {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4}], [%2];" ::"r"(shared),
        "l"(&map), "r"(shared_address(&arrived.state)), "r"(column), "r"(row)
        : "memory");
  }
}

// Stores four 8x8 matrices of 16 bits transposed: lane l has two neighbours of row l / 4 of each, which become a column's, and gives the
// address of a row, l % 8 of matrix l / 8.
__device__ __forceinline__ void store_matrices_transposed(const uint32_t (&r)[4], void* shared) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(shared_address(shared)), "r"(r[0]), "r"(r[1]),
               "r"(r[2]), "r"(r[3])
               : "memory");
}

// Has it know a matrix that a copy will soon be of.
__device__ __forceinline__ void prefetch_map(const TensorMap& map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
}

// Has it bring the box as far as the L2 cache.
__device__ __forceinline__ void prefetch_box(const TensorMap& map, int column, int row) {
  asm volatile("cp.async.bulk.prefetch.tensor.2d.L2.global [%0, {%1, %2}];" ::"l"(&map), "r"(column), "r"(row) : "memory");
}

}  // namespace fusion::gpu
#endif

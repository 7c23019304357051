// Hopper's own building blocks (sm_90a): products of a warpgroup with matrices in shared memory, barriers that copies
// arrive at, registers handed from one warpgroup to another.
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

// A thread's warpgroup. The compiler knows by it that all threads of a warp have the same.
__device__ __forceinline__ int warpgroup() { return __shfl_sync(0xffffffffu, static_cast<int>(threadIdx.x) / kWarpgroup, 0); }

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

// Products are started, committed as a group, and waited for.
__device__ __forceinline__ void products_begin() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void products_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int kPending>
__device__ __forceinline__ void products_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}
// Uses of `c` stay on their side of what is said about products here; the compiler does not know that they take time.
template <int kRows>
__device__ __forceinline__ void products_of(float (&c)[kRows][4]) {
#pragma unroll
  for (int j = 0; j < kRows; ++j) asm volatile("" : "+f"(c[j][0]), "+f"(c[j][1]), "+f"(c[j][2]), "+f"(c[j][3])::"memory");
}

// A panel's descriptor: eight rows are 1024 bytes, the next panel `next` bytes further on.
__device__ __forceinline__ uint64_t panel(uint32_t address, uint32_t next = 16) {
  return uint64_t{(address & 0x3ffff) >> 4} | uint64_t{next >> 4} << 16 | uint64_t{1024 >> 4} << 32 | uint64_t{1} << 62;
}

// The same so many bytes further on.
__device__ __forceinline__ uint64_t further(uint64_t panel, uint32_t bytes) {
  return uint64_t{static_cast<uint32_t>(panel) + bytes / 16} | panel >> 32 << 32;
}

// Has the copy engine bring the box at (column, row) of a described matrix to shared memory; the barrier counts its bytes.
// `once`: nobody reads it again; it is the first to leave the L2 cache, and pushes nothing out that is needed.
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

// Has it know a matrix that a copy will soon be of.
__device__ __forceinline__ void prefetch_map(const TensorMap& map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
}

// Has it bring the box as far as the L2 cache.
__device__ __forceinline__ void prefetch_box(const TensorMap& map, int column, int row) {
  asm volatile("cp.async.bulk.prefetch.tensor.2d.L2.global [%0, {%1, %2}];" ::"l"(&map), "r"(column), "r"(row) : "memory");
}

// c += a * b of 64 rows, 16 deep; lane l of warp w has rows 16 w + l / 4 and the eighth after it of c, columns l % 4 * 2
// and the next of every eight. `by_rows`: a and b are panels of which 16 columns count, a's rows being those of c, b's
// its columns. `by_columns`: of b 16 rows count, its columns being those of c; a is as there, or in registers as for
// multiply_add. Unless `adds`, c is what the product is.
template <class T, int kColumns>
struct WarpgroupProduct;

#define FUSION_C4(j) "+f"(c[j][0]), "+f"(c[j][1]), "+f"(c[j][2]), "+f"(c[j][3])
#define FUSION_C8(j) \
  FUSION_C4(j), FUSION_C4(j + 1), FUSION_C4(j + 2), FUSION_C4(j + 3), FUSION_C4(j + 4), FUSION_C4(j + 5), FUSION_C4(j + 6), \
      FUSION_C4(j + 7)
#define FUSION_TEN(t) \
  "%" t "0, %" t "1, %" t "2, %" t "3, %" t "4, %" t "5, %" t "6, %" t "7, %" t "8, %" t "9, "
#define FUSION_NAMES_30 FUSION_TEN("") FUSION_TEN("1") FUSION_TEN("2")
#define FUSION_NAMES_60 FUSION_NAMES_30 FUSION_TEN("3") FUSION_TEN("4") FUSION_TEN("5")
#define FUSION_NAMES_90 FUSION_NAMES_60 FUSION_TEN("6") FUSION_TEN("7") FUSION_TEN("8")
#define FUSION_NAMES_24 FUSION_TEN("") FUSION_TEN("1") "%20, %21, %22, %23"
#define FUSION_NAMES_32 FUSION_NAMES_30 "%30, %31"
#define FUSION_NAMES_40 FUSION_NAMES_30 "%30, %31, %32, %33, %34, %35, %36, %37, %38, %39"
#define FUSION_NAMES_48 FUSION_NAMES_30 FUSION_TEN("3") "%40, %41, %42, %43, %44, %45, %46, %47"
#define FUSION_NAMES_56 FUSION_NAMES_30 FUSION_TEN("3") FUSION_TEN("4") "%50, %51, %52, %53, %54, %55"
#define FUSION_NAMES_64 FUSION_NAMES_60 "%60, %61, %62, %63"
#define FUSION_NAMES_96 FUSION_NAMES_90 "%90, %91, %92, %93, %94, %95"
#define FUSION_NAMES_128 \
  FUSION_NAMES_90 FUSION_TEN("9") FUSION_TEN("10") FUSION_TEN("11") "%120, %121, %122, %123, %124, %125, %126, %127"
#define FUSION_C24 FUSION_C4(0), FUSION_C4(1), FUSION_C4(2), FUSION_C4(3), FUSION_C4(4), FUSION_C4(5)
#define FUSION_C32 FUSION_C8(0)
#define FUSION_C40 FUSION_C8(0), FUSION_C4(8), FUSION_C4(9)
#define FUSION_C48 FUSION_C40, FUSION_C4(10), FUSION_C4(11)
#define FUSION_C56 FUSION_C48, FUSION_C4(12), FUSION_C4(13)
#define FUSION_C64 FUSION_C8(0), FUSION_C8(8)
#define FUSION_C96 FUSION_C64, FUSION_C8(16)
#define FUSION_C128 FUSION_C96, FUSION_C8(24)
#define FUSION_WARPGROUP_PRODUCT(T, kType, kColumns, kC, kNames, k0, k1, k2, k3, k4, k5)                               \
  template <>                                                                                                        \
  struct WarpgroupProduct<T, kColumns> {                                                                             \
    using C = float[kColumns / 8][4];                                                                                \
    __device__ static __forceinline__ void by_rows(C& c, uint64_t a, uint64_t b, bool adds) {                        \
      asm volatile("{\n.reg .pred adds;\nsetp.ne.b32 adds, " k2 ", 0;\n"                                             \
                   "wgmma.mma_async.sync.aligned.m64n" #kColumns "k16.f32." kType "." kType                          \
                   " {" kNames "}, " k0 ", " k1 ", adds, 1, 1, 0, 0;\n}"                                             \
                   : kC                                                                                              \
                   : "l"(a), "l"(b), "r"(int{adds}));                                                                \
    }                                                                                                                \
    __device__ static __forceinline__ void by_columns(C& c, uint64_t a, uint64_t b, bool adds) {                     \
      asm volatile("{\n.reg .pred adds;\nsetp.ne.b32 adds, " k2 ", 0;\n"                                             \
                   "wgmma.mma_async.sync.aligned.m64n" #kColumns "k16.f32." kType "." kType                          \
                   " {" kNames "}, " k0 ", " k1 ", adds, 1, 1, 0, 1;\n}"                                             \
                   : kC                                                                                              \
                   : "l"(a), "l"(b), "r"(int{adds}));                                                                \
    }                                                                                                                \
    __device__ static __forceinline__ void by_columns(C& c, const uint32_t (&a)[4], uint64_t b, bool adds) {         \
      asm volatile("{\n.reg .pred adds;\nsetp.ne.b32 adds, " k5 ", 0;\n"                                             \
                   "wgmma.mma_async.sync.aligned.m64n" #kColumns "k16.f32." kType "." kType                          \
                   " {" kNames "}, {" k0 ", " k1 ", " k2 ", " k3 "}, " k4 ", adds, 1, 1, 1;\n}"                      \
                   : kC                                                                                              \
                   : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(int{adds}));                            \
    }                                                                                                                \
  }
#define FUSION_WARPGROUP_PRODUCTS(T, kType)                                                                            \
  FUSION_WARPGROUP_PRODUCT(T, kType, 48, FUSION_C24, FUSION_NAMES_24, "%24", "%25", "%26", "%27", "%28", "%29");     \
  FUSION_WARPGROUP_PRODUCT(T, kType, 80, FUSION_C40, FUSION_NAMES_40, "%40", "%41", "%42", "%43", "%44", "%45");     \
  FUSION_WARPGROUP_PRODUCT(T, kType, 96, FUSION_C48, FUSION_NAMES_48, "%48", "%49", "%50", "%51", "%52", "%53");     \
  FUSION_WARPGROUP_PRODUCT(T, kType, 112, FUSION_C56, FUSION_NAMES_56, "%56", "%57", "%58", "%59", "%60", "%61");    \
  FUSION_WARPGROUP_PRODUCT(T, kType, 64, FUSION_C32, FUSION_NAMES_32, "%32", "%33", "%34", "%35", "%36", "%37");     \
  FUSION_WARPGROUP_PRODUCT(T, kType, 128, FUSION_C64, FUSION_NAMES_64, "%64", "%65", "%66", "%67", "%68", "%69");    \
  FUSION_WARPGROUP_PRODUCT(T, kType, 192, FUSION_C96, FUSION_NAMES_96, "%96", "%97", "%98", "%99", "%100", "%101");  \
  FUSION_WARPGROUP_PRODUCT(T, kType, 256, FUSION_C128, FUSION_NAMES_128, "%128", "%129", "%130", "%131", "%132", "%133")

FUSION_WARPGROUP_PRODUCTS(half, "f16");
FUSION_WARPGROUP_PRODUCTS(bfloat, "bf16");

// c += a' * b, 16 deep, of matrices whose rows are few: 64 columns of a, of which 16 rows count, are the rows of c, kRows rows of b,
// of which 16 columns count, its columns. Both are panels.
template <class T, int kRows>
struct WarpgroupFew;
#define FUSION_WARPGROUP_FEW(T, kType, kRows, kC, kNames, k0, k1, k2)                                                  \
  template <>                                                                                                        \
  struct WarpgroupFew<T, kRows> {                                                                                    \
    __device__ static __forceinline__ void add(float (&c)[kRows / 8][4], uint64_t a, uint64_t b, bool adds) {        \
      asm volatile("{\n.reg .pred adds;\nsetp.ne.b32 adds, " k2 ", 0;\n"                                             \
                   "wgmma.mma_async.sync.aligned.m64n" #kRows "k16.f32." kType "." kType                             \
                   " {" kNames "}, " k0 ", " k1 ", adds, 1, 1, 1, 0;\n}"                                             \
                   : kC                                                                                              \
                   : "l"(a), "l"(b), "r"(int{adds}));                                                                \
    }                                                                                                                \
  }
#define FUSION_FEW_PRODUCTS(T, kType)                                                                                  \
  FUSION_WARPGROUP_FEW(T, kType, 8, FUSION_C4(0), "%0, %1, %2, %3", "%4", "%5", "%6");                               \
  FUSION_WARPGROUP_FEW(T, kType, 16, FUSION_C4(0) FUSION_COMMA FUSION_C4(1), "%0, %1, %2, %3, %4, %5, %6, %7", "%8", "%9", "%10")
#define FUSION_COMMA ,
FUSION_FEW_PRODUCTS(half, "f16");
FUSION_FEW_PRODUCTS(bfloat, "bf16");
#undef FUSION_COMMA
#undef FUSION_FEW_PRODUCTS
#undef FUSION_WARPGROUP_FEW

// Of TF32, 8 deep: a in registers as for multiply_add, b's rows are c's columns, a panel of 32.
#define FUSION_WARPGROUP_TF32(kColumns, kC, kNames, k0, k1, k2, k3, k4, k5)                                            \
  template <>                                                                                                        \
  struct WarpgroupProduct<float, kColumns> {                                                                         \
    __device__ static __forceinline__ void by_rows(float (&c)[kColumns / 8][4], const uint32_t (&a)[4], uint64_t b,   \
                                                   bool adds) {                                                      \
      asm volatile("{\n.reg .pred adds;\nsetp.ne.b32 adds, " k5 ", 0;\n"                                             \
                   "wgmma.mma_async.sync.aligned.m64n" #kColumns "k8.f32.tf32.tf32"                                  \
                   " {" kNames "}, {" k0 ", " k1 ", " k2 ", " k3 "}, " k4 ", adds, 1, 1;\n}"                         \
                   : kC                                                                                              \
                   : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(int{adds}));                            \
    }                                                                                                                \
  }
FUSION_WARPGROUP_TF32(64, FUSION_C32, FUSION_NAMES_32, "%32", "%33", "%34", "%35", "%36", "%37");
FUSION_WARPGROUP_TF32(128, FUSION_C64, FUSION_NAMES_64, "%64", "%65", "%66", "%67", "%68", "%69");
FUSION_WARPGROUP_TF32(192, FUSION_C96, FUSION_NAMES_96, "%96", "%97", "%98", "%99", "%100", "%101");
FUSION_WARPGROUP_TF32(256, FUSION_C128, FUSION_NAMES_128, "%128", "%129", "%130", "%131", "%132", "%133");
#undef FUSION_WARPGROUP_TF32

#undef FUSION_WARPGROUP_PRODUCTS
#undef FUSION_WARPGROUP_PRODUCT
#undef FUSION_NAMES_128
#undef FUSION_NAMES_96
#undef FUSION_NAMES_90
#undef FUSION_NAMES_64
#undef FUSION_NAMES_60
#undef FUSION_NAMES_56
#undef FUSION_NAMES_48
#undef FUSION_NAMES_40
#undef FUSION_NAMES_24
#undef FUSION_NAMES_32
#undef FUSION_NAMES_30
#undef FUSION_TEN
#undef FUSION_C128
#undef FUSION_C96
#undef FUSION_C64
#undef FUSION_C56
#undef FUSION_C48
#undef FUSION_C40
#undef FUSION_C32
#undef FUSION_C24
#undef FUSION_C8
#undef FUSION_C4

}  // namespace fusion::gpu
#endif

// Products of a warpgroup with matrices in shared memory, on Hopper's tensor cores (sm_90a).
#pragma once

#include "include/hopper.cuh"
#include "include/wgmma_sums.cuh"

#if FUSION_HOPPER
namespace fusion::gpu {

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

// c += a * b of 64 rows, 16 deep; lane l of warp w has rows 16 w + l / 4 and the eighth after it of c, columns l % 4 * 2
// and the next of every eight. Unless `adds`, c is what the product is. `add`: of a and b, panels, 16 columns count, a's rows being
// those of c and b's its columns; or where one is taken by columns 16 rows, its columns being c's rows or columns. `by_rows`: neither is.
// `by_columns`: b is, and a in registers as for multiply_add. The columns of c are any number of eights: where operands change places, they
// are a result's rows.
template <class T, int kColumns>
struct WarpgroupProduct;

#define FUSION_WARPGROUP_PRODUCT(T, kType, kColumns, kSums, k0, k1, k2, k3, k4, k5)                                               \
  template <>                                                                                                                     \
  struct WarpgroupProduct<T, kColumns> {                                                                                          \
    using C = float[kColumns / 8][4];                                                                                             \
    template <bool kLeftByColumns, bool kRightByColumns>                                                                          \
    __device__ static __forceinline__ void add(C& c, uint64_t a, uint64_t b, bool adds) {                                         \
      asm volatile("{\n.reg .pred adds;\nsetp.ne.b32 adds, " k2 ", 0;\n"                                                          \
                   "wgmma.mma_async.sync.aligned.m64n" #kColumns "k16.f32." kType "." kType                                       \
                   " {" FUSION_NAMES_##kSums "}, " k0 ", " k1 ", adds, 1, 1, " k3 ", " k4 ";\n}"                                  \
                   : FUSION_SUMS_##kSums                                                                                          \
                   : "l"(a), "l"(b), "r"(int{adds}), "n"(int{kLeftByColumns}), "n"(int{kRightByColumns}));                        \
    }                                                                                                                             \
    __device__ static __forceinline__ void by_rows(C& c, uint64_t a, uint64_t b, bool adds) { add<false, false>(c, a, b, adds); } \
    __device__ static __forceinline__ void by_columns(C& c, const uint32_t (&a)[4], uint64_t b, bool adds) {                      \
      asm volatile("{\n.reg .pred adds;\nsetp.ne.b32 adds, " k5 ", 0;\n"                                                          \
                   "wgmma.mma_async.sync.aligned.m64n" #kColumns "k16.f32." kType "." kType                                       \
                   " {" FUSION_NAMES_##kSums "}, {" k0 ", " k1 ", " k2 ", " k3 "}, " k4 ", adds, 1, 1, 1;\n}"                     \
                   : FUSION_SUMS_##kSums                                                                                          \
                   : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(int{adds}));                                         \
    }                                                                                                                             \
  }
#define FUSION_WARPGROUP_PRODUCTS(T, kType)                                                                                       \
  FUSION_WARPGROUP_PRODUCT(T, kType, 8, 4, "%4", "%5", "%6", "%7", "%8", "%9");                                                   \
  FUSION_WARPGROUP_PRODUCT(T, kType, 16, 8, "%8", "%9", "%10", "%11", "%12", "%13");                                              \
  FUSION_WARPGROUP_PRODUCT(T, kType, 48, 24, "%24", "%25", "%26", "%27", "%28", "%29");                                           \
  FUSION_WARPGROUP_PRODUCT(T, kType, 56, 28, "%28", "%29", "%30", "%31", "%32", "%33");                                           \
  FUSION_WARPGROUP_PRODUCT(T, kType, 64, 32, "%32", "%33", "%34", "%35", "%36", "%37");                                           \
  FUSION_WARPGROUP_PRODUCT(T, kType, 72, 36, "%36", "%37", "%38", "%39", "%40", "%41");                                           \
  FUSION_WARPGROUP_PRODUCT(T, kType, 80, 40, "%40", "%41", "%42", "%43", "%44", "%45");                                           \
  FUSION_WARPGROUP_PRODUCT(T, kType, 88, 44, "%44", "%45", "%46", "%47", "%48", "%49");                                           \
  FUSION_WARPGROUP_PRODUCT(T, kType, 96, 48, "%48", "%49", "%50", "%51", "%52", "%53");                                           \
  FUSION_WARPGROUP_PRODUCT(T, kType, 104, 52, "%52", "%53", "%54", "%55", "%56", "%57");                                          \
  FUSION_WARPGROUP_PRODUCT(T, kType, 112, 56, "%56", "%57", "%58", "%59", "%60", "%61");                                          \
  FUSION_WARPGROUP_PRODUCT(T, kType, 120, 60, "%60", "%61", "%62", "%63", "%64", "%65");                                          \
  FUSION_WARPGROUP_PRODUCT(T, kType, 128, 64, "%64", "%65", "%66", "%67", "%68", "%69");                                          \
  FUSION_WARPGROUP_PRODUCT(T, kType, 136, 68, "%68", "%69", "%70", "%71", "%72", "%73");                                          \
  FUSION_WARPGROUP_PRODUCT(T, kType, 144, 72, "%72", "%73", "%74", "%75", "%76", "%77");                                          \
  FUSION_WARPGROUP_PRODUCT(T, kType, 152, 76, "%76", "%77", "%78", "%79", "%80", "%81");                                          \
  FUSION_WARPGROUP_PRODUCT(T, kType, 160, 80, "%80", "%81", "%82", "%83", "%84", "%85");                                          \
  FUSION_WARPGROUP_PRODUCT(T, kType, 168, 84, "%84", "%85", "%86", "%87", "%88", "%89");                                          \
  FUSION_WARPGROUP_PRODUCT(T, kType, 176, 88, "%88", "%89", "%90", "%91", "%92", "%93");                                          \
  FUSION_WARPGROUP_PRODUCT(T, kType, 184, 92, "%92", "%93", "%94", "%95", "%96", "%97");                                          \
  FUSION_WARPGROUP_PRODUCT(T, kType, 192, 96, "%96", "%97", "%98", "%99", "%100", "%101");                                        \
  FUSION_WARPGROUP_PRODUCT(T, kType, 200, 100, "%100", "%101", "%102", "%103", "%104", "%105");                                   \
  FUSION_WARPGROUP_PRODUCT(T, kType, 256, 128, "%128", "%129", "%130", "%131", "%132", "%133")

FUSION_WARPGROUP_PRODUCTS(half, "f16");
FUSION_WARPGROUP_PRODUCTS(bfloat, "bf16");

// Of TF32, 8 deep: a in registers as for multiply_add, b's rows are c's columns, a panel of 32.
#define FUSION_WARPGROUP_TF32(kColumns, kSums, k0, k1, k2, k3, k4, k5)                                                            \
  template <>                                                                                                                     \
  struct WarpgroupProduct<float, kColumns> {                                                                                      \
    __device__ static __forceinline__ void by_rows(float (&c)[kColumns / 8][4], const uint32_t (&a)[4], uint64_t b,               \
                                                   bool adds) {                                                                   \
      asm volatile("{\n.reg .pred adds;\nsetp.ne.b32 adds, " k5 ", 0;\n"                                                          \
                   "wgmma.mma_async.sync.aligned.m64n" #kColumns "k8.f32.tf32.tf32"                                               \
                   " {" FUSION_NAMES_##kSums "}, {" k0 ", " k1 ", " k2 ", " k3 "}, " k4 ", adds, 1, 1;\n}"                        \
                   : FUSION_SUMS_##kSums                                                                                          \
                   : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(int{adds}));                                         \
    }                                                                                                                             \
  }
FUSION_WARPGROUP_TF32(64, 32, "%32", "%33", "%34", "%35", "%36", "%37");
FUSION_WARPGROUP_TF32(128, 64, "%64", "%65", "%66", "%67", "%68", "%69");
FUSION_WARPGROUP_TF32(192, 96, "%96", "%97", "%98", "%99", "%100", "%101");
FUSION_WARPGROUP_TF32(256, 128, "%128", "%129", "%130", "%131", "%132", "%133");
#undef FUSION_WARPGROUP_TF32

#undef FUSION_WARPGROUP_PRODUCTS
#undef FUSION_WARPGROUP_PRODUCT

}  // namespace fusion::gpu
#endif

// Products of a warpgroup with matrices in shared memory, on Hopper's tensor cores (sm_90a).
#pragma once

#include "include/hopper.cuh"

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

// Matrices as Hopper's copy engine knows them, without the driver's header: the numbers are those of cuda.h, which have
// not changed since CUDA 12.0.
#pragma once

#include <dlfcn.h>

#include <cstdint>

namespace fusion::gpu {

// CUtensorMap. It holds the matrix's address, so it is made for a run.
struct alignas(64) TensorMap {
  uint64_t words[16];
};

// How much the L2 cache fetches around what is asked for.
constexpr int kPromote128 = 2, kPromote256 = 3;

// Describes a matrix of 16-bit elements, `stride` elements from row to row, that is copied in boxes of `box_rows` by 64;
// outside it there are zeros. Floats are two elements each. False if the copy engine cannot: it wants 16-byte boundaries,
// and a driver.
inline bool describe(TensorMap& map, const void* data, int64_t rows, int64_t columns, int64_t stride, int box_rows,
                     int promote = kPromote256) {
  using Encode = int (*)(TensorMap*, int, uint32_t, void*, const uint64_t*, const uint64_t*, const uint32_t*,
                         const uint32_t*, int, int, int, int);
  static const auto encode = [] {
    void* const driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    return driver == nullptr ? nullptr : reinterpret_cast<Encode>(dlsym(driver, "cuTensorMapEncodeTiled"));
  }();
  if (encode == nullptr || stride % 8 != 0 || reinterpret_cast<uintptr_t>(data) % 16 != 0) return false;
  constexpr int kUint16 = 1, kNoInterleave = 0, kSwizzle128 = 3, kZeros = 0;
  const uint64_t sizes[] = {static_cast<uint64_t>(columns), static_cast<uint64_t>(rows)};
  const uint64_t strides[] = {static_cast<uint64_t>(stride) * 2};
  const uint32_t box[] = {64, static_cast<uint32_t>(box_rows)}, steps[] = {1, 1};
  return encode(&map, kUint16, 2, const_cast<void*>(data), sizes, strides, box, steps, kNoInterleave, kSwizzle128,
                promote, kZeros) == 0;
}

}  // namespace fusion::gpu

// Products as templates/include/wgmma.cuh has them: operands are read from shared memory where the swizzle puts them.
#pragma once

#include "include/hopper.cuh"

namespace fusion::gpu {

inline void products_begin() {}
inline void products_commit() {}
template <int kPending>
void products_wait() {}
template <int kRows>
void products_of(float (&)[kRows][4]) {}

inline uint64_t panel(uint32_t address, uint32_t next = 16) { return uint64_t{next} << 32 | address; }
inline uint64_t further(uint64_t panel, uint32_t bytes) { return panel + bytes; }

template <class T, int kColumns>
struct WarpgroupProduct {
  static float element(uint32_t address) {
    T x;
    std::memcpy(&x, at_shared(swizzled(address)), 2);
    return to_float(x);
  }
  // What a thread has of a left operand in registers, as for multiply_add, is shown to the lanes of its rows.
  static void shown(float (&left)[16], const uint32_t (&a)[4], int half) {
    struct Words {
      uint32_t of[4];
    };
    cuda_host::show(Words{{a[0], a[1], a[2], a[3]}});
    const int lane = threadIdx.x % 32;
    for (int k = 0; k < 16; ++k) {
      const auto words = cuda_host::shown<Words>(lane / 4 * 4 + k % 8 / 2);
      T x;
      std::memcpy(&x, reinterpret_cast<const char*>(&words.of[half + k / 8 * 2]) + k % 2 * 2, 2);
      left[k] = to_float(x);
    }
  }
  static void shown(float (&left)[16], uint64_t a, int half) {
    const int row = threadIdx.x % kWarpgroup / 32 * 16 + threadIdx.x % 32 / 4 + half * 8;
    for (int k = 0; k < 16; ++k) left[k] = element(static_cast<uint32_t>(a) + row * 128 + k * 2);
  }
  template <class Left, class Right>
  static void add(float (&c)[kColumns / 8][4], const Left& a, bool adds, const Right& right) {
    const int lane = threadIdx.x % 32;
    for (int half = 0; half < 2; ++half) {
      float left[16];
      shown(left, a, half);
      for (int j = 0; j < kColumns / 8; ++j)
        for (int e = 0; e < 2; ++e) {
          float& sum = c[j][half * 2 + e];
          if (!adds) sum = 0;
          for (int k = 0; k < 16; ++k) sum += left[k] * element(right(k, j * 8 + lane % 4 * 2 + e));
        }
    }
  }
  static void by_rows(float (&c)[kColumns / 8][4], uint64_t a, uint64_t b, bool adds) {
    add(c, a, adds, [&](int k, int column) { return static_cast<uint32_t>(b) + column * 128 + k * 2; });
  }
  template <class Left>
  static void by_columns(float (&c)[kColumns / 8][4], const Left& a, uint64_t b, bool adds) {
    add(c, a, adds, [&](int k, int column) {
      return static_cast<uint32_t>(b) + column / kPanel * static_cast<uint32_t>(b >> 32) + k * 128 + column % kPanel * 2;
    });
  }
};

// Operands have changed places: 64 columns of a result are the rows of c, kRows rows of it its columns.
template <class T, int kRows>
struct SwappedProduct {
  using Product = WarpgroupProduct<T, kRows>;
  template <bool kByColumns>
  static void add(float (&c)[kRows / 8][4], uint64_t a, uint64_t b, bool adds) {
    if (!kByColumns) return Product::by_rows(c, a, b, adds);
    const uint32_t left = static_cast<uint32_t>(a), right = static_cast<uint32_t>(b);
    const int lane = threadIdx.x % 32, row = threadIdx.x % kWarpgroup / 32 * 16 + lane / 4;
    for (int j = 0; j < kRows / 8; ++j)
      for (int e = 0; e < 4; ++e) {
        const int column = j * 8 + lane % 4 * 2 + e % 2;
        if (!adds) c[j][e] = 0;
        for (int k = 0; k < 16; ++k) {
          c[j][e] += Product::element(left + k * 128 + (row + e / 2 * 8) * 2) * Product::element(right + column * 128 + k * 2);
        }
      }
  }
};

// Of TF32: a in registers, b's rows are c's columns.
template <int kColumns>
struct WarpgroupProduct<float, kColumns> {
  static void by_rows(float (&c)[kColumns / 8][4], const uint32_t (&a)[4], uint64_t b, bool adds) {
    struct Shown {
      uint32_t word[4];
    };
    cuda_host::show(Shown{{a[0], a[1], a[2], a[3]}});
    const int lane = threadIdx.x % 32;
    for (int k = 0; k < 8; ++k) {
      const auto row = cuda_host::shown<Shown>(lane / 4 * 4 + k % 4);
      for (int j = 0; j < kColumns / 8; ++j)
        for (int e = 0; e < 4; ++e) {
          uint32_t right;
          std::memcpy(&right, at_shared(swizzled(static_cast<uint32_t>(b) + (j * 8 + lane % 4 * 2 + e % 2) * 128 + k * 4)), 4);
          const float before = k > 0 || adds ? c[j][e] : 0;
          c[j][e] = before + cuda_host::cut(row.word[e / 2 + k / 4 * 2]) * cuda_host::cut(right);
        }
    }
  }
};

}  // namespace fusion::gpu

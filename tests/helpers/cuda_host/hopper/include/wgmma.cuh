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
  struct Panel {
    uint32_t first;
    bool is_by_columns;
  };
  static void shown(float (&left)[16], const Panel& a, int half) {
    const int row = threadIdx.x % kWarpgroup / 32 * 16 + threadIdx.x % 32 / 4 + half * 8;
    for (int k = 0; k < 16; ++k) left[k] = element(a.first + (a.is_by_columns ? k * 128 + row * 2 : row * 128 + k * 2));
  }
  template <class Left, class Right>
  static void sum_up(float (&c)[kColumns / 8][4], const Left& a, bool adds, const Right& right) {
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
  template <class Left>
  static void by_columns(float (&c)[kColumns / 8][4], const Left& a, uint64_t b, bool adds) {
    sum_up(c, a, adds, [&](int k, int column) {
      return static_cast<uint32_t>(b) + column / kPanel * static_cast<uint32_t>(b >> 32) + k * 128 + column % kPanel * 2;
    });
  }
  template <bool kLeftByColumns, bool kRightByColumns>
  static void add(float (&c)[kColumns / 8][4], uint64_t a, uint64_t b, bool adds) {
    const Panel left{static_cast<uint32_t>(a), kLeftByColumns};
    if (kRightByColumns) return by_columns(c, left, b, adds);
    sum_up(c, left, adds, [&](int k, int column) { return static_cast<uint32_t>(b) + column * 128 + k * 2; });
  }
  static void by_rows(float (&c)[kColumns / 8][4], uint64_t a, uint64_t b, bool adds) { add<false, false>(c, a, b, adds); }
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

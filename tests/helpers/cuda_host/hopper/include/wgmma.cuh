// Hopper's building blocks as templates/include/wgmma.cuh has them, on the host's fibers: copies are there at once, products
// are read from shared memory where the swizzle puts their operands. Whoever waits lets the other warps run.
#pragma once

#include <cuda_runtime.h>

#include "include/mma.cuh"
#include "include/tensor_map.h"

#define FUSION_HOPPER 1

namespace fusion::gpu {

constexpr int kWarpgroup = 128, kPanel = 64;

// Lets the other threads run until `done`. A block that waits for others has its threads wait for as long.
template <class Done>
void wait_until(const Done& done, const char* text) {
  const long before = cuda_host::waits_for_others;
  for (long turns = 0; !done(); ++turns) {
    if (turns - (cuda_host::waits_for_others - before) > 100000) cuda_host::fail(text);
    cuda_host::wait(cuda_host::At::kBlock);
  }
}

struct Barrier {
  int arrivals, missing, bytes, phase;

  void init(int n) { *this = {n, n, 0, 0}; }
  void came(int n) {
    missing -= n;
    if (missing == 0 && bytes == 0) missing = arrivals, ++phase;
  }
  void arrive() { came(1); }
  void arrive_expecting(int n) { bytes += n, came(1); }
  void brought(int n) { bytes -= n, came(0); }
  void wait(int parity) {
    wait_until([&] { return has_passed(parity); }, "a barrier that nobody completes");
  }
  bool has_passed(int parity) const { return phase % 2 != parity; }
};
inline int warpgroup() { return static_cast<int>(threadIdx.x) / kWarpgroup; }
inline bool is_elected() { return threadIdx.x % 32 == 0; }
inline void publish_barriers() {}
inline void publish_copies() {}

// The copies of threads that only copy: they are there at once.
struct CopiesInOrder {
  void arrive_at(Barrier& barrier) { barrier.arrive(); }
  template <int kPending = 0>
  void finish() {}
};

struct Numbered {
  int here, rounds;
  long pass;  // in which the last round was complete
};
inline Numbered numbered[16];
inline void arrive_threads(int barrier, int threads) {
  Numbered& b = numbered[barrier];
  if (++b.here == threads) b.here = 0, ++b.rounds, b.pass = cuda_host::pass;
}
// All go on in the next pass, those who come last too: a warp's threads go on together.
inline void sync_threads(int barrier, int threads) {
  Numbered& b = numbered[barrier];
  const int round = b.rounds;
  arrive_threads(barrier, threads);
  cuda_host::wait(cuda_host::At::kBlock);
  wait_until([&] { return b.rounds != round && cuda_host::pass > b.pass; }, "threads that never come");
}

template <int kRegisters>
void give_registers() {}
template <int kRegisters>
void take_registers() {}
inline void products_begin() {}
inline void products_commit() {}
template <int kPending>
void products_wait() {}
template <int kRows>
void products_of(float (&)[kRows][4]) {}

inline unsigned char* at_shared(uint32_t address) {
  return reinterpret_cast<unsigned char*>(dynamic) + (address - shared_address(dynamic));
}
inline uint32_t swizzled(uint32_t address) { return address ^ (address >> 7 & 7) << 4; }

// A described matrix, in place of what the driver makes of it.
struct HostMap {
  const uint16_t* data;
  int64_t rows, columns, stride;
  int box_rows;
};
inline TensorMap host_map(const void* data, int64_t rows, int64_t columns, int64_t stride, int box_rows) {
  const HostMap map{static_cast<const uint16_t*>(data), rows, columns, stride, box_rows};
  TensorMap out;
  std::memcpy(&out, &map, sizeof map);
  return out;
}
inline void prefetch_map(const TensorMap&) {}
inline void prefetch_box(const TensorMap&, int, int) {}
// What was copied, where somebody wants to know.
struct Copied {
  const void* matrix;
  int column, row;
  bool once;
};
inline std::vector<Copied>* copied = nullptr;

inline void copy_box(uint32_t shared, const TensorMap& described, Barrier& arrived, int column, int row, bool once = false) {
  HostMap map;
  std::memcpy(&map, &described, sizeof map);
  if (copied != nullptr) copied->push_back({map.data, column, row, once});
  for (int r = 0; r < map.box_rows; ++r)
    for (int c = 0; c < kPanel; ++c) {
      const bool inside = row + r < map.rows && column + c < map.columns;
      const uint16_t element = inside ? map.data[(row + r) * map.stride + column + c] : 0;
      std::memcpy(at_shared(swizzled(shared + r * 128 + c * 2)), &element, 2);
    }
  arrived.brought(map.box_rows * kPanel * 2);
}

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

// c += a' * b: 64 columns of a are the rows of c, kRows rows of b its columns; 16 rows of a, and columns of b, count.
template <class T, int kRows>
struct WarpgroupFew {
  static void add(float (&c)[kRows / 8][4], uint64_t a, uint64_t b, bool adds) {
    using Product = WarpgroupProduct<T, kRows>;
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

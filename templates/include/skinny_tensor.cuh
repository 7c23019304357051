// Products of at most 16 rows in fp16 and bf16 on tensor cores. All there is to read is the right operand: each warp of a
// block walks rows of its own, with as many on their way as shared memory holds, and is the multiplication's wide side.
#pragma once

#include "include/linear.cuh"

namespace fusion::gpu {

constexpr int kFewRows = 16;  // at most
constexpr int kFewStep = 32;  // rows of the right operand that a warp multiplies at a time

// 16 * kWords columns, kRows rows (8 or 16), by kWarps warps, each with kStages steps on their way.
template <int kRowsOfTile, int kWordsOfTile, int kWarpsOfTile, int kStagesOfTile>
struct FewTile {
  static constexpr int kRows = kRowsOfTile, kWords = kWordsOfTile, kWarps = kWarpsOfTile, kStages = kStagesOfTile;
  static constexpr int kThreads = kWarps * 32, kHalves = kRows / 8, kColumns = 16 * kWords;
  static constexpr int kPitch = kColumns + 8, kLeftPitch = kFewStep + 8;
  static constexpr int kStage = kFewStep * kPitch + kRows * kLeftPitch;  // elements, of a ring of kStages for each warp
  static constexpr int kSumPitch = kColumns + 4, kSums = kRows * kSumPitch;
  static constexpr size_t kRingBytes = 2 * kWarps * kStages * kStage, kSumBytes = 4 * kWarps * kSums;
  static constexpr size_t kBytes = kRingBytes > kSumBytes ? kRingBytes : kSumBytes;
};

// Has the second-level cache ask for the first rows of a strip of columns, as many as are on their way at first. What
// earlier kernels write may change them still.
template <class Tile, class Operands>
__device__ __forceinline__ void few_ahead(const Operands& x, int64_t strip, int walker, int warps) {
#pragma unroll
  for (int s = 0; s < Tile::kStages; ++s) {
    const int64_t k = (int64_t{s} * warps + walker) * kFewStep + threadIdx.x % 32;
    if (k < x.p.k) {
      asm volatile("prefetch.global.L2 [%0];\n" ::"l"(x.b + k * x.p.b_k + strip * Tile::kColumns));
    }
  }
}

// The sums of a strip: of its `warps` warps this one takes every so many-th step down B, as number `walker`.
template <class Tile, class Operands>
__device__ __forceinline__ void few_sums(float (&acc)[Tile::kHalves][Tile::kWords][4], const Operands& x, int64_t strip,
                                         int walker, int warps) {
  using T = std::remove_const_t<std::remove_pointer_t<decltype(x.a)>>;
  extern __shared__ uint4 dynamic[];
  constexpr int kStages = Tile::kStages;
  const int lane = threadIdx.x % 32;
  T* const ring = reinterpret_cast<T*>(dynamic) + threadIdx.x / 32 * kStages * Tile::kStage;
  const Product& p = x.p;
  const Matrix<T> left{x.a, p.a_row, p.a_k, p.m, p.k}, right{x.b, p.b_k, p.b_column, p.k, p.n};
  const bool wide = left.wide();
  const int steps = static_cast<int>((p.k + kFewStep - 1) / kFewStep);
  const auto fetch = [&](int step, int slot) {
    if (step < steps) {
      T* const stage = ring + slot * Tile::kStage;
      const int64_t k = int64_t{step} * kFewStep;
      load_tile<kFewStep, Tile::kColumns, Tile::kPitch, 32>(stage, right, k, strip * Tile::kColumns, true, lane);
      load_tile<Tile::kRows, kFewStep, Tile::kLeftPitch, 32>(stage + kFewStep * Tile::kPitch, left, 0, k, wide, lane);
    }
    copy_commit();  // an empty group keeps the count of groups in step
  };
#pragma unroll
  for (int s = 0; s < kStages - 1; ++s) fetch(walker + s * warps, s);
  for (int step = walker, slot = 0; step < steps; step += warps, slot = slot + 1 == kStages ? 0 : slot + 1) {
    fetch(step + (kStages - 1) * warps, slot == 0 ? kStages - 1 : slot - 1);
    copy_wait<kStages - 1>();
    __syncwarp();
    const T* const tile = ring + slot * Tile::kStage;
    uint32_t rows[Tile::kHalves][4];  // 8 rows of A by 32
#pragma unroll
    for (int h = 0; h < Tile::kHalves; ++h) {
      load_matrices(rows[h], tile + kFewStep * Tile::kPitch + (h * 8 + lane % 8) * Tile::kLeftPitch + lane / 8 * 8);
    }
#pragma unroll
    for (int s = 0; s < 2; ++s) {
#pragma unroll
      for (int w = 0; w < Tile::kWords; ++w) {
        uint32_t columns[4];
        load_a<true, Tile::kPitch>(columns, tile, w * 16, s * 16);
#pragma unroll
        for (int h = 0; h < Tile::kHalves; ++h) multiply_add<T>(acc[h][w], columns, rows[h][2 * s], rows[h][2 * s + 1]);
      }
    }
    __syncwarp();  // all lanes have read what is overwritten next
  }
  copy_wait<0>();
}

// Leaves a warp's sums in shared memory, where all threads may then read them: [warp][row][column].
template <class Tile>
__device__ __forceinline__ void few_share(const float (&acc)[Tile::kHalves][Tile::kWords][4]) {
  extern __shared__ uint4 dynamic[];
  const int lane = threadIdx.x % 32;
  __syncthreads();  // all have left the rings
  float* const own = reinterpret_cast<float*>(dynamic) + threadIdx.x / 32 * Tile::kSums;
#pragma unroll
  for (int h = 0; h < Tile::kHalves; ++h) {
#pragma unroll
    for (int w = 0; w < Tile::kWords; ++w) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int row = h * 8 + lane % 4 * 2 + e % 2, column = w * 16 + lane / 4 + e / 2 * 8;
        own[row * Tile::kSumPitch + column] = acc[h][w][e];
      }
    }
  }
  __syncthreads();
}

// The epilogue of a strip, of which `warps` warps from `first` on have the sums; called by the same thread for the same
// element of equally wide products.
template <class Tile, class Operands>
__device__ __forceinline__ void few_epilogue(const Operands& x, int64_t strip, int first, int warps) {
  extern __shared__ uint4 dynamic[];
  const float* const sums = reinterpret_cast<const float*>(dynamic) + first * Tile::kSums;
  int64_t at[sizeof(x.batches.stride) / sizeof(x.batches.stride[0])];
  x.batches.locate(0, at);
  for (int i = threadIdx.x; i < static_cast<int>(x.p.m) * Tile::kColumns; i += Tile::kThreads) {
    const int row = i / Tile::kColumns, c = i % Tile::kColumns;
    const int64_t column = strip * Tile::kColumns + c;
    float sum = 0.0f;
    for (int w = 0; w < warps; ++w) sum += sums[w * Tile::kSums + row * Tile::kSumPitch + c];
    if (column < x.p.n) x.epilogue(at, 0, row, column, x.p.alpha * sum);
  }
}

// A whole kernel, but for which strip of which chain: the block's warps are dealt out to the products of the chain.
// `Operands` have a, b, p, batches and the epilogue, which may read what those before it in the chain stored.
template <class Tile, class... Operands>
__device__ __forceinline__ void few_chain(int64_t strip, const Operands&... x) {
  constexpr int kCount = sizeof...(Operands), kEach = Tile::kWarps / kCount;
  static_assert(kEach > 0, "more products than warps");
  const int product = static_cast<int>(threadIdx.x) / 32 / kEach, walker = static_cast<int>(threadIdx.x) / 32 % kEach;
  int n = 0;
  ((n++ == product ? few_ahead<Tile>(x, strip, walker, kEach) : void()), ...);
  await_earlier();
  float acc[Tile::kHalves][Tile::kWords][4] = {};
  n = 0;
  ((n++ == product ? few_sums<Tile>(acc, x, strip, walker, kEach) : void()), ...);
  few_share<Tile>(acc);
  n = 0;
  (few_epilogue<Tile>(x, strip, kEach * n++, kEach), ...);
}

template <class Tile>
__host__ __device__ __forceinline__ int64_t few_strips(const Product& p) {
  return (p.n + Tile::kColumns - 1) / Tile::kColumns;
}

// The tiles for up to kRows rows, by the width of their strips; all fit in the 99 KB that the smallest devices have.
template <int kRows>
struct FewTiles {
  using Narrow = FewTile<kRows, 1, 8, kRows == 8 ? 4 : 3>;
  using Middle = FewTile<kRows, 2, 8, 3>;
  using Broad = FewTile<kRows, 4, 4, 4>;
};

template <class Use>
void for_few_tiles(const Use& use) {
  const auto all = [&](auto tiles) {
    using Tiles = decltype(tiles);
    use(typename Tiles::Narrow()), use(typename Tiles::Middle()), use(typename Tiles::Broad());
  };
  all(FewTiles<8>()), all(FewTiles<16>());
}

// Calls `use` with the tile for so many rows and columns in one launch: wide strips suit the memory, as long as every
// multiprocessor has one. Measured on an H200.
template <class Use>
void with_few_tile(const Device& device, int64_t rows, int64_t columns, const Use& use) {
  const auto choose = [&](auto tiles) {
    using Tiles = decltype(tiles);
    const int64_t each = columns / device.multiprocessors;
    if (each >= Tiles::Broad::kColumns) {
      use(typename Tiles::Broad());
    } else if (each >= Tiles::Middle::kColumns) {
      use(typename Tiles::Middle());
    } else {
      use(typename Tiles::Narrow());
    }
  };
  if (rows <= 8) {
    choose(FewTiles<8>());
  } else {
    choose(FewTiles<16>());
  }
}

}  // namespace fusion::gpu

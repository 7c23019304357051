// What products of float32 in TF32 are cut into, and how their operands come to shared memory and from there to registers.
#pragma once

#include "include/cluster.cuh"
#include "include/linear.cuh"
#include "include/tensor_map.h"

namespace fusion::gpu {

// What a block computes: kDown * kAcross tiles of its warps, of kWarpRows by kWarpColumns, by each of kGroups groups that
// share the depth of a step among them. Tiles of the operands go through a ring of kSlots. A block takes kStart cycles, and
// kStep for every 32 of the depth; a multiprocessor gets kBytes of the right operands a cycle.
template <int kWarpRows_, int kWarpColumns_, int kDown_, int kAcross_, int kGroups_, int kSlots_, int kStart_, int kStep_>
struct Tf32Tile {
  static constexpr bool kHopper = false;
  static constexpr double kBytes = 4.3;
  static constexpr int kWarpRows = kWarpRows_, kWarpColumns = kWarpColumns_, kDown = kDown_, kAcross = kAcross_;
  static constexpr int kGroups = kGroups_, kSlots = kSlots_, kStart = kStart_, kStep = kStep_;
  static constexpr int kRows = kWarpRows * kDown, kColumns = kWarpColumns * kAcross, kDepth = 32;
  static constexpr int kGroupThreads = kDown * kAcross * 32, kThreads = kGroupThreads * kGroups;
  // Tiles of the left operand lie [row][k], of the right one [k][column], or [column][k] where it is transposed. Rows that
  // are read at once lie in other banks.
  static constexpr int kPitchDeep = kDepth + 4, kPitchWide = kColumns + 8;
  static constexpr int kLeft = kRows * kPitchDeep;
  template <bool kTransB>
  static constexpr int kRight = kTransB ? kColumns * kPitchDeep : kDepth * kPitchWide;
  template <bool kTransB>
  static constexpr int kRing = kSlots * (kLeft + kRight<kTransB>);
  // Eights of a row that every thread of a group has sums of.
  static constexpr int kEightsAcross = kWarpColumns / 32, kEights = kWarpRows / 8 * kEightsAcross;
  static_assert(kWarpRows % 16 == 0 && kWarpColumns % 32 == 0 && kGroups <= 2);

  // Bytes of shared memory where so many blocks share the depth: the ring, and sums of the block's part of a tile from all
  // that add to them, which may lie where the ring was if these are of one block.
  template <bool kTransB>
  static constexpr int bytes(int parts) {
    const int sums = (kEights + parts - 1) / parts * parts * kThreads * 8;
    return 4 * (parts > 1 ? kRing<kTransB> + sums : sums < kRing<kTransB> ? kRing<kTransB> : sums);
  }
  // The most of them that is available.
  template <bool kTransB>
  static constexpr int most_bytes(int available) {
    int most = 0;
    for (int parts = 1; parts <= kMostParts; ++parts) {
      const int needed = bytes<kTransB>(parts);
      if (needed <= available && needed > most) most = needed;
    }
    return most;
  }
};

// Products of one left operand [rows, depth]: right ones [depth, columns], each with its own result.
template <int kProducts>
struct Tf32Operands {
  TensorMap map;  // of the left operand, for warpgroups
  const float* left;
  const float* right[kProducts];
  int rows, depth, columns[kProducts];
  int left_stride, right_stride[kProducts];  // elements from row to row, or from column to column where it is transposed
  int parts;                                 // blocks that share a tile's depth
};

template <class Tile, class Columns>
__host__ __device__ __forceinline__ constexpr int tf32_tiles(int rows, const Columns& columns) {
  int across = 0;
  for (const int n : columns) across += (n + Tile::kColumns - 1) / Tile::kColumns;
  return across * ((rows + Tile::kRows - 1) / Tile::kRows);
}

// Where a tile lies, and in which product.
template <class Tile>
struct Tf32Position {
  int row, column, product = 0;
  template <int kProducts>
  __device__ __forceinline__ Tf32Position(const Tf32Operands<kProducts>& x, int tile) {
    const int down = (x.rows + Tile::kRows - 1) / Tile::kRows;
    row = tile % down * Tile::kRows;
    column = tile / down;
    for (; product + 1 < kProducts; ++product) {
      const int width = (x.columns[product] + Tile::kColumns - 1) / Tile::kColumns;
      if (column < width) break;
      column -= width;
    }
    column *= Tile::kColumns;
  }
};

// Of every 32 columns that lie in order, the order in which the tensor cores take them: the first of every four, then the
// second ones, so that a thread has sums of eight neighbours.
struct EveryFourth {
  __device__ static constexpr int from(int row) { return row / 32 * 32 + row % 8 * 4 + row % 32 / 8; }
};

// A thread's places in the tiles of a matrix whose rows are contiguous along the depth.
template <class Tile, int kLines, class Order>
struct DeepRows {
  static constexpr int kAround = Tile::kDepth / 4, kEach = Tile::kThreads / kAround;
  static constexpr int kCopies = (kLines + kEach - 1) / kEach;
  int from[kCopies];

  __device__ __forceinline__ DeepRows(int row, int rows, int stride) {
    const int line = threadIdx.x / kAround, k = threadIdx.x % kAround * 4;
#pragma unroll
    for (int n = 0; n < kCopies; ++n) {
      const int at = row + Order::from(line + n * kEach);
      from[n] = at < rows ? at * stride + k : -1;
    }
  }
  __device__ __forceinline__ void copy(float* to, const float* matrix, int first, int depth) const {
    const int line = threadIdx.x / kAround, k = threadIdx.x % kAround * 4;
#pragma unroll
    for (int n = 0; n < kCopies; ++n) {
      if (kLines % kEach != 0 && line + n * kEach >= kLines) break;
      const bool inside = first + k < depth && from[n] >= 0;
      copy_async(to + (line + n * kEach) * Tile::kPitchDeep + k, inside ? matrix + from[n] + first : matrix, inside);
    }
  }
};

// The same of a matrix whose rows are contiguous across the columns.
template <class Tile>
struct WideRows {
  static constexpr int kAround = Tile::kColumns / 4, kEach = Tile::kThreads / kAround;
  static constexpr int kCopies = Tile::kDepth / kEach;
  static_assert(Tile::kThreads % kAround == 0 && Tile::kDepth % kEach == 0);
  int from, step;
  bool within;

  __device__ __forceinline__ WideRows(int column, int columns, int stride) {
    const int at = column + static_cast<int>(threadIdx.x) % kAround * 4;
    from = threadIdx.x / kAround * stride + at;
    step = stride;
    within = at < columns;
  }
  __device__ __forceinline__ void copy(float* to, const float* matrix, int first, int depth) const {
    const int line = threadIdx.x / kAround, column = threadIdx.x % kAround * 4;
    const float* const tile = matrix + static_cast<int64_t>(first) * step + from;
#pragma unroll
    for (int n = 0; n < kCopies; ++n) {
      const bool inside = first + line + n * kEach < depth && within;
      copy_async(to + (line + n * kEach) * Tile::kPitchWide + column, inside ? tile + n * kEach * step : matrix, inside);
    }
  }
};

// What a warp multiplies at a time: eight of the depth.
template <class Tile, bool kTransB>
struct Tf32Fragments {
  uint32_t left[Tile::kWarpRows / 16][4];
  uint32_t right[Tile::kWarpColumns / 8][2];

  __device__ __forceinline__ void load(const float* slot, int row, int column, int k) {
    const int lane = threadIdx.x % 32;
    const float* const tile = slot + Tile::kLeft;
#pragma unroll
    for (int i = 0; i < Tile::kWarpRows / 16; ++i) {
      load_matrices(left[i], slot + (row + i * 16 + lane % 16) * Tile::kPitchDeep + k + lane / 16 * 4);
    }
#pragma unroll
    for (int j = 0; j < Tile::kWarpColumns / 8; j += kTransB ? 2 : 4) {
      if constexpr (kTransB) {
        uint32_t two[4];
        load_matrices(two, tile + (column + j * 8 + lane / 16 * 8 + lane % 8) * Tile::kPitchDeep + k + lane / 8 % 2 * 4);
        right[j][0] = two[0], right[j][1] = two[1], right[j + 1][0] = two[2], right[j + 1][1] = two[3];
      } else {
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          const float* const from = tile + (k + h * 4 + lane % 4) * Tile::kPitchWide + column + j * 8 + lane / 4 * 4;
          const uint4 four = *reinterpret_cast<const uint4*>(from);
          right[j][h] = four.x, right[j + 1][h] = four.y, right[j + 2][h] = four.z, right[j + 3][h] = four.w;
        }
      }
    }
  }

  __device__ __forceinline__ void multiply(float (&c)[Tile::kWarpRows / 16][Tile::kWarpColumns / 8][4]) {
#pragma unroll
    for (auto& four : left) round_all(four);
#pragma unroll
    for (auto& two : right) round_all(two);
#pragma unroll
    for (int i = 0; i < Tile::kWarpRows / 16; ++i) {
#pragma unroll
      for (int j = 0; j < Tile::kWarpColumns / 8; ++j) multiply_add<float>(c[i][j], left[i], right[j][0], right[j][1]);
    }
  }
};

}  // namespace fusion::gpu

// What follows a product on Hopper: sums go through shared memory, eight of a warp's rows at a time, to lanes that have eight
// neighbours of a row, as memory gives and takes them, and that a generated epilogue computes at once.
#pragma once

#include "include/hopper.cuh"
#include "include/vector.cuh"

namespace fusion::gpu {

// Whether rows can be read or written eight neighbours at a time, or have one element for all columns; a row's bytes are counted in
// 32 bits.
template <class T>
bool in_eights(const T* p, int64_t row, int64_t column) {
  if (row < 0 || row > UINT32_MAX / sizeof(T)) return false;
  return column == 0 || (column == 1 && row % 8 == 0 && reinterpret_cast<uintptr_t>(p) % alignof(Chunk<T, 8>) == 0);
}

template <class T>
__device__ __forceinline__ T* eight_at(T* p, int64_t step, int64_t column_step, uint32_t row, uint32_t column) {
  const uint32_t pitch = static_cast<uint32_t>(step) * static_cast<uint32_t>(sizeof(T));
  auto* const first = reinterpret_cast<const char*>(p + (column_step != 0 ? column : 0));
  return reinterpret_cast<T*>(const_cast<char*>(first + uint64_t{row} * pitch));
}
// Eight neighbours of a row, or the first of them where it stands for all columns: `spread` makes them eight later, as the
// load would be waited for at once.
template <class T>
__device__ __forceinline__ void fetch_eight(Vector<T, 8>& to, const T* p, int64_t step, int64_t column_step, uint32_t row,
                                            uint32_t column) {
  const T* const at = eight_at(p, step, column_step, row, column);
  if (column_step != 0) {
    to = load_whole<T, 8>(at);
  } else {
    const auto one = load_whole<T, 1>(at);
#pragma unroll
    for (int i = 0; i < one.kWords; ++i) to.word[i] = one.word[i];
  }
}
// Has them come to the L2 cache.
template <class T>
__device__ __forceinline__ void prefetch_eight(const T* p, int64_t step, int64_t column_step, uint32_t row, uint32_t column) {
  bring_to_cache(eight_at(p, step, column_step, row, column));
}
template <class T>
__device__ __forceinline__ void spread(Vector<T, 8>& x, int64_t column_step) {
  if (column_step != 0) return;
  const T one = x.element(0);
  x = {};
#pragma unroll
  for (int i = 0; i < 8; ++i) x.set(i, one);
}

#if FUSION_HOPPER
// Stores eight neighbours if they are `inside`: what leads to the store is worked out in any case, as between branches the compiler would
// have each eight wait for itself.
template <class T, class X>
__device__ __forceinline__ void store_eight(bool inside, T* p, const X (&x)[8], bool passes = false) {
  Vector<T, 8> y{};
#pragma unroll
  for (int i = 0; i < 8; i += 2) {
    if constexpr (std::is_same_v<T, half> || std::is_same_v<T, bfloat>) {
      y.word[i / 2] = pack<T>(static_cast<float>(x[i]), static_cast<float>(x[i + 1]));
    } else {
      put(y, i, x[i]), put(y, i + 1, x[i + 1]);
    }
  }
#pragma unroll
  for (auto& word : y.word) keep(word);
  keep(p);
#pragma unroll
  for (int i = 0; i < y.kBytes / 16; ++i) {
    const uint4 v{y.word[i * 4], y.word[i * 4 + 1], y.word[i * 4 + 2], y.word[i * 4 + 3]};
    store_if(inside && !passes, inside && passes, reinterpret_cast<uint4*>(p) + i, v);
  }
}

// Bytes of a warp's place in shared memory: eight rows of 64 sums.
constexpr int kSumsPitch = kPanel * 4 + 32, kSumsBytes = 8 * kSumsPitch;
// Of a worker's sums whose operands changed places, of which parts have every other place.
constexpr int kWorkerPlaceBytes = 4 * kSumsBytes, kWorkerSumsBytes = 2 * kWorkerPlaceBytes;
constexpr int kTurnBytes = 32 * 8 * 4;  // of a warp's sums of four of them

// A lane takes eight neighbours of a row's 64, which lie in halves that change places where an eight's are `odd`, so that they meet in no
// bank.
__device__ __forceinline__ int sum_at(int row, int pitch, int eight, int half, int odd) {
  return row * pitch + eight * 32 + ((half ^ odd) & 1) * 16;
}
__device__ __forceinline__ void take_eight(float (&eight)[8], const unsigned char* shared, const int (&from)[2], int further) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const auto four = *reinterpret_cast<const Chunk<float, 4>*>(shared + from[half] + further);
#pragma unroll
    for (int e = 0; e < 4; ++e) eight[half * 4 + e] = four.element[e];
  }
}

// A warp's sums on their way to its lanes, eight rows of a panel at a time, those above before those below and one panel after the
// other: eight lanes take a row, and so every lane one of the first four rows and one of the others.
template <class Tile>
struct WarpSums {
  // Parts of a panel: of every 64 rows two, of which the second one lies so many rows below the first.
  static constexpr int kEach = Tile::kHeight * 2, kBelow = 8;
  static constexpr int kPanels = Tile::kPanels, kParts = kEach * kPanels;
  static constexpr int kNext = 4;  // so many rows below a lane's first one of a part lies its other one
  static constexpr bool kInTurn = false;
  unsigned char* shared;
  int to[2], from[2];

  // `place` is where those of the first warp begin, `warp` this one's number.
  __device__ __forceinline__ WarpSums(unsigned char* shared, int place, int warp) : shared(shared) {
    const int lane = threadIdx.x % 32;
    place += warp * kSumsBytes;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      to[i] = place + at(lane / 4, 0, lane / 2 ^ i) + lane % 2 * 8;
      from[i] = place + at(lane / 8, lane % 8, i);
      keep(to[i]), keep(from[i]);
    }
  }
  static __device__ __forceinline__ constexpr bool has(int, int) { return true; }
  __device__ __forceinline__ void take(float (&eight)[8], int, int turn) const { take_eight(eight, shared, from, turn * kNext * kSumsPitch); }
  // The row of a worker's tile that a lane takes first.
  static __device__ __forceinline__ int first_row() { return threadIdx.x % kWarpgroup / 32 * 16 + threadIdx.x % 32 / 8; }
  // The halves of an eight change places in every other row, and in the second half of a row, so that neither what the
  // products leave nor what an epilogue takes meets in a bank.
  __device__ static __forceinline__ int at(int row, int eight, int half) { return sum_at(row, kSumsPitch, eight, half, eight / 4 ^ row); }
  static __device__ __forceinline__ void meet() { __syncwarp(); }
  // A part of what a product left in registers, which have no index.
  __device__ __forceinline__ void give(const typename Tile::Sums& c, int product, int part) const {
#pragma unroll
    for (int known = 0; known < kParts; ++known) {
      if (known != part) continue;
#pragma unroll
      for (int j = 0; j < 8; ++j) {
        const float(&four)[4] = c[known / 2 % Tile::kHeight][(product * kPanels + known / 2 / Tile::kHeight) * 8 + j];
        *reinterpret_cast<Chunk<float, 2>*>(shared + to[j / 4] + j * 32) = {four[known % 2 * 2], four[known % 2 * 2 + 1]};
      }
    }
  }
};

// The same of a tile whose operands changed places: a worker's warps have 16 columns each of its panel. They put 32 rows of it at a time
// together, of which each takes four of the first 16 and of the others, if a tile has them. Of two places parts have every other one: while
// some of the threads still take a part, others may give the next one.
template <class Tile>
struct WorkerSums {
  static constexpr int kPitch = kPanel * 4 + 16, kTogether = 32;
  static constexpr int kEach = (Tile::kRows + kTogether - 1) / kTogether, kParts = kEach, kBelow = kTogether, kNext = 16;
  static constexpr bool kInTurn = true;
  static_assert(Tile::kPanels == 1);
  static_assert(kTogether * kPitch <= kWorkerPlaceBytes);
  unsigned char* shared;
  int to, from[2];

  __device__ __forceinline__ WorkerSums(unsigned char* shared, int place, int warp) : shared(shared) {
    const int lane = threadIdx.x % 32;
    place += warp / 4 * kWorkerSumsBytes, warp %= 4;
    to = place + sum_at(lane % 4 * 2, kPitch, warp * 2, lane / 16, warp / 2) + lane / 4 % 4 * 4;
    keep(to);
#pragma unroll
    for (int i = 0; i < 2; ++i) from[i] = place + sum_at(first_row(), kPitch, lane % 8, i, lane / 4), keep(from[i]);
  }
  static __device__ __forceinline__ constexpr bool has(int part, int turn) { return part * kTogether + turn * kNext < Tile::kRows; }
  static __device__ __forceinline__ int first_row() { return threadIdx.x % kWarpgroup / 32 * 4 + threadIdx.x % 32 / 8; }
  static __device__ __forceinline__ void meet() { sync_threads(2 + static_cast<int>(threadIdx.x) / kWarpgroup, kWarpgroup); }
  __device__ __forceinline__ void give(const typename Tile::Sums& c, int, int part) const {
#pragma unroll
    for (int known = 0; known < kEach; ++known) {
      if (known != part) continue;
#pragma unroll
      for (int j = 0; j < kTogether / 8; ++j) {
        const int eight = known * (kTogether / 8) + j;
        if (eight >= Tile::kRows / 8) continue;
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          *reinterpret_cast<float*>(shared + to + part % 2 * kWorkerPlaceBytes + (j * 8 + e % 2) * kPitch + e / 2 * 32) = c[0][eight][e];
        }
      }
    }
  }
  __device__ __forceinline__ void take(float (&eight)[8], int part, int turn) const {
    take_eight(eight, shared, from, part % 2 * kWorkerPlaceBytes + turn * kNext * kPitch);
  }
};
template <class Tile>
using TileSums = std::conditional_t<Tile::kSwaps, WorkerSums<Tile>, WarpSums<Tile>>;

// Where the first eight neighbours lie that a lane takes of a worker's tile.
template <class Tile>
struct LanePlace {
  int row, column;
  __device__ __forceinline__ LanePlace(int tile_row, int tile_column)
      : row(tile_row + TileSums<Tile>::first_row()), column(tile_column + threadIdx.x % 8 * 8) {}
};

// Hands the sums of so many panels of a worker's tile, the first of which has `row` and `column`, on to an epilogue, which reads its
// operands and takes its sums a part ahead: the first operands when this is made. `passes`: nobody finds the results in the L2 cache.
// A loop of two parts where there are several epilogues, kAlone where this is the only one: their instructions, too, have to come from
// memory. On an H200 1576x3072x768 with GELU takes 14.9 us without a loop and 15.9 with it, three of 1024x768x768 8.55 and 8.4.
// Operands that are read two parts ahead, the first two before the products, help only tiles that are hardly ever chosen: with a residual
// 2048x768x3072 takes 15.7 us for 15.9, but 1024x768x768 4.8 for 4.7.
template <class Tile, class Epilogue, bool kAlone>
struct TileEnding {
  using Sums = TileSums<Tile>;
  static constexpr int kTurns = 2, kParts = Sums::kParts, kLoops = kAlone ? (kParts + 1) / 2 : 1;
  static constexpr bool kOdd = Sums::kEach % 2 != 0;  // parts of a panel
  using Operands = typename Epilogue::Operands[kTurns];
  const Epilogue& epilogue;
  int rows, columns;
  LanePlace<Tile> lane;
  Operands operands[2];  // of the part at hand, and of the next

  __device__ __forceinline__ TileEnding(const Epilogue& epilogue, int rows, int columns, int row, int column)
      : epilogue(epilogue), rows(Tile::kSwaps ? min(rows, row + Tile::kRows) : rows), columns(columns), lane(row, column) {
    fetch(operands[0], lane.row, lane.column);
  }
  // What lies outside is never stored. `near`: what was fetched of the same columns, if anything.
  template <class... Near>
  __device__ __forceinline__ void fetch(Operands& to, int down, int across, const Near&... near) {
#pragma unroll
    for (int turn = 0; turn < kTurns; ++turn) {
      epilogue.fetch(to[turn], min(down + turn * Sums::kNext, rows - 1), min(across, columns - 8), near[0]...);
    }
  }
  // Has what the parts after the first one read come to the L2 cache, while products go on.
  __device__ __forceinline__ void prefetch() const {
    if constexpr (Epilogue::kReadsRows) {
#pragma unroll 1
      for (int part = 1; part < kParts; ++part) {
        const int down = lane.row + part % Sums::kEach / 2 * 64 + part % Sums::kEach % 2 * Sums::kBelow;
        const int across = lane.column + part / Sums::kEach * kPanel;
#pragma unroll
        for (int turn = 0; turn < kTurns; ++turn) epilogue.prefetch(min(down + turn * Sums::kNext, rows - 1), min(across, columns - 8));
      }
    }
  }
  using Eights = float[kTurns][Tile::kProducts][8];
  // `begins`: with a tile's first part.
  static __device__ __forceinline__ void take(Eights& eights, const typename Tile::Sums& c, int part, bool begins, const Sums& sums) {
#pragma unroll
    for (int p = 0; p < Tile::kProducts; ++p) {
      if (begins || !Sums::kInTurn) Sums::meet();
      sums.give(c, p, part);
      Sums::meet();
#pragma unroll
      for (int turn = 0; turn < kTurns; ++turn) sums.take(eights[turn][p], part, turn);
    }
  }
  __device__ __forceinline__ void operator()(const typename Tile::Sums& c, int first_panel, int panels, int passes, const Sums& sums) {
    int down = lane.row, across = lane.column;
    keep(passes);
    const int end = (first_panel + panels) * Sums::kEach;
    Eights eights[2];
    take(eights[0], c, first_panel * Sums::kEach, true, sums);
#pragma unroll kLoops
    for (int two = first_panel * Sums::kEach / 2; two * 2 < end; ++two) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int part = two * 2 + i, here = down + i * Sums::kBelow, there = across;
        if (kOdd && i == 1 && part == end) continue;
        if ((!kOdd && i == 0) || part + 1 < end) {
          down += i * 64;
          if (i == 1 && down == lane.row + Sums::kEach * 32) {
            down = lane.row, across += kPanel;
            fetch(operands[0], down, across);
          } else {
            fetch(operands[1 - i], i == 0 ? down + Sums::kBelow : down, across, operands[i]);
          }
          take(eights[1 - i], c, part + 1, false, sums);
        }
#pragma unroll
        for (int turn = 0; turn < kTurns; ++turn) {
          if (kAlone && !Sums::has(part, turn)) continue;
          const int below = here + turn * Sums::kNext;
          epilogue.spread(operands[i][turn]);
          epilogue.store(below, there, below < rows && there < columns, eights[i][turn], operands[i][turn], passes != 0);
        }
      }
    }
  }
};

#endif

}  // namespace fusion::gpu

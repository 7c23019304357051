// What follows a product on Hopper: sums go through shared memory, eight of a warp's rows at a time, to lanes that have eight
// neighbours of a row, as memory gives and takes them, and that a generated epilogue computes at once.
#pragma once

#include "include/cluster.cuh"
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

template <class T, class X>
__device__ __forceinline__ void store_eight(T* p, const X (&x)[8], bool passes = false) {
  Vector<T, 8> y{};
#pragma unroll
  for (int i = 0; i < 8; i += 2) {
    if constexpr (std::is_same_v<T, half> || std::is_same_v<T, bfloat>) {
      y.word[i / 2] = pack<T>(static_cast<float>(x[i]), static_cast<float>(x[i + 1]));
    } else {
      put(y, i, x[i]), put(y, i + 1, x[i + 1]);
    }
  }
  store_whole(p, y, passes);
}

// Has a value kept in a register, where the compiler would rather work it out again in every round of a loop.
__device__ __forceinline__ void keep(int& x) { asm volatile("" : "+r"(x)); }

// Bytes of a warp's place in shared memory: eight rows of 64 sums.
constexpr int kSumsPitch = kPanel * 4 + 32, kSumsBytes = 8 * kSumsPitch;
constexpr int kTurnBytes = 32 * 8 * 4;  // of a warp's sums of four of them

// A warp's sums on their way to its lanes, eight rows of a panel at a time, those above before those below and one panel after the
// other: eight lanes take a row, and so every lane one of the first four rows and one of the others.
template <class Tile>
struct WarpSums {
  static constexpr int kPanels = Tile::kColumns / kPanel, kParts = Tile::kTurns / 2;
  unsigned char* shared;
  int to[2], from[2];

  // `place` is where the warp's own begins.
  __device__ __forceinline__ WarpSums(unsigned char* shared, int place) : shared(shared) {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      to[i] = place + at(lane / 4, 0, lane / 2 ^ i) + lane % 2 * 8;
      from[i] = place + at(lane / 8, lane % 8, i);
      keep(to[i]), keep(from[i]);
    }
  }
  // The halves of an eight change places in every other row, and in the second half of a row, so that neither what the
  // products leave nor what an epilogue takes meets in a bank.
  __device__ static __forceinline__ int at(int row, int eight, int half) {
    return row * kSumsPitch + eight * 32 + ((half ^ eight / 4 ^ row) & 1) * 16;
  }
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
  __device__ __forceinline__ void take(float (&eight)[8], int turn) const {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const auto four = *reinterpret_cast<const Chunk<float, 4>*>(shared + from[half] + turn * 4 * kSumsPitch);
#pragma unroll
      for (int e = 0; e < 4; ++e) eight[half * 4 + e] = four.element[e];
    }
  }
};

// Where the first eight neighbours lie that a lane takes of a worker's tile.
struct LanePlace {
  int row, column;
  __device__ __forceinline__ LanePlace(int tile_row, int tile_column)
      : row(tile_row + threadIdx.x % kWarpgroup / 32 * 16 + threadIdx.x % 32 / 8), column(tile_column + threadIdx.x % 8 * 8) {}
};

// Hands the sums of so many panels of a worker's tile, the first of which has `row` and `column`, on to an epilogue, which reads its
// operands a part ahead of the sums: the first ones when this is made. `passes`: nobody finds the results in the L2 cache.
template <class Tile, class Epilogue>
struct TileEnding {
  static constexpr int kTurns = 2, kPairs = Tile::kColumns / kPanel * Tile::kHeight;  // of parts
  struct Ahead {
    typename Epilogue::Operands turn[kTurns];
  };
  const Epilogue& epilogue;
  int rows, columns;
  LanePlace lane;
  Ahead ahead;

  __device__ __forceinline__ TileEnding(const Epilogue& epilogue, int rows, int columns, int row, int column)
      : epilogue(epilogue), rows(rows), columns(columns), lane(row, column) {
    fetch(lane.row, lane.column);
  }
  __device__ __forceinline__ void fetch(int down, int across) {  // what lies outside is never stored
#pragma unroll
    for (int turn = 0; turn < kTurns; ++turn) {
      epilogue.fetch(ahead.turn[turn], min(down + turn * 4, rows - 1), min(across, columns - 8));
    }
  }
  __device__ __forceinline__ void operator()(const typename Tile::Sums& c, int first_panel, int panels, int passes,
                                             const WarpSums<Tile>& sums) {
    int down = lane.row, across = lane.column;
    keep(passes);
    const int end = (first_panel + panels) * Tile::kHeight;
    // A loop of two parts, since its body is long and instructions have to come from memory, too.
#pragma unroll 1
    for (int pair = first_panel * Tile::kHeight; pair < end; ++pair) {
#pragma unroll kPairs > 1 ? 2 : 1
      for (int half = 0; half < 2; ++half) {
        const int here = down + half * 8, there = across;
        Ahead now = ahead;
#pragma unroll
        for (auto& x : now.turn) epilogue.spread(x);
        if (half == 0) {
          fetch(down + 8, across);
        } else if (pair + 1 < end) {
          down += 64;
          if (down == lane.row + Tile::kHeight * 64) down = lane.row, across += kPanel;
          fetch(down, across);
        }
        float eights[kTurns][Tile::kProducts][8];
#pragma unroll
        for (int p = 0; p < Tile::kProducts; ++p) {
          __syncwarp();
          sums.give(c, p, pair * 2 + half);
          __syncwarp();
#pragma unroll
          for (int turn = 0; turn < kTurns; ++turn) sums.take(eights[turn][p], turn);
        }
#pragma unroll
        for (int turn = 0; turn < kTurns; ++turn) {
          const int below = here + turn * 4;
          epilogue.store(below, there, below < rows && there < columns, eights[turn], now.turn[turn], passes != 0);
        }
      }
    }
  }
};

// Which of the blocks that share a tile this is: there are 1, 2, 4 or 8 of them.
struct Share {
  static_assert(kMostParts <= 8);
  int parts, doublings, part, tile;
  explicit __device__ __forceinline__ Share(int parts)
      : parts(parts), doublings((parts > 1) + (parts > 2) + (parts > 4)), part(static_cast<int>(blockIdx.x) & (parts - 1)),
        tile(static_cast<int>(blockIdx.x) >> doublings) {}
  // Of so many, what each block has.
  __device__ __forceinline__ int of(int n) const { return n >> doublings; }
};

// The same of a tile whose steps blocks of a cluster share: a warp's turns, of four rows of a panel each, are ended by them one after
// the other.
template <class Tile>
struct SharedSums {
  static constexpr int kTurns = Tile::kTurns, kWarps = Tile::kWorkers * 4;
  // What a block has from all of them: of its first turn, the second, ...
  using Places = Chunk<float, 4>[Tile::kPlaces][kWarps][2][32];
  Places& places;
  Mailbox& mailbox;
  Share share;
  int warp = static_cast<int>(threadIdx.x) / 32 - 4, lane = threadIdx.x % 32;

  // Bytes that others send a block.
  static __device__ __forceinline__ int incoming(const Share& x) {
    return x.of(kTurns - x.part + x.parts - 1) * (x.parts - 1) * kWarps * kTurnBytes;
  }
  // The first of the turns of which each block has one, with this one.
  __device__ __forceinline__ int round(int turn) const { return share.of(turn) * share.parts; }
  __device__ __forceinline__ void give(const float (&eight)[8], int turn) const {
    auto& to = places[round(turn) + share.part][warp];
    const int owner = turn - round(turn);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float* const x = eight + half * 4;
      const Chunk<float, 4> four{x[0], x[1], x[2], x[3]};
      if (owner == share.part) {
        to[half][lane] = four;
      } else {
        mailbox.send(to[half][lane].element, owner, four);
      }
    }
  }
  __device__ __forceinline__ void take(float (&eight)[8], int turn) const {
#pragma unroll
    for (float& x : eight) x = 0;
#pragma unroll
    for (int source = 0; source < Tile::kMost; ++source) {
      if (source >= share.parts) continue;
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const auto four = places[round(turn) + source][warp][half][lane];
#pragma unroll
        for (int e = 0; e < 4; ++e) eight[half * 4 + e] += four.element[e];
      }
    }
  }
};

// As TileEnding, of a tile that is shared: a block ends some of its turns, and reads what the epilogue wants of all of them when this is
// made.
template <class Tile, class Epilogue>
struct SharedEnding {
  static constexpr int kMine = Tile::kTurns / 2;
  const Epilogue& epilogue;
  const SharedSums<Tile>& shared;
  int rows, columns;
  LanePlace lane;
  typename Epilogue::Operands operands[kMine];

  __device__ __forceinline__ SharedEnding(const Epilogue& epilogue, const SharedSums<Tile>& shared, int rows, int columns, int row,
                                          int column)
      : epilogue(epilogue), shared(shared), rows(rows), columns(columns), lane(row, column) {
#pragma unroll
    for (int i = 0; i < kMine; ++i) epilogue.fetch(operands[i], min(down(i), rows - 1), min(across(i), columns - 8));
  }
  __device__ __forceinline__ int turn(int i) const { return shared.share.part + i * shared.share.parts; }
  __device__ __forceinline__ int down(int i) const { return lane.row + turn(i) % 4 * 4 + turn(i) / 4 % Tile::kHeight * 64; }
  __device__ __forceinline__ int across(int i) const { return lane.column + turn(i) / 4 / Tile::kHeight * kPanel; }
  __device__ __forceinline__ void operator()(const typename Tile::Sums& c, const WarpSums<Tile>& sums) {
#pragma unroll
    for (int part = 0; part < WarpSums<Tile>::kParts; ++part) {
      __syncwarp();
      sums.give(c, 0, part);
      __syncwarp();
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float eight[8];
        sums.take(eight, half);
        shared.give(eight, part * 2 + half);
      }
    }
    shared.mailbox.await_all();
#pragma unroll
    for (int i = 0; i < kMine; ++i) {
      if (turn(i) >= Tile::kTurns) continue;
      float eight[1][8];
      shared.take(eight[0], turn(i));
      epilogue.spread(operands[i]);
      epilogue.store(down(i), across(i), down(i) < rows && across(i) < columns, eight, operands[i], false);
    }
  }
};

}  // namespace fusion::gpu

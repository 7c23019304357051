// Tiles of products whose steps the blocks of a cluster share: each sends the others sums of what they end.
#pragma once

#include "include/cluster.cuh"
#include "include/wide_epilogue.cuh"

#if FUSION_HOPPER
namespace fusion::gpu {

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

// A warp's sums on their way to the blocks that share its tile: its turns, of four rows of a panel each, are ended by one after the other.
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
  LanePlace<Tile> lane;
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
        sums.take(eight, part, half);
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
#endif

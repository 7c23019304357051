// A copy whose rows lie where columns did: through shared memory, so that reads and writes are both of neighbours.
#pragma once

#include "include/gpu.cuh"

namespace fusion::gpu {

constexpr int kTurnTile = 64, kTurnThreads = 512;
constexpr int kTurnEach = kTurnTile * kTurnTile / kTurnThreads;  // elements of a tile that a thread has

// The copy as matrices: `rows` lie side by side where it is read, `columns` where it is written.
struct Turn {
  int64_t rows, columns;
  int64_t from_column, to_row;  // strides
  int others;                   // axes of which each position is a matrix
  int64_t size[kMaxRank], from[kMaxRank], to[kMaxRank];
  int64_t across, down, blocks;  // tiles
};

// Whether a matrix fills tiles. Rows of few whole vectors are better off without: what their neighbours read besides
// stays in L1 (an H200 turns 8 images of 64 channels over in 10 us so, in 18 by tiles; of 256 in 30 and 18).
inline bool fills_tiles(int64_t rows, int64_t columns) {
  constexpr int kLeast = 32, kVector = 8;
  return rows >= kLeast && columns >= kLeast && (columns > kTurnTile || columns % kVector != 0);
}

// Whether reading a view in the order of `dims` is such a copy.
inline bool is_turn(const Ints& dims, const View& view, Turn& t) {
  const View views[] = {view};
  const Space<1> s = space<1>(dims, views);
  int side = 1;
  while (side < s.rank && s.axis[side].stride[0] != 1) ++side;
  if (s.count == 0 || side >= s.rank || s.axis[0].stride[0] == 1 || !fills_tiles(s.axis[side].size, s.axis[0].size)) return false;
  t = Turn{s.axis[side].size, s.axis[0].size, s.axis[0].stride[0]};
  t.across = ceil_div(t.columns, kTurnTile), t.down = ceil_div(t.rows, kTurnTile), t.blocks = t.across * t.down;
  for (int64_t d = 0, step = 1; d < s.rank; step *= s.axis[d++].size) {
    if (d == side) t.to_row = step;
    if (d == 0 || d == side) continue;
    t.size[t.others] = s.axis[d].size, t.from[t.others] = s.axis[d].stride[0], t.to[t.others++] = step;
    t.blocks *= s.axis[d].size;
  }
  return true;
}

template <class T>
__global__ void __launch_bounds__(kTurnThreads) turn_tiles(const T* from, T* to, const Turn t) {
  let_next_begin();
  await_earlier();
  __shared__ T tile[kTurnTile][kTurnTile + 2];
  const int lane = threadIdx.x % kTurnTile, first = threadIdx.x / kTurnTile;
  for (int64_t block = blockIdx.x; block < t.blocks; block += gridDim.x) {
    const int64_t column = block % t.across * kTurnTile, row = block / t.across % t.down * kTurnTile;
    int64_t rest = block / (t.across * t.down), read = row + column * t.from_column, written = row * t.to_row + column;
    for (int i = 0; i < t.others; ++i) {
      read += rest % t.size[i] * t.from[i], written += rest % t.size[i] * t.to[i];
      rest /= t.size[i];
    }
    T held[kTurnEach];  // so that all reads are under way at once
#pragma unroll
    for (int i = 0; i < kTurnEach; ++i) {
      const int c = first + i * (kTurnThreads / kTurnTile);
      if (column + c < t.columns && row + lane < t.rows) held[i] = from[read + lane + c * t.from_column];
    }
#pragma unroll
    for (int i = 0; i < kTurnEach; ++i) tile[first + i * (kTurnThreads / kTurnTile)][lane] = held[i];
    __syncthreads();
    for (int r = first; r < kTurnTile; r += kTurnThreads / kTurnTile) {
      if (column + lane < t.columns && row + r < t.rows) to[written + r * t.to_row + lane] = tile[lane][r];
    }
    __syncthreads();
  }
}

}  // namespace fusion::gpu

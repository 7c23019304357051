// What follows a product on Hopper: sums go through shared memory, eight of a warp's rows at a time, to lanes that have eight
// neighbours of a row, as memory gives and takes them, and that a generated epilogue computes at once.
#pragma once

#include "include/vector.cuh"
#include "include/wgmma.cuh"

namespace fusion::gpu {

// Whether rows can be read or written eight neighbours at a time, or have one element for all columns.
template <class T>
bool in_eights(const T* p, int64_t row, int64_t column) {
  return column == 0 || (column == 1 && row % 8 == 0 && reinterpret_cast<uintptr_t>(p) % alignof(Chunk<T, 8>) == 0);
}

// Eight neighbours of a row, or the first of them where it stands for all columns: `spread` makes them eight later, as the
// load would be waited for at once.
template <class T>
__device__ __forceinline__ void fetch_eight(Vector<T, 8>& to, const T* p, int64_t step, int64_t column_step, uint32_t row,
                                            uint32_t column) {
  const T* const at = p + row * step + (column_step != 0 ? column : 0);
  if (column_step != 0) {
    to = load_whole<T, 8>(at);
  } else {
    const auto one = load_whole<T, 1>(at);
#pragma unroll
    for (int i = 0; i < one.kWords; ++i) to.word[i] = one.word[i];
  }
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
__device__ __forceinline__ void store_eight(T* p, const X (&x)[8]) {
  Vector<T, 8> y{};
#pragma unroll
  for (int i = 0; i < 8; i += 2) {
    if constexpr (std::is_same_v<T, half> || std::is_same_v<T, bfloat>) {
      y.word[i / 2] = pack<T>(static_cast<float>(x[i]), static_cast<float>(x[i + 1]));
    } else {
      put(y, i, x[i]), put(y, i + 1, x[i + 1]);
    }
  }
  store_whole(p, y);
}

// A warp's place in shared memory: eight rows of 64 sums, of all products of a tile side by side. Halves of eights change
// places in every other row, and in those of a row's end, so that neither those that products leave nor those that an
// epilogue takes meet in a bank.
struct WarpSums {
  static constexpr int kPitch = kPanel * 4 + 32, kBytes = 8 * kPitch;

  // Where a half of an eight lies; of what the other half of a row has, the halves are the other way round.
  __device__ static __forceinline__ int half(int row, int eight, int i) {
    return row * kPitch + eight * 32 + ((i ^ eight / 4 ^ row) & 1) * 16;
  }
};

// Hands the sums of a worker's tile from `row` and `column` on to an epilogue: it reads its operands, `fetch`, some time
// before it has the sums, `store`; `finish` waits for these.
template <class Tile, class Epilogue, class Finish>
__device__ __forceinline__ void hand_on(float (&c)[Tile::kHeight][Tile::kAcross / 8][4], int rows, int columns, int row,
                                        int column, unsigned char* shared, const Epilogue& epilogue, const Finish& finish) {
  // Eights across of each product that go through shared memory at a time, taken by as many lanes, and rows by the others.
  constexpr int kEights = 8 / Tile::kProducts, kRows = 32 / kEights, kTurns = 8 / kRows;
  constexpr int kPieces = Tile::kColumns / 8 / kEights, kParts = Tile::kHeight * kPieces * 2;
  const int lane = threadIdx.x % 32, line = lane / kEights, own = lane % kEights;
  unsigned char *to[2], *from[2];
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    to[i] = shared + WarpSums::half(lane / 4, 0, lane / 2 ^ i) + lane % 2 * 8;
    from[i] = shared + WarpSums::half(line, own, i);
  }
  row += threadIdx.x % kWarpgroup / 32 * 16 + line, column += own * 8;
  int down = row, across = column;
  struct Ahead {
    typename Epilogue::Operands turn[kTurns];
  } ahead;
  const auto fetch = [&] {  // what lies outside is never stored
#pragma unroll
    for (int turn = 0; turn < kTurns; ++turn) {
      epilogue.fetch(ahead.turn[turn], min(down + turn * kRows, rows - 1), min(across, columns - 8));
    }
  };
  fetch();
  finish();
  // A loop, since its body is long and instructions have to come from memory, too.
#pragma unroll 1
  for (int part = 0; part < kParts; ++part) {
    const int here = down, there = across;
    Ahead now = ahead;
#pragma unroll
    for (auto& x : now.turn) epilogue.spread(x);
    down ^= 8;
    if ((down & 8) == 0) across += kEights * 8;
    if (Tile::kHeight > 1 && across == column + Tile::kColumns) across = column, down += 64;
    if (part + 1 < kParts) fetch();
    __syncwarp();
#pragma unroll
    for (int known = 0; known < kParts; ++known) {  // registers have no index
      if (known != part) continue;
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        const int j = i / kEights * (Tile::kColumns / 8) + known / 2 % kPieces * kEights + i % kEights;
        const float* const pair = &c[known / (kPieces * 2)][j][known % 2 * 2];
        *reinterpret_cast<Chunk<float, 2>*>(to[i / 4] + i * 32) = {pair[0], pair[1]};
      }
    }
    __syncwarp();
#pragma unroll
    for (int turn = 0; turn < kTurns; ++turn) {
      float sums[Tile::kProducts][8];
#pragma unroll
      for (int p = 0; p < Tile::kProducts; ++p) {
#pragma unroll
        for (int i = 0; i < 8; i += 4) {
          const unsigned char* const four = from[(i / 4 + p) % 2] + p * kEights * 32 + turn * kRows * WarpSums::kPitch;
          const auto x = *reinterpret_cast<const Chunk<float, 4>*>(four);
#pragma unroll
          for (int e = 0; e < 4; ++e) sums[p][i + e] = x.element[e];
        }
      }
      const int below = here + turn * kRows;
      epilogue.store(below, there, below < rows && there < columns, sums, now.turn[turn]);
    }
  }
}

}  // namespace fusion::gpu

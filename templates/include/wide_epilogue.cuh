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

// Has a value kept in a register, where the compiler would rather work it out again in every round of a loop.
__device__ __forceinline__ void keep(int& x) { asm volatile("" : "+r"(x)); }

// Bytes of a warp's place in shared memory: eight rows of 64 sums.
constexpr int kSumsPitch = kPanel * 4 + 32, kSumsBytes = 8 * kSumsPitch;

// A warp's sums on their way to its lanes, a part of them at a time, the next eight rows after those above: of each product
// kEights eights side by side, which as many lanes take, in kTurns rows each.
template <class Tile>
struct WarpSums {
  static constexpr int kEights = 8 / Tile::kProducts, kRows = 32 / kEights, kTurns = 8 / kRows;
  static constexpr int kPieces = Tile::kColumns / 8 / kEights, kParts = Tile::kHeight * kPieces * 2;
  static_assert(Tile::kProducts <= 2);
  unsigned char* shared;
  int line = threadIdx.x % 32 / kEights, own = threadIdx.x % kEights, to[2], from[2];

  // `place` is where the warp's own begins.
  __device__ __forceinline__ WarpSums(unsigned char* shared, int place) : shared(shared) {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      to[i] = place + at(lane / 4, 0, lane / 2 ^ i) + lane % 2 * 8;
      from[i] = place + at(line, own, i);
      keep(to[i]), keep(from[i]);
    }
  }
  // The halves of an eight change places in every other row, and at a row's end, so that neither what the products leave
  // nor what an epilogue takes meets in a bank.
  __device__ static __forceinline__ int at(int row, int eight, int half) {
    return row * kSumsPitch + eight * 32 + ((half ^ eight / 4 ^ row) & 1) * 16;
  }
  // A part of what the products left in registers, which have no index.
  __device__ __forceinline__ void give(const float (&c)[Tile::kHeight][Tile::kAcross / 8][4], int part) const {
#pragma unroll
    for (int known = 0; known < kParts; ++known) {
      if (known != part) continue;
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        const int j = i / kEights * (Tile::kColumns / 8) + known / 2 % kPieces * kEights + i % kEights;
        const float* const pair = &c[known / (kPieces * 2)][j][known % 2 * 2];
        *reinterpret_cast<Chunk<float, 2>*>(shared + to[i / 4] + i * 32) = {pair[0], pair[1]};
      }
    }
  }
  __device__ __forceinline__ void take(int turn, float (&sums)[Tile::kProducts][8]) const {
#pragma unroll
    for (int p = 0; p < Tile::kProducts; ++p) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const unsigned char* const place = shared + from[(half + p) % 2] + p * kEights * 32 + turn * kRows * kSumsPitch;
        const auto four = *reinterpret_cast<const Chunk<float, 4>*>(place);
#pragma unroll
        for (int e = 0; e < 4; ++e) sums[p][half * 4 + e] = four.element[e];
      }
    }
  }
};

// Hands the sums of a worker's tile from `row` and `column` on to an epilogue: it reads its operands, `fetch`, a part ahead
// of the sums, `store`; `finish` waits for these.
template <class Tile, class Epilogue, class Finish>
__device__ __forceinline__ void hand_on(const float (&c)[Tile::kHeight][Tile::kAcross / 8][4], int rows, int columns, int row,
                                        int column, const WarpSums<Tile>& sums, const Epilogue& epilogue,
                                        const Finish& finish) {
  using Sums = WarpSums<Tile>;
  row += threadIdx.x % kWarpgroup / 32 * 16 + sums.line, column += sums.own * 8;
  int down = row, across = column;
  struct Ahead {
    typename Epilogue::Operands turn[Sums::kTurns];
  } ahead;
  const auto fetch = [&] {  // what lies outside is never stored
#pragma unroll
    for (int turn = 0; turn < Sums::kTurns; ++turn) {
      epilogue.fetch(ahead.turn[turn], min(down + turn * Sums::kRows, rows - 1), min(across, columns - 8));
    }
  };
  fetch();
  finish();
  // A loop, since its body is long and instructions have to come from memory, too.
#pragma unroll 1
  for (int part = 0; part < Sums::kParts; ++part) {
    const int here = down, there = across;
    Ahead now = ahead;
#pragma unroll
    for (auto& x : now.turn) epilogue.spread(x);
    down ^= 8;
    if ((down & 8) == 0) across += Sums::kEights * 8;
    if (Tile::kHeight > 1 && across == column + Tile::kColumns) across = column, down += 64;
    if (part + 1 < Sums::kParts) fetch();
    __syncwarp();
    sums.give(c, part);
    __syncwarp();
#pragma unroll
    for (int turn = 0; turn < Sums::kTurns; ++turn) {
      float eight[Tile::kProducts][8];
      sums.take(turn, eight);
      const int below = here + turn * Sums::kRows;
      epilogue.store(below, there, below < rows && there < columns, eight, now.turn[turn]);
    }
  }
}

}  // namespace fusion::gpu

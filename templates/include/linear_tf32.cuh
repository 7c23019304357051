// Products of float32 on tensor cores, whose factors are rounded to TF32: small tiles with the depth divided among the
// warps of a block and the blocks of a cluster, so that products of few rows fill a GPU, and a generated epilogue that
// takes the sums, eight neighbours of a row at a time.
#pragma once

#include "include/tf32_tile.cuh"

namespace fusion::gpu {

// Asks for a block's share of the right operand to come to the cache.
template <class Tile, bool kTransB>
__device__ __forceinline__ void bring_near(const float* matrix, int stride, int column, int columns, int first, int end) {
  constexpr int kLine = 32;  // floats of a line of the cache
  const auto ask = [&](int64_t at) { bring_to_cache(matrix + at); };
  if constexpr (kTransB) {
    for (int i = threadIdx.x; i < min(Tile::kColumns, columns - column); i += Tile::kThreads) {
      for (int k = first; k < end; k += kLine) ask(int64_t{column + i} * stride + k);
    }
  } else {
    constexpr int kLines = Tile::kColumns / kLine;
    const int at = column + static_cast<int>(threadIdx.x) % kLines * kLine;
    for (int k = first + static_cast<int>(threadIdx.x) / kLines; at < columns && k < end; k += Tile::kThreads / kLines) {
      ask(int64_t{k} * stride + at);
    }
  }
}

// The first that a block's steps need of it, mostly a weight, while kernels before this one still run.
template <class Tile, bool kTransB>
__device__ __forceinline__ void bring_first(const float* matrix, int stride, int column, int columns, int first, int end,
                                            int depth) {
  constexpr int kAhead = 16;
  bring_near<Tile, kTransB>(matrix, stride, column, columns, first * Tile::kDepth,
                            min(depth, min(end, first + kAhead) * Tile::kDepth));
}

// The sums of a tile, which all its blocks and their groups of warps have a part of. Of a thread's eights every block ends
// those that are its own, n of parts * n + part.
template <class Tile>
struct Tf32Sums {
  float* place;
  Mailbox& mailbox;
  int parts, part;
  int group = threadIdx.x / Tile::kGroupThreads, member = threadIdx.x % Tile::kGroupThreads;

  // Where four of a thread's own n-th eight are that come from a source.
  __device__ __forceinline__ float* four(int n, int source, int half) const {
    return place + (((n * parts * Tile::kGroups + source) * 2 + half) * Tile::kGroupThreads + member) * 4;
  }
  __device__ __forceinline__ void give(const float (&c)[Tile::kWarpRows / 16][Tile::kWarpColumns / 8][4]) const {
#pragma unroll
    for (int q = 0; q < Tile::kEights; ++q) {
      const int i = q / Tile::kEightsAcross, j = q % Tile::kEightsAcross * 4;
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        Chunk<float, 4> x;
#pragma unroll
        for (int e = 0; e < 4; ++e) x.element[e] = c[i / 2][j + e][i % 2 * 2 + half];
        float* const to = four(q / parts, part * Tile::kGroups + group, half);
        if (parts > 1) {
          mailbox.send(to, q % parts, x);
        } else {
          *reinterpret_cast<Chunk<float, 4>*>(to) = x;
        }
      }
    }
  }
  __device__ __forceinline__ void take(int n, float (&sum)[8]) const {
#pragma unroll
    for (float& x : sum) x = 0;
    for (int source = 0; source < parts * Tile::kGroups; ++source) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const auto x = *reinterpret_cast<const Chunk<float, 4>*>(four(n, source, half));
#pragma unroll
        for (int e = 0; e < 4; ++e) sum[half * 4 + e] += x.element[e];
      }
    }
  }
};

// Hands a block's own sums on to an epilogue, for the warp's tile at `row` and `column`: it reads its operands, `fetch`,
// before it has their sums, `store`; `finish` waits for these.
template <class Tile, class Epilogue, class Finish>
__device__ __forceinline__ void hand_on_sums(const Tf32Sums<Tile>& sums, int rows, int columns, int row, int column,
                                             const Epilogue& epilogue, const Finish& finish) {
  const int lane = threadIdx.x % 32;
  const auto eight = [&](int n) { return n * sums.parts + sums.part; };
  const auto down = [&](int n) { return row + eight(n) / Tile::kEightsAcross * 8 + lane / 4; };
  const auto across = [&](int n) { return column + eight(n) % Tile::kEightsAcross * 32 + lane % 4 * 8; };
  const auto inside = [&](int n) { return eight(n) < Tile::kEights && down(n) < rows && across(n) < columns; };
  typename Epilogue::Operands ahead;
  if (inside(sums.group)) ahead = epilogue.fetch(down(sums.group), across(sums.group));
  finish();
  // A loop, since its body is long and instructions have to come from memory, too.
#pragma unroll 1
  for (int n = sums.group; eight(n) < Tile::kEights; n += Tile::kGroups) {
    const auto operands = ahead;
    const int next = n + Tile::kGroups;
    if (inside(next)) ahead = epilogue.fetch(down(next), across(next));
    float sum[8];
    sums.take(n, sum);
    if (inside(n)) epilogue.store(down(n), across(n), sum, operands);
  }
}

template <class Tile, bool kTransB, int kProducts, class... Epilogues>
__device__ __forceinline__ void linear_tf32(const Tf32Operands<kProducts>& x, const Epilogues&... epilogues) {
  constexpr int kSlots = Tile::kSlots, kDepth = Tile::kDepth, kTurns = kDepth / 8 / Tile::kGroups;
  extern __shared__ uint4 dynamic[];
  __shared__ Mailbox mailbox;
  float* const ring = reinterpret_cast<float*>(dynamic);
  const int parts = x.parts, part = static_cast<int>(blockIdx.x) % parts;
  if (parts > 1) {
    const int own = (Tile::kEights - part + parts - 1) / parts;
    if (threadIdx.x == 0) mailbox.open(own * parts * Tile::kThreads * 32);
    mailbox.opened();
  }
  const Tf32Position<Tile> at(x, static_cast<int>(blockIdx.x) / parts);
  const float* const matrix = x.right[at.product];
  const int columns = x.columns[at.product], stride = x.right_stride[at.product];
  const int steps = (x.depth + kDepth - 1) / kDepth, first = steps * part / parts, end = steps * (part + 1) / parts;
  bring_first<Tile, kTransB>(matrix, stride, at.column, columns, first, end, x.depth);
  await_earlier();

  using Right = std::conditional_t<kTransB, DeepRows<Tile, Tile::kColumns, EveryFourth>, WideRows<Tile>>;
  const DeepRows<Tile, Tile::kRows, InOrder> left(at.row, x.rows, x.left_stride);
  const Right right(at.column, columns, stride);
  const auto slot = [&](int step) { return ring + (step - first) % kSlots * (Tile::kLeft + Tile::template kRight<kTransB>); };
  const auto fetch = [&](int step) {
    if (step < end) {
      left.copy(slot(step), x.left, step * kDepth, x.depth);
      right.copy(slot(step) + Tile::kLeft, matrix, step * kDepth, x.depth);
    }
    copy_commit();  // an empty group keeps the count of groups in step
  };

  const Tf32Sums<Tile> sums{parts > 1 ? ring + Tile::template kRing<kTransB> : ring, mailbox, parts, part};
  const int warp = sums.member / 32;
  const int warp_row = warp / Tile::kAcross * Tile::kWarpRows, warp_column = warp % Tile::kAcross * Tile::kWarpColumns;
  Tf32Fragments<Tile, kTransB> fragments[2];
  const auto load = [&](int step, int turn) {
    fragments[turn % 2].load(slot(step), warp_row, warp_column, (sums.group * kTurns + turn) * 8);
  };
  float c[Tile::kWarpRows / 16][Tile::kWarpColumns / 8][4] = {};
  for (int s = 0; s < kSlots - 1; ++s) fetch(first + s);
  copy_wait<kSlots - 2>();
  __syncthreads();
  if (first < end) load(first, 0);
  for (int step = first; step < end; ++step) {
#pragma unroll
    for (int turn = 0; turn < kTurns; ++turn) {
      if (turn + 1 < kTurns) {
        load(step, turn + 1);
      } else {
        copy_wait<kSlots - 2>();
        __syncthreads();  // the next tile has arrived for all, and all have left the one that is overwritten after it
        if (step + 1 < end) load(step + 1, 0);
      }
      if (turn == 0) fetch(step + kSlots - 1);
      fragments[turn % 2].multiply(c);
    }
  }
  copy_wait<0>();
  let_next_begin();

  if (parts > 1) {
    mailbox.await_others();
  } else {
    __syncthreads();  // all have left the ring
  }
  sums.give(c);
  const auto finish = [&] {
    if (parts > 1) {
      mailbox.await_all();
    } else if (Tile::kGroups > 1) {
      __syncthreads();
    }
  };
  int product = 0;
  const auto run = [&](const auto& epilogue) {
    hand_on_sums(sums, x.rows, columns, at.row + warp_row, at.column + warp_column, epilogue, finish);
  };
  ((product++ == at.product ? run(epilogues) : void()), ...);
}

}  // namespace fusion::gpu

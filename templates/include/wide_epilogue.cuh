// What follows a product on Hopper: a generated epilogue takes a warpgroup's sums in pairs of neighbours, as the products
// leave them, and its results of 16 bits change places in shared memory so that memory gets whole lines.
#pragma once

#include "include/vector.cuh"
#include "include/wgmma.cuh"

namespace fusion::gpu {

// Whether rows can be read or written eight neighbours at a time, or have one element for all columns.
template <class T>
bool in_eights(const T* p, int64_t row, int64_t column) {
  return column == 0 || (column == 1 && row % 8 == 0 && reinterpret_cast<uintptr_t>(p) % alignof(Chunk<T, 8>) == 0);
}

// An epilogue's operands come for so many times eight columns at a time.
constexpr int kAhead = 4;

// Whether rows differ and are read sixteen bytes at a time, which costs memory less than pairs do.
template <class T>
__device__ __forceinline__ bool by_lines(int64_t step, int64_t column_step) {
  return sizeof(T) == 2 && step != 0 && column_step != 0;
}
// Of each of `eights` times eight columns from `column` on a pair in two rows, as a lane has them: one operand's, of which
// one element may stand for all columns. By lines a lane reads eight neighbours, the four pairs of which `share_lines`
// brings to the lanes that have them.
template <class T, class Operands>
__device__ __forceinline__ void fetch_pairs(Operands (&to)[kAhead][2], Vector<T, 2> Operands::*operand, const T* p, int64_t step,
                                            int64_t column_step, const int (&row)[2], int column, int eights) {
  if (step == 0 && column_step != 0) {  // a bias, say
    const T* const pairs = p + column + threadIdx.x % 4 * 2;
#pragma unroll
    for (int j = 0; j < kAhead; ++j) {
      if (j < eights) to[j][0].*operand = to[j][1].*operand = load_whole<T, 2>(pairs + j * 8);
    }
    return;
  }
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const T* const line = p + row[half] * step;
    if (column_step == 0) {
      Vector<T, 2> both{};
      both.set(0, *line), both.set(1, *line);
#pragma unroll
      for (int j = 0; j < kAhead; ++j) to[j][half].*operand = both;
    } else if (by_lines<T>(step, column_step)) {
      const int own = threadIdx.x % 4;
      if (own >= eights) continue;
      const uint4 eight = *reinterpret_cast<const uint4*>(line + column + own * 8);
      const uint32_t pairs[] = {eight.x, eight.y, eight.z, eight.w};
#pragma unroll
      for (int j = 0; j < kAhead; ++j) (to[j][half].*operand).word[0] = pairs[j];
    } else {
#pragma unroll
      for (int j = 0; j < kAhead; ++j) {
        if (j < eights) to[j][half].*operand = load_whole<T, 2>(line + column + threadIdx.x % 4 * 2 + j * 8);
      }
    }
  }
}
template <class T, class Operands>
__device__ __forceinline__ void share_lines(Operands (&x)[kAhead][2], Vector<T, 2> Operands::*operand, int64_t step,
                                            int64_t column_step, unsigned char* shared) {
  if (!by_lines<T>(step, column_step)) return;
  const int own = threadIdx.x % 4, row = threadIdx.x % 32 / 4;
  // Piece p of row r lies at p ^ r / 2, so that rows meet in no bank.
  const auto place = [&](int half, int piece) {
    return reinterpret_cast<Vector<T, 2>*>(shared + half * 512 + row * 64 + (piece ^ row / 2) * 16);
  };
#pragma unroll
  for (int half = 0; half < 2; ++half) {
#pragma unroll
    for (int j = 0; j < kAhead; ++j) place(half, own)[j] = x[j][half].*operand;
  }
  __syncwarp();
#pragma unroll
  for (int half = 0; half < 2; ++half) {
#pragma unroll
    for (int j = 0; j < kAhead; ++j) x[j][half].*operand = place(half, j)[own];
  }
  __syncwarp();
}
template <class T, class X>
__device__ __forceinline__ void store_pair(Chunk<T, 2>& to, const X (&x)[2]) {
  if constexpr (std::is_same_v<T, half> || std::is_same_v<T, bfloat>) {
    to = bit_cast<Chunk<T, 2>>(pack<T>(static_cast<float>(x[0]), static_cast<float>(x[1])));
  } else {
    store(&to.element[0], x[0]), store(&to.element[1], x[1]);
  }
}

// Four 8x8 matrices of 16-bit elements go to shared memory, lane l giving the address of row l % 8 of matrix l / 8.
__device__ __forceinline__ void store_matrices(void* shared, const uint32_t (&r)[4]) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1,%2,%3,%4};" ::"r"(shared_address(shared)), "r"(r[0]),
               "r"(r[1]), "r"(r[2]), "r"(r[3])
               : "memory");
}

// Stores a warp's 16 rows of 64 results, at `column` of `rows` rows from `row` on. Of every eight columns lane l has a pair
// of row l / 4, results[...][0], and one of the eighth row after it; so that whole lines are written, those of 16 bits
// trade places in shared memory, in the order of panels.
template <class T, class Get>
__device__ __forceinline__ void store_panel(T* out, int rows, int columns, int row, int column, unsigned char* shared,
                                             const Get& get) {
  const int lane = threadIdx.x % 32;
  if constexpr (sizeof(T) == 2) {
    const int at = lane % 16 * 128 + (lane / 16 ^ lane % 8) * 16;
#pragma unroll
    for (int j = 0; j < 8; j += 2) {
      uint32_t r[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) r[i] = bit_cast<uint32_t>(get(j + i / 2, i % 2));
      store_matrices(shared + (at ^ j * 16), r);
    }
    __syncwarp();
    const int across = column + lane % 8 * 8;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int line = i * 4 + lane / 8;
      const uint4 eight = *reinterpret_cast<const uint4*>(shared + line * 128 + (lane % 8 ^ line % 8) * 16);
      if (row + line < rows && across < columns) {
        *reinterpret_cast<uint4*>(out + static_cast<int64_t>(row + line) * columns + across) = eight;
      }
    }
    __syncwarp();
  } else {
#pragma unroll
    for (int j = 0; j < 8; ++j) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int line = row + lane / 4 + half * 8, across = column + j * 8 + lane % 4 * 2;
        if (line < rows && across < columns) {
          *reinterpret_cast<Chunk<T, 2>*>(out + static_cast<int64_t>(line) * columns + across) = get(j, half);
        }
      }
    }
  }
}

// Hands the sums of a worker's tile from `row` and `column` on to an epilogue, which computes pairs of neighbours as the
// products leave them; it reads its operands, `fetch`, some time before it has the sums; `finish` waits for these.
template <class Tile, class Epilogue, class Finish>
__device__ __forceinline__ void hand_on(float (&c)[Tile::kHeight][Tile::kAcross / 8][4], int rows, int columns, int row,
                                        int column, unsigned char* shared, const Epilogue& epilogue, const Finish& finish) {
  constexpr int kPanels = Tile::kColumns / kPanel, kParts = kPanels * Tile::kHeight;
  const int lane = threadIdx.x % 32, warp = threadIdx.x % kWarpgroup / 32;
  row += warp * 16;
  struct Ahead {
    typename Epilogue::Operands pair[kAhead][2];
  } ahead;
  constexpr int kPieces = 8 / kAhead;  // of a panel
  const auto fetch = [&](int piece) {
    const int part = piece / kPieces, across = column + part % kPanels * kPanel + piece % kPieces * (kAhead * 8);
    const int down = row + part / kPanels * 64 + lane / 4;
    const int both[] = {min(down, rows - 1), min(down + 8, rows - 1)};  // what lies outside is never stored
    if (across < columns) epilogue.fetch(ahead.pair, both, across, (columns - across) / 8);
  };
  fetch(0);
  finish();
  // Loops, since their body is long and instructions have to come from memory, too: what is next moves down to its place.
#pragma unroll 1
  for (int h = 0; h < Tile::kHeight; ++h) {
#pragma unroll 1
    for (int panel = 0; panel < kPanels; ++panel) {
      const int part = h * kPanels + panel;
      const int down = row + h * 64, across = column + panel * kPanel;
      typename Epilogue::Results results[8][2];
      Ahead now;
#pragma unroll
      for (int j = 0; j < 8; ++j) {
        if (j % kAhead == 0) {
          const int next = part * kPieces + j / kAhead + 1;
          now = ahead;
          if (next < kParts * kPieces) fetch(next);
          epilogue.share(now.pair, shared);
        }
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          float sums[Tile::kProducts][2];
#pragma unroll
          for (int p = 0; p < Tile::kProducts; ++p) {
            const float(&four)[4] = c[0][p * (Tile::kColumns / 8) + j];
            sums[p][0] = four[half * 2], sums[p][1] = four[half * 2 + 1];
          }
          results[j][half] =
              epilogue.compute(down + lane / 4 + half * 8, across + j * 8 + lane % 4 * 2, sums, now.pair[j % kAhead][half]);
        }
      }
      epilogue.stored([&](auto* out, auto member) {
        store_panel(out, rows, columns, down, across, shared, [&](int j, int half) { return results[j][half].*member; });
      });
#pragma unroll
      for (int j = 0; j + 8 < Tile::kAcross / 8; ++j) {
#pragma unroll
        for (int e = 0; e < 4; ++e) c[0][j][e] = c[0][j + 8][e];
      }
    }
#pragma unroll
    for (int j = 0; j < Tile::kAcross / 8; ++j) {
#pragma unroll
      for (int e = 0; e < 4; ++e) c[0][j][e] = c[Tile::kHeight - 1][j][e];
    }
  }
}

}  // namespace fusion::gpu

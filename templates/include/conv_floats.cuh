// Convolutions of floats that are multiplied as they are, of images with the channels last, as a session asks for that forbids
// TF32. The vendor has kernels for that only with the channels first, and turns images over before and behind them.
#pragma once

#include "include/conv_gather.cuh"

namespace fusion::gpu {

constexpr int kFloatConvDepth = 16, kMostFloatColumns = 64;

// One float from global memory, or zero.
__device__ __forceinline__ void copy_float_async(void* shared, const void* global, bool is_there) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;\n" ::"r"(shared_address(shared)), "l"(global), "r"(is_there ? 4 : 0)
               : "memory");
}

// out [positions, filters] of x [positions, channels] and w [filters, taps * channels of a group]. A thread has eight rows of
// a tile and some columns; kWidth floats are copied at once, which lie together and at a multiple of their size.
template <int kRows, int kColumns, int kWidth>
__global__ void __launch_bounds__(kConvTileThreads, 3) convolve_floats(const float* x, const float* w, float* out,
                                                                    const Convolution c, const Addends<float> add, int parts) {
  using Tile = ConvTile<kRows, kColumns, kFloatConvDepth>;
  constexpr int kMine = 8, kDown = kRows / kMine, kAcross = kConvTileThreads / kDown, kMyColumns = kColumns / kAcross;
  constexpr int kTileA = kRows * kFloatConvDepth, kTile = kTileA + kColumns * kFloatConvDepth;
  constexpr int kStages = kTile > 4096 ? 2 : kTile > 2048 ? 3 : 4;
  constexpr int kSums = kRows * Tile::kPitch, kAll = kStages * kTile > kSums ? kStages * kTile : kSums;
  constexpr int kPieces = kFloatConvDepth / kWidth, kStep = kConvTileThreads / kPieces;
  static_assert(kColumns <= kMostFloatColumns);
  __shared__ alignas(16) float memory[kAll];
  __shared__ GatheredRow rows[kRows];

  const Tile tile(c, parts);
  for (int r = threadIdx.x; r < kRows; r += kConvTileThreads) rows[r] = GatheredRow(c, min(tile.first + r, tile.rows - 1));
  __syncthreads();
  await_earlier();

  // A row's fours are permuted, so that eight neighbouring rows have the same four in all banks.
  const auto place = [](unsigned row, unsigned k) { return row * kFloatConvDepth + ((k / 4) ^ (row / 2 % 4)) * 4 + k % 4; };
  const auto copy = [](float* to, const float* from, bool is_there) {
    if constexpr (kWidth == 4) copy_async(to, from, is_there);
    else copy_float_async(to, from, is_there);
  };
  const int piece = threadIdx.x % kPieces * kWidth, line = threadIdx.x / kPieces;
  GatheredDepth next(c, tile.begin * kFloatConvDepth + piece, tile.each);
  int pixels[kRows / kStep];  // the first channel's place of what the filter meets, or -1
  const auto look = [&] {
#pragma unroll
    for (int i = 0; i < kRows / kStep; ++i) {
      const int position = rows[line + i * kStep].meets(c, next.tap);
      pixels[i] = position < 0 || next.is_over(c) ? -1 : position * static_cast<int>(c.channels) + tile.group * tile.each;
    }
  };
  look();
  const float* const weights = tile.filter(w).data + int64_t{tile.column + line} * tile.depth + piece;
  const int columns = tile.filters - tile.column - line;  // from the thread's first one on
  int into = 0;
  const auto fetch = [&](int step) {
    if (step < tile.end) {
      float* const a = memory + into;
#pragma unroll
      for (int i = 0; i < kRows / kStep; ++i) {
        copy(a + place(line + i * kStep, piece), x + next.channel + max(pixels[i], 0), pixels[i] >= 0);
      }
      const int k = step * kFloatConvDepth;
#pragma unroll
      for (int i = 0; i < (kColumns + kStep - 1) / kStep; ++i) {
        if (kColumns % kStep != 0 && line + i * kStep >= kColumns) break;
        const bool is_there = k + piece < tile.depth && i * kStep < columns;
        copy(a + kTileA + place(line + i * kStep, piece), is_there ? weights + k + i * kStep * tile.depth : w, is_there);
      }
      if (next.advance(c, kFloatConvDepth, tile.each)) look();
    }
    copy_commit();  // an empty group keeps the count of groups in step
    into = into + kTile == kStages * kTile ? 0 : into + kTile;
  };

  // Neighbouring lanes share a row and the next ones a column, so that half a warp is served at once.
  const int rest = threadIdx.x / 4, across = threadIdx.x % 2 + rest % (kAcross / 2) * 2;
  const int down = threadIdx.x / 2 % 2 + rest / (kAcross / 2) * 2;
  float sums[kMine][kMyColumns] = {};
  for (int s = 0; s < kStages - 1; ++s) fetch(tile.begin + s);
  int from = 0;
  for (int step = tile.begin; step < tile.end; ++step) {
    copy_wait<kStages - 2>();
    __syncthreads();  // the tile has arrived for all, and all have left the one that is overwritten next
    fetch(step + kStages - 1);
    const float* const a = memory + from;
    from = from + kTile == kStages * kTile ? 0 : from + kTile;
#pragma unroll
    for (int k = 0; k < kFloatConvDepth; k += 4) {
      Chunk<float, 4> left[kMine];
#pragma unroll
      for (int i = 0; i < kMine; ++i) left[i] = *reinterpret_cast<const Chunk<float, 4>*>(a + place(down + i * kDown, k));
#pragma unroll
      for (int j = 0; j < kMyColumns; ++j) {
        const auto right = *reinterpret_cast<const Chunk<float, 4>*>(a + kTileA + place(across + j * kAcross, k));
#pragma unroll
        for (int e = 0; e < 4; ++e) {
#pragma unroll
          for (int i = 0; i < kMine; ++i) sums[i][j] = fmaf(left[i].element[e], right.element[e], sums[i][j]);
        }
      }
    }
  }
  copy_wait<0>();
  let_next_begin();

  __syncthreads();
#pragma unroll
  for (int i = 0; i < kMine; ++i) {
#pragma unroll
    for (int j = 0; j < kMyColumns; ++j) memory[(down + i * kDown) * Tile::kPitch + across + j * kAcross] = sums[i][j];
  }
  tile.finish(memory, out, c, add);
}

// Whether places in an image, and in the filters from a thread's first one on, are numbers of 32 bits too.
inline bool fits_float_tiles(const Convolution& c) {
  return fits_tiles(c) && c.positions() * c.channels <= INT32_MAX && kMostFloatColumns * c.depth() <= INT32_MAX;
}

// Launches it with the tile that computes the least of what is thrown away; false where a convolution is too large.
inline bool convolve_floats(const Device& device, cudaStream_t stream, const float* x, const float* w, float* out,
                            const Convolution& c, const Addends<float>& add) {
  using std::integral_constant;
  if (!fits_float_tiles(c)) return false;
  const auto run = [&](auto rows, auto columns, auto width) {
    constexpr int kRows = decltype(rows)::value, kColumns = decltype(columns)::value, kWidth = decltype(width)::value;
    launch_conv_tiles<kRows, kColumns, kFloatConvDepth, 2, float>(convolve_floats<kRows, kColumns, kWidth>, device, stream, x, w,
                                                                  out, c, add);
    return true;
  };
  const int64_t filters = c.filters / c.groups, positions = c.results() / c.filters;
  const auto area = [&](int64_t rows, int64_t columns) {
    return ceil_div(positions, rows) * rows * ceil_div(filters, columns) * columns;
  };
  // What is copied float by float has one tile, and not three more to be compiled: the vendor takes images of three channels as
  // they are.
  if (c.channels_each() % 4 != 0 || !aligned<4>(x) || !aligned<4>(w)) {
    return run(integral_constant<int, 128>{}, integral_constant<int, 64>{}, integral_constant<int, 1>{});
  }
  const auto of = [&](auto rows, auto columns) { return run(rows, columns, integral_constant<int, 4>{}); };
  if (filters <= 8) return of(integral_constant<int, 256>{}, integral_constant<int, 8>{});
  const int64_t low = area(256, 32), even = area(128, 64), small = area(64, 64) * 5 / 4;  // which reads its operands more often
  if (small < low && small < even) return of(integral_constant<int, 64>{}, integral_constant<int, 64>{});
  if (low < even) return of(integral_constant<int, 256>{}, integral_constant<int, 32>{});
  return of(integral_constant<int, 128>{}, integral_constant<int, 64>{});
}

}  // namespace fusion::gpu

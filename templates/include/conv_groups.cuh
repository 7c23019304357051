// Convolutions in groups of channels on tensor cores, of images with the channels last: a product for each group, whose left
// operand is gathered from the image as it is multiplied. The vendor's kernels take one group after the other.
#pragma once

#include "include/convolution.h"
#include "include/half.h"
#include "include/mma.cuh"

namespace fusion::gpu {

constexpr int kGroupRows = 64, kGroupDepth = 32, kGroupThreads = 128, kGroupStages = 4;

// From how many places of a filter on our kernel takes it, in 16 bits, eight channels at a time. Fewer are the vendor's.
constexpr int64_t kGroupTaps = 16;
template <class T>
bool takes_groups(const Convolution& c) {
  const bool fits = c.batch * c.in[0] * c.in[1] * c.in[2] < INT32_MAX && c.taps() * c.channels_each() < INT32_MAX;
  return sizeof(T) == 2 && c.groups > 1 && c.channels_each() % 8 == 0 && c.taps() >= kGroupTaps && fits;
}

// One of the results' rows as it is gathered: where its image begins, and its window, which may reach over the edge.
struct GatheredRow {
  int image;  // position in the batch
  int at[Convolution::kAxes];
  __device__ __forceinline__ GatheredRow() {}
  __device__ __forceinline__ GatheredRow(const Convolution& c, unsigned row) {
#pragma unroll
    for (int a = Convolution::kAxes - 1; a >= 0; --a) {
      const unsigned out = static_cast<unsigned>(c.out[a]);
      at[a] = static_cast<int>(row % out) * static_cast<int>(c.stride[a]) - static_cast<int>(c.before[a]);
      row /= out;
    }
    image = static_cast<int>(row) * static_cast<int>(c.in[0] * c.in[1] * c.in[2]);
  }
  // The position in the batch that a place of the filter meets, or -1 outside.
  __device__ __forceinline__ int meets(const Convolution& c, const int (&tap)[Convolution::kAxes]) const {
    int place = 0;
    bool inside = true;
#pragma unroll
    for (int a = 0; a < Convolution::kAxes; ++a) {
      const int p = at[a] + tap[a] * static_cast<int>(c.dilation[a]);
      inside = inside && p >= 0 && p < static_cast<int>(c.in[a]);
      place = place * static_cast<int>(c.in[a]) + p;
    }
    return inside ? image + place : -1;
  }
};

// y [positions, filters] of x [positions, channels] and w [filters, taps * channels of a group]. A block has kColumns
// filters of one group at 64 positions, a warp 32 by 32 of them, or fewer.
template <class T, int kColumns>
__global__ void __launch_bounds__(kGroupThreads) convolve_groups(const T* x, const T* w, T* y, const Convolution c) {
  constexpr int kPitch = kGroupDepth + 8, kAcross = kColumns == 64 ? 2 : 1;
  constexpr int kWarpRows = kColumns == 64 ? 32 : 16, kWarpColumns = kColumns / kAcross;
  constexpr int kPieces = kGroupDepth / 8, kStep = kGroupThreads / kPieces, kMine = kGroupRows / kStep;
  __shared__ alignas(16) T tiles_a[kGroupStages][kGroupRows * kPitch];
  __shared__ alignas(16) T tiles_b[kGroupStages][kColumns * kPitch];
  await_earlier();

  const int each = static_cast<int>(c.channels_each()), filters = static_cast<int>(c.filters / c.groups);
  const unsigned across = (filters + kColumns - 1) / kColumns;
  const int group = static_cast<int>(blockIdx.x / across % static_cast<unsigned>(c.groups));
  const int column = static_cast<int>(blockIdx.x % across) * kColumns;
  const unsigned first = blockIdx.x / across / static_cast<unsigned>(c.groups) * kGroupRows;
  const unsigned rows = static_cast<unsigned>(c.batch * c.out[0] * c.out[1] * c.out[2]);
  const int depth = static_cast<int>(c.taps()) * each, steps = (depth + kGroupDepth - 1) / kGroupDepth;
  const Matrix<T> filter{w + int64_t{group} * filters * depth, depth, 1, filters, depth};
  const bool wide = filter.wide();

  const int piece = threadIdx.x % kPieces * 8, line = threadIdx.x / kPieces;
  GatheredRow mine[kMine];
#pragma unroll
  for (int i = 0; i < kMine; ++i) mine[i] = GatheredRow(c, min(first + line + i * kStep, rows - 1));
  const auto fetch = [&](int step) {
    if (step < steps) {
      const int k = step * kGroupDepth + piece, place = k / each, channel = group * each + k % each;
      const int t2 = static_cast<int>(c.kernel[2]), t1 = static_cast<int>(c.kernel[1]);
      const int tap[] = {place / t2 / t1, place / t2 % t1, place % t2};
#pragma unroll
      for (int i = 0; i < kMine; ++i) {
        const int position = k < depth ? mine[i].meets(c, tap) : -1;
        const T* const from = x + (position < 0 ? 0 : int64_t{position} * c.channels + channel);
        copy_async(tiles_a[step % kGroupStages] + (line + i * kStep) * kPitch + piece, from, position < 0 ? 0 : 16);
      }
      load_tile<kColumns, kGroupDepth, kPitch, kGroupThreads>(tiles_b[step % kGroupStages], filter, column,
                                                              int64_t{step} * kGroupDepth, wide);
    }
    copy_commit();  // an empty group keeps the count of groups in step
  };

  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int down = warp / kAcross * kWarpRows, right = warp % kAcross * kWarpColumns;
  float sums[kWarpRows / 16][kWarpColumns / 8][4] = {};
  for (int s = 0; s < kGroupStages - 1; ++s) fetch(s);
  for (int step = 0; step < steps; ++step) {
    copy_wait<kGroupStages - 2>();
    __syncthreads();  // the tile has arrived for all, and all have left the one that is overwritten next
    fetch(step + kGroupStages - 1);
    const T* const a = tiles_a[step % kGroupStages];
    const T* const b = tiles_b[step % kGroupStages];
#pragma unroll
    for (int k = 0; k < kGroupDepth; k += 16) {
      uint32_t fa[kWarpRows / 16][4], fb[kWarpColumns / 16][4];
#pragma unroll
      for (int i = 0; i < kWarpRows / 16; ++i) load_a<false, kPitch>(fa[i], a, down + i * 16, k);
#pragma unroll
      for (int j = 0; j < kWarpColumns / 16; ++j) load_b<true, kPitch>(fb[j], b, k, right + j * 16);
#pragma unroll
      for (int i = 0; i < kWarpRows / 16; ++i) {
#pragma unroll
        for (int j = 0; j < kWarpColumns / 8; ++j) {
          multiply_add<T>(sums[i][j], fa[i], fb[j / 2][j % 2 * 2], fb[j / 2][j % 2 * 2 + 1]);
        }
      }
    }
  }
  copy_wait<0>();

#pragma unroll
  for (int i = 0; i < kWarpRows / 16; ++i) {
#pragma unroll
    for (int j = 0; j < kWarpColumns / 8; ++j) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const unsigned row = first + down + i * 16 + lane / 4 + e / 2 * 8;
        const int at = column + right + j * 8 + lane % 4 * 2 + e % 2;
        if (row < rows && at < filters) fusion::store(y + row * c.filters + group * filters + at, sums[i][j][e]);
      }
    }
  }
}

template <class T>
void convolve_groups(cudaStream_t stream, const T* x, const T* w, T* y, const Convolution& c) {
  const int64_t filters = c.filters / c.groups;
  const auto run = [&](auto kernel, int64_t columns) {
    const int64_t blocks = ceil_div(c.results() / c.filters, kGroupRows) * c.groups * ceil_div(filters, columns);
    launch(kernel, grid_size(blocks, "convolution in groups"), kGroupThreads, 0, stream, "convolution in groups", x, w, y, c);
  };
  if constexpr (sizeof(T) == 2) {
    using Kernel = void (*)(const T*, const T*, T*, Convolution);
    if (filters <= 16) return run(static_cast<Kernel>(convolve_groups<T, 16>), 16);
    if (filters <= 32) return run(static_cast<Kernel>(convolve_groups<T, 32>), 32);
    run(static_cast<Kernel>(convolve_groups<T, 64>), 64);
  }
}

}  // namespace fusion::gpu

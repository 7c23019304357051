// Convolutions on tensor cores of images with the channels last: products whose left operand is gathered from the image as it
// is multiplied. Tiles are small and the blocks of a cluster share what is summed, for images of few positions, and every
// group of channels has its own, where the vendor's kernels are slow.
#pragma once

#include "include/blaslt.h"
#include "include/cluster.cuh"
#include "include/convolution.h"
#include "include/half.h"

namespace fusion::gpu {

constexpr int kConvRows = 64, kConvDepth = 32, kConvTileThreads = 128, kConvStages = 4;

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

// Where a product's depth is as it is gathered: at a place of the filter, past the last one's at the end, and at a channel of its
// group.
struct GatheredDepth {
  int tap[Convolution::kAxes], channel;
  __device__ __forceinline__ GatheredDepth(const Convolution& c, int k, int each) : channel(k % each) {
    const int place = k / each, last = static_cast<int>(c.kernel[2]), middle = static_cast<int>(c.kernel[1]);
    tap[0] = place / last / middle, tap[1] = place / last % middle, tap[2] = place % last;
  }
  // Without divisions, which would take longer than the product.
  __device__ __forceinline__ void advance(const Convolution& c, int by, int each) {
    for (channel += by; channel >= each; channel -= each) {
      if (++tap[2] < c.kernel[2]) continue;
      tap[2] = 0;
      if (++tap[1] == c.kernel[1]) tap[1] = 0, ++tap[0];
    }
  }
};

// out [positions, filters] of x [positions, channels] and w [filters, taps * channels of a group]. A block has kColumns
// filters of one group at 64 positions, a warp 32 by 32 of them, or fewer; `parts` blocks of a cluster share its depth, and then
// its rows.
template <class T, int kColumns>
__global__ void __launch_bounds__(kConvTileThreads) convolve_tiles(const T* x, const T* w, T* out, const Convolution c,
                                                                   const Addends<T> add, int parts) {
  constexpr int kPitch = kConvDepth + 8, kAcross = kColumns == 64 ? 2 : 1;
  constexpr int kWarpRows = kColumns == 64 ? 32 : 16, kWarpColumns = kColumns / kAcross;
  constexpr int kPieces = kConvDepth / 8, kStep = kConvTileThreads / kPieces, kMine = kConvRows / kStep;
  constexpr int kTileA = kConvRows * kPitch, kTileB = kColumns * kPitch, kSumsPitch = kColumns + 4;
  constexpr int kBytes = kConvStages * (kTileA + kTileB) * 2, kSums = kConvRows * kSumsPitch * 4;
  __shared__ alignas(16) unsigned char memory[kBytes > kSums ? kBytes : kSums];
  T* const tiles_a = reinterpret_cast<T*>(memory);
  T* const tiles_b = tiles_a + kConvStages * kTileA;
  await_earlier();

  const int each = static_cast<int>(c.channels_each()), filters = static_cast<int>(c.filters / c.groups);
  const unsigned across = (filters + kColumns - 1) / kColumns, tile = blockIdx.x / static_cast<unsigned>(parts);
  const int part = static_cast<int>(blockIdx.x % static_cast<unsigned>(parts));
  const int group = static_cast<int>(tile / across % static_cast<unsigned>(c.groups));
  const int column = static_cast<int>(tile % across) * kColumns;
  const unsigned first = tile / across / static_cast<unsigned>(c.groups) * kConvRows;
  const unsigned rows = static_cast<unsigned>(c.batch * c.out[0] * c.out[1] * c.out[2]);
  const int depth = static_cast<int>(c.taps()) * each, steps = (depth + kConvDepth - 1) / kConvDepth;
  const int begin = steps * part / parts, end = steps * (part + 1) / parts;
  const Matrix<T> filter{w + int64_t{group} * filters * depth, depth, 1, filters, depth};
  const bool wide = filter.wide();

  const int piece = threadIdx.x % kPieces * 8, line = threadIdx.x / kPieces;
  GatheredRow mine[kMine];
#pragma unroll
  for (int i = 0; i < kMine; ++i) mine[i] = GatheredRow(c, min(first + line + i * kStep, rows - 1));
  GatheredDepth next(c, begin * kConvDepth + piece, each);
  const auto fetch = [&](int step) {
    if (step < end) {
      T* const a = tiles_a + step % kConvStages * kTileA;
#pragma unroll
      for (int i = 0; i < kMine; ++i) {
        const int position = next.tap[0] < c.kernel[0] ? mine[i].meets(c, next.tap) : -1;
        const T* const from = x + (position < 0 ? 0 : int64_t{position} * c.channels + group * each + next.channel);
        copy_async(a + (line + i * kStep) * kPitch + piece, from, position < 0 ? 0 : 16);
      }
      next.advance(c, kConvDepth, each);
      load_tile<kColumns, kConvDepth, kPitch, kConvTileThreads>(tiles_b + step % kConvStages * kTileB, filter, column,
                                                                int64_t{step} * kConvDepth, wide);
    }
    copy_commit();  // an empty group keeps the count of groups in step
  };

  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int down = warp / kAcross * kWarpRows, right = warp % kAcross * kWarpColumns;
  float sums[kWarpRows / 16][kWarpColumns / 8][4] = {};
  for (int s = 0; s < kConvStages - 1; ++s) fetch(begin + s);
  for (int step = begin; step < end; ++step) {
    copy_wait<kConvStages - 2>();
    __syncthreads();  // the tile has arrived for all, and all have left the one that is overwritten next
    fetch(step + kConvStages - 1);
    const T* const a = tiles_a + step % kConvStages * kTileA;
    const T* const b = tiles_b + step % kConvStages * kTileB;
#pragma unroll
    for (int k = 0; k < kConvDepth; k += 16) {
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
  let_next_begin();

  float* const own = reinterpret_cast<float*>(memory);
  __syncthreads();
#pragma unroll
  for (int i = 0; i < kWarpRows / 16; ++i) {
#pragma unroll
    for (int j = 0; j < kWarpColumns / 8; ++j) {
#pragma unroll
      for (int e = 0; e < 4; e += 2) {
        float* const to = own + (down + i * 16 + lane / 4 + e / 2 * 8) * kSumsPitch + right + j * 8 + lane % 4 * 2;
        *reinterpret_cast<Chunk<float, 2>*>(to) = {sums[i][j][e], sums[i][j][e + 1]};
      }
    }
  }
  if (parts > 1) {
    Mailbox::meet();
  } else {
    __syncthreads();
  }
  const int share = kConvRows / parts;
  for (int i = threadIdx.x; i < share * (kColumns / 4); i += kConvTileThreads) {
    const int y = part * share + i / (kColumns / 4), at = i % (kColumns / 4) * 4;
    float four[4] = {};
    for (int p = 0; p < parts; ++p) {  // always in the same order
      const Chunk<float, 4> some = read_part(own + y * kSumsPitch + at, p);
#pragma unroll
      for (int e = 0; e < 4; ++e) four[e] += some.element[e];
    }
    if (first + y >= rows) continue;
    const int64_t place = int64_t{first + y} * c.filters + group * filters + column + at;
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      if (column + at + e >= filters) break;
      if (add.residual != nullptr) four[e] += fusion::load(add.residual + place + e);
      if (add.bias != nullptr) four[e] += fusion::load(add.bias + group * filters + column + at + e);
      if (add.relu && four[e] < 0.0f) four[e] = 0.0f;
      fusion::store(out + place + e, four[e]);
    }
  }
  if (parts > 1) Mailbox::meet();  // none leaves with what others still read
}

// Launches it; false where it does not take a convolution: it does so in 16 bits, eight channels at a time.
template <class T>
bool convolve_tiles(const Device& device, cudaStream_t stream, const T* x, const T* w, T* out, const Convolution& c,
                    const Addends<T>& add) {
  if constexpr (sizeof(T) != 2) {
    return false;
  } else {
    const int64_t positions = c.batch * c.in[0] * c.in[1] * c.in[2], depth = c.taps() * c.channels_each();
    const bool lies = reinterpret_cast<uintptr_t>(x) % 16 == 0 && reinterpret_cast<uintptr_t>(w) % 16 == 0;
    if (c.channels_each() % 8 != 0 || !lies || positions > INT32_MAX || depth > INT32_MAX) return false;
    const int64_t filters = c.filters / c.groups, tall = ceil_div(c.results() / c.filters, kConvRows) * c.groups;
    const auto run = [&](auto kernel, int64_t columns) {
      const int64_t tiles = tall * ceil_div(filters, columns), steps = ceil_div(depth, kConvDepth);
      constexpr int kLeast = 4;  // steps of a part, so that it has more to do than to hand on
      int parts = 1;
      while (parts < kMostParts && tiles * parts <= int64_t{device.multiprocessors} && steps >= kLeast * parts * 2) parts *= 2;
      launch_clusters(kernel, grid_size(tiles * parts, "convolution"), parts, kConvTileThreads, 0, stream, "convolution", x, w,
                      out, c, add, parts);
      return true;
    };
    using Kernel = void (*)(const T*, const T*, T*, Convolution, Addends<T>, int);
    if (filters <= 16) return run(static_cast<Kernel>(convolve_tiles<T, 16>), 16);
    if (filters <= 32) return run(static_cast<Kernel>(convolve_tiles<T, 32>), 32);
    return run(static_cast<Kernel>(convolve_tiles<T, 64>), 64);
  }
}

}  // namespace fusion::gpu

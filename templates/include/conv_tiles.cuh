// Convolutions on tensor cores of images with the channels last: tiles are small and the blocks of a cluster share what is summed,
// for images of few positions, and every group of channels has its own, where the vendor's kernels are slow.
#pragma once

#include "include/conv_gather.cuh"

namespace fusion::gpu {

constexpr int kConvRows = 64, kConvDepth = 32, kConvStages = 4;

// out [positions, filters] of x [positions, channels] and w [filters, taps * channels of a group]. A warp has 32 by 32 results of
// a tile, or fewer.
template <class T, int kColumns>
__global__ void __launch_bounds__(kConvTileThreads) convolve_tiles(const T* x, const T* w, T* out, const Convolution c,
                                                                   const Addends<T> add, int parts) {
  constexpr int kPitch = kConvDepth + 8, kAcross = kColumns == 64 ? 2 : 1;
  constexpr int kWarpRows = kColumns == 64 ? 32 : 16, kWarpColumns = kColumns / kAcross;
  constexpr int kPieces = kConvDepth / 8, kStep = kConvTileThreads / kPieces, kMine = kConvRows / kStep;
  using Tile = ConvTile<kConvRows, kColumns, kConvDepth>;
  constexpr int kTileA = kConvRows * kPitch, kTileB = kColumns * kPitch;
  constexpr int kBytes = kConvStages * (kTileA + kTileB) * 2, kSums = kConvRows * Tile::kPitch * 4;
  __shared__ alignas(16) unsigned char memory[kBytes > kSums ? kBytes : kSums];
  T* const tiles_a = reinterpret_cast<T*>(memory);
  T* const tiles_b = tiles_a + kConvStages * kTileA;
  await_earlier();

  const Tile tile(c, parts);
  const Matrix<T> filter = tile.filter(w);
  const bool wide = filter.wide();

  const int piece = threadIdx.x % kPieces * 8, line = threadIdx.x / kPieces;
  GatheredRow mine[kMine];
#pragma unroll
  for (int i = 0; i < kMine; ++i) mine[i] = GatheredRow(c, min(tile.first + line + i * kStep, tile.rows - 1));
  GatheredDepth next(c, tile.begin * kConvDepth + piece, tile.each);
  const auto fetch = [&](int step) {
    if (step < tile.end) {
      T* const a = tiles_a + step % kConvStages * kTileA;
#pragma unroll
      for (int i = 0; i < kMine; ++i) {
        const int position = next.is_over(c) ? -1 : mine[i].meets(c, next.tap);
        const T* const from = position < 0 ? x : tile.pixel(x, c, position, next.channel);
        copy_async(a + (line + i * kStep) * kPitch + piece, from, position >= 0);
      }
      next.advance(c, kConvDepth, tile.each);
      load_tile<kColumns, kConvDepth, kPitch, kConvTileThreads>(tiles_b + step % kConvStages * kTileB, filter, tile.column,
                                                                int64_t{step} * kConvDepth, wide);
    }
    copy_commit();  // an empty group keeps the count of groups in step
  };

  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int down = warp / kAcross * kWarpRows, right = warp % kAcross * kWarpColumns;
  float sums[kWarpRows / 16][kWarpColumns / 8][4] = {};
  for (int s = 0; s < kConvStages - 1; ++s) fetch(tile.begin + s);
  for (int step = tile.begin; step < tile.end; ++step) {
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
        float* const to = own + (down + i * 16 + lane / 4 + e / 2 * 8) * Tile::kPitch + right + j * 8 + lane % 4 * 2;
        *reinterpret_cast<Chunk<float, 2>*>(to) = {sums[i][j][e], sums[i][j][e + 1]};
      }
    }
  }
  tile.finish(own, out, c, add);
}

// Launches it; false where it does not take a convolution: it does so in 16 bits, eight channels at a time.
template <class T>
bool convolve_tiles(const Device& device, cudaStream_t stream, const T* x, const T* w, T* out, const Convolution& c,
                    const Addends<T>& add) {
  if (c.channels_each() % 8 != 0 || !aligned<8>(x) || !aligned<8>(w) || !fits_tiles(c)) return false;
  const int64_t filters = c.filters / c.groups;
  const auto run = [&](auto columns) {
    constexpr int kColumns = decltype(columns)::value;
    launch_conv_tiles<kConvRows, kColumns, kConvDepth, 1, T>(convolve_tiles<T, kColumns>, device, stream, x, w, out, c, add);
    return true;
  };
  if (filters <= 16) return run(std::integral_constant<int, 16>{});
  if (filters <= 32) return run(std::integral_constant<int, 32>{});
  return run(std::integral_constant<int, 64>{});
}

}  // namespace fusion::gpu

// Convolutions of images with the channels last as products whose left operand is gathered from the image as it is multiplied:
// where a tile lies, what it gathers, and what is added to its sums. The blocks of a cluster may share what a tile sums.
#pragma once

#include "include/blaslt.h"
#include "include/cluster.cuh"
#include "include/convolution.h"
#include "include/half.h"

namespace fusion::gpu {

constexpr int kConvTileThreads = 128;

// One of the results' rows as it is gathered: where its image begins, and its window, which may reach over the edge.
struct alignas(16) GatheredRow {
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
  // Without divisions, which would take longer than the product. Whether it is at another place of the filter then.
  __device__ __forceinline__ bool advance(const Convolution& c, int by, int each) {
    const bool stays = channel + by < each;
    for (channel += by; channel >= each; channel -= each) {
      if (++tap[2] < c.kernel[2]) continue;
      tap[2] = 0;
      if (++tap[1] == c.kernel[1]) tap[1] = 0, ++tap[0];
    }
    return !stays;
  }
  __device__ __forceinline__ bool is_over(const Convolution& c) const { return tap[0] >= c.kernel[0]; }
};

// A block's part of the results: kColumns filters of one group at kRows positions, and which of `parts` blocks of a cluster it
// is, which share the steps of kDepth that the tile takes.
template <int kRows, int kColumns, int kDepth>
struct ConvTile {
  int each, filters, depth;  // of a group: channels, filters; what a result sums
  int parts, part, group, column, begin, end;
  unsigned first, rows;  // of the results

  __device__ __forceinline__ ConvTile(const Convolution& c, int of)
      : each(static_cast<int>(c.channels_each())), filters(static_cast<int>(c.filters / c.groups)),
        depth(static_cast<int>(c.taps()) * each), parts(of), part(static_cast<int>(blockIdx.x % static_cast<unsigned>(of))),
        rows(static_cast<unsigned>(c.batch * c.out[0] * c.out[1] * c.out[2])) {
    const unsigned across = (filters + kColumns - 1) / kColumns, tile = blockIdx.x / static_cast<unsigned>(parts);
    const int steps = (depth + kDepth - 1) / kDepth;
    group = static_cast<int>(tile / across % static_cast<unsigned>(c.groups));
    column = static_cast<int>(tile % across) * kColumns;
    first = tile / across / static_cast<unsigned>(c.groups) * kRows;
    begin = steps * part / parts, end = steps * (part + 1) / parts;
  }
  // The group's filters, [filters, depth].
  template <class T>
  __device__ __forceinline__ Matrix<T> filter(const T* w) const {
    return {w + int64_t{group} * filters * depth, depth, 1, filters, depth};
  }
  // An element of the group's channels at a position.
  template <class T>
  __device__ __forceinline__ const T* pixel(const T* x, const Convolution& c, int position, int channel) const {
    return x + int64_t{position} * c.channels + group * each + channel;
  }

  static constexpr int kPitch = kColumns + 4;  // of the sums in shared memory

  // Stores what all blocks of the cluster have summed, each some of the tile's rows. All threads call it when they have put
  // their own block's sums to shared memory.
  template <class T>
  __device__ __forceinline__ void finish(const float* sums, T* out, const Convolution& c, const Addends<T>& add) const {
    if (parts > 1) {
      Mailbox::meet();
    } else {
      __syncthreads();
    }
    using Four = Chunk<T, 4>;
    const bool wide = filters % 4 == 0 && aligned<4>(out) && aligned<4>(add.residual) && aligned<4>(add.bias);
    const int share = kRows / parts;
#pragma unroll 1
    for (int i = threadIdx.x; i < share * (kColumns / 4); i += kConvTileThreads) {
      const int y = part * share + i / (kColumns / 4), at = i % (kColumns / 4) * 4, left = filters - column - at;
      float four[4] = {};
#pragma unroll
      for (int p = 0; p < kMostParts; ++p) {  // always in the same order
        const auto some = p < parts ? read_part(sums + y * kPitch + at, p) : Chunk<float, 4>{};
#pragma unroll
        for (int e = 0; e < 4; ++e) four[e] += some.element[e];
      }
      if (first + y >= rows || left <= 0) continue;
      const auto addend = [&](const T* from, int64_t place) {
        Four x{};
        if (from == nullptr) return x;
        if (wide) return *reinterpret_cast<const Four*>(from + place);
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          if (e < left) x.element[e] = from[place + e];
        }
        return x;
      };
      const int64_t filter = group * filters + column + at, place = int64_t{first + y} * c.filters + filter;
      const Four residual = addend(add.residual, place), bias = addend(add.bias, filter);
      Four result;
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const float x = four[e] + fusion::load(&residual.element[e]) + fusion::load(&bias.element[e]);
        fusion::store(&result.element[e], add.relu && x < 0.0f ? 0.0f : x);
      }
      if (wide) {
        *reinterpret_cast<Four*>(out + place) = result;
      } else {
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          if (e < left) out[place + e] = result.element[e];
        }
      }
    }
    if (parts > 1) Mailbox::leave();
  }
};

// Launches a kernel of such tiles, with as many blocks to a tile as the GPU has idle, where each multiprocessor has kBlocks.
template <int kRows, int kColumns, int kDepth, int kBlocks, class T>
void launch_conv_tiles(void (*kernel)(const T*, const T*, T*, Convolution, Addends<T>, int), const Device& device,
                       cudaStream_t stream, const T* x, const T* w, T* out, const Convolution& c, const Addends<T>& add) {
  constexpr int kLeast = 128 / kDepth;  // steps of a part, so that it has more to do than to hand on
  const int64_t tiles = ceil_div(c.results() / c.filters, kRows) * c.groups * ceil_div(c.filters / c.groups, kColumns);
  const int64_t steps = ceil_div(c.depth(), kDepth);
  int parts = 1;
  while (parts < kMostParts && tiles * parts <= int64_t{kBlocks} * device.multiprocessors && steps >= kLeast * parts * 2) parts *= 2;
  launch_clusters(kernel, grid_size(tiles * parts, "convolution"), parts, kConvTileThreads, 0, stream, "convolution", x, w, out,
                  c, add, parts);
}

// Whether such tiles can say where they are: in 32 bits.
inline bool fits_tiles(const Convolution& c) {
  return c.positions() <= INT32_MAX && c.results() / c.filters <= INT32_MAX && c.depth() <= INT32_MAX;
}

}  // namespace fusion::gpu

// The mean and the deviation of groups of channels over all positions of images whose channels come last.
//
// Blocks share the positions of an image. A thread sums up the distances of what it reads of a channel from the first of it,
// so that nothing is lost where the mean is far from zero; means and squares of different numbers are then put together by
// Chan's formula, in an order that is always the same: in a block, and by the last block of an image.
#pragma once

#include "include/vector.cuh"
#include "include/workspace.cuh"

namespace fusion::gpu {

constexpr int kMomentThreads = 512;
constexpr int kMomentChannels = 4096;  // or fewer: shared memory has a part for each, and for eight of each thread
constexpr int kMomentAhead = 4;        // positions that a thread asks for before it uses the first

// The mean of some numbers, and the sum of the squares of their distances from it.
struct MomentPart {
  float mean = 0.0f, squares = 0.0f;
};

// The same, and how many they are.
struct Moment : MomentPart {
  float count = 0.0f;

  __device__ __forceinline__ void join(float others, const MomentPart& of) {
    const float total = count + others;
    if (total == 0.0f) return;
    const float apart = of.mean - mean, share = others / total;
    squares += of.squares + apart * apart * count * share;
    mean += apart * share;
    count = total;
  }

  // What all lanes of a warp have, in the first of them.
  __device__ __forceinline__ void join_lanes() {
#pragma unroll
    for (int step = 16; step > 0; step /= 2) {
      const MomentPart of{__shfl_xor_sync(0xffffffffu, mean, step), __shfl_xor_sync(0xffffffffu, squares, step)};
      join(__shfl_xor_sync(0xffffffffu, count, step), of);
    }
  }
};

// Images of so many positions and channels, of which each has `chunks` blocks, and what these leave for the last of them.
struct Moments {
  int64_t images = 0, positions = 0, each = 0;  // positions of a block
  int channels = 0, groups = 1, chunks = 1;
  MomentPart* parts = nullptr;
  unsigned* done = nullptr;  // how many blocks of an image are through; zeros between launches
  float* out = nullptr;
  float epsilon = 0.0f;

  __device__ __forceinline__ int64_t length(int chunk) const {
    const int64_t left = positions - chunk * each;
    return left < each ? left : each;
  }

  // What a group came to, of which the first lane of a warp has it.
  __device__ __forceinline__ void finish(int64_t image, int group, const Moment& found) const {
    const float mean = __shfl_sync(0xffffffffu, found.mean, 0);
    const float variance = __shfl_sync(0xffffffffu, found.squares, 0) / __shfl_sync(0xffffffffu, found.count, 0);
    const float inverse = 1.0f / sqrtf(variance + epsilon);
    const int size = channels / groups;
    float* const means = out + image * channels + group * size;
    for (int c = threadIdx.x % 32; c < size; c += 32) {
      means[c] = mean;
      means[images * channels + c] = inverse;
    }
  }
};

inline Moments moments_of(const Device& device, const Ints& dims, int64_t groups) {
  constexpr int64_t kLeast = 8 * kMomentAhead * kMomentThreads;  // numbers of a block
  Moments m;
  m.images = dims[0], m.channels = narrow(dims.back()), m.groups = narrow(groups);
  m.positions = m.images * m.channels == 0 ? 0 : count(dims) / (m.images * m.channels);
  const int64_t most = m.positions * m.channels / kLeast;
  const int64_t wanted = m.images == 0 || m.images > kCounters ? 1 : 2 * device.multiprocessors / m.images;
  const int64_t chunks = most < wanted ? most : wanted;
  m.each = chunks <= 1 ? m.positions : ceil_div(m.positions, chunks);
  m.chunks = m.each == 0 ? 1 : narrow(ceil_div(m.positions, m.each));
  return m;
}

inline size_t moment_bytes(const Device& device, const Ints& dims, int64_t groups) {
  const Moments m = moments_of(device, dims, groups);
  return m.chunks == 1 ? 0 : static_cast<size_t>(m.images * m.groups * m.chunks) * sizeof(MomentPart);
}

// How many of `length` positions a row of threads reads, of which there are `rows`.
__device__ __forceinline__ int64_t read_by(int row, int rows, int64_t length) {
  return row < length ? (length - row - 1) / rows + 1 : 0;
}

// What a thread finds of V channels at every `rows`-th of the positions.
template <int V, class T>
__device__ __forceinline__ void measure(const T* x, int64_t step, int row, int rows, int64_t length, MomentPart* found) {
  float first[V] = {}, sum[V] = {}, squares[V] = {};
  for (int64_t position = row; position < length; position += rows * kMomentAhead) {
    Vector<T, V> read[kMomentAhead];
#pragma unroll
    for (int u = 0; u < kMomentAhead; ++u) {
      const int64_t at = position + int64_t{u} * rows;
      if (at < length) read[u] = load_whole<T, V>(x + at * step);
    }
    if (position == row) {
#pragma unroll
      for (int v = 0; v < V; ++v) first[v] = get(read[0], v);
    }
#pragma unroll
    for (int u = 0; u < kMomentAhead; ++u) {
      if (position + int64_t{u} * rows >= length) break;
#pragma unroll
      for (int v = 0; v < V; ++v) {
        const float apart = get(read[u], v) - first[v];
        sum[v] += apart;
        squares[v] += apart * apart;
      }
    }
  }
  const int64_t number = read_by(row, rows, length);
  const float share = number == 0 ? 0.0f : 1.0f / static_cast<float>(number);
#pragma unroll
  for (int v = 0; v < V; ++v) {
    const float apart = sum[v] * share;
    found[v].mean = first[v] + apart;
    found[v].squares = max_nan(0.0f, squares[v] - sum[v] * apart);
  }
}

template <int V, class T>
__device__ __forceinline__ void moments(const T* x, const Moments& m) {
  constexpr int kParts = kMomentThreads * V > kMomentChannels ? kMomentThreads * V : kMomentChannels;
  __shared__ MomentPart found[kParts];
  const int64_t image = blockIdx.x / m.chunks;
  const int chunk = blockIdx.x % m.chunks, size = m.channels / m.groups;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int vectors = m.channels / V, rows = vectors < kMomentThreads ? kMomentThreads / vectors : 1;
  const int row = vectors < kMomentThreads ? threadIdx.x / vectors : 0;
  const int64_t length = m.length(chunk);
  x += (image * m.positions + chunk * m.each) * m.channels;
  for (int i = threadIdx.x - row * vectors; i < vectors && row < rows; i += kMomentThreads) {
    measure<V>(x + i * V, m.channels, row, rows, length, found + row * m.channels + i * V);
  }
  __syncthreads();
  for (int group = warp; group < m.groups; group += kMomentThreads / 32) {
    Moment all;
    for (int i = lane; i < rows * size; i += 32) {
      const int from = i / size;
      const float number = static_cast<float>(read_by(from, rows, length));
      all.join(number, found[from * m.channels + group * size + i % size]);
    }
    all.join_lanes();
    if (m.chunks == 1) {
      m.finish(image, group, all);
    } else if (lane == 0) {
      m.parts[(image * m.groups + group) * m.chunks + chunk] = all;
    }
  }
  if (m.chunks == 1 || !is_last(m.done + image, m.chunks)) return;
  for (int group = warp; group < m.groups; group += kMomentThreads / 32) {
    Moment all;
    for (int i = lane; i < m.chunks; i += 32) {
      const MomentPart* const part = m.parts + (image * m.groups + group) * m.chunks + i;
      all.join(static_cast<float>(m.length(i) * size), {__ldcg(&part->mean), __ldcg(&part->squares)});
    }
    all.join_lanes();
    m.finish(image, group, all);
  }
}

}  // namespace fusion::gpu

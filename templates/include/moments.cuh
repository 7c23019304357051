// The mean and the deviation of groups of channels over all positions of images whose channels come last.
//
// Blocks share the groups of an image, some whole groups to each, and its positions. A thread sums up the distances of what
// it reads of a channel from the first of it, so that nothing is lost where the mean is far from zero; what several found is
// put together in two steps, their mean first and then the squares of the distances from that, in an order that is always the
// same: in a block, and by the last block of its groups.
#pragma once

#include <algorithm>
#include <numeric>

#include "include/vector.cuh"
#include "include/workspace.cuh"

namespace fusion::gpu {

constexpr int kMomentThreads = 512;
constexpr int kMomentWidth = 64;       // channels of a block, or more: lines of memory are read whole
constexpr int kMomentChannels = 4096;  // of a group, or fewer: shared memory has a part for each, and for eight of each thread
constexpr int kMomentAhead = 4;        // positions that a thread asks for before it uses the first

// The mean of some numbers, and the sum of the squares of their distances from it.
struct MomentPart {
  float mean = 0.0f, squares = 0.0f;
};

// The same, and how many they are.
struct Moment : MomentPart {
  float count = 0.0f;
};

// What all lanes of a warp visit, put together: `visit` calls what it is given with each Moment of the lane's. Twice.
template <class Visit>
__device__ __forceinline__ Moment together(float near, Visit visit) {
  Moment all;
  float sum = 0.0f;
  visit([&](const Moment& one) {
    all.count += one.count;
    sum += one.count * (one.mean - near);
  });
  all.count = lanes_sum<32>(all.count);
  all.mean = near + lanes_sum<32>(sum) / all.count;
  visit([&](const Moment& one) {
    const float apart = one.mean - all.mean;
    all.squares += one.squares + one.count * apart * apart;
  });
  all.squares = lanes_sum<32>(all.squares);
  return all;
}

// How many of `length` positions each of so many rows of threads reads.
struct MomentRows {
  int64_t each = 0, left = 0;

  __device__ __forceinline__ MomentRows(int64_t length, int rows) : each(length / rows), left(length % rows) {}
  __device__ __forceinline__ int64_t number(int row) const { return each + (row < left ? 1 : 0); }
};

// Images of so many positions and channels. `slices` blocks beside one another have the channels of an image, `chunks` of these
// its positions, and leave what they found for the last of them.
struct Moments {
  int64_t images = 0, positions = 0, each = 0;  // positions of a block
  int channels = 0, size = 1, width = 1;        // of an image, a group and a block
  int slices = 1, chunks = 1;
  MomentPart* parts = nullptr;
  unsigned* done = nullptr;  // how many blocks of a slice of an image are through; zeros between launches
  float* out = nullptr;
  float epsilon = 0.0f;

  int64_t blocks() const { return images * slices * chunks; }
  __device__ __forceinline__ int64_t length(int chunk) const {
    const int64_t left = positions - chunk * each;
    return left < each ? left : each;
  }
  __device__ __forceinline__ MomentPart* part(int64_t image, int channel) const {
    return parts + (image * channels + channel) / size * chunks;
  }

  // What the group that begins with a channel came to, by all lanes of a warp.
  __device__ __forceinline__ void finish(int64_t image, int channel, const Moment& found) const {
    const float inverse = 1.0f / sqrtf(found.squares / found.count + epsilon);
    float* const means = out + image * channels + channel;
    for (int c = threadIdx.x % 32; c < size; c += 32) {
      means[c] = found.mean;
      means[images * channels + c] = inverse;
    }
  }
};

// `vector`: channels of an access.
inline Moments moments_of(const Device& device, const Ints& dims, int64_t groups, int vector) {
  constexpr int64_t kLeast = 8 * kMomentAhead * kMomentThreads;  // numbers of a block
  Moments m;
  m.images = dims[0], m.channels = narrow(dims.back()), m.size = narrow(dims.back() / groups);
  if (m.images * m.channels == 0) return m;
  m.positions = count(dims) / (m.images * m.channels);
  const int whole = m.channels % vector == 0 ? std::lcm(m.size, vector) : m.size;
  m.width = std::min<int>(m.channels, whole * ((kMomentWidth + whole - 1) / whole));
  m.slices = (m.channels + m.width - 1) / m.width;
  // What the chunks of a slice found has room in one block.
  const int64_t room = kMomentChannels / (m.width / m.size);
  const int64_t apart = m.images * m.slices, most = std::min(room, m.positions * m.width / kLeast);
  const int64_t chunks = apart > kCounters ? 1 : std::min(most, 2 * device.multiprocessors / apart);
  m.each = chunks <= 1 ? m.positions : ceil_div(m.positions, chunks);
  m.chunks = m.each == 0 ? 1 : narrow(ceil_div(m.positions, m.each));
  return m;
}

inline size_t moment_bytes(const Device& device, const Ints& dims, int64_t groups, int vector) {
  const Moments m = moments_of(device, dims, groups, vector);
  return m.chunks == 1 ? 0 : static_cast<size_t>(m.images * groups * m.chunks) * sizeof(MomentPart);
}

// What a thread finds of V channels at so many positions, `step` numbers apart.
template <int V, class T>
__device__ __forceinline__ void measure(const T* x, int64_t step, int64_t positions, MomentPart* found) {
  float first[V] = {}, sum[V] = {}, squares[V] = {};
  for (int64_t done = 0; done < positions; done += kMomentAhead, x += kMomentAhead * step) {
    Vector<T, V> read[kMomentAhead];
#pragma unroll
    for (int u = 0; u < kMomentAhead; ++u) {
      if (done + u < positions) read[u] = load_whole<T, V>(x + u * step);
    }
    if (done == 0) {
#pragma unroll
      for (int v = 0; v < V; ++v) first[v] = get(read[0], v);
    }
#pragma unroll
    for (int u = 0; u < kMomentAhead; ++u) {
      if (done + u >= positions) break;
#pragma unroll
      for (int v = 0; v < V; ++v) {
        const float apart = get(read[u], v) - first[v];
        sum[v] += apart;
        squares[v] += apart * apart;
      }
    }
  }
  const float share = positions == 0 ? 0.0f : 1.0f / static_cast<float>(positions);
#pragma unroll
  for (int v = 0; v < V; ++v) {
    const float apart = sum[v] * share;
    found[v].mean = first[v] + apart;
    found[v].squares = max_nan(0.0f, squares[v] - sum[v] * apart);
  }
}

// What the rows of a block's threads found of a group's channels, each row `pitch` parts after the one before, by all lanes of a
// warp.
__device__ __forceinline__ Moment of_rows(const MomentPart* found, int size, int pitch, int rows, const MomentRows& of) {
  const int lane = threadIdx.x % 32, beside = size < 32 ? size : 32, down = 32 / beside;
  const int first = lane < down * beside ? lane / beside : rows;
  return together(found->mean, [&](auto use) {
    for (int row = first; row < rows; row += down) {
      for (int c = lane % beside; c < size; c += beside) use(Moment{found[row * pitch + c], static_cast<float>(of.number(row))});
    }
  });
}

template <int V, class T>
__device__ __forceinline__ void moments(const T* x, const Moments& m) {
  constexpr int kRows = kMomentThreads * (V + 1), kRow = kMomentChannels + 1, kParts = kRows > kRow ? kRows : kRow;
  __shared__ MomentPart found[kParts];
  const int slice = blockIdx.x % m.slices, chunk = blockIdx.x / m.slices % m.chunks;
  const int64_t image = blockIdx.x / m.slices / m.chunks;
  const int begin = slice * m.width, width = min(m.width, m.channels - begin);
  const int pitch = width + 1;  // rows in other banks
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int vectors = width / V, rows = vectors < kMomentThreads ? kMomentThreads / vectors : 1;
  const int row = vectors < kMomentThreads ? threadIdx.x / vectors : 0;
  const MomentRows of(m.length(chunk), rows);
  x += (image * m.positions + chunk * m.each) * m.channels + begin;
  for (int i = threadIdx.x - row * vectors; i < vectors && row < rows; i += kMomentThreads) {
    const T* const from = x + int64_t{row} * m.channels + i * V;
    measure<V>(from, int64_t{rows} * m.channels, of.number(row), found + row * pitch + i * V);
  }
  __syncthreads();
  for (int c = warp * m.size; c < width; c += kMomentThreads / 32 * m.size) {
    const Moment all = of_rows(found + c, m.size, pitch, rows, of);
    if (m.chunks == 1) {
      m.finish(image, begin + c, all);
    } else if (lane == 0) {
      m.part(image, begin + c)[chunk] = all;
    }
  }
  if (m.chunks == 1 || !is_last(m.done + image * m.slices + slice, m.chunks)) return;
  const int groups = width / m.size;
  const MomentPart* const parts = m.part(image, begin);
  for (int i = threadIdx.x; i < groups * m.chunks; i += kMomentThreads) {  // asked for at once
    found[i] = {__ldcg(&parts[i].mean), __ldcg(&parts[i].squares)};
  }
  __syncthreads();
  for (int g = warp; g < groups; g += kMomentThreads / 32) {
    const MomentPart* const own = found + g * m.chunks;
    m.finish(image, begin + g * m.size, together(own->mean, [&](auto use) {
      for (int i = lane; i < m.chunks; i += 32) use(Moment{own[i], static_cast<float>(m.length(i) * m.size)});
    }));
  }
}

}  // namespace fusion::gpu

// Products of few rows in fp16 and bf16 on tensor cores. The right operand, which is all there is to read, goes from memory
// to registers in whole lines and is the multiplication's left factor: 16 of its columns by 16 of its rows.
#pragma once

#include "include/cluster.cuh"
#include "include/linear.cuh"
#include "include/vector.cuh"

namespace fusion::gpu {

constexpr int kFewAlone = 8, kFewTogether = 16;  // rows at most, of a product by itself and of neighbours in one launch
constexpr size_t kFewSharedBytes = 47 * 1024;     // that a block has without asking
constexpr int kFewAhead = 256;                   // rows of the right operand that are asked for before the kernel may run

// kRows rows (8 or 16) by 16 * kWords columns. Of blocks of kWarps warps a multiprocessor has as many as make 16.
template <int kRows, int kWordsOfTile, int kWarpsOfTile = 16>
struct FewTile {
  static constexpr int kWarps = kWarpsOfTile, kThreads = 32 * kWarps, kBlocks = 16 / kWarps;
  static constexpr int kHalves = kRows / 8, kWords = kWordsOfTile, kColumns = 16 * kWords;
  static constexpr int kDeep = kWords == 4 ? 1 : 2;  // times 32 rows of B that a warp has on their way
};

// Sums of the block's warps, before they are added up: eight rows of them at a time.
template <class Tile>
struct FewSums {
  float value[Tile::kWarps][8][Tile::kColumns + 4];
};

// Words of 32 bits that nobody reads again.
template <int kWords>
__device__ __forceinline__ void stream_words(uint32_t (&to)[kWords], const void* from);
template <>
__device__ __forceinline__ void stream_words<4>(uint32_t (&to)[4], const void* from) {
  const uint4 x = __ldcs(static_cast<const uint4*>(from));
  to[0] = x.x, to[1] = x.y, to[2] = x.z, to[3] = x.w;
}
template <>
__device__ __forceinline__ void stream_words<2>(uint32_t (&to)[2], const void* from) {
  const uint2 x = __ldcs(static_cast<const uint2*>(from));
  to[0] = x.x, to[1] = x.y;
}

// Eight neighbours of a row of A from k on; zeros where there are none.
template <class T>
__device__ __forceinline__ void left_words(uint32_t (&to)[4], const T* row, int64_t k, const Product& p, bool wide,
                                           bool inside) {
  to[0] = to[1] = to[2] = to[3] = 0;
  if (!inside) return;
  if (wide && k + 8 <= p.k) {
    const uint4 x = *reinterpret_cast<const uint4*>(row + k);
    to[0] = x.x, to[1] = x.y, to[2] = x.z, to[3] = x.w;
    return;
  }
  T value[8] = {};
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    if (k + i < p.k) value[i] = row[(k + i) * p.a_k];
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    to[i] = bit_cast<uint16_t>(value[2 * i]) | static_cast<uint32_t>(bit_cast<uint16_t>(value[2 * i + 1])) << 16;
  }
}

// What a warp does at a time: 32 * kDeep rows of B, of which this lane has eight of every 32 from `k` on.
template <class T, int kHalves, int kWords, int kDeep, bool kWhole>
__device__ __forceinline__ void few_step(float (&acc)[kHalves][kWords][4], const T* const (&left)[kHalves],
                                         const bool (&inside)[kHalves], const T* b, const Product& p, int64_t k,
                                         bool wide) {
  uint32_t right[kDeep][8][kWords], x[kDeep][kHalves][4];
  const T* row = b + k * p.b_k;
#pragma unroll
  for (int d = 0; d < kDeep; ++d, row += 24 * p.b_k) {
#pragma unroll
    for (int u = 0; u < 8; ++u, row += p.b_k) {
      if (kWhole || k + d * 32 + u < p.k) {
        stream_words<kWords>(right[d][u], row);
      } else {
#pragma unroll
        for (int w = 0; w < kWords; ++w) right[d][u][w] = 0;
      }
    }
  }
#pragma unroll
  for (int d = 0; d < kDeep; ++d) {
#pragma unroll
    for (int h = 0; h < kHalves; ++h) left_words(x[d][h], left[h], k + d * 32, p, wide, inside[h]);
  }
#pragma unroll
  for (int d = 0; d < kDeep; ++d) {
#pragma unroll
    for (int s = 0; s < 2; ++s) {
      const auto& r = right[d];
#pragma unroll
      for (int w = 0; w < kWords; ++w) {
        const uint32_t columns[4] = {
            __byte_perm(r[4 * s][w], r[4 * s + 1][w], 0x5410), __byte_perm(r[4 * s][w], r[4 * s + 1][w], 0x7632),
            __byte_perm(r[4 * s + 2][w], r[4 * s + 3][w], 0x5410),
            __byte_perm(r[4 * s + 2][w], r[4 * s + 3][w], 0x7632)};
#pragma unroll
        for (int h = 0; h < kHalves; ++h) multiply_add<T>(acc[h][w], columns, x[d][h][2 * s], x[d][h][2 * s + 1]);
      }
    }
  }
}

// The sums of a strip: of its `warps` warps this one takes every so many-th step down B, as number `walker`.
template <class Tile, class Operands>
__device__ __forceinline__ void few_sums(float (&acc)[Tile::kHalves][Tile::kWords][4], const Operands& x, int64_t strip,
                                         int walker, int warps) {
  using T = std::remove_const_t<std::remove_pointer_t<decltype(x.a)>>;
  constexpr int kHalves = Tile::kHalves, kWords = Tile::kWords, kDeep = Tile::kDeep;
  const Product& p = x.p;
  const int lane = threadIdx.x % 32, group = lane / 4, place = lane % 4;
  const int64_t column = strip * Tile::kColumns + group * 2 * kWords;
  const T* const b = x.b + (column < p.n ? column : 0);
  const bool wide = p.a_k == 1 && p.a_row % 8 == 0 && reinterpret_cast<uintptr_t>(x.a) % 16 == 0;
  const T* left[kHalves];
  bool inside[kHalves];
#pragma unroll
  for (int h = 0; h < kHalves; ++h) {
    inside[h] = group + 8 * h < p.m;
    left[h] = x.a + (inside[h] ? group + 8 * h : 0) * p.a_row;
  }
  const int64_t step = 32 * kDeep;
  int64_t k = walker * step;
  for (; k + step <= p.k; k += warps * step) {
    few_step<T, kHalves, kWords, kDeep, true>(acc, left, inside, b, p, k + 8 * place, wide);
  }
  const int64_t end = k + step < p.k ? k + step : p.k;
#pragma unroll 1
  for (; k < end; k += 32) few_step<T, kHalves, kWords, 1, false>(acc, left, inside, b, p, k + 8 * place, wide);
}

// Leaves a warp's sums of eight rows where all threads may then read them.
template <class Tile>
__device__ __forceinline__ void few_share(const float (&acc)[Tile::kWords][4], FewSums<Tile>& sums) {
  const int lane = threadIdx.x % 32;
  auto& own = sums.value[threadIdx.x / 32];
#pragma unroll
  for (int w = 0; w < Tile::kWords; ++w) {
#pragma unroll
    for (int e = 0; e < 4; ++e) own[lane % 4 * 2 + e % 2][lane / 4 * 2 * Tile::kWords + 2 * w + e / 2] = acc[w][e];
  }
  __syncthreads();
}

// Sums of eight rows of each of kCount products that the first block of a cluster has from the others, of which there may
// be kParts with it: with more of them products take longer than without.
template <class Tile, int kCount>
struct FewSent {
  using Sums = float[8][Tile::kColumns];
  static constexpr size_t kBytes = sizeof(Sums) * Tile::kHalves * kCount, kRoom = kFewSharedBytes - sizeof(FewSums<Tile>);
  static constexpr int kMost = kMostParts < 3 ? kMostParts : 3;
  static constexpr int kParts = kRoom / kBytes + 1 < kMost ? static_cast<int>(kRoom / kBytes) + 1 : kMost;
  alignas(16) Sums value[kParts > 1 ? kParts - 1 : 1][Tile::kHalves][kCount];
};

// Sends the first block of the cluster the sums of eight rows of a strip, of which `warps` warps from `first` on have parts.
template <class Tile>
__device__ __forceinline__ void few_send(int first, int warps, const FewSums<Tile>& sums, float (&to)[8][Tile::kColumns],
                                         Mailbox& mail) {
  constexpr int kFours = Tile::kColumns / 4;
  for (int i = threadIdx.x; i < 8 * kFours; i += Tile::kThreads) {
    const int r = i / kFours, c = i % kFours * 4;
    Chunk<float, 4> sum{};
    for (int w = 0; w < warps; ++w) {
#pragma unroll
      for (int e = 0; e < 4; ++e) sum.element[e] += sums.value[first + w][r][c + e];
    }
    mail.send(&to[r][c], 0, sum);
  }
}

// The epilogue of eight rows of a strip from `row` on, of which `warps` warps from `first` on have the sums, to which come
// `sent(row, column)`; called by the same thread for the same element of equally wide products.
template <class Tile, class Operands, class Sent>
__device__ __forceinline__ void few_epilogue(const Operands& x, int64_t strip, int row, int first, int warps,
                                             const FewSums<Tile>& sums, const Sent& sent) {
  typename decltype(x.batches)::Places at;
  x.batches.locate(0, at);
  const int rows = min(static_cast<int>(x.p.m) - row, 8);
  for (int i = threadIdx.x; i < rows * Tile::kColumns; i += Tile::kThreads) {
    const int r = i / Tile::kColumns, c = i % Tile::kColumns;
    const int64_t column = strip * Tile::kColumns + c;
    float sum = 0.0f;
    for (int w = 0; w < warps; ++w) sum += sums.value[first + w][r][c];
    sum += sent(r, c);
    if (column < x.p.n) x.epilogue(at, 0, row + r, column, x.p.alpha * sum);
  }
}

// Has the second-level cache ask for rows of a strip from `first` on. What earlier kernels write may change them still.
template <class Tile, class Operands>
__device__ __forceinline__ void few_ahead(const Operands& x, int64_t strip, int first) {
#if FUSION_OVERLAPS && defined(__CUDA_ARCH__)
  const int64_t column = strip * Tile::kColumns, k = first + threadIdx.x;
  const uint32_t bytes = static_cast<uint32_t>(min(x.p.n - column, int64_t{Tile::kColumns})) * 2;
  if (threadIdx.x < kFewAhead && k < x.p.k) {
    asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;\n" ::"l"(x.b + k * x.p.b_k + column), "r"(bytes) : "memory");
  }
#endif
}

// A whole kernel, but for which strip of which chain: the block's warps are dealt out to the products of the chain, and the
// `parts` blocks of a cluster take turns at what is left of them. Chains have up to kMostCount products.
// `Operands` have a, b, p, batches and the epilogue, which may read what those before it in the chain stored.
template <class Tile, int kMostCount, class... Operands>
__device__ __forceinline__ void few_chain(int64_t strip, int parts, const Operands&... x) {
  constexpr int kCount = sizeof...(Operands), kEach = Tile::kWarps / kCount;
  static_assert(kEach > 0, "more products than warps");
  using Sent = FewSent<Tile, kMostCount>;
  __shared__ FewSums<Tile> sums;
  __shared__ Sent sent;
  __shared__ Mailbox mail;
  const int part = static_cast<int>(blockIdx.x) % parts;
  if (parts > 1) {
    constexpr int kBytes = static_cast<int>(sizeof(typename Sent::Sums)) * Tile::kHalves * kCount;
    if (threadIdx.x == 0 && part == 0) mail.open((parts - 1) * kBytes);
    __syncwarp();
    Mailbox::opened();
  }
  (few_ahead<Tile>(x, strip, part * kEach * 32 * Tile::kDeep), ...);
  await_earlier();
  const int product = static_cast<int>(threadIdx.x) / 32 / kEach, walker = static_cast<int>(threadIdx.x) / 32 % kEach;
  float acc[Tile::kHalves][Tile::kWords][4] = {};
  int n = 0;
  ((n++ == product ? few_sums<Tile>(acc, x, strip, part * kEach + walker, kEach * parts) : void()), ...);
  if (parts > 1) Mailbox::await_others();
#pragma unroll
  for (int h = 0; h < Tile::kHalves; ++h) {
    if (h > 0) __syncthreads();  // all have read the rows before
    few_share<Tile>(acc[h], sums);
    if (h == 0) let_next_begin();
    if (part > 0) {
      for (n = 0; n < kCount; ++n) few_send<Tile>(kEach * n, kEach, sums, sent.value[part - 1][h][n], mail);
      continue;
    }
    if (parts > 1 && h == 0) mail.await_all();
    n = 0;
    const auto end = [&](const auto& y) {
      few_epilogue<Tile>(y, strip, h * 8, kEach * n, kEach, sums, [&](int r, int c) {
        float sum = 0.0f;
        for (int p = 1; p < parts; ++p) sum += sent.value[p - 1][h][n][r][c];
        return sum;
      });
      ++n;
    };
    (end(x), ...);
  }
}

template <class Tile>
__host__ __device__ __forceinline__ int64_t few_strips(const Product& p) {
  return (p.n + Tile::kColumns - 1) / Tile::kColumns;
}

// Calls `use` with the tile for so many rows and columns in one launch, where chains have kCount products, and with how many
// blocks have a strip together: strips that fill the multiprocessors, of whole lines of memory where that takes no more.
// Measured on an H200, one or two rows: 12288 columns by 4096 in 26.2 us by blocks of 8 warps for 29.7 by 16, 16384 in 31.4
// for 33.1, 4608 by 3584 in 11.9 by three of 8 warps for 13.1; 5504 by 2048 in 8.7 by two of 16 for 10.3 by one, in 11.0
// where two have strips of whole lines; 3584 by 3584 in 9.6 for 11.5 by four of 8 with whole lines, 4096 by 16384 in 32.4
// by two of 16 for 47 by four of 8.
template <int kCount, class Use>
void with_few_tile(const Device& device, int64_t rows, int64_t columns, int64_t depth, const Use& use) {
  constexpr int64_t kDeepFrom = 8192;
  const int64_t fill = columns / device.multiprocessors;
  const auto with = [&](auto most) {
    constexpr int kRows = decltype(most)::value;
    using Lines = FewTile<kRows, 4>;
    if (fill >= 32 && kCount == 1) {
      using Small = FewTile<kRows, 4, 8>;
      constexpr int64_t kMost = FewSent<Small, 1>::kParts;
      const int64_t parts = int64_t{Small::kBlocks} * device.multiprocessors / ceil_div(columns, Small::kColumns);
      return use(Small(), static_cast<int>(parts < 1 ? 1 : parts < kMost ? parts : kMost));
    }
    if (fill >= 32) return use(Lines(), 1);
    if (fill < 16) return use(FewTile<kRows, 2>(), kMostParts > 1 ? 2 : 1);
    if (depth >= kDeepFrom && FewSent<Lines, kCount>::kParts > 1) return use(Lines(), 2);
    use(FewTile<kRows, 2>(), 1);
  };
  rows <= 8 ? with(std::integral_constant<int, 8>()) : with(std::integral_constant<int, 16>());
}

// Whether strips of a product by itself are as many as blocks that run at once, or nearly so.
inline bool few_fill(const Device& device, const Product& p) {
  bool fill = false;
  with_few_tile<1>(device, p.m, p.n, p.k, [&](auto tile, int) {
    using Tile = decltype(tile);
    const int64_t strips = few_strips<Tile>(p), places = int64_t{Tile::kBlocks} * device.multiprocessors;
    fill = strips <= places && strips * 20 >= places * 19;
  });
  return fill;
}

}  // namespace fusion::gpu

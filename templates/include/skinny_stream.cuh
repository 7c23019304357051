// Products of few rows on Hopper: the copy engine keeps a multiprocessor's shared memory full of what comes next of the right
// operands, which are all there is to read, and every block has the same share of it, wherever that begins and ends.
#pragma once

#include "include/skinny_tensor.cuh"
#include "include/wide_tile.cuh"
#include "include/workspace.cuh"

#if FUSION_HOPPER
namespace fusion::gpu {

// What a block sums up at a time: kRows rows (8 or 16) by 64 * kPanels columns of each of kProducts products. A step is 64
// rows of the right operands.
template <int kRows_, int kPanels_, int kProducts_>
struct StreamTile {
  static constexpr int kRows = kRows_, kPanels = kPanels_, kProducts = kProducts_, kColumns = kPanel * kPanels;
  static constexpr int kAcross = kColumns * kProducts, kBoxes = kAcross / kPanel, kBoxBytes = kPanel * kPanel * 2;
  static constexpr int kLeftBytes = kRows * kPanel * 2, kSlotBytes = kLeftBytes + kBoxes * kBoxBytes;
  static constexpr int kPitch = kAcross + 4, kSumBytes = kRows * kPitch * 4;
  static constexpr int kSlots = (226 * 1024 - 1024 - kSumBytes) / kSlotBytes;
  static constexpr int kBytes = 1024 + kSumBytes + kSlots * kSlotBytes;
  static constexpr int kThreads = kWarpgroup + 32;  // one warpgroup multiplies, one thread copies
  static_assert(kAcross <= 256);
};

// Steps of all strips in a row, strip by strip, of which every block has the same number.
struct StreamShares {
  float* parts;
  unsigned* done;  // zeros between launches
  int steps, total;

  __device__ __forceinline__ int begin(unsigned block) const {
    return static_cast<int>(int64_t{total} * block / gridDim.x);
  }
  __device__ __forceinline__ int owner(int step) const {
    return static_cast<int>(((int64_t{step} + 1) * gridDim.x - 1) / total);
  }
};

// Where a strip lies.
template <class Tile>
struct StreamStrip {
  int column, chain = 0;
  template <int kChains>
  __device__ __forceinline__ StreamStrip(const WideOperands<Tile::kProducts, kChains>& x, int strip) {
    column = strip * Tile::kColumns;
#pragma unroll
    for (int c = 0; c + 1 < kChains; ++c) {
      const int width = (x.columns[c] + Tile::kColumns - 1) / Tile::kColumns * Tile::kColumns;
      if (chain < c || column < width) continue;
      column -= width;
      ++chain;
    }
  }
};

// One thread: has the copy engine fill the ring with the block's share.
template <class Tile, int kChains>
__device__ __forceinline__ void stream_copies(const WideOperands<Tile::kProducts, kChains>& x, const StreamShares& shares,
                                              uint32_t ring, Barrier* full, Barrier* empty) {
  constexpr unsigned kSlots = Tile::kSlots;
  const int begin = shares.begin(blockIdx.x), count = shares.begin(blockIdx.x + 1) - begin;
  const auto left = [&](int n) {
    const uint32_t slot = n % kSlots;
    copy_box(ring + slot * Tile::kSlotBytes, x.left, full[slot], (begin + n) % shares.steps * kPanel, 0);
  };
  const auto right = [&](int n) {
    const uint32_t slot = n % kSlots, to = ring + slot * Tile::kSlotBytes + Tile::kLeftBytes;
    const StreamStrip<Tile> at(x, (begin + n) / shares.steps);
    const int row = (begin + n) % shares.steps * kPanel;
    full[slot].arrive_expecting(Tile::kSlotBytes);
#pragma unroll
    for (int i = 0; i < Tile::kBoxes; ++i) {
      copy_box(to + i * Tile::kBoxBytes, x.right[at.chain][i / Tile::kPanels], full[slot],
               at.column + i % Tile::kPanels * kPanel, row);
    }
  };
  const int first = min(count, Tile::kSlots);
  if (!x.early) await_earlier();
  for (int n = 0; n < first; ++n) right(n);
  if (x.early) await_earlier();
  for (int n = 0; n < first; ++n) left(n);
  for (int n = first; n < count; ++n) {
    empty[n % kSlots].wait((n - kSlots) / kSlots % 2);
    right(n);
    left(n);
  }
  let_next_begin();  // a multiprocessor has no room for two blocks: the next ones come evenly, where these have ended
}

// Calls the epilogues of a strip's products with its sums, each thread for elements of its own, product by product.
template <class Tile, class Operands>
__device__ __forceinline__ void stream_epilogue(const Operands& x, int column, int product, const float* sums) {
  int64_t at[sizeof(x.batches.stride) / sizeof(x.batches.stride[0])];
  x.batches.locate(0, at);
  for (int i = threadIdx.x; i < static_cast<int>(x.p.m) * Tile::kColumns; i += kWarpgroup) {
    const int r = i / Tile::kColumns, c = i % Tile::kColumns;
    if (column + c < x.p.n) {
      x.epilogue(at, 0, r, column + c, x.p.alpha * sums[r * Tile::kPitch + product * Tile::kColumns + c]);
    }
  }
}

// Where blocks share a strip, each leaves its sums, and the last one adds them up in their order. False for the others.
template <class Tile>
__device__ __forceinline__ bool stream_join(const StreamShares& shares, int strip, int rows, float* sums) {
  const int first = shares.owner(strip * shares.steps), last = shares.owner((strip + 1) * shares.steps - 1);
  if (first == last) return true;
  // A block's share may begin in one strip that others have begun, and end in another that it begins.
  const int size = rows * Tile::kAcross, block = static_cast<int>(blockIdx.x);
  const auto part = [&](int b) { return shares.parts + int64_t{2 * b + (b == first)} * size; };
  for (int i = threadIdx.x; i < size; i += kWarpgroup) {
    part(block)[i] = sums[i / Tile::kAcross * Tile::kPitch + i % Tile::kAcross];
  }
  __threadfence();
  sync_threads(1, kWarpgroup);
  const unsigned others = static_cast<unsigned>(last - first);
  __shared__ bool is_last;
  if (threadIdx.x == 0) is_last = atomicInc(shares.done + first, others) == others;
  sync_threads(1, kWarpgroup);
  if (!is_last) return false;
  __threadfence();
  for (int i = threadIdx.x; i < size; i += kWarpgroup) {
    float sum = 0.0f;
#pragma unroll 4
    for (int b = first; b <= last; ++b) sum += __ldcg(part(b) + i);
    sums[i / Tile::kAcross * Tile::kPitch + i % Tile::kAcross] = sum;
  }
  return true;
}

// A warpgroup: multiplies what comes. `hand_on(strip, sums)` takes the sums of a strip that is complete.
template <class T, class Tile, class HandOn>
__device__ __forceinline__ void stream_products(const StreamShares& shares, int rows, uint32_t ring, float* sums,
                                                Barrier* full, Barrier* empty, const HandOn& hand_on) {
  using Product = WarpgroupProduct<T, Tile::kAcross>;
  constexpr unsigned kSlots = Tile::kSlots;
  const int begin = shares.begin(blockIdx.x), end = shares.begin(blockIdx.x + 1), lane = threadIdx.x % 32;
  const auto release = [&](unsigned n) {
    if (lane == 0) empty[n % kSlots].arrive();
  };
  unsigned n = 0;
  for (int t = begin; t < end;) {
    const int strip = t / shares.steps, stop = min((strip + 1) * shares.steps, end), first = t;
    float c[Tile::kAcross / 8][4];
    for (; t < stop; ++t, ++n) {
      const uint32_t left = ring + n % kSlots * Tile::kSlotBytes, right = left + Tile::kLeftBytes;
      full[n % kSlots].wait(n / kSlots % 2);
      products_of(c);
      products_begin();
      // Of the 64 rows of a product's left operand the first ones count; what lies behind them is multiplied in vain.
#pragma unroll
      for (int k = 0; k < kPanel; k += 16) {
        Product::by_columns(c, panel(left + k * 2), panel(right + k * 128, Tile::kBoxBytes), t > first || k > 0);
      }
      products_commit();
      if (t > first) {
        products_wait<1>();
        release(n - 1);
      }
    }
    products_wait<0>();
    products_of(c);
    release(n - 1);
    if (threadIdx.x < 32) {
#pragma unroll
      for (int j = 0; j < Tile::kAcross / 8; ++j) {
#pragma unroll
        for (int e = 0; e < (Tile::kRows > 8 ? 4 : 2); ++e) {
          sums[(lane / 4 + e / 2 * 8) * Tile::kPitch + j * 8 + lane % 4 * 2 + e % 2] = c[j][e];
        }
      }
    }
    sync_threads(1, kWarpgroup);
    if (stream_join<Tile>(shares, strip, rows, sums)) {
      sync_threads(1, kWarpgroup);
      hand_on(strip, sums);
    }
    sync_threads(1, kWarpgroup);
  }
}

// A whole kernel. Operands, those of a chain one after the other, have batches, p and the epilogue, which may read what those
// before it in the chain stored.
template <class T, class Tile, int kChains, class... Operands>
__device__ __forceinline__ void few_stream(const WideOperands<Tile::kProducts, kChains>& x, const StreamShares& shares,
                                           const Operands&... operands) {
  static_assert(sizeof...(operands) == kChains * Tile::kProducts);
  extern __shared__ uint4 dynamic[];
  const uint32_t ring = (shared_address(dynamic) + 1023) / 1024 * 1024;
  float* const sums = reinterpret_cast<float*>(reinterpret_cast<unsigned char*>(dynamic) + (ring - shared_address(dynamic)) +
                                               Tile::kSlots * Tile::kSlotBytes);
  __shared__ Barrier full[Tile::kSlots], empty[Tile::kSlots];
  if (threadIdx.x == kWarpgroup) {
    for (int i = 0; i < Tile::kSlots; ++i) full[i].init(1), empty[i].init(kWarpgroup / 32);
    publish_barriers();
  }
  __syncthreads();
  if (threadIdx.x >= kWarpgroup) {
    if (threadIdx.x == kWarpgroup) stream_copies<Tile>(x, shares, ring, full, empty);
    return;
  }
  await_earlier();
  stream_products<T, Tile>(shares, x.rows, ring, sums, full, empty, [&](int strip, const float* found) {
    const StreamStrip<Tile> at(x, strip);
    int n = 0;
    const auto each = [&](const auto& y) {
      if (n / Tile::kProducts == at.chain) stream_epilogue<Tile>(y, at.column, n % Tile::kProducts, found);
      ++n;
    };
    (each(operands), ...);
  });
}

// Bytes of right operands from which on the kernel is the faster one. Measured on an H200, one row: gate and up of 271 MB 65.7
// us for 76.1, 136 MB 37.3 for 37.0, gate and up of 45 MB 14.1 for 14.5, 26 MB 11.7 for 8.9: blocks that share a strip take
// some 4 us in the end. 16 rows of 271 MB 81.4 for 83.6. A build may ask for another number.
#ifndef FUSION_STREAM_FROM
#define FUSION_STREAM_FROM 200000000
#endif

// Describes what products are made of, of which each `is_skinny`, those of a chain one after the other. False where they are
// small, or the copy engine does not take them.
template <class Tile, int kChains, class First, class... Others>
bool describe_stream(WideOperands<Tile::kProducts, kChains>& x, StreamShares& shares, const First& first, const Others&... others) {
  const Product& p = first.p;
  const int64_t stride = p.m == 1 ? ceil_div(p.k, 8) * 8 : p.a_row;
  if ((first.p.n + ... + others.p.n) * p.k * 2 < int64_t{FUSION_STREAM_FROM}) return false;
  if (p.k == 0 || p.k > INT32_MAX / 2 || p.a_k != 1 || !describe(x.left, first.a, p.m, p.k, stride, Tile::kRows)) return false;
  x.rows = static_cast<int>(p.m), x.depth = static_cast<int>(p.k);
  int n = 0;
  int64_t strips = 0;
  const auto right = [&](const auto& y) {
    const int chain = n / Tile::kProducts, product = n++ % Tile::kProducts;
    if (y.p.n > INT32_MAX / 2) return false;
    if (product == 0) x.columns[chain] = static_cast<int>(y.p.n), strips += ceil_div(y.p.n, Tile::kColumns);
    return describe(x.right[chain][product], y.b, y.p.k, y.p.n, y.p.b_k, kPanel, kPromote128);
  };
  if (!(right(first) && ... && right(others))) return false;
  shares.steps = static_cast<int>(ceil_div(p.k, kPanel));
  if (strips > INT32_MAX / shares.steps) return false;
  shares.total = static_cast<int>(strips) * shares.steps;
  return true;
}

// Calls f with the tiles that are compiled in for products of so many rows at most.
template <int kProducts, int kMostRows, class F>
void for_stream_tiles(const F& f) {
  f(StreamTile<8, kProducts == 1 ? 2 : 1, kProducts>{});
  if constexpr (kMostRows > 8) f(StreamTile<16, kProducts == 1 ? 2 : 1, kProducts>{});
}

inline unsigned stream_blocks(const Device& device, const StreamShares& shares) {
  const int most = device.multiprocessors < kCounters ? device.multiprocessors : kCounters;
  return static_cast<unsigned>(shares.total < most ? shares.total : most);
}

}  // namespace fusion::gpu
#endif

namespace fusion::gpu {

// Workspace for the sums of blocks that share a strip of a product with results of these dimensions.
inline size_t stream_part_bytes(const Device& device, const Ints& dims) {
  const int64_t rows = dims.back() > 0 ? count(dims) / dims.back() : 0;
  constexpr int64_t kMostAcross = 256;
  return rows > kFewTogether ? 0 : static_cast<size_t>(2 * device.multiprocessors * rows * kMostAcross) * sizeof(float);
}

}  // namespace fusion::gpu

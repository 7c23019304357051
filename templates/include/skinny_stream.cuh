// Products of few rows on Hopper: the copy engine fills a multiprocessor's shared memory with what comes next of the right
// operands, which are all there is to read, and every block has the same share of it, wherever that begins and ends.
#pragma once

#include "include/blocks.cuh"
#include "include/skinny_tensor.cuh"
#include "include/stream_shares.cuh"
#include "include/wgmma.cuh"
#include "include/wide_tile.cuh"

#if FUSION_HOPPER
namespace fusion::gpu {

// One warpgroup multiplies; two more warps have the copy engine bring what it multiplies.
constexpr int kStreamThreads = kWarpgroup + 64, kRightWarp = 4, kLeftWarp = 5;
// Slots of right operands that are on their way at once: while what is before a phase is still computed, and where they are what
// is waited for. Whatever else a multiprocessor reads or writes comes behind them. Measured on an H200, a model of two layers of
// 466 MB at one row, in a graph: 254.0 us with these; 256.5 with three early, 255.7 and 257.8 with five and six at most.
constexpr unsigned kStreamEarly = 2, kStreamMost = 4;
constexpr int kStreamPairs = 16 * kPanel;  // of sums that a block may leave for another

// What a block sums up at a time: kRows rows (8 or 16) by 128 columns, of one product or half of each of two, by 64 rows of the
// right operands: a step.
template <int kRows_>
struct StreamTile {
  static constexpr int kRows = kRows_, kAcross = 2 * kPanel;
  static constexpr int kBoxes = 2, kBoxBytes = kPanel * kPanel * 2;
  static constexpr int kLeftBytes = kRows * kPanel * 2, kSlotBytes = kLeftBytes + kBoxes * kBoxBytes;
  static constexpr int kPitch = kAcross + 4, kSumBytes = kRows * kPitch * 4;
  static constexpr int kSlots = (220 * 1024 - 1024 - kSumBytes) / kSlotBytes;
  static constexpr int kBytes = 1024 + kSumBytes + kSlots * kSlotBytes;
};

template <int kProducts, int kChains>
struct StreamOperands : WideOperands<kProducts, kChains> {
  StreamShares shares;
};

// A phase's products for code that all phases have in common: kernels with many of them are slowed by what of their instructions
// has to come from memory.
struct StreamView {
  StreamShares shares{};
  const TensorMap *left = nullptr, *right = nullptr;  // of right ones `products` of each of `chains`
  const int* widths = nullptr;
  int products = 1, chains = 1;

  StreamView() = default;
  template <int kProducts, int kChains>
  explicit __device__ __forceinline__ StreamView(const StreamOperands<kProducts, kChains>& x)
      : shares(x.shares), left(&x.left), right(x.right[0]), widths(x.columns), products(kProducts), chains(kChains) {}
};

// Where a strip lies.
struct StreamStrip {
  int column, chain = 0;
  __device__ __forceinline__ StreamStrip(const StreamView& x, int across, int strip) : column(strip * across) {
#pragma unroll 1
    for (; chain + 1 < x.chains; ++chain) {
      const int width = (x.widths[chain] + across - 1) / across * across;
      if (column < width) break;
      column -= width;
    }
  }
};

// A multiprocessor's shared memory, which is filled slot by slot, and how often it has been so far, with whatever products.
template <class Tile>
struct StreamRing {
  static constexpr unsigned kSlots = Tile::kSlots;
  uint32_t base;
  Barrier *left, *right, *empty;
  Barrier* begun;  // of each phase: its left operand is there
  unsigned n = 0;

  __device__ __forceinline__ uint32_t slot() const { return base + n % kSlots * Tile::kSlotBytes; }
  // Whoever fills a slot: once what was there has been used.
  __device__ __forceinline__ void await_free() const {
    if (n >= kSlots) empty[n % kSlots].wait((n / kSlots - 1) % 2);
  }
  __device__ __forceinline__ void await_filled() const {
    right[n % kSlots].wait(n / kSlots % 2);
    left[n % kSlots].wait(n / kSlots % 2);
  }
  __device__ __forceinline__ void release(unsigned used) const {
    if (threadIdx.x % 32 == 0) empty[used % kSlots].arrive();
  }
};

// One thread: has the copy engine bring the block's share of the right operands of a phase.
template <class Tile>
__device__ __forceinline__ void stream_right(const StreamView& x, StreamPath path, int phase, StreamRing<Tile>& ring) {
  const int across = Tile::kAcross / x.products;
#pragma unroll 1
  for (int step = 0; step < path.count; ++step, ++ring.n) {
    const int row = path.row_of(step);
    const StreamStrip at(x, across, path.strip);
    ring.await_free();
    const unsigned most = ring.begun[phase].has_passed(0) ? kStreamMost : kStreamEarly;
    if (ring.n >= most) ring.right[(ring.n - most) % Tile::kSlots].wait((ring.n - most) / Tile::kSlots % 2);
    Barrier& arrived = ring.right[ring.n % Tile::kSlots];
    arrived.arrive_expecting(Tile::kBoxes * Tile::kBoxBytes);
#pragma unroll
    for (int i = 0; i < Tile::kBoxes; ++i) {
      const int product = x.products > 1 ? i : 0, column = at.column + (x.products > 1 ? 0 : i * kPanel);
      copy_box(ring.slot() + Tile::kLeftBytes + i * Tile::kBoxBytes, x.right[at.chain * x.products + product], arrived,
               column, row * kPanel, true);
    }
  }
}

// Another: the left operand, which may be there later.
template <class Tile>
__device__ __forceinline__ void stream_left(const StreamView& x, StreamPath path, StreamRing<Tile>& ring) {
#pragma unroll 1
  for (int step = 0; step < path.count; ++step, ++ring.n) {
    const int row = path.row_of(step);
    ring.await_free();
    Barrier& arrived = ring.left[ring.n % Tile::kSlots];
    arrived.arrive_expecting(Tile::kLeftBytes);
    copy_box(ring.slot(), *x.left, arrived, row * kPanel, 0);
  }
}

// Hands the sums of a strip on to the epilogue of a chain (see wide_epilogue.cuh), which where they are `mine` reads its operands
// before `join` has them all. False where another block does that.
template <class Tile, int kProducts, class Epilogue, class Join>
__device__ __forceinline__ bool stream_epilogue(const Epilogue& epilogue, int rows, int columns, int column, const float* sums,
                                                bool mine, const Join& join) {
  constexpr int kColumns = Tile::kAcross / kProducts, kEights = kColumns / 8;
  const int items = rows * kEights;
  const auto row = [&](int i) { return i / kEights; };
  const auto across = [&](int i) { return column + i % kEights * 8; };
  typename Epilogue::Operands x;
  const auto fetch = [&](int i) {
    if (i < items && across(i) < columns) epilogue.fetch(x, row(i), across(i));
  };
  if (mine) fetch(threadIdx.x);
  if (!join()) return false;
  sync_threads(1, kWarpgroup);
#pragma unroll 1
  for (int i = threadIdx.x; i < items; i += kWarpgroup) {
    if (i >= kWarpgroup) fetch(i);
    float eights[kProducts][8];
#pragma unroll
    for (int p = 0; p < kProducts; ++p) {
#pragma unroll
      for (int e = 0; e < 8; ++e) eights[p][e] = sums[row(i) * Tile::kPitch + p * kColumns + i % kEights * 8 + e];
    }
    epilogue.spread(x);
    epilogue.store(row(i), across(i), across(i) < columns, eights, x);
  }
  return true;
}

// Where the blocks from `first` to `last` share a strip, the first of them, which comes to it last, adds up what the others have
// left, in their order. False for the others. `parts`: of all blocks. What a thread reads of up to kOthers blocks for kItems pairs
// of sums is on its way at once: on an H200 16 rows of 16384 by 4096 take 37.5 us for 40.0 with one pair; at few rows a thread has
// no more.
template <class Tile>
__device__ __forceinline__ bool stream_join(int first, int last, int rows, Tagged* parts, uint32_t tag, float* sums) {
  constexpr int kPairs = Tile::kAcross / 2, kItems = Tile::kRows > 8 ? 4 : 1, kOthers = kItems > 1 ? 3 : 6;
  static_assert(Tile::kRows * kPairs % (kItems * kWarpgroup) == 0, "what is added past the rows lies in the tile");
  const int block = static_cast<int>(blockIdx.x), items = rows * kPairs;
  const auto pair = [&](int i) -> Chunk<float, 2>& {
    return *reinterpret_cast<Chunk<float, 2>*>(sums + i / kPairs * Tile::kPitch + i % kPairs * 2);
  };
  if (block > first) {
#pragma unroll 1
    for (int i = threadIdx.x; i < items; i += kWarpgroup) {
      parts[block * kStreamPairs + i].leave(pair(i).element[0], pair(i).element[1], tag);
    }
    return false;
  }
#pragma unroll 1
  for (int from = threadIdx.x; first < last && from < items; from += kItems * kWarpgroup) {
#pragma unroll 1
    for (int begin = first + 1; begin <= last; begin += kOthers) {
      Tagged found[kItems][kOthers];
      bool there;
      do {
        there = true;
#pragma unroll
        for (int n = 0; n < kItems; ++n) {
#pragma unroll
          for (int u = 0; u < kOthers; ++u) {
            const int i = min(from + n * kWarpgroup, items - 1);
            found[n][u] = parts[min(begin + u, last) * kStreamPairs + i].look();
          }
        }
#pragma unroll
        for (const auto& item : found) {
#pragma unroll
          for (const Tagged& y : item) there = there && y.has(tag);
        }
      } while (!there);
#pragma unroll
      for (int n = 0; n < kItems; ++n) {
        auto& [a, b] = pair(from + n * kWarpgroup).element;
#pragma unroll
        for (int u = 0; u < kOthers; ++u) {
          if (begin + u <= last) a += bit_cast<float>(found[n][u].first), b += bit_cast<float>(found[n][u].second);
        }
      }
    }
  }
  return true;
}

// A warpgroup: multiplies what comes in so many steps. Leaves the sums, [row][column], where all its threads may read them.
template <class T, class Tile>
__device__ __forceinline__ void stream_sums(int steps, StreamRing<Tile>& ring, float* sums) {
  using Product = WarpgroupProduct<T, Tile::kRows>;
  constexpr int kHalves = Tile::kRows / 8;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  float c[Tile::kBoxes][kHalves][4];
  const auto settle = [&] {
#pragma unroll
    for (int i = 0; i < Tile::kBoxes; ++i) products_of(c[i]);
  };
#pragma unroll 1
  for (int t = 0; t < steps; ++t, ++ring.n) {
    const uint64_t left = panel(ring.slot()), right = further(left, Tile::kLeftBytes);
    ring.await_filled();
    settle();
    products_begin();
#pragma unroll
    for (int k = 0; k < kPanel; k += 16) {
#pragma unroll
      for (int i = 0; i < Tile::kBoxes; ++i) {
        Product::template add<true, false>(c[i], further(right, i * Tile::kBoxBytes + k * 128), further(left, k * 2), t > 0 || k > 0);
      }
    }
    products_commit();
    if (t > 0) {
      products_wait<1>();
      ring.release(ring.n - 1);
    }
  }
  products_wait<0>();
  settle();
  ring.release(ring.n - 1);
#pragma unroll
  for (int i = 0; i < Tile::kBoxes; ++i) {
#pragma unroll
    for (int h = 0; h < kHalves; ++h) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int row = h * 8 + lane % 4 * 2 + e % 2, column = i * kPanel + warp * 16 + lane / 4 + e / 2 * 8;
        sums[row * Tile::kPitch + column] = c[i][h][e];
      }
    }
  }
  sync_threads(1, kWarpgroup);
}

// Describes what products are made of for so many blocks, each `is_skinny`, those of a chain one after the other. False where the copy
// engine does not take them.
template <int kRows, int kProducts, int kChains, class First, class... Others>
bool describe_stream(StreamOperands<kProducts, kChains>& x, unsigned blocks, const First& first, const Others&... others) {
  constexpr int kColumns = StreamTile<kRows>::kAcross / kProducts;
  const Product& p = first.p;
  const int64_t stride = p.m == 1 ? ceil_div(p.k, 8) * 8 : p.a_row;
  if (p.k == 0 || p.k > INT32_MAX / 2 || p.a_k != 1 || !describe(x.left, first.a, p.m, p.k, stride, kRows)) return false;
  x.rows = static_cast<int>(p.m), x.depth = static_cast<int>(p.k);
  int n = 0;
  int64_t strips = 0;
  const auto right = [&](const auto& y) {
    const int chain = n / kProducts, product = n++ % kProducts;
    if (y.p.n > INT32_MAX / 2) return false;
    if (product == 0) x.columns[chain] = static_cast<int>(y.p.n), strips += ceil_div(y.p.n, kColumns);
    return describe(x.right[chain][product], y.b, y.p.k, y.p.n, y.p.b_k, kPanel, kPromote128);
  };
  if (!(right(first) && ... && right(others))) return false;
  const int steps = static_cast<int>(ceil_div(p.k, kPanel));
  if (strips > INT32_MAX / steps) return false;
  x.shares = StreamShares(steps, static_cast<int>(strips), blocks);
  return true;
}

}  // namespace fusion::gpu
#endif

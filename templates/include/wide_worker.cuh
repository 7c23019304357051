// What a group of warps does that multiplies tiles on Hopper's tensor cores, step by step as the copy engine brings them, and hands the
// sums on to generated epilogues.
#pragma once

#include "include/wgmma.cuh"
#include "include/wide_columns.cuh"
#include "include/wide_copies.cuh"
#include "include/wide_shared.cuh"

#if FUSION_HOPPER
namespace fusion::gpu {

// Calls f with the epilogue of a chain.
template <class F, class First, class... Others>
__device__ __forceinline__ void with_epilogue(int chain, const F& f, const First& first, const Others&... others) {
  if constexpr (sizeof...(others) == 0) {
    f(first);
  } else if (chain == 0) {
    f(first);
  } else {
    with_epilogue(chain - 1, f, others...);
  }
}

// The epilogues of chains, where they do the same with what each has.
template <class Epilogue, int kChains>
struct Alike {
  static constexpr bool kReadsRows = Epilogue::kReadsRows;
  Epilogue of[kChains];
};
template <class F, class Epilogue, int kChains>
__device__ __forceinline__ void with_epilogue(int chain, const F& f, const Alike<Epilogue, kChains>& alike) {
  f(alike.of[chain]);
}

// Uses of sums stay on their side of what is said about products here.
template <class Tile>
__device__ __forceinline__ void settle(typename Tile::Sums& c) {
#pragma unroll
  for (auto& some : c) products_of(some);
}

// A worker's products of a step, whose operands lie `at` bytes behind `left` and `right` in shared memory; `first`: sums begin.
// `earlier` is called once those of the step before have been computed.
template <class T, class Tile, bool kTransB>
struct StepProducts {
  const uint64_t left, right;

  __device__ __forceinline__ StepProducts(const unsigned char* left, const unsigned char* right)
      : left(panel(shared_address(left))), right(kTransB ? panel(shared_address(right)) : panel(shared_address(right), Tile::kBoxBytes)) {}
  template <class Earlier>
  __device__ __forceinline__ void operator()(typename Tile::Sums& c, int at, bool first, const Earlier& earlier) const {
    const uint64_t a = further(left, at), b = further(right, at);
    settle<Tile>(c);
    products_begin();
#pragma unroll
    for (int k = 0; k < kPanel; k += 16) multiply(c, a, b, k, !first || k > 0);
    products_commit();
    if (first) return;
    products_wait<1>();
    earlier();
  }
  // Sixteen of a step's depth.
  static __device__ __forceinline__ void multiply(typename Tile::Sums& c, uint64_t a, uint64_t b, int k, bool adds) {
    if constexpr (Tile::kSwaps) {
      const uint64_t columns = further(b, k * (kTransB ? 2 : 128));
      WarpgroupProduct<T, Tile::kRows>::template add<!kTransB, false>(c[0], columns, further(a, k * 2), adds);
    } else {
#pragma unroll
      for (int h = 0; h < Tile::kHeight; ++h) {
        const uint64_t rows = further(a, h * Tile::kBoxBytes + k * 2), columns = further(b, k * (kTransB ? 2 : 128));
        WarpgroupProduct<T, Tile::kAcross>::template add<false, !kTransB>(c[h], rows, columns, adds);
      }
    }
  }
};

// In TF32 the left operand is rounded on its way through registers; the right one has been.
template <class Tile>
struct StepProducts<float, Tile, true> {
  static constexpr int kBatch = 2;
  const unsigned char* const left;
  const uint64_t right;
  // Products read a batch's left operand in one set of registers while the next one's comes to the other.
  uint32_t operands[2][Tile::kHeight][kBatch][4];

  __device__ __forceinline__ StepProducts(const unsigned char* left, const unsigned char* right) : left(left), right(panel(shared_address(right))) {}
  template <class Earlier>
  __device__ __forceinline__ void operator()(typename Tile::Sums& c, int at, bool first, const Earlier& earlier) {
    const int row = threadIdx.x % kWarpgroup / 32 * 16 + threadIdx.x % 16;
#pragma unroll
    for (int batch = 0; batch < kPanel / 16 / kBatch; ++batch) {
      auto& a = operands[batch % 2];
#pragma unroll
      for (int k = 0; k < kBatch; ++k) {
        const int piece = (batch * kBatch + k) * 2 + threadIdx.x % 32 / 16;
#pragma unroll
        for (int h = 0; h < Tile::kHeight; ++h) {
          load_matrices(a[h][k], left + at + h * Tile::kBoxBytes + row * 128 + (piece ^ row % 8) * 16);
          round_all(a[h][k]);
        }
      }
      settle<Tile>(c);
      products_begin();
#pragma unroll
      for (int k = 0; k < kBatch; ++k) {
        const uint64_t columns = further(right, at + (batch * kBatch + k) * 32);
#pragma unroll
        for (int h = 0; h < Tile::kHeight; ++h) {
          WarpgroupProduct<float, Tile::kAcross>::by_rows(c[h], a[h][k], columns, !first || batch + k > 0);
        }
      }
      products_commit();
      products_wait<1>();
      if (batch == 0 && !first) earlier();
    }
  }
};

// One of a block's workers: of a tile it has all, rows, or where operands change places a panel.
template <class T, class Tile, bool kTransB, int kChains>
struct WideWorker {
  static constexpr int kPanels = Tile::kPanels;
  static constexpr int kKept = 2;  // turns whose results are not pushed out of the L2 cache by those that follow
  const WideOperands<Tile::kProducts, kChains>& x;
  const WideSteps& mine;
  const Share& share;
  Mailbox& mailbox;
  Barrier *const full, *const empty;
  unsigned char* const bytes;
  const int worker, first_row, first_panel, stride;
  StepProducts<T, Tile, kTransB> products;
  const TileSums<Tile> sums;
  typename Tile::Sums c;
  RingPlace<Tile::kSlots> place;
  int used;  // by the step before

  __device__ __forceinline__ WideWorker(const WideOperands<Tile::kProducts, kChains>& x, const WideSteps& mine, const Share& share,
                                        Mailbox& mailbox, Barrier* full, Barrier* empty, unsigned char* bytes, int warp)
      : x(x), mine(mine), share(share), mailbox(mailbox), full(full), empty(empty), bytes(bytes), worker(warp / 4 - 1),
        first_row(Tile::kApart || Tile::kSwaps ? 0 : worker * (Tile::kRows / Tile::kWorkers)), first_panel(Tile::kSwaps ? worker : 0),
        stride(static_cast<int>(gridDim.x) * (Tile::kApart ? Tile::kWorkers : 1)),
        products(bytes + first_row * kPanel * 2, bytes + Tile::kLeftBytes + first_panel * Tile::kBoxBytes),
        sums(bytes, Tile::kSumsAt, warp - 4), place(0), used(0) {}

  __device__ __forceinline__ void release(int slot) const {
    if (threadIdx.x % 32 == 0) empty[slot].arrive();
  }
  __device__ __forceinline__ void step(bool first) {
    full[place.slot].wait(place.parity);
    products(c, place.slot * Tile::kSlotBytes, first, [&] { release(used); });
    used = place.slot, place.go_on();
  }
  // Whether nobody finds a tile's results in the L2 cache.
  __device__ __forceinline__ bool passes(int tile) const { return x.fills && tile + kKept * static_cast<int>(gridDim.x) < mine.tiles; }

  // Whether a tile's first step is multiplied while it is worked out where the tile lies: not where epilogues read rows, which take longer
  // to come. On an H200 1576x3072x768 with GELU takes 13.9 us so and 14.0 otherwise, 2048x768x3072 with a residual 16.1 and 15.9.
  template <class... Epilogues>
  static constexpr bool kBegins = !(Epilogues::kReadsRows || ...);
  // Tile after tile: its products, then what ends it.
  template <class... Epilogues>
  __device__ __forceinline__ void in_turn(const Epilogues&... epilogues) {
    int tile = mine.tile;
    unsigned n = 0;  // steps of all workers before a tile's
    if constexpr (Tile::kApart) tile += worker * static_cast<int>(gridDim.x), n = worker * mine.count;
    for (; tile < mine.tiles; tile += stride) {
      // Phases of the ring that another worker waits for must have passed.
      if (Tile::kApart && n > 0) sync_threads(1 + worker, Tile::kWorkers * kWarpgroup);
      place = RingPlace<Tile::kSlots>(n), used = 0;
      if constexpr (kBegins<Epilogues...>) step(true);
      WidePosition<Tile> at(x, tile);
      at.keep();
      of_tile(tile, at, epilogues...);
      n += (Tile::kApart ? Tile::kWorkers : 1) * mine.count;
    }
  }
  // Until a tile's sums are there, of which so many steps have been multiplied.
  template <class Meanwhile>
  __device__ __forceinline__ void multiply(int tile, int begun, const Meanwhile& meanwhile) {
    for (int i = begun; i < mine.count; ++i) {
      step(i == 0);
      if (i == 1) meanwhile();
    }
    if (Tile::kApart && tile + static_cast<int>(gridDim.x) < mine.tiles) arrive_threads(2 - worker, Tile::kWorkers * kWarpgroup);
    if (tile + stride >= mine.tiles) let_next_begin();
    products_wait<0>();
    settle<Tile>(c);
    release(used);
  }
  template <class... Epilogues>
  __device__ __forceinline__ void of_tile(int tile, const WidePosition<Tile>& at, const Epilogues&... epilogues) {
    // What an epilogue reads first is on its way while its sums come: to registers, or where each of several may be it, nearer; products
    // in each one's branch would have the compiler wait for every one of them. Sums do not begin with a bias, for which products would
    // wait: on an H200 1024x3072x768 with GELU takes 10.8 us so and 10.4 as it is, whose ending has a tenth more instructions.
    constexpr int kBegun = kBegins<Epilogues...> ? 1 : 0;
    constexpr bool kOne = kChains == 1 || (sizeof...(Epilogues) == 1 && kPanels == 1);
    const int row = at.row + first_row;
    if constexpr (!kOne) {
#pragma unroll
      for (int panel = 0; panel < kPanels; ++panel) {
        const ChainPlace of = at.of_panel(x, first_panel + panel);
        const LanePlace<Tile> lane(row, of.column);
        const auto prefetch = [&](const auto& epilogue) {
          epilogue.prefetch(min(lane.row, x.rows - 1), min(lane.column, x.columns[of.chain] - 8));
        };
        with_epilogue(of.chain, prefetch, epilogues...);
      }
      multiply(tile, kBegun, [] {});
    }
    for (int panel = 0, alike = 0; panel < kPanels; panel += alike) {
      const ChainPlace of = at.of_panel(x, first_panel + panel);
      const int columns = x.columns[of.chain];
      alike = kPanels - panel;
      if (kPanels > 1 && of.chain + 1 < kChains) alike = min(alike, (in_panels(columns) - of.column) / kPanel);
      const auto end_panels = [&](const auto& epilogue) {
        using Epilogue = std::decay_t<decltype(epilogue)>;
        if constexpr (Tile::kShares) {
          auto& places = *reinterpret_cast<typename SharedSums<Tile>::Places*>(bytes + Tile::kPlacesAt);
          const SharedSums<Tile> shared{places, mailbox, share};
          SharedEnding<Tile, Epilogue> end(epilogue, shared, x.rows, columns, row, of.column);
          if constexpr (kOne) multiply(tile, kBegun, [] {});
          end(c, sums);
        } else if constexpr (Tile::kSwaps && Epilogue::kByColumn) {
          ColumnEnding<Tile, Epilogue> end(epilogue, x.rows, columns, row, of.column);
          if constexpr (kOne) multiply(tile, kBegun, [] {});
          end(c, passes(tile), bytes + Tile::kSumsAt + worker * kWorkerSumsBytes);
        } else {
          TileEnding<Tile, Epilogue, kOne> end(epilogue, x.rows, columns, row, of.column);
          if constexpr (kOne) multiply(tile, kBegun, [&] { end.prefetch(); });
          end(c, panel, alike, passes(tile), sums);
        }
      };
      with_epilogue(of.chain, end_panels, epilogues...);
    }
  }
};

}  // namespace fusion::gpu
#endif

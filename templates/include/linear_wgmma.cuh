// Products of many rows on Hopper's tensor cores: a few threads have the copy engine bring tiles of the operands, warpgroups
// of 64 rows each multiply them as they come, and a generated epilogue takes the sums.
#pragma once

#include "include/wgmma.cuh"
#include "include/wide_copies.cuh"

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

template <class T, class Tile, bool kTransB, int kChains, class... Epilogues>
__device__ __forceinline__ void linear_wgmma(const WideOperands<Tile::kProducts, kChains>& x,
                                             const Epilogues&... epilogues) {
  constexpr int kSlots = Tile::kSlots, kPanels = Tile::kPanels;
  constexpr int kKept = 2;  // turns whose results are not pushed out of the L2 cache by those that follow
  extern __shared__ uint4 dynamic[];
  const uint32_t ring = (shared_address(dynamic) + 1023) / 1024 * 1024;
  __shared__ Barrier barriers[2 * kSlots];
  Barrier *const full = kept(barriers), *const empty = full + kSlots;
  [[maybe_unused]] __shared__ Mailbox mailbox;
  const Share share(Tile::kShares ? x.parts : 1);
  const int warp = warp_of_block(), worker = warp / 4 - 1;
  constexpr int kCopiers = Tile::kCopiers;
  const bool is_copying = warp < kCopiers;
  // The first copies begin before this block's threads have met: the warps that copy make their barriers.
  if (is_copying) {
    if (is_elected()) {
#pragma unroll
      for (int i = 0; i < kStepsAhead; i += kCopiers) full[warp + i].init(1);
      publish_barriers();
    }
    __syncwarp();  // racecheck does not know that it is one thread that makes them and copies
  }
  if (warp == 4 && is_elected()) {
    each_map(x, [](const TensorMap& map) { prefetch_map(map); });
#pragma unroll
    for (int i = std::max(kStepsAhead, kCopiers); i < kSlots; ++i) full[i].init(1);
#pragma unroll
    for (int i = 0; i < kSlots; ++i) empty[i].init(Tile::kTogether * 4);
    publish_barriers();
    if constexpr (Tile::kShares) mailbox.open(SharedSums<Tile>::incoming(share));
  }
  const WideSteps mine(x, share);
  WidePosition<Tile> at(x, mine.tile + (Tile::kApart && worker > 0 ? worker * static_cast<int>(gridDim.x) : 0));
  at.keep();
  WideCopies<Tile, kTransB, kChains> copies{x, mine, at, ring, full, empty, warp};
  if (is_copying) copies.find_operands();
  if (is_copying && is_elected()) copies.begin();
  __syncwarp();
  if constexpr (Tile::kShares) {
    Mailbox::opened();
    Mailbox::await_others();
  } else {
    __syncthreads();
  }

  // What is expected lies first: the copies go on before all of a kernel's code has come from memory.
  if (__builtin_expect(worker < 0, true)) {
    if constexpr (Tile::kMoves) give_registers<Tile::kFew>();
    if (!is_copying || !is_elected()) return;
    copies.go_on();
    return;
  }

  await_earlier();
  if constexpr (Tile::kMoves) take_registers<Tile::kMany>();
  const auto release = [&](int slot) {
    if (threadIdx.x % 32 == 0) empty[slot].arrive();
  };
  unsigned char* const bytes = reinterpret_cast<unsigned char*>(dynamic) + (ring - shared_address(dynamic));
  // What a worker has of a tile: all of it, rows, or where operands change places a panel.
  const int first_row = Tile::kApart || Tile::kSwaps ? 0 : worker * (Tile::kRows / Tile::kWorkers);
  const int first_panel = Tile::kSwaps ? worker : 0;
  StepProducts<T, Tile, kTransB> products(bytes + first_row * kPanel * 2, bytes + Tile::kLeftBytes + first_panel * Tile::kBoxBytes);
  const TileSums<Tile> sums(bytes, kSlots * Tile::kSlotBytes, warp - 4);
  typename Tile::Sums c;
  const int stride = static_cast<int>(gridDim.x) * (Tile::kApart ? Tile::kWorkers : 1);
  const int tiles = mine.tiles, steps = mine.count;
  int tile = mine.tile;
  unsigned n = 0;  // steps of all workers before a tile's
  if constexpr (Tile::kApart) tile += worker * static_cast<int>(gridDim.x), n = worker * steps;
  for (; tile < tiles; tile += stride) {
    // In turns: phases of the ring that another worker waits for must have passed.
    if (Tile::kApart && n > 0) sync_threads(1 + worker, Tile::kWorkers * kWarpgroup);
    if (tile >= stride) at = {x, tile}, at.keep();
    RingPlace<kSlots> place(n);
    int used = 0;  // by the step before
    const auto multiply = [&](const auto& meanwhile) {
      for (int step = 0; step < steps; ++step, place.go_on()) {
        full[place.slot].wait(place.parity);
        products(c, place.slot * Tile::kSlotBytes, step == 0, [&] { release(used); });
        used = place.slot;
        if (step == 1) meanwhile();
      }
      if (Tile::kApart && tile + static_cast<int>(gridDim.x) < tiles) arrive_threads(2 - worker, Tile::kWorkers * kWarpgroup);
      if (tile + stride >= tiles) let_next_begin();
      products_wait<0>();
      settle<Tile>(c);
      release(used);
    };
    // What an epilogue reads first is on its way while its sums come: to registers, or where each of several may be it, nearer; products
    // in each one's branch would have the compiler wait for every one of them. Sums do not begin with a bias, for which products would
    // wait: on an H200 1024x3072x768 with GELU takes 10.8 us so and 10.4 as it is, whose ending has a tenth more instructions.
    constexpr bool kOne = kChains == 1 || (sizeof...(Epilogues) == 1 && kPanels == 1);
    const int row = at.row + first_row;
    if constexpr (!kOne) {
#pragma unroll
      for (int panel = 0; panel < kPanels; ++panel) {
        const ChainPlace of = at.of_panel(x, first_panel + panel);
        const LanePlace<Tile> lane(row, of.column);
        with_epilogue(
            of.chain,
            [&](const auto& epilogue) {
              epilogue.prefetch(min(lane.row, x.rows - 1), min(lane.column, x.columns[of.chain] - 8));
            },
            epilogues...);
      }
      multiply([] {});
    }
    for (int panel = 0, alike = 0; panel < kPanels; panel += alike) {
      const ChainPlace of = at.of_panel(x, first_panel + panel);
      const int columns = x.columns[of.chain];
      alike = kPanels - panel;
      if (kPanels > 1 && of.chain + 1 < kChains) alike = min(alike, (in_panels(columns) - of.column) / kPanel);
      with_epilogue(
          of.chain,
          [&](const auto& epilogue) {
            using Epilogue = std::decay_t<decltype(epilogue)>;
            if constexpr (Tile::kShares) {
              auto& places = *reinterpret_cast<typename SharedSums<Tile>::Places*>(bytes + Tile::kPlacesAt);
              const SharedSums<Tile> shared{places, mailbox, share};
              SharedEnding<Tile, Epilogue> end(epilogue, shared, x.rows, columns, row, of.column);
              if constexpr (kOne) multiply([] {});
              end(c, sums);
            } else {
              TileEnding<Tile, Epilogue, kOne> end(epilogue, x.rows, columns, row, of.column);
              if constexpr (kOne) multiply([&] { end.prefetch(); });
              end(c, panel, alike, x.fills && tile + kKept * static_cast<int>(gridDim.x) < tiles, sums);
            }
          },
          epilogues...);
    }
    n += (Tile::kApart ? Tile::kWorkers : 1) * steps;
  }
}

}  // namespace fusion::gpu
#endif

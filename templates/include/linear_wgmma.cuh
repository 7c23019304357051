// Products of many rows on Hopper's tensor cores: a few threads have the copy engine bring tiles of the operands, warpgroups
// of 64 rows each multiply them as they come, and a generated epilogue takes the sums.
#pragma once

#include "include/wgmma.cuh"
#include "include/wide_epilogue.cuh"
#include "include/wide_tile.cuh"

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
#pragma unroll
    for (int h = 0; h < Tile::kHeight; ++h) products_of(c[h]);
    products_begin();
#pragma unroll
    for (int k = 0; k < kPanel; k += 16) {
      using Product = WarpgroupProduct<T, Tile::kAcross>;
#pragma unroll
      for (int h = 0; h < Tile::kHeight; ++h) {
        const uint64_t rows = further(a, h * Tile::kBoxBytes + k * 2);
        if constexpr (kTransB) {
          Product::by_rows(c[h], rows, further(b, k * 2), !first || k > 0);
        } else {
          Product::by_columns(c[h], rows, further(b, k * 128), !first || k > 0);
        }
      }
    }
    products_commit();
    if (first) return;
    products_wait<1>();
    earlier();
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
#pragma unroll
      for (int h = 0; h < Tile::kHeight; ++h) products_of(c[h]);
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
  constexpr int kSlots = Tile::kSlots, kPanels = Tile::kColumns / kPanel;
  constexpr int kKept = 2;  // turns whose results are not pushed out of the L2 cache by those that follow
  extern __shared__ uint4 dynamic[];
  const uint32_t ring = (shared_address(dynamic) + 1023) / 1024 * 1024;
  __shared__ Barrier barriers[2 * kSlots];
  Barrier *const full = kept(barriers), *const empty = full + kSlots;
  [[maybe_unused]] __shared__ Mailbox mailbox;
  const Share share(Tile::kShares ? x.parts : 1);
  const int warp = warp_of_block(), worker = warp / 4 - 1;
  constexpr int kCopiers = Tile::kCopiers, kAhead = 2;
  static_assert(kAhead <= kSlots && kCopiers <= kSlots);
  const bool is_copying = warp < kCopiers;
  // Copies that need not wait for other kernels begin before this block's threads have met: who copies makes their barriers.
  if (is_copying && is_elected()) {
#pragma unroll
    for (int i = 0; i < kAhead; i += kCopiers) full[warp + i].init(1);
    publish_barriers();
  }
  if (warp == 4 && is_elected()) {
    each_map(x, [](const TensorMap& map) { prefetch_map(map); });
#pragma unroll
    for (int i = std::max(kAhead, kCopiers); i < kSlots; ++i) full[i].init(1);
#pragma unroll
    for (int i = 0; i < kSlots; ++i) empty[i].init(Tile::kTogether * 4);
    publish_barriers();
    if (Tile::kShares) mailbox.open(SharedSums<Tile>::incoming(share));
  }
  const int first = share.tile;
  WidePosition<Tile> at(x, first + (Tile::kApart && worker > 0 ? worker * static_cast<int>(gridDim.x) : 0));
  at.keep();
  const int tiles = x.order.across * x.order.down, all_steps = (x.depth + kPanel - 1) / kPanel;
  const int begin = share.of(all_steps * share.part), steps = share.of(all_steps * (share.part + 1)) - begin;
  ChainPlace panels[kPanels];
  int missing = 0;  // rows of the tile that are not there
  const auto find_operands = [&] {
#pragma unroll
    for (int i = 0; i < kPanels; ++i) panels[i] = at.of_panel(x, i);
    missing = max(at.row + Tile::kRows - x.rows, 0);
  };
  const auto each_box = [&](int step, const auto& f) {
    const int depth = (begin + step) * kPanel;
#pragma unroll
    for (int i = 0; i < Tile::kBoxes; ++i) {
      const auto [chain, column] = panels[i % kPanels];
      f(i, x.right[chain][i / kPanels], kTransB ? depth : column, kTransB ? column : depth);
    }
  };
  const auto bring_right = [&](int step, int slot) {
    const uint32_t right = ring + slot * Tile::kSlotBytes + Tile::kLeftBytes;
    full[slot].arrive_expecting(Tile::kSlotBytes - missing * kPanel * 2);
    each_box(step, [&](int i, const TensorMap& map, int column, int row) {
      copy_box(right + i * Tile::kBoxBytes, map, full[slot], column, row, x.once);
    });
  };

  const auto bring_left = [&](int step, int slot, bool leaves) {
    const TensorMap& left = missing > 0 ? x.last : x.left;
    copy_box(ring + slot * Tile::kSlotBytes, left, full[slot], (begin + step) * kPanel, at.row, leaves);
  };
  const auto leaves = [&](int tile) { return x.fills && tile + static_cast<int>(gridDim.x) >= tiles; };

  // While kernels before this one still run, right operands of the first steps come if they are constants, or else nearer at
  // least. More of them would stand in the way of the left ones: on an H200 BERT-base of 8 x 128 tokens takes 0.534 ms in a graph, 0.542
  // with four of them and 0.643 if those of eight steps more come nearer meanwhile.
  const int ahead = min(steps, kAhead);
  if (is_copying) find_operands();
  if (is_copying && is_elected()) {
#pragma unroll 1
    for (int step = warp; step < ahead; step += kCopiers) {
      if (x.early) {
        bring_right(step, step);
      } else {
        each_box(step, [](int, const TensorMap& map, int column, int row) { prefetch_box(map, column, row); });
      }
    }
    await_earlier();
#pragma unroll 1
    for (int step = warp; step < ahead; step += kCopiers) {
      if (__builtin_expect(!x.early, false)) bring_right(step, step);
      bring_left(step, step, leaves(first));
    }
  }
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
    // Every other tile is multiplied from its end on: what all blocks have read last is still in the L2 cache. Measured on an H100,
    // 179 MB came from memory for 223 at 2048x16384x4096, and 158 where its results pass through the cache.
    bool is_back = false;
    int n = warp < ahead ? warp + (ahead - warp + kCopiers - 1) / kCopiers * kCopiers : warp, i = n;  // of all steps, of a tile's
    RingPlace<kSlots> place(n);
    for (int tile = first; tile < tiles; tile += static_cast<int>(gridDim.x), is_back = !is_back, i -= steps) {
      if (tile != first) at = {x, tile}, find_operands();
#pragma unroll 1
      for (; i < steps; i += kCopiers, n += kCopiers, place.go_on(kCopiers)) {
        const int step = is_back ? steps - 1 - i : i, slot = place.slot;
        if (n >= kSlots) empty[slot].wait(place.parity ^ 1);
        bring_right(step, slot);
        bring_left(step, slot, leaves(tile));
      }
    }
    return;
  }

  await_earlier();
  if constexpr (Tile::kMoves) take_registers<Tile::kMany>();
  const auto release = [&](int slot) {
    if (threadIdx.x % 32 == 0) empty[slot].arrive();
  };
  unsigned char* const bytes = reinterpret_cast<unsigned char*>(dynamic) + (ring - shared_address(dynamic));
  StepProducts<T, Tile, kTransB> products(bytes + (Tile::kApart ? 0 : worker * Tile::kHeight) * Tile::kBoxBytes, bytes + Tile::kLeftBytes);
  const WarpSums<Tile> sums(bytes, kSlots * Tile::kSlotBytes + (warp - 4) * kSumsBytes);
  typename Tile::Sums c;
  const int stride = static_cast<int>(gridDim.x) * (Tile::kApart ? Tile::kWorkers : 1);
  int tile = first;
  unsigned n = 0;  // steps of all workers before a tile's
  if constexpr (Tile::kApart) tile += worker * static_cast<int>(gridDim.x), n = worker * steps;
  for (; tile < tiles; tile += stride) {
    // In turns: phases of the ring that another worker waits for must have passed.
    if (Tile::kApart && n > 0) sync_threads(1 + worker, Tile::kWorkers * kWarpgroup);
    if (tile >= stride) at = {x, tile}, at.keep();
    RingPlace<kSlots> place(n);
    int used = 0;  // by the step before
    const auto multiply = [&] {
      for (int step = 0; step < steps; ++step, place.go_on()) {
        full[place.slot].wait(place.parity);
        products(c, place.slot * Tile::kSlotBytes, step == 0, [&] { release(used); });
        used = place.slot;
      }
      if (Tile::kApart && tile + static_cast<int>(gridDim.x) < tiles) arrive_threads(2 - worker, Tile::kWorkers * kWarpgroup);
      if (tile + stride >= tiles) let_next_begin();
      products_wait<0>();
#pragma unroll
      for (int h = 0; h < Tile::kHeight; ++h) products_of(c[h]);
      release(used);
    };
    // What an epilogue reads first is on its way while its sums come: to registers, or where each of several may be it, nearer; products
    // in each one's branch would have the compiler wait for every one of them.
    constexpr bool kOne = kChains == 1;
    const int row = at.row + (Tile::kApart ? 0 : worker * Tile::kHeight * 64);
    if constexpr (!kOne) {
#pragma unroll
      for (int panel = 0; panel < kPanels; ++panel) {
        const ChainPlace of = at.of_panel(x, panel);
        const LanePlace lane(row, of.column);
        with_epilogue(
            of.chain,
            [&](const auto& epilogue) {
              epilogue.prefetch(min(lane.row, x.rows - 1), min(lane.column, x.columns[of.chain] - 8));
            },
            epilogues...);
      }
      multiply();
    }
    for (int panel = 0, alike = 0; panel < kPanels; panel += alike) {
      const ChainPlace of = at.of_panel(x, panel);
      const int columns = x.columns[of.chain];
      alike = kPanels - panel;
      if (of.chain + 1 < kChains) alike = min(alike, (in_panels(columns) - of.column) / kPanel);
      with_epilogue(
          of.chain,
          [&](const auto& epilogue) {
            using Epilogue = std::decay_t<decltype(epilogue)>;
            if constexpr (Tile::kShares) {
              auto& places = *reinterpret_cast<typename SharedSums<Tile>::Places*>(bytes + Tile::kPlacesAt);
              const SharedSums<Tile> shared{places, mailbox, share};
              SharedEnding<Tile, Epilogue> end(epilogue, shared, x.rows, columns, row, of.column);
              if constexpr (kOne) multiply();
              end(c, sums);
            } else {
              TileEnding<Tile, Epilogue> end(epilogue, x.rows, columns, row, of.column);
              if constexpr (kOne) multiply();
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

// Products of many rows on Hopper's tensor cores: one thread has the copy engine bring tiles of the operands, warpgroups
// of 64 rows each multiply them as they come, and a generated epilogue takes the sums.
#pragma once

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

// A worker's products of a step, whose operands lie in shared memory from `left` and `right` on; `first`: sums begin.
// `earlier` is called once those of the step before have been computed.
template <class T, class Tile, bool kTransB>
struct StepProducts {
  template <class Earlier>
  __device__ __forceinline__ void operator()(typename Tile::Sums& c, const unsigned char* left, const unsigned char* right, bool first,
                                             const Earlier& earlier) const {
    const uint32_t a = shared_address(left), b = shared_address(right);
#pragma unroll
    for (int h = 0; h < Tile::kHeight; ++h) products_of(c[h]);
    products_begin();
#pragma unroll
    for (int k = 0; k < kPanel; k += 16) {
      using Product = WarpgroupProduct<T, Tile::kAcross>;
#pragma unroll
      for (int h = 0; h < Tile::kHeight; ++h) {
        const uint64_t rows = panel(a + h * Tile::kBoxBytes + k * 2);
        if constexpr (kTransB) {
          Product::by_rows(c[h], rows, panel(b + k * 2), !first || k > 0);
        } else {
          Product::by_columns(c[h], rows, panel(b + k * 128, Tile::kBoxBytes), !first || k > 0);
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
  // Products read a batch's left operand in one set of registers while the next one's comes to the other.
  uint32_t operands[2][Tile::kHeight][kBatch][4];

  template <class Earlier>
  __device__ __forceinline__ void operator()(typename Tile::Sums& c, const unsigned char* left, const unsigned char* right, bool first,
                                             const Earlier& earlier) {
    const int row = threadIdx.x % kWarpgroup / 32 * 16 + threadIdx.x % 16;
#pragma unroll
    for (int batch = 0; batch < kPanel / 16 / kBatch; ++batch) {
      auto& a = operands[batch % 2];
#pragma unroll
      for (int k = 0; k < kBatch; ++k) {
        const int piece = (batch * kBatch + k) * 2 + threadIdx.x % 32 / 16;
#pragma unroll
        for (int h = 0; h < Tile::kHeight; ++h) {
          load_matrices(a[h][k], left + h * Tile::kBoxBytes + row * 128 + (piece ^ row % 8) * 16);
          round_all(a[h][k]);
        }
      }
#pragma unroll
      for (int h = 0; h < Tile::kHeight; ++h) products_of(c[h]);
      products_begin();
#pragma unroll
      for (int k = 0; k < kBatch; ++k) {
        const uint64_t columns = panel(shared_address(right) + (batch * kBatch + k) * 32);
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
  constexpr int kSlots = Tile::kSlots;
  constexpr int kKept = 2;  // turns whose results are not pushed out of the L2 cache by those that follow
  extern __shared__ uint4 dynamic[];
  const uint32_t ring = (shared_address(dynamic) + 1023) / 1024 * 1024;
  __shared__ Barrier full[kSlots], empty[kSlots];
  [[maybe_unused]] __shared__ Mailbox mailbox;
  const int parts = Tile::kShares ? x.parts : 1, part = static_cast<int>(blockIdx.x) % parts;
  const int worker = static_cast<int>(threadIdx.x) / kWarpgroup - 1;
  if (threadIdx.x == kWarpgroup) {
    for (int i = 0; i < kSlots; ++i) full[i].init(1), empty[i].init(Tile::kTogether * 4);
    publish_barriers();
    if (Tile::kShares) mailbox.open(SharedSums<Tile>::incoming(parts, part));
  }
  // Meanwhile, as most of what a thread does before its first copy or product is to find out where it is.
  const int first = static_cast<int>(blockIdx.x) / parts;
  WidePosition<Tile> at(x, first + (Tile::kApart && worker > 0 ? worker * static_cast<int>(gridDim.x) : 0));
  at.keep();
  if constexpr (Tile::kShares) {
    Mailbox::opened();
    Mailbox::await_others();
  } else {
    __syncthreads();
  }

  // How often a place has been filled tells its phase.
  const auto phase = [](unsigned n) { return static_cast<int>(n / kSlots % 2); };
  const int tiles = wide_tiles<Tile>(x.rows, x.columns), all_steps = (x.depth + kPanel - 1) / kPanel;
  const int begin = all_steps * part / parts, steps = all_steps * (part + 1) / parts - begin;
  const auto each_box = [&](int step, const auto& f) {
    const int depth = (begin + step) * kPanel;
#pragma unroll
    for (int i = 0; i < Tile::kBoxes; ++i) {
      const int column = at.column + i * kPanel % Tile::kColumns;
      f(i, x.right[at.chain][i * kPanel / Tile::kColumns], kTransB ? depth : column, kTransB ? column : depth);
    }
  };
  const auto bring_right = [&](int step, unsigned n) {
    const unsigned slot = n % kSlots;
    const uint32_t right = ring + slot * Tile::kSlotBytes + Tile::kLeftBytes;
    full[slot].arrive_expecting(Tile::kSlotBytes);
    each_box(step, [&](int i, const TensorMap& map, int column, int row) {
      copy_box(right + i * Tile::kBoxBytes, map, full[slot], column, row, x.once);
    });
  };

  unsigned n = 0;
  if (worker < 0) {
    if constexpr (Tile::kMoves) give_registers<Tile::kFew>();
    if (threadIdx.x >= 32 || !is_elected()) return;
    // While kernels before this one still run, right operands of the first steps come if they are constants, or else nearer at
    // least. More of them would stand in the way of the left ones.
    constexpr int kAhead = 2;
    const int ahead = min(steps, kAhead), begun = x.early ? ahead : 0;
    prefetch_map(x.left);
#pragma unroll 1
    for (int step = 0; step < ahead; ++step) {
      if (x.early) {
        bring_right(step, step);
      } else {
        each_box(step, [](int, const TensorMap& map, int column, int row) { prefetch_box(map, column, row); });
      }
    }
    await_earlier();
    // Every other tile is multiplied from its end on: what all blocks have read last is still in the L2 cache. Measured on an H100,
    // 179 MB came from memory for 223 at 2048x16384x4096, and 158 where its results pass through the cache.
    bool is_back = false;
    for (int tile = first; tile < tiles; tile += static_cast<int>(gridDim.x), is_back = !is_back) {
      if (tile != first) at = {x, tile};
      const bool leaves = x.fills && tile + static_cast<int>(gridDim.x) >= tiles;
      for (int i = 0; i < steps; ++i, ++n) {
        const int step = is_back ? steps - 1 - i : i;
        const unsigned slot = n % kSlots;
        if (n >= kSlots) empty[slot].wait(phase(n - kSlots));
        if (n >= static_cast<unsigned>(begun)) bring_right(step, n);
        copy_box(ring + slot * Tile::kSlotBytes, x.left, full[slot], (begin + step) * kPanel, at.row, leaves);
      }
    }
    return;
  }

  await_earlier();
  if constexpr (Tile::kMoves) take_registers<Tile::kMany>();
  const auto release = [&](unsigned n) {
    if (threadIdx.x % 32 == 0) empty[n % kSlots].arrive();
  };
  unsigned char* const bytes = reinterpret_cast<unsigned char*>(dynamic) + (ring - shared_address(dynamic));
  StepProducts<T, Tile, kTransB> products;
  const int warp = static_cast<int>(threadIdx.x) / 32 - 4;
  const WarpSums<Tile> sums(bytes, kSlots * Tile::kSlotBytes + warp * kSumsBytes);
  typename Tile::Sums c;
  const int stride = static_cast<int>(gridDim.x) * (Tile::kApart ? Tile::kWorkers : 1);
  int tile = first;
  if constexpr (Tile::kApart) tile += worker * static_cast<int>(gridDim.x), n = worker * steps;
  for (; tile < tiles; tile += stride) {
    // In turns: phases of the ring that another worker waits for must have passed.
    if (Tile::kApart && n > 0) sync_threads(1 + worker, Tile::kWorkers * kWarpgroup);
    if (tile >= stride) at = {x, tile}, at.keep();
    for (int step = 0; step < steps; ++step, ++n) {
      const unsigned slot = n % kSlots;
      const unsigned char* const left = bytes + slot * Tile::kSlotBytes;
      const unsigned char* const right = left + Tile::kLeftBytes;
      full[slot].wait(phase(n));
      products(c, left + (Tile::kApart ? 0 : worker * Tile::kHeight) * Tile::kBoxBytes, right, step == 0, [&] { release(n - 1); });
    }

    if (Tile::kApart && tile + static_cast<int>(gridDim.x) < tiles) arrive_threads(2 - worker, Tile::kWorkers * kWarpgroup);
    if (tile + stride >= tiles) let_next_begin();
    const auto wait = [&] {
      products_wait<0>();
#pragma unroll
      for (int h = 0; h < Tile::kHeight; ++h) products_of(c[h]);
      release(n - 1);
    };
    const int row = at.row + (Tile::kApart ? 0 : worker * Tile::kHeight * 64);
    const bool passes = x.fills && tile + kKept * static_cast<int>(gridDim.x) < tiles;
    with_epilogue(
        at.chain,
        [&](const auto& epilogue) {
          if constexpr (Tile::kShares) {
            auto& places = *reinterpret_cast<typename SharedSums<Tile>::Places*>(bytes + Tile::kPlacesAt);
            const SharedSums<Tile> shared{places, mailbox, parts, part};
            hand_on_shared<Tile>(c, x.rows, x.columns[at.chain], row, at.column, sums, shared, epilogue, wait);
          } else {
            hand_on<Tile>(c, x.rows, x.columns[at.chain], row, at.column, passes, sums, epilogue, wait);
          }
        },
        epilogues...);
    if constexpr (Tile::kApart) n += (Tile::kWorkers - 1) * steps;
  }
}

}  // namespace fusion::gpu
#endif

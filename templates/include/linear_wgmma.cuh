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

template <class T, class Tile, bool kTransB, int kChains, class... Epilogues>
__device__ __forceinline__ void linear_wgmma(const WideOperands<Tile::kProducts, kChains>& x,
                                             const Epilogues&... epilogues) {
  constexpr int kSlots = Tile::kSlots;
  extern __shared__ uint4 dynamic[];
  const uint32_t ring = (shared_address(dynamic) + 1023) / 1024 * 1024;
  __shared__ Barrier full[kSlots], empty[kSlots];
  if (threadIdx.x == 0) {
    for (int i = 0; i < kSlots; ++i) full[i].init(1), empty[i].init(Tile::kTogether * 4);
    publish_barriers();
  }
  __syncthreads();

  // How often a place has been filled tells its phase.
  const auto phase = [](unsigned n) { return static_cast<int>(n / kSlots % 2); };
  const int tiles = wide_across<Tile>(x.columns) * wide_down<Tile>(x.rows), steps = (x.depth + kPanel - 1) / kPanel;
  const int worker = static_cast<int>(threadIdx.x) / kWarpgroup - 1;
  // What right operands the first steps need, mostly weights, comes nearer while kernels before this one still run; more of
  // it would stand in the way of the copies.
  constexpr int kPrefetched = 2;
  const auto each_box = [&](const WidePosition<Tile>& at, int step, const auto& f) {
#pragma unroll
    for (int i = 0; i < Tile::kBoxes; ++i) {
      const int column = at.column + i * kPanel % Tile::kColumns;
      f(i, x.right[at.chain][i * kPanel / Tile::kColumns], kTransB ? step * kPanel : column, kTransB ? column : step * kPanel);
    }
  };
  if (threadIdx.x == 0 && static_cast<int>(blockIdx.x) < tiles) {
    const WidePosition<Tile> at(x, static_cast<int>(blockIdx.x));
    for (int step = 0; step < min(steps, kPrefetched); ++step) {
      each_box(at, step, [](int, const TensorMap& map, int column, int row) { prefetch_box(map, column, row); });
    }
  }
  await_earlier();

  unsigned n = 0;
  if (worker < 0) {
    if constexpr (Tile::kMoves) give_registers<Tile::kFew>();
    if (threadIdx.x > 0) return;
    for (int tile = static_cast<int>(blockIdx.x); tile < tiles; tile += static_cast<int>(gridDim.x)) {
      const WidePosition<Tile> at(x, tile);
      for (int step = 0; step < steps; ++step, ++n) {
        const unsigned slot = n % kSlots;
        if (n >= kSlots) empty[slot].wait(phase(n - kSlots));
        full[slot].arrive_expecting(Tile::kSlotBytes);
        const uint32_t left = ring + slot * Tile::kSlotBytes, right = left + Tile::kLeftBytes;
        copy_box(left, x.left, full[slot], step * kPanel, at.row);
        each_box(at, step, [&](int i, const TensorMap& map, int column, int row) {
          copy_box(right + i * Tile::kBoxBytes, map, full[slot], column, row);
        });
      }
    }
    return;
  }

  if constexpr (Tile::kMoves) take_registers<Tile::kMany>();
  const auto release = [&](unsigned n) {
    if (threadIdx.x % 32 == 0) empty[n % kSlots].arrive();
  };
  const WarpSums<Tile> sums(reinterpret_cast<unsigned char*>(dynamic) + (ring - shared_address(dynamic)),
                            kSlots * Tile::kSlotBytes + (static_cast<int>(threadIdx.x) / 32 - 4) * kSumsBytes);
  float c[Tile::kHeight][Tile::kAcross / 8][4];
  const int stride = static_cast<int>(gridDim.x) * (Tile::kApart ? Tile::kWorkers : 1);
  int tile = static_cast<int>(blockIdx.x);
  if constexpr (Tile::kApart) tile += worker * static_cast<int>(gridDim.x), n = worker * steps;
  for (; tile < tiles; tile += stride) {
    // In turns: phases of the ring that another worker waits for must have passed.
    if (Tile::kApart && n > 0) sync_threads(1 + worker, Tile::kWorkers * kWarpgroup);
    for (int step = 0; step < steps; ++step, ++n) {
      const unsigned slot = n % kSlots;
      const uint32_t left = ring + slot * Tile::kSlotBytes + (Tile::kApart ? 0 : worker * Tile::kHeight) * Tile::kBoxBytes;
      const uint32_t right = ring + slot * Tile::kSlotBytes + Tile::kLeftBytes;
      full[slot].wait(phase(n));
#pragma unroll
      for (int h = 0; h < Tile::kHeight; ++h) products_of(c[h]);
      products_begin();
#pragma unroll
      for (int k = 0; k < kPanel; k += 16) {
        using Product = WarpgroupProduct<T, Tile::kAcross>;
#pragma unroll
        for (int h = 0; h < Tile::kHeight; ++h) {
          const uint64_t a = panel(left + h * Tile::kBoxBytes + k * 2);
          if constexpr (kTransB) {
            Product::by_rows(c[h], a, panel(right + k * 2), step + k > 0);
          } else {
            Product::by_columns(c[h], a, panel(right + k * 128, Tile::kBoxBytes), step + k > 0);
          }
        }
      }
      products_commit();
      if (step > 0) {
        products_wait<1>();
        release(n - 1);
      }
    }

    if (Tile::kApart && tile + static_cast<int>(gridDim.x) < tiles) arrive_threads(2 - worker, Tile::kWorkers * kWarpgroup);
    if (tile + stride >= tiles) let_next_begin();
    const WidePosition<Tile> at(x, tile);
    const auto wait = [&] {
      products_wait<0>();
#pragma unroll
      for (int h = 0; h < Tile::kHeight; ++h) products_of(c[h]);
      release(n - 1);
    };
    const int row = at.row + (Tile::kApart ? 0 : worker * Tile::kHeight * 64);
    with_epilogue(
        at.chain,
        [&](const auto& epilogue) {
          hand_on<Tile>(c, x.rows, x.columns[at.chain], row, at.column, sums, epilogue, wait);
        },
        epilogues...);
    if constexpr (Tile::kApart) n += (Tile::kWorkers - 1) * steps;
  }
}

}  // namespace fusion::gpu
#endif

// Products of many rows on Hopper's tensor cores: a few threads have the copy engine bring tiles of the operands, warpgroups
// of 64 rows each multiply them as they come, and a generated epilogue takes the sums.
#pragma once

#include "include/wide_worker.cuh"

#if FUSION_HOPPER
namespace fusion::gpu {

template <class T, class Tile, bool kTransB, int kChains, class... Epilogues>
__device__ __forceinline__ void linear_wgmma(const WideOperands<Tile::kProducts, kChains>& x,
                                             const Epilogues&... epilogues) {
  constexpr int kSlots = Tile::kSlots;
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
  unsigned char* const bytes = reinterpret_cast<unsigned char*>(dynamic) + (ring - shared_address(dynamic));
  WideWorker<T, Tile, kTransB, kChains> of(x, mine, share, mailbox, full, empty, bytes, warp);
  of.in_turn(at, epilogues...);
}

}  // namespace fusion::gpu
#endif

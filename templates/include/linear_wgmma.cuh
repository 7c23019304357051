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
  // What the copy engine has to know comes from memory, which takes longer than all that is done before the first copies: on an H200
  // 1024x3072x768 with GELU takes 10.5 us where it is asked for after that, and 10.3 so.
  if (threadIdx.x == kWarpgroup) each_map(x, [](const TensorMap& map) { prefetch_map(map); });
  extern __shared__ uint4 dynamic[];
  uint32_t ring = (shared_address(dynamic) + 1023) / 1024 * 1024;
  __shared__ Barrier barriers[2 * kSlots];
  Barrier* full = barriers;
  keep(ring), keep(full);  // the compiler would ask for the block's place in its cluster at every use
  Barrier* const empty = full + kSlots;
  [[maybe_unused]] __shared__ Mailbox mailbox;
  const Share share(Tile::kShares ? x.parts : 1);
  const int warp = warp_of_block(), worker = warp / 4 - 1;
  const WideSteps mine(x, share);
  WideCopies<Tile, kTransB, kChains> copies(x, mine, ring, full, empty, warp);
  if (worker < 0) {
    copies.begin();
  } else if (warp == 4 && is_elected()) {
#pragma unroll
    for (int i = kStepsAhead; i < kSlots; ++i) full[i].init(1);
#pragma unroll
    for (int i = 0; i < kSlots; ++i) empty[i].init(Tile::kTogether * 4);
    publish_barriers();
    if constexpr (Tile::kShares) mailbox.open(SharedSums<Tile>::incoming(share));
  }
  __syncwarp();
  // All meet at one place: compute-sanitizer calls threads divergent that meet the same barrier at two.
  if constexpr (Tile::kShares) {
    Mailbox::opened();
    Mailbox::await_others();
  } else {
    __syncthreads();
  }
  if (worker < 0) {
    if constexpr (Tile::kMoves) give_registers<Tile::kFew>();
    if (warp < Tile::kCopiers && is_elected()) copies.go_on();
    return;
  }
  await_earlier();
  if constexpr (Tile::kMoves) take_registers<Tile::kMany>();
  unsigned char* const bytes = reinterpret_cast<unsigned char*>(dynamic) + (ring - shared_address(dynamic));
  WideWorker<T, Tile, kTransB, kChains> of(x, mine, share, mailbox, full, empty, bytes, warp);
  of.in_turn(epilogues...);
}

}  // namespace fusion::gpu
#endif

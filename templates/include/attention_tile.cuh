// How much of an attention a block of `attention_tensor` works on at once.
#pragma once

#include "include/attention_fragments.cuh"
#include "include/attention_mask.cuh"

// Whether this is compiled for GPUs whose blocks have 99 KB of shared memory at most.
#if defined(__CUDA_ARCH_LIST__)
#define FUSION_SMALL_BLOCKS (__CUDA_ARCH_LIST__ == 860 || __CUDA_ARCH_LIST__ == 890 || __CUDA_ARCH_LIST__ == 1200)
#else
#define FUSION_SMALL_BLOCKS 0
#endif

namespace fusion::gpu {

constexpr int kAttentionWarps = 4;
constexpr int kAttentionThreads = kAttentionWarps * 32;

// What one block works on. Where kWide all the rows and keys for which the accumulators of a warp still fit in its registers,
// otherwise half of the rows: few queries keep more warps and multiprocessors busy.
template <class T, int kHead, int kValueHead, bool kBare, bool kWide>
struct AttentionTile {
  static constexpr int kDepth = kHead, kValueDepth = (kValueHead + kResultGroup<T> - 1) / kResultGroup<T> * kResultGroup<T>;
  static constexpr bool kDeep = kDepth > 128 || kValueDepth > 128;
  static constexpr bool kShallow = kDepth <= 64 && kValueDepth <= 64;
  static constexpr bool kFloats = sizeof(T) == 4;
  static constexpr int kWarps = kFloats && kWide && !kShallow ? 8 : kAttentionWarps, kThreads = kWarps * 32;
  static constexpr int kFragments = kDeep || !kWide ? 1 : 2;  // of 16 queries, per warp
  static constexpr int kRows = kWarps * kFragments * 16;
  static constexpr bool kHolds = kFloats && !kWide && !kDeep;  // the queries in registers, rounded once
  static constexpr int kHalves = kBare && (kShallow || !FUSION_SMALL_BLOCKS) ? 1 : 2;
  static constexpr int kMost = kFloats ? (kWide && kShallow ? 64 : 32) : (kShallow ? 128 : 64) / kHalves;
  static constexpr int kKeys = kDeep ? 32 : kMost;
  static constexpr int kFewSteps = kFloats ? 256 / kKeys : 0;  // too few to look for hidden ones beforehand
  using Order = std::conditional_t<kBare, InOrder, Dealt<8>>;         // of the keys
  // Sixteen more bytes put the eight rows that a fragment is loaded from in different banks.
  static constexpr int kPitch = kDepth + 16 / sizeof(T), kValuePitch = kValueDepth + 16 / sizeof(T);
  static constexpr int kResident = kShallow ? 2 : 1;  // blocks of a multiprocessor where floats are kWide
  static constexpr int kLeastBlocks = !kFloats && !kWide && kShallow ? 4 : 1;  // that its registers are to be for
  // Results lie where queries, keys and values did, and may need more.
  static constexpr int kOperands = kRows * kPitch + 2 * kKeys * (kPitch + kValuePitch), kResults = kRows * kValuePitch;
  static constexpr size_t kBytes = sizeof(T) * (kOperands > kResults ? kOperands : kResults);
};

// Whether tiles of this kind, which are wide, are better than others: of floats where they keep the multiprocessors busy for
// three rounds.
template <class Tile>
bool is_better(const Device& device, const AttentionShape& s, int64_t batches) {
  if (!Tile::kFloats) return s.queries > Tile::kRows / 2;
  const int64_t blocks = batches * ceil_div(s.queries, Tile::kRows);
  const bool has_room = Tile::kBytes <= static_cast<size_t>(device.shared_memory);
  return has_room && blocks >= int64_t{3} * Tile::kResident * device.multiprocessors;
}

}  // namespace fusion::gpu

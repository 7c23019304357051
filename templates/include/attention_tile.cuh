// How much of an attention a block of `attention_tensor` works on at once.
#pragma once

#include "include/attention_fragments.cuh"
#include "include/attention_mask.cuh"

namespace fusion::gpu {

constexpr int kAttentionWarps = 4;
constexpr int kAttentionThreads = kAttentionWarps * 32;

// What one block works on: all the rows and keys for which the accumulators of a warp still fit in its registers, in
// TF32 with its queries.
template <class T, int kHead, int kValueHead, bool kBare>
struct AttentionTile {
  static constexpr int kDepth = kHead, kValueDepth = (kValueHead + kResultGroup<T> - 1) / kResultGroup<T> * kResultGroup<T>;
  static constexpr bool kDeep = kDepth > 128 || kValueDepth > 128;
  static constexpr int kFragments = kDeep || sizeof(T) == 4 ? 1 : 2;  // of 16 queries, per warp
  static constexpr int kRows = kAttentionWarps * kFragments * 16;
  static constexpr bool kHolds = sizeof(T) == 4 && !kDeep;  // the queries in registers, rounded once
  static constexpr bool kShallow = kDepth <= 64 && kValueDepth <= 64;
  static constexpr int kMost = (kShallow ? 256 : 128) / sizeof(T) / (kBare ? 1 : 2);  // a program needs registers too
  static constexpr int kKeys = kDeep || kMost < 32 ? 32 : kMost;
  static constexpr int kFewSteps = sizeof(T) == 4 ? 256 / kKeys : 0;  // too few to look for hidden ones beforehand
  using Order = std::conditional_t<kBare, InOrder, Dealt<8>>;         // of the keys
  // Sixteen more bytes put the eight rows that a fragment is loaded from in different banks.
  static constexpr int kPitch = kDepth + 16 / sizeof(T), kValuePitch = kValueDepth + 16 / sizeof(T);
  static constexpr size_t kBytes = sizeof(T) * (kRows * kPitch + 2 * kKeys * (kPitch + kValuePitch));
};

}  // namespace fusion::gpu

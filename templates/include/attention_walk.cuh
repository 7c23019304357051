// What a block of attention_wgmma.cuh works on: tiles of queries, of keys and values, and in which order.
#pragma once

#include "include/attention_fragments.cuh"
#include "include/attention_mask.cuh"
#include "include/wgmma.cuh"

#if FUSION_HOPPER
namespace fusion::gpu {

// Whether the rows of every batch are made of 16-byte pieces that are aligned if the first is.
inline bool in_pieces(const View& x) {
  bool whole = x.step(1) <= 1 && x.step(2) <= INT32_MAX;
  for (int back = 2; back <= x.rank; ++back) whole = whole && x.step(back) % 8 == 0;
  return whole;
}

template <int kDepth, int kValueDepth, bool kBare>
struct WarpgroupAttention {
  static constexpr int kWorkers = 2;  // warpgroups that compute
  static constexpr int kThreads = (kWorkers + 1) * kWarpgroup;
  static constexpr int kFew = 40, kMany = 232;  // registers of the one that copies, and of those
  static constexpr int kRows = kWorkers * 64, kKeys = 128, kSlots = 2;
  static constexpr int kPitch = kValueDepth + 8;               // of results
  using Order = std::conditional_t<kBare, InOrder, Dealt<8>>;  // of the keys
  static constexpr int kQueryBytes = 2 * 64 * kDepth, kResultBytes = 2 * 64 * kPitch;          // of a worker
  static constexpr int kKeyBytes = 2 * kKeys * kDepth, kValueBytes = 2 * kKeys * kValueDepth;  // of a slot
  static constexpr int kBytes = 1024 + kWorkers * (kQueryBytes + kResultBytes) + kSlots * (kKeyBytes + kValueBytes);

  // Of fewer queries half of a tile would be idle, and others share the keys out. What masks hide of two tiles of keys
  // is sooner read by smaller blocks.
  static constexpr int64_t kLeastQueries = 65, kLeastKeys = kBare ? 1 : 2 * kKeys + 1;

  static bool takes(const AttentionShape& s, const View& q, const View& k, const View& v,
                    std::initializer_list<const void*> data) {
    bool aligned = in_pieces(q) && in_pieces(k) && in_pieces(v);
    for (const void* p : data) aligned = aligned && reinterpret_cast<uintptr_t>(p) % 16 == 0;
    return s.queries >= kLeastQueries && s.keys >= kLeastKeys && aligned;
  }

  // A block for each multiprocessor, which goes from tile to tile.
  static unsigned grid(const Device& device, const AttentionShape& s, int64_t batches) {
    const int64_t tiles = batches * ceil_div(s.queries, kRows);
    return static_cast<unsigned>(tiles < device.multiprocessors ? tiles : device.multiprocessors);
  }
};

// Starts copying kRows rows of `m` from `row` on into panels, zeros where there are none. For a warpgroup.
template <int kRows, int kColumns, class Order = InOrder, class T>
__device__ __forceinline__ void load_panels(T* shared, const Matrix<T>& m, int row) {
  constexpr int kPieces = kColumns / 8, kStep = kWarpgroup / kPieces;  // rows at a time
  static_assert(kStep % 8 == 0, "a thread's pieces are swizzled alike");
  const int thread = threadIdx.x % kWarpgroup, piece = thread % kPieces, first = thread / kPieces;
  const int columns = static_cast<int>(m.columns) - piece * 8, line = row + Order::from(first);
  const int rows = static_cast<int>(m.rows) - line, stride = static_cast<int>(m.row_stride);
  const int bytes = columns <= 0 ? 0 : columns < 8 ? columns * 2 : 16;
  const T* from = m.data + line * m.row_stride + piece * 8;
  T* const to = shared + piece / 8 * kRows * kPanel + first * kPanel + (piece ^ first) % 8 * 8;
  if (row + kRows <= m.rows && m.columns == kColumns) {  // most tiles, with few instructions, for others need the time
#pragma unroll
    for (int r = 0; r < kRows; r += kStep) {
      copy_async(to + r * kPanel, from);
      from += int64_t{Order::from(r + kStep) - Order::from(r)} * stride;
    }
  } else {
#pragma unroll 4
    for (int r = 0; r < kRows; r += kStep) {
      const int size = Order::from(r) < rows ? bytes : 0;
      copy_async(to + r * kPanel, size > 0 ? from + int64_t{Order::from(r)} * stride : m.data, size);
    }
  }
}

// The tiles of a block, and the keys of each. Blocks have as many tiles, the first and the last of them in turn, since
// tiles come in the order of their lengths.
template <class Tile, Prob kProb, int N, class Program>
struct Walk {
  static constexpr bool kSkips = Program::kByKey;
  const AttentionShape& s;
  const Space<N>& batches;
  const Program& program;
  Ceilings<Tile::kKeys>& ceilings;
  int64_t at[N], batch;
  int first_query, steps;
  bool skips;

  __device__ __forceinline__ bool find(unsigned round) {
    const unsigned turn = round % 2 == 0 ? blockIdx.x : gridDim.x - 1 - blockIdx.x, tile = round * gridDim.x + turn;
    const unsigned rows = static_cast<unsigned>((s.queries + Tile::kRows - 1) / Tile::kRows);
    if (tile >= batches.count * rows) return false;
    const Place place = place_of(tile, s, batches.count, Tile::kRows);
    batch = place.batch, first_query = place.tile * Tile::kRows;
    batches.locate(batch, at);
    const int keys = static_cast<int>(s.keys), visible = visible_keys<kProb, Program>(first_query + Tile::kRows, keys);
    steps = (visible + Tile::kKeys - 1) / Tile::kKeys;
    skips = false;
    if constexpr (kSkips) {
      skips = steps <= Ceilings<Tile::kKeys>::kMost && program.by_key();
      if (skips) {
        __syncthreads();  // all have left the tile before
        ceilings.template find<Tile::kThreads>(program, at, batch, 0, keys, steps);
      }
    }
    return true;
  }

  // Keys are walked from the last to the first, which all rows see: tiles that are hidden in part come first. Those
  // that a mask hides from all queries are left for a second time.
  __device__ __forceinline__ int next(int t, bool again) const {
    do {
      --t;
    } while (kSkips && skips && t >= 0 && ceilings.hidden(t) != again);
    return t;
  }
};

}  // namespace fusion::gpu
#endif

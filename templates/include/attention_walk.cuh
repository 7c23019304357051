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
  // Registers of the one that copies, which also looks at masks, and of those.
  static constexpr int kFew = kBare ? 40 : 56, kMany = kBare ? 232 : 224;
  static_assert(kFew + kWorkers * kMany <= (kWorkers + 1) * (65536 / kThreads / 8 * 8), "more than a block begins with");
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

// What a mask does to tiles of scores, kRows queries by kKeys keys. For a warpgroup, with a barrier of its own.
template <int kRows, int kKeys>
struct TileSorts : Ceilings<kKeys> {
  using Ceilings<kKeys>::of, Ceilings<kKeys>::kMixed;
  static constexpr int kStrips = kKeys / 8;
  static_assert(kStrips == 16, "half of a warp");

  template <class Program, int N>
  __device__ __forceinline__ void find(const Program& program, const int64_t (&at)[N], int64_t batch, int row,
                                       int queries, int keys, int tiles, int barrier) {
    const int thread = threadIdx.x % kWarpgroup;
#pragma unroll 1
    for (int first = 0; first < tiles * kStrips; first += kWarpgroup) {
      const int t = min((first + thread) / kStrips, tiles - 1), start = t * kKeys;
      const int key = program.by_key() ? min(start + thread % kStrips * 8, (keys - 1) / 8 * 8) : start;
      float found = this->judge(program, at, batch, row, key, min(keys, key + 8));
#pragma unroll
      for (int o = kStrips / 2; o > 0; o /= 2) {
        const float other = __shfl_xor_sync(0xffffffffu, found, o);
        const bool hidden = found <= kHidden && other <= kHidden;
        found = hidden ? fmaxf(found, other) : found == other ? found : kMixed;
      }
      if (first + thread < tiles * kStrips) of[t] = found;
    }
    sync_threads(barrier, kWarpgroup);
    if (!program.by_key()) compare(program, at, row, queries, keys, tiles, barrier);
  }

 private:
  // Of a mask that has rows the first strip was judged; tiles that hold anything else are mixed.
  template <class Program, int N>
  __device__ __forceinline__ void compare(const Program& program, const int64_t (&at)[N], int row, int queries, int keys,
                                          int tiles, int barrier) {
    using Strip = typename Program::template Strip<8>;
    constexpr int kStep = kWarpgroup / kStrips, kTogether = sizeof(Strip) > 8 ? 4 : 8;  // for registers
    const int thread = threadIdx.x % kWarpgroup;
    const auto read = [&](int query, int key) {
      Strip strip;
      strip.read_whole(program, at, min(query, queries - 1), min(key, keys - 8));
      return strip;
    };
#pragma unroll 1
    for (int t = 0; t < tiles; ++t) {
      if (of[t] == kMixed) continue;
      const Strip first = read(row, t * kKeys);
      bool alike = true;
#pragma unroll kTogether
      for (int r = 0; r < kRows; r += kStep) {
        alike &= read(row + thread / kStrips + r, t * kKeys + thread % kStrips * 8) == first;
      }
      if (!alike) of[t] = kMixed;
    }
    sync_threads(barrier, kWarpgroup);
  }
};

// The tiles of a block, and the keys of each. Blocks have as many tiles, the first and the last of them in turn, since
// tiles come in the order of their lengths.
template <class Tile, Prob kProb, int N, class Program>
struct Walk {
  static constexpr bool kSkips = Program::kByKey;
  using Sorts = TileSorts<Tile::kRows, Tile::kKeys>;
  const AttentionShape& s;
  const Space<N>& batches;
  const Program& program;
  Sorts (&sorts)[2];  // of two rounds in turn
  int64_t at[N], batch;
  int first_query, steps, turn;
  bool whole = false, skips = false;

  __device__ __forceinline__ bool find(unsigned round) {
    const unsigned column = round % 2 == 0 ? blockIdx.x : gridDim.x - 1 - blockIdx.x, tile = round * gridDim.x + column;
    const unsigned rows = static_cast<unsigned>((s.queries + Tile::kRows - 1) / Tile::kRows);
    if (tile >= batches.count * rows) return false;
    const Place place = place_of(tile, s, batches.count, Tile::kRows);
    batch = place.batch, first_query = place.tile * Tile::kRows, turn = round % 2;
    batches.locate(batch, at);
    const int keys = static_cast<int>(s.keys), visible = visible_keys<kProb, Program>(first_query + Tile::kRows, keys);
    steps = (visible + Tile::kKeys - 1) / Tile::kKeys;
    if constexpr (!Program::kBare) whole = keys % 8 == 0 && program.is_whole(at);
    if constexpr (kSkips) {
      skips = steps <= Sorts::kMost && s.scale > 0.0f && (program.by_key() || (Program::kUniform && whole));
    }
    return true;
  }

  // For the warpgroup that copies, which may be ahead of the others by one round.
  __device__ __forceinline__ void sort(int barrier) const {
    if constexpr (kSkips) {
      const int queries = static_cast<int>(s.queries), keys = static_cast<int>(s.keys);
      if (skips) sorts[turn].find(program, at, batch, first_query, queries, keys, steps, barrier);
    }
  }

  __device__ __forceinline__ bool plain(int t) const { return kSkips && skips && sorts[turn].plain(t); }
  __device__ __forceinline__ float highest_hidden() const {
    return kSkips && skips ? sorts[turn].highest_hidden(steps) : -INFINITY;
  }

  // Whether hidden keys are walked too: not if they add nothing to the rows of any thread. For all threads.
  __device__ __forceinline__ bool goes_on(int barrier, bool counts) const {
    return highest_hidden() > -INFINITY && any_of_threads(barrier, Tile::kThreads, counts);
  }

  // Keys are walked from the last to the first, which all rows see: tiles that are hidden in part come first. Those
  // that a mask hides from all queries are left for a second time.
  __device__ __forceinline__ int next(int t, bool again) const {
    do {
      --t;
    } while (kSkips && skips && t >= 0 && sorts[turn].hidden(t) != again);
    return t;
  }
};

}  // namespace fusion::gpu
#endif

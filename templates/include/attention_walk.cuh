// What a block of attention_wgmma.cuh works on: tiles of queries, of keys and values, and in which order.
#pragma once

#include "include/attention_by_key.cuh"
#include "include/attention_rows.cuh"

#if FUSION_HOPPER
namespace fusion::gpu {

template <int kHead, int kValueHead, bool kBare>
struct WarpgroupAttention {
  static constexpr int kDepth = whole_panels(kHead), kValueDepth = whole_panels(kValueHead);
  // Warpgroups that compute. On an H100, heads of 64, a third is worth a hundredth to eight of 4,096 queries, but tiles are 192 rows
  // then, and 96 heads of 1,024 take 83 us for 73.
  static constexpr int kWorkers = kTileRows / 64;
  static constexpr int kThreads = (kWorkers + 1) * kWarpgroup;
  static constexpr int kFew = 40, kMany = 232;  // registers of the one that copies, and of those
  static_assert(kFew + kWorkers * kMany <= (kWorkers + 1) * (65536 / kThreads / 8 * 8), "more than a block begins with");
  static constexpr int kRows = kTileRows, kKeys = kTileKeys;
  static constexpr int kSlots = kDepth <= kPanel && kValueDepth <= kPanel ? 4 : 2;  // for keys, and for values
  static constexpr int kPitch = kValueDepth + 8;               // of results
  using Order = std::conditional_t<kBare, InOrder, Dealt<8>>;  // of the keys
  static constexpr int kQueryBytes = 2 * 64 * kDepth, kResultBytes = 2 * 64 * kPitch;          // of a worker
  static constexpr int kKeyBytes = 2 * kKeys * kDepth, kValueBytes = 2 * kKeys * kValueDepth;  // of a slot
  // Places for queries: with two of them the next tile's come while this one's keys are walked.
  static constexpr int kMostBytes = 200 * 1024;
  static constexpr int kOtherBytes = 1024 + kWorkers * kResultBytes + kSlots * (kKeyBytes + kValueBytes);
  static constexpr int kPlaces = kOtherBytes + 2 * kWorkers * kQueryBytes <= kMostBytes ? 2 : 1;
  static constexpr int kBytes = kOtherBytes + kPlaces * kWorkers * kQueryBytes;

  static constexpr int64_t kLeastQueries = 65;  // of fewer half of a tile would be idle, and others share the keys out

  static bool takes(const AttentionShape& s, const View& q, const View& k, const View& v,
                    std::initializer_list<const void*> data) {
    return s.queries >= kLeastQueries && s.keys > 0 && are_in_pieces(q, k, v, data);
  }

  static constexpr int kMostRounds = 1024;

  // Whether what masks do to tiles is found beforehand.
  static bool sorts(const Device& device, const AttentionShape& s, int64_t batches) {
    const bool fits = s.keys <= int64_t{Ceilings<kKeys>::kMost} * kKeys;
    return s.scale > 0.0f && fits && batches * ceil_div(s.queries, kRows) <= int64_t{kMostRounds} * device.multiprocessors;
  }

  // A block for each multiprocessor, which goes from tile to tile.
  static unsigned grid(const Device& device, const AttentionShape& s, int64_t batches) {
    const int64_t tiles = batches * ceil_div(s.queries, kRows);
    return static_cast<unsigned>(tiles < device.multiprocessors ? tiles : device.multiprocessors);
  }

  // Blocks have as many tiles, the first and the last of them in turn, since tiles come in the order of their lengths.
  __host__ __device__ static unsigned tile_of(unsigned round, unsigned block, unsigned blocks) {
    return round * blocks + (round % 2 == 0 ? block : blocks - 1 - block);
  }

  // How many batches take turns, up to `s.turns.together` of them, where later queries see more keys: with many of those numbers
  // some blocks are left with the longer tiles of every section.
  static unsigned balanced(const Device& device, AttentionShape s, int64_t batches) {
    constexpr unsigned kMostTried = 16, kManyTiles = 32;  // of a block, which are as many steps whichever they are
    const unsigned most = s.turns.together, blocks = grid(device, s, batches);
    if (batches * ceil_div(s.queries, kRows) > int64_t{kManyTiles} * blocks) return most;
    int64_t least = INT64_MAX;
    unsigned best = most;
    for (unsigned i = 0; i < kMostTried && i < most; ++i) {
      s.turns.together = most - i;
      s.lay_out(batches, kRows);
      const int64_t steps = most_steps(s, blocks);
      if (steps < least) least = steps, best = s.turns.together;
    }
    return best;
  }

 private:
  // The steps of the busiest block, or nearly that: of one in every few.
  static int64_t most_steps(const AttentionShape& s, unsigned blocks) {
    constexpr unsigned kEvery = 11;
    const unsigned tiles = s.turns.batches * s.turns.tiles;
    int64_t most = 0;
    for (unsigned block = 0; block < blocks; block += kEvery) {
      int64_t steps = 0;
      for (unsigned round = 0; tile_of(round, block, blocks) < tiles; ++round) {
        const int64_t end = (place_of(tile_of(round, block, blocks), s.turns).tile + 1) * int64_t{kRows};
        steps += 1 + ceil_div(end < s.keys ? end : s.keys, kKeys);  // one for its beginning and end
      }
      most = steps > most ? steps : most;
    }
    return most;
  }
};

// The largest norm of 16 rows from `first` on, which lie in panels of 64, and a little more. For a warp.
template <int kDepth, class T>
__device__ __forceinline__ float longest_row(const T* panels, int first) {
  constexpr float kMore = 1.01f;  // than sums that were rounded
  const int lane = threadIdx.x % 32;
  float longest = 0.0f;
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int row = first + lane / 4 + r * 8;
    float sum = 0.0f;
#pragma unroll
    for (int piece = lane % 4; piece < kDepth / 8; piece += 4) {
      Strip<T, 8> x;
      x.read(panels + piece / 8 * 64 * kPanel + row * kPanel + (piece ^ row) % 8 * 8);
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        const T element = x[i];
        sum = fmaf(fusion::load(&element), fusion::load(&element), sum);
      }
    }
    longest = max_nan(longest, lanes_sum<4>(sum));
  }
#pragma unroll
  for (int o = 16; o > 0; o /= 2) longest = max_nan(longest, __shfl_xor_sync(0xffffffffu, longest, o));
  return sqrtf(longest) * kMore;
}

// What is known of the tiles of keys that a tile of queries walks.
template <int kKeys>
struct TileSorts : Ceilings<kKeys> {
  using Ceilings<kKeys>::of, Ceilings<kKeys>::hidden;
  float reach[Ceilings<kKeys>::kMost];  // the largest norm of a tile's keys, scaled as scores are

  // Whether scores that were left out are numbers. For a warp.
  __device__ __forceinline__ bool left_out(int tiles) const {
    bool none = true;
    for (int t = threadIdx.x % 32; t < tiles; t += 32) none = none && !(hidden(t) && of[t] > -INFINITY);
    return !__all_sync(0xffffffffu, none);
  }

  // What hidden scores are at most, of queries no longer than `longest`; infinite where that is not known. For a warp.
  __device__ __forceinline__ float highest_hidden(int tiles, float longest) const {
    float top = -INFINITY;
    for (int t = threadIdx.x % 32; t < tiles; t += 32) {
      if (!hidden(t) || of[t] == -INFINITY) continue;
      const float most = fmaf(longest, reach[t], of[t]);
      top = fmaxf(top, most == most ? most : INFINITY);
    }
    return lanes_max<32>(top);
  }

  // The same of products that positions lower, which have their scale afterwards, and so have lengths: from a tile on.
  template <class Program>
  __device__ __forceinline__ float highest_later(int first, int tiles, float longest, float scale) const {
    float top = -INFINITY;
    for (int t = first + threadIdx.x % 32; t < tiles && !Program::kFirm; t += 32) {
      const float most = longest * reach[t];
      top = fmaxf(top, most == most ? most : INFINITY);
    }
    return LaterProduct<Program>(scale)(lanes_max<32>(top));
  }
};

// The tiles of a block, and the keys of each. Keys that a mask hides from all queries are left out; tiles with a row that
// they may count for, which is known at the end of its keys, come once more when all others are done, with all keys.
template <class Tile, Prob kProb, int N, class Program>
struct Walk {
  static constexpr bool kSkips = Program::kSorted || Program::kLowers;
  using Sorts = TileSorts<Tile::kKeys>;
  const AttentionShape& s;
  const Space<N>& batches;
  const Program& program;
  const TileMap& map;
  Sorts (&sorts)[Tile::kPlaces + 1];  // of tiles in turn
  bool (&again)[Tile::kMostRounds];  // which rounds come once more
  int64_t at[N], batch;
  unsigned round = ~0u, count = 0;  // tiles so far
  int first_query, steps;
  bool whole = false, all = false;

  // The next tile. For all threads of the block, which wait at `done` for one another once they are through with theirs.
  __device__ __forceinline__ bool find(Barrier& done) {
    unsigned tile;
    do {
      ++round;
      tile = Tile::tile_of(round, blockIdx.x, gridDim.x);
      if (tile < s.turns.batches * s.turns.tiles) continue;
      if (!skips() || all) return false;
      all = true, round = ~0u;
      done.arrive();
      done.wait(0);
    } while (round == ~0u || (all && !again[round]));
    const Place place = place_of(tile, s.turns);
    batch = place.batch, first_query = place.tile * Tile::kRows, ++count;
    batches.locate_block(batch, at);
    const int keys = static_cast<int>(s.keys), end = first_query + Tile::kRows;
    const bool before = Program::kLowers && skips() && !all;  // later ones are left out
    const int visible = before ? min(end, keys) : visible_keys<kProb, Program>(end, keys);
    steps = (visible + Tile::kKeys - 1) / Tile::kKeys;
    if constexpr (!Program::kBare) whole = program.is_whole(at);
    return true;
  }

  __device__ __forceinline__ bool skips() const { return kSkips && map.tiles > 0; }

  __device__ __forceinline__ Sorts& known() const { return sorts[count % (Tile::kPlaces + 1)]; }

  // Brings what is known of the tiles. For the warpgroup that copies, which may be ahead of the others by kPlaces tiles.
  __device__ __forceinline__ void bring(int barrier) const {
    if (!skips()) return;
    if (by_key()) {
      judge_by_key<Tile::kKeys, kWarpgroup>(known().of, program, at, static_cast<int>(s.keys), steps, whole, walks_all());
    }
    int64_t places[2];
    map.places.locate_block(batch, places);
    if constexpr (Program::kLowers) {
      for (int t = steps + threadIdx.x % kWarpgroup; t < map.tiles && !Program::kFirm; t += kWarpgroup) {
        known().reach[t] = map.lengths[places[1] + t];
      }
      return sync_threads(barrier, kWarpgroup);
    }
    const float* const found = map.sorts + places[0] + first_query / Tile::kRows * map.tiles;
    for (int t = threadIdx.x % kWarpgroup; t < steps; t += kWarpgroup) {
      if (!by_key()) known().of[t] = found[t];
      known().reach[t] = Program::kFirm || walks_all() ? 0.0f : s.scale * map.lengths[places[1] + t];
    }
    sync_threads(barrier, kWarpgroup);
  }

  __device__ __forceinline__ bool by_key() const { return Program::kByKey && map.by_key; }

  // Whether nothing is left out, since nobody knows whether it counts.
  __device__ __forceinline__ bool walks_all() const { return !Program::kFirm && by_key() && map.lengths == nullptr; }

  __device__ __forceinline__ bool plain(int t) const { return Program::kSorted && skips() && known().plain(t); }
  __device__ __forceinline__ bool alike(int t) const { return skips() && known().alike(t); }

  // Whether scores that were left out are numbers.
  __device__ __forceinline__ bool left_out() const {
    if (!skips() || all) return false;
    return Program::kLowers ? steps < map.tiles : known().left_out(steps);
  }

  // What they are at most then, of queries no longer than `longest`.
  __device__ __forceinline__ float highest_left_out(float longest) const {
    if constexpr (Program::kLowers) return known().template highest_later<Program>(steps, map.tiles, longest, s.scale);
    return known().highest_hidden(steps, longest);
  }

  // Keys are walked from the last to the first, which all rows see: tiles that are hidden in part come first.
  __device__ __forceinline__ int next(int t) const {
    do {
      --t;
    } while (Program::kSorted && skips() && !all && t >= 0 && known().hidden(t));
    return t;
  }
};

}  // namespace fusion::gpu
#endif

// What a mask does to tiles of scores and how long keys are, found once before the kernel of attention_wgmma.cuh, which
// walks no tile that is hidden and reads no mask where it leaves scores alone.
#pragma once

#include "include/attention_mask.cuh"

namespace fusion::gpu {

constexpr int kTileRows = 128, kTileKeys = 128;  // of scores: queries by keys
constexpr int kSortThreads = 256;

// Of so few tiles of keys, where a mask is the same for all queries, all are walked if what it hides might count after all: to
// see that it does not takes longer.
constexpr int kAllWalked = 8;

// What is found, and where batches have theirs.
struct TileMap {
  float* sorts;    // [masks, tiles of queries, tiles of keys]: as Ceilings has them
  float* lengths;  // [batches of keys, tiles of keys]: the largest norm of a key; null where nobody asks
  int rows, tiles;
  bool by_key;  // masks are the same for all queries: what they do is seen at once where it is needed
  Space<2> places;
};

// The batches that have masks and keys of their own.
template <int N>
struct SortedSpaces {
  Space<N> masks, keys;
  TileMap map;
  int64_t blocks;
};

// The bytes of the largest maps that an attention of these dimensions [..., queries, value depth] has.
inline size_t tile_map_bytes(const Ints& dims, const Ints& k, bool firm) {
  const int64_t queries = dims[dims.size() - 2], keys = k[k.size() - 2], results = queries * dims.back();
  const int64_t tiles = ceil_div(keys, kTileKeys) * (ceil_div(queries, kTileRows) + (firm ? 0 : 1));
  return results == 0 ? 0 : static_cast<size_t>(count(dims) / results * tiles) * sizeof(float);
}

// `dims` with those axes alone along which one of the views from `first` to `end` has several elements.
inline Ints walked_by(const Ints& dims, const View* first, const View* end) {
  Ints found = dims;
  for (size_t d = 0; d < dims.size(); ++d) {
    bool walks = false;
    for (const View* x = first; x != end; ++x) walks = walks || x->step(static_cast<int>(dims.size() - d)) != 0;
    if (!walks) found[d] = 1;
  }
  return found;
}

// Where the batches of `walked` have `each` numbers, one after the other.
inline View in_turn(const Ints& walked, int64_t each) {
  View out;
  out.rank = static_cast<int>(walked.size());
  for (int d = out.rank - 3; d >= 0; --d) {
    out.size[d] = walked[d], out.stride[d] = each;
    each *= walked[d];
  }
  return out;
}

// `views`: of q, k, v, the result, and what the score program reads. Where that is firm, nobody asks how long keys are.
template <int N>
SortedSpaces<N> sorted_spaces(const Ints& dims, const View (&views)[N], const AttentionShape& s, bool by_key, bool firm,
                              void* memory) {
  const Ints masks = walked_by(dims, views + 4, views + N), keys = walked_by(dims, views + 1, views + 2);
  SortedSpaces<N> out{space<N>(masks, views, 2), space<N>(keys, views, 2), {}, 0};
  TileMap& map = out.map;
  map.by_key = by_key;
  map.rows = static_cast<int>(ceil_div(s.queries, kTileRows)), map.tiles = static_cast<int>(ceil_div(s.keys, kTileKeys));
  const int64_t sorts = by_key ? 0 : out.masks.count * map.rows * map.tiles;
  const int64_t lengths = firm || (by_key && map.tiles <= kAllWalked) ? 0 : out.keys.count * map.tiles;
  map.sorts = static_cast<float*>(memory), map.lengths = lengths == 0 ? nullptr : map.sorts + sorts;
  const View places[] = {in_turn(masks, int64_t{map.rows} * map.tiles), in_turn(keys, map.tiles)};
  map.places = space<2>(dims, places, 2);
  out.blocks = sorts + lengths;
  return out;
}

// Where positions alone hide keys there are no masks to sort; the length of keys is found if there is memory for it.
template <int N>
SortedSpaces<N> measured_spaces(const Ints& dims, const View (&views)[N], const AttentionShape& s, void* memory) {
  const Ints keys = walked_by(dims, views + 1, views + 2);
  SortedSpaces<N> out{{}, space<N>(keys, views, 2), {}, 0};
  TileMap& map = out.map;
  map.lengths = static_cast<float*>(memory);
  map.tiles = static_cast<int>(ceil_div(s.keys, kTileKeys));
  const View places[] = {in_turn(keys, 0), in_turn(keys, map.tiles)};
  map.places = space<2>(dims, places, 2);
  out.blocks = out.keys.count * map.tiles;
  return out;
}

// What a mask does to a tile of `rows` queries and kTileKeys keys, of which a thread has eight of some queries; `alike`
// tells whether those have the same operands as the first one. All that a thread reads is on its way at once.
template <int N, class Program>
__device__ __forceinline__ float sorted_tile(const Program& program, const int64_t (&at)[N], int first, int rows,
                                             int first_key, int keys, bool& alike) {
  using Tiles = Ceilings<kTileKeys>;
  constexpr int kStrips = kTileKeys / 8, kStep = kSortThreads / kStrips, kEach = kTileRows / kStep;
  const int key = min(first_key + static_cast<int>(threadIdx.x) % kStrips * 8, (keys - 1) / 8 * 8);
  // Threads without a row of their own say what the last one's does.
  const auto row = [&](int i) { return first + min(static_cast<int>(threadIdx.x) / kStrips + i * kStep, rows - 1); };
  typename Program::template Strip<8> top, strip[kEach];
  read_strips<8>(program, keys, first_key + kTileKeys, program.is_whole(at), [&](const auto& read) {
    read(top, at, first, key);
#pragma unroll
    for (int i = 0; i < kEach; ++i) read(strip[i], at, row(i), key);
  });
  alike = true;
#pragma unroll
  for (int i = 0; i < kEach; ++i) alike = alike && strip[i].same(top);
  float found = Tiles::judge(program, top, 0, first, key, keys);
  if (Program::kByKey && alike) return found;
  found = Tiles::judge(program, strip[0], 0, row(0), key, keys);
#pragma unroll
  for (int i = 1; i < kEach; ++i) found = Tiles::both(found, Tiles::judge(program, strip[i], 0, row(i), key, keys));
  return found;
}

// The largest square of a norm of the keys from `first` on that a thread has a piece of: rows are made of aligned pieces, all
// of which are on their way together.
template <int kDepth, class T>
__device__ __forceinline__ float longest_key(const T* k, const AttentionShape& s, int first) {
  constexpr int kPieces = kDepth / 8, kStep = kSortThreads / kPieces, kEach = kTileKeys / kStep;
  const int key = first + static_cast<int>(threadIdx.x) / kPieces, last = static_cast<int>(s.keys) - 1;
  const int piece = static_cast<int>(threadIdx.x) % kPieces * 8;
  // Threads without a key of their own have the last one.
  const auto from = [&](int r) { return k + min(key + r * kStep, last) * s.k_row + piece; };
  Strip<T, 8> read[kEach];
  if (piece + 8 <= s.depth) {
#pragma unroll
    for (int r = 0; r < kEach; ++r) read[r].read(from(r));
  } else {
#pragma unroll
    for (int r = 0; r < kEach; ++r) read[r].read(from(r), 1, static_cast<int>(s.depth) - piece);
  }
  float longest = 0.0f;
#pragma unroll
  for (int r = 0; r < kEach; ++r) {
    float sum = 0.0f;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const T element = read[r][i];
      const float x = fusion::load(&element);
      sum = fmaf(x, x, sum);
    }
#pragma unroll
    for (int o = kPieces / 2; o > 0; o /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, o);
    longest = max_nan(longest, sum);
  }
  return longest;
}

// For blocks of kSortThreads: the first of them have a tile of a mask each, the others a tile of keys.
template <int kDepth, class T, int N, class Program>
__device__ __forceinline__ void sort_tiles(const T* k, const AttentionShape& s, const Space<N>& masks, const Space<N>& keys,
                                           const TileMap& map, const Program& program) {
  using Tiles = Ceilings<kTileKeys>;
  __shared__ float found[kSortThreads / 32];
  const unsigned sorted = map.by_key ? 0 : static_cast<unsigned>(masks.count) * map.rows * map.tiles;
  const bool sorts = blockIdx.x < sorted;
  const unsigned tile = sorts ? blockIdx.x : blockIdx.x - sorted;
  const int first_key = static_cast<int>(tile % map.tiles) * kTileKeys;
  int64_t at[N];
  float mine;
  bool alike = false;
  if (sorts) {
    masks.locate_block(tile / (map.rows * map.tiles), at);
    const int first = static_cast<int>(tile / map.tiles) % map.rows * kTileRows;
    const int rows = min(kTileRows, static_cast<int>(s.queries) - first);
    mine = sorted_tile(program, at, first, rows, first_key, static_cast<int>(s.keys), alike);
  } else {
    keys.locate_block(tile / map.tiles, at);
    mine = longest_key<kDepth>(k + at[1], s, first_key);
  }
  const auto join = [&](float a, float b) { return sorts ? Tiles::both(a, b) : max_nan(a, b); };
#pragma unroll
  for (int o = 16; o > 0; o /= 2) mine = join(mine, __shfl_xor_sync(0xffffffffu, mine, o));
  if (threadIdx.x % 32 == 0) found[threadIdx.x / 32] = mine;
  alike = !__syncthreads_or(!alike);
  if (threadIdx.x > 0) return;
  for (float other : found) mine = join(mine, other);
  if (sorts) map.sorts[tile] = alike && mine == Tiles::kMixed ? Tiles::kAlike : mine;
  else map.lengths[tile] = sqrtf(mine);
}

}  // namespace fusion::gpu

// Attention of few keys on Hopper's tensor cores: all of them lie in shared memory at once, and a block is one warpgroup with
// 64 queries. Nobody waits for turns or for places in a ring, and a multiprocessor has several such blocks.
#pragma once

#include "include/attention_rows.cuh"

#if FUSION_HOPPER
namespace fusion::gpu {

template <int kHead_, int kValueHead_, bool kBare, int kTiles_>
struct ShortAttention {
  static constexpr int kHead = kHead_, kValueHead = kValueHead_;
  static constexpr int kDepth = whole_panels(kHead), kValueDepth = whole_panels(kValueHead), kTiles = kTiles_, kKeys = 128;
  static constexpr int kRows = 64, kThreads = kWarpgroup, kPitch = kValueDepth + 8;  // of results
  using Order = std::conditional_t<kBare, InOrder, Dealt<8>>;                        // of the keys
  static constexpr int kQueryBytes = 2 * kRows * kDepth, kResultBytes = 2 * kRows * kPitch;
  static constexpr int kKeyBytes = 2 * kKeys * kDepth, kValueBytes = 2 * kKeys * kValueDepth;  // of a tile
  static constexpr int kBytes = 1024 + kQueryBytes + kResultBytes + kTiles * (kKeyBytes + kValueBytes);
  static constexpr int64_t kLeastQueries = 17;  // fewer share a tile with those of other heads

  static bool takes(const AttentionShape& s, const View& q, const View& k, const View& v,
                    std::initializer_list<const void*> data) {
    const bool few = s.keys > (kTiles - 1) * kKeys && s.keys <= kTiles * kKeys;
    return s.queries >= kLeastQueries && few && are_in_pieces(q, k, v, data);
  }
};

template <class T, class Tile, Prob kProb, int N, class Program>
__device__ __forceinline__ void attention_short(const T* q, const T* k, const T* v, T* out, const AttentionShape& s,
                                                const Space<N>& batches, const Program& program) {
  using Order = typename Tile::Order;
  constexpr int kKeys = Tile::kKeys, kTiles = Tile::kTiles, kDepth = Tile::kDepth, kValueDepth = Tile::kValueDepth;
  extern __shared__ uint4 dynamic[];
  char* const tile_q = reinterpret_cast<char*>(dynamic) + (1024 - shared_address(dynamic) % 1024) % 1024;
  char* const tiles_k = tile_q + Tile::kQueryBytes;
  char* const tiles_v = tiles_k + kTiles * Tile::kKeyBytes;
  const QueryTile<T, N> tile(q, k, v, s, batches, Tile::kRows);
  await_earlier();
  load_panels<Tile::kRows, kDepth>(reinterpret_cast<T*>(tile_q), tile.q, tile.first_query);
#pragma unroll
  for (int t = 0; t < kTiles; ++t) {
    load_panels<kKeys, kDepth, Order>(reinterpret_cast<T*>(tiles_k + t * Tile::kKeyBytes), tile.k, t * kKeys);
    copy_commit();
    load_panels<kKeys, kValueDepth, Order>(reinterpret_cast<T*>(tiles_v + t * Tile::kValueBytes), tile.v, t * kKeys);
    copy_commit();
  }

  const int warp = threadIdx.x / 32, first_row = tile.first_query + warp * 16;
  bool whole = false;
  if constexpr (!Program::kBare) whole = program.is_whole(tile.at);
  WarpgroupRows<T, Tile::kHead, Tile::kValueHead, kKeys, Order, N, Program> mine(s, program, tile.at, tile.batch, first_row,
                                                                                 whole);
  const auto walk = [&](auto tile) {
    constexpr int t = decltype(tile)::value, kLater = 2 * (kTiles - 1 - t);
    mine.read_operands(t);
    await_copies<kLater + 1>();
    mine.start_scores(shared_address(tile_q), shared_address(tiles_k + t * Tile::kKeyBytes));
    products_wait<0>();
    products_of(mine.x[0]);
    float shrink[2];
    mine.template weigh<Program::kBare>(t, shrink);
    mine.join(shrink);
    await_copies<kLater>();
    mine.start_values(shared_address(tiles_v + t * Tile::kValueBytes));
    products_wait<0>();
    products_of(mine.o[0]);
  };
  walk(std::integral_constant<int, 0>{});
  if constexpr (kTiles > 1) walk(std::integral_constant<int, 1>{});
  T* const result = reinterpret_cast<T*>(tiles_v + kTiles * Tile::kValueBytes) + warp * 16 * Tile::kPitch;
  const Matrix<T> to{out + tile.at[3], s.out_row, s.out_column, s.queries, s.value_depth};
  store_result<kProb, 1, Tile::kValueHead, Tile::kPitch>(to, first_row, mine.o, mine.rows.sum, s.keys, result);
}

}  // namespace fusion::gpu
#endif

// Attention of some hundred keys and shallow heads on Hopper's tensor cores: a block is one warpgroup with 64 queries, as in
// attention_short.cuh, and keys come to two places in turn. What one block waits for the others of its multiprocessor hide.
// Measured on an H200, 96 heads of 64, against attention_wgmma.cuh: with a padding mask 31.8 us for 38.3 at 512 keys, 103 for 115
// at 1,024; with a mask of all queries 32.9 for 58.2 at 512; without one 16.4 for 20.8 at 300, 23.8 for 23.8 at 512.
#pragma once

#include "include/attention_by_key.cuh"
#include "include/attention_rows.cuh"

#if FUSION_HOPPER
namespace fusion::gpu {

// kAlike: what the score program reads is the same for all queries.
template <int kHead_, int kValueHead_, bool kBare, bool kAlike_>
struct RingAttention {
  static constexpr bool kAlike = kAlike_;
  static constexpr int kHead = kHead_, kValueHead = kValueHead_;
  static constexpr int kDepth = whole_panels(kHead), kValueDepth = whole_panels(kValueHead), kKeys = kTileKeys, kSlots = 2;
  // With more of them the warpgroups of attention_wgmma.cuh are faster, or may be: they leave out more of what is hidden.
  static constexpr int kMostTiles = kAlike ? 8 : 4;
  static constexpr int kRows = 64, kThreads = kWarpgroup, kResident = 3, kPitch = kValueDepth + 8;  // of results
  using Order = std::conditional_t<kBare, InOrder, Dealt<8>>;                                       // of the keys
  static constexpr int kQueryBytes = 2 * kRows * kDepth, kKeyBytes = 2 * kKeys * kDepth, kValueBytes = 2 * kKeys * kValueDepth;
  static constexpr int kBytes = 1024 + kQueryBytes + kSlots * (kKeyBytes + kValueBytes);
  static_assert(kDepth <= kPanel && kValueDepth <= kPanel, "kResident blocks of a multiprocessor have no room");

  static bool takes(const AttentionShape& s, const View& q, const View& k, const View& v,
                    std::initializer_list<const void*> data) {
    return s.queries > kRows && s.keys > 0 && s.keys <= kMostTiles * kKeys && are_in_pieces(q, k, v, data);
  }
};

template <class T, class Tile, Prob kProb, int N, class Program>
__device__ __forceinline__ void attention_ring(const T* q, const T* k, const T* v, T* out, const AttentionShape& s,
                                               const Space<N>& batches, const Program& program) {
  using Order = typename Tile::Order;
  constexpr int kKeys = Tile::kKeys, kDepth = Tile::kDepth, kValueDepth = Tile::kValueDepth;
  extern __shared__ uint4 dynamic[];
  __shared__ float sorts[Tile::kMostTiles];
  char* const tile_q = reinterpret_cast<char*>(dynamic) + (1024 - shared_address(dynamic) % 1024) % 1024;
  char* const ring_k = tile_q + Tile::kQueryBytes;
  char* const ring_v = ring_k + Tile::kSlots * Tile::kKeyBytes;
  const QueryTile<T, N> tile(q, k, v, s, batches, Tile::kRows);
  const int warp = threadIdx.x / 32, keys = static_cast<int>(s.keys);
  const int tiles = (visible_keys<kProb, Program>(tile.first_query + Tile::kRows, keys) + kKeys - 1) / kKeys;
  bool whole = false;
  if constexpr (!Program::kBare) whole = program.is_whole(tile.at);
  await_earlier();
  load_panels<Tile::kRows, kDepth>(reinterpret_cast<T*>(tile_q), tile.q, tile.first_query);

  // Tiles of keys by bits, those that are hidden from all queries apart: they come last, when it can be told of most that they
  // add nothing.
  unsigned seen = (2u << (tiles - 1)) - 1, hidden = 0;
  if constexpr (Tile::kAlike) {
    judge_by_key<kKeys, Tile::kThreads>(sorts, program, tile.at, keys, tiles, whole, false);
    __syncthreads();
    const int lane = threadIdx.x % 32;
    hidden = __ballot_sync(0xffffffffu, lane < tiles && sorts[lane] <= kHidden);
  } else if constexpr (Program::kLowers) {
    const int first_later = (tile.first_query + Tile::kRows + kKeys - 1) / kKeys;
    hidden = first_later < tiles ? ~0u << first_later & seen : 0;
  }
  seen &= ~hidden;
  const auto is_hidden = [&](int t) { return (Tile::kAlike || Program::kLowers) && (hidden >> t & 1) != 0; };
  unsigned hidden_left = hidden;
  const auto next = [&] {
    const int t = 31 - __clz(seen != 0 ? seen : hidden_left);
    if (t >= 0) seen &= ~(1u << t), hidden_left &= ~(1u << t);
    return t;
  };
  const auto load_k = [&](int t, unsigned n) {
    load_panels<kKeys, kDepth, Order>(reinterpret_cast<T*>(ring_k + n % Tile::kSlots * Tile::kKeyBytes), tile.k, t * kKeys);
  };
  const auto load_v = [&](int t, unsigned n) {
    load_panels<kKeys, kValueDepth, Order>(reinterpret_cast<T*>(ring_v + n % Tile::kSlots * Tile::kValueBytes), tile.v, t * kKeys);
  };
  // Keys and values are a commit each, which may be of nothing.
  const auto load = [&](int t, unsigned n) {
    if (t >= 0) load_k(t, n);
    copy_commit();
    if (t >= 0 && !is_hidden(t)) load_v(t, n);
    copy_commit();
  };

  const int first_row = tile.first_query + warp * 16;
  WarpgroupRows<T, Tile::kHead, Tile::kValueHead, kKeys, Order, N, Program, Tile::kAlike> mine(s, program, tile.at, tile.batch,
                                                                                               first_row, whole);
  int t = next();
  load(t, 0);
#pragma unroll 1
  for (unsigned n = 0; t >= 0; ++n) {
    mine.read_operands(t);
    await_copies<1>();  // and nobody reads what the tile before had
    const int after = next();
    load(after, n + 1);
    mine.start_scores(shared_address(tile_q), shared_address(ring_k + n % Tile::kSlots * Tile::kKeyBytes));
    products_wait<0>();
    products_of(mine.x[0]);
    const int now = t;
    t = after;
    if (is_hidden(now)) {
      if (__syncthreads_and(mine.adds_nothing(now))) continue;
      load_v(now, n);
      copy_commit();
      copy_wait<0>();
    }
    float shrink[2];
    mine.template weigh<Program::kBare>(now, shrink);
    mine.join(shrink);
    await_copies<2>();
    mine.start_values(shared_address(ring_v + n % Tile::kSlots * Tile::kValueBytes));
    products_wait<0>();
    products_of(mine.o[0]);
  }
  copy_wait<0>();
  __syncthreads();  // results lie where keys did
  T* const result = reinterpret_cast<T*>(ring_k) + warp * 16 * Tile::kPitch;
  const Matrix<T> to{out + tile.at[3], s.out_row, s.out_column, s.queries, s.value_depth};
  store_result<kProb, 1, Tile::kValueHead, Tile::kPitch>(to, first_row, mine.o, mine.rows.sum, keys, result);
}

}  // namespace fusion::gpu
#endif

// Attention of many queries on Hopper's tensor cores: one warpgroup brings keys and values, the others have 64 queries
// each, and take turns at the tensor cores: while one of them computes weights, another multiplies.
#pragma once

#include "include/attention_walk.cuh"

#if FUSION_HOPPER
namespace fusion::gpu {

template <class T, int kHead, int kValueHead, Prob kProb, int N, class Program>
__device__ __forceinline__ void attention_wgmma(const T* q, const T* k, const T* v, T* out, const AttentionShape& s,
                                                const Space<N>& batches, const TileMap& map, const Program& program) {
  using Tile = WarpgroupAttention<kHead, kValueHead, Program::kBare>;
  using Order = typename Tile::Order;
  constexpr int kDepth = Tile::kDepth, kValueDepth = Tile::kValueDepth, kKeys = Tile::kKeys;
  constexpr int kSlots = Tile::kSlots, kWorkers = Tile::kWorkers;
  constexpr int kBrought = kWorkers + 1;  // a barrier; those before are the workers' turns
  extern __shared__ uint4 dynamic[];
  char* const tiles_q = reinterpret_cast<char*>(dynamic) + (1024 - shared_address(dynamic) % 1024) % 1024;
  char* const ring_k = tiles_q + Tile::kPlaces * kWorkers * Tile::kQueryBytes;
  char* const ring_v = ring_k + kSlots * Tile::kKeyBytes;
  char* const results = ring_v + kSlots * Tile::kValueBytes;
  __shared__ Barrier q_full[Tile::kPlaces], q_empty[Tile::kPlaces];
  __shared__ Barrier k_full[kSlots], k_empty[kSlots], v_full[kSlots], v_empty[kSlots], done;
  __shared__ TileSorts<kKeys> sorts[Tile::kPlaces + 1];
  __shared__ bool again[Tile::kMostRounds];
  using Keys = Walk<Tile, kProb, N, Program>;
  for (int i = threadIdx.x; Keys::kSkips && i < Tile::kMostRounds; i += Tile::kThreads) again[i] = false;
  if (threadIdx.x == 0) {
    for (int i = 0; i < Tile::kPlaces; ++i) q_full[i].init(2 * kWarpgroup), q_empty[i].init(kWorkers * 4);
    for (int i = 0; i < kSlots; ++i) {
      k_full[i].init(kWarpgroup), v_full[i].init(kWarpgroup);
      k_empty[i].init(kWorkers * 4), v_empty[i].init(kWorkers * 4);
    }
    done.init(Tile::kThreads);
    publish_barriers();
  }
  __syncthreads();
  await_earlier();

  const int queries = static_cast<int>(s.queries), keys = static_cast<int>(s.keys);
  Keys walk{s, batches, program, map, sorts, again};
  // How often a place has been filled tells its phase.
  const auto slot = [](unsigned n) { return n % kSlots; };
  const auto phase = [](unsigned n) { return static_cast<int>(n / kSlots % 2); };
  const auto place = [&] { return (walk.count - 1) % Tile::kPlaces; };
  const auto turn = [&] { return static_cast<int>((walk.count - 1) / Tile::kPlaces); };
  const auto queries_of = [&](int worker) { return tiles_q + (place() * kWorkers + worker) * Tile::kQueryBytes; };
  const int worker = warpgroup() - 1;
  if (worker < 0) {
    give_registers<Tile::kFew>();
    CopiesInOrder copies;
    unsigned filled = 0;
    while (walk.find(done)) {
      const Matrix<T> mq{q + walk.at[0], s.q_row, 1, s.queries, s.depth};
      const Matrix<T> mk{k + walk.at[1], s.k_row, 1, s.keys, s.depth};
      const Matrix<T> mv{v + walk.at[2], s.v_row, 1, s.keys, s.value_depth};
      if (turn() > 0) q_empty[place()].wait((turn() - 1) % 2);
#pragma unroll 1
      for (int i = 0; i < kWorkers; ++i) {
        load_panels<64, kDepth>(reinterpret_cast<T*>(queries_of(i)), mq, walk.first_query + i * 64);
      }
      copies.arrive_at(q_full[place()]);
      walk.bring(kBrought);
      q_full[place()].arrive();  // and what masks do is known
      const auto load_k = [&](int t, unsigned n) {
        if (n >= kSlots) k_empty[slot(n)].wait(phase(n - kSlots));
        T* const tile = reinterpret_cast<T*>(ring_k + slot(n) * Tile::kKeyBytes);
        load_panels<kKeys, kDepth, Order>(tile, mk, t * kKeys);
        copies.arrive_at(k_full[slot(n)]);
      };
      int t = walk.next(walk.steps);
      if (t >= 0) load_k(t, filled);
#pragma unroll 1
      for (int after; t >= 0; t = after, ++filled) {
        after = walk.next(t);
        if (after >= 0) load_k(after, filled + 1);
        if (filled >= kSlots) v_empty[slot(filled)].wait(phase(filled - kSlots));
        T* const tile = reinterpret_cast<T*>(ring_v + slot(filled) * Tile::kValueBytes);
        load_panels<kKeys, kValueDepth, Order>(tile, mv, t * kKeys);
        copies.arrive_at(v_full[slot(filled)]);
      }
      copies.finish();
    }
    return;
  }

  take_registers<Tile::kMany>();
  const int lane = threadIdx.x % 32, warp = threadIdx.x % kWarpgroup / 32;
  T* const result = reinterpret_cast<T*>(results + worker * Tile::kResultBytes) + warp * 16 * Tile::kPitch;
  // Turns at the tensor cores: a worker's numbered barrier is passed once all others have started their products.
  constexpr int kTogether = kWorkers * kWarpgroup;
  const auto my_turn = [&] { sync_threads(1 + worker, kTogether); };
  const auto let = [&](int first, int end) {
    for (int other = first; other < end; ++other) arrive_threads(1 + other, kTogether);
  };
  const auto next_turn = [&] {
#pragma unroll
    for (int i = 1; i < kWorkers; ++i) arrive_threads(1 + (worker + i) % kWorkers, kTogether);
  };
  const auto release = [&](Barrier& barrier) {
    if (lane == 0) barrier.arrive();
  };
  let(0, worker);  // the first is the first one's

  // Queries are free once the last scores are there, unless it is asked afterwards how long they are.
  const bool frees_early = Program::kFirm || !walk.skips() || walk.walks_all();
  unsigned read = 0;
  while (walk.find(done)) {
    const int first_row = walk.first_query + worker * 64 + warp * 16;
    WarpgroupRows<T, kHead, kValueHead, kKeys, Order, N, Program> mine(s, program, walk.at, walk.batch, first_row,
                                                                         walk.whole);
    const uint32_t tile_q = shared_address(queries_of(worker));
    // What the score program reads is asked for first: it is on its way while the keys and the turn are waited for.
    const auto start_scores = [&](int t, unsigned n) {
      if constexpr (!Program::kBare) {
        if (!walk.plain(t)) mine.read_operands(t, walk.alike(t));
      }
      k_full[slot(n)].wait(phase(n));
      my_turn();
      mine.start_scores(tile_q, shared_address(ring_k + slot(n) * Tile::kKeyBytes));
    };
    const auto start_values = [&](unsigned n) {
      v_full[slot(n)].wait(phase(n));
      mine.start_values(shared_address(ring_v + slot(n) * Tile::kValueBytes));
    };
    // The scores that have been started become weights, while the values of those before are still multiplied.
    const auto finish_scores = [&](int t, float(&shrink)[2]) {
      const auto finish = [&](auto plain) {
        constexpr bool kPlain = decltype(plain)::value;
        products_wait<1>();
        products_of(mine.x[0]);
        release(k_empty[slot(read)]);
        mine.template weigh<kPlain>(t, shrink);
      };
      if (Program::kBare || walk.plain(t)) finish(std::true_type{});
      else if constexpr (!Program::kBare) finish(std::false_type{});
    };

    q_full[place()].wait(turn() % 2);
    // A tile of keys: its scores, and the values of the one before. Gives the next.
    const auto walk_keys = [&](int t, auto more) {
      float shrink[2];
      start_scores(t, read);
      if (more) start_values(read - 1);
      else products_commit();
      next_turn();
      const int after = walk.next(t);
      finish_scores(t, shrink);
      if (frees_early && after < 0) release(q_empty[place()]);
      products_wait<0>();
      products_of(mine.o[0]);
      if (more) release(v_empty[slot(read - 1)]);
      mine.join(shrink);
      ++read;
      return after;
    };
    int t = walk.next(walk.steps);
    const bool any = t >= 0;
    if constexpr (Program::kBare) {
      if (any) t = walk_keys(t, std::false_type{});
#pragma unroll 1
      while (t >= 0) t = walk_keys(t, std::true_type{});
    } else {  // with a score program that is too much code to have twice
#pragma unroll 1
      for (bool more = false; t >= 0; more = true) t = walk_keys(t, all_alike(more));
    }
    if (any) {
      start_values(read - 1);
      products_wait<0>();
      products_of(mine.o[0]);
      release(v_empty[slot(read - 1)]);
    }
    if constexpr (walk.kSkips) {
      if (walk.left_out()) {
        const T* const own = reinterpret_cast<const T*>(queries_of(worker));
        const float top = walk.highest_left_out(Program::kFirm ? 0.0f : longest_row<kHead>(own, warp * 16));
        const bool far = mine.rows.is_far(top, 0, 0) && mine.rows.is_far(top, 0, 1);
        if (first_row < queries && !far) again[walk.round] = true;
      }
    }
    if (!frees_early || !any) release(q_empty[place()]);
    __syncwarp();  // the last result has been stored
    const Matrix<T> to{out + walk.at[3], s.out_row, s.out_column, s.queries, s.value_depth};
    store_result<kProb, 1, kValueHead, Tile::kPitch>(to, first_row, mine.o, mine.rows.sum, keys, result);
  }
  // Who came before has arrived once more than it was waited for.
  my_turn();
  let(worker + 1, kWorkers);
}

}  // namespace fusion::gpu
#endif

// Attention of many queries on Hopper's tensor cores: one warpgroup brings keys and values, the others have 64 queries
// each, and take turns at the tensor cores: while one of them computes weights, another multiplies.
#pragma once

#include "include/attention_walk.cuh"

#if FUSION_HOPPER
namespace fusion::gpu {

template <class T, int kDepth, int kValueDepth, Prob kProb, int N, class Program>
__device__ __forceinline__ void attention_wgmma(const T* q, const T* k, const T* v, T* out, const AttentionShape& s,
                                                const Space<N>& batches, const TileMap& map, const Program& program) {
  using Tile = WarpgroupAttention<kDepth, kValueDepth, Program::kBare>;
  using Order = typename Tile::Order;
  using Element = typename Program::Element;
  constexpr int kKeys = Tile::kKeys, kSlots = Tile::kSlots, kWorkers = Tile::kWorkers;
  constexpr int kBrought = kWorkers + 1, kVote = kWorkers + 2;  // barriers; those before are the workers' turns
  extern __shared__ uint4 dynamic[];
  char* const tiles_q = reinterpret_cast<char*>(dynamic) + (1024 - shared_address(dynamic) % 1024) % 1024;
  char* const ring_k = tiles_q + kWorkers * Tile::kQueryBytes;
  char* const ring_v = ring_k + kSlots * Tile::kKeyBytes;
  char* const results = ring_v + kSlots * Tile::kValueBytes;
  __shared__ Barrier q_full, q_empty, k_full[kSlots], k_empty[kSlots], v_full[kSlots], v_empty[kSlots];
  __shared__ TileSorts<kKeys> sorts[2];
  if (threadIdx.x == 0) {
    q_full.init(2 * kWarpgroup), q_empty.init(kWorkers * 4);
    for (int i = 0; i < kSlots; ++i) {
      k_full[i].init(kWarpgroup), v_full[i].init(kWarpgroup);
      k_empty[i].init(kWorkers * 4), v_empty[i].init(kWorkers * 4);
    }
    publish_barriers();
  }
  __syncthreads();

  const int queries = static_cast<int>(s.queries), keys = static_cast<int>(s.keys);
  Walk<Tile, kProb, N, Program> walk{s, batches, program, map, sorts};
  // How often a place has been filled tells its phase.
  const auto slot = [](unsigned n) { return n % kSlots; };
  const auto phase = [](unsigned n) { return static_cast<int>(n / kSlots % 2); };
  const int worker = static_cast<int>(threadIdx.x) / kWarpgroup - 1;
  if (worker < 0) {
    give_registers<Tile::kFew>();
    CopiesInOrder copies;
    unsigned filled = 0;
    for (unsigned round = 0; walk.find(round); ++round) {
      walk.bring(kBrought);
      const Matrix<T> mq{q + walk.at[0], s.q_row, 1, s.queries, s.depth};
      const Matrix<T> mk{k + walk.at[1], s.k_row, 1, s.keys, s.depth};
      const Matrix<T> mv{v + walk.at[2], s.v_row, 1, s.keys, s.value_depth};
      if (round > 0) q_empty.wait((round - 1) % 2);
#pragma unroll 1
      for (int i = 0; i < kWorkers; ++i) {
        load_panels<64, kDepth>(reinterpret_cast<T*>(tiles_q + i * Tile::kQueryBytes), mq, walk.first_query + i * 64);
      }
      copies.arrive_at(q_full);
      q_full.arrive();  // and what masks do is known
      const auto load_k = [&](int t, unsigned n) {
        if (n >= kSlots) k_empty[slot(n)].wait(phase(n - kSlots));
        T* const tile = reinterpret_cast<T*>(ring_k + slot(n) * Tile::kKeyBytes);
        load_panels<kKeys, kDepth, Order>(tile, mk, t * kKeys);
        copies.arrive_at(k_full[slot(n)]);
      };
#pragma unroll 1
      for (int again = 0; again < (walk.kSkips ? 2 : 1); ++again) {
        if (again && !walk.goes_on(kVote, false)) break;
        int t = walk.next(walk.steps, again);
        if (t >= 0) load_k(t, filled);
#pragma unroll 1
        for (int after; t >= 0; t = after, ++filled) {
          after = walk.next(t, again);
          if (after >= 0) load_k(after, filled + 1);
          if (filled >= kSlots) v_empty[slot(filled)].wait(phase(filled - kSlots));
          T* const tile = reinterpret_cast<T*>(ring_v + slot(filled) * Tile::kValueBytes);
          load_panels<kKeys, kValueDepth, Order>(tile, mv, t * kKeys);
          copies.arrive_at(v_full[slot(filled)]);
        }
        copies.finish();
      }
    }
    return;
  }

  take_registers<Tile::kMany>();
  const int lane = threadIdx.x % 32, warp = threadIdx.x % kWarpgroup / 32;
  const uint32_t tile_q = shared_address(tiles_q + worker * Tile::kQueryBytes);
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

  float x[1][kKeys / 8][4], o[1][kValueDepth / 8][4];
  uint32_t p[kKeys / 16][4];
  unsigned read = 0;
  for (unsigned round = 0; walk.find(round); ++round) {
    const int first_row = walk.first_query + worker * 64 + warp * 16;
    // Rows past the end read the last one's operands; nothing comes of it.
    const auto row = [&](int r) { return min(first_row + lane / 4 + r * 8, queries - 1); };
    RunningRows<1, Program::kBare> rows(score_unit<Program>(s));
    if constexpr (Program::kSink) {
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        rows.begin_with(program.sink(0.0f, Element{program, walk.at, row(r), 0}, walk.batch, row(r), 0), 0, r);
      }
    }
#pragma unroll
    for (int j = 0; j < kValueDepth / 8; ++j) o[0][j][0] = o[0][j][1] = o[0][j][2] = o[0][j][3] = 0.0f;

    const auto start_scores = [&](unsigned n) {
      const uint32_t tile_k = shared_address(ring_k + slot(n) * Tile::kKeyBytes);
      k_full[slot(n)].wait(phase(n));
      my_turn();
      products_of(x[0]);
      products_begin();
#pragma unroll
      for (int d = 0; d < kDepth / 16; ++d) {
        const uint64_t a = panel(tile_q + d / 4 * (64 * 128) + d % 4 * 32);
        const uint64_t b = panel(tile_k + d / 4 * (kKeys * 128) + d % 4 * 32);
        WarpgroupProduct<T, kKeys>::by_rows(x[0], a, b, d > 0);
      }
      products_commit();
    };
    const auto start_values = [&](unsigned n) {
      const uint32_t tile_v = shared_address(ring_v + slot(n) * Tile::kValueBytes);
      v_full[slot(n)].wait(phase(n));
      products_of(o[0]);
      products_begin();
#pragma unroll
      for (int j = 0; j < kKeys / 16; ++j) {
        WarpgroupProduct<T, kValueDepth>::by_columns(o[0], p[j], panel(tile_v + j * 16 * 128, kKeys * 128), true);
      }
      products_commit();
    };
    const auto column = [&](int t, int j, int e) { return t * kKeys + Order::from(j * 8 + lane % 4 * 2 + e % 2); };
    // What the score program reads, on its way during the product.
    typename Program::template Strip<8> strip[Program::kBare ? 1 : kKeys / 32][2];
    const auto read_operands = [&](int t) {
      if (!walk.whole) return;
#pragma unroll
      for (int g = 0; g < (Program::kBare ? 0 : kKeys / 32); ++g) {
        const int key = min(column(t, g * 4, 0), keys - 8);
#pragma unroll
        for (int r = 0; r < 2; ++r) strip[g][r].read_whole(program, walk.at, row(r), key);
      }
    };
    const auto each_score = [&](const auto& made) {
#pragma unroll
      for (int j = 0; j < kKeys / 8; ++j) {
#pragma unroll
        for (int e = 0; e < 4; ++e) x[0][j][e] = made(x[0][j][e], j, e);
      }
    };
    // Makes weights of the scores in x; those so far are to be multiplied by `shrink`. `plain`: no mask changes them.
    const auto weigh = [&](auto plain, int t, float(&shrink)[2]) {
      constexpr bool kPlain = decltype(plain)::value, kRaw = kPlain && !Program::kBare;  // x is not scaled yet
      if constexpr (!kPlain) {
        if (walk.whole) {
          each_score([&](float product, int j, int e) {
            const auto element = strip[j / 4][e / 2][j % 4 * 2 + e % 2];
            return program.score(product * s.scale, element, walk.batch, row(e / 2), column(t, j, e));
          });
        } else {
          each_score([&](float product, int j, int e) {
            const int query = row(e / 2), key = min(column(t, j, e), keys - 1);
            return program.score(product * s.scale, Element{program, walk.at, query, key}, walk.batch, query, key);
          });
        }
      }
      constexpr bool kTriangle = Program::kBare && Program::kCausal;  // a program of its own knows what is later
      if ((t + 1) * kKeys > (kTriangle ? min(keys, first_row + 1) : keys)) {
        each_score([&](float score, int j, int e) {
          const int last = kTriangle ? min(row(e / 2), keys - 1) : keys - 1;
          return column(t, j, e) <= last ? score : -INFINITY;
        });
      }
      const float unit = kRaw ? s.scale : 1.0f;  // of x, in scores
#pragma unroll
      for (int r = 0; r < 2; ++r) shrink[r] = rows.raise(highest<kKeys>(x[0], r) * unit, 0, r);
      if constexpr (kRaw) {
        const float factor = unit * rows.unit;
        const float offset[2] = {rows.offset[0][0] * rows.unit, rows.offset[0][1] * rows.unit};
        each_score([&](float product, int, int e) { return exp2_fast(fmaf(product, factor, -offset[e / 2])); });
      } else {
        each_score([&](float score, int, int e) { return rows.weight(score, 0, e / 2); });
      }
#pragma unroll
      for (int j = 0; j < kKeys / 8; ++j) {
#pragma unroll
        for (int e = 0; e < 4; ++e) rows.sum[0][e / 2] += x[0][j][e];
      }
    };
    const auto shrink_values = [&](const float(&by)[2]) {
#pragma unroll
      for (int j = 0; j < kValueDepth / 8; ++j) {
#pragma unroll
        for (int e = 0; e < 4; ++e) o[0][j][e] *= by[e / 2];
      }
    };
    const auto pack_weights = [&] {
#pragma unroll
      for (int j = 0; j < kKeys / 8; ++j) {
        p[j / 2][j % 2 * 2] = pack<T>(x[0][j][0], x[0][j][1]);
        p[j / 2][j % 2 * 2 + 1] = pack<T>(x[0][j][2], x[0][j][3]);
      }
    };

    // The scores that have been started become weights, while the values of those before are still multiplied.
    const auto finish_scores = [&](int t, float(&shrink)[2], auto pending) {
      const auto finish = [&](auto plain) {
        if constexpr (!decltype(plain)::value) read_operands(t);
        products_wait<decltype(pending)::value>();
        products_of(x[0]);
        release(k_empty[slot(read)]);
        weigh(plain, t, shrink);
      };
      if (Program::kBare || walk.plain(t)) finish(std::true_type{});
      else if constexpr (!Program::kBare) finish(std::false_type{});
    };

    q_full.wait(round % 2);
#pragma unroll 1
    for (int again = 0; again < (walk.kSkips ? 2 : 1); ++again) {
      if (again) {
        const T* const own = reinterpret_cast<const T*>(tiles_q + worker * Tile::kQueryBytes);
        const float top = walk.highest_hidden(Program::kFirm ? 0.0f : longest_row<kDepth>(own, warp * 16));
        const bool far = rows.is_far(top, 0, 0) && rows.is_far(top, 0, 1);
        if (!walk.goes_on(kVote, first_row < queries && !far)) break;
      }
      int t = walk.next(walk.steps, again);
      if (t < 0) continue;
      float shrink[2];
      start_scores(read);
      next_turn();
      finish_scores(t, shrink, std::integral_constant<int, 0>{});
      shrink_values(shrink);
      pack_weights();
#pragma unroll 1
      for (t = walk.next(t, again); t >= 0; t = walk.next(t, again)) {
        start_scores(++read);
        start_values(read - 1);
        next_turn();
        finish_scores(t, shrink, std::integral_constant<int, 1>{});
        products_wait<0>();
        products_of(o[0]);
        release(v_empty[slot(read - 1)]);
        shrink_values(shrink);
        pack_weights();
      }
      start_values(read);
      products_wait<0>();
      products_of(o[0]);
      release(v_empty[slot(read++)]);
    }
    release(q_empty);
    __syncwarp();  // the last result has been stored
    const Matrix<T> to{out + walk.at[3], s.out_row, s.out_column, s.queries, s.value_depth};
    store_result<kProb, 1, kValueDepth, Tile::kPitch>(to, first_row, o, rows.sum, keys, result);
  }
  // Who came before has arrived once more than it was waited for.
  my_turn();
  let(worker + 1, kWorkers);
}

}  // namespace fusion::gpu
#endif

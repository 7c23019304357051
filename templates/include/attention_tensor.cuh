// Attention on tensor cores, in fp16 and bf16, and of fp32 in TF32.
#pragma once

#include "include/attention_fragments.cuh"
#include "include/attention_split.cuh"
#include "include/attention_tile.cuh"

namespace fusion::gpu {

// A block has a tile of queries and walks its split of the keys, the next tile of K and V on its way meanwhile.
//   float Program::score(acc, element, batch, query, key), prob(p, ...), sink(0, ...)
template <class T, class Tile, Prob kProb, int N, class Program>
__device__ __forceinline__ void attention_tensor(const T* q, const T* k, const T* v, T* out, const AttentionShape& s,
                                                 const Space<N>& batches, const KeySplit& split,
                                                 const Program& program) {
  using Order = typename Tile::Order;
  using Element = typename Program::Element;
  constexpr int kKeys = Tile::kKeys, kFragments = Tile::kFragments, kDepth = Tile::kDepth, kValueDepth = Tile::kValueDepth;
  constexpr int kPitch = Tile::kPitch, kValuePitch = Tile::kValuePitch;
  constexpr bool kTwice = kProb == Prob::kGeneral;  // walks the keys once for the rows' sums, then for the result
  // Walks the keys that a mask shows to all queries, then the others where they count.
  constexpr bool kSkips = Program::kByKey && !kTwice && !Tile::kDeep;
  extern __shared__ uint4 dynamic[];
  T* const tile_q = reinterpret_cast<T*>(dynamic);
  T* const ring_k = tile_q + Tile::kRows * kPitch;
  T* const ring_v = ring_k + 2 * kKeys * kPitch;

  const int queries = static_cast<int>(s.queries), keys = static_cast<int>(s.keys);
  const Place place = place_of(blockIdx.x, s.turns);
  const int64_t batch = place.batch;
  const int first_query = place.tile * Tile::kRows;
  int64_t at[N];
  batches.locate_block(batch, at);
  const Matrix<T> mq{q + at[0], s.q_row, s.q_column, s.queries, s.depth};
  const Matrix<T> mk{k + at[1], s.k_row, s.k_column, s.keys, s.depth};
  const Matrix<T> mv{v + at[2], s.v_row, s.v_column, s.keys, s.value_depth};
  const bool wide_k = mk.wide(), wide_v = mv.wide();
  bool whole = false;
  if constexpr (!Program::kBare) whole = program.is_whole(at);

  const int begin = blockIdx.y * split.keys;
  const int visible = visible_keys<kProb, Program>(first_query + Tile::kRows, keys) - begin;
  const int steps = (max(min(visible, split.keys), 0) + kKeys - 1) / kKeys;
  load_tile<Tile::kRows, kDepth, kPitch, Tile::kThreads>(tile_q, mq, first_query, 0, mq.wide());

  __shared__ Ceilings<kKeys> ceilings;
  bool skips = false;
  if constexpr (kSkips) {
    skips = steps > Tile::kFewSteps && steps <= Ceilings<kKeys>::kMost && program.by_key();
    if (skips) ceilings.template find<Tile::kThreads>(program, at, batch, begin, keys, steps);
  }
  const auto next = [&](int t, int walk) {
    do {
      ++t;
    } while (kSkips && skips && t < steps && ceilings.hidden(t) != (walk > 0));
    return t;
  };
  const auto fetch = [&](int t, int slot, int walk) {
    if (t < steps) {
      const int64_t key = begin + t * kKeys;
      load_tile<kKeys, kDepth, kPitch, Tile::kThreads, Order>(ring_k + slot * kKeys * kPitch, mk, key, 0, wide_k);
      if (!kTwice || walk > 0) {
        load_tile<kKeys, kValueDepth, kValuePitch, Tile::kThreads, Order>(ring_v + slot * kKeys * kValuePitch, mv,
                                                                             key, 0, wide_v);
      }
    }
    copy_commit();
  };
  int first = next(-1, 0), slot = 0;
  copy_commit();
  fetch(first, slot, 0);

  const int lane = threadIdx.x % 32, warp_row = threadIdx.x / 32 * kFragments * 16;
  uint32_t held[Tile::kHolds ? kDepth / kProductDepth<T> : 1][kFragments][4];
  const auto read_queries = [&](int d, uint32_t (&fq)[kFragments][4]) {
#pragma unroll
    for (int i = 0; i < kFragments; ++i) {
      load_a<false, kPitch>(fq[i], tile_q, warp_row + i * 16, d * kProductDepth<T>);
      round_operands<T>(fq[i]);
    }
  };
  if constexpr (Tile::kHolds) {
    copy_wait<1>();
    __syncthreads();
#pragma unroll
    for (int d = 0; d < kDepth / kProductDepth<T>; ++d) read_queries(d, held[d]);
  }
  const bool idle = first_query + warp_row >= queries;
  // Rows past the end read the last one's operands; nothing comes of it.
  const auto row = [&](int i, int r) { return min(first_query + warp_row + i * 16 + lane / 4 + r * 8, queries - 1); };
  RunningRows<kFragments, Program::kSmall> rows(score_unit<Program>(s));
  float o[kFragments][kValueDepth / 8][4] = {};
  if constexpr (Program::kSink) {
#pragma unroll
    for (int i = 0; i < kFragments; ++i) {
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        if (blockIdx.y > 0) continue;
        const int query = row(i, r);
        rows.begin_with(program.sink(0.0f, Element{program, at, query, 0}, batch, query, 0), i, r);
      }
    }
  }

#pragma unroll 1
  for (int walk = 0; walk < (kTwice || kSkips ? 2 : 1); ++walk) {
    if (walk > 0) {
      bool counts = kTwice;
      if constexpr (kSkips) {
        const float top = skips ? ceilings.highest_hidden(steps) : -INFINITY;
#pragma unroll
        for (int i = 0; i < kFragments; ++i) {
#pragma unroll
          for (int r = 0; r < 2; ++r) {
            counts |= !idle && top > -INFINITY && (!Program::kFirm || !rows.is_far(top, i, r));
          }
        }
      }
      if (!__syncthreads_or(counts)) break;
      first = next(-1, walk);
      fetch(first, slot, walk);
    }
#pragma unroll 1
    for (int t = first, after; t < steps; t = after, slot ^= 1) {
      copy_wait<0>();
      __syncthreads();  // this step's tiles have arrived, and all have left those that are overwritten next
      after = next(t, walk);
      fetch(after, slot ^ 1, walk);
      const int first_key = begin + t * kKeys;
      // Of a tile that crosses the diagonal, the first rows may see nothing.
      const bool above = Program::kCausal && !kTwice && first_key >= first_query + warp_row + kFragments * 16;
      if (idle || above) continue;
      const T* const tile_k = ring_k + slot * kKeys * kPitch;
      const T* const tile_v = ring_v + slot * kKeys * kValuePitch;
      const auto column = [&](int j, int e) { return first_key + Order::from(j * 8 + lane % 4 * 2 + e % 2); };

      // What the score program reads, on its way during the product.
      using Strip = typename Program::template Strip<8>;
      Strip strip[Program::kBare ? 1 : kKeys / 32][kFragments][2];
      if constexpr (!Program::kBare) {
        read_strips<8>(program, keys, first_key + kKeys, whole, [&](const auto& read) {
#pragma unroll
          for (int g = 0; g < kKeys / 32; ++g) {
#pragma unroll
            for (int i = 0; i < kFragments; ++i) {
#pragma unroll
              for (int r = 0; r < 2; ++r) read(strip[g][i][r], at, row(i, r), column(g * 4, 0));
            }
          }
        });
      }

      float x[kFragments][kKeys / 8][4] = {};
#pragma unroll
      for (int d = 0; d < kDepth / kProductDepth<T>; ++d) {
        uint32_t(&fq)[kFragments][4] = held[Tile::kHolds ? d : 0];
        if constexpr (!Tile::kHolds) read_queries(d, fq);
#pragma unroll
        for (int j = 0; j < kKeys / 16; ++j) {
          uint32_t fk[4];
          load_b<true, kPitch>(fk, tile_k, d * kProductDepth<T>, j * 16);
          round_operands<T>(fk);
#pragma unroll
          for (int i = 0; i < kFragments; ++i) {
            multiply_add<T>(x[i][2 * j], fq[i], fk[0], fk[1]);
            multiply_add<T>(x[i][2 * j + 1], fq[i], fk[2], fk[3]);
          }
        }
      }

      if constexpr (!Program::kBare) {
#pragma unroll
        for (int i = 0; i < kFragments; ++i) {
#pragma unroll
          for (int j = 0; j < kKeys / 8; ++j) {
#pragma unroll
            for (int e = 0; e < 4; ++e) {
              const auto element = strip[j / 4][i][e / 2][j % 4 * 2 + e % 2];
              x[i][j][e] = program.score(x[i][j][e] * s.scale, element, batch, row(i, e / 2), column(j, e));
            }
          }
        }
      }
      if (first_key + kKeys > (kTriangle<Program> ? min(keys, first_query + warp_row) : keys)) {
        const LaterProduct<Program> later_product(s.scale);
#pragma unroll
        for (int i = 0; i < kFragments; ++i) {
#pragma unroll
          for (int j = 0; j < kKeys / 8; ++j) {
#pragma unroll
            for (int e = 0; e < 4; ++e) {
              const bool later = kTriangle<Program> && column(j, e) > row(i, e / 2);
              if (later) x[i][j][e] = later_product(x[i][j][e]);
              x[i][j][e] = column(j, e) < keys ? x[i][j][e] : -INFINITY;
            }
          }
        }
      }

      if (!kTwice || walk == 0) {
        float top[kFragments][2];
        bool far = true;
#pragma unroll
        for (int i = 0; i < kFragments; ++i) {
#pragma unroll
          for (int r = 0; r < 2; ++r) {
            top[i][r] = highest<kKeys>(x[i], r);
            far = far && rows.is_far(top[i][r], i, r);
          }
        }
        // A mask may hide the tile from the queries of this warp alone.
        if ((!Program::kBare || Program::kLowers) && !kTwice && __all_sync(0xffffffffu, far)) continue;
#pragma unroll
        for (int i = 0; i < kFragments; ++i) {
#pragma unroll
          for (int r = 0; r < 2; ++r) {
            const float shrink = rows.raise(top[i][r], i, r);
#pragma unroll
            for (int j = 0; j < kValueDepth / 8 && !kTwice; ++j) {
              o[i][j][2 * r] *= shrink;
              o[i][j][2 * r + 1] *= shrink;
            }
          }
        }
      }
#pragma unroll
      for (int i = 0; i < kFragments; ++i) {
#pragma unroll
        for (int j = 0; j < kKeys / 8; ++j) {
#pragma unroll
          for (int e = 0; e < 4; ++e) {
            x[i][j][e] = rows.weight(x[i][j][e], i, e / 2);
            if (!kTwice || walk == 0) rows.sum[i][e / 2] += x[i][j][e];
          }
        }
      }
      if constexpr (kTwice) {
        if (walk == 0) continue;
#pragma unroll
        for (int i = 0; i < kFragments; ++i) {
          const float total_sum[2] = {lanes_sum<4>(rows.sum[i][0]), lanes_sum<4>(rows.sum[i][1])};
#pragma unroll
          for (int j = 0; j < kKeys / 8; ++j) {
#pragma unroll
            for (int e = 0; e < 4; ++e) {
              const int query = row(i, e / 2), key = min(column(j, e), keys - 1);
              const float p = program.prob(x[i][j][e] / total_sum[e / 2], Element{program, at, query, key}, batch,
                                           query, key);
              x[i][j][e] = column(j, e) < keys ? p : 0.0f;
            }
          }
        }
      }

      add_values<kFragments, kKeys, kValueDepth, kValuePitch>(o, x, tile_v);
    }
  }
  copy_wait<0>();

  if (split.count > 1) {
    const int tile_rows = min(queries, Tile::kRows);  // where keys are shared, there is one tile
#pragma unroll
    for (int i = 0; i < kFragments; ++i) {
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const int own = warp_row + i * 16 + lane / 4 + r * 8;
        const float weights = lanes_sum<4>(rows.sum[i][r]);
        if (own >= tile_rows) continue;
        float* const part = split.values(blockIdx.y, own, tile_rows, s);
#pragma unroll
        for (int j = 0; j < kValueDepth / 8; ++j) {
#pragma unroll
          for (int e = 0; e < 2; ++e) {
            const int c = result_column<T>(j, e);
            if (c < s.value_depth) part[c] = o[i][j][2 * r + e];
          }
        }
        if (lane % 4 == 0) *split.mark(blockIdx.y, own, tile_rows) = {rows.maximum[i][r], weights};
      }
    }
    if (!split.is_last()) return;
    for (int i = threadIdx.x / 32; i < tile_rows; i += Tile::kWarps) {
      join_row<kProb, Program, kValueDepth>(split, i, tile_rows, s,
                                            [&](int row) { return out + at[3] + (first_query + row) * s.out_row; });
    }
    return;
  }
  __syncthreads();  // shared memory is free for the result
  const Matrix<T> to{out + at[3], s.out_row, s.out_column, s.queries, s.value_depth};
  store_result<kProb, kFragments, kValueDepth, kValuePitch>(to, first_query + warp_row, o, rows.sum, s.keys,
                                                            tile_q + warp_row * kValuePitch);
}

}  // namespace fusion::gpu

// Attention in fp16 and bf16 on tensor cores.
#pragma once

#include "include/attention_split.cuh"
#include "include/mma.cuh"

namespace fusion::gpu {

constexpr int kAttentionWarps = 4;
constexpr int kAttentionThreads = kAttentionWarps * 32;

// What one block works on: all the rows and keys for which the accumulators of a warp still fit in its registers.
template <int kDepth, int kValueDepth, bool kBare>
struct AttentionTile {
  static constexpr bool kDeep = kDepth > 128 || kValueDepth > 128;
  static constexpr int kFragments = kDeep ? 1 : 2;  // of 16 queries, per warp
  static constexpr int kRows = kAttentionWarps * kFragments * 16;
  static constexpr bool kShallow = kDepth <= 64 && kValueDepth <= 64;
  static constexpr int kKeys = kDeep || !kBare ? 32 : kShallow ? 128 : 64;  // a program needs registers of its own
  // Eight more elements put the eight rows that a fragment is loaded from in different banks.
  static constexpr int kPitch = kDepth + 8, kValuePitch = kValueDepth + 8;
  static constexpr size_t kBytes = 2 * (kRows * kPitch + 2 * kKeys * (kPitch + kValuePitch));
};

// A block has a tile of queries and walks its split of the keys, the next tile of K and V on its way meanwhile.
//   float Program::score(acc, at, batch, query, key), prob(p, at, batch, query, key), sink(0, at, batch, query, 0)
template <class T, int kDepth, int kValueDepth, Prob kProb, int N, class Program>
__device__ __forceinline__ void attention_tensor(const T* q, const T* k, const T* v, T* out, const AttentionShape& s,
                                                 const Space<N>& batches, const KeySplit& split,
                                                 const Program& program) {
  using Tile = AttentionTile<kDepth, kValueDepth, Program::kBare>;
  constexpr int kKeys = Tile::kKeys, kFragments = Tile::kFragments;
  constexpr int kPitch = Tile::kPitch, kValuePitch = Tile::kValuePitch;
  constexpr bool kTwice = kProb == Prob::kGeneral;  // walks the keys once for the rows' sums, then for the result
  constexpr bool kQueryInRegisters = Tile::kShallow && !Program::kBare;
  extern __shared__ uint4 dynamic[];
  T* const tile_q = reinterpret_cast<T*>(dynamic);
  T* const ring_k = tile_q + Tile::kRows * kPitch;
  T* const ring_v = ring_k + 2 * kKeys * kPitch;

  const int queries = static_cast<int>(s.queries), keys = static_cast<int>(s.keys);
  const Place place = place_of(blockIdx.x, s, batches.count, Tile::kRows);
  const int64_t batch = place.batch;
  const int first_query = place.tile * Tile::kRows;
  int64_t at[N];
  batches.locate(batch, at);
  const Matrix<T> mq{q + at[0], s.q_row, s.q_column, s.queries, s.depth};
  const Matrix<T> mk{k + at[1], s.k_row, s.k_column, s.keys, s.depth};
  const Matrix<T> mv{v + at[2], s.v_row, s.v_column, s.keys, s.value_depth};
  const bool wide_k = mk.wide(), wide_v = mv.wide();

  const int begin = blockIdx.y * split.keys;
  const int visible = visible_keys<kProb, Program>(first_query + Tile::kRows, keys) - begin;
  const int steps = (max(min(visible, split.keys), 0) + kKeys - 1) / kKeys;
  const int first_result = kTwice ? steps : 0, total = first_result + steps;
  const auto fetch = [&](int t) {
    if (t >= total) return;
    const int64_t key = begin + (t < steps ? t : t - steps) * kKeys;
    load_tile<kKeys, kDepth, kPitch, kAttentionThreads>(ring_k + t % 2 * kKeys * kPitch, mk, key, 0, wide_k);
    if (t < first_result) return;
    load_tile<kKeys, kValueDepth, kValuePitch, kAttentionThreads>(ring_v + t % 2 * kKeys * kValuePitch, mv, key, 0,
                                                                  wide_v);
  };

  load_tile<Tile::kRows, kDepth, kPitch, kAttentionThreads>(tile_q, mq, first_query, 0, mq.wide());
  fetch(0);
  copy_commit();

  const int lane = threadIdx.x % 32, warp_row = threadIdx.x / 32 * kFragments * 16;
  const bool idle = first_query + warp_row >= queries;
  uint32_t fq[kQueryInRegisters ? kDepth / 16 : 1][kFragments][4];
  if constexpr (kQueryInRegisters) {
    copy_wait<0>();
    __syncthreads();
#pragma unroll
    for (int d = 0; d < kDepth / 16; ++d) {
#pragma unroll
      for (int i = 0; i < kFragments; ++i) load_a<false, kPitch>(fq[d][i], tile_q, warp_row + i * 16, d * 16);
    }
  }

  // A bare score keeps its scale for the exponent, where it is free.
  const float unit = kLog2E * (Program::kBare ? s.scale : 1.0f);
  float maximum[kFragments][2], offset[kFragments][2], sum[kFragments][2];  // offset: the maximum as subtracted
  float o[kFragments][kValueDepth / 8][4] = {};
#pragma unroll
  for (int i = 0; i < kFragments; ++i) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      maximum[i][r] = -INFINITY, offset[i][r] = sum[i][r] = 0.0f;
      if constexpr (Program::kSink) {
        if (blockIdx.y > 0) continue;
        const int query = min(first_query + warp_row + i * 16 + lane / 4 + r * 8, queries - 1);
        maximum[i][r] = program.sink(0.0f, at, batch, query, 0);
        offset[i][r] = maximum[i][r] == -INFINITY ? 0.0f : maximum[i][r] * unit;
        if (lane % 4 == 0) sum[i][r] = exp2_fast(fmaf(maximum[i][r], unit, -offset[i][r]));
      }
    }
  }

  for (int t = 0; t < total; ++t) {
    copy_wait<0>();
    __syncthreads();  // this step's tiles have arrived, and all have left those that are overwritten next
    fetch(t + 1);
    copy_commit();
    const int first_key = begin + (t < steps ? t : t - steps) * kKeys;
    // Of a tile that crosses the diagonal, the first rows may see nothing.
    const bool above = Program::kCausal && !kTwice && first_key >= first_query + warp_row + kFragments * 16;
    if (idle || above) continue;
    const T* const tile_k = ring_k + t % 2 * kKeys * kPitch;
    const T* const tile_v = ring_v + t % 2 * kKeys * kValuePitch;

    float x[kFragments][kKeys / 8][4] = {};
#pragma unroll
    for (int d = 0; d < kDepth / 16; ++d) {
      if constexpr (!kQueryInRegisters) {
#pragma unroll
        for (int i = 0; i < kFragments; ++i) load_a<false, kPitch>(fq[0][i], tile_q, warp_row + i * 16, d * 16);
      }
#pragma unroll
      for (int j = 0; j < kKeys / 16; ++j) {
        uint32_t fk[4];
        load_b<true, kPitch>(fk, tile_k, d * 16, j * 16);
#pragma unroll
        for (int i = 0; i < kFragments; ++i) {
          multiply_add<T>(x[i][2 * j], fq[kQueryInRegisters ? d : 0][i], fk[0], fk[1]);
          multiply_add<T>(x[i][2 * j + 1], fq[kQueryInRegisters ? d : 0][i], fk[2], fk[3]);
        }
      }
    }

    // Rows and keys past the end read the last one's operands; nothing comes of it.
    const auto row = [&](int i, int e) {
      return min(first_query + warp_row + i * 16 + lane / 4 + e / 2 * 8, queries - 1);
    };
    const auto column = [&](int j, int e) { return first_key + j * 8 + lane % 4 * 2 + e % 2; };
    if constexpr (!Program::kBare) {
#pragma unroll
      for (int i = 0; i < kFragments; ++i) {
#pragma unroll
        for (int j = 0; j < kKeys / 8; ++j) {
#pragma unroll
          for (int e = 0; e < 4; ++e) {
            const int key = min(column(j, e), keys - 1);
            x[i][j][e] = program.score(x[i][j][e] * s.scale, at, batch, row(i, e), key);
          }
        }
      }
    }
    constexpr bool kTriangle = Program::kBare && Program::kCausal;  // a program of its own knows what is later
    if (first_key + kKeys > (kTriangle ? min(keys, first_query + warp_row) : keys)) {
#pragma unroll
      for (int i = 0; i < kFragments; ++i) {
#pragma unroll
        for (int j = 0; j < kKeys / 8; ++j) {
#pragma unroll
          for (int e = 0; e < 4; ++e) {
            const int last = kTriangle ? min(row(i, e), keys - 1) : keys - 1;
            x[i][j][e] = column(j, e) <= last ? x[i][j][e] : -INFINITY;
          }
        }
      }
    }

    if (!kTwice || t < first_result) {
#pragma unroll
      for (int i = 0; i < kFragments; ++i) {
#pragma unroll
        for (int r = 0; r < 2; ++r) {
          float top = maximum[i][r];
#pragma unroll
          for (int j = 0; j < kKeys / 8; ++j) top = fmaxf(top, fmaxf(x[i][j][2 * r], x[i][j][2 * r + 1]));
          top = lanes_max<4>(top);
          // A row that is all -inf so far has nothing to subtract, and nothing to shrink.
          const float next = top == -INFINITY ? 0.0f : top * unit;
          const float shrink = maximum[i][r] == -INFINITY ? 0.0f : exp2_fast(offset[i][r] - next);
          maximum[i][r] = top;
          offset[i][r] = next;
          sum[i][r] *= shrink;  // of this lane's columns only, until the end
          if constexpr (!kTwice) {
#pragma unroll
            for (int j = 0; j < kValueDepth / 8; ++j) {
              o[i][j][2 * r] *= shrink;
              o[i][j][2 * r + 1] *= shrink;
            }
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
          x[i][j][e] = exp2_fast(fmaf(x[i][j][e], unit, -offset[i][e / 2]));
          if (!kTwice || t < first_result) sum[i][e / 2] += x[i][j][e];
        }
      }
    }
    if constexpr (kTwice) {
      if (t < first_result) continue;
#pragma unroll
      for (int i = 0; i < kFragments; ++i) {
        const float total_sum[2] = {lanes_sum<4>(sum[i][0]), lanes_sum<4>(sum[i][1])};
#pragma unroll
        for (int j = 0; j < kKeys / 8; ++j) {
#pragma unroll
          for (int e = 0; e < 4; ++e) {
            const int key = min(column(j, e), keys - 1);
            const float p = program.prob(x[i][j][e] / total_sum[e / 2], at, batch, row(i, e), key);
            x[i][j][e] = column(j, e) < keys ? p : 0.0f;
          }
        }
      }
    }

#pragma unroll
    for (int j = 0; j < kKeys / 16; ++j) {
      uint32_t p[kFragments][4];
#pragma unroll
      for (int i = 0; i < kFragments; ++i) {
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          const float(&from)[4] = x[i][2 * j + e / 2];
          p[i][e] = pack<T>(from[e % 2 * 2], from[e % 2 * 2 + 1]);
        }
      }
#pragma unroll
      for (int d = 0; d < kValueDepth / 16; ++d) {
        uint32_t fv[4];
        load_b<false, kValuePitch>(fv, tile_v, j * 16, d * 16);
#pragma unroll
        for (int i = 0; i < kFragments; ++i) {
          multiply_add<T>(o[i][2 * d], p[i], fv[0], fv[1]);
          multiply_add<T>(o[i][2 * d + 1], p[i], fv[2], fv[3]);
        }
      }
    }
  }
  copy_wait<0>();

  if (split.count > 1) {
#pragma unroll
    for (int i = 0; i < kFragments; ++i) {
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const int query = first_query + warp_row + i * 16 + lane / 4 + r * 8;
        const float weights = lanes_sum<4>(sum[i][r]);
        if (query >= queries) continue;
        float* const part = split.part(batch, blockIdx.y, query, s);
#pragma unroll
        for (int j = 0; j < kValueDepth / 8; ++j) {
#pragma unroll
          for (int e = 0; e < 2; ++e) {
            const int c = j * 8 + lane % 4 * 2 + e;
            if (c < s.value_depth) part[c] = o[i][j][2 * r + e];
          }
        }
        if (lane % 4 == 0) {
          part[s.value_depth] = maximum[i][r] == -INFINITY ? -INFINITY : offset[i][r];
          part[s.value_depth + 1] = weights;
        }
      }
    }
    return;
  }
  __syncthreads();  // shared memory is free for the result

#pragma unroll
  for (int i = 0; i < kFragments; ++i) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const float factor = kTwice ? keys > 0 : normaliser<kProb>(lanes_sum<4>(sum[i][r]), s.keys);
      T* const line = tile_q + (warp_row + i * 16 + lane / 4 + r * 8) * kValuePitch + lane % 4 * 2;
#pragma unroll
      for (int j = 0; j < kValueDepth / 8; ++j) {
        // A row to be zeroed has NaN in its sums: select, do not multiply.
        const float low = factor == 0.0f ? 0.0f : o[i][j][2 * r] * factor;
        const float high = factor == 0.0f ? 0.0f : o[i][j][2 * r + 1] * factor;
        *reinterpret_cast<uint32_t*>(line + j * 8) = pack<T>(low, high);
      }
    }
  }
  __syncwarp();  // a warp stores the rows that it wrote
  const Matrix<T> to{out + at[3], s.out_row, s.out_column, s.queries, s.value_depth};
  store_rows<kFragments * 16, kValueDepth, kValuePitch>(to, first_query + warp_row, tile_q + warp_row * kValuePitch);
}

}  // namespace fusion::gpu

// Attention in fp16 and bf16 on tensor cores.
#pragma once

#include "include/attention.cuh"

namespace fusion::gpu {

constexpr int kAttentionWarps = 4;
constexpr int kAttentionThreads = kAttentionWarps * 32;
constexpr int kAttentionRows = kAttentionWarps * 16;

// Keys per tile: fewer where the output's accumulators leave few registers.
constexpr int attention_keys(int value_depth) { return value_depth > 192 ? 32 : 64; }

constexpr size_t attention_tensor_bytes(int depth, int value_depth) {
  return 2 * (kAttentionRows * (depth + 8) + attention_keys(value_depth) * (depth + 8 + value_depth + 8));
}

// fp16 and bf16: each warp owns 16 queries, K and V tiles come to shared memory while the tensor cores are busy.
//   float Program::score(acc, at, batch, query, key), Program::prob(p, at, batch, query, key)
template <class T, int kDepth, int kValueDepth, Prob kProb, int N, class Program>
__device__ __forceinline__ void attention_tensor(const T* q, const T* k, const T* v, T* out, const AttentionShape& s,
                                                 const Space<N>& batches, const Program& program) {
  constexpr int kPitch = kDepth + 8, kValuePitch = kValueDepth + 8;
  constexpr int kKeys = attention_keys(kValueDepth);
  constexpr bool kQueryInRegisters = kDepth <= 128;
  extern __shared__ uint4 dynamic[];
  T* const tile_q = reinterpret_cast<T*>(dynamic);
  T* const tile_k = tile_q + kAttentionRows * kPitch;
  T* const tile_v = tile_k + kKeys * kPitch;

  const int64_t tiles = (s.queries + kAttentionRows - 1) / kAttentionRows;
  const int64_t batch = blockIdx.x / tiles, first_query = blockIdx.x % tiles * kAttentionRows;
  int64_t at[N];
  batches.locate(batch, at);
  const Matrix<T> mq{q + at[0], s.q_row, s.q_column, s.queries, s.depth};
  const Matrix<T> mk{k + at[1], s.k_row, s.k_column, s.keys, s.depth};
  const Matrix<T> mv{v + at[2], s.v_row, s.v_column, s.keys, s.value_depth};
  const bool wide_k = mk.wide(), wide_v = mv.wide();
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int steps = static_cast<int>((s.keys + kKeys - 1) / kKeys);
  const auto fetch_k = [&](int step) {
    if (step < steps) {
      load_tile<kKeys, kDepth, kPitch, kAttentionThreads>(tile_k, mk, int64_t(step) * kKeys, 0, wide_k);
    }
    copy_commit();
  };
  const auto fetch_v = [&](int step) {
    load_tile<kKeys, kValueDepth, kValuePitch, kAttentionThreads>(tile_v, mv, int64_t(step) * kKeys, 0,
                                                                           wide_v);
    copy_commit();
  };

  load_tile<kAttentionRows, kDepth, kPitch, kAttentionThreads>(tile_q, mq, first_query, 0, mq.wide());
  fetch_k(0);
  copy_wait<0>();
  __syncthreads();
  uint32_t fq[kQueryInRegisters ? kDepth / 16 : 1][4];
  if constexpr (kQueryInRegisters) {
#pragma unroll
    for (int d = 0; d < kDepth / 16; ++d) load_a<false, kPitch>(fq[d], tile_q, warp * 16, d * 16);
  }

  const int64_t query = first_query + warp * 16 + lane / 4;  // this thread's rows: query and query + 8
  // The scores of one tile of keys, after their program; keys past the end count as -inf.
  const auto scores = [&](int step, float (&x)[kKeys / 8][4]) {
#pragma unroll
    for (int j = 0; j < kKeys / 8; ++j) {
#pragma unroll
      for (int e = 0; e < 4; ++e) x[j][e] = 0.0f;
    }
#pragma unroll
    for (int d = 0; d < kDepth / 16; ++d) {
      uint32_t fragment[4];
      if constexpr (!kQueryInRegisters) load_a<false, kPitch>(fragment, tile_q, warp * 16, d * 16);
      uint32_t(&fa)[4] = kQueryInRegisters ? fq[kQueryInRegisters ? d : 0] : fragment;
#pragma unroll
      for (int j = 0; j < kKeys / 16; ++j) {
        uint32_t fk[4];
        load_b<true, kPitch>(fk, tile_k, d * 16, j * 16);
        multiply_add<T>(x[2 * j], fa, fk[0], fk[1]);
        multiply_add<T>(x[2 * j + 1], fa, fk[2], fk[3]);
      }
    }
    const int64_t key = int64_t(step) * kKeys + lane % 4 * 2;
#pragma unroll
    for (int j = 0; j < kKeys / 8; ++j) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int64_t row = query + e / 2 * 8, column = key + j * 8 + e % 2;
        x[j][e] = column >= s.keys ? -INFINITY
                  : row < s.queries ? program.score(x[j][e] * s.scale, at, batch, row, column)
                                    : 0.0f;
      }
    }
  };

  float maximum[2] = {-INFINITY, -INFINITY}, sum[2] = {0.0f, 0.0f};
  float o[kValueDepth / 8][4] = {};
  // Takes a tile's scores into the running maximum and sum, and leaves exp(score - maximum) in their place.
  const auto absorb = [&](float (&x)[kKeys / 8][4]) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      float top = maximum[r];
#pragma unroll
      for (int j = 0; j < kKeys / 8; ++j) top = fmaxf(top, fmaxf(x[j][2 * r], x[j][2 * r + 1]));
      top = lanes_max<4>(top);
      const float shrink = exp_below(maximum[r], top);
      maximum[r] = top;
      float part = 0.0f;
#pragma unroll
      for (int j = 0; j < kKeys / 8; ++j) {
#pragma unroll
        for (int e = 2 * r; e < 2 * r + 2; ++e) {
          x[j][e] = exp_below(x[j][e], top);
          part += x[j][e];
        }
      }
      sum[r] = sum[r] * shrink + part;  // this lane's columns only, until the end
      if constexpr (kProb != Prob::kGeneral) {
#pragma unroll
        for (int j = 0; j < kValueDepth / 8; ++j) {
          o[j][2 * r] *= shrink;
          o[j][2 * r + 1] *= shrink;
        }
      }
    }
  };

  if constexpr (kProb == Prob::kGeneral) {
    for (int step = 0; step < steps; ++step) {
      copy_wait<0>();
      __syncthreads();
      float x[kKeys / 8][4];
      scores(step, x);
      __syncthreads();
      fetch_k(step + 1 < steps ? step + 1 : 0);
      absorb(x);
    }
#pragma unroll
    for (int r = 0; r < 2; ++r) sum[r] = lanes_sum<4>(sum[r]);
  }

  for (int step = 0; step < steps; ++step) {
    copy_wait<0>();
    __syncthreads();  // K has arrived, V's tile is free
    fetch_v(step);
    float x[kKeys / 8][4];
    scores(step, x);
    __syncthreads();  // all have read K
    fetch_k(step + 1);
    if constexpr (kProb == Prob::kGeneral) {
      const int64_t key = int64_t(step) * kKeys + lane % 4 * 2;
#pragma unroll
      for (int j = 0; j < kKeys / 8; ++j) {
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          const int64_t row = query + e / 2 * 8, column = key + j * 8 + e % 2;
          const float p = exp_below(x[j][e], maximum[e / 2]) / sum[e / 2];
          x[j][e] = row < s.queries && column < s.keys ? program.prob(p, at, batch, row, column) : 0.0f;
        }
      }
    } else {
      absorb(x);
    }
    copy_wait<1>();
    __syncthreads();  // V has arrived
#pragma unroll
    for (int j = 0; j < kKeys / 16; ++j) {
      const uint32_t p[4] = {pack<T>(x[2 * j][0], x[2 * j][1]), pack<T>(x[2 * j][2], x[2 * j][3]),
                             pack<T>(x[2 * j + 1][0], x[2 * j + 1][1]), pack<T>(x[2 * j + 1][2], x[2 * j + 1][3])};
#pragma unroll
      for (int d = 0; d < kValueDepth / 16; ++d) {
        uint32_t fv[4];
        load_b<false, kValuePitch>(fv, tile_v, j * 16, d * 16);
        multiply_add<T>(o[2 * d], p, fv[0], fv[1]);
        multiply_add<T>(o[2 * d + 1], p, fv[2], fv[3]);
      }
    }
  }
  copy_wait<0>();

#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int64_t row = query + r * 8;
    const float factor = kProb == Prob::kGeneral ? 1.0f : normaliser<kProb>(lanes_sum<4>(sum[r]), s.keys);
    if (row >= s.queries) continue;
    T* const to = out + at[3] + row * s.out_row;
#pragma unroll
    for (int j = 0; j < kValueDepth / 8; ++j) {
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const int64_t column = j * 8 + lane % 4 * 2 + e;
        // A row to be zeroed has NaN in its sums: select, do not multiply.
        if (column < s.value_depth) store(to + column * s.out_column, factor == 0.0f ? 0.0f : o[j][2 * r + e] * factor);
      }
    }
  }
}

inline unsigned attention_tensor_grid(const AttentionShape& s, int64_t batches, const char* what) {
  return s.value_depth == 0 ? 0 : grid_size(batches * ceil_div(s.queries, kAttentionRows), what);
}

}  // namespace fusion::gpu

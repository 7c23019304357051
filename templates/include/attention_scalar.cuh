// Attention in fp32, exact.
#pragma once

#include "include/attention.cuh"
#include "include/mma.cuh"

namespace fusion::gpu {

constexpr int kScalarRows = 32, kScalarKeys = 32, kScalarAttentionThreads = 128;

template <int kDepth, int kValueDepth>
struct ScalarAttentionTile {
  static constexpr int kRows = kScalarRows;
  // Four neighbours are one access, and those of eight neighbouring rows lie in different banks.
  static constexpr int kPitch = kDepth + 4, kValuePitch = kValueDepth + 4, kScorePitch = kScalarKeys + 4;
  static constexpr size_t kBytes = 4 * (kScalarRows * kPitch + kScalarKeys * (kPitch + kValuePitch) + kScalarRows * kScorePitch);
};

// fp32, exact: 8 groups of 16 threads, each with 4 queries; a thread has 4x2 scores and 4 rows of the output, of which its columns
// lie kWidth together.
template <int kDepth, int kValueDepth, Prob kProb, int N, class Program>
__device__ __forceinline__ void attention_scalar(const float* q, const float* k, const float* v, float* out,
                                                 const AttentionShape& s, const Space<N>& batches,
                                                 const Program& program) {
  using Tile = ScalarAttentionTile<kDepth, kValueDepth>;
  using Four = Chunk<float, 4>;
  constexpr int kPitch = Tile::kPitch, kValuePitch = Tile::kValuePitch, kScorePitch = Tile::kScorePitch;
  constexpr int kWidth = kValueDepth % 64 == 0 ? 4 : kValueDepth % 32 == 0 ? 2 : 1;
  extern __shared__ uint4 dynamic[];
  float* const tile_q = reinterpret_cast<float*>(dynamic);
  float* const tile_k = tile_q + kScalarRows * kPitch;
  float* const tile_v = tile_k + kScalarKeys * kPitch;
  float* const tile_p = tile_v + kScalarKeys * kValuePitch;

  const Place place = place_of(blockIdx.x, s.turns);
  const int64_t batch = place.batch, first_query = int64_t{place.tile} * kScalarRows;
  int64_t at[N];
  batches.locate_block(batch, at);
  const Matrix<float> mq{q + at[0], s.q_row, s.q_column, s.queries, s.depth};
  const Matrix<float> mk{k + at[1], s.k_row, s.k_column, s.keys, s.depth};
  const Matrix<float> mv{v + at[2], s.v_row, s.v_column, s.keys, s.value_depth};
  const bool wide_k = mk.wide(), wide_v = mv.wide();
  const int ty = threadIdx.x / 16, tx = threadIdx.x % 16;
  const int query = static_cast<int>(first_query) + ty * 4;
  const int reach = visible_keys<kProb, Program>(static_cast<int>(first_query) + kScalarRows, static_cast<int>(s.keys));
  const int steps = (reach + kScalarKeys - 1) / kScalarKeys;

  const auto four = [](const float* p) { return *reinterpret_cast<const Four*>(p); };
  const auto column_of = [&](int c) { return c / kWidth * 16 * kWidth + tx * kWidth + c % kWidth; };
  const auto element = [&](int row, int column) { return typename Program::Element{program, at, row, column}; };

  load_tile<kScalarRows, kDepth, kPitch, kScalarAttentionThreads>(tile_q, mq, first_query, 0, mq.wide());
  const auto scores = [&](int step, float (&x)[4][2]) {
#pragma unroll
    for (int i = 0; i < 4; ++i) x[i][0] = x[i][1] = 0.0f;
#pragma unroll 4
    for (int d = 0; d < kDepth; d += 4) {
      const Four first = four(tile_k + tx * kPitch + d), second = four(tile_k + (tx + 16) * kPitch + d);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const Four own = four(tile_q + (ty * 4 + i) * kPitch + d);
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          x[i][0] += own.element[e] * first.element[e];
          x[i][1] += own.element[e] * second.element[e];
        }
      }
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const int column = step * kScalarKeys + tx + e * 16;
        x[i][e] = column >= s.keys ? -INFINITY
                  : query + i < s.queries ? program.score(x[i][e] * s.scale, element(query + i, column), batch, query + i, column)
                                          : 0.0f;
      }
    }
  };

  float maximum[4], sum[4];
  float o[4][kValueDepth / 16] = {};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    maximum[i] = -INFINITY, sum[i] = 0.0f;
    if constexpr (Program::kSink) {
      const int row = min(query + i, static_cast<int>(s.queries) - 1);
      maximum[i] = program.sink(0.0f, element(row, 0), batch, row, 0);
      if (tx == 0) sum[i] = exp_below(maximum[i], maximum[i]);
    }
  }
  const auto absorb = [&](float (&x)[4][2]) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float top = lanes_max<16>(fmaxf(maximum[i], fmaxf(x[i][0], x[i][1])));
      const float shrink = exp_below(maximum[i], top);
      maximum[i] = top;
      x[i][0] = exp_below(x[i][0], top);
      x[i][1] = exp_below(x[i][1], top);
      sum[i] = sum[i] * shrink + x[i][0] + x[i][1];
      if constexpr (kProb != Prob::kGeneral) {
#pragma unroll
        for (int c = 0; c < kValueDepth / 16; ++c) o[i][c] *= shrink;
      }
    }
  };

  if constexpr (kProb == Prob::kGeneral) {
    for (int step = 0; step < steps; ++step) {
      __syncthreads();
      load_tile<kScalarKeys, kDepth, kPitch, kScalarAttentionThreads>(tile_k, mk, int64_t(step) * kScalarKeys, 0, wide_k);
      copy_commit();
      copy_wait<0>();
      __syncthreads();
      float x[4][2];
      scores(step, x);
      absorb(x);
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) sum[i] = lanes_sum<16>(sum[i]);
  }

  for (int step = 0; step < steps; ++step) {
    const int first_key = step * kScalarKeys;
    __syncthreads();
    load_tile<kScalarKeys, kDepth, kPitch, kScalarAttentionThreads>(tile_k, mk, first_key, 0, wide_k);
    load_tile<kScalarKeys, kValueDepth, kValuePitch, kScalarAttentionThreads>(tile_v, mv, first_key, 0, wide_v);
    copy_commit();
    copy_wait<0>();
    __syncthreads();
    float x[4][2];
    scores(step, x);
    if constexpr (kProb == Prob::kGeneral) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          const int column = first_key + tx + e * 16;
          const float p = exp_below(x[i][e], maximum[i]) / sum[i];
          x[i][e] = query + i < s.queries && column < s.keys
                        ? program.prob(p, element(query + i, column), batch, query + i, column)
                        : 0.0f;
        }
      }
    } else {
      absorb(x);
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      tile_p[(ty * 4 + i) * kScorePitch + tx] = x[i][0];
      tile_p[(ty * 4 + i) * kScorePitch + tx + 16] = x[i][1];
    }
    __syncwarp();  // a group of 16 reads only rows that it wrote
    for (int j = 0; j < kScalarKeys; j += 4) {
      Four p[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) p[i] = four(tile_p + (ty * 4 + i) * kScorePitch + j);
#pragma unroll
      for (int e = 0; e < 4; ++e) {
#pragma unroll
        for (int c = 0; c < kValueDepth / 16; c += kWidth) {
          const auto value = *reinterpret_cast<const Chunk<float, kWidth>*>(tile_v + (j + e) * kValuePitch + column_of(c));
#pragma unroll
          for (int i = 0; i < 4; ++i) {
#pragma unroll
            for (int w = 0; w < kWidth; ++w) o[i][c + w] += p[i].element[e] * value.element[w];
          }
        }
      }
    }
  }

#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float factor = kProb == Prob::kGeneral ? 1.0f : normaliser<kProb>(lanes_sum<16>(sum[i]), s.keys);
    if (query + i >= s.queries) continue;
#pragma unroll
    for (int c = 0; c < kValueDepth / 16; ++c) {
      const int64_t column = column_of(c);
      if (column < s.value_depth) {
        store(out + at[3] + (query + i) * s.out_row + column * s.out_column, factor == 0.0f ? 0.0f : o[i][c] * factor);
      }
    }
  }
}

}  // namespace fusion::gpu

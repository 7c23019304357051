// softmax(score(Q K^T)) V with an online softmax: scores live in registers, one tile of keys at a time.
#pragma once

#include "include/mma.cuh"

namespace fusion::gpu {

// Operands 0 to 3 of the batch space are q, k, v and the output, the score program's own follow.
struct AttentionShape {
  int64_t queries, keys, depth, value_depth;
  int64_t q_row, q_column, k_row, k_column, v_row, v_column, out_row, out_column;  // element strides
  float scale;
};

// How the probabilities' own program is treated.
enum class Prob {
  kIdentity,
  kZeroNaN,   // NaN becomes zero: a whole row is NaN or none of it
  kGeneral,   // any function of the finished probability: the row's sum is needed first, so keys are walked twice
};

constexpr int kAttentionWarps = 4;
constexpr int kAttentionThreads = kAttentionWarps * 32;
constexpr int kAttentionRows = kAttentionWarps * 16;
constexpr int kAttentionKeys = 64;

constexpr size_t attention_tensor_bytes(int depth, int value_depth) {
  return 2 * (kAttentionRows * (depth + 8) + kAttentionKeys * (depth + 8) + kAttentionKeys * (value_depth + 8));
}

__device__ __forceinline__ float exp2_fast(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;\n" : "=f"(y) : "f"(x));
  return y;
}

// exp(x - m) with x - m <= 0 or NaN. A row that is all -inf so far has m = -inf: nothing to add yet, not NaN.
__device__ __forceinline__ float exp_below(float x, float m) {
  return exp2_fast((x - (m == -INFINITY ? 0.0f : m)) * 1.4426950408889634f);
}

// Reduces over the lanes that share a row: 4 neighbours in a tensor-core fragment, 16 in the scalar kernel.
template <int kLanes>
__device__ __forceinline__ float lanes_max(float x) {
#pragma unroll
  for (int o = kLanes / 2; o > 0; o >>= 1) x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, o));
  return x;
}
template <int kLanes>
__device__ __forceinline__ float lanes_sum(float x) {
#pragma unroll
  for (int o = kLanes / 2; o > 0; o >>= 1) x += __shfl_xor_sync(0xffffffffu, x, o);
  return x;
}

// The factor that turns a row's accumulated sum into the result. No keys at all give zeros, as an empty product does;
// a row whose scores are all -inf has sum 0 and gives NaN, as ONNX's Softmax does.
template <Prob kProb>
__device__ __forceinline__ float normaliser(float sum, int64_t keys) {
  if (keys == 0) return 0.0f;
  if (kProb == Prob::kZeroNaN && !(sum > 0.0f)) return 0.0f;
  return 1.0f / sum;
}

// fp16 and bf16: each warp owns 16 queries, K and V tiles come to shared memory while the tensor cores are busy.
//   float Program::score(acc, at, batch, query, key), Program::prob(p, at, batch, query, key)
template <class T, int kDepth, int kValueDepth, Prob kProb, int N, class Program>
__device__ __forceinline__ void attention_tensor(const T* q, const T* k, const T* v, T* out, const AttentionShape& s,
                                                 const Space<N>& batches, const Program& program) {
  constexpr int kPitch = kDepth + 8, kValuePitch = kValueDepth + 8;
  constexpr bool kQueryInRegisters = kDepth <= 128;
  extern __shared__ uint4 dynamic[];
  T* const tile_q = reinterpret_cast<T*>(dynamic);
  T* const tile_k = tile_q + kAttentionRows * kPitch;
  T* const tile_v = tile_k + kAttentionKeys * kPitch;

  const int64_t tiles = (s.queries + kAttentionRows - 1) / kAttentionRows;
  const int64_t batch = blockIdx.x / tiles, first_query = blockIdx.x % tiles * kAttentionRows;
  int64_t at[N];
  batches.locate(batch, at);
  const Matrix<T> mq{q + at[0], s.q_row, s.q_column, s.queries, s.depth};
  const Matrix<T> mk{k + at[1], s.k_row, s.k_column, s.keys, s.depth};
  const Matrix<T> mv{v + at[2], s.v_row, s.v_column, s.keys, s.value_depth};
  const bool wide_k = mk.wide(), wide_v = mv.wide();
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int steps = static_cast<int>((s.keys + kAttentionKeys - 1) / kAttentionKeys);
  const auto fetch_k = [&](int step) {
    if (step < steps) {
      load_tile<kAttentionKeys, kDepth, kPitch, kAttentionThreads>(tile_k, mk, int64_t(step) * kAttentionKeys, 0, wide_k);
    }
    copy_commit();
  };
  const auto fetch_v = [&](int step) {
    load_tile<kAttentionKeys, kValueDepth, kValuePitch, kAttentionThreads>(tile_v, mv, int64_t(step) * kAttentionKeys, 0,
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
  const auto scores = [&](int step, float (&x)[kAttentionKeys / 8][4]) {
#pragma unroll
    for (int j = 0; j < kAttentionKeys / 8; ++j) {
#pragma unroll
      for (int e = 0; e < 4; ++e) x[j][e] = 0.0f;
    }
#pragma unroll
    for (int d = 0; d < kDepth / 16; ++d) {
      uint32_t fragment[4];
      if constexpr (!kQueryInRegisters) load_a<false, kPitch>(fragment, tile_q, warp * 16, d * 16);
      uint32_t(&fa)[4] = kQueryInRegisters ? fq[kQueryInRegisters ? d : 0] : fragment;
#pragma unroll
      for (int j = 0; j < kAttentionKeys / 16; ++j) {
        uint32_t fk[4];
        load_b<true, kPitch>(fk, tile_k, d * 16, j * 16);
        multiply_add<T>(x[2 * j], fa, fk[0], fk[1]);
        multiply_add<T>(x[2 * j + 1], fa, fk[2], fk[3]);
      }
    }
    const int64_t key = int64_t(step) * kAttentionKeys + lane % 4 * 2;
#pragma unroll
    for (int j = 0; j < kAttentionKeys / 8; ++j) {
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
  const auto absorb = [&](float (&x)[kAttentionKeys / 8][4]) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      float top = maximum[r];
#pragma unroll
      for (int j = 0; j < kAttentionKeys / 8; ++j) top = fmaxf(top, fmaxf(x[j][2 * r], x[j][2 * r + 1]));
      top = lanes_max<4>(top);
      const float shrink = exp_below(maximum[r], top);
      maximum[r] = top;
      float part = 0.0f;
#pragma unroll
      for (int j = 0; j < kAttentionKeys / 8; ++j) {
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
      float x[kAttentionKeys / 8][4];
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
    float x[kAttentionKeys / 8][4];
    scores(step, x);
    __syncthreads();  // all have read K
    fetch_k(step + 1);
    if constexpr (kProb == Prob::kGeneral) {
      const int64_t key = int64_t(step) * kAttentionKeys + lane % 4 * 2;
#pragma unroll
      for (int j = 0; j < kAttentionKeys / 8; ++j) {
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
    for (int j = 0; j < kAttentionKeys / 16; ++j) {
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

constexpr int kScalarRows = 32, kScalarKeys = 32, kScalarAttentionThreads = 128;

constexpr size_t attention_scalar_bytes(int depth, int value_depth) {
  return 4 * (kScalarRows * (depth + 1) + kScalarKeys * (depth + 1) + kScalarKeys * (value_depth + 1) +
              kScalarRows * (kScalarKeys + 1));
}

// fp32, exact: 8 groups of 16 threads, each with 4 queries; a thread has 4x2 scores and 4 rows of the output.
template <int kDepth, int kValueDepth, Prob kProb, int N, class Program>
__device__ __forceinline__ void attention_scalar(const float* q, const float* k, const float* v, float* out,
                                                 const AttentionShape& s, const Space<N>& batches,
                                                 const Program& program) {
  constexpr int kPitch = kDepth + 1, kValuePitch = kValueDepth + 1, kScorePitch = kScalarKeys + 1;
  extern __shared__ uint4 dynamic[];
  float* const tile_q = reinterpret_cast<float*>(dynamic);
  float* const tile_k = tile_q + kScalarRows * kPitch;
  float* const tile_v = tile_k + kScalarKeys * kPitch;
  float* const tile_p = tile_v + kScalarKeys * kValuePitch;

  const int64_t tiles = (s.queries + kScalarRows - 1) / kScalarRows;
  const int64_t batch = blockIdx.x / tiles, first_query = blockIdx.x % tiles * kScalarRows;
  int64_t at[N];
  batches.locate(batch, at);
  const Matrix<float> mq{q + at[0], s.q_row, s.q_column, s.queries, s.depth};
  const Matrix<float> mk{k + at[1], s.k_row, s.k_column, s.keys, s.depth};
  const Matrix<float> mv{v + at[2], s.v_row, s.v_column, s.keys, s.value_depth};
  const int ty = threadIdx.x / 16, tx = threadIdx.x % 16;
  const int64_t query = first_query + ty * 4;
  const int steps = static_cast<int>((s.keys + kScalarKeys - 1) / kScalarKeys);

  load_tile<kScalarRows, kDepth, kPitch, kScalarAttentionThreads>(tile_q, mq, first_query, 0, false);
  const auto scores = [&](int step, float (&x)[4][2]) {
#pragma unroll
    for (int i = 0; i < 4; ++i) x[i][0] = x[i][1] = 0.0f;
#pragma unroll 4
    for (int d = 0; d < kDepth; ++d) {
      const float k0 = tile_k[tx * kPitch + d], k1 = tile_k[(tx + 16) * kPitch + d];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float element = tile_q[(ty * 4 + i) * kPitch + d];
        x[i][0] += element * k0;
        x[i][1] += element * k1;
      }
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const int64_t column = int64_t(step) * kScalarKeys + tx + e * 16;
        x[i][e] = column >= s.keys ? -INFINITY
                  : query + i < s.queries ? program.score(x[i][e] * s.scale, at, batch, query + i, column)
                                          : 0.0f;
      }
    }
  };

  float maximum[4], sum[4];
  float o[4][kValueDepth / 16] = {};
#pragma unroll
  for (int i = 0; i < 4; ++i) maximum[i] = -INFINITY, sum[i] = 0.0f;
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
      load_tile<kScalarKeys, kDepth, kPitch, kScalarAttentionThreads>(tile_k, mk, int64_t(step) * kScalarKeys, 0, false);
      __syncthreads();
      float x[4][2];
      scores(step, x);
      absorb(x);
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) sum[i] = lanes_sum<16>(sum[i]);
  }

  for (int step = 0; step < steps; ++step) {
    const int64_t first_key = int64_t(step) * kScalarKeys;
    __syncthreads();
    load_tile<kScalarKeys, kDepth, kPitch, kScalarAttentionThreads>(tile_k, mk, first_key, 0, false);
    load_tile<kScalarKeys, kValueDepth, kValuePitch, kScalarAttentionThreads>(tile_v, mv, first_key, 0, false);
    __syncthreads();
    float x[4][2];
    scores(step, x);
    if constexpr (kProb == Prob::kGeneral) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          const int64_t column = first_key + tx + e * 16;
          const float p = exp_below(x[i][e], maximum[i]) / sum[i];
          x[i][e] = query + i < s.queries && column < s.keys ? program.prob(p, at, batch, query + i, column) : 0.0f;
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
    for (int j = 0; j < kScalarKeys; ++j) {
      float p[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) p[i] = tile_p[(ty * 4 + i) * kScorePitch + j];
#pragma unroll
      for (int c = 0; c < kValueDepth / 16; ++c) {
        const float value = tile_v[j * kValuePitch + tx + c * 16];
#pragma unroll
        for (int i = 0; i < 4; ++i) o[i][c] += p[i] * value;
      }
    }
  }

#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float factor = kProb == Prob::kGeneral ? 1.0f : normaliser<kProb>(lanes_sum<16>(sum[i]), s.keys);
    if (query + i >= s.queries) continue;
#pragma unroll
    for (int c = 0; c < kValueDepth / 16; ++c) {
      const int64_t column = tx + c * 16;
      if (column < s.value_depth) {
        store(out + at[3] + (query + i) * s.out_row + column * s.out_column, factor == 0.0f ? 0.0f : o[i][c] * factor);
      }
    }
  }
}

// The strides of the last two axes of q [..., queries, depth], k [..., keys, depth], v [..., keys, value depth] and out.
inline AttentionShape attention_shape(const View& q, const View& k, const View& v, const View& out, float scale) {
  const auto row = [](const View& x) { return x.stride[x.rank - 2]; };
  const auto column = [](const View& x) { return x.stride[x.rank - 1]; };
  return {q.size[q.rank - 2], k.size[k.rank - 2], q.size[q.rank - 1], v.size[v.rank - 1], row(q),   column(q),
          row(k),             column(k),          row(v),             column(v),          row(out), column(out), scale};
}

inline unsigned attention_tensor_grid(const AttentionShape& s, int64_t batches, const char* what) {
  return s.value_depth == 0 ? 0 : grid_size(batches * ceil_div(s.queries, kAttentionRows), what);
}
inline unsigned attention_scalar_grid(const AttentionShape& s, int64_t batches, const char* what) {
  return s.value_depth == 0 ? 0 : grid_size(batches * ceil_div(s.queries, kScalarRows), what);
}

}  // namespace fusion::gpu

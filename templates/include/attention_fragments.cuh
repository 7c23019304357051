// Rows of scores and results in the accumulators of a warp's tensor-core products, kFragments of 16 rows each.
#pragma once

#include "include/attention.cuh"
#include "include/mma.cuh"

namespace fusion::gpu {

// Powers of two that are zero in a float, below the exponent of a row's maximum.
constexpr float kFar = 150.0f;

// An online softmax. A lane has rows l / 4 and l / 4 + 8 of each fragment, and of the sums its own columns. Where
// kSmall, scores are far from the largest float, and their unit costs nothing.
template <int kFragments, bool kSmall>
struct RunningRows {
  float unit;  // of the scores, as an exponent of 2
  float maximum[kFragments][2], offset[kFragments][2], sum[kFragments][2];  // offset: what is subtracted

  __device__ __forceinline__ explicit RunningRows(float unit) : unit(unit) {
#pragma unroll
    for (int i = 0; i < kFragments; ++i) {
#pragma unroll
      for (int r = 0; r < 2; ++r) maximum[i][r] = -INFINITY, offset[i][r] = sum[i][r] = 0.0f;
    }
  }

  // The exponent of 2 of a score's weight. Masks may hold the lowest float, of which the unit would make -inf.
  __device__ __forceinline__ float exponent(float score, int i, int r) const {
    return kSmall ? fmaf(score, unit, -offset[i][r]) : (score - offset[i][r]) * unit;
  }
  __device__ __forceinline__ float weight(float score, int i, int r) const {
    return exp2_fast(exponent(score, i, r));
  }

  // Whether scores up to `top` add nothing to a row, which is known once it has seen a larger one.
  __device__ __forceinline__ bool is_far(float top, int i, int r) const {
    return top == -INFINITY || (maximum[i][r] > -INFINITY && exponent(top, i, r) < -kFar);
  }

  // Takes this lane's highest new score into account. Gives what the row's weights so far are to be multiplied by.
  __device__ __forceinline__ float raise(float top, int i, int r) {
    const float before = maximum[i][r], after = lanes_max<4>(fmaxf(before, top)), less = offset[i][r];
    maximum[i][r] = after;
    // A row that is all -inf so far has nothing to subtract, and nothing to shrink.
    offset[i][r] = after == -INFINITY ? 0.0f : kSmall ? after * unit : after;
    const float shrink = before == -INFINITY ? 0.0f : exp2_fast(kSmall ? less - offset[i][r] : exponent(before, i, r));
    sum[i][r] *= shrink;
    return shrink;
  }

  // A score more, without a key.
  __device__ __forceinline__ void begin_with(float score, int i, int r) {
    raise(score, i, r);
    if (threadIdx.x % 4 == 0) sum[i][r] = weight(score, i, r);
  }
};

// This lane's highest score of a row, NaN if one is.
template <int kColumns>
__device__ __forceinline__ float highest(const float (&x)[kColumns / 8][4], int r) {
  float top = -INFINITY;
#pragma unroll
  for (int j = 0; j < kColumns / 8; ++j) top = max_nan(top, max_nan(x[j][2 * r], x[j][2 * r + 1]));
  return top;
}

// Results of how many columns a lane's values of some fragments are neighbours in: in TF32 fragment 4 * d + n is the
// columns 32 * d + 4 * i + n, so that a lane reads values of four columns at once.
template <class T>
constexpr int kResultGroup = sizeof(T) == 4 ? 32 : 16;

// The column of a row's result that element e of fragment j is.
template <class T>
__device__ __forceinline__ int result_column(int j, int e) {
  const int column = threadIdx.x % 4 * 2 + e;
  return sizeof(T) == 4 ? j / 4 * 32 + column * 4 + j % 4 : j * 8 + column;
}

// Of TF32. A lane has as scores of keys 2 * t and 2 * t + 1 what it should have of keys t and t + 4 as an operand: the
// values are read in that order, the same for all.
template <int kFragments, int kKeys, int kValueDepth, int kValuePitch>
__device__ __forceinline__ void add_tf32_values(float (&o)[kFragments][kValueDepth / 8][4],
                                                const float (&weights)[kFragments][kKeys / 8][4],
                                                const float* tile_v) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int j = 0; j < kKeys / 8; ++j) {
    uint32_t p[kFragments][4];
#pragma unroll
    for (int i = 0; i < kFragments; ++i) {
#pragma unroll
      for (int e = 0; e < 4; ++e) p[i][e] = to_tf32(weights[i][j][e % 2 * 2 + e / 2]);
    }
    const float* const first = tile_v + (j * 8 + lane % 4 * 2) * kValuePitch + lane / 4 * 4;
#pragma unroll
    for (int d = 0; d < kValueDepth / 32; ++d) {
      uint32_t low[4], high[4];
      __builtin_memcpy(low, __builtin_assume_aligned(first + d * 32, 16), 16);
      __builtin_memcpy(high, __builtin_assume_aligned(first + kValuePitch + d * 32, 16), 16);
      round_operands<float>(low);
      round_operands<float>(high);
#pragma unroll
      for (int n = 0; n < 4; ++n) {
#pragma unroll
        for (int i = 0; i < kFragments; ++i) multiply_add<float>(o[i][d * 4 + n], p[i], low[n], high[n]);
      }
    }
  }
}

// o += p * v, of kKeys values in shared memory.
template <int kFragments, int kKeys, int kValueDepth, int kValuePitch, class T>
__device__ __forceinline__ void add_values(float (&o)[kFragments][kValueDepth / 8][4],
                                           const float (&weights)[kFragments][kKeys / 8][4], const T* tile_v) {
  if constexpr (sizeof(T) == 4) {
    return add_tf32_values<kFragments, kKeys, kValueDepth, kValuePitch>(o, weights, tile_v);
  } else {
#pragma unroll
    for (int j = 0; j < kKeys / 16; ++j) {
      uint32_t p[kFragments][4];
#pragma unroll
      for (int i = 0; i < kFragments; ++i) {
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          const float(&from)[4] = weights[i][2 * j + e / 2];
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
}

// The rows of a warp, divided by their sums, through its rows of shared memory to the output.
template <Prob kProb, int kFragments, int kValueDepth, int kPitch, class T>
__device__ __forceinline__ void store_result(const Matrix<T>& to, int row, const float (&o)[kFragments][kValueDepth / 8][4],
                                             const float (&sum)[kFragments][2], int64_t keys, T* shared) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int i = 0; i < kFragments; ++i) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const float factor = kProb == Prob::kGeneral ? keys > 0 : normaliser<kProb>(lanes_sum<4>(sum[i][r]), keys);
      T* const line = shared + (i * 16 + lane / 4 + r * 8) * kPitch;
#pragma unroll
      for (int j = 0; j < kValueDepth / 8; ++j) {
        // A row to be zeroed has NaN in its sums: select, do not multiply.
        const float low = factor == 0.0f ? 0.0f : o[i][j][2 * r] * factor;
        const float high = factor == 0.0f ? 0.0f : o[i][j][2 * r + 1] * factor;
        if constexpr (sizeof(T) == 4) {
          line[result_column<T>(j, 0)] = low, line[result_column<T>(j, 1)] = high;
        } else {
          *reinterpret_cast<uint32_t*>(line + result_column<T>(j, 0)) = pack<T>(low, high);
        }
      }
    }
  }
  __syncwarp();  // a warp stores the rows that it wrote
  store_rows<kFragments * 16, kValueDepth, kPitch>(to, row, shared);
}

}  // namespace fusion::gpu

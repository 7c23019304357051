// Matrix products with a generated epilogue: our own tile kernels, where no cuBLAS is at hand.
#pragma once

#include "include/mma.cuh"

namespace fusion::gpu {

constexpr int kOwnTried = 2;  // kernels of ours that a trial holds against the vendor's

// acc = alpha * A @ B for every batch. Operands 0 and 1 of the batch space are A and B, the epilogue's own follow.
struct Product {
  int64_t m, n, k;
  int64_t a_row, a_k;     // element strides of A
  int64_t b_k, b_column;  // element strides of B
  float alpha;
};

// Runs `multiply` over K for one output tile per block and hands every element of it to the epilogue:
//   void Epilogue::operator()(const int64_t (&at)[N], int64_t batch, int64_t row, int64_t column, float acc)
constexpr int kTileM = 64, kTileN = 64;

struct TilePosition {
  int64_t batch, row, column;
  __device__ __forceinline__ TilePosition(int64_t m, int64_t n) {
    const int64_t across = (n + kTileN - 1) / kTileN, down = (m + kTileM - 1) / kTileM;
    int64_t tile = blockIdx.x;
    column = tile % across * kTileN;
    tile /= across;
    row = tile % down * kTileM;
    batch = tile / down;
  }
};

inline unsigned tile_grid(const Product& p, int64_t batches, const char* what) {
  return grid_size(batches * ceil_div(p.m, kTileM) * ceil_div(p.n, kTileN), what);
}

constexpr int kTensorThreads = 128;

// fp16 and bf16: four warps of 32x32, K in steps of 32 through a ring of three shared-memory tiles.
// kTransA: A is contiguous along M; kTransB: B is contiguous along K.
template <class T, bool kTransA, bool kTransB, int N, class Epilogue>
__device__ __forceinline__ void linear_tensor(const T* a, const T* b, const Product& p, const Space<N>& batches,
                                              const Epilogue& epilogue) {
  constexpr int kTileK = 32, kStages = 3;
  constexpr int kPitchA = (kTransA ? kTileM : kTileK) + 8, kPitchB = (kTransB ? kTileK : kTileN) + 8;
  constexpr int kRowsA = kTransA ? kTileK : kTileM, kRowsB = kTransB ? kTileN : kTileK;
  __shared__ alignas(16) T tiles_a[kStages][kRowsA * kPitchA];
  __shared__ alignas(16) T tiles_b[kStages][kRowsB * kPitchB];

  const TilePosition tile(p.m, p.n);
  int64_t at[N];
  batches.locate_block(tile.batch, at);
  const Matrix<T> ma = kTransA ? Matrix<T>{a + at[0], p.a_k, p.a_row, p.k, p.m}
                               : Matrix<T>{a + at[0], p.a_row, p.a_k, p.m, p.k};
  const Matrix<T> mb = kTransB ? Matrix<T>{b + at[1], p.b_column, p.b_k, p.n, p.k}
                               : Matrix<T>{b + at[1], p.b_k, p.b_column, p.k, p.n};
  const bool wide_a = ma.wide(), wide_b = mb.wide();
  const int steps = static_cast<int>((p.k + kTileK - 1) / kTileK);
  const auto fetch = [&](int step) {
    if (step < steps) {
      const int64_t k = static_cast<int64_t>(step) * kTileK;
      load_tile<kRowsA, kPitchA - 8, kPitchA, kTensorThreads>(tiles_a[step % kStages], ma, kTransA ? k : tile.row,
                                                              kTransA ? tile.row : k, wide_a);
      load_tile<kRowsB, kPitchB - 8, kPitchB, kTensorThreads>(tiles_b[step % kStages], mb, kTransB ? tile.column : k,
                                                              kTransB ? k : tile.column, wide_b);
    }
    copy_commit();  // an empty group keeps the count of groups in step
  };

  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int warp_row = warp / 2 * 32, warp_column = warp % 2 * 32;
  float acc[2][4][4] = {};
  for (int s = 0; s < kStages - 1; ++s) fetch(s);
  for (int step = 0; step < steps; ++step) {
    copy_wait<kStages - 2>();
    __syncthreads();  // the tile has arrived for all, and all have left the one that is overwritten next
    fetch(step + kStages - 1);
    const T* shared_a = tiles_a[step % kStages];
    const T* shared_b = tiles_b[step % kStages];
#pragma unroll
    for (int k = 0; k < kTileK; k += 16) {
      uint32_t fa[2][4], fb[2][4];
#pragma unroll
      for (int i = 0; i < 2; ++i) load_a<kTransA, kPitchA>(fa[i], shared_a, warp_row + i * 16, k);
#pragma unroll
      for (int j = 0; j < 2; ++j) load_b<kTransB, kPitchB>(fb[j], shared_b, k, warp_column + j * 16);
#pragma unroll
      for (int i = 0; i < 2; ++i) {
#pragma unroll
        for (int j = 0; j < 4; ++j) multiply_add<T>(acc[i][j], fa[i], fb[j / 2][j % 2 * 2], fb[j / 2][j % 2 * 2 + 1]);
      }
    }
  }
  copy_wait<0>();

#pragma unroll
  for (int i = 0; i < 2; ++i) {
#pragma unroll
    for (int j = 0; j < 4; ++j) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int64_t row = tile.row + warp_row + i * 16 + lane / 4 + e / 2 * 8;
        const int64_t column = tile.column + warp_column + j * 8 + lane % 4 * 2 + e % 2;
        if (row < p.m && column < p.n) epilogue(at, tile.batch, row, column, p.alpha * acc[i][j][e]);
      }
    }
  }
}

constexpr int kScalarThreads = 256;

// fp32, exact: 16x16 threads of 4x4 elements, K in steps of 16.
template <int N, class Epilogue>
__device__ __forceinline__ void linear_scalar(const float* a, const float* b, const Product& p, const Space<N>& batches,
                                              const Epilogue& epilogue) {
  constexpr int kTileK = 16;
  __shared__ float tile_a[kTileK][kTileM + 1];
  __shared__ float tile_b[kTileK][kTileN + 1];
  const TilePosition tile(p.m, p.n);
  int64_t at[N];
  batches.locate_block(tile.batch, at);
  a += at[0];
  b += at[1];
  const int ty = threadIdx.x / 16, tx = threadIdx.x % 16;
  float acc[4][4] = {};
  for (int64_t k0 = 0; k0 < p.k; k0 += kTileK) {
    for (int i = threadIdx.x; i < kTileM * kTileK; i += kScalarThreads) {
      const int r = p.a_row == 1 ? i % kTileM : i / kTileK, c = p.a_row == 1 ? i / kTileM : i % kTileK;
      const bool inside = tile.row + r < p.m && k0 + c < p.k;
      tile_a[c][r] = inside ? a[(tile.row + r) * p.a_row + (k0 + c) * p.a_k] : 0.0f;
    }
    for (int i = threadIdx.x; i < kTileN * kTileK; i += kScalarThreads) {
      const int r = p.b_k == 1 ? i % kTileK : i / kTileN, c = p.b_k == 1 ? i / kTileK : i % kTileN;
      const bool inside = k0 + r < p.k && tile.column + c < p.n;
      tile_b[r][c] = inside ? b[(k0 + r) * p.b_k + (tile.column + c) * p.b_column] : 0.0f;
    }
    __syncthreads();
#pragma unroll
    for (int k = 0; k < kTileK; ++k) {
      float ra[4], rb[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) ra[i] = tile_a[k][ty * 4 + i];
#pragma unroll
      for (int j = 0; j < 4; ++j) rb[j] = tile_b[k][tx + j * 16];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
#pragma unroll
        for (int j = 0; j < 4; ++j) acc[i][j] += ra[i] * rb[j];
      }
    }
    __syncthreads();
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) {
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const int64_t row = tile.row + ty * 4 + i, column = tile.column + tx + j * 16;
      if (row < p.m && column < p.n) epilogue(at, tile.batch, row, column, p.alpha * acc[i][j]);
    }
  }
}

// The strides of the last two axes of A [..., m, k] and B [..., k, n].
inline Product product(const View& a, const View& b, float alpha) {
  return {a.size[a.rank - 2], b.size[b.rank - 1], a.size[a.rank - 1], a.stride[a.rank - 2], a.stride[a.rank - 1],
          b.stride[b.rank - 2], b.stride[b.rank - 1], alpha};
}

// Where every operand walks from one batch to the next as from the last row to the next, batches are just more rows:
// a product of [batch, seq, k] with one weight becomes a single tall one. `row` is each operand's stride per row; of batches
// of one row it becomes what they are apart.
template <int N>
void fold_batches(Product& p, Space<N>& batches, int64_t (&row)[N]) {
  if (batches.rank != 1 || batches.axis[0].stride[1] != 0) return;  // operand 1 is B, which has no rows of the product
  const bool single = p.m == 1 && batches.axis[0].stride[0] != 0;
  for (int i = 0; i < N; ++i) {
    if (single) row[i] = batches.axis[0].stride[i];
    if (i != 1 && batches.axis[0].stride[i] != p.m * row[i]) return;
  }
  p.a_row = row[0];
  p.m *= batches.count;
  batches.rank = 0;
  batches.count = 1;
}

// From how many multiplications on a vendor's product and its epilogue's pass beat one kernel of ours. Measured on an
// H200: always, 5 us against 8 at 1x256x256 and 6 against 20 at 32x768x768. Ours is for machines without cuBLAS and for
// strides that it does not take; a build may ask for it with a number that is never reached.
#ifndef FUSION_VENDOR_FROM
#define FUSION_VENDOR_FROM 0.0
#endif

inline bool prefer_vendor(const Product& p, const Ints& dims) {
  const int64_t elements = count(dims);  // cuBLAS takes no empty matrix
  return elements > 0 && static_cast<double>(elements) * static_cast<double>(p.k) >= FUSION_VENDOR_FROM;
}

}  // namespace fusion::gpu

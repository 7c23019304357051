// LinearProducts: CUDA kernels of one fused operator.
// Rule: Test
// Original nodes:
#include "include/blas.h"
#include "include/linear.cuh"
#include "include/linear_wgmma.cuh"
#include "include/skinny.cuh"
#include "include/tf32_choice.cuh"
#include "include/turned.cuh"
#include "include/vector.cuh"
#include "include/workspace.cuh"
#include "ort/op.h"

// Compilers may be given one of the file's parts each; by itself it is all of them.
#if defined(FUSION_PART)
#define FUSION_HAS_PART(n) (FUSION_PART == n)
#else
#define FUSION_HAS_PART(n) 1
#endif

namespace LinearProducts_kernels {

using fusion::Ints;
namespace gpu = fusion::gpu;
namespace host = fusion::host;

#if FUSION_HAS_PART(0)

// stage_2.
//   MatMul
// What our own kernel does with an element of the product.
struct stage_2_epilogue {
  float* out0;
  int64_t rows, columns;

  __device__ __forceinline__ void operator()(const int64_t (&at)[2], int64_t batch, int64_t row, int64_t column,
                                             float acc) const {
    const int64_t e = (batch * rows + row) * columns + column;
    const float v0 = acc;
    fusion::store(out0 + e, v0);
  }
};

// What the product is made of; operands 0 and 1 of the batch space are A and B.
struct stage_2_operands {
  const float* a;
  const float* b;
  gpu::Product p;
  gpu::Space<2> batches;
  stage_2_epilogue epilogue;
};

stage_2_operands stage_2_of(const Ints& dims, const gpu::Tensor& t0, const gpu::Tensor& t1, const gpu::Tensor& t2) {
  const gpu::View a = gpu::view(t0), b = gpu::view(t1);
  gpu::Product p = gpu::product(a, b, 1.0f);
  const gpu::View views[] = {a, b};
  gpu::Space<2> batches = gpu::space<2>(dims, views, 2);
  int64_t row[] = {p.a_row, 0};
  gpu::fold_batches(p, batches, row);
  const stage_2_epilogue epilogue{
      static_cast<float*>(t2.data),
      p.m, p.n};
  return {static_cast<const float*>(t0.data),
          static_cast<const float*>(t1.data), p, batches, epilogue};
}

__global__ void __launch_bounds__(gpu::kScalarThreads)
    stage_2_kernel(const stage_2_operands x) {
  gpu::await_earlier();
  gpu::linear_scalar(x.a, x.b, x.p, x.batches, x.epilogue);
}

template <int kRows>
__global__ void __launch_bounds__(gpu::kSkinnyThreads, gpu::kSkinnyBlocks)
    stage_2_skinny(const stage_2_operands x0, int lanes) {
  gpu::await_earlier();
  __shared__ gpu::SkinnySums<float, kRows> sums;
  int64_t strip = blockIdx.x;
  gpu::skinny_strip<float, kRows>(x0, strip, lanes, sums);
}

void stage_2_launch(const gpu::Device& device, cudaStream_t stream, const stage_2_operands& x0) {
  const gpu::Product* const widths[] = {&x0.p};
  int64_t columns = 0, strips = 0;
  for (const gpu::Product* p : widths) columns += p->n;
  const int lanes = gpu::skinny_lanes<float>(device, columns);
  for (const gpu::Product* p : widths) strips += gpu::skinny_strips<float>(*p, lanes);
  const unsigned grid = gpu::grid_size(strips, "stage_2");
  const auto kernel = x0.p.m == 1 ? stage_2_skinny<1> : stage_2_skinny<gpu::kSkinnyRows>;
  gpu::launch(kernel, grid, gpu::kSkinnyThreads, 0, stream, "stage_2", x0, lanes);
}

// Eight neighbours of a row at a time.
struct stage_2_tf320 {
  stage_2_epilogue e0;
  float alpha;

  struct Operands {
  };

  __device__ __forceinline__ Operands fetch(int64_t row, int64_t column) const {
    Operands x;
    return x;
  }

  __device__ __forceinline__ void store(int64_t row, int64_t column, const float (&sums)[8], const Operands& x) const {
    const int64_t e = row * e0.columns + column;
    gpu::Chunk<float, 8> y0;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const float acc = alpha * sums[i];
      const float v0 = acc;
      fusion::store(&y0.element[i], v0);
    }
    *reinterpret_cast<gpu::Chunk<float, 8>*>(e0.out0 + e) = y0;
  }
};

using stage_2_tf32_tiles = gpu::Tf32Tiles;

template <class Tile>
__global__ void __launch_bounds__(Tile::kThreads, 1)
    stage_2_tf32_kernel(const __grid_constant__ gpu::Tf32Operands<1> x, const __grid_constant__ stage_2_tf320 epilogue0) {
  gpu::products_in_tf32<Tile, false>(x, epilogue0);
}

#if FUSION_HOPPER
// Eight neighbours of a row at a time.
struct stage_2_turned_wide0 {
  stage_2_epilogue e0;

  struct Operands {
  };

  __device__ __forceinline__ void fetch(Operands& x, uint32_t row, uint32_t column) const {
  }

  // Of another row, the columns of `near`.
  __device__ __forceinline__ void fetch(Operands& x, uint32_t row, uint32_t column, [[maybe_unused]] const Operands& near) const {
  }

  __device__ __forceinline__ void prefetch(uint32_t row, uint32_t column) const {
  }
  static constexpr bool kReadsRows = false;  // other elements in every row
  static constexpr bool kByColumn = false;  // what it reads is alike in all of them

  __device__ __forceinline__ void spread(Operands& x) const {
  }

  __device__ __forceinline__ void store(uint32_t row, uint32_t column, bool inside, const float (&sums)[1][8], const Operands& x, [[maybe_unused]] bool passes = false) const {
    [[maybe_unused]] const int64_t e = row * e0.columns + column;
    float y0_0[8];
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      {
        const float acc = 1.0f * sums[0][i];
        const float v0 = acc;
        y0_0[i] = v0;
      }
    }
    gpu::store_eight(inside, gpu::eight_at(e0.out0, e0.columns, 1, row, column), y0_0, passes);
  }
};

using stage_2_turned_tiles = gpu::FloatTiles<1>;

template <class Tile>
__global__ void __launch_bounds__(Tile::kThreads, Tile::kBlocks)
    stage_2_turned_wide_kernel(const __grid_constant__ gpu::WideOperands<1, 1> x, const __grid_constant__ stage_2_turned_wide0 epilogue0) {
  gpu::linear_wgmma<float, Tile, true>(x, epilogue0);
}

// False where the kernel does not suit the operands, or would take more than so many cycles.
bool stage_2_turned_wide_launch(const gpu::Device& device, cudaStream_t stream, double most, gpu::Turned& turned0, const stage_2_operands& x0) {
  if (!gpu::in_eights(x0.epilogue.out0, x0.p.n, 1)) return false;
gpu::WideOperands<1, 1> x;
  gpu::Turned* const right[] = {&turned0};
  if (!gpu::describe_turned(device, stream, most, x, right, x0)) return false;
  const stage_2_turned_wide0 epilogue0{x0.epilogue};
  return gpu::with_wide_tile<stage_2_turned_tiles>(device, true, x, x0.a, x0.p.a_row * 2, [&](auto tile, unsigned grid) {
    using Tile = decltype(tile);
    gpu::launch_clusters(stage_2_turned_wide_kernel<Tile>, grid, static_cast<unsigned>(x.parts), Tile::kThreads, Tile::kBytes, stream, "stage_2_turned", x, epilogue0);
  });
}
#endif

void stage_2_turned_wide_prepare(const gpu::Device& device) {
  (void)device;
#if FUSION_HOPPER
  stage_2_turned_tiles::each([&](auto tile) {
    using Tile = decltype(tile);
    gpu::allow_shared_memory(device, stage_2_turned_wide_kernel<Tile>, Tile::kBytes);
  });
#endif
}

// False where no kernel suits the operands, or all would take more than so many cycles.
bool stage_2_tf32_launch(const gpu::Device& device, cudaStream_t stream, double most, gpu::Turned& turned0, const stage_2_operands& x0) {
  gpu::Tf32Operands<1> x;
  if (!gpu::describe_tf32<false>(x, x0)) return false;
  if (!gpu::in_chunks<8>(x0.epilogue.out0, x0.p.n, 1)) return false;
  const stage_2_tf320 epilogue0{x0.epilogue, x0.p.alpha};
#if FUSION_HOPPER
  const double least = gpu::least_tf32_cycles<stage_2_tf32_tiles, false>(device, x.rows, x.depth, x.columns);
  if (stage_2_turned_wide_launch(device, stream, least < most ? least : most, turned0, x0)) return true;
#endif
  return gpu::with_tf32_tile<stage_2_tf32_tiles, false>(device, x, most, [&](auto tile, unsigned grid) {
    using Tile = decltype(tile);
    gpu::launch_clusters(stage_2_tf32_kernel<Tile>, grid, static_cast<unsigned>(x.parts), Tile::kThreads,
                         Tile::template bytes<false>(x.parts), stream, "stage_2", x, epilogue0);
  });
}

void stage_2_tf32_prepare(const gpu::Device& device) {
  stage_2_turned_wide_prepare(device);
  stage_2_tf32_tiles::each([&](auto tile) {
    using Tile = decltype(tile);
    const int bytes = Tile::template most_bytes<false>(device.shared_memory);
    gpu::allow_shared_memory(device, stage_2_tf32_kernel<Tile>, bytes);
  });
}

// Once: blocks need more shared memory than is given without asking.
void stage_2_prepare(const gpu::Device& device) {
  stage_2_tf32_prepare(device);
}


// `product` is memory for the bare product, if the vendor's kernel computes it.
void stage_2(const gpu::Device& device, cudaStream_t stream, const Ints& dims, const gpu::Tensor& t0, const gpu::Tensor& t1, const gpu::Tensor& t2, const gpu::Blas& blas, void* accumulator, gpu::Turned& turned0) {
  const stage_2_operands x = stage_2_of(dims, t0, t1, t2);
  if (gpu::is_skinny(x)) {
    stage_2_launch(device, stream, x);
    return;
  }
  const gpu::View a = gpu::view(t0), b = gpu::view(t1);
  gpu::Product tall = gpu::product(a, b, 1.0f);
  const bool vendor = blas && gpu::prefer_vendor(tall, dims);
  const double most = vendor ? gpu::vendor_tf32_cycles(device, x.p, false) : fusion::inf<double>();
  if (blas.tf32() && stage_2_tf32_launch(device, stream, most, turned0, x)) return;
  if (vendor) {
    const gpu::View matrices[] = {a, b};
    gpu::Space<2> batches = gpu::space<2>(dims, matrices, 2);
    int64_t row[] = {tall.a_row, 0};
    gpu::fold_batches(tall, batches, row);
    if (blas.multiply(x.a, x.b, static_cast<float*>(accumulator), tall, batches)) {
      return;
    }
  }
  const unsigned grid = gpu::tile_grid(x.p, x.batches.count, "stage_2");
  if (grid == 0) return;
  gpu::launch(stage_2_kernel, grid, gpu::kScalarThreads, 0, stream, "stage_2", x);
}

#else

void stage_2(const gpu::Device& device, cudaStream_t stream, const Ints& dims, const gpu::Tensor& t0, const gpu::Tensor& t1, const gpu::Tensor& t2, const gpu::Blas& blas, void* accumulator, gpu::Turned& turned0);
void stage_2_prepare(const gpu::Device& device);

#endif

#if FUSION_HAS_PART(1)

// stage_0.
//   MatMul
//   Sigmoid
//   Mul
struct stage_0_pass_args {
  const float* in2;
  float* out0;
  gpu::Space<1> space;
};

// A thread has kVectors vectors, all of which are asked for before the first is used. Packed, each is whole and aligned.
// `threads`: of a block.
template <int V, int kVectors, bool kPacked>
__device__ __forceinline__ void stage_0_pass_vectors(const stage_0_pass_args& a, unsigned block, int threads) {
  int64_t at[kVectors][1];
  gpu::Vector<float, V> x2[kVectors];
  const int64_t first = (static_cast<int64_t>(block) * kVectors * threads + threadIdx.x) * V;
#pragma unroll
  for (int u = 0; u < kVectors; ++u) a.space.template locate<kPacked>(first + u * threads * V, at[u]);
  gpu::await_earlier();
#pragma unroll
  for (int u = 0; u < kVectors; ++u) {
    const int valid = gpu::valid<V, kPacked>(a.space.count - first - u * threads * V);
    gpu::load_vector<V, kPacked>(a.in2 + at[u][0], a.space.axis[0].stride[0], valid, x2[u]);
  }
#pragma unroll
  for (int u = 0; u < kVectors; ++u) {
    const int64_t e = first + u * threads * V;
    const int valid = gpu::valid<V, kPacked>(a.space.count - e);
    gpu::Vector<float, V> y0{};
#pragma unroll
    for (int i = 0; i < V; ++i) {
      const float v0 = gpu::get(x2[u], i);
      const float v1 = fusion::sigmoid(v0);
      const float v2 = v0 * v1;
      gpu::put(y0, i, v2);
    }
    gpu::store_vector<V, kPacked>(a.out0 + e, 1, valid, y0);
  }
}

template <int V, int kVectors, bool kPacked>
__global__ void __launch_bounds__(gpu::kPassThreads) stage_0_pass_kernel(const stage_0_pass_args a) {
  gpu::let_next_begin();
  stage_0_pass_vectors<V, kVectors, kPacked>(a, blockIdx.x, blockDim.x);
}

stage_0_pass_args stage_0_pass_of(const Ints& dims, const gpu::Tensor& product, const gpu::Tensor& t0, const gpu::Tensor& t1, const gpu::Tensor& t2) {
  const gpu::View views[] = {gpu::view(product)};
  return {
      static_cast<const float*>(product.data),
      static_cast<float*>(t2.data),
      gpu::space<1>(dims, views)};
}

// Whether all vectors are whole and aligned.
bool stage_0_pass_packs(const stage_0_pass_args& a) {
  bool packed = gpu::vectorizable(a.space, 4) && a.space.small && a.space.count % 4 == 0;
  packed = packed && gpu::packs<4>(a.space, 0, a.in2);
  packed = packed && gpu::aligned<4>(a.out0);
  return packed;
}

void stage_0_pass(const gpu::Device& device, cudaStream_t stream, const Ints& dims, const gpu::Tensor& product, const gpu::Tensor& t0, const gpu::Tensor& t1, const gpu::Tensor& t2) {
  const stage_0_pass_args a = stage_0_pass_of(dims, product, t0, t1, t2);
  if (a.space.count == 0) return;
  const bool packed = stage_0_pass_packs(a);
  if (packed && gpu::is_long(device, a.space.count / 4)) {
    gpu::launch_pass<4, 2>(stage_0_pass_kernel<4, 2, true>, a.space.count, stream, "stage_0_pass", a);
  } else if (gpu::vectorizable(a.space, 4)) {
    gpu::launch_pass<4, 1>(packed ? stage_0_pass_kernel<4, 1, true> : stage_0_pass_kernel<4, 1, false>, a.space.count, stream, "stage_0_pass", a);
  } else {
    gpu::launch_pass<1, 1>(stage_0_pass_kernel<1, 1, false>, a.space.count, stream, "stage_0_pass", a);
  }
}

// What our own kernel does with an element of the product.
struct stage_0_epilogue {
  float* out0;
  int64_t rows, columns;

  __device__ __forceinline__ void operator()(const int64_t (&at)[2], int64_t batch, int64_t row, int64_t column,
                                             float acc) const {
    const int64_t e = (batch * rows + row) * columns + column;
    const float v0 = acc;
    const float v1 = fusion::sigmoid(v0);
    const float v2 = v0 * v1;
    fusion::store(out0 + e, v2);
  }
};

// What the product is made of; operands 0 and 1 of the batch space are A and B.
struct stage_0_operands {
  const float* a;
  const float* b;
  gpu::Product p;
  gpu::Space<2> batches;
  stage_0_epilogue epilogue;
};

stage_0_operands stage_0_of(const Ints& dims, const gpu::Tensor& t0, const gpu::Tensor& t1, const gpu::Tensor& t2) {
  const gpu::View a = gpu::view(t0), b = gpu::view(t1);
  gpu::Product p = gpu::product(a, b, 1.0f);
  const gpu::View views[] = {a, b};
  gpu::Space<2> batches = gpu::space<2>(dims, views, 2);
  int64_t row[] = {p.a_row, 0};
  gpu::fold_batches(p, batches, row);
  const stage_0_epilogue epilogue{
      static_cast<float*>(t2.data),
      p.m, p.n};
  return {static_cast<const float*>(t0.data),
          static_cast<const float*>(t1.data), p, batches, epilogue};
}

__global__ void __launch_bounds__(gpu::kScalarThreads)
    stage_0_kernel(const stage_0_operands x) {
  gpu::await_earlier();
  gpu::linear_scalar(x.a, x.b, x.p, x.batches, x.epilogue);
}

template <int kRows>
__global__ void __launch_bounds__(gpu::kSkinnyThreads, gpu::kSkinnyBlocks)
    stage_0_skinny(const stage_0_operands x0, int lanes) {
  gpu::await_earlier();
  __shared__ gpu::SkinnySums<float, kRows> sums;
  int64_t strip = blockIdx.x;
  gpu::skinny_strip<float, kRows>(x0, strip, lanes, sums);
}

void stage_0_launch(const gpu::Device& device, cudaStream_t stream, const stage_0_operands& x0) {
  const gpu::Product* const widths[] = {&x0.p};
  int64_t columns = 0, strips = 0;
  for (const gpu::Product* p : widths) columns += p->n;
  const int lanes = gpu::skinny_lanes<float>(device, columns);
  for (const gpu::Product* p : widths) strips += gpu::skinny_strips<float>(*p, lanes);
  const unsigned grid = gpu::grid_size(strips, "stage_0");
  const auto kernel = x0.p.m == 1 ? stage_0_skinny<1> : stage_0_skinny<gpu::kSkinnyRows>;
  gpu::launch(kernel, grid, gpu::kSkinnyThreads, 0, stream, "stage_0", x0, lanes);
}

// Eight neighbours of a row at a time.
struct stage_0_tf320 {
  stage_0_epilogue e0;
  float alpha;

  struct Operands {
  };

  __device__ __forceinline__ Operands fetch(int64_t row, int64_t column) const {
    Operands x;
    return x;
  }

  __device__ __forceinline__ void store(int64_t row, int64_t column, const float (&sums)[8], const Operands& x) const {
    const int64_t e = row * e0.columns + column;
    gpu::Chunk<float, 8> y0;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const float acc = alpha * sums[i];
      const float v0 = acc;
      const float v1 = fusion::sigmoid(v0);
      const float v2 = v0 * v1;
      fusion::store(&y0.element[i], v2);
    }
    *reinterpret_cast<gpu::Chunk<float, 8>*>(e0.out0 + e) = y0;
  }
};

using stage_0_tf32_tiles = gpu::Tf32Tiles;

template <class Tile>
__global__ void __launch_bounds__(Tile::kThreads, 1)
    stage_0_tf32_kernel(const __grid_constant__ gpu::Tf32Operands<1> x, const __grid_constant__ stage_0_tf320 epilogue0) {
  gpu::products_in_tf32<Tile, false>(x, epilogue0);
}

#if FUSION_HOPPER
// Eight neighbours of a row at a time.
struct stage_0_turned_wide0 {
  stage_0_epilogue e0;

  struct Operands {
  };

  __device__ __forceinline__ void fetch(Operands& x, uint32_t row, uint32_t column) const {
  }

  // Of another row, the columns of `near`.
  __device__ __forceinline__ void fetch(Operands& x, uint32_t row, uint32_t column, [[maybe_unused]] const Operands& near) const {
  }

  __device__ __forceinline__ void prefetch(uint32_t row, uint32_t column) const {
  }
  static constexpr bool kReadsRows = false;  // other elements in every row
  static constexpr bool kByColumn = false;  // what it reads is alike in all of them

  __device__ __forceinline__ void spread(Operands& x) const {
  }

  __device__ __forceinline__ void store(uint32_t row, uint32_t column, bool inside, const float (&sums)[1][8], const Operands& x, [[maybe_unused]] bool passes = false) const {
    [[maybe_unused]] const int64_t e = row * e0.columns + column;
    float y0_0[8];
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      {
        const float acc = 1.0f * sums[0][i];
        const float v0 = acc;
        const float v1 = fusion::sigmoid(v0);
        const float v2 = v0 * v1;
        y0_0[i] = v2;
      }
    }
    gpu::store_eight(inside, gpu::eight_at(e0.out0, e0.columns, 1, row, column), y0_0, passes);
  }
};

using stage_0_turned_tiles = gpu::FloatTiles<1>;

template <class Tile>
__global__ void __launch_bounds__(Tile::kThreads, Tile::kBlocks)
    stage_0_turned_wide_kernel(const __grid_constant__ gpu::WideOperands<1, 1> x, const __grid_constant__ stage_0_turned_wide0 epilogue0) {
  gpu::linear_wgmma<float, Tile, true>(x, epilogue0);
}

// False where the kernel does not suit the operands, or would take more than so many cycles.
bool stage_0_turned_wide_launch(const gpu::Device& device, cudaStream_t stream, double most, gpu::Turned& turned0, const stage_0_operands& x0) {
  if (!gpu::in_eights(x0.epilogue.out0, x0.p.n, 1)) return false;
gpu::WideOperands<1, 1> x;
  gpu::Turned* const right[] = {&turned0};
  if (!gpu::describe_turned(device, stream, most, x, right, x0)) return false;
  const stage_0_turned_wide0 epilogue0{x0.epilogue};
  return gpu::with_wide_tile<stage_0_turned_tiles>(device, true, x, x0.a, x0.p.a_row * 2, [&](auto tile, unsigned grid) {
    using Tile = decltype(tile);
    gpu::launch_clusters(stage_0_turned_wide_kernel<Tile>, grid, static_cast<unsigned>(x.parts), Tile::kThreads, Tile::kBytes, stream, "stage_0_turned", x, epilogue0);
  });
}
#endif

void stage_0_turned_wide_prepare(const gpu::Device& device) {
  (void)device;
#if FUSION_HOPPER
  stage_0_turned_tiles::each([&](auto tile) {
    using Tile = decltype(tile);
    gpu::allow_shared_memory(device, stage_0_turned_wide_kernel<Tile>, Tile::kBytes);
  });
#endif
}

// False where no kernel suits the operands, or all would take more than so many cycles.
bool stage_0_tf32_launch(const gpu::Device& device, cudaStream_t stream, double most, gpu::Turned& turned0, const stage_0_operands& x0) {
  gpu::Tf32Operands<1> x;
  if (!gpu::describe_tf32<false>(x, x0)) return false;
  if (!gpu::in_chunks<8>(x0.epilogue.out0, x0.p.n, 1)) return false;
  const stage_0_tf320 epilogue0{x0.epilogue, x0.p.alpha};
#if FUSION_HOPPER
  const double least = gpu::least_tf32_cycles<stage_0_tf32_tiles, false>(device, x.rows, x.depth, x.columns);
  if (stage_0_turned_wide_launch(device, stream, least < most ? least : most, turned0, x0)) return true;
#endif
  return gpu::with_tf32_tile<stage_0_tf32_tiles, false>(device, x, most, [&](auto tile, unsigned grid) {
    using Tile = decltype(tile);
    gpu::launch_clusters(stage_0_tf32_kernel<Tile>, grid, static_cast<unsigned>(x.parts), Tile::kThreads,
                         Tile::template bytes<false>(x.parts), stream, "stage_0", x, epilogue0);
  });
}

void stage_0_tf32_prepare(const gpu::Device& device) {
  stage_0_turned_wide_prepare(device);
  stage_0_tf32_tiles::each([&](auto tile) {
    using Tile = decltype(tile);
    const int bytes = Tile::template most_bytes<false>(device.shared_memory);
    gpu::allow_shared_memory(device, stage_0_tf32_kernel<Tile>, bytes);
  });
}

// Once: blocks need more shared memory than is given without asking.
void stage_0_prepare(const gpu::Device& device) {
  stage_0_tf32_prepare(device);
}


// `product` is memory for the bare product, if the vendor's kernel computes it.
void stage_0(const gpu::Device& device, cudaStream_t stream, const Ints& dims, const gpu::Tensor& t0, const gpu::Tensor& t1, const gpu::Tensor& t2, const gpu::Blas& blas, void* accumulator, gpu::Turned& turned0) {
  const stage_0_operands x = stage_0_of(dims, t0, t1, t2);
  if (gpu::is_skinny(x)) {
    stage_0_launch(device, stream, x);
    return;
  }
  const gpu::View a = gpu::view(t0), b = gpu::view(t1);
  gpu::Product tall = gpu::product(a, b, 1.0f);
  const bool vendor = blas && gpu::prefer_vendor(tall, dims);
  const double most = vendor ? gpu::vendor_tf32_cycles(device, x.p, true) : fusion::inf<double>();
  if (blas.tf32() && stage_0_tf32_launch(device, stream, most, turned0, x)) return;
  if (vendor) {
    const gpu::View matrices[] = {a, b};
    gpu::Space<2> batches = gpu::space<2>(dims, matrices, 2);
    int64_t row[] = {tall.a_row, 0};
    gpu::fold_batches(tall, batches, row);
    if (blas.multiply(x.a, x.b, static_cast<float*>(accumulator), tall, batches)) {
      const gpu::Tensor product{accumulator, &dims};
      stage_0_pass(device, stream, dims, product, t0, t1, t2);
      return;
    }
  }
  const unsigned grid = gpu::tile_grid(x.p, x.batches.count, "stage_0");
  if (grid == 0) return;
  gpu::launch(stage_0_kernel, grid, gpu::kScalarThreads, 0, stream, "stage_0", x);
}

// stage_1.
//   MatMul
//   Mul
struct stage_1_pass_args {
  const float* in2;
  const float* in3;
  float* out0;
  gpu::Space<2> space;
};

// A thread has kVectors vectors, all of which are asked for before the first is used. Packed, each is whole and aligned.
// `threads`: of a block.
template <int V, int kVectors, bool kPacked>
__device__ __forceinline__ void stage_1_pass_vectors(const stage_1_pass_args& a, unsigned block, int threads) {
  int64_t at[kVectors][2];
  gpu::Vector<float, V> x2[kVectors];
  gpu::Vector<float, V> x3[kVectors];
  const int64_t first = (static_cast<int64_t>(block) * kVectors * threads + threadIdx.x) * V;
#pragma unroll
  for (int u = 0; u < kVectors; ++u) a.space.template locate<kPacked>(first + u * threads * V, at[u]);
  gpu::await_earlier();
#pragma unroll
  for (int u = 0; u < kVectors; ++u) {
    const int valid = gpu::valid<V, kPacked>(a.space.count - first - u * threads * V);
    gpu::load_vector<V, kPacked>(a.in2 + at[u][0], a.space.axis[0].stride[0], valid, x2[u]);
    gpu::load_vector<V, kPacked>(a.in3 + at[u][1], a.space.axis[0].stride[1], valid, x3[u]);
  }
#pragma unroll
  for (int u = 0; u < kVectors; ++u) {
    const int64_t e = first + u * threads * V;
    const int valid = gpu::valid<V, kPacked>(a.space.count - e);
    gpu::Vector<float, V> y0{};
#pragma unroll
    for (int i = 0; i < V; ++i) {
      const float v0 = gpu::get(x3[u], i);
      const float v1 = gpu::get(x2[u], i);
      const float v2 = v1 * v0;
      gpu::put(y0, i, v2);
    }
    gpu::store_vector<V, kPacked>(a.out0 + e, 1, valid, y0);
  }
}

template <int V, int kVectors, bool kPacked>
__global__ void __launch_bounds__(gpu::kPassThreads) stage_1_pass_kernel(const stage_1_pass_args a) {
  gpu::let_next_begin();
  stage_1_pass_vectors<V, kVectors, kPacked>(a, blockIdx.x, blockDim.x);
}

stage_1_pass_args stage_1_pass_of(const Ints& dims, const gpu::Tensor& product, const gpu::Tensor& t0, const gpu::Tensor& t1, const gpu::Tensor& t2, const gpu::Tensor& t3) {
  const gpu::View views[] = {gpu::view(t2), gpu::view(product)};
  return {
      static_cast<const float*>(t2.data),
      static_cast<const float*>(product.data),
      static_cast<float*>(t3.data),
      gpu::space<2>(dims, views)};
}

// Whether all vectors are whole and aligned.
bool stage_1_pass_packs(const stage_1_pass_args& a) {
  bool packed = gpu::vectorizable(a.space, 4) && a.space.small && a.space.count % 4 == 0;
  packed = packed && gpu::packs<4>(a.space, 0, a.in2);
  packed = packed && gpu::packs<4>(a.space, 1, a.in3);
  packed = packed && gpu::aligned<4>(a.out0);
  return packed;
}

void stage_1_pass(const gpu::Device& device, cudaStream_t stream, const Ints& dims, const gpu::Tensor& product, const gpu::Tensor& t0, const gpu::Tensor& t1, const gpu::Tensor& t2, const gpu::Tensor& t3) {
  const stage_1_pass_args a = stage_1_pass_of(dims, product, t0, t1, t2, t3);
  if (a.space.count == 0) return;
  const bool packed = stage_1_pass_packs(a);
  if (packed && gpu::is_long(device, a.space.count / 4)) {
    gpu::launch_pass<4, 2>(stage_1_pass_kernel<4, 2, true>, a.space.count, stream, "stage_1_pass", a);
  } else if (gpu::vectorizable(a.space, 4)) {
    gpu::launch_pass<4, 1>(packed ? stage_1_pass_kernel<4, 1, true> : stage_1_pass_kernel<4, 1, false>, a.space.count, stream, "stage_1_pass", a);
  } else {
    gpu::launch_pass<1, 1>(stage_1_pass_kernel<1, 1, false>, a.space.count, stream, "stage_1_pass", a);
  }
}

// What our own kernel does with an element of the product.
struct stage_1_epilogue {
  const float* in2;
  int64_t row2, column2;
  static constexpr int at2 = 2;
  float* out0;
  int64_t rows, columns;

  __device__ __forceinline__ void operator()(const int64_t (&at)[3], int64_t batch, int64_t row, int64_t column,
                                             float acc) const {
    const int64_t e = (batch * rows + row) * columns + column;
    const float v0 = acc;
    const float v1 = fusion::load(in2 + at[at2] + row * row2 + column * column2);
    const float v2 = v1 * v0;
    fusion::store(out0 + e, v2);
  }
};

// What the product is made of; operands 0 and 1 of the batch space are A and B.
struct stage_1_operands {
  const float* a;
  const float* b;
  gpu::Product p;
  gpu::Space<3> batches;
  stage_1_epilogue epilogue;
};

stage_1_operands stage_1_of(const Ints& dims, const gpu::Tensor& t0, const gpu::Tensor& t1, const gpu::Tensor& t2, const gpu::Tensor& t3) {
  const gpu::View a = gpu::view(t0), b = gpu::view(t1);
  gpu::Product p = gpu::product(a, b, 1.0f);
  const gpu::View views[] = {a, b, gpu::view(t2)};
  gpu::Space<3> batches = gpu::space<3>(dims, views, 2);
  int64_t row[] = {p.a_row, 0, views[2].step(2)};
  gpu::fold_batches(p, batches, row);
  const stage_1_epilogue epilogue{
      static_cast<const float*>(t2.data), row[2], views[2].step(1),
      static_cast<float*>(t3.data),
      p.m, p.n};
  return {static_cast<const float*>(t0.data),
          static_cast<const float*>(t1.data), p, batches, epilogue};
}

__global__ void __launch_bounds__(gpu::kScalarThreads)
    stage_1_kernel(const stage_1_operands x) {
  gpu::await_earlier();
  gpu::linear_scalar(x.a, x.b, x.p, x.batches, x.epilogue);
}

template <int kRows>
__global__ void __launch_bounds__(gpu::kSkinnyThreads, gpu::kSkinnyBlocks)
    stage_1_skinny(const stage_1_operands x0, int lanes) {
  gpu::await_earlier();
  __shared__ gpu::SkinnySums<float, kRows> sums;
  int64_t strip = blockIdx.x;
  gpu::skinny_strip<float, kRows>(x0, strip, lanes, sums);
}

void stage_1_launch(const gpu::Device& device, cudaStream_t stream, const stage_1_operands& x0) {
  const gpu::Product* const widths[] = {&x0.p};
  int64_t columns = 0, strips = 0;
  for (const gpu::Product* p : widths) columns += p->n;
  const int lanes = gpu::skinny_lanes<float>(device, columns);
  for (const gpu::Product* p : widths) strips += gpu::skinny_strips<float>(*p, lanes);
  const unsigned grid = gpu::grid_size(strips, "stage_1");
  const auto kernel = x0.p.m == 1 ? stage_1_skinny<1> : stage_1_skinny<gpu::kSkinnyRows>;
  gpu::launch(kernel, grid, gpu::kSkinnyThreads, 0, stream, "stage_1", x0, lanes);
}

// Eight neighbours of a row at a time.
struct stage_1_tf320 {
  stage_1_epilogue e0;
  float alpha;

  struct Operands {
    gpu::Chunk<float, 8> in0_2;
  };

  __device__ __forceinline__ Operands fetch(int64_t row, int64_t column) const {
    Operands x;
    gpu::fetch_chunk(x.in0_2, e0.in2 + row * e0.row2 + column * e0.column2, e0.column2);
    return x;
  }

  __device__ __forceinline__ void store(int64_t row, int64_t column, const float (&sums)[8], const Operands& x) const {
    const int64_t e = row * e0.columns + column;
    gpu::Chunk<float, 8> y0;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const float acc = alpha * sums[i];
      const float v0 = acc;
      const float v1 = gpu::get(x.in0_2, i);
      const float v2 = v1 * v0;
      fusion::store(&y0.element[i], v2);
    }
    *reinterpret_cast<gpu::Chunk<float, 8>*>(e0.out0 + e) = y0;
  }
};

using stage_1_tf32_tiles = gpu::Tf32Tiles;

template <class Tile>
__global__ void __launch_bounds__(Tile::kThreads, 1)
    stage_1_tf32_kernel(const __grid_constant__ gpu::Tf32Operands<1> x, const __grid_constant__ stage_1_tf320 epilogue0) {
  gpu::products_in_tf32<Tile, false>(x, epilogue0);
}

#if FUSION_HOPPER
// Eight neighbours of a row at a time.
struct stage_1_turned_wide0 {
  stage_1_epilogue e0;

  struct Operands {
    gpu::Vector<float, 8> in0_2;
  };

  __device__ __forceinline__ void fetch(Operands& x, uint32_t row, uint32_t column) const {
    gpu::fetch_eight(x.in0_2, e0.in2, e0.row2, 1, row, column);
  }

  // Of another row, the columns of `near`.
  __device__ __forceinline__ void fetch(Operands& x, uint32_t row, uint32_t column, [[maybe_unused]] const Operands& near) const {
    gpu::fetch_eight(x.in0_2, e0.in2, e0.row2, 1, row, column);
  }

  __device__ __forceinline__ void prefetch(uint32_t row, uint32_t column) const {
    gpu::prefetch_eight(e0.in2, e0.row2, 1, row, column);
  }
  static constexpr bool kReadsRows = true;  // other elements in every row
  static constexpr bool kByColumn = false;  // what it reads is alike in all of them

  __device__ __forceinline__ void spread(Operands& x) const {
    gpu::spread(x.in0_2, 1);
  }

  __device__ __forceinline__ void store(uint32_t row, uint32_t column, bool inside, const float (&sums)[1][8], const Operands& x, [[maybe_unused]] bool passes = false) const {
    [[maybe_unused]] const int64_t e = row * e0.columns + column;
    float y0_0[8];
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      {
        const float acc = 1.0f * sums[0][i];
        const float v0 = acc;
        const float v1 = gpu::get(x.in0_2, i);
        const float v2 = v1 * v0;
        y0_0[i] = v2;
      }
    }
    gpu::store_eight(inside, gpu::eight_at(e0.out0, e0.columns, 1, row, column), y0_0, passes);
  }
};

using stage_1_turned_tiles = gpu::FloatTiles<1>;

template <class Tile>
__global__ void __launch_bounds__(Tile::kThreads, Tile::kBlocks)
    stage_1_turned_wide_kernel(const __grid_constant__ gpu::WideOperands<1, 1> x, const __grid_constant__ stage_1_turned_wide0 epilogue0) {
  gpu::linear_wgmma<float, Tile, true>(x, epilogue0);
}

// False where the kernel does not suit the operands, or would take more than so many cycles.
bool stage_1_turned_wide_launch(const gpu::Device& device, cudaStream_t stream, double most, gpu::Turned& turned0, const stage_1_operands& x0) {
  if (!gpu::in_eights(x0.epilogue.in2, x0.epilogue.row2, x0.epilogue.column2)) return false;
  if (!gpu::in_eights(x0.epilogue.out0, x0.p.n, 1)) return false;
gpu::WideOperands<1, 1> x;
  gpu::Turned* const right[] = {&turned0};
  if (!gpu::describe_turned(device, stream, most, x, right, x0)) return false;
  const stage_1_turned_wide0 epilogue0{x0.epilogue};
  return gpu::with_wide_tile<stage_1_turned_tiles>(device, true, x, x0.a, x0.p.a_row * 2, [&](auto tile, unsigned grid) {
    using Tile = decltype(tile);
    gpu::launch_clusters(stage_1_turned_wide_kernel<Tile>, grid, static_cast<unsigned>(x.parts), Tile::kThreads, Tile::kBytes, stream, "stage_1_turned", x, epilogue0);
  });
}
#endif

void stage_1_turned_wide_prepare(const gpu::Device& device) {
  (void)device;
#if FUSION_HOPPER
  stage_1_turned_tiles::each([&](auto tile) {
    using Tile = decltype(tile);
    gpu::allow_shared_memory(device, stage_1_turned_wide_kernel<Tile>, Tile::kBytes);
  });
#endif
}

// False where no kernel suits the operands, or all would take more than so many cycles.
bool stage_1_tf32_launch(const gpu::Device& device, cudaStream_t stream, double most, gpu::Turned& turned0, const stage_1_operands& x0) {
  gpu::Tf32Operands<1> x;
  if (!gpu::describe_tf32<false>(x, x0)) return false;
  if (!gpu::in_chunks<8>(x0.epilogue.in2, x0.epilogue.row2, x0.epilogue.column2)) return false;
  if (!gpu::in_chunks<8>(x0.epilogue.out0, x0.p.n, 1)) return false;
  const stage_1_tf320 epilogue0{x0.epilogue, x0.p.alpha};
#if FUSION_HOPPER
  const double least = gpu::least_tf32_cycles<stage_1_tf32_tiles, false>(device, x.rows, x.depth, x.columns);
  if (stage_1_turned_wide_launch(device, stream, least < most ? least : most, turned0, x0)) return true;
#endif
  return gpu::with_tf32_tile<stage_1_tf32_tiles, false>(device, x, most, [&](auto tile, unsigned grid) {
    using Tile = decltype(tile);
    gpu::launch_clusters(stage_1_tf32_kernel<Tile>, grid, static_cast<unsigned>(x.parts), Tile::kThreads,
                         Tile::template bytes<false>(x.parts), stream, "stage_1", x, epilogue0);
  });
}

void stage_1_tf32_prepare(const gpu::Device& device) {
  stage_1_turned_wide_prepare(device);
  stage_1_tf32_tiles::each([&](auto tile) {
    using Tile = decltype(tile);
    const int bytes = Tile::template most_bytes<false>(device.shared_memory);
    gpu::allow_shared_memory(device, stage_1_tf32_kernel<Tile>, bytes);
  });
}

// Once: blocks need more shared memory than is given without asking.
void stage_1_prepare(const gpu::Device& device) {
  stage_1_tf32_prepare(device);
}


// `product` is memory for the bare product, if the vendor's kernel computes it.
void stage_1(const gpu::Device& device, cudaStream_t stream, const Ints& dims, const gpu::Tensor& t0, const gpu::Tensor& t1, const gpu::Tensor& t2, const gpu::Tensor& t3, const gpu::Blas& blas, void* accumulator, gpu::Turned& turned0) {
  const stage_1_operands x = stage_1_of(dims, t0, t1, t2, t3);
  if (gpu::is_skinny(x)) {
    stage_1_launch(device, stream, x);
    return;
  }
  const gpu::View a = gpu::view(t0), b = gpu::view(t1);
  gpu::Product tall = gpu::product(a, b, 1.0f);
  const bool vendor = blas && gpu::prefer_vendor(tall, dims);
  const double most = vendor ? gpu::vendor_tf32_cycles(device, x.p, true) : fusion::inf<double>();
  if (blas.tf32() && stage_1_tf32_launch(device, stream, most, turned0, x)) return;
  if (vendor) {
    const gpu::View matrices[] = {a, b};
    gpu::Space<2> batches = gpu::space<2>(dims, matrices, 2);
    int64_t row[] = {tall.a_row, 0};
    gpu::fold_batches(tall, batches, row);
    if (blas.multiply(x.a, x.b, static_cast<float*>(accumulator), tall, batches)) {
      const gpu::Tensor product{accumulator, &dims};
      stage_1_pass(device, stream, dims, product, t0, t1, t2, t3);
      return;
    }
  }
  const unsigned grid = gpu::tile_grid(x.p, x.batches.count, "stage_1");
  if (grid == 0) return;
  gpu::launch(stage_1_kernel, grid, gpu::kScalarThreads, 0, stream, "stage_1", x);
}

// stage_0, stage_1 in one launch.

template <int kRows>
__global__ void __launch_bounds__(gpu::kSkinnyThreads, gpu::kSkinnyBlocks)
    group_0_skinny(const stage_0_operands x0, const stage_1_operands x1, int lanes) {
  gpu::await_earlier();
  __shared__ gpu::SkinnySums<float, kRows> sums;
  int64_t strip = blockIdx.x;
  gpu::skinny_strip<float, kRows>(x0, strip, lanes, sums); gpu::skinny_strip<float, kRows>(x1, strip, lanes, sums);
}

void group_0_launch(const gpu::Device& device, cudaStream_t stream, const stage_0_operands& x0, const stage_1_operands& x1) {
  const gpu::Product* const widths[] = {&x0.p};
  int64_t columns = 0, strips = 0;
  for (const gpu::Product* p : widths) columns += p->n;
  const int lanes = gpu::skinny_lanes<float>(device, columns);
  for (const gpu::Product* p : widths) strips += gpu::skinny_strips<float>(*p, lanes);
  const unsigned grid = gpu::grid_size(strips, "group_0");
  const auto kernel = x0.p.m == 1 ? group_0_skinny<1> : group_0_skinny<gpu::kSkinnyRows>;
  gpu::launch(kernel, grid, gpu::kSkinnyThreads, 0, stream, "group_0", x0, x1, lanes);
}


bool group_0(const gpu::Device& device, cudaStream_t stream, const Ints& dims0, const gpu::Tensor& s0_t0, const gpu::Tensor& s0_t1, const gpu::Tensor& s0_t2, const Ints& dims1, const gpu::Tensor& s1_t0, const gpu::Tensor& s1_t1, const gpu::Tensor& s1_t2, const gpu::Tensor& s1_t3) {
  const stage_0_operands x0 = stage_0_of(dims0, s0_t0, s0_t1, s0_t2);
  const stage_1_operands x1 = stage_1_of(dims1, s1_t0, s1_t1, s1_t2, s1_t3);
  if (!gpu::is_skinny(x0, gpu::kFewTogether) || !gpu::is_skinny(x1, gpu::kFewTogether)) return false;
  group_0_launch(device, stream, x0, x1);
  return true;
}

#else

void stage_0(const gpu::Device& device, cudaStream_t stream, const Ints& dims, const gpu::Tensor& t0, const gpu::Tensor& t1, const gpu::Tensor& t2, const gpu::Blas& blas, void* accumulator, gpu::Turned& turned0);
void stage_1(const gpu::Device& device, cudaStream_t stream, const Ints& dims, const gpu::Tensor& t0, const gpu::Tensor& t1, const gpu::Tensor& t2, const gpu::Tensor& t3, const gpu::Blas& blas, void* accumulator, gpu::Turned& turned0);
bool group_0(const gpu::Device& device, cudaStream_t stream, const Ints& dims0, const gpu::Tensor& s0_t0, const gpu::Tensor& s0_t1, const gpu::Tensor& s0_t2, const Ints& dims1, const gpu::Tensor& s1_t0, const gpu::Tensor& s1_t1, const gpu::Tensor& s1_t2, const gpu::Tensor& s1_t3);
void stage_0_prepare(const gpu::Device& device);
void stage_1_prepare(const gpu::Device& device);

#endif

#if FUSION_HAS_PART(0)

struct Kernel {
  gpu::Device device;
  gpu::Workspace workspace;
  gpu::Turned turned_0;
  gpu::Turned turned_1;
  gpu::Turned turned_2;

  Kernel(const fusion::Api& api, const OrtKernelInfo* info)
      : turned_0(api, info, 1),
        turned_1(api, info, 2),
        turned_2(api, info, 3) {
    (void)api, (void)info;
    stage_0_prepare(device);
    stage_1_prepare(device);
    stage_2_prepare(device);
  }

  void compute(fusion::Run& run) {
    // Shapes.
    const Ints h0 = run.dims(0, Ints{-1, -1, 32});
    const Ints h1 = run.dims(1, Ints{32, 64});
    const Ints h2 = host::matmul(h0, h1);
    const Ints h3 = run.dims(2, Ints{32, 64});
    const Ints h4 = host::matmul(h0, h3);
    const Ints h5 = run.dims(3, Ints{64, 32});
    const Ints h6 = host::matmul(h2, h5);

    // Memory.
    const cudaStream_t stream = static_cast<cudaStream_t>(run.stream());
    void* const output_0 = run.output(0, h6);
    gpu::Layout layout;
    const size_t buffer_0 = layout.add(gpu::largest({gpu::bytes<float>(h2)}));
    const size_t buffer_1 = layout.add(gpu::largest({gpu::bytes<float>(h2)}));
    char* const work = workspace.reserve(stream, layout.size());
    const gpu::Tensor t0{const_cast<void*>(run.input(0)), &h0};
    const gpu::Tensor t1{const_cast<void*>(run.input(1)), &h1};
    const gpu::Tensor t2{const_cast<void*>(run.input(2)), &h3};
    const gpu::Tensor t3{const_cast<void*>(run.input(3)), &h5};
    const gpu::Tensor t4{output_0, &h6};
    const gpu::Tensor t5{work + buffer_0, &h2};
    const gpu::Tensor t6{work + buffer_1, &h2};

    // Kernels.
    const gpu::Blas blas = gpu::Blas::find(run.api, run.context, stream);
    if (!group_0(device, stream, h2, t0, t1, t5, h4, t0, t2, t5, t6)) {
      stage_0(device, stream, h2, t0, t1, t5, blas, t5.data, turned_0);
      stage_1(device, stream, h4, t0, t2, t5, t6, blas, t6.data, turned_1);
    }
    stage_2(device, stream, h6, t6, t3, t4, blas, t4.data, turned_2);
  }
};

const fusion::Port kInputs[] = {{1, false}, {1, false}, {1, false}, {1, false}};
const fusion::Port kOutputs[] = {{1, false}};

#endif

}  // namespace LinearProducts_kernels

#if FUSION_HAS_PART(0)
using namespace LinearProducts_kernels;

FUSION_OP(LinearProducts, "CUDAExecutionProvider", kInputs, kOutputs, Kernel)

#endif

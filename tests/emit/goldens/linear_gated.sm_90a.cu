// LinearGated: CUDA kernels of one fused operator.
// Rule: Test
// Original nodes:
#include "include/blas.h"
#include "include/linear.cuh"
#include "include/linear_wgmma.cuh"
#include "include/skinny.cuh"
#include "include/vector.cuh"
#include "include/wide_choice.cuh"
#include "include/workspace.cuh"
#include "ort/op.h"

namespace LinearGated_kernels {

using fusion::Ints;
namespace gpu = fusion::gpu;
namespace host = fusion::host;

// stage_0.
//   MatMul
//   Sigmoid
//   Mul
struct stage_0_pass_args {
  const fusion::half* in2;
  fusion::half* out0;
  gpu::Space<1> space;
};

// A thread has kVectors vectors, all of which are asked for before the first is used. Packed, each is whole and aligned.
// `threads`: of a block.
template <int V, int kVectors, bool kPacked>
__device__ __forceinline__ void stage_0_pass_vectors(const stage_0_pass_args& a, unsigned block, int threads) {
  int64_t at[kVectors][1];
  gpu::Vector<fusion::half, V> x2[kVectors];
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
    gpu::Vector<fusion::half, V> y0{};
#pragma unroll
    for (int i = 0; i < V; ++i) {
      const float v0 = gpu::get(x2[u], i);
      const float v1 = fusion::logistic(v0);
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
      static_cast<const fusion::half*>(product.data),
      static_cast<fusion::half*>(t2.data),
      gpu::space<1>(dims, views)};
}

// Whether all vectors are whole and aligned.
bool stage_0_pass_packs(const stage_0_pass_args& a) {
  bool packed = gpu::vectorizable(a.space, 8) && a.space.small && a.space.count % 8 == 0;
  packed = packed && gpu::packs<8>(a.space, 0, a.in2);
  packed = packed && gpu::aligned<8>(a.out0);
  return packed;
}

void stage_0_pass(const gpu::Device& device, cudaStream_t stream, const Ints& dims, const gpu::Tensor& product, const gpu::Tensor& t0, const gpu::Tensor& t1, const gpu::Tensor& t2) {
  const stage_0_pass_args a = stage_0_pass_of(dims, product, t0, t1, t2);
  if (a.space.count == 0) return;
  const bool packed = stage_0_pass_packs(a);
  if (packed && gpu::is_long(device, a.space.count / 8)) {
    gpu::launch_pass<8, 2>(stage_0_pass_kernel<8, 2, true>, a.space.count, stream, "stage_0_pass", a);
  } else if (gpu::vectorizable(a.space, 8)) {
    gpu::launch_pass<8, 1>(packed ? stage_0_pass_kernel<8, 1, true> : stage_0_pass_kernel<8, 1, false>, a.space.count, stream, "stage_0_pass", a);
  } else {
    gpu::launch_pass<1, 1>(stage_0_pass_kernel<1, 1, false>, a.space.count, stream, "stage_0_pass", a);
  }
}

// What our own kernel does with an element of the product.
struct stage_0_epilogue {
  fusion::half* out0;
  int64_t rows, columns;

  __device__ __forceinline__ void operator()(const int64_t (&at)[2], int64_t batch, int64_t row, int64_t column,
                                             float acc) const {
    const int64_t e = (batch * rows + row) * columns + column;
    const float v0 = acc;
    const float v1 = fusion::logistic(v0);
    const float v2 = v0 * v1;
    fusion::store(out0 + e, v2);
  }
};

// What the product is made of; operands 0 and 1 of the batch space are A and B.
struct stage_0_operands {
  const fusion::half* a;
  const fusion::half* b;
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
      static_cast<fusion::half*>(t2.data),
      p.m, p.n};
  return {static_cast<const fusion::half*>(t0.data),
          static_cast<const fusion::half*>(t1.data), p, batches, epilogue};
}

__global__ void __launch_bounds__(gpu::kTensorThreads)
    stage_0_kernel(const stage_0_operands x) {
  gpu::await_earlier();
  gpu::linear_tensor<fusion::half, false, false>(x.a, x.b, x.p, x.batches, x.epilogue);
}

template <class Tile>
__global__ void __launch_bounds__(Tile::kThreads, Tile::kBlocks)
    stage_0_skinny(const stage_0_operands x0, int parts) {
  int64_t strip = blockIdx.x / parts;
  gpu::few_chain<Tile, 1>(strip, parts, x0);
}

void stage_0_launch(const gpu::Device& device, cudaStream_t stream, const stage_0_operands& x0) {
  const gpu::Product* const widths[] = {&x0.p};
  int64_t columns = 0, strips = 0;
  for (const gpu::Product* p : widths) columns += p->n;
  gpu::with_few_tile<1>(device, x0.p.m, columns, x0.p.k, [&](auto tile, int parts) {
    using Tile = decltype(tile);
    for (const gpu::Product* p : widths) strips += gpu::few_strips<Tile>(*p);
    const unsigned grid = gpu::grid_size(strips * parts, "stage_0");
    gpu::launch_clusters(stage_0_skinny<Tile>, grid, parts, Tile::kThreads, 0, stream, "stage_0", x0, parts);
  });
}


// `product` is memory for the bare product, if the vendor's kernel computes it.
void stage_0(const gpu::Device& device, cudaStream_t stream, const Ints& dims, const gpu::Tensor& t0, const gpu::Tensor& t1, const gpu::Tensor& t2, const gpu::Blas& blas, void* accumulator) {
  const stage_0_operands x = stage_0_of(dims, t0, t1, t2);
  if (gpu::is_skinny(x)) {
    stage_0_launch(device, stream, x);
    return;
  }
  const gpu::View a = gpu::view(t0), b = gpu::view(t1);
  gpu::Product tall = gpu::product(a, b, 1.0f);
  const bool vendor = blas && gpu::prefer_vendor(tall, dims);
  if (vendor) {
    const gpu::View matrices[] = {a, b};
    gpu::Space<2> batches = gpu::space<2>(dims, matrices, 2);
    int64_t row[] = {tall.a_row, 0};
    gpu::fold_batches(tall, batches, row);
    if (blas.multiply(x.a, x.b, static_cast<fusion::half*>(accumulator), tall, batches)) {
      const gpu::Tensor product{accumulator, &dims};
      stage_0_pass(device, stream, dims, product, t0, t1, t2);
      return;
    }
  }
  const unsigned grid = gpu::tile_grid(x.p, x.batches.count, "stage_0");
  if (grid == 0) return;
  gpu::launch(stage_0_kernel, grid, gpu::kTensorThreads, 0, stream, "stage_0", x);
}

// stage_1.
//   MatMul
//   Mul
struct stage_1_pass_args {
  const fusion::half* in2;
  const fusion::half* in3;
  fusion::half* out0;
  gpu::Space<2> space;
};

// A thread has kVectors vectors, all of which are asked for before the first is used. Packed, each is whole and aligned.
// `threads`: of a block.
template <int V, int kVectors, bool kPacked>
__device__ __forceinline__ void stage_1_pass_vectors(const stage_1_pass_args& a, unsigned block, int threads) {
  int64_t at[kVectors][2];
  gpu::Vector<fusion::half, V> x2[kVectors];
  gpu::Vector<fusion::half, V> x3[kVectors];
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
    gpu::Vector<fusion::half, V> y0{};
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
      static_cast<const fusion::half*>(t2.data),
      static_cast<const fusion::half*>(product.data),
      static_cast<fusion::half*>(t3.data),
      gpu::space<2>(dims, views)};
}

// Whether all vectors are whole and aligned.
bool stage_1_pass_packs(const stage_1_pass_args& a) {
  bool packed = gpu::vectorizable(a.space, 8) && a.space.small && a.space.count % 8 == 0;
  packed = packed && gpu::packs<8>(a.space, 0, a.in2);
  packed = packed && gpu::packs<8>(a.space, 1, a.in3);
  packed = packed && gpu::aligned<8>(a.out0);
  return packed;
}

void stage_1_pass(const gpu::Device& device, cudaStream_t stream, const Ints& dims, const gpu::Tensor& product, const gpu::Tensor& t0, const gpu::Tensor& t1, const gpu::Tensor& t2, const gpu::Tensor& t3) {
  const stage_1_pass_args a = stage_1_pass_of(dims, product, t0, t1, t2, t3);
  if (a.space.count == 0) return;
  const bool packed = stage_1_pass_packs(a);
  if (packed && gpu::is_long(device, a.space.count / 8)) {
    gpu::launch_pass<8, 2>(stage_1_pass_kernel<8, 2, true>, a.space.count, stream, "stage_1_pass", a);
  } else if (gpu::vectorizable(a.space, 8)) {
    gpu::launch_pass<8, 1>(packed ? stage_1_pass_kernel<8, 1, true> : stage_1_pass_kernel<8, 1, false>, a.space.count, stream, "stage_1_pass", a);
  } else {
    gpu::launch_pass<1, 1>(stage_1_pass_kernel<1, 1, false>, a.space.count, stream, "stage_1_pass", a);
  }
}

// What our own kernel does with an element of the product.
struct stage_1_epilogue {
  const fusion::half* in2;
  int64_t row2, column2;
  static constexpr int at2 = 2;
  fusion::half* out0;
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
  const fusion::half* a;
  const fusion::half* b;
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
      static_cast<const fusion::half*>(t2.data), row[2], views[2].step(1),
      static_cast<fusion::half*>(t3.data),
      p.m, p.n};
  return {static_cast<const fusion::half*>(t0.data),
          static_cast<const fusion::half*>(t1.data), p, batches, epilogue};
}

__global__ void __launch_bounds__(gpu::kTensorThreads)
    stage_1_kernel(const stage_1_operands x) {
  gpu::await_earlier();
  gpu::linear_tensor<fusion::half, false, false>(x.a, x.b, x.p, x.batches, x.epilogue);
}

template <class Tile>
__global__ void __launch_bounds__(Tile::kThreads, Tile::kBlocks)
    stage_1_skinny(const stage_1_operands x0, int parts) {
  int64_t strip = blockIdx.x / parts;
  gpu::few_chain<Tile, 1>(strip, parts, x0);
}

void stage_1_launch(const gpu::Device& device, cudaStream_t stream, const stage_1_operands& x0) {
  const gpu::Product* const widths[] = {&x0.p};
  int64_t columns = 0, strips = 0;
  for (const gpu::Product* p : widths) columns += p->n;
  gpu::with_few_tile<1>(device, x0.p.m, columns, x0.p.k, [&](auto tile, int parts) {
    using Tile = decltype(tile);
    for (const gpu::Product* p : widths) strips += gpu::few_strips<Tile>(*p);
    const unsigned grid = gpu::grid_size(strips * parts, "stage_1");
    gpu::launch_clusters(stage_1_skinny<Tile>, grid, parts, Tile::kThreads, 0, stream, "stage_1", x0, parts);
  });
}


// `product` is memory for the bare product, if the vendor's kernel computes it.
void stage_1(const gpu::Device& device, cudaStream_t stream, const Ints& dims, const gpu::Tensor& t0, const gpu::Tensor& t1, const gpu::Tensor& t2, const gpu::Tensor& t3, const gpu::Blas& blas, void* accumulator) {
  const stage_1_operands x = stage_1_of(dims, t0, t1, t2, t3);
  if (gpu::is_skinny(x)) {
    stage_1_launch(device, stream, x);
    return;
  }
  const gpu::View a = gpu::view(t0), b = gpu::view(t1);
  gpu::Product tall = gpu::product(a, b, 1.0f);
  const bool vendor = blas && gpu::prefer_vendor(tall, dims);
  if (vendor) {
    const gpu::View matrices[] = {a, b};
    gpu::Space<2> batches = gpu::space<2>(dims, matrices, 2);
    int64_t row[] = {tall.a_row, 0};
    gpu::fold_batches(tall, batches, row);
    if (blas.multiply(x.a, x.b, static_cast<fusion::half*>(accumulator), tall, batches)) {
      const gpu::Tensor product{accumulator, &dims};
      stage_1_pass(device, stream, dims, product, t0, t1, t2, t3);
      return;
    }
  }
  const unsigned grid = gpu::tile_grid(x.p, x.batches.count, "stage_1");
  if (grid == 0) return;
  gpu::launch(stage_1_kernel, grid, gpu::kTensorThreads, 0, stream, "stage_1", x);
}

// stage_0, stage_1 in one launch.

template <class Tile>
__global__ void __launch_bounds__(Tile::kThreads, Tile::kBlocks)
    group_0_skinny(const stage_0_operands x0, const stage_1_operands x1, int parts) {
  int64_t strip = blockIdx.x / parts;
  gpu::few_chain<Tile, 2>(strip, parts, x0, x1);
}

void group_0_launch(const gpu::Device& device, cudaStream_t stream, const stage_0_operands& x0, const stage_1_operands& x1) {
  const gpu::Product* const widths[] = {&x0.p};
  int64_t columns = 0, strips = 0;
  for (const gpu::Product* p : widths) columns += p->n;
  gpu::with_few_tile<2>(device, x0.p.m, columns, x0.p.k, [&](auto tile, int parts) {
    using Tile = decltype(tile);
    for (const gpu::Product* p : widths) strips += gpu::few_strips<Tile>(*p);
    const unsigned grid = gpu::grid_size(strips * parts, "group_0");
    gpu::launch_clusters(group_0_skinny<Tile>, grid, parts, Tile::kThreads, 0, stream, "group_0", x0, x1, parts);
  });
}

#if FUSION_HOPPER
// Eight neighbours of a row at a time.
struct group_0_wide0 {
  stage_0_epilogue e0;
  stage_1_epilogue e1;

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

  __device__ __forceinline__ void store(uint32_t row, uint32_t column, bool inside, const float (&sums)[2][8], const Operands& x, [[maybe_unused]] bool passes = false) const {
    [[maybe_unused]] const int64_t e = row * e0.columns + column;
    float y0_0[8];
    float y1_0[8];
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      {
        const float acc = 1.0f * sums[0][i];
        const float v0 = acc;
        const float v1 = fusion::logistic(v0);
        const float v2 = v0 * v1;
        y0_0[i] = v2;
      }
      {
        const float acc = 1.0f * sums[1][i];
        const float v0 = acc;
        const float v1 = y0_0[i];
        const float v2 = v1 * v0;
        y1_0[i] = v2;
      }
    }
    gpu::store_eight(inside, gpu::eight_at(e1.out0, e0.columns, 1, row, column), y1_0, passes);
  }
};

using group_0_tiles = gpu::WideTiles<2>;

template <class Tile>
__global__ void __launch_bounds__(Tile::kThreads, Tile::kBlocks)
    group_0_wide_kernel(const __grid_constant__ gpu::WideOperands<2, 1> x, const __grid_constant__ group_0_wide0 epilogue0) {
  gpu::linear_wgmma<fusion::half, Tile, false>(x, epilogue0);
}

// False where the kernel does not suit the operands. `early`: the right operands
// are there before any kernel runs.
bool group_0_wide_launch(const gpu::Device& device, cudaStream_t stream, bool early, const stage_0_operands& x0, const stage_1_operands& x1) {
  if (!gpu::in_eights(x1.epilogue.out0, x1.p.n, 1)) return false;
gpu::WideOperands<2, 1> x;
  x.early = early;
  if (!gpu::describe_wide<false>(x, gpu::kWideRows, x0, x1)) return false;
  const group_0_wide0 epilogue0{x0.epilogue, x1.epilogue};
  return gpu::with_wide_tile<group_0_tiles>(device, false, x, x0.a, x0.p.a_row, [&](auto tile, unsigned grid) {
    using Tile = decltype(tile);
    gpu::launch_clusters(group_0_wide_kernel<Tile>, grid, static_cast<unsigned>(x.parts), Tile::kThreads, Tile::kBytes, stream, "group_0", x, epilogue0);
  });
}
#endif

void group_0_wide_prepare(const gpu::Device& device) {
  (void)device;
#if FUSION_HOPPER
  group_0_tiles::each([&](auto tile) {
    using Tile = decltype(tile);
    gpu::allow_shared_memory(device, group_0_wide_kernel<Tile>, Tile::kBytes);
  });
#endif
}

// Once: blocks need more shared memory than is given without asking.
void group_0_prepare(const gpu::Device& device) {
  group_0_wide_prepare(device);
}


bool group_0(const gpu::Device& device, cudaStream_t stream, bool early, const Ints& dims0, const gpu::Tensor& s0_t0, const gpu::Tensor& s0_t1, const gpu::Tensor& s0_t2, const Ints& dims1, const gpu::Tensor& s1_t0, const gpu::Tensor& s1_t1, const gpu::Tensor& s1_t2, const gpu::Tensor& s1_t3) {
  const stage_0_operands x0 = stage_0_of(dims0, s0_t0, s0_t1, s0_t2);
  const stage_1_operands x1 = stage_1_of(dims1, s1_t0, s1_t1, s1_t2, s1_t3);
#if FUSION_HOPPER
  if (group_0_wide_launch(device, stream, early, x0, x1)) return true;
#endif
  if (!gpu::is_skinny(x0, gpu::kFewTogether) || !gpu::is_skinny(x1, gpu::kFewTogether)) return false;
  group_0_launch(device, stream, x0, x1);
  return true;
}

struct Kernel {
  gpu::Device device;
  gpu::Workspace workspace;
  bool constant_0;
  bool constant_1;

  Kernel(const fusion::Api& api, const OrtKernelInfo* info)
      : constant_0(fusion::is_constant(api, info, 1)),
        constant_1(fusion::is_constant(api, info, 2)) {
    (void)api, (void)info;
    group_0_prepare(device);
  }

  void compute(fusion::Run& run) {
    // Shapes.
    const Ints h0 = run.dims(0, Ints{-1, -1, 64});
    const Ints h1 = run.dims(1, Ints{64, 128});
    const Ints h2 = host::matmul(h0, h1);
    const Ints h3 = run.dims(2, Ints{64, 128});
    const Ints h4 = host::matmul(h0, h3);

    // Memory.
    const cudaStream_t stream = static_cast<cudaStream_t>(run.stream());
    void* const output_0 = run.output(0, h2);
    gpu::Layout layout;
    const size_t buffer_0 = layout.add(gpu::largest({gpu::bytes<fusion::half>(h2)}));
    char* const work = workspace.reserve(stream, layout.size());
    const gpu::Tensor t0{const_cast<void*>(run.input(0)), &h0};
    const gpu::Tensor t1{const_cast<void*>(run.input(1)), &h1};
    const gpu::Tensor t2{const_cast<void*>(run.input(2)), &h3};
    const gpu::Tensor t3{output_0, &h2};
    const gpu::Tensor t4{work + buffer_0, &h2};

    // Kernels.
    const gpu::Blas blas = gpu::Blas::find(run.api, run.context, stream);
    if (!group_0(device, stream, constant_0 && constant_1, h2, t0, t1, t4, h4, t0, t2, t4, t3)) {
      stage_0(device, stream, h2, t0, t1, t4, blas, t4.data);
      stage_1(device, stream, h4, t0, t2, t4, t3, blas, t3.data);
    }
  }
};

const fusion::Port kInputs[] = {{10, false}, {10, false}, {10, false}};
const fusion::Port kOutputs[] = {{10, false}};

}  // namespace LinearGated_kernels
using namespace LinearGated_kernels;

FUSION_OP(LinearGated, "CUDAExecutionProvider", kInputs, kOutputs, Kernel)

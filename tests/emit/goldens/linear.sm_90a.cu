// Linear: CUDA kernels of one fused operator.
// Rule: Test
// Original nodes:
#include "include/blas.h"
#include "include/linear.cuh"
#include "include/linear_wgmma.cuh"
#include "include/skinny.cuh"
#include "include/tf32_choice.cuh"
#include "include/turned.cuh"
#include "include/vector.cuh"
#include "ort/op.h"

namespace Linear_kernels {

using fusion::Ints;
namespace gpu = fusion::gpu;
namespace host = fusion::host;

// stage_0.
//   MatMul
//   Add
//   Gelu
struct stage_0_pass_args {
  const float* in2;
  const float* in3;
  const float* in4;
  float* out0;
  gpu::Space<3> space;
};

// A thread has kVectors vectors, all of which are asked for before the first is used. Packed, each is whole and aligned.
// `threads`: of a block.
template <int V, int kVectors, bool kPacked>
__device__ __forceinline__ void stage_0_pass_vectors(const stage_0_pass_args& a, unsigned block, int threads) {
  int64_t at[kVectors][3];
  gpu::Vector<float, V> x2[kVectors];
  gpu::Vector<float, V> x3[kVectors];
  gpu::Vector<float, V> x4[kVectors];
  const int64_t first = (static_cast<int64_t>(block) * kVectors * threads + threadIdx.x) * V;
#pragma unroll
  for (int u = 0; u < kVectors; ++u) a.space.template locate<kPacked>(first + u * threads * V, at[u]);
  gpu::await_earlier();
#pragma unroll
  for (int u = 0; u < kVectors; ++u) {
    const int valid = gpu::valid<V, kPacked>(a.space.count - first - u * threads * V);
    gpu::load_vector<V, kPacked>(a.in2 + at[u][0], a.space.axis[0].stride[0], valid, x2[u]);
    gpu::load_vector<V, kPacked>(a.in3 + at[u][1], a.space.axis[0].stride[1], valid, x3[u]);
    gpu::load_vector<V, kPacked>(a.in4 + at[u][2], a.space.axis[0].stride[2], valid, x4[u]);
  }
#pragma unroll
  for (int u = 0; u < kVectors; ++u) {
    const int64_t e = first + u * threads * V;
    const int valid = gpu::valid<V, kPacked>(a.space.count - e);
    gpu::Vector<float, V> y0{};
#pragma unroll
    for (int i = 0; i < V; ++i) {
      const float v0 = gpu::get(x4[u], i);
      const float v1 = gpu::get(x2[u], i);
      const float v2 = v0 + v1;
      const float v10 = v2 * fusion::normal_float(v2);
      const float v11 = gpu::get(x3[u], i);
      const float v12 = v10 + v11;
      gpu::put(y0, i, v12);
    }
    gpu::store_vector<V, kPacked>(a.out0 + e, 1, valid, y0);
  }
}

template <int V, int kVectors, bool kPacked>
__global__ void __launch_bounds__(gpu::kPassThreads) stage_0_pass_kernel(const stage_0_pass_args a) {
  gpu::let_next_begin();
  stage_0_pass_vectors<V, kVectors, kPacked>(a, blockIdx.x, blockDim.x);
}

stage_0_pass_args stage_0_pass_of(const Ints& dims, const gpu::Tensor& product, const gpu::Tensor& t0, const gpu::Tensor& t1, const gpu::Tensor& t2, const gpu::Tensor& t3, const gpu::Tensor& t4) {
  const gpu::View views[] = {gpu::view(t2), gpu::view(t3), gpu::view(product)};
  return {
      static_cast<const float*>(t2.data),
      static_cast<const float*>(t3.data),
      static_cast<const float*>(product.data),
      static_cast<float*>(t4.data),
      gpu::space<3>(dims, views)};
}

// Whether all vectors are whole and aligned.
bool stage_0_pass_packs(const stage_0_pass_args& a) {
  bool packed = gpu::vectorizable(a.space, 4) && a.space.small && a.space.count % 4 == 0;
  packed = packed && gpu::packs<4>(a.space, 0, a.in2);
  packed = packed && gpu::packs<4>(a.space, 1, a.in3);
  packed = packed && gpu::packs<4>(a.space, 2, a.in4);
  packed = packed && gpu::aligned<4>(a.out0);
  return packed;
}

void stage_0_pass(const gpu::Device& device, cudaStream_t stream, const Ints& dims, const gpu::Tensor& product, const gpu::Tensor& t0, const gpu::Tensor& t1, const gpu::Tensor& t2, const gpu::Tensor& t3, const gpu::Tensor& t4) {
  const stage_0_pass_args a = stage_0_pass_of(dims, product, t0, t1, t2, t3, t4);
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
  const float* in2;
  int64_t row2, column2;
  static constexpr int at2 = 2;
  const float* in3;
  int64_t row3, column3;
  static constexpr int at3 = 3;
  float* out0;
  int64_t rows, columns;

  __device__ __forceinline__ void operator()(const int64_t (&at)[4], int64_t batch, int64_t row, int64_t column,
                                             float acc) const {
    const int64_t e = (batch * rows + row) * columns + column;
    const float v0 = acc;
    const float v1 = fusion::load(in2 + at[at2] + row * row2 + column * column2);
    const float v2 = v0 + v1;
    const float v10 = v2 * fusion::normal_float(v2);
    const float v11 = fusion::load(in3 + at[at3] + row * row3 + column * column3);
    const float v12 = v10 + v11;
    fusion::store(out0 + e, v12);
  }
};

// What the product is made of; operands 0 and 1 of the batch space are A and B.
struct stage_0_operands {
  const float* a;
  const float* b;
  gpu::Product p;
  gpu::Space<4> batches;
  stage_0_epilogue epilogue;
};

stage_0_operands stage_0_of(const Ints& dims, const gpu::Tensor& t0, const gpu::Tensor& t1, const gpu::Tensor& t2, const gpu::Tensor& t3, const gpu::Tensor& t4) {
  const gpu::View a = gpu::view(t0), b = gpu::view(t1);
  gpu::Product p = gpu::product(a, b, 1.0f);
  const gpu::View views[] = {a, b, gpu::view(t2), gpu::view(t3)};
  gpu::Space<4> batches = gpu::space<4>(dims, views, 2);
  int64_t row[] = {p.a_row, 0, views[2].step(2), views[3].step(2)};
  gpu::fold_batches(p, batches, row);
  const stage_0_epilogue epilogue{
      static_cast<const float*>(t2.data), row[2], views[2].step(1),
      static_cast<const float*>(t3.data), row[3], views[3].step(1),
      static_cast<float*>(t4.data),
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
    gpu::Chunk<float, 8> in0_2;
    gpu::Chunk<float, 8> in0_3;
  };

  __device__ __forceinline__ Operands fetch(int64_t row, int64_t column) const {
    Operands x;
    gpu::fetch_chunk(x.in0_2, e0.in2 + row * e0.row2 + column * e0.column2, e0.column2);
    gpu::fetch_chunk(x.in0_3, e0.in3 + row * e0.row3 + column * e0.column3, e0.column3);
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
      const float v2 = v0 + v1;
      const float v10 = v2 * fusion::normal_float(v2);
      const float v11 = gpu::get(x.in0_3, i);
      const float v12 = v10 + v11;
      fusion::store(&y0.element[i], v12);
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
    gpu::Vector<float, 8> in0_2;
    gpu::Vector<float, 8> in0_3;
  };

  __device__ __forceinline__ void fetch(Operands& x, uint32_t row, uint32_t column) const {
    gpu::fetch_eight(x.in0_2, e0.in2, 0, 1, row, column);
    gpu::fetch_eight(x.in0_3, e0.in3, e0.row3, 1, row, column);
  }

  // Of another row, the columns of `near`.
  __device__ __forceinline__ void fetch(Operands& x, uint32_t row, uint32_t column, [[maybe_unused]] const Operands& near) const {
    x.in0_2 = near.in0_2;
    gpu::fetch_eight(x.in0_3, e0.in3, e0.row3, 1, row, column);
  }

  __device__ __forceinline__ void prefetch(uint32_t row, uint32_t column) const {
    gpu::prefetch_eight(e0.in3, e0.row3, 1, row, column);
  }
  static constexpr bool kReadsRows = true;  // other elements in every row
  static constexpr bool kByColumn = false;  // what it reads is alike in all of them

  __device__ __forceinline__ void spread(Operands& x) const {
    gpu::spread(x.in0_2, 1);
    gpu::spread(x.in0_3, 1);
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
        const float v2 = v0 + v1;
        const float v10 = v2 * fusion::normal_float(v2);
        const float v11 = gpu::get(x.in0_3, i);
        const float v12 = v10 + v11;
        y0_0[i] = v12;
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
  if (!gpu::in_eights(x0.epilogue.in2, x0.epilogue.row2, x0.epilogue.column2)) return false;
  if (!gpu::in_eights(x0.epilogue.in3, x0.epilogue.row3, x0.epilogue.column3)) return false;
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
  if (!gpu::in_chunks<8>(x0.epilogue.in2, x0.epilogue.row2, x0.epilogue.column2)) return false;
  if (!gpu::in_chunks<8>(x0.epilogue.in3, x0.epilogue.row3, x0.epilogue.column3)) return false;
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
void stage_0(const gpu::Device& device, cudaStream_t stream, const Ints& dims, const gpu::Tensor& t0, const gpu::Tensor& t1, const gpu::Tensor& t2, const gpu::Tensor& t3, const gpu::Tensor& t4, const gpu::Blas& blas, void* accumulator, gpu::Turned& turned0) {
  const stage_0_operands x = stage_0_of(dims, t0, t1, t2, t3, t4);
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
      stage_0_pass(device, stream, dims, product, t0, t1, t2, t3, t4);
      return;
    }
  }
  const unsigned grid = gpu::tile_grid(x.p, x.batches.count, "stage_0");
  if (grid == 0) return;
  gpu::launch(stage_0_kernel, grid, gpu::kScalarThreads, 0, stream, "stage_0", x);
}

struct Kernel {
  gpu::Device device;
  gpu::Turned turned_0;

  Kernel(const fusion::Api& api, const OrtKernelInfo* info)
      : turned_0(api, info, 1) {
    (void)api, (void)info;
    stage_0_prepare(device);
  }

  void compute(fusion::Run& run) {
    // Shapes.
    const Ints h0 = run.dims(0, Ints{-1, -1, 32});
    const Ints h1 = run.dims(1, Ints{32, 64});
    const Ints h2 = host::matmul(h0, h1);
    const Ints h3 = run.dims(2, Ints{64});
    const Ints h4 = run.dims(3, Ints{-1, -1, 64});

    // Memory.
    const cudaStream_t stream = static_cast<cudaStream_t>(run.stream());
    void* const output_0 = run.output(0, h2);
    const gpu::Tensor t0{const_cast<void*>(run.input(0)), &h0};
    const gpu::Tensor t1{const_cast<void*>(run.input(1)), &h1};
    const gpu::Tensor t2{const_cast<void*>(run.input(2)), &h3};
    const gpu::Tensor t3{const_cast<void*>(run.input(3)), &h4};
    const gpu::Tensor t4{output_0, &h2};

    // Kernels.
    const gpu::Blas blas = gpu::Blas::find(run.api, run.context, stream);
    stage_0(device, stream, h2, t0, t1, t2, t3, t4, blas, t4.data, turned_0);
  }
};

const fusion::Port kInputs[] = {{1, false}, {1, false}, {1, false}, {1, false}};
const fusion::Port kOutputs[] = {{1, false}};

}  // namespace Linear_kernels
using namespace Linear_kernels;

FUSION_OP(Linear, "CUDAExecutionProvider", kInputs, kOutputs, Kernel)

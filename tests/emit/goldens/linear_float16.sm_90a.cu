// LinearFloat16: CUDA kernels of one fused operator.
// Rule: Test
// Original nodes:
#include "include/blas.h"
#include "include/blaslt.h"
#include "include/linear.cuh"
#include "include/linear_wgmma.cuh"
#include "include/skinny.cuh"
#include "include/vector.cuh"
#include "include/wide_choice.cuh"
#include "include/workspace.cuh"
#include "ort/op.h"

namespace LinearFloat16_kernels {

using fusion::Ints;
namespace gpu = fusion::gpu;
namespace host = fusion::host;

// stage_0.
//   MatMul
//   Add
//   Relu
struct stage_0_pass_args {
  const fusion::half* in2;
  const fusion::half* in3;
  fusion::half* out0;
  gpu::Space<2> space;
};

// A thread has kVectors vectors, all of which are asked for before the first is used. Packed, each is whole and aligned.
// `threads`: of a block.
template <int V, int kVectors, bool kPacked>
__device__ __forceinline__ void stage_0_pass_vectors(const stage_0_pass_args& a, unsigned block, int threads) {
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
      const float v2 = v0 + v1;
      const float v3 = fusion::relu(v2);
      gpu::put(y0, i, v3);
    }
    gpu::store_vector<V, kPacked>(a.out0 + e, 1, valid, y0);
  }
}

template <int V, int kVectors, bool kPacked>
__global__ void __launch_bounds__(gpu::kPassThreads) stage_0_pass_kernel(const stage_0_pass_args a) {
  gpu::let_next_begin();
  stage_0_pass_vectors<V, kVectors, kPacked>(a, blockIdx.x, blockDim.x);
}

stage_0_pass_args stage_0_pass_of(const Ints& dims, const gpu::Tensor& product, const gpu::Tensor& t0, const gpu::Tensor& t1, const gpu::Tensor& t2, const gpu::Tensor& t3) {
  const gpu::View views[] = {gpu::view(t2), gpu::view(product)};
  return {
      static_cast<const fusion::half*>(t2.data),
      static_cast<const fusion::half*>(product.data),
      static_cast<fusion::half*>(t3.data),
      gpu::space<2>(dims, views)};
}

// Whether all vectors are whole and aligned.
bool stage_0_pass_packs(const stage_0_pass_args& a) {
  bool packed = gpu::vectorizable(a.space, 8) && a.space.small && a.space.count % 8 == 0;
  packed = packed && gpu::packs<8>(a.space, 0, a.in2);
  packed = packed && gpu::packs<8>(a.space, 1, a.in3);
  packed = packed && gpu::aligned<8>(a.out0);
  return packed;
}

void stage_0_pass(const gpu::Device& device, cudaStream_t stream, const Ints& dims, const gpu::Tensor& product, const gpu::Tensor& t0, const gpu::Tensor& t1, const gpu::Tensor& t2, const gpu::Tensor& t3) {
  const stage_0_pass_args a = stage_0_pass_of(dims, product, t0, t1, t2, t3);
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
    const float v2 = v0 + v1;
    const float v3 = fusion::relu(v2);
    fusion::store(out0 + e, v3);
  }
};

// What the product is made of; operands 0 and 1 of the batch space are A and B.
struct stage_0_operands {
  const fusion::half* a;
  const fusion::half* b;
  gpu::Product p;
  gpu::Space<3> batches;
  stage_0_epilogue epilogue;
};

stage_0_operands stage_0_of(const Ints& dims, const gpu::Tensor& t0, const gpu::Tensor& t1, const gpu::Tensor& t2, const gpu::Tensor& t3) {
  const gpu::View a = gpu::view(t0), b = gpu::view(t1);
  gpu::Product p = gpu::product(a, b, 1.0f);
  const gpu::View views[] = {a, b, gpu::view(t2)};
  gpu::Space<3> batches = gpu::space<3>(dims, views, 2);
  int64_t row[] = {p.a_row, 0, views[2].step(2)};
  gpu::fold_batches(p, batches, row);
  const stage_0_epilogue epilogue{
      static_cast<const fusion::half*>(t2.data), row[2], views[2].step(1),
      static_cast<fusion::half*>(t3.data),
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

#if FUSION_HOPPER
// Eight neighbours of a row at a time.
struct stage_0_wide0 {
  stage_0_epilogue e0;

  struct Operands {
    gpu::Vector<fusion::half, 8> in0_2;
  };

  __device__ __forceinline__ void fetch(Operands& x, uint32_t row, uint32_t column) const {
    gpu::fetch_eight(x.in0_2, e0.in2, 0, 1, row, column);
  }

  // Of another row, the columns of `near`.
  __device__ __forceinline__ void fetch(Operands& x, uint32_t row, uint32_t column, [[maybe_unused]] const Operands& near) const {
    x.in0_2 = near.in0_2;
  }

  __device__ __forceinline__ void prefetch(uint32_t row, uint32_t column) const {
  }
  static constexpr bool kReadsRows = false;  // other elements in every row
  static constexpr bool kByColumn = true;  // what it reads is alike in all of them

  // The same of eight neighbours of a column.
  using Out = fusion::half;
  __device__ __forceinline__ void fetch_column(Operands& x, uint32_t column) const {
    gpu::fetch_eight(x.in0_2, e0.in2, 1, 0, column, 0);
  }
  __device__ __forceinline__ Out* out(uint32_t row, uint32_t column) const { return gpu::eight_at(e0.out0, e0.columns, 1, row, column); }
  __device__ __forceinline__ void compute(float (&y0_0)[8], const float (&sums)[1][8], const Operands& x) const {
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      {
        const float acc = 1.0f * sums[0][i];
        const float v0 = acc;
        const float v1 = gpu::get(x.in0_2, i);
        const float v2 = v0 + v1;
        const float v3 = fusion::relu(v2);
        y0_0[i] = v3;
      }
    }
  }

  // `one`: stands for all of them.
  __device__ __forceinline__ void spread(Operands& x, [[maybe_unused]] bool one = false) const {
    gpu::spread(x.in0_2, one ? 0 : 1);
  }

  __device__ __forceinline__ void store(uint32_t row, uint32_t column, bool inside, const float (&sums)[1][8], const Operands& x, [[maybe_unused]] bool passes = false) const {
    [[maybe_unused]] const int64_t e = row * e0.columns + column;
    float y0_0[8];
    compute(y0_0, sums, x);
    gpu::store_eight(inside, gpu::eight_at(e0.out0, e0.columns, 1, row, column), y0_0, passes);
  }
};

using stage_0_tiles = gpu::TriedTiles;

template <class Tile>
__global__ void __launch_bounds__(Tile::kThreads, Tile::kBlocks)
    stage_0_wide_kernel(const __grid_constant__ gpu::WideOperands<1, 1> x, const __grid_constant__ stage_0_wide0 epilogue0) {
  gpu::linear_wgmma<fusion::half, Tile, false>(x, epilogue0);
}

// False where the kernel does not suit the operands. `early`: the right operands
// are there before any kernel runs.
bool stage_0_wide_launch(const gpu::Device& device, cudaStream_t stream, bool early, const stage_0_operands& x0, int rank) {
  if (!gpu::in_eights(x0.epilogue.in2, x0.epilogue.row2, x0.epilogue.column2)) return false;
  if (!gpu::in_eights(x0.epilogue.out0, x0.p.n, 1)) return false;
gpu::WideOperands<1, 1> x;
  x.early = early;
  if (!gpu::describe_wide<false>(x, 1, x0)) return false;
  const stage_0_wide0 epilogue0{x0.epilogue};
  return gpu::with_wide_tile<stage_0_tiles>(device, false, x, x0.a, x0.p.a_row, [&](auto tile, unsigned grid) {
    using Tile = decltype(tile);
    gpu::launch_clusters(stage_0_wide_kernel<Tile>, grid, static_cast<unsigned>(x.parts), Tile::kThreads, Tile::kBytes, stream, "stage_0", x, epilogue0);
  }, rank);
}
#endif

void stage_0_wide_prepare(const gpu::Device& device) {
  (void)device;
#if FUSION_HOPPER
  stage_0_tiles::each([&](auto tile) {
    using Tile = decltype(tile);
    gpu::allow_shared_memory(device, stage_0_wide_kernel<Tile>, Tile::kBytes);
  });
#endif
}

// Once: blocks need more shared memory than is given without asking.
void stage_0_prepare(const gpu::Device& device) {
  stage_0_wide_prepare(device);
}


// `product` is memory for the bare product, if the vendor's kernel computes it.
void stage_0(const gpu::Device& device, cudaStream_t stream, const Ints& dims, const gpu::Tensor& t0, const gpu::Tensor& t1, const gpu::Tensor& t2, const gpu::Tensor& t3, const gpu::Blas& blas, void* accumulator, gpu::BlasLt& lt, void* lt_work, bool early) {
  const stage_0_operands x = stage_0_of(dims, t0, t1, t2, t3);
  if (gpu::is_skinny(x)) {
    stage_0_launch(device, stream, x);
    return;
  }
  const gpu::View a = gpu::view(t0), b = gpu::view(t1);
  gpu::Product tall = gpu::product(a, b, 1.0f);
  const bool vendor = blas && gpu::prefer_vendor(tall, dims);
#if FUSION_HOPPER
  const auto own = [&](int rank) { return stage_0_wide_launch(device, stream, early, x, rank); };
  if (!vendor && own(0)) return;
#else
  const auto own = nullptr;
#endif
  if (vendor) {
    const gpu::View matrices[] = {a, b};
    gpu::Space<2> batches = gpu::space<2>(dims, matrices, 2);
    int64_t row[] = {tall.a_row, 0};
    gpu::fold_batches(tall, batches, row);
    const gpu::Addends<fusion::half> add{static_cast<const fusion::half*>(t2.data), nullptr, true};
    auto* const out = static_cast<fusion::half*>(t3.data);
    if (batches.rank == 0 && batches.count == 1 && lt.multiply(blas, stream, lt_work, x.a, x.b, out, tall, add, own)) return;
    if (blas.multiply(x.a, x.b, static_cast<fusion::half*>(accumulator), tall, batches)) {
      const gpu::Tensor product{accumulator, &dims};
      stage_0_pass(device, stream, dims, product, t0, t1, t2, t3);
      return;
    }
  }
  const unsigned grid = gpu::tile_grid(x.p, x.batches.count, "stage_0");
  if (grid == 0) return;
  gpu::launch(stage_0_kernel, grid, gpu::kTensorThreads, 0, stream, "stage_0", x);
}

struct Kernel {
  gpu::Device device;
  gpu::Workspace workspace;
  gpu::BlasLt lt_0;
  bool constant_0;

  Kernel(const fusion::Api& api, const OrtKernelInfo* info)
      : lt_0(),
        constant_0(fusion::is_constant(api, info, 1)) {
    (void)api, (void)info;
    stage_0_prepare(device);
  }

  void compute(fusion::Run& run) {
    // Shapes.
    const Ints h0 = run.dims(0, Ints{-1, -1, 64});
    const Ints h1 = run.dims(1, Ints{64, 128});
    const Ints h2 = host::matmul(h0, h1);
    const Ints h3 = run.dims(2, Ints{128});

    // Memory.
    const cudaStream_t stream = static_cast<cudaStream_t>(run.stream());
    void* const output_0 = run.output(0, h2);
    gpu::Layout layout;
    const size_t lt_work = layout.add(gpu::largest({gpu::kLtWorkspace}));
    char* const work = workspace.reserve(stream, layout.size());
    const gpu::Tensor t0{const_cast<void*>(run.input(0)), &h0};
    const gpu::Tensor t1{const_cast<void*>(run.input(1)), &h1};
    const gpu::Tensor t2{const_cast<void*>(run.input(2)), &h3};
    const gpu::Tensor t3{output_0, &h2};

    // Kernels.
    const gpu::Blas blas = gpu::Blas::find(run.api, run.context, stream);
    stage_0(device, stream, h2, t0, t1, t2, t3, blas, t3.data, lt_0, work + lt_work, constant_0);
  }
};

const fusion::Port kInputs[] = {{10, false}, {10, false}, {10, false}};
const fusion::Port kOutputs[] = {{10, false}};

}  // namespace LinearFloat16_kernels
using namespace LinearFloat16_kernels;

FUSION_OP(LinearFloat16, "CUDAExecutionProvider", kInputs, kOutputs, Kernel)

// LinearHorizontal: CUDA kernels of one fused operator.
// Rule: Test
// Original nodes:
#include "include/blas.h"
#include "include/linear.cuh"
#include "include/rowwise.cuh"
#include "include/vector.cuh"
#include "include/workspace.cuh"
#include "ort/op.h"

namespace {

using fusion::Ints;
namespace gpu = fusion::gpu;
namespace host = fusion::host;

// stage_0.
//   LayerNormalization
struct stage_0_args {
  const float* in0;
  const float* in1;
  float* out0;
  gpu::Space<2> space;  // of the rows
  int64_t step[2];  // between neighbours of a row
  int64_t length;
  int lanes;
};

// Rows that fit in the registers of their threads.
__global__ void __launch_bounds__(gpu::kRowThreads) stage_0_short(const stage_0_args a) {
  gpu::Row row(a.length, a.lanes);
  if (row.index >= a.space.count) return;
  int64_t at[2];
  a.space.locate(row.index, at);
  float r1 = gpu::Sum::identity<float>();
  float x0[gpu::kRowElements];
  row.load(a.in0 + at[0], a.step[0], x0);
#pragma unroll
  for (int i = 0; i < gpu::kRowElements; ++i) {
    const float v0 = x0[i];
    if (row.valid(i)) r1 = gpu::Sum{}(r1, v0);
  }
  const float v1 = row.reduce(r1, gpu::Sum{}) / static_cast<float>(row.length);
  float r4 = gpu::Sum::identity<float>();
  float k2[gpu::kRowElements];
#pragma unroll
  for (int i = 0; i < gpu::kRowElements; ++i) {
    const float v0 = x0[i];
    const float v2 = v0 - v1;
    const float v3 = v2 * v2;
    k2[i] = v2;
    if (row.valid(i)) r4 = gpu::Sum{}(r4, v3);
  }
  const float v4 = row.reduce(r4, gpu::Sum{}) / static_cast<float>(row.length);
  const float v6 = v4 + 1e-05f;
  const float v7 = fusion::sqrt(v6);
  const float v8 = fusion::reciprocal(v7);
  float x1[gpu::kRowElements];
  row.load(a.in1 + at[1], a.step[1], x1);
  float yout0[gpu::kRowElements];
#pragma unroll
  for (int i = 0; i < gpu::kRowElements; ++i) {
    const float v9 = k2[i] * v8;
    const float v10 = x1[i];
    const float v11 = v9 * v10;
    yout0[i] = v11;
  }
  row.store(a.out0 + row.index * row.length, yout0);
}

// Longer rows: walked once per pass, by a whole block.
__global__ void __launch_bounds__(gpu::kRowThreads) stage_0_long(const stage_0_args a) {
  gpu::Row row(a.length, a.lanes);
  if (row.index >= a.space.count) return;
  int64_t at[2];
  a.space.locate(row.index, at);
  float r1 = gpu::Sum::identity<float>();
  for (row.start = 0; row.start < row.length; row.start += row.chunk()) {
    float x0[gpu::kRowElements];
    row.load(a.in0 + at[0], a.step[0], x0);
#pragma unroll
    for (int i = 0; i < gpu::kRowElements; ++i) {
      const float v0 = x0[i];
      if (row.valid(i)) r1 = gpu::Sum{}(r1, v0);
    }
  }
  const float v1 = row.reduce(r1, gpu::Sum{}) / static_cast<float>(row.length);
  float r4 = gpu::Sum::identity<float>();
  for (row.start = 0; row.start < row.length; row.start += row.chunk()) {
    float x0[gpu::kRowElements];
    row.load(a.in0 + at[0], a.step[0], x0);
#pragma unroll
    for (int i = 0; i < gpu::kRowElements; ++i) {
      const float v0 = x0[i];
      const float v2 = v0 - v1;
      const float v3 = v2 * v2;
      if (row.valid(i)) r4 = gpu::Sum{}(r4, v3);
    }
  }
  const float v4 = row.reduce(r4, gpu::Sum{}) / static_cast<float>(row.length);
  const float v6 = v4 + 1e-05f;
  const float v7 = fusion::sqrt(v6);
  const float v8 = fusion::reciprocal(v7);
  for (row.start = 0; row.start < row.length; row.start += row.chunk()) {
    float x0[gpu::kRowElements];
    row.load(a.in0 + at[0], a.step[0], x0);
    float x1[gpu::kRowElements];
    row.load(a.in1 + at[1], a.step[1], x1);
    float yout0[gpu::kRowElements];
#pragma unroll
    for (int i = 0; i < gpu::kRowElements; ++i) {
      const float v0 = x0[i];
      const float v2 = v0 - v1;
      const float v9 = v2 * v8;
      const float v10 = x1[i];
      const float v11 = v9 * v10;
      yout0[i] = v11;
    }
    row.store(a.out0 + row.index * row.length, yout0);
  }
}

void stage_0(const gpu::Device& device, cudaStream_t stream, const Ints& dims, const gpu::Tensor& t0, const gpu::Tensor& t1, const gpu::Tensor& t2) {
  (void)device;
  const gpu::View views[] = {gpu::view(t0), gpu::view(t1)};
  stage_0_args a{
      static_cast<const float*>(t0.data),
      static_cast<const float*>(t1.data),
      static_cast<float*>(t2.data),
      gpu::space<2>(dims, views, 1), {}, dims.back(), 0};
  a.step[0] = views[0].step(1);
  a.step[1] = views[1].step(1);
  if (a.space.count == 0) return;
  const gpu::RowLaunch launch = gpu::row_launch(a.space.count, a.length, "stage_0");
  a.lanes = launch.lanes;
  if (launch.registers) {
    stage_0_short<<<launch.grid, launch.threads, 0, stream>>>(a);
  } else {
    stage_0_long<<<launch.grid, launch.threads, 0, stream>>>(a);
  }
  gpu::check(cudaGetLastError(), "stage_0");
}

// stage_1.
//   MatMul
//   Add
struct stage_1_pass_args {
  const float* in2;
  const float* in3;
  float* out0;
  gpu::Space<2> space;
};

template <int V>
__global__ void __launch_bounds__(gpu::kPointwiseThreads) stage_1_pass_kernel(const stage_1_pass_args a) {
  const int64_t stride = static_cast<int64_t>(gridDim.x) * blockDim.x * V;
  for (int64_t e = (static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) * V; e < a.space.count; e += stride) {
    const int valid = a.space.count - e < V ? static_cast<int>(a.space.count - e) : V;
    int64_t at[2];
    a.space.locate(e, at);
    float x2[V];
    gpu::load_vector(a.in2 + at[0], a.space.stride[0][0], valid, x2);
    float x3[V];
    gpu::load_vector(a.in3 + at[1], a.space.stride[1][0], valid, x3);
    float y0[V];
#pragma unroll
    for (int i = 0; i < V; ++i) {
      const float v0 = x3[i];
      const float v1 = x2[i];
      const float v2 = v0 + v1;
      y0[i] = v2;
    }
    gpu::store_vector(a.out0 + e, 1, valid, y0);
  }
}

void stage_1_pass(const gpu::Device& device, cudaStream_t stream, const Ints& dims, const gpu::Tensor& product, const gpu::Tensor& t0, const gpu::Tensor& t1, const gpu::Tensor& t2, const gpu::Tensor& t3) {
  const gpu::View views[] = {gpu::view(t2), gpu::view(product)};
  const stage_1_pass_args a{
      static_cast<const float*>(t2.data),
      static_cast<const float*>(product.data),
      static_cast<float*>(t3.data),
      gpu::space<2>(dims, views)};
  if (a.space.count == 0) return;
  if (gpu::vectorizable(a.space, 4)) {
    stage_1_pass_kernel<4>
        <<<gpu::pointwise_grid(device, a.space.count, 4), gpu::kPointwiseThreads, 0, stream>>>(a);
  } else {
    stage_1_pass_kernel<1><<<gpu::pointwise_grid(device, a.space.count, 1), gpu::kPointwiseThreads, 0, stream>>>(a);
  }
  gpu::check(cudaGetLastError(), "stage_1_pass");
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
    const float v2 = v0 + v1;
    fusion::store(out0 + e, v2);
  }
};

__global__ void __launch_bounds__(gpu::kScalarThreads)
    stage_1_kernel(const float* a, const float* b, const gpu::Product p,
                   const gpu::Space<3> batches, const stage_1_epilogue epilogue) {
  gpu::linear_scalar(a, b, p, batches, epilogue);
}

// `product` is memory for the bare product, if the vendor's kernel computes it.
void stage_1(const gpu::Device& device, cudaStream_t stream, const Ints& dims, const gpu::Tensor& t0, const gpu::Tensor& t1, const gpu::Tensor& t2, const gpu::Tensor& t3, const gpu::Blas& blas, void* accumulator) {
  const gpu::View a = gpu::view(t0), b = gpu::view(t1);
  const auto* const data_a = static_cast<const float*>(t0.data);
  const auto* const data_b = static_cast<const float*>(t1.data);
  gpu::Product p = gpu::product(a, b, 1.0f);
  if (blas && gpu::prefer_vendor(p, dims)) {
    gpu::Product tall = p;
    const gpu::View matrices[] = {a, b};
    gpu::Space<2> batches = gpu::space<2>(dims, matrices, 2);
    gpu::fold_batches(tall, batches, {p.a_row, 0});
    if (blas.multiply(data_a, data_b, static_cast<float*>(accumulator), tall, batches)) {
      const gpu::Tensor product{accumulator, &dims};
      stage_1_pass(device, stream, dims, product, t0, t1, t2, t3);
      return;
    }
  }
  const gpu::View views[] = {a, b, gpu::view(t2)};
  gpu::Space<3> batches = gpu::space<3>(dims, views, 2);
  gpu::fold_batches(p, batches, {p.a_row, 0, views[2].step(2)});
  const stage_1_epilogue epilogue{
      static_cast<const float*>(t2.data), views[2].step(2), views[2].step(1),
      static_cast<float*>(t3.data),
      p.m, p.n};
  const unsigned grid = gpu::tile_grid(p, batches.count, "stage_1");
  if (grid == 0) return;
  stage_1_kernel<<<grid, gpu::kScalarThreads, 0, stream>>>(data_a, data_b, p, batches, epilogue);
  gpu::check(cudaGetLastError(), "stage_1");
}

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

__global__ void __launch_bounds__(gpu::kScalarThreads)
    stage_2_kernel(const float* a, const float* b, const gpu::Product p,
                   const gpu::Space<2> batches, const stage_2_epilogue epilogue) {
  gpu::linear_scalar(a, b, p, batches, epilogue);
}

// `product` is memory for the bare product, if the vendor's kernel computes it.
void stage_2(const gpu::Device& device, cudaStream_t stream, const Ints& dims, const gpu::Tensor& t0, const gpu::Tensor& t1, const gpu::Tensor& t2, const gpu::Blas& blas, void* accumulator) {
  const gpu::View a = gpu::view(t0), b = gpu::view(t1);
  const auto* const data_a = static_cast<const float*>(t0.data);
  const auto* const data_b = static_cast<const float*>(t1.data);
  gpu::Product p = gpu::product(a, b, 1.0f);
  if (blas && gpu::prefer_vendor(p, dims)) {
    gpu::Product tall = p;
    const gpu::View matrices[] = {a, b};
    gpu::Space<2> batches = gpu::space<2>(dims, matrices, 2);
    gpu::fold_batches(tall, batches, {p.a_row, 0});
    if (blas.multiply(data_a, data_b, static_cast<float*>(accumulator), tall, batches)) {
      return;
    }
  }
  const gpu::View views[] = {a, b};
  gpu::Space<2> batches = gpu::space<2>(dims, views, 2);
  gpu::fold_batches(p, batches, {p.a_row, 0});
  const stage_2_epilogue epilogue{
      static_cast<float*>(t2.data),
      p.m, p.n};
  const unsigned grid = gpu::tile_grid(p, batches.count, "stage_2");
  if (grid == 0) return;
  stage_2_kernel<<<grid, gpu::kScalarThreads, 0, stream>>>(data_a, data_b, p, batches, epilogue);
  gpu::check(cudaGetLastError(), "stage_2");
}

struct Kernel {
  gpu::Device device;
  gpu::Workspace workspace;

  Kernel(const fusion::Api& api, const OrtKernelInfo* info) {
    (void)api, (void)info;
  }

  void compute(fusion::Run& run) {
    // Shapes.
    const Ints h0 = run.dims(0);
    const Ints h1 = run.dims(1);
    const Ints h2 = run.dims(2);
    const Ints h3 = host::matmul(h0, h2);
    const Ints h4 = run.dims(4);
    const Ints h5 = host::matmul(h0, h4);
    const Ints h6 = run.dims(5);
    const Ints h7 = host::matmul(h0, h6);
    const Ints h8 = run.dims(3);

    // Memory.
    const cudaStream_t stream = static_cast<cudaStream_t>(run.stream());
    void* const output_0 = run.output(0, h3);
    void* const output_1 = run.output(1, h5);
    void* const output_2 = run.output(2, h7);
    gpu::Layout layout;
    const size_t buffer_0 = layout.add(gpu::largest({gpu::bytes<float>(h0)}));
    char* const work = workspace.reserve(stream, layout.size());
    const gpu::Tensor t0{const_cast<void*>(run.input(0)), &h0};
    const gpu::Tensor t1{const_cast<void*>(run.input(1)), &h1};
    const gpu::Tensor t2{const_cast<void*>(run.input(2)), &h2};
    const gpu::Tensor t3{const_cast<void*>(run.input(3)), &h8};
    const gpu::Tensor t4{const_cast<void*>(run.input(4)), &h4};
    const gpu::Tensor t5{const_cast<void*>(run.input(5)), &h6};
    const gpu::Tensor t6{output_0, &h3};
    const gpu::Tensor t7{output_1, &h5};
    const gpu::Tensor t8{output_2, &h7};
    const gpu::Tensor t9{work + buffer_0, &h0};

    // Kernels.
    const gpu::Blas blas = gpu::Blas::find(run.api, run.context, stream);
    stage_0(device, stream, h0, t0, t1, t9);
    stage_1(device, stream, h3, t9, t2, t3, t6, blas, t6.data);
    stage_2(device, stream, h5, t9, t4, t7, blas, t7.data);
    stage_1(device, stream, h7, t9, t5, t3, t8, blas, t8.data);
  }
};

const fusion::Port kInputs[] = {{1, false}, {1, false}, {1, false}, {1, false}, {1, false}, {1, false}};
const fusion::Port kOutputs[] = {{1, false}, {1, false}, {1, false}};

}  // namespace

FUSION_OP(LinearHorizontal, "CUDAExecutionProvider", kInputs, kOutputs, Kernel)

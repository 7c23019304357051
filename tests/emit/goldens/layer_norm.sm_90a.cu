// LayerNorm: CUDA kernels of one fused operator.
// Rule: Test
// Original nodes:
#include "include/rowwise.cuh"
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
  const float* in2;
  float* out0;
  gpu::Space<3> space;  // of the rows
  int64_t step[3];  // between neighbours of a row
  int64_t length;
  int lanes;
};

// Rows that fit in the registers of their threads.
__global__ void __launch_bounds__(gpu::kRowThreads) stage_0_short(const stage_0_args a) {
  gpu::let_next_begin();
  gpu::await_earlier();
  gpu::Row row(a.length, a.lanes);
  if (row.index >= a.space.count) return;
  int64_t at[3];
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
  float x2[gpu::kRowElements];
  row.load(a.in2 + at[2], a.step[2], x2);
  float yout0[gpu::kRowElements];
#pragma unroll
  for (int i = 0; i < gpu::kRowElements; ++i) {
    const float v9 = k2[i] * v8;
    const float v10 = x1[i];
    const float v11 = v9 * v10;
    const float v12 = x2[i];
    const float v13 = v11 + v12;
    yout0[i] = v13;
  }
  row.store(a.out0 + row.index * row.length, yout0);
}

// Longer rows: walked once per pass, by a whole block.
__global__ void __launch_bounds__(gpu::kRowThreads) stage_0_long(const stage_0_args a) {
  gpu::let_next_begin();
  gpu::await_earlier();
  gpu::Row row(a.length, a.lanes);
  if (row.index >= a.space.count) return;
  int64_t at[3];
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
    float x2[gpu::kRowElements];
    row.load(a.in2 + at[2], a.step[2], x2);
    float yout0[gpu::kRowElements];
#pragma unroll
    for (int i = 0; i < gpu::kRowElements; ++i) {
      const float v0 = x0[i];
      const float v2 = v0 - v1;
      const float v9 = v2 * v8;
      const float v10 = x1[i];
      const float v11 = v9 * v10;
      const float v12 = x2[i];
      const float v13 = v11 + v12;
      yout0[i] = v13;
    }
    row.store(a.out0 + row.index * row.length, yout0);
  }
}

void stage_0(const gpu::Device& device, cudaStream_t stream, const Ints& dims, const gpu::Tensor& t0, const gpu::Tensor& t1, const gpu::Tensor& t2, const gpu::Tensor& t3) {
  (void)device;
  const gpu::View views[] = {gpu::view(t0), gpu::view(t1), gpu::view(t2)};
  stage_0_args a{
      static_cast<const float*>(t0.data),
      static_cast<const float*>(t1.data),
      static_cast<const float*>(t2.data),
      static_cast<float*>(t3.data),
      gpu::space<3>(dims, views, 1), {}, dims.back(), 0};
  a.step[0] = views[0].step(1);
  a.step[1] = views[1].step(1);
  a.step[2] = views[2].step(1);
  if (a.space.count == 0) return;
  const gpu::RowLaunch launch = gpu::row_launch(a.space.count, a.length, "stage_0");
  a.lanes = launch.lanes;
  const auto kernel = launch.registers ? stage_0_short : stage_0_long;
  gpu::launch(kernel, launch.grid, launch.threads, 0, stream, "stage_0", a);
}

struct Kernel {
  gpu::Device device;

  Kernel(const fusion::Api& api, const OrtKernelInfo* info) {
    (void)api, (void)info;
  }

  void compute(fusion::Run& run) {
    // Shapes.
    const Ints h0 = run.dims(0, Ints{-1, -1, 32});
    const Ints h1 = run.dims(1, Ints{32});
    const Ints h2 = run.dims(2, Ints{32});

    // Memory.
    const cudaStream_t stream = static_cast<cudaStream_t>(run.stream());
    void* const output_0 = run.output(0, h0);
    const gpu::Tensor t0{const_cast<void*>(run.input(0)), &h0};
    const gpu::Tensor t1{const_cast<void*>(run.input(1)), &h1};
    const gpu::Tensor t2{const_cast<void*>(run.input(2)), &h2};
    const gpu::Tensor t3{output_0, &h0};

    // Kernels.
    stage_0(device, stream, h0, t0, t1, t2, t3);
  }
};

const fusion::Port kInputs[] = {{1, false}, {1, false}, {1, false}};
const fusion::Port kOutputs[] = {{1, false}};

}  // namespace

FUSION_OP(LayerNorm, "CUDAExecutionProvider", kInputs, kOutputs, Kernel)

// Softmax: CUDA kernels of one fused operator.
// Rule: Test
// Original nodes:
#include "include/rowwise.cuh"
#include "ort/op.h"

namespace {

using fusion::Ints;
namespace gpu = fusion::gpu;
namespace host = fusion::host;

// stage_0.
//   Add
//   Softmax
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
  gpu::let_next_begin();
  gpu::await_earlier();
  gpu::Row row(a.length, a.lanes);
  if (row.index >= a.space.count) return;
  int64_t at[2];
  a.space.locate(row.index, at);
  float r3 = gpu::Max::identity<float>();
  float x0[gpu::kRowElements];
  row.load(a.in0 + at[0], a.step[0], x0);
  float x1[gpu::kRowElements];
  row.load(a.in1 + at[1], a.step[1], x1);
  float k2[gpu::kRowElements];
#pragma unroll
  for (int i = 0; i < gpu::kRowElements; ++i) {
    const float v0 = x0[i];
    const float v1 = x1[i];
    const float v2 = v0 + v1;
    k2[i] = v2;
    if (row.valid(i)) r3 = gpu::Max{}(r3, v2);
  }
  const float v3 = row.reduce(r3, gpu::Max{});
  float r6 = gpu::Sum::identity<float>();
  float k5[gpu::kRowElements];
#pragma unroll
  for (int i = 0; i < gpu::kRowElements; ++i) {
    const float v4 = k2[i] - v3;
    const float v5 = fusion::exp(v4);
    k5[i] = v5;
    if (row.valid(i)) r6 = gpu::Sum{}(r6, v5);
  }
  const float v6 = row.reduce(r6, gpu::Sum{});
  float yout0[gpu::kRowElements];
#pragma unroll
  for (int i = 0; i < gpu::kRowElements; ++i) {
    const float v7 = fusion::div(k5[i], v6);
    yout0[i] = v7;
  }
  row.store(a.out0 + row.index * row.length, yout0);
}

// Longer rows: walked once per pass, by a whole block.
__global__ void __launch_bounds__(gpu::kRowThreads) stage_0_long(const stage_0_args a) {
  gpu::let_next_begin();
  gpu::await_earlier();
  gpu::Row row(a.length, a.lanes);
  if (row.index >= a.space.count) return;
  int64_t at[2];
  a.space.locate(row.index, at);
  float r3 = gpu::Max::identity<float>();
  for (row.start = 0; row.start < row.length; row.start += row.chunk()) {
    float x0[gpu::kRowElements];
    row.load(a.in0 + at[0], a.step[0], x0);
    float x1[gpu::kRowElements];
    row.load(a.in1 + at[1], a.step[1], x1);
#pragma unroll
    for (int i = 0; i < gpu::kRowElements; ++i) {
      const float v0 = x0[i];
      const float v1 = x1[i];
      const float v2 = v0 + v1;
      if (row.valid(i)) r3 = gpu::Max{}(r3, v2);
    }
  }
  const float v3 = row.reduce(r3, gpu::Max{});
  float r6 = gpu::Sum::identity<float>();
  for (row.start = 0; row.start < row.length; row.start += row.chunk()) {
    float x0[gpu::kRowElements];
    row.load(a.in0 + at[0], a.step[0], x0);
    float x1[gpu::kRowElements];
    row.load(a.in1 + at[1], a.step[1], x1);
#pragma unroll
    for (int i = 0; i < gpu::kRowElements; ++i) {
      const float v0 = x0[i];
      const float v1 = x1[i];
      const float v2 = v0 + v1;
      const float v4 = v2 - v3;
      const float v5 = fusion::exp(v4);
      if (row.valid(i)) r6 = gpu::Sum{}(r6, v5);
    }
  }
  const float v6 = row.reduce(r6, gpu::Sum{});
  for (row.start = 0; row.start < row.length; row.start += row.chunk()) {
    float x0[gpu::kRowElements];
    row.load(a.in0 + at[0], a.step[0], x0);
    float x1[gpu::kRowElements];
    row.load(a.in1 + at[1], a.step[1], x1);
    float yout0[gpu::kRowElements];
#pragma unroll
    for (int i = 0; i < gpu::kRowElements; ++i) {
      const float v0 = x0[i];
      const float v1 = x1[i];
      const float v2 = v0 + v1;
      const float v4 = v2 - v3;
      const float v5 = fusion::exp(v4);
      const float v7 = fusion::div(v5, v6);
      yout0[i] = v7;
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
    const Ints h0 = run.dims(0, Ints{-1, -1, -1, -1});
    const Ints h1 = run.dims(1, Ints{-1, 1, 1, -1});

    // Memory.
    const cudaStream_t stream = static_cast<cudaStream_t>(run.stream());
    void* const output_0 = run.output(0, h0);
    const gpu::Tensor t0{const_cast<void*>(run.input(0)), &h0};
    const gpu::Tensor t1{const_cast<void*>(run.input(1)), &h1};
    const gpu::Tensor t2{output_0, &h0};

    // Kernels.
    stage_0(device, stream, h0, t0, t1, t2);
  }
};

const fusion::Port kInputs[] = {{1, false}, {1, false}};
const fusion::Port kOutputs[] = {{1, false}};

}  // namespace

FUSION_OP(Softmax, "CUDAExecutionProvider", kInputs, kOutputs, Kernel)

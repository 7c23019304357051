// Softmax: CUDA kernels of one fused operator.
// Rule: Test
// Original nodes:
#include "include/rowwise.cuh"
#include "ort/op.h"

namespace Softmax_kernels {

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
  int64_t length;
  gpu::Space<2> space;  // of the rows
  int64_t step[2];  // between neighbours of a row
};

// Rows that fit in the registers of their threads.
template <bool kFlat = false, int V, int C, int kThreads, bool kPacked, class Team>
__device__ __forceinline__ void stage_0_kept_row(const stage_0_args& a, gpu::Row<V, C, kThreads, kPacked, Team> row) {
  int64_t at[2];
  a.space.template locate<kPacked, kFlat>(row.index, at);
  gpu::resolve(a.out0, row.place(a.in0 + at[0]), row.place(a.in1 + at[1]));
  gpu::await_earlier();
  gpu::Vector<float, V> x0[C];
  row.load(a.in0 + at[0], a.step[0], x0);
  gpu::Vector<float, V> x1[C];
  row.load(a.in1 + at[1], a.step[1], x1);
  float r3 = gpu::Max::identity<float>();
  float k2[C][V];
#pragma unroll
  for (int c = 0; c < C; ++c) {
#pragma unroll
    for (int i = 0; i < V; ++i) {
      const float v0 = gpu::get(x0[c], i);
      const float v1 = gpu::get(x1[c], i);
      const float v2 = v0 + v1;
      k2[c][i] = v2;
      if (row.valid(c, i)) r3 = gpu::Max{}(r3, v2);
    }
  }
  const float v3 = row.reduce(r3, gpu::Max{});
  float r6 = gpu::Sum::identity<float>();
  float k5[C][V];
#pragma unroll
  for (int c = 0; c < C; ++c) {
#pragma unroll
    for (int i = 0; i < V; ++i) {
      const float v4 = k2[c][i] - v3;
      const float v5 = fusion::exp(v4);
      k5[c][i] = v5;
      if (row.valid(c, i)) r6 = gpu::Sum{}(r6, v5);
    }
  }
  const float v6 = row.reduce(r6, gpu::Sum{});
  const float v7 = fusion::reciprocal(v6);
#pragma unroll
  for (int c = 0; c < C; ++c) {
    gpu::Vector<float, V> yout0{};
#pragma unroll
    for (int i = 0; i < V; ++i) {
      const float v8 = k5[c][i] * v7;
      gpu::put(yout0, i, v8);
    }
    row.store(a.out0 + row.index * row.length, c, yout0);
  }
}

template <int C, int kThreads, bool kPacked, bool kFlat = false>
__global__ void __launch_bounds__(kThreads <= 32 ? 32 * gpu::kShortWarps : kThreads) stage_0_kept(const stage_0_args a) {
  gpu::let_next_begin();
  gpu::Row<4, C, kThreads, kPacked> row(a.length);
  if (kThreads > 32 || row.index < a.space.count) stage_0_kept_row<kFlat>(a, row);
}

// Longer rows: walked once per pass, by a whole block.
template <int V, int C, int kThreads, bool kPacked, class Team>
__device__ __forceinline__ void stage_0_walked_row(const stage_0_args& a, gpu::Row<V, C, kThreads, kPacked, Team> row) {
  int64_t at[2];
  a.space.template locate<kPacked>(row.index, at);
  gpu::await_earlier();
  float r3 = gpu::Max::identity<float>();
  for (row.start = 0; row.start < row.length; row.start += row.chunk()) {
    gpu::Vector<float, V> x0[C];
    row.load(a.in0 + at[0], a.step[0], x0);
    gpu::Vector<float, V> x1[C];
    row.load(a.in1 + at[1], a.step[1], x1);
#pragma unroll
    for (int c = 0; c < C; ++c) {
#pragma unroll
      for (int i = 0; i < V; ++i) {
        const float v0 = gpu::get(x0[c], i);
        const float v1 = gpu::get(x1[c], i);
        const float v2 = v0 + v1;
        if (row.valid(c, i)) r3 = gpu::Max{}(r3, v2);
      }
    }
  }
  const float v3 = row.reduce(r3, gpu::Max{});
  float r6 = gpu::Sum::identity<float>();
  for (row.start = 0; row.start < row.length; row.start += row.chunk()) {
    gpu::Vector<float, V> x0[C];
    row.load(a.in0 + at[0], a.step[0], x0);
    gpu::Vector<float, V> x1[C];
    row.load(a.in1 + at[1], a.step[1], x1);
#pragma unroll
    for (int c = 0; c < C; ++c) {
#pragma unroll
      for (int i = 0; i < V; ++i) {
        const float v0 = gpu::get(x0[c], i);
        const float v1 = gpu::get(x1[c], i);
        const float v2 = v0 + v1;
        const float v4 = v2 - v3;
        const float v5 = fusion::exp(v4);
        if (row.valid(c, i)) r6 = gpu::Sum{}(r6, v5);
      }
    }
  }
  const float v6 = row.reduce(r6, gpu::Sum{});
  const float v7 = fusion::reciprocal(v6);
  for (row.start = 0; row.start < row.length; row.start += row.chunk()) {
    gpu::Vector<float, V> x0[C];
    row.load(a.in0 + at[0], a.step[0], x0);
    gpu::Vector<float, V> x1[C];
    row.load(a.in1 + at[1], a.step[1], x1);
#pragma unroll
    for (int c = 0; c < C; ++c) {
      gpu::Vector<float, V> yout0{};
#pragma unroll
      for (int i = 0; i < V; ++i) {
        const float v0 = gpu::get(x0[c], i);
        const float v1 = gpu::get(x1[c], i);
        const float v2 = v0 + v1;
        const float v4 = v2 - v3;
        const float v5 = fusion::exp(v4);
        const float v8 = v5 * v7;
        gpu::put(yout0, i, v8);
      }
      row.store(a.out0 + row.index * row.length, c, yout0);
    }
  }
}

template <int C, int kThreads, bool kPacked>
__global__ void __launch_bounds__(kThreads <= 32 ? 32 * gpu::kShortWarps : kThreads) stage_0_walked(const stage_0_args a) {
  gpu::let_next_begin();
  gpu::Row<4, C, kThreads, kPacked> row(a.length);
  if (kThreads > 32 || row.index < a.space.count) stage_0_walked_row(a, row);
}

stage_0_args stage_0_of(const Ints& dims, const gpu::Tensor& t0, const gpu::Tensor& t1, const gpu::Tensor& t2) {
  const gpu::View views[] = {gpu::view(t0), gpu::view(t1)};
  stage_0_args a{
      static_cast<const float*>(t0.data),
      static_cast<const float*>(t1.data),
      static_cast<float*>(t2.data),
      dims.back(), gpu::space<2>(dims, views, 1), {}};
  a.step[0] = views[0].step(1);
  a.step[1] = views[1].step(1);
  return a;
}

// Whether all vectors are whole and aligned.
bool stage_0_packs(const stage_0_args& a) {
  bool packed = a.space.small && a.length % 4 == 0;
  packed = packed && gpu::packs<4>(a.space, 0, a.step[0], a.in0);
  packed = packed && gpu::packs<4>(a.space, 1, a.step[1], a.in1);
  packed = packed && gpu::aligned<4>(a.out0);
  return packed;
}

void stage_0(const gpu::Device& device, cudaStream_t stream, const Ints& dims, const gpu::Tensor& t0, const gpu::Tensor& t1, const gpu::Tensor& t2) {
  const stage_0_args a = stage_0_of(dims, t0, t1, t2);
  if (a.space.count == 0) return;
  const bool packed = stage_0_packs(a);
  if (a.length <= 128) return gpu::launch_rows<4, 1, 32>(packed ? stage_0_kept<1, 32, true> : stage_0_kept<1, 32, false>, device, a.space.count, a.length, stream, "stage_0", a);
  if (packed && a.space.count <= device.multiprocessors && a.length <= 2048) {
    return gpu::launch_rows<4, 1, 512>(a.space.rank <= 1 ? stage_0_kept<1, 512, true, true> : stage_0_kept<1, 512, true>, device, a.space.count, a.length, stream, "stage_0", a);
  }
  if (a.length <= 8192) return gpu::launch_rows<4, 4, 512>(packed ? stage_0_kept<4, 512, true> : stage_0_kept<4, 512, false>, device, a.space.count, a.length, stream, "stage_0", a);
  gpu::launch_rows<4, 2, 1024>(packed ? stage_0_walked<2, 1024, true> : stage_0_walked<2, 1024, false>, device, a.space.count, a.length, stream, "stage_0", a);
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

}  // namespace Softmax_kernels
using namespace Softmax_kernels;

FUSION_OP(Softmax, "CUDAExecutionProvider", kInputs, kOutputs, Kernel)

// Rotary: CUDA kernels of one fused operator.
// Rule: Test
// Original nodes:
#include "include/vector.cuh"
#include "ort/op.h"

namespace Rotary_kernels {

using fusion::Ints;
namespace gpu = fusion::gpu;
namespace host = fusion::host;

// stage_0.
//   RotaryEmbedding
struct stage_0_args {
  const float* in0;
  const float* in1;
  const float* in2;
  const float* in3;
  float* out0;
  float* out1;
  gpu::Space<6> space;
};

// A thread has kVectors vectors, all of which are asked for before the first is used. Packed, each is whole and aligned.
// `threads`: of a block.
template <int V, int kVectors, bool kPacked>
__device__ __forceinline__ void stage_0_vectors(const stage_0_args& a, unsigned block, int threads) {
  int64_t at[kVectors][6];
  gpu::Vector<float, V> x0[kVectors];
  gpu::Vector<float, V> x1[kVectors];
  gpu::Vector<float, V> x2[kVectors];
  gpu::Vector<float, V> x3[kVectors];
  const int64_t first = (static_cast<int64_t>(block) * kVectors * threads + threadIdx.x) * V;
#pragma unroll
  for (int u = 0; u < kVectors; ++u) a.space.template locate<kPacked>(first + u * threads * V, at[u]);
  gpu::await_earlier();
#pragma unroll
  for (int u = 0; u < kVectors; ++u) {
    const int valid = gpu::valid<V, kPacked>(a.space.count - first - u * threads * V);
    gpu::load_vector<V, kPacked>(a.in0 + at[u][0], a.space.axis[0].stride[0], valid, x0[u]);
    gpu::load_vector<V, kPacked>(a.in1 + at[u][1], a.space.axis[0].stride[1], valid, x1[u]);
    gpu::load_vector<V, kPacked>(a.in2 + at[u][2], a.space.axis[0].stride[2], valid, x2[u]);
    gpu::load_vector<V, kPacked>(a.in3 + at[u][3], a.space.axis[0].stride[3], valid, x3[u]);
  }
#pragma unroll
  for (int u = 0; u < kVectors; ++u) {
    const int64_t e = first + u * threads * V;
    const int valid = gpu::valid<V, kPacked>(a.space.count - e);
    gpu::Vector<float, V> y0{};
    gpu::Vector<float, V> y1{};
#pragma unroll
    for (int i = 0; i < V; ++i) {
      const float v0 = gpu::get(x0[u], i);
      const float v1 = gpu::get(x1[u], i);
      const float v2 = v0 * v1;
      const float v3 = gpu::get(x2[u], i);
      const float v4 = gpu::get(x3[u], i);
      const float v5 = v3 * v4;
      const float v6 = v2 - v5;
      const float v7 = v3 * v1;
      const float v8 = v0 * v4;
      const float v9 = v7 + v8;
      gpu::put(y0, i, v6);
      gpu::put(y1, i, v9);
    }
    gpu::store_vector<V, kPacked>(a.out0 + at[u][4], a.space.axis[0].stride[4], valid, y0);
    gpu::store_vector<V, kPacked>(a.out1 + at[u][5], a.space.axis[0].stride[5], valid, y1);
  }
}

template <int V, int kVectors, bool kPacked>
__global__ void __launch_bounds__(gpu::kPassThreads) stage_0_kernel(const stage_0_args a) {
  gpu::let_next_begin();
  stage_0_vectors<V, kVectors, kPacked>(a, blockIdx.x, blockDim.x);
}

stage_0_args stage_0_of(const Ints& dims, const gpu::Tensor& t0, const gpu::Tensor& t1, const gpu::Tensor& t2, const gpu::Tensor& t3, const gpu::Tensor& t4, const gpu::Tensor& t5) {
  const gpu::View views[] = {gpu::view(t0), gpu::view(t1), gpu::view(t2), gpu::view(t3), gpu::view(t4), gpu::view(t5)};
  return {
      static_cast<const float*>(t0.data),
      static_cast<const float*>(t1.data),
      static_cast<const float*>(t2.data),
      static_cast<const float*>(t3.data),
      static_cast<float*>(t4.data),
      static_cast<float*>(t5.data),
      gpu::space<6>(dims, views)};
}

// Whether all vectors are whole and aligned.
bool stage_0_packs(const stage_0_args& a) {
  bool packed = gpu::vectorizable(a.space, 4) && a.space.small && a.space.count % 4 == 0;
  packed = packed && gpu::packs<4>(a.space, 0, a.in0);
  packed = packed && gpu::packs<4>(a.space, 1, a.in1);
  packed = packed && gpu::packs<4>(a.space, 2, a.in2);
  packed = packed && gpu::packs<4>(a.space, 3, a.in3);
  packed = packed && gpu::packs<4>(a.space, 4, a.out0);
  packed = packed && gpu::packs<4>(a.space, 5, a.out1);
  return packed;
}

void stage_0(const gpu::Device& device, cudaStream_t stream, const Ints& dims, const gpu::Tensor& t0, const gpu::Tensor& t1, const gpu::Tensor& t2, const gpu::Tensor& t3, const gpu::Tensor& t4, const gpu::Tensor& t5) {
  const stage_0_args a = stage_0_of(dims, t0, t1, t2, t3, t4, t5);
  if (a.space.count == 0) return;
  const bool packed = stage_0_packs(a);
  if (packed && gpu::is_long(device, a.space.count / 4)) {
    gpu::launch_pass<4, 2>(stage_0_kernel<4, 2, true>, a.space.count, stream, "stage_0", a);
  } else if (gpu::vectorizable(a.space, 4)) {
    gpu::launch_pass<4, 1>(packed ? stage_0_kernel<4, 1, true> : stage_0_kernel<4, 1, false>, a.space.count, stream, "stage_0", a);
  } else {
    gpu::launch_pass<1, 1>(stage_0_kernel<1, 1, false>, a.space.count, stream, "stage_0", a);
  }
}


struct Kernel {
  gpu::Device device;

  Kernel(const fusion::Api& api, const OrtKernelInfo* info) {
    (void)api, (void)info;
  }

  void compute(fusion::Run& run) {
    // Shapes.
    const Ints h0 = run.dims(0, Ints{-1, 3, -1, 8});
    const Ints h1 = run.dims(1, Ints{-1, -1, 4});
    const Ints h2 = run.dims(2, Ints{-1, -1, 4});
    const Ints h3 = host::unsqueeze(h1, Ints{1});
    const Ints h4 = host::unsqueeze(h2, Ints{1});
    const Ints h5 = Ints{4};
    const Ints h6 = host::put(h0, h5, Ints{3});
    const Ints h7 = Ints{0, 0, 0, 0};
    const Ints h8 = Ints{1, 1, 1, 1};
    const Ints h9 = Ints{0, 0, 0, 4};
    const Ints h10 = Ints{8};
    const Ints h11 = host::put(h0, h10, Ints{3});

    // Memory.
    const cudaStream_t stream = static_cast<cudaStream_t>(run.stream());
    void* const output_0 = run.output(0, h11);
    const gpu::Tensor t0{const_cast<void*>(run.input(0)), &h0};
    const gpu::Tensor t1{const_cast<void*>(run.input(1)), &h1};
    const gpu::Tensor t2{const_cast<void*>(run.input(2)), &h2};
    const gpu::Tensor t3{output_0, &h11};
    const gpu::Tensor t4 = gpu::part<float>(t0, h6, h7, h8);
    const gpu::Tensor t5 = gpu::reshaped(t1, h3);
    const gpu::Tensor t6 = gpu::part<float>(t0, h6, h9, h8);
    const gpu::Tensor t7 = gpu::reshaped(t2, h4);
    const gpu::Tensor t8 = gpu::part<float>(t3, h6, h7, h8);
    const gpu::Tensor t9 = gpu::part<float>(t3, h6, h9, h8);

    // Kernels.
    stage_0(device, stream, h6, t4, t5, t6, t7, t8, t9);
  }
};

const fusion::Port kInputs[] = {{1, false}, {1, false}, {1, false}};
const fusion::Port kOutputs[] = {{1, false}};

}  // namespace Rotary_kernels
using namespace Rotary_kernels;

FUSION_OP(Rotary, "CUDAExecutionProvider", kInputs, kOutputs, Kernel)

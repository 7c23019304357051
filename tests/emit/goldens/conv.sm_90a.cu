// Conv: CUDA kernels of one fused operator.
// Rule: Test
// Original nodes:
#include "include/conv.cuh"
#include "include/vector.cuh"
#include "include/workspace.cuh"
#include "ort/op.h"

namespace {

using fusion::Ints;
namespace gpu = fusion::gpu;
namespace host = fusion::host;

// stage_0.
//   Conv
//   HardSwish
struct stage_0_pass_args {
  const float* in3;
  float* out0;
  gpu::Space<1> space;
};

template <int V>
__global__ void __launch_bounds__(gpu::kPointwiseThreads) stage_0_pass_kernel(const stage_0_pass_args a) {
  gpu::let_next_begin();
  gpu::await_earlier();
  const int64_t stride = static_cast<int64_t>(gridDim.x) * blockDim.x * V;
  for (int64_t e = (static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) * V; e < a.space.count; e += stride) {
    const int valid = a.space.count - e < V ? static_cast<int>(a.space.count - e) : V;
    int64_t at[1];
    a.space.locate(e, at);
    float x3[V];
    gpu::load_vector(a.in3 + at[0], a.space.stride[0][0], valid, x3);
    float y0[V];
#pragma unroll
    for (int i = 0; i < V; ++i) {
      const float v0 = x3[i];
      const float v2 = v0 * 0.166666667f;
      const float v4 = v2 + 0.5f;
      const float v6 = fusion::max(v4, 0.0f);
      const float v8 = fusion::min(v6, 1.0f);
      const float v9 = v0 * v8;
      y0[i] = v9;
    }
    gpu::store_vector(a.out0 + e, 1, valid, y0);
  }
}

void stage_0_pass(const gpu::Device& device, cudaStream_t stream, const Ints& dims, const gpu::Tensor& product, const gpu::Tensor& t0, const gpu::Tensor& t1, const gpu::Tensor& t2, const gpu::Tensor& t3) {
  const gpu::View views[] = {gpu::view(product)};
  const stage_0_pass_args a{
      static_cast<const float*>(product.data),
      static_cast<float*>(t3.data),
      gpu::space<1>(dims, views)};
  if (a.space.count == 0) return;
  const bool wide = gpu::vectorizable(a.space, 4);
  const auto kernel = wide ? stage_0_pass_kernel<4> : stage_0_pass_kernel<1>;
  const unsigned grid = gpu::pointwise_grid(device, a.space.count, wide ? 4 : 1);
  gpu::launch(kernel, grid, gpu::kPointwiseThreads, 0, stream, "stage_0_pass", a);
}

void stage_0(const gpu::Device& device, cudaStream_t stream, const Ints& dims, const gpu::Tensor& t0, const gpu::Tensor& t1, const gpu::Tensor& t2, const gpu::Tensor& t3, const fusion::Run& run, const gpu::Conv& convolve, void* accumulator) {
  if (fusion::count(dims) == 0) return;
  const gpu::Tensor product{accumulator, &dims};
  convolve(run, {t0, t1, t2, product}, sizeof(float));
  stage_0_pass(device, stream, dims, product, t0, t1, t2, t3);
}

// stage_1.
//   Conv
//   Add
struct stage_1_pass_args {
  const float* in2;
  const float* in3;
  float* out0;
  gpu::Space<2> space;
};

template <int V>
__global__ void __launch_bounds__(gpu::kPointwiseThreads) stage_1_pass_kernel(const stage_1_pass_args a) {
  gpu::let_next_begin();
  gpu::await_earlier();
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
  const bool wide = gpu::vectorizable(a.space, 4);
  const auto kernel = wide ? stage_1_pass_kernel<4> : stage_1_pass_kernel<1>;
  const unsigned grid = gpu::pointwise_grid(device, a.space.count, wide ? 4 : 1);
  gpu::launch(kernel, grid, gpu::kPointwiseThreads, 0, stream, "stage_1_pass", a);
}

void stage_1(const gpu::Device& device, cudaStream_t stream, const Ints& dims, const gpu::Tensor& t0, const gpu::Tensor& t1, const gpu::Tensor& t2, const gpu::Tensor& t3, const fusion::Run& run, const gpu::Conv& convolve, void* accumulator) {
  if (fusion::count(dims) == 0) return;
  const gpu::Tensor product{accumulator, &dims};
  convolve(run, {t0, t1, product}, sizeof(float));
  stage_1_pass(device, stream, dims, product, t0, t1, t2, t3);
}

struct Kernel {
  gpu::Device device;
  gpu::Workspace workspace;
  gpu::Conv convolution_0;
  gpu::Conv convolution_1;

  Kernel(const fusion::Api& api, const OrtKernelInfo* info)
      : convolution_0(api, info, 1, 3, {fusion::Ints{1, 1}, fusion::Ints{}, fusion::Ints{1, 1}, 8, "SAME_UPPER"}),
        convolution_1(api, info, 1, 2, {fusion::Ints{1, 1}, fusion::Ints{0, 0, 0, 0}, fusion::Ints{1, 1}, 1, "NOTSET"}) {
    (void)api, (void)info;
  }

  void compute(fusion::Run& run) {
    // Shapes.
    const Ints h0 = run.dims(0, Ints{-1, 8, -1, -1});
    const Ints h1 = run.dims(1, Ints{8, 1, 3, 3});
    const Ints h2 = run.dims(2, Ints{8});
    const Ints h3 = host::conv(h0, h1, Ints{2, 1, 1, 0, 0, 0, 0, 1, 1, 2});
    const Ints h4 = run.dims(3, Ints{8, 8, 1, 1});
    const Ints h5 = host::conv(h3, h4, Ints{2, 1, 1, 0, 0, 0, 0, 1, 1, 0});

    // Memory.
    const cudaStream_t stream = static_cast<cudaStream_t>(run.stream());
    void* const output_0 = run.output(0, h5);
    gpu::Layout layout;
    const size_t buffer_0 = layout.add(gpu::largest({gpu::bytes<float>(h3)}));
    char* const work = workspace.reserve(stream, layout.size());
    const gpu::Tensor t0{const_cast<void*>(run.input(0)), &h0};
    const gpu::Tensor t1{const_cast<void*>(run.input(1)), &h1};
    const gpu::Tensor t2{const_cast<void*>(run.input(2)), &h2};
    const gpu::Tensor t3{const_cast<void*>(run.input(3)), &h4};
    const gpu::Tensor t4{output_0, &h5};
    const gpu::Tensor t5{work + buffer_0, &h3};

    // Kernels.
    stage_0(device, stream, h3, t0, t1, t2, t5, run, convolution_0, t5.data);
    stage_1(device, stream, h5, t5, t3, t0, t4, run, convolution_1, t4.data);
  }
};

const fusion::Port kInputs[] = {{1, false}, {1, false}, {1, false}, {1, false}};
const fusion::Port kOutputs[] = {{1, false}};

}  // namespace

FUSION_OP(Conv, "CUDAExecutionProvider", kInputs, kOutputs, Kernel)

// AttentionFloat16: CUDA kernels of one fused operator.
// Rule: Test
// Original nodes:
#include "include/attention_decode.cuh"
#include "include/attention_ring.cuh"
#include "include/attention_short.cuh"
#include "include/attention_wgmma.cuh"
#include "include/workspace.cuh"
#include "ort/op.h"

namespace AttentionFloat16_kernels {

using fusion::Ints;
namespace gpu = fusion::gpu;
namespace host = fusion::host;

// stage_0.
//   Attention
struct stage_0_program {
  static constexpr bool kCausal = true;  // keys later than the query score -inf
  static constexpr bool kBare = true;    // all others score the scaled product itself
  static constexpr bool kLowers = false;  // and later ones that lowered by, or if firm:
  static constexpr float kLater = -INFINITY;
  static constexpr bool kSink = false;    // a row has one score more, without a key
  static constexpr bool kByKey = false;   // what is hidden depends on the operands and the key
  static constexpr bool kSorted = false;  // on the query besides: tiles are sorted beforehand
  static constexpr bool kSmall = true;   // scores are far from the largest float
  static constexpr bool kFirm = false;    // what is hidden scores the same whatever the product

  // What the operands hold for a query and a key.
  struct Element {
    const stage_0_program& of;
    const int64_t (&at)[4];
    int row, column;
  };

  // What those of the scores hold for a query and V neighbouring keys.
  template <int V>
  struct Strip {
    struct Element {
      const Strip& of;
      int i;
    };

    __device__ __forceinline__ Element operator[](int i) const { return {*this, i}; }

    __device__ __forceinline__ bool same(const Strip& other) const {
      return true;
    }

    // As gpu::Strip does.
    __device__ __forceinline__ void read(const stage_0_program& p, const int64_t (&at)[4], int row, int column, int valid) {
    }

    // The same where `is_whole`.
    __device__ __forceinline__ void read_whole(const stage_0_program& p, const int64_t (&at)[4], int row, int column) {
    }
  };
  __device__ __forceinline__ bool is_whole(const int64_t (&at)[4]) const {
    return true;
  }
  __host__ __device__ __forceinline__ bool by_key() const { return true; }

  template <class X>
  __device__ __forceinline__ float score(float acc, const X& x, int64_t batch, int row, int column) const {
    const float v0 = acc;
    const int64_t v1 = column;
    const int64_t v2 = row;
    const bool v3 = v1 > v2;
    const float v5 = v3 ? (-fusion::inf<float>()) : v0;
    return v5;
  }
  template <class X>
  __device__ __forceinline__ float prob(float acc, const X& x, int64_t batch, int row, int column) const {
    return acc;
  }
  template <class X>
  __device__ __forceinline__ float sink(float acc, const X& x, int64_t batch, int row, int column) const {
    return acc;
  }
};

template <class Tile>
__global__ void __launch_bounds__(Tile::kThreads, Tile::kLeastBlocks)
    stage_0_kernel(const fusion::half* q, const fusion::half* k, const fusion::half* v, fusion::half* out,
                   const gpu::AttentionShape shape, const gpu::Space<4> batches,
                   const gpu::KeySplit split, const stage_0_program program) {
  gpu::await_earlier();
  gpu::attention_tensor<fusion::half, Tile, gpu::Prob::kIdentity>(q, k, v, out, shape, batches, split, program);
}

template <int kDepth, int kValueDepth>
__global__ void __launch_bounds__(gpu::kAttentionThreads)
    stage_0_decode(const fusion::half* q, const fusion::half* k, const fusion::half* v, fusion::half* out,
                   const gpu::AttentionShape shape, const gpu::Space<4> batches, const gpu::HeadGroup<4> group,
                   const gpu::KeySplit split, const stage_0_program program) {
  gpu::attention_decode<fusion::half, kDepth, kValueDepth, gpu::Prob::kIdentity>(q, k, v, out, shape, batches, group, split, program);
}

#if FUSION_HOPPER
template <int kHead, int kValueHead>
__global__ void __launch_bounds__((gpu::WarpgroupAttention<kHead, kValueHead, stage_0_program::kBare>::kThreads), 1)
    stage_0_warpgroups(const fusion::half* q, const fusion::half* k, const fusion::half* v, fusion::half* out,
                   const gpu::AttentionShape shape, const gpu::Space<4> batches, const gpu::TileMap map,
                   const stage_0_program program) {
  gpu::attention_wgmma<fusion::half, kHead, kValueHead, gpu::Prob::kIdentity>(q, k, v, out, shape, batches, map, program);
}

template <class Tile>
__global__ void __launch_bounds__(Tile::kThreads)
    stage_0_short(const fusion::half* q, const fusion::half* k, const fusion::half* v, fusion::half* out,
                  const gpu::AttentionShape shape, const gpu::Space<4> batches, const stage_0_program program) {
  gpu::attention_short<fusion::half, Tile, gpu::Prob::kIdentity>(q, k, v, out, shape, batches, program);
}

template <class Tile>
__global__ void __launch_bounds__(Tile::kThreads, Tile::kResident)
    stage_0_ring(const fusion::half* q, const fusion::half* k, const fusion::half* v, fusion::half* out,
                 const gpu::AttentionShape shape, const gpu::Space<4> batches, const stage_0_program program) {
  gpu::attention_ring<fusion::half, Tile, gpu::Prob::kIdentity>(q, k, v, out, shape, batches, program);
}

#endif

// Once per kernel instance: a block's tiles may need more shared memory than is given without asking.
void stage_0_prepare(const gpu::Device& device) {
  gpu::allow_shared_memory(device, stage_0_kernel<gpu::AttentionTile<fusion::half, 64, 64, stage_0_program::kBare, true>>, gpu::AttentionTile<fusion::half, 64, 64, stage_0_program::kBare, true>::kBytes);
  if (gpu::fits<gpu::DecodeTile<64, 64>>(device)) {
    gpu::allow_shared_memory(device, stage_0_decode<64, 64>, gpu::DecodeTile<64, 64>::kBytes);
  }
#if FUSION_HOPPER
  gpu::allow_shared_memory(device, stage_0_short<gpu::ShortAttention<64, 64, stage_0_program::kBare, 1>>, gpu::ShortAttention<64, 64, stage_0_program::kBare, 1>::kBytes);
  gpu::allow_shared_memory(device, stage_0_short<gpu::ShortAttention<64, 64, stage_0_program::kBare, 2>>, gpu::ShortAttention<64, 64, stage_0_program::kBare, 2>::kBytes);
  gpu::allow_shared_memory(device, stage_0_ring<gpu::RingAttention<64, 64, stage_0_program::kBare, false>>, gpu::RingAttention<64, 64, stage_0_program::kBare, false>::kBytes);
  gpu::allow_shared_memory(device, stage_0_warpgroups<64, 64>, gpu::WarpgroupAttention<64, 64, stage_0_program::kBare>::kBytes);
#endif
}

struct stage_0_args {
  const fusion::half *q, *k, *v;
  fusion::half* out;
  gpu::AttentionShape shape;
  gpu::Space<4> batches;
  stage_0_program program;
};

stage_0_args stage_0_of(const Ints& dims, const gpu::Tensor& t0, const gpu::Tensor& t1, const gpu::Tensor& t2, const gpu::Tensor& t3) {
  const gpu::View q = gpu::view(t0), k = gpu::view(t1), v = gpu::view(t2), out = gpu::view(t3);
  const gpu::View views[] = {q, k, v, out};
  const stage_0_program program{};
  return {static_cast<const fusion::half*>(t0.data), static_cast<const fusion::half*>(t1.data),
          static_cast<const fusion::half*>(t2.data), static_cast<fusion::half*>(t3.data),
          gpu::attention_shape(q, k, v, out, 0.125f), gpu::space<4>(dims, views, 2), program};
}

void stage_0(const gpu::Device& device, cudaStream_t stream, const Ints& dims, const gpu::Tensor& t0, const gpu::Tensor& t1, const gpu::Tensor& t2, const gpu::Tensor& t3, void* parts, unsigned* done) {
  (void)device;
  const gpu::View q = gpu::view(t0), k = gpu::view(t1), v = gpu::view(t2), out = gpu::view(t3);
  const gpu::View views[] = {q, k, v, out};
  auto [q_data, k_data, v_data, out_data, shape, batches, program] = stage_0_of(dims, t0, t1, t2, t3);
  shape.turns.together = gpu::taking_turns(device, shape, batches, sizeof(fusion::half));
  if (shape.depth <= 64 && shape.value_depth <= 64) {
    using Tile = gpu::AttentionTile<fusion::half, 64, 64, stage_0_program::kBare, true>;
    const unsigned grid = gpu::attention_grid(shape, batches.count, Tile::kRows, "stage_0");
    if (grid == 0) return;
#if FUSION_HOPPER
    using Short1 = gpu::ShortAttention<64, 64, stage_0_program::kBare, 1>;
    if (Short1::takes(shape, q, k, v, {q_data, k_data, v_data})) {
      shape.lay_out(batches.count, Short1::kRows);
      gpu::launch(stage_0_short<Short1>, gpu::attention_grid(shape, batches.count, Short1::kRows, "stage_0"), Short1::kThreads,
                  Short1::kBytes, stream, "stage_0", q_data, k_data, v_data, out_data, shape, batches, program);
      return;
    }
    using Short2 = gpu::ShortAttention<64, 64, stage_0_program::kBare, 2>;
    if (Short2::takes(shape, q, k, v, {q_data, k_data, v_data})) {
      shape.lay_out(batches.count, Short2::kRows);
      gpu::launch(stage_0_short<Short2>, gpu::attention_grid(shape, batches.count, Short2::kRows, "stage_0"), Short2::kThreads,
                  Short2::kBytes, stream, "stage_0", q_data, k_data, v_data, out_data, shape, batches, program);
      return;
    }
    using Apart = gpu::RingAttention<64, 64, stage_0_program::kBare, false>;
    if (Apart::takes(shape, q, k, v, {q_data, k_data, v_data})) {
      shape.lay_out(batches.count, Apart::kRows);
      gpu::launch(stage_0_ring<Apart>, gpu::attention_grid(shape, batches.count, Apart::kRows, "stage_0"), Apart::kThreads,
                  Apart::kBytes, stream, "stage_0", q_data, k_data, v_data, out_data, shape, batches, program);
      return;
    }
    using Groups = gpu::WarpgroupAttention<64, 64, stage_0_program::kBare>;
    if (Groups::takes(shape, q, k, v, {q_data, k_data, v_data})) {
      gpu::TileMap map{};
      shape.turns.together = Groups::balanced(device, shape, batches.count);
      shape.lay_out(batches.count, Groups::kRows);
      gpu::launch(stage_0_warpgroups<64, 64>, Groups::grid(device, shape, batches.count), Groups::kThreads, Groups::kBytes,
                  stream, "stage_0", q_data, k_data, v_data, out_data, shape, batches, map, program);
      return;
    }
#endif
    using Decode = gpu::DecodeTile<64, 64>;
    if (Decode::takes(device, shape, q, k, v, {q_data, k_data, v_data})) {
      const gpu::HeadGroup<4> group = gpu::head_group<4>(dims, views);
      const gpu::DecodeGrid few = gpu::decode_grid(dims, group.size);
      const gpu::KeySplit split = gpu::key_split(device, few.blocks, few.rows, shape.keys, parts, done);
      gpu::launch(stage_0_decode<64, 64>, dim3(gpu::grid_size(few.blocks, "stage_0"), split.count),
                  gpu::kAttentionThreads, Decode::kBytes, stream, "stage_0", q_data, k_data, v_data, out_data, shape,
                  gpu::space<4>(dims, views, group.size > 1 ? 3 : 2), group, split, program);
      return;
    }
    const gpu::KeySplit split = gpu::key_split(device, batches.count, shape.queries, shape.keys, parts, done);
    shape.lay_out(batches.count, Tile::kRows);
    gpu::launch(stage_0_kernel<Tile>, dim3(grid, split.count), Tile::kThreads, Tile::kBytes,
                stream, "stage_0", q_data, k_data, v_data, out_data, shape, batches, split, program);
    return;
  }
  throw fusion::Error("stage_0: the head dimension is larger than 64");
}

struct Kernel {
  gpu::Device device;
  gpu::Workspace workspace;

  Kernel(const fusion::Api& api, const OrtKernelInfo* info) {
    (void)api, (void)info;
    stage_0_prepare(device);
  }

  void compute(fusion::Run& run) {
    // Shapes.
    const Ints h0 = run.dims(0, Ints{-1, 4, -1, 64});
    const Ints h1 = run.dims(1, Ints{-1, 4, -1, 64});
    const Ints h2 = run.dims(2, Ints{-1, 4, -1, 64});
    const Ints h3 = host::permute(h1, Ints{0, 1, 3, 2});
    const Ints h4 = host::matmul(h0, h3);
    const Ints h5 = host::matmul(h4, h2);

    // Memory.
    const cudaStream_t stream = static_cast<cudaStream_t>(run.stream());
    void* const output_0 = run.output(0, h5);
    gpu::Layout layout;
    const size_t parts_0 = layout.add(gpu::largest({gpu::attention_part_bytes(device, h5, h1, h2)}));
    char* const work = workspace.reserve(stream, layout.size());
    const gpu::Tensor t0{const_cast<void*>(run.input(0)), &h0};
    const gpu::Tensor t1{const_cast<void*>(run.input(1)), &h1};
    const gpu::Tensor t2{const_cast<void*>(run.input(2)), &h2};
    const gpu::Tensor t3{output_0, &h5};

    // Kernels.
    stage_0(device, stream, h5, t0, t1, t2, t3, work + parts_0, gpu::counters(work));
  }
};

const fusion::Port kInputs[] = {{10, false}, {10, false}, {10, false}};
const fusion::Port kOutputs[] = {{10, false}};

}  // namespace AttentionFloat16_kernels
using namespace AttentionFloat16_kernels;

FUSION_OP(AttentionFloat16, "CUDAExecutionProvider", kInputs, kOutputs, Kernel)

// Host side of every CUDA stage: the GPU, launches and their errors; and what all kernels have in common.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <string>

#include "include/scalar.h"
#include "include/views.cuh"

// Whether GPUs of this build can start a kernel before the one before it has ended.
#if defined(__CUDA_ARCH_LIST__)
#define FUSION_OVERLAPS (__CUDA_ARCH_LIST__ >= 900)
#else
#define FUSION_OVERLAPS 0
#endif

namespace fusion::gpu {

inline void check(cudaError_t status, const char* what) {
  if (status != cudaSuccess) throw Error(std::string(what) + ": " + cudaGetErrorString(status));
}

// What the choice between kernels asks of a GPU.
struct Chip {
  int multiprocessors = 0;
  int cache = 0;          // bytes of L2
  int shared_memory = 0;  // bytes one block may opt in to
};

// GPUs of compute capability 9.0: H20, H100 as a PCIe card, H100, H200, GH200.
constexpr int kHopperShared = 227 << 10;
constexpr Chip kHoppers[] = {{78, 60 << 20, kHopperShared}, {114, 50 << 20, kHopperShared}, {132, 50 << 20, kHopperShared},
                             {132, 60 << 20, kHopperShared}, {144, 60 << 20, kHopperShared}};

struct Device : Chip {
  Device() {
    int id = 0;
    check(cudaGetDevice(&id), "cudaGetDevice");
    check(cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, id), "cudaDeviceGetAttribute");
    check(cudaDeviceGetAttribute(&shared_memory, cudaDevAttrMaxSharedMemoryPerBlockOptin, id),
          "cudaDeviceGetAttribute");
    check(cudaDeviceGetAttribute(&cache, cudaDevAttrL2CacheSize, id), "cudaDeviceGetAttribute");
  }
};

// Lets `kernel` have `bytes` of dynamic shared memory, as many blocks at once as fit; what every kernel may have needs
// no asking.
template <class Kernel>
void allow_shared_memory(const Device& device, Kernel* kernel, size_t bytes) {
  constexpr size_t kAlways = 48 * 1024;
  if (bytes > static_cast<size_t>(device.shared_memory)) throw Error("a kernel needs more shared memory than there is");
  if (bytes <= kAlways) return;
  check(cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel), cudaFuncAttributeMaxDynamicSharedMemorySize,
                             static_cast<int>(bytes)),
        "cudaFuncSetAttribute");
  check(cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel), cudaFuncAttributePreferredSharedMemoryCarveout,
                             cudaSharedmemCarveoutMaxShared),
        "cudaFuncSetAttribute");
}

// What every kernel waits for before it reads anything that another kernel writes, or writes anything: what was launched before
// it has ended and is there to be read. `launch` starts kernels while those before them still run, so that their blocks stand ready; `let_next_begin` says when the next one's may come,
// which without it is when all blocks have ended.
__device__ __forceinline__ void await_earlier() {
#if FUSION_OVERLAPS
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
__device__ __forceinline__ void let_next_begin() {
#if FUSION_OVERLAPS
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}
// Has addresses worked out by now, before a kernel waits for others: for that it reads its parameters, line by line from memory, at once and
// not as each is used. Not all are 0, of which the compiler knows nothing.
template <class... T>
__device__ __forceinline__ void resolve([[maybe_unused]] const T*... places) {
#if FUSION_OVERLAPS
  const uint64_t all = (reinterpret_cast<uint64_t>(places) | ...);
  asm volatile("{\n.reg .pred none;\nsetp.eq.u64 none, %0, 0;\n@none exit;\n}\n" ::"l"(all));
#endif
}
// Has what lies there come to the L2 cache.
__device__ __forceinline__ void bring_to_cache(const void* p) { asm volatile("prefetch.global.L2 [%0];" ::"l"(p)); }

// Blocks go together by `cluster`, which is 1 on GPUs without clusters; `at_once`: none runs before there is room for all.
template <class... Parameters, class... Arguments>
void launch_as(void (*kernel)(Parameters...), dim3 grid, unsigned cluster, bool at_once, unsigned threads, size_t shared,
               cudaStream_t stream, const char* what, const Arguments&... arguments) {
  cudaLaunchAttribute attributes[2]{};
  cudaLaunchConfig_t config{};
#if FUSION_OVERLAPS
  attributes[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attributes[0].val.programmaticStreamSerializationAllowed = 1;
  attributes[1].id = at_once ? cudaLaunchAttributeCooperative : cudaLaunchAttributeClusterDimension;
  if (at_once) attributes[1].val.cooperative = 1;
  else attributes[1].val.clusterDim = {cluster, 1, 1};
  config.numAttrs = 1 + (at_once || cluster > 1);
#endif
  config.gridDim = grid;
  config.blockDim = dim3(threads);
  config.dynamicSmemBytes = shared;
  config.stream = stream;
  config.attrs = attributes;
  check(cudaLaunchKernelEx(&config, kernel, static_cast<Parameters>(arguments)...), what);
}
template <class... Parameters, class... Arguments>
void launch_clusters(void (*kernel)(Parameters...), dim3 grid, unsigned cluster, unsigned threads, size_t shared,
                     cudaStream_t stream, const char* what, const Arguments&... arguments) {
  launch_as(kernel, grid, cluster, false, threads, shared, stream, what, arguments...);
}
template <class... Parameters, class... Arguments>
void launch_at_once(void (*kernel)(Parameters...), dim3 grid, unsigned threads, size_t shared, cudaStream_t stream,
                    const char* what, const Arguments&... arguments) {
  launch_as(kernel, grid, 1, true, threads, shared, stream, what, arguments...);
}
template <class... Parameters, class... Arguments>
void launch(void (*kernel)(Parameters...), dim3 grid, unsigned threads, size_t shared, cudaStream_t stream, const char* what,
            const Arguments&... arguments) {
  launch_as(kernel, grid, 1, false, threads, shared, stream, what, arguments...);
}

// Has a value worked out here and kept in a register.
template <class T>
__device__ __forceinline__ void keep(T& x) {
  if constexpr (sizeof(T) == 8) {
    asm volatile("" : "+l"(x));
  } else {
    asm volatile("" : "+r"(x));
  }
}

// The larger one, NaN if one is.
__device__ __forceinline__ float max_nan(float x, float y) {
  float z;
  asm("max.NaN.f32 %0, %1, %2;\n" : "=f"(z) : "f"(x), "f"(y));
  return z;
}

// The smaller one, NaN if one is.
__device__ __forceinline__ float min_nan(float x, float y) {
  float z;
  asm("min.NaN.f32 %0, %1, %2;\n" : "=f"(z) : "f"(x), "f"(y));
  return z;
}

constexpr int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

// A size or a stride in 32 bits, with which an address is one instruction.
inline int narrow(int64_t size) {
  if (size > INT32_MAX) throw Error("an operand is too large for 32-bit offsets");
  return static_cast<int>(size);
}

inline unsigned grid_size(int64_t blocks, const char* what) {
  if (blocks > INT32_MAX) throw Error(std::string(what) + ": the tensor is too large for one launch");
  return static_cast<unsigned>(blocks);
}

}  // namespace fusion::gpu

// The part of ONNX Runtime's C ABI that a custom-op library uses.
//
// OrtApi is an append-only table of function pointers: a slot never moves, so calling by number works with every
// runtime that is at least as new as the newest slot used. Slots up to 277 exist since ONNX Runtime 1.18.
#pragma once

#include <cstddef>
#include <cstdint>

extern "C" {
struct OrtStatus;
struct OrtValue;
struct OrtKernelInfo;
struct OrtKernelContext;
struct OrtShapeInferContext;
struct OrtMemoryInfo;
struct OrtAllocator;
struct OrtSessionOptions;
struct OrtCustomOpDomain;
struct OrtTensorTypeAndShapeInfo;
struct OrtOp;
struct OrtOpAttr;
struct OrtLogger;

struct OrtApi {
  void (*slot[279])();
};

struct OrtApiBase {
  const OrtApi* (*GetApi)(uint32_t version);  // null if the runtime is older than `version`
  const char* (*GetVersionString)();
};

struct OrtCustomOp {
  uint32_t version;
  void* (*CreateKernel)(const OrtCustomOp*, const OrtApi*, const OrtKernelInfo*);
  const char* (*GetName)(const OrtCustomOp*);
  const char* (*GetExecutionProviderType)(const OrtCustomOp*);
  int (*GetInputType)(const OrtCustomOp*, size_t);
  size_t (*GetInputTypeCount)(const OrtCustomOp*);
  int (*GetOutputType)(const OrtCustomOp*, size_t);
  size_t (*GetOutputTypeCount)(const OrtCustomOp*);
  void (*KernelCompute)(void*, OrtKernelContext*);
  void (*KernelDestroy)(void*);
  int (*GetInputCharacteristic)(const OrtCustomOp*, size_t);
  int (*GetOutputCharacteristic)(const OrtCustomOp*, size_t);
  int (*GetInputMemoryType)(const OrtCustomOp*, size_t);
  int (*GetVariadicInputMinArity)(const OrtCustomOp*);
  int (*GetVariadicInputHomogeneity)(const OrtCustomOp*);
  int (*GetVariadicOutputMinArity)(const OrtCustomOp*);
  int (*GetVariadicOutputHomogeneity)(const OrtCustomOp*);
  OrtStatus* (*CreateKernelV2)(const OrtCustomOp*, const OrtApi*, const OrtKernelInfo*, void**);
  OrtStatus* (*KernelComputeV2)(void*, OrtKernelContext*);
  OrtStatus* (*InferOutputShapeFn)(const OrtCustomOp*, OrtShapeInferContext*);
  int (*GetStartVersion)(const OrtCustomOp*);
  int (*GetEndVersion)(const OrtCustomOp*);
  size_t (*GetMayInplace)(int**, int**);
  void (*ReleaseMayInplace)(int*, int*);
  size_t (*GetAliasMap)(int**, int**);
  void (*ReleaseAliasMap)(int*, int*);
};
}
static_assert(sizeof(void*) != 8 || sizeof(OrtCustomOp) == 208, "OrtCustomOp does not have ONNX Runtime's layout");

// Always inlined: the registration file is compiled for an older processor than the kernels, and an out-of-line copy
// shared by the linker could bring in instructions that the machine lacks before that has been checked.
#define FUSION_INLINE __attribute__((always_inline)) inline

namespace fusion {

constexpr uint32_t kApiVersion = 18;  // the lowest that has every slot below
constexpr int kStatusFail = 1;
constexpr int kStatusRuntimeException = 6;

class Api {
 public:
  FUSION_INLINE explicit Api(const OrtApi* table) : table_(table) {}

  FUSION_INLINE OrtStatus* CreateStatus(int code, const char* text) const { return call<OrtStatus*>(0, code, text); }
  FUSION_INLINE const char* GetErrorMessage(const OrtStatus* status) const { return call<const char*>(2, status); }
  FUSION_INLINE OrtStatus* CreateCustomOpDomain(const char* name, OrtCustomOpDomain** out) const { return call(26, name, out); }
  FUSION_INLINE OrtStatus* CustomOpDomain_Add(OrtCustomOpDomain* domain, const OrtCustomOp* op) const { return call(27, domain, op); }
  FUSION_INLINE OrtStatus* AddCustomOpDomain(OrtSessionOptions* options, OrtCustomOpDomain* domain) const {
    return call(28, options, domain);
  }
  FUSION_INLINE OrtStatus* CreateTensorWithDataAsOrtValue(const OrtMemoryInfo* memory, void* data, size_t bytes, const int64_t* dims,
                                            size_t rank, int type, OrtValue** out) const {
    return call(49, memory, data, bytes, dims, rank, type, out);
  }
  FUSION_INLINE OrtStatus* GetTensorMutableData(OrtValue* value, void** out) const { return call(51, value, out); }
  FUSION_INLINE OrtStatus* GetTensorElementType(const OrtTensorTypeAndShapeInfo* info, int* out) const { return call(60, info, out); }
  FUSION_INLINE OrtStatus* GetDimensionsCount(const OrtTensorTypeAndShapeInfo* info, size_t* out) const {
    return call(61, info, out);
  }
  FUSION_INLINE OrtStatus* GetDimensions(const OrtTensorTypeAndShapeInfo* info, int64_t* dims, size_t rank) const {
    return call(62, info, dims, rank);
  }
  FUSION_INLINE OrtStatus* GetTensorTypeAndShape(const OrtValue* value, OrtTensorTypeAndShapeInfo** out) const {
    return call(65, value, out);
  }
  FUSION_INLINE OrtStatus* CreateCpuMemoryInfo(int allocator, int type, OrtMemoryInfo** out) const {
    return call(69, allocator, type, out);
  }
  FUSION_INLINE OrtStatus* AllocatorAlloc(OrtAllocator* allocator, size_t bytes, void** out) const {
    return call(75, allocator, bytes, out);
  }
  FUSION_INLINE OrtStatus* AllocatorFree(OrtAllocator* allocator, void* data) const { return call(76, allocator, data); }
  FUSION_INLINE OrtStatus* AllocatorGetInfo(const OrtAllocator* allocator, const OrtMemoryInfo** out) const {
    return call(77, allocator, out);
  }
  FUSION_INLINE OrtStatus* KernelContext_GetInput(const OrtKernelContext* context, size_t i, const OrtValue** out) const {
    return call(90, context, i, out);
  }
  FUSION_INLINE OrtStatus* KernelContext_GetOutput(OrtKernelContext* context, size_t i, const int64_t* dims, size_t rank,
                                     OrtValue** out) const {
    return call(91, context, i, dims, rank, out);
  }
  FUSION_INLINE void ReleaseStatus(OrtStatus* status) const { call<void>(93, status); }
  FUSION_INLINE void ReleaseMemoryInfo(OrtMemoryInfo* info) const { call<void>(94, info); }
  FUSION_INLINE void ReleaseValue(OrtValue* value) const { call<void>(96, value); }
  FUSION_INLINE void ReleaseTensorTypeAndShapeInfo(OrtTensorTypeAndShapeInfo* info) const { call<void>(99, info); }
  FUSION_INLINE OrtStatus* KernelContext_GetGPUComputeStream(const OrtKernelContext* context, void** out) const {
    return call(193, context, out);
  }
  FUSION_INLINE OrtStatus* CreateOpAttr(const char* name, const void* data, int length, int type, OrtOpAttr** out) const {
    return call(211, name, data, length, type, out);
  }
  FUSION_INLINE void ReleaseOpAttr(OrtOpAttr* attribute) const { call<void>(212, attribute); }
  FUSION_INLINE OrtStatus* CreateOp(const OrtKernelInfo* info, const char* name, const char* domain, int version,
                      const char** constraints, const int* types, int n_constraints, const OrtOpAttr* const* attributes,
                      int n_attributes, int n_inputs, int n_outputs, OrtOp** out) const {
    return call(213, info, name, domain, version, constraints, types, n_constraints, attributes, n_attributes, n_inputs,
                n_outputs, out);
  }
  FUSION_INLINE OrtStatus* InvokeOp(const OrtKernelContext* context, const OrtOp* op, const OrtValue* const* inputs, int n_inputs,
                      OrtValue* const* outputs, int n_outputs) const {
    return call(214, context, op, inputs, n_inputs, outputs, n_outputs);
  }
  FUSION_INLINE void ReleaseOp(OrtOp* op) const { call<void>(215, op); }
  FUSION_INLINE OrtStatus* KernelInfo_GetNodeName(const OrtKernelInfo* info, char* out, size_t* size) const {
    return call(244, info, out, size);
  }
  FUSION_INLINE OrtStatus* KernelContext_GetLogger(const OrtKernelContext* context, const OrtLogger** out) const {
    return call(246, context, out);
  }
  FUSION_INLINE OrtStatus* Logger_LogMessage(const OrtLogger* logger, int severity, const char* text, const char* file, int line,
                                             const char* function) const {
    return call(247, logger, severity, text, file, line, function);
  }
  FUSION_INLINE OrtStatus* KernelInfoGetConstantInput_tensor(const OrtKernelInfo* info, size_t i, int* is_constant,
                                               const OrtValue** out) const {
    return call(249, info, i, is_constant, out);
  }
  FUSION_INLINE OrtStatus* KernelContext_GetResource(const OrtKernelContext* context, int version, int id, void** out) const {
    return call(265, context, version, id, out);
  }
  FUSION_INLINE OrtStatus* KernelContext_ParallelFor(const OrtKernelContext* context, void (*body)(void*, size_t), size_t total,
                                       size_t batches, void* user) const {
    return call(274, context, body, total, batches, user);
  }
  FUSION_INLINE OrtStatus* KernelContext_GetScratchBuffer(const OrtKernelContext* context, const OrtMemoryInfo* memory, size_t bytes,
                                            void** out) const {
    return call(277, context, memory, bytes, out);
  }
  FUSION_INLINE OrtStatus* KernelInfoGetAllocator(const OrtKernelInfo* info, int memory_type, OrtAllocator** out) const {
    return call(278, info, memory_type, out);
  }

 private:
  template <class Result = OrtStatus*, class... Args>
  FUSION_INLINE Result call(int slot, Args... args) const {
    return reinterpret_cast<Result (*)(Args...)>(table_->slot[slot])(args...);
  }

  const OrtApi* table_;
};

}  // namespace fusion

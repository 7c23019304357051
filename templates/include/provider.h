// What ONNX Runtime's CUDA provider lends to operators: its libraries' handles, and what its options allow.
#pragma once

#include "ort/abi.h"

namespace fusion::gpu {

// One of ONNX Runtime's resources, by its number.
inline bool obtain(const Api& api, const OrtKernelContext* context, int id, void** out) {
  constexpr int kVersion = 3;
  OrtStatus* status = api.KernelContext_GetResource(context, kVersion, id, out);
  if (status != nullptr) api.ReleaseStatus(status);
  return status == nullptr;
}

// Whether products of float32 may round their operands to TF32: the provider's option use_tf32, which is on unless a
// session says otherwise.
inline bool allows_tf32(const Api& api, const OrtKernelContext* context) {
  constexpr int kUseTf32 = 10011;
  void* allowed = nullptr;
  return obtain(api, context, kUseTf32, &allowed) && allowed != nullptr;
}

}  // namespace fusion::gpu

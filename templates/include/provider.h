// What ONNX Runtime's CUDA provider lends to operators: its libraries' handles, what its options allow, and the session's log.
#pragma once

#include <string>

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

// The log of the session that a call belongs to.
class Log {
 public:
  Log() = default;
  Log(const Api& api, const OrtKernelContext* context) : api_(&api), context_(context) {}

  // What somebody sees who asks for information; a log that cannot be had is no failure.
  void operator()(const std::string& text) const {
    constexpr int kInfo = 1;
    const OrtLogger* logger = nullptr;
    if (api_ == nullptr) return;
    OrtStatus* status = api_->KernelContext_GetLogger(context_, &logger);
    if (status == nullptr) status = api_->Logger_LogMessage(logger, kInfo, text.c_str(), "fusion-cli", 0, "trial");
    if (status != nullptr) api_->ReleaseStatus(status);
  }

 private:
  const Api* api_ = nullptr;
  const OrtKernelContext* context_ = nullptr;
};

}  // namespace fusion::gpu

// What examples/deploy/run.cpp needs of ONNX Runtime's header of this name, which no wheel brings: OrtApi is a table that
// only grows, so that functions are where they are in every version.
#pragma once

#include <cstddef>
#include <cstdint>

#define ORT_API_VERSION 18

enum { ORT_LOGGING_LEVEL_WARNING = 2, OrtArenaAllocator = 1, OrtMemTypeDefault = 0, ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT = 1 };

struct OrtEnv;
struct OrtStatus;
struct OrtValue;
struct OrtSession;
struct OrtSessionOptions;
struct OrtRunOptions;
struct OrtMemoryInfo;

#ifdef _WIN32
typedef wchar_t ORTCHAR_T;
#else
typedef char ORTCHAR_T;
#endif

struct OrtApi {
  void* slots_0[2];
  const char* (*GetErrorMessage)(const OrtStatus*);
  OrtStatus* (*CreateEnv)(int, const char*, OrtEnv**);
  void* slots_4[3];
  OrtStatus* (*CreateSession)(const OrtEnv*, const ORTCHAR_T*, const OrtSessionOptions*, OrtSession**);
  void* slots_8[1];
  OrtStatus* (*Run)(OrtSession*, const OrtRunOptions*, const char* const*, const OrtValue* const*, size_t,
                    const char* const*, size_t, OrtValue**);
  OrtStatus* (*CreateSessionOptions)(OrtSessionOptions**);
  void* slots_11[38];
  OrtStatus* (*CreateTensorWithDataAsOrtValue)(const OrtMemoryInfo*, void*, size_t, const int64_t*, size_t, int,
                                               OrtValue**);
  void* slots_50[1];
  OrtStatus* (*GetTensorMutableData)(OrtValue*, void**);
  void* slots_52[17];
  OrtStatus* (*CreateCpuMemoryInfo)(int, int, OrtMemoryInfo**);
  void* slots_70[22];
  void (*ReleaseEnv)(OrtEnv*);
  void (*ReleaseStatus)(OrtStatus*);
  void (*ReleaseMemoryInfo)(OrtMemoryInfo*);
  void (*ReleaseSession)(OrtSession*);
  void (*ReleaseValue)(OrtValue*);
  void* slots_97[3];
  void (*ReleaseSessionOptions)(OrtSessionOptions*);
  void* slots_101[127];
  OrtStatus* (*RegisterCustomOpsLibrary_V2)(OrtSessionOptions*, const ORTCHAR_T*);
};
static_assert(offsetof(OrtApi, RegisterCustomOpsLibrary_V2) == 228 * sizeof(void*), "a slot is missing");

struct OrtApiBase {
  const OrtApi* (*GetApi)(uint32_t);
  const char* (*GetVersionString)();
};

extern "C" const OrtApiBase* OrtGetApiBase();

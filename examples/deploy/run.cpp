// A fused model in ONNX Runtime's C API: run MODEL LIBRARY INPUT OUTPUT DIM...
//
// Fills the float32 input of these dimensions with ones, and prints the first numbers of the output. Without the call of
// RegisterCustomOpsLibrary_V2 the model runs too, on its own nodes.
#include <onnxruntime_c_api.h>

#include <cstdio>
#include <cstdlib>
#include <vector>

static const OrtApi* api;

static void check(OrtStatus* status) {
  if (!status) return;
  std::fprintf(stderr, "%s\n", api->GetErrorMessage(status));
  std::exit(1);
}

int main(int count, char** arguments) {
  if (count < 5) return 2;
  api = OrtGetApiBase()->GetApi(ORT_API_VERSION);

  OrtEnv* env = nullptr;
  OrtSessionOptions* options = nullptr;
  OrtSession* session = nullptr;
  check(api->CreateEnv(ORT_LOGGING_LEVEL_WARNING, "fused", &env));
  check(api->CreateSessionOptions(&options));
  check(api->RegisterCustomOpsLibrary_V2(options, arguments[2]));
  check(api->CreateSession(env, arguments[1], options, &session));

  std::vector<int64_t> dims;
  size_t size = 1;
  for (int i = 5; i < count; ++i) {
    dims.push_back(std::atoll(arguments[i]));
    size *= static_cast<size_t>(dims.back());
  }
  std::vector<float> ones(size, 1.0f);
  OrtMemoryInfo* memory = nullptr;
  OrtValue *input = nullptr, *output = nullptr;
  check(api->CreateCpuMemoryInfo(OrtArenaAllocator, OrtMemTypeDefault, &memory));
  check(api->CreateTensorWithDataAsOrtValue(memory, ones.data(), size * sizeof(float), dims.data(), dims.size(),
                                            ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT, &input));
  const OrtValue* inputs[] = {input};
  check(api->Run(session, nullptr, arguments + 3, inputs, 1, arguments + 4, 1, &output));

  void* data = nullptr;
  check(api->GetTensorMutableData(output, &data));
  for (int i = 0; i < 4; ++i) std::printf("%.6f\n", static_cast<float*>(data)[i]);

  api->ReleaseValue(output);
  api->ReleaseValue(input);
  api->ReleaseMemoryInfo(memory);
  api->ReleaseSession(session);
  api->ReleaseSessionOptions(options);
  api->ReleaseEnv(env);
}

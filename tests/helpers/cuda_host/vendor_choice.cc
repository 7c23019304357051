// Which of the vendor's kernels for a product run, by number and in order, and of ours ("o", "p"): of a first run, trials and all, and
// of a second.
#include <cstdio>

#include "include/blaslt.h"

namespace gpu = fusion::gpu;
using cuda_host::LtKernel;
using fusion::half;

half data[3];
char work[gpu::kLtWorkspace];
half* const out = &data[2];

constexpr uint64_t kOwn = 'o' - '0';
float own_takes[] = {0, -1};  // milliseconds; less than none where it does not take a product

// An ONNX Runtime that has a log and nothing else.
std::string logged;
OrtStatus* get_logger(const OrtKernelContext*, const OrtLogger**) { return nullptr; }
OrtStatus* log_message(const OrtLogger*, int, const char* text, const char*, int, const char*) { return logged += text, nullptr; }

void run(gpu::BlasLt& lt, const gpu::Product& p, const half* residual = &data[1], bool has_own = false) {
  static OrtApi table{};
  table.slot[246] = reinterpret_cast<void (*)()>(get_logger);
  table.slot[247] = reinterpret_cast<void (*)()>(log_message);
  const fusion::Api api(&table);
  const gpu::Blas blas = gpu::Blas::find(api, nullptr, nullptr);
  cuda_host::lt_ran.clear();
  const gpu::Addends<half> add{nullptr, residual, false};
  const auto own = [](int n) {
    if (own_takes[n] < 0) return false;
    cuda_host_took = own_takes[n];
    cuda_host::lt_ran.push_back(kOwn + n);
    return true;
  };
  const bool done = has_own ? lt.multiply(blas, nullptr, work, &data[0], &data[1], out, p, add, own)
                            : lt.multiply(blas, nullptr, work, &data[0], &data[1], out, p, add);
  std::printf(" %s", done ? "" : "none");
  for (const uint64_t number : cuda_host::lt_ran) std::putchar(static_cast<int>('0' + number));
}

gpu::Product product(int64_t m, int64_t n, int64_t k) { return {m, n, k, k, 1, n, 1, 1.0f}; }
// What is known of one is so for all operators: each case has its own.
gpu::Product few(int64_t rows = 2) {
  static int64_t depth = 8;
  return product(rows, 8, depth += 8);
}

template <class Body>
void tell(const char* what, std::vector<LtKernel> kernels, Body body) {
  cuda_host::lt_kernels = std::move(kernels);
  gpu::BlasLt lt;
  std::printf("%s", what);
  body(lt);
  std::printf("\n");
}

int main() {
  cuda_host::lt_computes = false;
  const auto twice = [](const gpu::Product& p) {
    return [p](gpu::BlasLt& lt) { run(lt, p), run(lt, p); };
  };
  tell("faster", {{20, 1, 1.0f}, {23, 1, 0.94f}, {18, 1, 0.9f}}, twice(few()));
  tell("hardly_faster", {{20, 1, 1.0f}, {23, 1, 0.96f}}, twice(few()));
  tell("fails", {{20, 1, 1.0f}, {23, 1, -1.0f}, {18, 1, 0.5f}}, twice(few()));
  tell("first_fails", {{20, 1, -1.0f}, {23, 1, 0.5f}}, twice(few()));
  tell("alone", {{20, 1, 1.0f}}, twice(few()));
  tell("captured", {{20, 1, 1.0f}, {23, 1, 0.5f}}, [p = few()](gpu::BlasLt& lt) {
    cuda_host::Graph graph;
    cuda_host::captured = &graph;
    run(lt, p);
    cuda_host::captured = nullptr;
    run(lt, p), run(lt, p);
  });
  tell("in_place", {{20, 1, 1.0f}, {23, 1, 0.5f}}, [p = few()](gpu::BlasLt& lt) { run(lt, p, out); });
  tell("no_residual", {{20, 1, 1.0f}, {23, 1, 0.5f}}, [p = few()](gpu::BlasLt& lt) { run(lt, p, nullptr); });
  const std::vector<LtKernel> second_is_faster = {{20, 1, 1.0f}, {23, 1, 0.5f}};
  gpu::Product p = few(130);
  tell("rows", second_is_faster, [&p](gpu::BlasLt& lt) {
    for (const int64_t rows : {130, 192, 193, 129, 70}) p.m = rows, run(lt, p);
  });
  tell("other_operator", second_is_faster, [&p](gpu::BlasLt& lt) { run(lt, p); });
  tell("gone", {{20, 1, 1.0f}}, [&p](gpu::BlasLt& lt) { run(lt, p); });
  tell("full", second_is_faster, [p = few()](gpu::BlasLt& lt) { cuda_host_full = true, run(lt, p), cuda_host_full = false; });
  const auto late = [&](int times, const gpu::Product& p) {
    return [=](gpu::BlasLt& lt) { cuda_host_waits = times, run(lt, p), cuda_host_waits = 0; };
  };
  tell("host_is_late", second_is_faster, late(2, few()));
  tell("host_is_always_late", second_is_faster, late(1000, few()));
  const gpu::Product wide = product(2048, 4096, 4096), tall = product(4096, 2048, 4096);
  const auto beside = [](float ms, const gpu::Product& p, const half* residual = &data[1]) {
    return [=](gpu::BlasLt& lt) { own_takes[0] = ms, run(lt, p, residual, true), run(lt, p, residual, true); };
  };
  tell("own_is_faster", second_is_faster, beside(0.4f, few()));
  tell("own_is_slower", second_is_faster, beside(0.6f, few()));
  tell("own_alone", {{20, 1, 1.0f}}, beside(0.9f, few()));
  tell("own_hardly", {{20, 1, 1.0f}}, beside(0.96f, few()));
  tell("own_begins_early", {{20, 1, 0.0100f}}, beside(0.0105f, few()));
  tell("own_does_not_gain_by_it", {{20, 1, 0.0100f}}, beside(0.0112f, few()));
  tell("own_refuses", second_is_faster, beside(-1.0f, few()));
  tell("own_refuses_later", {{20, 1, 1.0f}}, [p = few()](gpu::BlasLt& lt) {
    own_takes[0] = 0.5f, run(lt, p, &data[1], true), own_takes[0] = -1.0f, run(lt, p, &data[1], true);
  });
  own_takes[1] = 0.45f;
  tell("own_second", second_is_faster, beside(0.47f, few()));
  tell("own_second_alone", second_is_faster, beside(-1.0f, few()));
  tell("own_second_is_slower", second_is_faster, beside(0.4f, few()));
  tell("own_second_refuses_later", second_is_faster, [p = few()](gpu::BlasLt& lt) {
    own_takes[0] = 0.47f, run(lt, p, &data[1], true), own_takes[1] = -1.0f, run(lt, p, &data[1], true);
    own_takes[0] = -1.0f, run(lt, p, &data[1], true);
  });
  tell("own_in_place", second_is_faster, beside(0.4f, few(), out));
  tell("own_of_many", {{24, 1, 1.0f}}, beside(0.4f, product(2048, 4096, 4096)));
  tell("more_weights", {{24, 1.9f, 1.0f}, {23, 1.8f, 1.0f}, {23, 1.9f, 1.0f}}, twice(wide));
  tell("more_rows", {{24, 1.9f, 1.0f}, {23, 1.9f, 0.5f}}, twice(tall));
  std::printf("left %ld\n", cuda_host_blocks);
  logged.clear(), own_takes[0] = 0.0376f, own_takes[1] = -1.0f;
  cuda_host::lt_kernels = {{20, 1, 0.0404f}, {23, 1, 0.0412f}};
  gpu::BlasLt lt;
  run(lt, product(128, 4096, 16384), &data[1], true);
  std::printf("\n%s\n", logged.c_str());
}

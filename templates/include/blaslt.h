// A product with a bias, a residual and a ReLU in the vendor's kernel: cuBLASLt of the session's own cuBLAS, without its
// headers. Its numbers are those of cublasLt.h, which have not changed since CUDA 11.
#pragma once

#include <cuda_runtime.h>
#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "include/blas.h"
#include "include/stopwatch.h"

namespace fusion::gpu {

constexpr size_t kLtWorkspace = 32 * 1024 * 1024;  // what the vendor advises for Hopper

// d = alpha * a @ b + bias + residual, then a ReLU if asked for; what is null is not added.
template <class T>
struct Addends {
  const T* bias;      // [n]
  const T* residual;  // [m, n], contiguous
  bool relu;
};

// Sizes of which what is fastest for one is taken for the others: four from a power of two to the next, at least 64 rows wide.
inline int64_t rows_class(int64_t rows) {
  int64_t width = 64;
  while (width * 8 <= rows) width *= 2;
  return ceil_div(rows, width) * width;
}

// Keeps, for every form of product it has met, which of the vendor's kernels to take: the first that its heuristic names, unless a
// trial finds another one clearly faster, once for all products of the library that have as many rows or nearly so. Measured on an
// H100, 128x4096x16384 with a residual: 57.0 us by the first, 49.9 by the second.
class BlasLt {
 public:
  BlasLt() = default;
  BlasLt(const BlasLt&) = delete;
  BlasLt& operator=(const BlasLt&) = delete;
  ~BlasLt() {
    for (auto& [key, plan] : plans_) plan.release();
  }

  // False if cuBLASLt is not loaded or has no kernel for the product. `d` is contiguous, `work` has kLtWorkspace bytes.
  template <class T>
  bool multiply(const Blas& blas, cudaStream_t stream, void* work, const T* a, const T* b, T* d, const Product& p,
                const Addends<T>& add) {
    const Form form = form_of(blas, a, b, d, p, add);
    if (functions().matmul == nullptr || !form.fits) return false;
    // The description holds the bias's address, so it is one run's at a time.
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto [found, is_new] = plans_.try_emplace(form.key);
    Plan& plan = found->second;
    if (is_new) plan.make(blas.handle(), form, add.bias);
    if (!plan.usable) return false;
    const void* const bias = add.bias;
    if (bias != nullptr) functions().set_desc(plan.desc, kBiasPointer, &bias, sizeof(bias));
    const float alpha = p.alpha, beta = add.residual != nullptr ? 1.0f : 0.0f;
    const void* const c = add.residual != nullptr ? static_cast<const void*>(add.residual) : d;
    const auto run = [&](const Choice& choice) {
      return functions().matmul(blas.handle(), plan.desc, &alpha, b, plan.left, a, plan.right, &beta, c, plan.out, d, plan.out,
                                &choice.algorithm, work, choice.workspace, stream);
    };
    const auto can_try = [&] { return add.residual != d && can_time(stream); };
    const auto took = [&](const Choice& x) { return least_time(stream, work, kLtWorkspace, [&] { return run(x) == 0; }); };
    if (plan.choices.size() > 1) plan.settle(form, can_try, took);
    const int status = run(plan.choices.front());
    if (status != 0) throw Error("cuBLASLt failed with status " + std::to_string(status));
    return true;
  }

 private:
  static constexpr int kMostChoices = 8;
  static constexpr float kClearly = 0.95f;
  // From so many multiplications on the power that a GPU may take is the limit, and a trial finds what a cool one would do.
  static constexpr double kPowerBound = 3e10;

  using Handle = void*;
  // cublasLtMatmulHeuristicResult_t
  struct Choice {
    std::array<uint64_t, 8> algorithm;
    size_t workspace;
    int state;
    float waves;
    int reserved[4];
  };
  static constexpr int kTransA = 3, kTransB = 4, kEpilogue = 7, kBiasPointer = 8;  // of a description
  static constexpr int kMaxWorkspace = 1, kAlignA = 5;                             // of a preference; B, C and D follow
  static constexpr int kPlain = 1, kRelu = 2, kBias = 4;                           // epilogues, which add up
  static constexpr int kTile = 1;                                                  // of an algorithm
  static constexpr uint32_t k128x256 = 23;                                         // a tile, of weights by rows

  // Sizes, strides and alignments: what the choice depends on.
  struct Form {
    bool fits;
    std::array<int64_t, 12> key;
    int type, compute, epilogue, trans_left, trans_right;
    int64_t m, n, k, ld_left, ld_right;
    uint32_t align[4];

    double multiplications() const { return static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k); }
  };

  struct Plan {
    bool usable = false;
    void *desc = nullptr, *left = nullptr, *right = nullptr, *out = nullptr;
    std::vector<Choice> choices;  // the one to take first

    void make(Handle handle, const Form& f, const void* bias) {
      const Functions& lt = functions();
      void* preference = nullptr;
      const uint64_t most = kLtWorkspace;
      int found = 0;
      // cuBLAS thinks in columns: a row-major D is the column-major D^T = B^T A^T.
      usable = lt.create_desc(&desc, f.compute, 0) == 0 && lt.set_desc(desc, kTransA, &f.trans_left, sizeof(int)) == 0 &&
               lt.set_desc(desc, kTransB, &f.trans_right, sizeof(int)) == 0 &&
               lt.set_desc(desc, kEpilogue, &f.epilogue, sizeof(int)) == 0 &&
               (bias == nullptr || lt.set_desc(desc, kBiasPointer, &bias, sizeof(bias)) == 0) &&
               layout(&left, f.type, f.n, f.k, f.trans_left, f.ld_left) &&
               layout(&right, f.type, f.k, f.m, f.trans_right, f.ld_right) && layout(&out, f.type, f.n, f.m, 0, f.n) &&
               lt.create_preference(&preference) == 0 &&
               lt.set_preference(preference, kMaxWorkspace, &most, sizeof(most)) == 0;
      for (int i = 0; i < 4 && usable; ++i) {
        usable = lt.set_preference(preference, kAlignA + i, &f.align[i], sizeof(uint32_t)) == 0;
      }
      choices.resize(kMostChoices);
      usable = usable && lt.heuristic(handle, desc, left, right, out, out, preference, kMostChoices, choices.data(), &found) == 0 &&
               found > 0;
      choices.resize(static_cast<size_t>(found));
      if (usable && f.multiplications() > kPowerBound) choices = {coolest(f)};
      if (preference != nullptr) lt.destroy_preference(preference);
    }
    // Of two equally fast kernels for more weights than rows, the one whose tiles have more rows reads the weights fewer times:
    // measured on an H100, 279 MB for 351 at 2048x16384x4096, 294 for 361 at 2048x4096x16384 and 405 us for 418.
    Choice coolest(const Form& f) const {
      for (const Choice& x : choices) {
        if (f.n >= f.m && x.waves == choices.front().waves && tile(x) == k128x256) return x;
      }
      return choices.front();
    }
    static uint32_t tile(const Choice& x) {
      uint32_t found = 0;
      size_t written = 0;
      const auto get = functions().get_config;
      return get != nullptr && get(&x.algorithm, kTile, &found, sizeof(found), &written) == 0 ? found : 0;
    }
    // Leaves one choice, once that is known or `can_try` says that `took` may tell how long one takes.
    template <class CanTry, class Took>
    void settle(const Form& f, const CanTry& can_try, const Took& took) {
      static std::mutex mutex;
      static std::map<std::pair<int, std::array<int64_t, 12>>, std::array<uint64_t, 8>> settled;
      auto kind = std::make_pair(0, f.key);
      check(cudaGetDevice(&kind.first), "cudaGetDevice");
      kind.second[0] = rows_class(f.m);
      const std::lock_guard<std::mutex> lock(mutex);
      auto known = settled.find(kind);
      if (known == settled.end()) {
        if (!can_try()) return;
        known = settled.emplace(kind, fastest(took).algorithm).first;
      }
      const auto same = [&](const Choice& x) { return x.algorithm == known->second; };
      const auto found = std::find_if(choices.begin(), choices.end(), same);
      choices = {found == choices.end() ? choices.front() : *found};
    }
    template <class Took>
    Choice fastest(const Took& took) const {
      Choice best = choices.front();
      const float first = took(best);
      float least = first < 0.0f ? inf<float>() : first * kClearly;
      for (size_t i = 1; i < choices.size(); ++i) {
        const float found = took(choices[i]);
        if (found >= 0.0f && found < least) least = found, best = choices[i];
      }
      return best;
    }
    static bool layout(void** made, int type, int64_t rows, int64_t columns, int transposed, int64_t leading) {
      if (transposed) std::swap(rows, columns);
      return functions().create_layout(made, type, static_cast<uint64_t>(rows), static_cast<uint64_t>(columns), leading) == 0;
    }
    void release() {
      for (void* made : {left, right, out}) {
        if (made != nullptr) functions().destroy_layout(made);
      }
      if (desc != nullptr) functions().destroy_desc(desc);
    }
  };

  template <class T>
  static Form form_of(const Blas& blas, const T* a, const T* b, const T* d, const Product& p, const Addends<T>& add) {
    const Strides s = strides(p);
    const int type = static_cast<int>(BlasTypeOf<T>::value), compute = blas.compute_type(type);
    const int epilogue = (add.bias || add.relu ? 0 : kPlain) + (add.relu ? kRelu : 0) + (add.bias ? kBias : 0);
    const void* const c = add.residual ? static_cast<const void*>(add.residual) : d;
    const uint32_t align[4] = {alignment(b), alignment(a), alignment(c), alignment(d)};
    const int64_t aligned = align[0] | int64_t(align[1]) << 16 | int64_t(align[2]) << 32 | int64_t(align[3]) << 48;
    return {s.usable && p.m > 0 && p.n > 0 && p.k > 0,
            {p.m, p.n, p.k, s.lda, s.ldb, s.trans_a, s.trans_b, compute, epilogue, aligned, add.residual != nullptr,
             add.bias ? alignment(add.bias) : 0},
            type, compute, epilogue, s.trans_b, s.trans_a, p.m, p.n, p.k, s.ldb, s.lda,
            {align[0], align[1], align[2], align[3]}};
  }

  static uint32_t alignment(const void* p) {
    const auto address = reinterpret_cast<uintptr_t>(p);
    return static_cast<uint32_t>(address % 256 == 0 ? 256 : address & -address);
  }

  struct Functions {
    int (*create_desc)(void**, int, int) = nullptr;
    int (*destroy_desc)(void*) = nullptr;
    int (*set_desc)(void*, int, const void*, size_t) = nullptr;
    int (*create_layout)(void**, int, uint64_t, uint64_t, int64_t) = nullptr;
    int (*destroy_layout)(void*) = nullptr;
    int (*create_preference)(void**) = nullptr;
    int (*destroy_preference)(void*) = nullptr;
    int (*set_preference)(void*, int, const void*, size_t) = nullptr;
    int (*heuristic)(Handle, void*, void*, void*, void*, void*, void*, int, Choice*, int*) = nullptr;
    int (*get_config)(const void*, int, void*, size_t, size_t*) = nullptr;  // may be missing
    int (*matmul)(Handle, void*, const void*, const void*, void*, const void*, void*, const void*, const void*, void*, void*,
                  void*, const void*, void*, size_t, cudaStream_t) = nullptr;

    Functions() {
      void* const library = loaded_library({"libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so.11"});
      if (library == nullptr) return;
      const bool whole = get_function(library, "cublasLtMatmulDescCreate", create_desc) &&
                         get_function(library, "cublasLtMatmulDescDestroy", destroy_desc) &&
                         get_function(library, "cublasLtMatmulDescSetAttribute", set_desc) &&
                         get_function(library, "cublasLtMatrixLayoutCreate", create_layout) &&
                         get_function(library, "cublasLtMatrixLayoutDestroy", destroy_layout) &&
                         get_function(library, "cublasLtMatmulPreferenceCreate", create_preference) &&
                         get_function(library, "cublasLtMatmulPreferenceDestroy", destroy_preference) &&
                         get_function(library, "cublasLtMatmulPreferenceSetAttribute", set_preference) &&
                         get_function(library, "cublasLtMatmulAlgoGetHeuristic", heuristic);
      get_function(library, "cublasLtMatmulAlgoConfigGetAttribute", get_config);
      if (whole) get_function(library, "cublasLtMatmul", matmul);
    }
  };

  static const Functions& functions() {
    static const Functions loaded;
    return loaded;
  }

  std::mutex mutex_;
  std::map<std::array<int64_t, 12>, Plan> plans_;
};

}  // namespace fusion::gpu

// A product with a bias, a residual and a ReLU in the vendor's kernel: cuBLASLt of the session's own cuBLAS, without its
// headers; or in one of ours, where a trial finds that faster. Its numbers are those of cublasLt.h, which have not changed
// since CUDA 11.
#pragma once

#include <cuda_runtime.h>
#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <type_traits>
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

  // False if cuBLASLt is not loaded or has no kernel for the product. `d` is contiguous, `work` has kLtWorkspace bytes. `own(n)`
  // launches our n-th kernel for the same, of kOwnTried, or is false where there is none that takes it.
  template <class T, class Own = std::nullptr_t>
  bool multiply(const Blas& blas, cudaStream_t stream, void* work, const T* a, const T* b, T* d, const Product& p,
                const Addends<T>& add, const Own& own = nullptr) {
    constexpr bool kHasOwn = !std::is_same_v<Own, std::nullptr_t>;
    const Form form = form_of(blas, a, b, d, p, add);
    if (functions().matmul == nullptr || !form.fits) return false;
    // The description holds the bias's address, so it is one run's at a time.
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto [found, is_new] = plans_.try_emplace(form.key);
    Plan& plan = found->second;
    if (is_new) plan.make(blas.handle(), form, add.bias, kHasOwn);
    if (!plan.usable) return false;
    const void* const bias = add.bias;
    if (bias != nullptr) functions().set_desc(plan.desc, kBiasPointer, &bias, sizeof(bias));
    const float alpha = p.alpha, beta = add.residual != nullptr ? 1.0f : 0.0f;
    const void* const c = add.residual != nullptr ? static_cast<const void*>(add.residual) : d;
    const auto run = [&](const Kernel& x) {
      if constexpr (kHasOwn) {
        if (x.is_own()) return own(x.own) ? 0 : kRefused;
      }
      return functions().matmul(blas.handle(), plan.desc, &alpha, b, plan.left, a, plan.right, &beta, c, plan.out, d, plan.out,
                                &x.vendor.algorithm, work, x.vendor.workspace, stream);
    };
    const auto can_try = [&] { return add.residual != d && can_time(stream); };
    const auto took = [&](const Kernel& x, const Flush& flush) {
      const float alone = least_time(stream, flush, [&] { return run(x) == 0; });
      return x.is_own() && alone >= 0.0f ? std::max(alone - kHeadStart, 0.0f) : alone;
    };
    if (!plan.settled) plan.settle(form, can_try, took, blas.log());
    int status = run(plan.best);
    if (status == kRefused && plan.best.own > 0) status = run({{}, 0});  // rows for which a second tile is not close
    if (status == kRefused) status = run(plan.kernels.front());
    if (status != 0) throw Error("cuBLASLt failed with status " + std::to_string(status));
    return true;
  }

 private:
  static constexpr int kMostChoices = 8;
  static constexpr float kClearly = 0.95f;
  // Milliseconds that ours takes less behind another kernel than alone, as a trial has it, and the vendor's do not: it begins, and has
  // weights come, while that one still runs. Measured on an H200 at seven sizes of 64 to 1024 rows: 1.0 to 2.9 us.
  static constexpr float kHeadStart = 0.0013f;
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
  // One of the vendor's, or of ours by number.
  struct Kernel {
    Choice vendor{};
    int own = -1;
    bool is_own() const { return own >= 0; }
    const char* whose() const { return is_own() ? "ours" : "cuBLASLt's"; }
    bool operator==(const Kernel& other) const { return own == other.own && vendor.algorithm == other.vendor.algorithm; }
  };
  static constexpr int kRefused = -1;
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
    std::vector<Kernel> kernels;  // the vendor's first, of these what its heuristic names first
    Kernel best;
    bool settled = false;

    void make(Handle handle, const Form& f, const void* bias, bool has_own) {
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
      std::array<Choice, kMostChoices> choices;
      usable = usable && lt.heuristic(handle, desc, left, right, out, out, preference, kMostChoices, choices.data(), &found) == 0 &&
               found > 0;
      for (int i = 0; i < found && usable; ++i) kernels.push_back({choices[i]});
      if (usable && f.multiplications() > kPowerBound) {
        kernels = {coolest(f)};
      } else if (usable && has_own) {
        for (int i = 0; i < kOwnTried; ++i) kernels.push_back({{}, i});
      }
      if (usable) best = kernels.front(), settled = kernels.size() == 1;
      if (preference != nullptr) lt.destroy_preference(preference);
    }
    // Of two equally fast kernels for more weights than rows, the one whose tiles have more rows reads the weights fewer times:
    // measured on an H100, 279 MB for 351 at 2048x16384x4096, 294 for 361 at 2048x4096x16384 and 405 us for 418.
    Kernel coolest(const Form& f) const {
      for (const Kernel& x : kernels) {
        if (f.n >= f.m && x.vendor.waves == kernels.front().vendor.waves && tile(x.vendor) == k128x256) return x;
      }
      return kernels.front();
    }
    static uint32_t tile(const Choice& x) {
      uint32_t found = 0;
      size_t written = 0;
      const auto get = functions().get_config;
      return get != nullptr && get(&x.algorithm, kTile, &found, sizeof(found), &written) == 0 ? found : 0;
    }
    // Finds the best, once that is known or `can_try` says that `took` may tell how long one takes.
    template <class CanTry, class Took>
    void settle(const Form& f, const CanTry& can_try, const Took& took, const Log& log) {
      static std::mutex mutex;
      static std::map<std::pair<int, std::array<int64_t, 12>>, Kernel> all;
      auto kind = std::make_pair(0, f.key);
      check(cudaGetDevice(&kind.first), "cudaGetDevice");
      kind.second[0] = rows_class(f.m);
      const std::lock_guard<std::mutex> lock(mutex);
      auto known = all.find(kind);
      if (known == all.end()) {
        if (!can_try()) return;
        known = all.emplace(kind, fastest(f, took, log)).first;
      }
      const auto found = std::find(kernels.begin(), kernels.end(), known->second);
      if (found != kernels.end()) best = *found;
      settled = true;
    }
    template <class Took>
    Kernel fastest(const Form& f, const Took& took, const Log& log) const {
      const Flush flush;
      Tried tried("a product of " + std::to_string(f.m) + "x" + std::to_string(f.n) + "x" + std::to_string(f.k));
      std::vector<float> all;
      for (const Kernel& x : kernels) {
        all.push_back(took(x, flush));
        tried.add(x.whose(), all.back());
      }
      size_t winner = 0;
      float least = all[0] < 0.0f ? inf<float>() : all[0] * kClearly;
      for (size_t i = 1; i < all.size(); ++i) {
        if (all[i] >= 0.0f && all[i] < least) least = all[i], winner = i;
      }
      log(tried.taken(kernels[winner].whose(), all[winner]));
      return kernels[winner];
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

// Convolutions with a bias, a residual and a ReLU in one of the vendor's kernels or in ours.
#pragma once

#include <algorithm>
#include <array>
#include <map>
#include <mutex>
#include <vector>

#include "include/blaslt.h"
#include "include/convolution.h"
#include "include/cudnn.h"
#include "include/stopwatch.h"

namespace fusion::gpu {

constexpr double kPassRate = 2e9;  // bytes per ms that a pass over a result reads and writes, about

// Keeps, for every form of convolution that it has met, the fastest of the kernels that cuDNN's heuristic names and of ours.
// A sum that takes longer than the convolution alone and a pass behind it has none.
class CudnnConv {
 public:
  // out = conv(x, w) + bias + residual, then a ReLU if asked for; w is [M, ..., C / groups], `work` has kLtWorkspace
  // bytes. `own(to, add)` launches our kernel, or is false where that does not take it. False if there is none.
  template <class T, class Own>
  bool operator()(const Cudnn& cudnn, cudaStream_t stream, void* work, const T* x, const T* w, T* out,
                  const Convolution& c, const Addends<T>& add, const Own& own) {
    const int type = static_cast<int>(BlasTypeOf<T>::value) == 14 ? 9 : static_cast<int>(BlasTypeOf<T>::value);
    if (!cudnn) return own(out, add);
    const std::array<const void*, 5> data{x, w, out, add.residual, add.bias};
    const Form form{c, type, add.residual != nullptr, add.bias != nullptr, add.relu, alignment(data)};
    const std::lock_guard<std::mutex> lock(mutex_);
    Choice& chosen = choice(cudnn, stream, work, form, data, [&](bool bare) { return own(out, bare ? Addends<T>{} : add); });
    if (chosen.is_own) return own(out, add);
    if (chosen.plans.empty()) return false;
    if (!chosen.plans.front().run(cudnn.handle(), data, work)) throw Error("cuDNN failed to run a convolution");
    return true;
  }

 private:
  using Data = std::array<const void*, 5>;  // by tensor: x, w, out, residual, bias
  enum Tensors : int64_t { kX, kW, kOut, kResidual, kBias, kVirtual };
  static constexpr int kInts = 3, kFloat = 4, kBool = 2, kType = 1, kHandle = 0, kPointer = 6;  // types of attributes
  static constexpr int kNamed = 32, kCandidates = 8;  // of the heuristic, and of those that are tried

  static int64_t alignment(const Data& data) {
    uintptr_t all = 16;
    for (const void* p : data) all |= reinterpret_cast<uintptr_t>(p);
    return static_cast<int64_t>(all & -all);
  }

  struct Form {
    Convolution c;
    int type;
    bool residual, bias, relu;
    int64_t align;

    bool is_bare() const { return !(residual || bias || relu); }
    std::vector<int64_t> key() const {
      std::vector<int64_t> all{c.axes, c.batch, c.channels, c.filters, c.groups, type, residual, bias, relu, align};
      for (const auto& axes : {c.in, c.out, c.kernel, c.stride, c.before, c.after, c.dilation}) {
        all.insert(all.end(), axes.begin(), axes.end());
      }
      return all;
    }
  };

  // A kernel, and the tensors that it was last run on.
  struct Plan {
    CudnnDescriptor plan, pack{16};
    Data bound{};
    void* work = nullptr;
    bool is_bound = false;

    bool run(void* handle, const Data& data, void* scratch) {
      if (!is_bound || data != bound || scratch != work) bind(data, scratch);
      return is_bound && CudnnFunctions::loaded().execute(handle, plan.raw(), pack.raw()) == 0;
    }
    void bind(const Data& data, void* scratch) {
      std::array<int64_t, 5> ids{};
      std::array<const void*, 5> pointers{};
      int64_t count = 0;
      for (int64_t id = 0; id < 5; ++id) {
        if (data[id] != nullptr) ids[count] = id + 1, pointers[count++] = data[id];
      }
      pack = CudnnDescriptor(16);
      pack.set(1000, kInts, ids.data(), count).set(1001, kPointer, pointers.data(), count).set(1003, kPointer, &scratch);
      bound = data, work = scratch, is_bound = pack.finalize().ok();
    }
  };

  // The kernel to use, ours, none or one of the vendor's, and how long it took in a trial.
  struct Choice {
    std::vector<Plan> plans;
    float milliseconds = 0.0f;
    bool is_own = false;

    bool is_none() const { return plans.empty() && !is_own; }
  };

  template <class Own>
  Choice& choice(const Cudnn& cudnn, cudaStream_t stream, void* work, const Form& form, const Data& data, const Own& own) {
    const auto [found, is_new] = choices_.try_emplace(form.key());
    Choice& chosen = found->second;
    if (!is_new) return chosen;
    chosen = choose(cudnn, stream, work, form, data, own);
    if (chosen.is_none() || form.is_bare()) return chosen;
    const Form bare{form.c, form.type, false, false, false, form.align};
    const Choice& alone = choice(cudnn, stream, work, bare, {data[kX], data[kW], data[kOut], nullptr, nullptr}, own);
    const double pass = 2.0 * static_cast<double>(form.c.results()) * (form.type == 0 ? 4 : 2) / kPassRate;
    if (!alone.is_none() && chosen.milliseconds > alone.milliseconds + pass) chosen = {};
    return chosen;
  }

  // Channels first in the description, last in memory.
  static CudnnDescriptor tensor(int64_t id, const Form& f, int64_t rows, int64_t channels, const Convolution::Axes& sizes,
                                bool is_virtual = false) {
    std::vector<int64_t> dims{rows, channels};
    dims.insert(dims.end(), sizes.end() - f.c.axes, sizes.end());
    std::vector<int64_t> strides(dims.size(), 1);
    int64_t step = channels;
    for (size_t i = dims.size() - 1; i >= 2; --i) strides[i] = step, step *= dims[i];
    strides[0] = step;
    const int type = is_virtual ? 0 : f.type;
    const int64_t number = id + 1, rank = static_cast<int64_t>(dims.size());
    CudnnDescriptor made(17);
    made.set(901, kType, &type).set(902, kInts, dims.data(), rank).set(903, kInts, strides.data(), rank);
    made.set(906, kInts, &number).set(900, kInts, &f.align).set(907, kBool, &is_virtual);
    return std::move(made.finalize());
  }

  static CudnnDescriptor pointwise(int mode, const CudnnDescriptor& x, const CudnnDescriptor* b, const CudnnDescriptor& y) {
    const int precision = 0;
    const float one = 1.0f;
    CudnnDescriptor how(0), made(13);
    how.set(0, 14, &mode).set(1, kType, &precision).finalize();
    made.set(750, how).set(751, x).set(753, y).set(754, kFloat, &one);
    if (b != nullptr) made.set(752, *b).set(755, kFloat, &one);
    return std::move(made.finalize());
  }

  static CudnnDescriptor convolve(const Form& f, const CudnnDescriptor& x, const CudnnDescriptor& w, const CudnnDescriptor& y) {
    const Convolution& c = f.c;
    const int precision = 0, mode = 1;  // accumulated in float; cross-correlation
    const int64_t n = c.axes;
    const auto from = [n](const Convolution::Axes& axes) { return axes.data() + axes.size() - n; };
    CudnnDescriptor how(1), made(10);
    how.set(100, kType, &precision).set(101, 7, &mode).set(106, kInts, &n);
    how.set(102, kInts, from(c.dilation), n).set(103, kInts, from(c.stride), n);
    how.set(104, kInts, from(c.after), n).set(105, kInts, from(c.before), n).finalize();
    const float one = 1.0f, zero = 0.0f;
    made.set(700, kFloat, &one).set(701, kFloat, &zero).set(702, how).set(703, w).set(704, x).set(705, y);
    return std::move(made.finalize());
  }

  // The sum as cuDNN's graph: each operation's result is the next one's operand, and the last one's lies in memory.
  static CudnnDescriptor graph(void* handle, const Form& f) {
    const Convolution& c = f.c;
    int left = f.residual + f.bias + f.relu;
    const auto result = [&] {
      const int64_t id = left > 0 ? kVirtual + left : int64_t{kOut};
      return tensor(id, f, c.batch, c.filters, c.out, left-- > 0);
    };
    std::vector<CudnnDescriptor> operations;
    CudnnDescriptor last = result();
    operations.push_back(convolve(f, tensor(kX, f, c.batch, c.channels, c.in),
                                  tensor(kW, f, c.filters, c.channels_each(), c.kernel), last));
    const auto then = [&](int mode, const CudnnDescriptor* operand) {
      CudnnDescriptor next = result();
      operations.push_back(pointwise(mode, last, operand, next));
      last = std::move(next);
    };
    constexpr int kAdd = 0, kRelu = 100;
    if (f.residual) {
      const CudnnDescriptor residual = tensor(kResidual, f, c.batch, c.filters, c.out);
      then(kAdd, &residual);
    }
    if (f.bias) {
      const CudnnDescriptor bias = tensor(kBias, f, 1, c.filters, {1, 1, 1});
      then(kAdd, &bias);
    }
    if (f.relu) then(kRelu, nullptr);
    std::vector<void*> raw;
    CudnnDescriptor made(15);
    for (const CudnnDescriptor& o : operations) raw.push_back(o.ok() ? o.raw() : nullptr);
    made.set(800, kHandle, &handle).set(801, CudnnDescriptor::kDescriptor, raw.data(), static_cast<int64_t>(raw.size()));
    return std::move(made.finalize());
  }

  // Whether an engine may multiply floats: one that makes its inputs smaller never, one on tensor cores, which round them to
  // TF32, where the session lets it. Those that do not tell are taken to be of these.
  static bool suits_floats(CudnnDescriptor& configuration, bool tf32) {
    constexpr int kEngine = 300, kNotes = 1303, kNote = 11, kTensorCores = 0, kSmallerInputs = 1;
    CudnnDescriptor engine(2);
    void* raw = engine.raw();
    std::array<int, 32> notes{};
    int64_t count = 0;
    const bool tells = configuration.get(kEngine, CudnnDescriptor::kDescriptor, &raw, 1, &count) &&
                       engine.get(kNotes, kNote, notes.data(), static_cast<int64_t>(notes.size()), &count);
    if (!tells) return tf32;
    const auto end = notes.begin() + std::min(count, static_cast<int64_t>(notes.size()));
    const auto has = [&](int note) { return std::find(notes.begin(), end, note) != end; };
    return !has(kSmallerInputs) && (tf32 || !has(kTensorCores));
  }

  // What the heuristic names, the likeliest first, as far as it can be run in the workspace.
  static std::vector<Plan> plans(const Cudnn& cudnn, const Form& f) {
    constexpr int kFallback = 2, kBest = 3;
    void* const handle = cudnn.handle();
    std::vector<Plan> found;
    const CudnnDescriptor operations = graph(handle, f);
    for (const int mode : {kBest, kFallback}) {
      CudnnDescriptor heuristic(4);
      heuristic.set(201, operations).set(200, 8, &mode).finalize();
      std::vector<CudnnDescriptor> named;
      std::vector<void*> raw;
      for (int i = 0; i < kNamed; ++i) raw.push_back(named.emplace_back(3).raw());
      int64_t count = 0;
      if (!heuristic.get(202, CudnnDescriptor::kDescriptor, raw.data(), kNamed, &count)) continue;
      for (int64_t i = 0; i < count && i < kNamed && found.size() < kCandidates; ++i) {
        if (f.type == 0 && !suits_floats(named[i], cudnn.allows_tf32())) continue;
        Plan plan{CudnnDescriptor(5)};
        plan.plan.set(400, kHandle, &handle).set(401, named[i]).finalize();
        int64_t bytes = 0, ones = 0;
        if (plan.plan.get(402, kInts, &bytes, 1, &ones) && bytes <= static_cast<int64_t>(kLtWorkspace)) {
          found.push_back(std::move(plan));
        }
      }
      if (!found.empty()) break;
    }
    return found;
  }

  // The fastest of them and ours, by a short trial; while a graph is captured nothing can be timed.
  template <class Own>
  static Choice choose(const Cudnn& cudnn, cudaStream_t stream, void* work, const Form& f, const Data& data, const Own& own) {
    std::vector<Plan> named = plans(cudnn, f);
    Choice best;
    Tried tried("a convolution with " + std::to_string(f.c.results()) + " results, each of " + std::to_string(f.c.depth()));
    const bool timed = can_time(stream);
    for (Plan& plan : named) {
      const float took = timed ? time(stream, work, [&] { return plan.run(cudnn.handle(), data, work); }) : 0.0f;
      tried.add("cuDNN's", took);
      if (took < 0.0f || (!best.plans.empty() && took >= best.milliseconds)) continue;
      best.milliseconds = took;
      best.plans.clear();
      best.plans.push_back(std::move(plan));
    }
    const float took = timed ? time(stream, work, [&] { return own(f.is_bare()); }) : 0.0f;
    tried.add("ours", took);
    const bool is_own = best.plans.empty() ? took >= 0.0f : timed && took >= 0.0f && took < best.milliseconds;
    if (timed) cudnn.log()(is_own ? tried.taken("ours", took) : tried.taken("cuDNN's", best.plans.empty() ? -1.0f : best.milliseconds));
    return is_own ? Choice{{}, took, true} : std::move(best);
  }

  // Milliseconds of a run, of several in a row, with so much to do first that the host is ahead of them; less than zero where it fails.
  template <class Run>
  static float time(cudaStream_t stream, void* work, const Run& run) {
    constexpr int kRuns = 10, kMostAhead = 128;
    int memsets = 8;
    if (!run()) return -1.0f;
    const auto ahead = [&] { check(cudaMemsetAsync(work, 0, kLtWorkspace, stream), "cudaMemsetAsync"); };
    const auto runs = [&] {
      for (int i = 0; i < kRuns; ++i) {
        if (!run()) return false;
      }
      return true;
    };
    return time_behind(ahead, memsets, kMostAhead, stream, runs) / kRuns;
  }

  std::mutex mutex_;
  std::map<std::vector<int64_t>, Choice> choices_;
};

}  // namespace fusion::gpu

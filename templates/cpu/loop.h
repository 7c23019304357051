// Iteration over strided, broadcast tensors on the CPU, and its division among ONNX Runtime's threads.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <new>

#include "cpu/convert.h"
#include "include/dims.h"
#include "ort/op.h"

namespace fusion {
namespace cpu {

// Loops that compute more than they load are compiled for 512-bit vectors too and chosen between at run time.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define FUSION_WIDE __attribute__((target("avx512f,avx512vl,avx512dq,avx512bw,prefer-vector-width=512")))
inline bool has_wide_vectors() {
  static const bool has = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
                          __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw");
  return has;
}
#else
#define FUSION_WIDE
inline bool has_wide_vectors() { return false; }
#endif

// How many elements a pointwise loop handles at a time where it needs buffers for 16-bit floats.
constexpr int kBlock = 256;

// A tensor in memory; contiguous and row-major where no strides are given.
template <class T>
struct Array {
  T* data;
  Ints dims;
  Ints strides = {};
};

template <class T>
Array<T> array(const void* data, const Ints& dims) {
  return {static_cast<T*>(const_cast<void*>(data)), dims};
}

template <class T>
size_t bytes(const Ints& dims) {
  return (static_cast<size_t>(count(dims)) * sizeof(T) + 63) / 64 * 64;
}

template <class T>
Ints strides_of(const Array<T>& a) {
  return a.strides.size() ? a.strides : contiguous(a.dims);
}

// Part of a tensor: along each axis `counts` elements from `starts` on, `steps` apart.
template <class T>
Array<T> part(const Array<T>& a, const Ints& counts, const Ints& starts, const Ints& steps) {
  const Window w = window(a.dims, strides_of(a), counts, starts, steps);
  return {a.data + w.offset, counts, w.strides};
}

// The same elements in other dimensions; of a part, axes are only split.
template <class T>
Array<T> reshaped(const Array<T>& a, const Ints& dims) {
  if (!a.strides.size()) return {a.data, dims};
  return {a.data, dims, split_strides(a.dims, a.strides, dims)};
}

// Strides over `space` of a tensor that is transposed by `perm` (if not empty), then broadcast.
template <class T>
Ints strides_over(const Ints& space, const Array<T>& a, const Ints& perm = {}) {
  const Ints own = strides_of(a), &dims = a.dims;
  Ints strides = Ints::filled(space.size(), 0);
  const int lead = space.size() - dims.size();
  for (int i = 0; i < dims.size(); ++i) {
    const int source = perm.size() ? static_cast<int>(perm[i]) : i;
    if (lead + i < 0) {
      if (dims[source] != 1) throw Error("an operand has more dimensions than its kernel");
      continue;
    }
    if (dims[source] == space[lead + i]) {
      strides[lead + i] = own[source];
    } else if (dims[source] != 1) {
      throw Error("an operand's shape does not broadcast to its kernel's");
    }
  }
  return strides;
}

// The position along an axis (counted from the end) as if it were an operand's offset.
inline Ints strides_of_index(const Ints& space, int axis) {
  Ints strides = Ints::filled(space.size(), 0);
  strides[space.size() + axis] = 1;
  return strides;
}

// One number per row: the last axis is not walked.
inline Ints strides_of_rows(const Ints& space) {
  Ints outer = space;
  outer[outer.size() - 1] = 1;
  return contiguous(outer);
}

// The iteration space with the strides of K accesses; axes that all of them can walk as one are merged.
template <int K>
class Loop {
 public:
  Loop(Ints space, std::array<Ints, K> strides, bool keep_rows) {
    if (!space.size()) {
      space = Ints{1};
      for (Ints& s : strides) s = Ints{0};
    }
    for (int i = 0; i < space.size(); ++i) push(space[i], strides, i, keep_rows && i + 1 == space.size());
    length_ = dims_[rank_ - 1];
    rows_ = 1;
    for (int i = 0; i + 1 < rank_; ++i) rows_ *= dims_[i];
  }

  int64_t length() const { return length_; }  // of the innermost axis
  int64_t rows() const { return rows_; }      // elements of the axes around it
  int64_t total() const { return rows_ * length_; }
  const int64_t* inner() const { return strides_[rank_ - 1]; }

  // Whether the innermost strides are as the source was specialised for (-1: any).
  bool fits(const std::array<int64_t, K>& expected) const {
    for (int k = 0; k < K; ++k)
      if (expected[k] >= 0 && expected[k] != inner()[k] && length_ > 1) return false;
    return true;
  }

  // body(offsets, n) for runs of at most `block` elements that cover the elements [begin, end) of the space.
  template <class F>
  void spans(int64_t begin, int64_t end, int64_t block, F body) const {
    if (begin >= end) return;
    Cursor cursor(*this, begin / length_);
    int64_t column = begin % length_;
    int64_t at[K];
    while (begin < end) {
      const int64_t n = std::min(std::min(block, length_ - column), end - begin);
      for (int k = 0; k < K; ++k) at[k] = cursor.offset[k] + column * inner()[k];
      body(static_cast<const int64_t*>(at), n);
      begin += n;
      column += n;
      if (column == length_) {
        column = 0;
        cursor.next();
      }
    }
  }

  // body(offsets) for each of the rows [begin, end).
  template <class F>
  void each_row(int64_t begin, int64_t end, F body) const {
    if (begin >= end) return;
    Cursor cursor(*this, begin);
    for (; begin < end; ++begin, cursor.next()) body(static_cast<const int64_t*>(cursor.offset));
  }

 private:
  void push(int64_t size, const std::array<Ints, K>& strides, int axis, bool alone) {
    if (rank_ && !alone) {
      bool merge = true, previous_is_one = dims_[rank_ - 1] == 1;
      for (int k = 0; k < K; ++k) merge = merge && strides_[rank_ - 1][k] == strides[k][axis] * size;
      if (merge || previous_is_one) {
        dims_[rank_ - 1] *= size;
        for (int k = 0; k < K; ++k) strides_[rank_ - 1][k] = strides[k][axis];
        return;
      }
      if (size == 1) return;
    }
    if (rank_ == kMaxRank) throw Error("a tensor has more than 16 dimensions");
    dims_[rank_] = size;
    for (int k = 0; k < K; ++k) strides_[rank_][k] = strides[k][axis];
    ++rank_;
  }

  struct Cursor {
    Cursor(const Loop& loop, int64_t row) : loop(loop) {
      for (int k = 0; k < K; ++k) offset[k] = 0;
      for (int d = loop.rank_ - 2; d >= 0; --d) {
        index[d] = row % loop.dims_[d];
        row /= loop.dims_[d];
        for (int k = 0; k < K; ++k) offset[k] += index[d] * loop.strides_[d][k];
      }
    }
    void next() {
      for (int d = loop.rank_ - 2; d >= 0; --d) {
        for (int k = 0; k < K; ++k) offset[k] += loop.strides_[d][k];
        if (++index[d] < loop.dims_[d]) return;
        for (int k = 0; k < K; ++k) offset[k] -= loop.strides_[d][k] * loop.dims_[d];
        index[d] = 0;
      }
    }
    const Loop& loop;
    int64_t index[17], offset[K];
  };

  static constexpr int kMaxRank = 16;
  int rank_ = 0;
  int64_t dims_[kMaxRank], strides_[kMaxRank][K];
  int64_t length_, rows_;
};

// body(begin, end) over [0, total) on ONNX Runtime's threads, in pieces of at least `grain`; what it throws arrives
// here.
template <class F>
void parallel(const Run& run, int64_t total, int64_t grain, F body) {
  constexpr int64_t kPieces = 64, kAlign = 16;
  if (total <= 0) return;
  int64_t piece = std::max(std::max(grain, int64_t(1)), (total + kPieces - 1) / kPieces);
  if (piece > kAlign) piece = (piece + kAlign - 1) / kAlign * kAlign;
  const int64_t pieces = (total + piece - 1) / piece;
  if (pieces == 1) return body(int64_t(0), total);
  struct Job {
    F& body;
    int64_t piece, total;
    std::atomic<bool> failed;
    std::string message;
  } job{body, piece, total, {false}, {}};
  const auto work = [](void* user, size_t i) {
    Job& job = *static_cast<Job*>(user);
    const int64_t begin = static_cast<int64_t>(i) * job.piece;
    try {
      job.body(begin, std::min(begin + job.piece, job.total));
    } catch (const std::exception& e) {
      if (!job.failed.exchange(true)) job.message = e.what();
    }
  };
  check(run.api, run.api.KernelContext_ParallelFor(run.context, work, static_cast<size_t>(pieces), 0, &job));
  if (job.failed) throw Error(job.message);
}

// Rows of working memory of the calling thread, kept between calls.
template <class T>
T* thread_row(int index, int64_t n) {
  struct Row {
    ~Row() { std::free(block); }
    void *block = nullptr, *data = nullptr;  // what was allocated, and where in it the first line of the cache begins
    size_t bytes = 0;
  };
  static thread_local Row rows[64];
  Row& row = rows[index];
  const size_t bytes = (static_cast<size_t>(n) * sizeof(T) + 63) / 64 * 64;
  if (row.bytes < bytes) {
    std::free(row.block);
    row.bytes = 0;
    row.block = std::malloc(bytes + 63);  // not every platform has an allocation with alignment
    if (!row.block) throw std::bad_alloc();
    row.data = reinterpret_cast<void*>((reinterpret_cast<uintptr_t>(row.block) + 63) / 64 * 64);
    row.bytes = bytes;
  }
  return static_cast<T*>(row.data);
}

// out (contiguous) = elements [first, last) of the strided tensor of shape `space`, converted.
template <class To, class From>
void gather(const Run& run, const From* from, const Ints& strides, const Ints& space, int64_t first, int64_t last,
            To* out) {
  const Loop<2> loop(space, {strides, contiguous(space)}, false);
  const int64_t step = loop.inner()[0];
  parallel(run, last - first, 1 << 14, [&](int64_t begin, int64_t end) {
    loop.spans(first + begin, first + end, loop.length(), [&](const int64_t* at, int64_t n) {
      copy(from + at[0], step, n, out + (at[1] - first), 1);
    });
  });
}

// Elements [first, last) of the strided tensor `to` of shape `space` = the contiguous ones at `from`, converted.
template <class To, class From>
void scatter(const Run& run, const From* from, const Ints& strides, const Ints& space, int64_t first, int64_t last,
             To* to) {
  const Loop<2> loop(space, {strides, contiguous(space)}, false);
  const int64_t step = loop.inner()[0];
  parallel(run, last - first, 1 << 14, [&](int64_t begin, int64_t end) {
    loop.spans(first + begin, first + end, loop.length(), [&](const int64_t* at, int64_t n) {
      copy(from + (at[1] - first), 1, n, to + at[0], step);
    });
  });
}

}  // namespace cpu
}  // namespace fusion

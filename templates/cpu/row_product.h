// Products of rows that lie anywhere by a constant matrix: what convolutions do whose channels come last.
#pragma once

#include <vector>

#include "cpu/loop.h"

#if defined(__GNUC__)
#pragma GCC diagnostic ignored "-Wpsabi"  // vectors are given to functions that are inlined, and to no other
#endif

namespace fusion {
namespace cpu {

// A vector of kLanes numbers, in memory and in a register.
template <int kLanes>
struct Lanes {
  typedef float Memory __attribute__((vector_size(4 * kLanes), aligned(4), may_alias));
  typedef float Register __attribute__((vector_size(4 * kLanes)));
  FUSION_INLINE static Register load(const float* p) { return *reinterpret_cast<const Memory*>(p); }
  FUSION_INLINE static void store(float* p, const Register& x) { *reinterpret_cast<Memory*>(p) = x; }
};

// A matrix [taps, depth, columns] as strips of two vectors of columns each, one below the other.
class StripMatrix {
 public:
  StripMatrix(int64_t taps, int64_t depth, int64_t columns)
      : depth_(depth), columns_(columns), strip_(taps * depth * width()),
        data_(static_cast<size_t>(strips() * strip_ + kLine)),
        first_((64 - reinterpret_cast<uintptr_t>(data_.data()) % 64) / sizeof(float) % kLine) {}
  StripMatrix(const StripMatrix&) = delete;

  static int64_t width() { return has_wide_vectors() ? 32 : 16; }
  int64_t columns() const { return columns_; }
  int64_t strips() const { return (columns_ + width() - 1) / width(); }
  const float* strip(int64_t i, int64_t tap = 0) const {
    return data_.data() + first_ + i * strip_ + tap * depth_ * width();
  }
  float& at(int64_t tap, int64_t k, int64_t column) {
    const int64_t row = tap * depth_ + k;
    return data_[first_ + static_cast<size_t>(column / width() * strip_ + row * width() + column % width())];
  }

 private:
  static constexpr size_t kLine = 16;  // numbers of a line of the cache, where rows begin
  int64_t depth_, columns_, strip_;
  std::vector<float> data_;
  size_t first_;
};

// Where a product goes: rows `stride` numbers apart, and `columns` of the strip's. What is added lies as `out` does;
// there may be no such thing, and no bias. With `relu` what is negative becomes zero.
struct Strip {
  float* out;
  int64_t stride, columns;
  const float *bias, *added;
  bool relu;
};

// The sum over taps of kRows rows, which `rows` has by tap, by a strip of a matrix. Meanwhile what lies at `ahead` is
// fetched, `pace` numbers for each row of the strip.
template <int kLanes, int kRows>
FUSION_INLINE void multiply_rows(const float* const* rows, int64_t taps, int64_t depth, const float* strip,
                                 const float* ahead, int64_t pace, const Strip& to) {
  typedef Lanes<kLanes> L;
  typedef typename L::Register Register;
  Register sum[kRows][2] = {};
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 2
    for (int i = 0; i < 2; ++i) {
      if (to.added) __builtin_prefetch(to.added + r * to.stride + i * kLanes);
      __builtin_prefetch(to.out + r * to.stride + i * kLanes, 1);
    }
  for (int64_t tap = 0; tap < taps; ++tap, rows += kRows) {
    const float* row[kRows];
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) row[r] = rows[r];
    for (int64_t k = 0; k < depth; ++k, strip += 2 * kLanes, ahead += pace) {
      __builtin_prefetch(ahead, 0, 2), __builtin_prefetch(ahead + 16, 0, 2);
      const Register first = L::load(strip), second = L::load(strip + kLanes);
#pragma GCC unroll 16
      for (int r = 0; r < kRows; ++r) {
        const Register x = row[r][k] - Register{};
        sum[r][0] += x * first, sum[r][1] += x * second;
      }
    }
  }
#pragma GCC unroll 2
  for (int i = 0; i < 2; ++i) {
    const int64_t columns = to.columns - i * kLanes;
    const float* const bias = to.bias ? to.bias + i * kLanes : nullptr;
    const float* const added = to.added ? to.added + i * kLanes : nullptr;
    float* const out = to.out + i * kLanes;
    float part[kLanes];
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
      const int64_t at = r * to.stride;
      if (columns >= kLanes) {
        Register y = sum[r][i];
        if (bias) y += L::load(bias);
        if (added) y += L::load(added + at);
        if (to.relu) y = y < 0 ? Register{} : y;
        L::store(out + at, y);
        continue;
      }
      L::store(part, sum[r][i]);
      for (int64_t k = 0; k < columns; ++k) {
        const float y = part[k] + (bias ? bias[k] : 0) + (added ? added[at + k] : 0);
        out[at + k] = to.relu && y < 0 ? 0 : y;
      }
    }
  }
}

typedef void (*RowProduct)(const float* const* rows, int64_t taps, int64_t depth, const float* strip,
                           const float* ahead, int64_t pace, const Strip& to);

template <int kRows>
FUSION_WIDE void multiply_wide(const float* const* rows, int64_t taps, int64_t depth, const float* strip,
                               const float* ahead, int64_t pace, const Strip& to) {
  multiply_rows<16, kRows>(rows, taps, depth, strip, ahead, pace, to);
}
template <int kRows>
void multiply_narrow(const float* const* rows, int64_t taps, int64_t depth, const float* strip, const float* ahead,
                     int64_t pace, const Strip& to) {
  multiply_rows<8, kRows>(rows, taps, depth, strip, ahead, pace, to);
}

// Rows that are multiplied together: as many as there are registers for the sums of.
inline int64_t most_rows() { return has_wide_vectors() ? 14 : 6; }

// The product of so many rows, from 1 to most_rows().
inline RowProduct product_of(int64_t rows) {
  static constexpr RowProduct kWide[] = {
      multiply_wide<1>, multiply_wide<2>, multiply_wide<3>,  multiply_wide<4>,  multiply_wide<5>,
      multiply_wide<6>, multiply_wide<7>, multiply_wide<8>,  multiply_wide<9>,  multiply_wide<10>,
      multiply_wide<11>, multiply_wide<12>, multiply_wide<13>, multiply_wide<14>};
  static constexpr RowProduct kNarrow[] = {multiply_narrow<1>, multiply_narrow<2>, multiply_narrow<3>,
                                           multiply_narrow<4>, multiply_narrow<5>, multiply_narrow<6>};
  return (has_wide_vectors() ? kWide : kNarrow)[rows - 1];
}

// `count` things in parts of at most `most`, as equal as can be.
struct Parts {
  Parts(int64_t count, int64_t most) : total(count), count((count + most - 1) / most) {}
  int64_t begin(int64_t i) const { return total * i / count; }
  int64_t total, count;
};

// All rows of `parts`, of which `rows` has every tap of a part's one after the other, by a strip of a matrix; results
// follow one another. Meanwhile the strip behind it is fetched, or if `lie_close`, the rows of the next part.
inline void multiply_parts(const Parts& parts, const float* const* rows, int64_t taps, int64_t depth,
                           const float* strip, bool lie_close, const Strip& to) {
  const int64_t length = taps * depth * StripMatrix::width();
  for (int64_t i = 0; i < parts.count; ++i) {
    const int64_t first = parts.begin(i), last = parts.begin(i + 1), at = first * to.stride;
    const Strip part{to.out + at, to.stride, to.columns, to.bias, to.added ? to.added + at : nullptr, to.relu};
    const float* const ahead = lie_close ? rows[last - 1] + depth : strip + length + length * i / parts.count;
    const int64_t pace = lie_close ? last - first : StripMatrix::width() / parts.count;
    product_of(last - first)(rows + first * taps, taps, depth, strip, ahead, pace, part);
  }
}

}  // namespace cpu
}  // namespace fusion

// The operations that a plan's shape program is made of; names and arguments are those of ShapeOp (shape values first, then the
// literal integers).
#pragma once

#include "include/dims.h"

namespace fusion {
namespace host {

inline int axis_of(int64_t axis, int64_t rank) {
  if (axis < 0) axis += rank;
  if (axis < 0 || axis >= rank) throw Error("an axis lies outside its shape");
  return static_cast<int>(axis);
}

inline bool contains_axis(const Ints& axes, int axis, int rank) {
  for (int64_t a : axes)
    if (axis_of(a, rank) == axis) return true;
  return false;
}

inline Ints broadcast(const Ints& a) { return a; }
inline Ints broadcast(const Ints& a, const Ints& b) {
  const int rank = a.size() > b.size() ? a.size() : b.size();
  Ints out = Ints::filled(rank, 1);
  for (int i = 1; i <= rank; ++i) {
    const int64_t x = i <= a.size() ? a[a.size() - i] : 1, y = i <= b.size() ? b[b.size() - i] : 1;
    if (x != y && x != 1 && y != 1) throw Error("shapes do not broadcast");
    out[rank - i] = x == 1 ? y : x;
  }
  return out;
}
template <class... More>
Ints broadcast(const Ints& a, const Ints& b, const More&... more) {
  return broadcast(broadcast(a, b), more...);
}

inline Ints slice(const Ints& a, const Ints& range) {
  const int64_t n = a.size(), step = range[2];
  if (step == 0) throw Error("a slice has step 0");
  const auto clamp = [](int64_t v, int64_t low, int64_t high) { return v < low ? low : v > high ? high : v; };
  const auto bound = [&](int64_t v) {
    if (v < 0) v = v < -n ? -1 : v + n;
    return step > 0 ? clamp(v, 0, n) : clamp(v, -1, n - 1);
  };
  const int64_t start = bound(range[0]), end = bound(range[1]);
  Ints out;
  for (int64_t i = start; step > 0 ? i < end : i > end; i += step) out.push_back(a[static_cast<int>(i)]);
  return out;
}

inline Ints take(const Ints& a, const Ints& indices) {
  Ints out;
  for (int64_t i : indices) out.push_back(a.at(i));
  return out;
}

inline Ints put(Ints a, const Ints& values, const Ints& indices) {
  for (int i = 0; i < indices.size(); ++i) a[axis_of(indices[i], a.size())] = values.at(i);
  return a;
}

// Where ONNX's Slice begins and ends along an axis of `size` elements; backwards it begins at 0 at the latest.
inline int64_t slice_bound(int64_t bound, int64_t size, int64_t step) {
  if (step == 0) throw Error("a slice has step 0");
  const int64_t least = step > 0 ? 0 : -1, most = step > 0 ? size : size - 1;
  if (bound < 0) bound = bound < -size ? least : bound + size;
  return bound > most ? most : bound;
}
inline int64_t slice_begin(int64_t start, int64_t size, int64_t step) {
  const int64_t bound = slice_bound(start, size, step);
  return bound < 0 ? 0 : bound;
}
inline Ints slice_start(const Ints& sizes, const Ints& starts, const Ints& steps) {
  Ints out;
  for (int i = 0; i < sizes.size(); ++i) out.push_back(slice_begin(starts.at(i), sizes[i], steps.at(i)));
  return out;
}
// To ONNX Runtime these ends are the last element that there is, backwards too.
inline int64_t slice_end(int64_t end, int64_t size, int64_t step) {
  const bool open = end == INT32_MAX || end == INT64_MAX;
  return slice_bound(open && step < 0 ? INT64_MIN : end, size, step);
}
inline Ints slice_count(const Ints& sizes, const Ints& starts, const Ints& ends, const Ints& steps) {
  Ints out;
  for (int i = 0; i < sizes.size(); ++i) {
    const int64_t step = steps.at(i);
    const int64_t span = slice_end(ends.at(i), sizes[i], step) - slice_begin(starts.at(i), sizes[i], step);
    const bool any = sizes[i] > 0 && (step > 0 ? span > 0 : span < 0);
    out.push_back(any ? (span + (step > 0 ? -1 : 1)) / step + 1 : 0);
  }
  return out;
}

inline Ints concat(const Ints& a) { return a; }
template <class... More>
Ints concat(Ints a, const Ints& b, const More&... more) {
  for (int64_t v : b) a.push_back(v);
  return concat(a, more...);
}

inline Ints matmul(const Ints& a, const Ints& b) {
  const int m = a.size(), n = b.size();
  if (m < 2 || n < 2) throw Error("a matrix product needs two matrices");
  if (a[m - 1] != b[n - 2]) throw Error("the inner dimensions of a matrix product differ");
  Ints left(a.data(), m - 2), right(b.data(), n - 2);
  return concat(broadcast(left, right), Ints{a[m - 2], b[n - 1]});
}

inline Ints gemm(const Ints& a, const Ints& b, const Ints& transposed) {
  if (a.size() != 2 || b.size() != 2) throw Error("Gemm needs two matrices");
  const int ta = transposed[0] != 0, tb = transposed[1] != 0;
  if (a[1 - ta] != b[tb]) throw Error("the inner dimensions of Gemm differ");
  return Ints{a[ta], b[1 - tb]};
}

inline Ints permute(const Ints& a, const Ints& perm) {
  if (a.size() != perm.size()) throw Error("a permutation does not fit its tensor's rank");
  return take(a, perm);
}

inline Ints reshape(const Ints& shape, const Ints& target, const Ints& allow_zero) {
  Ints out = target;
  int64_t known = 1;
  int unknown = -1;
  for (int i = 0; i < out.size(); ++i) {
    if (out[i] == 0 && !allow_zero[0]) out[i] = shape.at(i);
    if (out[i] == -1) {
      if (unknown >= 0) throw Error("a reshape has two unknown dimensions");
      unknown = i;
    } else {
      known *= out[i];
    }
  }
  const int64_t total = count(shape);
  if (unknown >= 0) out[unknown] = known ? total / known : 0;
  if (count(out) != total) throw Error("a reshape changes the number of elements");
  return out;
}

inline Ints reduce(const Ints& a, const Ints& spec) {  // spec: keepdims, axis, ...
  const Ints axes(spec.data() + 1, spec.size() - 1);
  Ints out;
  for (int i = 0; i < a.size(); ++i) {
    const bool reduced = contains_axis(axes, i, a.size());
    if (!reduced) out.push_back(a[i]);
    if (reduced && spec[0]) out.push_back(1);
  }
  return out;
}

inline Ints unsqueeze(const Ints& a, const Ints& axes) {
  const int rank = a.size() + axes.size();
  Ints out;
  for (int i = 0, next = 0; i < rank; ++i) out.push_back(contains_axis(axes, i, rank) ? 1 : a.at(next++));
  return out;
}

inline Ints squeeze(const Ints& a, const Ints& axes) {
  Ints out;
  for (int i = 0; i < a.size(); ++i) {
    const bool dropped = axes.size() ? contains_axis(axes, i, a.size()) : a[i] == 1;
    if (dropped && a[i] != 1) throw Error("a squeezed dimension is not 1");
    if (!dropped) out.push_back(a[i]);
  }
  return out;
}

inline Ints flatten(const Ints& a, const Ints& axis) {
  const int64_t split = axis[0] < 0 ? axis[0] + a.size() : axis[0];
  if (split < 0 || split > a.size()) throw Error("an axis lies outside its shape");
  Ints out{1, 1};
  for (int i = 0; i < a.size(); ++i) out[i < split ? 0 : 1] *= a[i];
  return out;
}

// spec: n, strides[n], pads[2n], dilations[n], auto_pad (0 NOTSET, 1 VALID, 2 SAME_UPPER, 3 SAME_LOWER).
inline Ints conv(const Ints& x, const Ints& w, const Ints& spec) {
  const int n = static_cast<int>(spec[0]);
  if (x.size() != n + 2 || w.size() != n + 2) throw Error("a convolution's operands have the wrong rank");
  const int64_t *strides = spec.data() + 1, *pads = strides + n, *dilations = pads + 2 * n, auto_pad = dilations[n];
  Ints out{x[0], w[0]};
  for (int i = 0; i < n; ++i) {
    const int64_t size = x[i + 2], extent = (w[i + 2] - 1) * dilations[i] + 1;
    if (auto_pad >= 2) {
      out.push_back((size + strides[i] - 1) / strides[i]);
    } else {
      const int64_t padded = auto_pad == 1 ? size : size + pads[i] + pads[n + i];
      if (padded < extent) throw Error("a convolution's kernel is larger than its input");
      out.push_back((padded - extent) / strides[i] + 1);
    }
  }
  return out;
}

template <class F>
Ints zip(const Ints& a, const Ints& b, F f) {
  if (a.size() != b.size() && a.size() != 1 && b.size() != 1) throw Error("shape vectors differ in length");
  const int n = a.size() == 1 ? b.size() : a.size();
  Ints out;
  for (int i = 0; i < n; ++i) out.push_back(f(a[a.size() == 1 ? 0 : i], b[b.size() == 1 ? 0 : i]));
  return out;
}

inline int64_t checked_div(int64_t x, int64_t y) {
  if (y == 0) throw Error("a shape computation divides by zero");
  return y == -1 ? -x : x / y;
}
inline Ints add(const Ints& a, const Ints& b) {
  return zip(a, b, [](int64_t x, int64_t y) { return x + y; });
}
inline Ints sub(const Ints& a, const Ints& b) {
  return zip(a, b, [](int64_t x, int64_t y) { return x - y; });
}
inline Ints mul(const Ints& a, const Ints& b) {
  return zip(a, b, [](int64_t x, int64_t y) { return x * y; });
}
inline Ints div(const Ints& a, const Ints& b) { return zip(a, b, checked_div); }
inline Ints mod(const Ints& a, const Ints& b) {  // the sign of the divisor, as ONNX's integer Mod
  return zip(a, b, [](int64_t x, int64_t y) {
    const int64_t r = x - checked_div(x, y) * y;
    return r != 0 && (r < 0) != (y < 0) ? r + y : r;
  });
}
inline Ints min(const Ints& a, const Ints& b) {
  return zip(a, b, [](int64_t x, int64_t y) { return x < y ? x : y; });
}
inline Ints max(const Ints& a, const Ints& b) {
  return zip(a, b, [](int64_t x, int64_t y) { return x > y ? x : y; });
}
inline Ints equal(const Ints& a, const Ints& b) {
  return zip(a, b, [](int64_t x, int64_t y) { return int64_t(x == y); });
}
inline Ints where(const Ints& condition, const Ints& a, const Ints& b) {
  const Ints chosen = mul(min(max(condition, mul(condition, Ints{-1})), Ints{1}), a);
  const Ints other = mul(equal(condition, Ints{0}), b);
  return add(chosen, other);
}
inline Ints prod(const Ints& a) {
  int64_t n = 1;
  for (int64_t v : a) n *= v;
  return Ints{n};
}
inline Ints fill(const Ints& size, const Ints& value) { return Ints::filled(size.at(0), value[0]); }

}  // namespace host
}  // namespace fusion

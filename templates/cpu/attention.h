// Attention on the CPU: products by ONNX Runtime, the generated row program between them, a block of scores at a time.
#pragma once

#include "cpu/vendor.h"

namespace fusion {
namespace cpu {

// Elements [first, last) of a strided tensor as contiguous floats: in place where they are that already.
template <class T>
float* float_block(const Run& run, const Array<T>& a, const Ints& strides, const Ints& space, int64_t first,
                   int64_t last, float* buffer) {
  if constexpr (std::is_same<T, float>::value)
    if (strides == contiguous(space)) return a.data + first;
  gather(run, a.data, strides, space, first, last, buffer);
  return buffer;
}

// out = P V with P = rows(Q K^T), of iteration space [..., Sq, Dv].
//
// rows(scores, first, last) replaces rows [first, last) of all score rows, given at `scores`, by probabilities.
// A block is as many heads, or rows of one head, as keep its scores within `kScores` elements.
template <class Q, class K, class V, class Out, class Rows>
void attention(Run& run, const MatMul& qk, const MatMul& pv, const Ints& space, const Array<Q>& q, const Ints& q_perm,
               const Array<K>& k, const Ints& k_perm, const Array<V>& v, const Ints& v_perm,
               const Array<Out>& out, const Ints& out_perm, Rows rows) {
  constexpr int64_t kScores = 1 << 20;
  if (!count(space)) return;
  const auto viewed = [](const Ints& dims, const Ints& perm) { return perm.size() ? host::permute(dims, perm) : dims; };
  const Ints lead(space.data(), space.size() - 2);
  const int64_t heads = count(lead), n = space[space.size() - 2], dv = space.back();
  const int64_t d = viewed(q.dims, q_perm).back(), keys = viewed(v.dims, v_perm).at(-2);

  const Ints q_space = host::concat(lead, Ints{n, d}), v_space = host::concat(lead, Ints{keys, dv});
  const Ints k_space = host::concat(lead, Ints{keys, d});
  const Ints q_strides = strides_over(q_space, q, q_perm), k_strides = strides_over(k_space, k, k_perm);
  const Ints v_strides = strides_over(v_space, v, v_perm);
  Ints out_strides = contiguous(space);
  if (out_perm.size()) {
    const Ints own = contiguous(host::permute(space, out_perm));
    for (int i = 0; i < out_perm.size(); ++i) out_strides[static_cast<int>(out_perm[i])] = own[i];
  }

  const int64_t per_head = std::max(n * keys, int64_t(1));
  const int64_t some_heads = std::max(int64_t(1), std::min(heads, kScores / per_head));
  const int64_t some_rows = some_heads > 1 ? n : std::max(int64_t(1), std::min(n, kScores / std::max(keys, int64_t(1))));
  const auto floats = [&](int64_t size) { return static_cast<float*>(run.scratch(static_cast<size_t>(size) * 4)); };
  float* const scores = floats(some_heads * some_rows * keys);
  float* const q_buffer = floats(some_heads * n * d);
  float* const k_buffer = floats(some_heads * keys * d);
  float* const v_buffer = floats(some_heads * keys * dv);
  float* const result = floats(some_heads * some_rows * dv);

  for (int64_t h = 0; h < heads; h += some_heads) {
    const int64_t block = std::min(some_heads, heads - h), last = h + block;
    float* const qs = float_block(run, q, q_strides, q_space, h * n * d, last * n * d, q_buffer);
    float* const ks = float_block(run, k, k_strides, k_space, h * keys * d, last * keys * d, k_buffer);
    float* const vs = float_block(run, v, v_strides, v_space, h * keys * dv, last * keys * dv, v_buffer);
    for (int64_t r = 0; r < n; r += some_rows) {
      const int64_t m = std::min(some_rows, n - r), first = h * n + r;
      const Array<float> p{scores, Ints{block, m, keys}};
      qk(run, Array<float>{qs + r * d, Ints{block, m, d}}, Array<float>{ks, Ints{block, keys, d}}, p);
      rows(scores, first, first + block * m);
      const int64_t begin = first * dv, end = (first + block * m) * dv;
      bool direct = false;
      if constexpr (std::is_same<Out, float>::value) direct = !out_perm.size();
      float* const o = direct ? reinterpret_cast<float*>(out.data) + begin : result;
      pv(run, p, Array<float>{vs, Ints{block, keys, dv}}, Array<float>{o, Ints{block, m, dv}});
      if (!direct) scatter(run, o, out_strides, space, begin, end, out.data);
    }
  }
}

}  // namespace cpu
}  // namespace fusion

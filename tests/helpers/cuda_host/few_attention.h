// Attention of single queries with few keys, in a kernel of one phase, beside a double's: how many results are wrong.
#pragma once

#include <cstdio>

#include "at_once.h"
#include "include/attention_few.cuh"
#include "include/skinny_phases.cuh"

// Scores that fall by so much a key.
template <bool kIsCausal, bool kHasSink>
struct Scores {
  static constexpr bool kCausal = kIsCausal, kSink = kHasSink, kBare = false, kLowers = false;
  float slope = 0;
  int hidden = -1;  // the batch whose queries see no key
  float last = 0;   // one score more

  template <class Program, int N>
  struct ElementOf {
    const Program& of;
    const int64_t (&at)[N];
    int row, column;
  };
  using Element = ElementOf<Scores, 4>;
  float score(float product, const Element& x, int64_t batch, int64_t row, int64_t key) const {
    if (x.row != row || x.column != key) return NAN;
    if (batch == hidden || (kCausal && key > row)) return -INFINITY;
    return product - slope * key;
  }
  float sink(float, const Element&, int64_t, int64_t, int64_t) const { return last; }
};
using Falling = Scores<false, false>;
struct Bare : Falling {
  static constexpr bool kBare = true;
};

// Queries [batches, heads, queries, depth], as they lie after a product, of which all heads have the same keys.
struct Attended {
  static constexpr int kBatches = 2, kHeads = 3;
  int queries, keys, depth, value_depth;
  fusion::half *q, *k, *v, *out;

  Attended(cuda_host::Arena& arena, int queries, int keys, int depth, int value_depth)
      : queries(queries), keys(keys), depth(depth), value_depth(value_depth) {
    const auto fill = [&](int count, int seed) {
      fusion::half* const data = arena.take<fusion::half>(count);
      for (int i = 0; i < count; ++i) data[i] = fusion::to_half((i * 7919 + seed) % 1009 / 504.0f - 1);
      return data;
    };
    q = fill(kBatches * kHeads * queries * depth, 1), k = fill(kBatches * keys * depth, 2);
    v = fill(kBatches * keys * value_depth, 3), out = fill(kBatches * kHeads * queries * value_depth, 4);
  }
  fusion::gpu::View folded(int rows, int columns, int heads) const {
    const int64_t row = heads * columns;
    return {4, {kBatches, heads, rows, columns}, {rows * row, columns, row, 1}};
  }
  // The arguments of the kernel.
  auto shape() const {
    return fusion::gpu::attention_shape(folded(queries, depth, kHeads), folded(keys, depth, 1), folded(keys, value_depth, 1),
                                        folded(queries, value_depth, kHeads), 0.25f);
  }
  auto batches() const {
    const fusion::gpu::View views[] = {folded(queries, depth, kHeads), folded(keys, depth, 1), folded(keys, value_depth, 1),
                                       folded(queries, value_depth, kHeads)};
    return fusion::gpu::space<4>({kBatches, kHeads, queries, 1}, views, 2);
  }
  template <class Program>
  double want(const Program& program, int batch, int row, int column) const {
    const int of = batch / kHeads;
    const auto at = [](const fusion::half* p, int64_t i) { return double{fusion::to_float(p[i])}; };
    const int64_t unused[4] = {};
    double top = Program::kSink ? program.last : -INFINITY, sum = 0, all = 0;
    std::vector<double> scores(keys);
    for (int key = 0; key < keys; ++key) {
      double dot = 0;
      for (int d = 0; d < depth; ++d) {
        dot += at(q, ((of * queries + row) * kHeads + batch % kHeads) * depth + d) * at(k, (of * keys + key) * depth + d);
      }
      scores[key] = program.score(static_cast<float>(dot * 0.25), {program, unused, row, key}, batch, row, key);
      top = std::max(top, scores[key]);
    }
    if (Program::kSink) sum += std::exp(program.last - top);
    for (int key = 0; key < keys; ++key) {
      sum += std::exp(scores[key] - top), all += std::exp(scores[key] - top) * at(v, (of * keys + key) * value_depth + column);
    }
    return keys == 0 ? 0 : all / sum;
  }
};

template <int kDepth, fusion::gpu::Prob kProb, class Program>
int wrong_attention(const Program& program, int queries, int keys, int depth, int value_depth) {
  namespace gpu = fusion::gpu;
  using fusion::half;
  cuda_host::Arena arena;
  const Attended x(arena, queries, keys, depth, value_depth);
  constexpr size_t kBefore = gpu::kTaggedBytes + gpu::kCounters * sizeof(unsigned);
  const gpu::PhaseMemory memory(arena.take<char>(kBefore) + kBefore);
  const auto shape = x.shape();
  const auto batches = x.batches();
  cuda_host::launch_at_once(2, gpu::kStreamThreads, gpu::StreamTile<8>::kBytes, [&] {
    gpu::few_phases<half, 8>(true, memory, gpu::piece_phase(batches.count * queries, [&](int64_t index) {
      gpu::attention_row<half, kDepth, kProb>(x.q, x.k, x.v, x.out, shape, batches, program, index);
    }));
  });
  int wrong = 0;
  for (int i = 0; i < batches.count * queries * value_depth; ++i) {
    const int column = i % value_depth, head = i / value_depth % Attended::kHeads, line = i / value_depth / Attended::kHeads;
    double want = x.want(program, line / queries * Attended::kHeads + head, line % queries, column);
    if (kProb != gpu::Prob::kIdentity && std::isnan(want)) want = 0;
    const double found = fusion::to_float(x.out[i]);
    wrong += std::isnan(want) ? !std::isnan(found) : !(std::abs(found - want) < 2e-3);
  }
  if (wrong != 0) std::fprintf(stderr, "attention of %d keys, depths %d and %d: %d wrong\n", keys, depth, value_depth, wrong);
  return wrong;
}

inline int wrong_attentions() {
  using fusion::gpu::Prob;
  int found = 0;
  for (const int keys : {0, 1, 5, 34, 64}) {
    found += wrong_attention<64, Prob::kIdentity>(Bare{}, 1, keys, 64, 64);
    found += wrong_attention<128, Prob::kIdentity>(Scores<true, false>{0.1f}, 3, keys, 128, 72);
    found += wrong_attention<64, Prob::kIdentity>(Scores<false, true>{0.1f, 4, 1.5f}, 2, keys, 40, 64);
    found += wrong_attention<128, Prob::kZeroNaN>(Falling{0.2f, 1}, 2, keys, 64, 128);
    found += wrong_attention<64, Prob::kZeroEmpty>(Falling{-0.2f, 5}, 1, keys, 8, 4);
    found += wrong_attention<64, Prob::kIdentity>(Falling{0.2f, 0}, 1, keys, 64, 64);
  }
  return found;
}

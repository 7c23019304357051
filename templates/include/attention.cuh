// softmax(score(Q K^T)) V with an online softmax: scores live in registers, one tile of keys at a time.
#pragma once

#include "include/divisor.h"
#include "include/vector.cuh"

namespace fusion::gpu {

// In which order blocks have tiles of queries: tiles from the last to the first, since the last rows of a causal score see the most
// keys, and where batches take turns each tile in all of those.
struct TileTurns {
  unsigned together = 1, tiles = 0, batches = 0;  // batches that take turns; tiles of a batch; all batches
  Divisor by_section = {}, by_together = {}, by_rest = {};
};

// Operands 0 to 3 of the batch space are q, k, v and the output, the score program's own follow.
struct AttentionShape {
  int64_t queries, keys, depth, value_depth;
  int64_t q_row, q_column, k_row, k_column, v_row, v_column, out_row, out_column;  // element strides
  float scale;
  Divisor by_queries;
  TileTurns turns = {};

  // Of a row, where the queries of several heads are one below the other.
  __device__ __forceinline__ int head(int row) const { return static_cast<int>(by_queries.quotient(row)); }
  // For a kernel whose blocks have so many queries, before it is launched.
  void lay_out(int64_t batches, int rows) {
    TileTurns& x = turns;
    x.tiles = static_cast<unsigned>((queries + rows - 1) / rows), x.batches = static_cast<unsigned>(batches);
    x.by_section = Divisor::of(x.together * x.tiles), x.by_together = Divisor::of(x.together);
    x.by_rest = Divisor::of(x.batches % x.together);
  }
};

// How the probabilities' own program is treated.
enum class Prob {
  kIdentity,
  kZeroEmpty,  // zeros in a row whose scores are all -inf
  kZeroNaN,    // NaN becomes zero: a whole row is NaN or none of it
  kGeneral,    // any function of the finished probability: the row's sum is needed first, so keys are walked twice
};

constexpr float kLog2E = 1.4426950408889634f;

__device__ __forceinline__ float exp2_fast(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;\n" : "=f"(y) : "f"(x));
  return y;
}

// exp(x - m) with x - m <= 0 or NaN. A row that is all -inf so far has m = -inf: nothing to add yet, not NaN.
__device__ __forceinline__ float exp_below(float x, float m) {
  return exp2_fast((x - (m == -INFINITY ? 0.0f : m)) * kLog2E);
}

// What a score is multiplied by as an exponent of 2. A bare one keeps its scale until there.
template <class Program>
__device__ __forceinline__ float score_unit(const AttentionShape& s) {
  return kLog2E * (Program::kBare ? s.scale : 1.0f);
}

// Reduces over the lanes that share a row: 4 neighbours in a tensor-core fragment, 16 in the scalar kernel.
template <int kLanes>
__device__ __forceinline__ float lanes_max(float x) {
#pragma unroll
  for (int o = kLanes / 2; o > 0; o >>= 1) x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, o));
  return x;
}

// The factor that turns a row's accumulated sum into the result. No keys at all give zeros, as an empty product does;
// a row whose scores are all -inf has sum 0 and gives NaN, as ONNX's Softmax does, or zeros, as ONNX's Attention does.
template <Prob kProb>
__device__ __forceinline__ float normaliser(float sum, int64_t keys) {
  if (keys == 0) return 0.0f;
  if (kProb == Prob::kZeroEmpty && sum == 0.0f) return 0.0f;
  if (kProb == Prob::kZeroNaN && !(sum > 0.0f)) return 0.0f;
  return 1.0f / sum;
}

// How many keys the rows before `end` can see. Scores of later keys are -inf where the program is causal: they add
// nothing, and what a value holds there (NaN, infinities) is not looked at.
template <Prob kProb, class Program>
__device__ __forceinline__ int visible_keys(int end, int keys) {
  return Program::kCausal && kProb != Prob::kGeneral ? min(end, keys) : keys;
}

// Whether what positions alone hide is known without the score program.
template <class Program>
constexpr bool kTriangle = Program::kBare && (Program::kCausal || Program::kLowers);

// What the product of a query and a later key counts as there. A bare one gets its scale afterwards, and far from the
// largest float, which the unit would make infinite. Made outside of loops over scores: it takes two divisions.
template <class Program>
struct LaterProduct {
  float lower = -INFINITY;

  __device__ __forceinline__ explicit LaterProduct(float scale) {
    if constexpr (Program::kLowers) lower = fmaxf(Program::kLater / scale, -1e38f / fmaxf(scale, 1.0f));
  }
  __device__ __forceinline__ float operator()(float product) const {
    if constexpr (Program::kLowers) return Program::kFirm ? lower : product + lower;
    else return lower;
  }
};

// The tile of queries that a block has, and its batch.
struct Place {
  int64_t batch;
  int tile;
};

// Blocks start in the order of their numbers.
__host__ __device__ __forceinline__ Place place_of(unsigned block, const TileTurns& x) {
  const unsigned section = x.by_section.quotient(block), first = section * x.together;
  const unsigned turn = block - first * x.tiles, left = x.batches - first;
  const unsigned tile = (left < x.together ? x.by_rest : x.by_together).quotient(turn);
  return {first + turn - tile * (left < x.together ? left : x.together), static_cast<int>(x.tiles - 1 - tile)};
}

// The strides of the last two axes of q [..., queries, depth], k [..., keys, depth], v [..., keys, value depth], out.
inline AttentionShape attention_shape(const View& q, const View& k, const View& v, const View& out, float scale) {
  const auto row = [](const View& x) { return x.step(2); };  // of a single row whatever lets it be read in whole pieces
  const auto column = [](const View& x) { return x.stride[x.rank - 1]; };
  return {q.size[q.rank - 2], k.size[k.rank - 2], q.size[q.rank - 1], v.size[v.rank - 1], row(q),   column(q),
          row(k),             column(k),          row(v),             column(v),          row(out), column(out), scale,
          Divisor::of(q.size[q.rank - 2])};
}

// Whether the rows of every batch are made of 16-byte pieces that are aligned if the first is.
inline bool in_pieces(const View& x) {
  bool whole = x.size[x.rank - 1] % 8 == 0 && x.step(1) <= 1 && x.step(2) <= INT32_MAX;
  for (int back = 2; back <= x.rank; ++back) whole = whole && x.step(back) % 8 == 0;
  return whole;
}

// Whether all of them can be read so.
inline bool are_in_pieces(const View& q, const View& k, const View& v, std::initializer_list<const void*> data) {
  bool aligned = in_pieces(q) && in_pieces(k) && in_pieces(v);
  for (const void* p : data) aligned = aligned && reinterpret_cast<uintptr_t>(p) % 16 == 0;
  return aligned;
}

// As many batches as have their keys and values in half of the L2 cache: the longest tiles of all of them go first, and
// the shortest last, when multiprocessors would run out of work.
template <int N>
unsigned taking_turns(const Device& device, const AttentionShape& s, const Space<N>& batches, size_t element) {
  int64_t apart = 1;  // batches that have keys of their own
  for (int d = 0; d < batches.rank; ++d) apart *= batches.axis[d].stride[1] != 0 ? batches.axis[d].size : 1;
  const int64_t bytes = s.keys * (s.depth + s.value_depth) * static_cast<int64_t>(element) * apart;
  const int64_t most = bytes > 0 ? device.cache / 2 * batches.count / bytes : 1;
  return static_cast<unsigned>(most < 1 ? 1 : most < batches.count ? most : batches.count > 0 ? batches.count : 1);
}

// A block per `rows` queries of a batch. Kernels count the queries and keys of one batch in 32 bits.
inline unsigned attention_grid(const AttentionShape& s, int64_t batches, int rows, const char* what) {
  constexpr int kMargin = 1024;
  grid_size((s.queries > s.keys ? s.queries : s.keys) + kMargin, what);
  return s.value_depth == 0 ? 0 : grid_size(batches * ceil_div(s.queries, rows), what);
}

}  // namespace fusion::gpu

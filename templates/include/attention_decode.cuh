// Attention of few queries, such as a decoder's steps, in fp16 and bf16: each warp reads keys and values of its own, for
// all query heads that share them.
#pragma once

#include "include/attention_tensor.cuh"

namespace fusion::gpu {

constexpr int kFewQueries = 16;
constexpr int kDecodeRows = 16, kDecodeKeys = 16;  // one fragment of queries per block, of keys per warp and step

template <class Tile>
bool fits(const Device& device) {
  return Tile::kBytes <= static_cast<size_t>(device.shared_memory);
}

template <int kDepth, int kValueDepth>
struct DecodeTile {
  static constexpr int kPitch = kDepth + 8, kValuePitch = kValueDepth + 8;
  static constexpr int kStage = kDecodeKeys * (kPitch + kValuePitch);  // elements that a warp has on their way
  // Three blocks have a multiprocessor's 228 KB of shared memory.
  static constexpr int kFit = 70 * 1024 / (kAttentionWarps * kStage * 2);
  static constexpr int kStages = kFit < 2 ? 2 : kFit > 4 ? 4 : kFit;
  static constexpr size_t kBytes = 2 * (kDecodeRows * kPitch + kAttentionWarps * kStages * kStage);

  // Code for what cannot be read in pieces would lie between that which is run, once, and comes from memory itself.
  static bool takes(const Device& device, const AttentionShape& s, const View& q, const View& k, const View& v,
                    std::initializer_list<const void*> data) {
    return s.queries <= kFewQueries && fits<DecodeTile>(device) && are_in_pieces(q, k, v, data);
  }
};

// Query heads that share keys and values, and what their operands step from one to the next.
template <int N>
struct HeadGroup {
  int size, tiles;  // heads, and blocks that have their rows
  int64_t stride[N];
  Divisor by_tiles;

  HeadGroup(int size, int64_t queries)
      : size(size), tiles(static_cast<int>(ceil_div(size * queries, kDecodeRows))), stride{}, by_tiles(Divisor::of(tiles)) {}
};

// Those of the batch's innermost axis, if its keys and values are broadcast.
inline int64_t shared_heads(const Ints& dims, const Ints& k, const Ints& v) {
  const auto one = [](const Ints& x) { return x.size() < 3 || x[x.size() - 3] == 1; };
  return dims.size() > 2 && one(k) && one(v) ? dims[dims.size() - 3] : 1;
}

template <int N>
HeadGroup<N> head_group(const Ints& dims, const View (&views)[N]) {
  const int64_t queries = dims[dims.size() - 2];
  if (dims.size() < 3 || views[1].step(3) != 0 || views[2].step(3) != 0) return {1, queries};
  HeadGroup<N> group(static_cast<int>(dims[dims.size() - 3]), queries);
  for (int i = 0; i < N; ++i) group.stride[i] = views[i].step(3);
  return group;
}

struct DecodeGrid {
  int64_t blocks, rows;  // of a block
};

inline DecodeGrid decode_grid(const Ints& dims, int64_t heads) {
  const int64_t rows = heads * dims[dims.size() - 2], all = count(dims) / (dims.back() > 0 ? dims.back() : 1);
  const int64_t tiles = ceil_div(rows, kDecodeRows);
  return {rows == 0 ? 0 : all / rows * tiles, rows < kDecodeRows ? rows : kDecodeRows};
}

// Workspace for the parts of an attention that gives `dims` [..., queries, value depth], by either kernel.
inline size_t attention_part_bytes(const Device& device, const Ints& dims, const Ints& k, const Ints& v) {
  const int64_t queries = dims[dims.size() - 2], keys = k[k.size() - 2], depth = dims.back();
  if (count(dims) == 0) return 0;
  const DecodeGrid few = decode_grid(dims, shared_heads(dims, k, v));
  return largest({queries > kFewQueries ? 0 : part_bytes(device, few.blocks, few.rows, keys, depth),
                  part_bytes(device, count(dims) / depth / queries, queries, keys, depth)});
}

// A block has up to 16 rows, which are queries of heads that share keys and values, and walks its split of the keys, of
// which its warps take turns.
template <class T, int kDepth, int kValueDepth, Prob kProb, int N, class Program>
__device__ __forceinline__ void attention_decode(const T* q, const T* k, const T* v, T* out, const AttentionShape& s,
                                                 const Space<N>& batches, const HeadGroup<N>& group,
                                                 const KeySplit& split, const Program& program) {
  using Tile = DecodeTile<kDepth, kValueDepth>;
  using Order = Dealt<4>;
  using Element = typename Program::Element;
  constexpr int kPitch = Tile::kPitch, kValuePitch = Tile::kValuePitch, kStages = Tile::kStages;
  extern __shared__ uint4 dynamic[];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  T* const tile_q = reinterpret_cast<T*>(dynamic);
  T* const rings = tile_q + kDecodeRows * kPitch;
  T* const ring = rings + warp * kStages * Tile::kStage;

  const int queries = static_cast<int>(s.queries), keys = static_cast<int>(s.keys), all = group.size * queries;
  const int64_t batch = group.by_tiles.quotient(blockIdx.x);
  const int first_row = static_cast<int>(blockIdx.x - batch * group.tiles) * kDecodeRows, rows = min(all - first_row, kDecodeRows);
  int64_t at[N];
  batches.locate_block(batch, at);
  const Matrix<T> mk{k + at[1], s.k_row, s.k_column, s.keys, s.depth};
  const Matrix<T> mv{v + at[2], s.v_row, s.v_column, s.keys, s.value_depth};

  const int begin = blockIdx.y * split.keys;
  const int end = begin + min(visible_keys<kProb, Program>(queries, keys) - begin, split.keys);
  const auto key_of = [&](int step) { return begin + (step * kAttentionWarps + warp) * kDecodeKeys; };
  const auto fetch = [&](int step, int slot) {
    if (key_of(step) < end) {
      T* const stage = ring + slot * Tile::kStage;
      load_tile<kDecodeKeys, kDepth, kPitch, 32, Order>(stage, mk, key_of(step), 0, true, lane);
      load_tile<kDecodeKeys, kValueDepth, kValuePitch, 32, Order>(stage + kDecodeKeys * kPitch, mv, key_of(step), 0, true, lane);
    }
  };

  const auto load_queries = [&] {
#pragma unroll 1
    for (int i = warp; i < kDecodeRows; i += kAttentionWarps) {
      const int row = first_row + i, head = s.head(row), query = row - head * queries;
      const T* const from = q + at[0] + head * group.stride[0] + query * s.q_row;
      const Matrix<T> line{from, 0, s.q_column, i < rows, s.depth};
      load_tile<1, kDepth, kPitch, 32>(tile_q + i * kPitch, line, 0, 0, true, lane);
    }
  };

  await_earlier();
  // Queries come with the first keys.
#pragma unroll 1
  for (int step = 0; step < kStages; ++step) {
    fetch(step, step);
    if (step == 0) load_queries();
    copy_commit();
  }

  // Keys that a mask hides from all queries and heads are not read, but for those that are on their way by now.
  __shared__ Ceilings<kDecodeKeys> ceilings;
  bool skips = false;
  if constexpr (Program::kByKey) {
    const int steps = (end - begin + kDecodeKeys - 1) / kDecodeKeys;
    skips = steps <= Ceilings<kDecodeKeys>::kMost && program.by_key();
#pragma unroll
    for (int i = 4; i < N; ++i) skips = skips && group.stride[i] == 0;
    if (skips) ceilings.template find<kAttentionThreads>(program, at, batch * group.size, begin, keys, steps);
  }
  const auto next = [&](int step) {
    do {
      ++step;
    } while (Program::kByKey && skips && step >= kStages && key_of(step) < end &&
             ceilings.of[step * kAttentionWarps + warp] == -INFINITY);
    return step;
  };

  copy_wait<kStages - 1>();
  __syncthreads();
  uint32_t fq[kDepth / 16][4];
#pragma unroll
  for (int d = 0; d < kDepth / 16; ++d) load_a<false, kPitch>(fq[d], tile_q, 0, d * 16);

  // This lane's two rows; those past the end read the last one's operands, and nothing comes of it.
  int query[2];
  int64_t full_batch[2], row_at[2][N];
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int row = first_row + min(lane / 4 + r * 8, rows - 1), head = s.head(row);
    query[r] = row - head * queries;
    full_batch[r] = batch * group.size + head;
#pragma unroll
    for (int i = 0; i < N; ++i) row_at[r][i] = at[i] + head * group.stride[i];
  }

  bool whole = false;
  if constexpr (!Program::kBare) whole = __all_sync(0xffffffffu, program.is_whole(row_at[0]) && program.is_whole(row_at[1]));
  RunningRows<1, Program::kSmall> running(score_unit<Program>(s));
  const LaterProduct<Program> later_product(s.scale);
  float o[1][kValueDepth / 8][4] = {};
  if constexpr (Program::kSink) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      if (blockIdx.y > 0 || warp > 0) continue;
      const Element first{program, row_at[r], query[r], 0};
      running.begin_with(program.sink(0.0f, first, full_batch[r], query[r], 0), 0, r);
    }
  }

  int ahead = kStages - 1;
  for (int step = 0, slot = 0; key_of(step) < end; step = next(step), slot = (slot + 1) % kStages) {
    const int first_key = key_of(step), own_key = first_key + lane % 4 * 4;
    typename Program::template Strip<4> strip[2];
    if constexpr (!Program::kBare) {
      read_strips<4>(program, keys, first_key + kDecodeKeys, whole, [&](const auto& read) {
#pragma unroll
        for (int r = 0; r < 2; ++r) read(strip[r], row_at[r], query[r], own_key);
      });
    }
    copy_wait<kStages - 1>();
    __syncwarp();
    const T* const tile_k = ring + slot * Tile::kStage;

    float x[1][2][4] = {};
#pragma unroll
    for (int d = 0; d < kDepth / 16; ++d) {
      uint32_t fk[4];
      load_b<true, kPitch>(fk, tile_k, d * 16, 0);
      multiply_add<T>(x[0][0], fq[d], fk[0], fk[1]);
      multiply_add<T>(x[0][1], fq[d], fk[2], fk[3]);
    }
#pragma unroll
    for (int j = 0; j < 2; ++j) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int r = e / 2, column = own_key + j * 2 + e % 2;
        float& score = x[0][j][e];
        if constexpr (!Program::kBare) {
          score = program.score(score * s.scale, strip[r][j * 2 + e % 2], full_batch[r], query[r], column);
        }
        if (kTriangle<Program> && column > query[r]) score = later_product(score);
        score = column < keys ? score : -INFINITY;
      }
    }
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const float shrink = running.raise(highest<kDecodeKeys>(x[0], r), 0, r);
#pragma unroll
      for (int j = 0; j < kValueDepth / 8; ++j) {
        o[0][j][2 * r] *= shrink;
        o[0][j][2 * r + 1] *= shrink;
      }
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        float& weight = x[0][i / 2][2 * r + i % 2];
        weight = running.weight(weight, 0, r);
        running.sum[0][r] += weight;
      }
    }
    add_values<1, kDecodeKeys, kValueDepth, kValuePitch>(o, x, tile_k + kDecodeKeys * kPitch);
    __syncwarp();  // all lanes have read what is overwritten now
    ahead = next(ahead);
    fetch(ahead, slot);
    copy_commit();
  }
  copy_wait<0>();
  __syncthreads();  // the rings are free for the warps' results

  __shared__ float tops[kAttentionWarps][kDecodeRows], sums[kAttentionWarps][kDecodeRows];
  float* const results = reinterpret_cast<float*>(rings);
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int row = lane / 4 + r * 8;
    const float sum = lanes_sum<4>(running.sum[0][r]);
    if (lane % 4 == 0) tops[warp][row] = running.maximum[0][r], sums[warp][row] = sum;
    float* const line = results + (warp * kDecodeRows + row) * kValuePitch + lane % 4 * 2;
#pragma unroll
    for (int j = 0; j < kValueDepth / 8; ++j) {
      line[j * 8] = o[0][j][2 * r];
      line[j * 8 + 1] = o[0][j][2 * r + 1];
    }
  }
  __syncthreads();

  const int part_rows = min(all, kDecodeRows);  // of every block
  const auto line_of = [&](int i) {
    const int row = first_row + i, head = s.head(row);
    return out + at[3] + head * group.stride[3] + (row - head * queries) * s.out_row;
  };
  for (int i = warp; i < rows; i += kAttentionWarps) {
    float top = tops[0][i], sum = 0.0f, weight[kAttentionWarps];
#pragma unroll
    for (int w = 1; w < kAttentionWarps; ++w) top = fmaxf(top, tops[w][i]);
#pragma unroll
    for (int w = 0; w < kAttentionWarps; ++w) {
      weight[w] = exp2_fast((tops[w][i] - (top == -INFINITY ? 0.0f : top)) * running.unit);
      sum += weight[w] * sums[w][i];
    }
    const auto each_value = [&](const auto& f) {
#pragma unroll 1
      for (int c = lane; c < static_cast<int>(s.value_depth); c += 32) {
        float value = 0.0f;
#pragma unroll
        for (int w = 0; w < kAttentionWarps; ++w) value += weight[w] * results[(w * kDecodeRows + i) * kValuePitch + c];
        f(c, value);
      }
    };
    if (split.count > 1) {
      float* const part = split.values(blockIdx.y, i, part_rows, s);
      each_value([&](int c, float value) { part[c] = value; });
      if (lane == 0) *split.mark(blockIdx.y, i, part_rows) = {top, sum};
      continue;
    }
    const float factor = normaliser<kProb>(sum, s.keys);
    T* const line = line_of(i);
    each_value([&](int c, float value) { store(line + c * s.out_column, factor == 0.0f ? 0.0f : value * factor); });
  }
  if (split.count == 1 || !split.is_last()) return;
  for (int i = warp; i < rows; i += kAttentionWarps) {
    join_row<kProb, Program, kValueDepth>(split, i, part_rows, s, line_of);
  }
}

}  // namespace fusion::gpu

// 64 queries of a warpgroup: the scores of a tile of keys in its accumulators, the weights made of them, and the values
// weighed so far.
#pragma once

#include "include/attention_fragments.cuh"
#include "include/attention_mask.cuh"
#include "include/wgmma.cuh"

#if FUSION_HOPPER
namespace fusion::gpu {

// The columns of the panels that so many fit in. Those past the end are zeros, which nobody multiplies but for up to 16 of them.
constexpr int whole_panels(int columns) { return (columns + kPanel - 1) / kPanel * kPanel; }

// Starts copying kRows rows of `m` from `row` on into panels, zeros where there are none. For kThreads threads.
template <int kRows, int kColumns, class Order = InOrder, int kThreads = kWarpgroup, class T>
__device__ __forceinline__ void load_panels(T* shared, const Matrix<T>& m, int row) {
  constexpr int kPieces = kColumns / 8, kStep = kThreads / kPieces;  // rows at a time
  static_assert(kStep % 8 == 0, "a thread's pieces are swizzled alike");
  const int thread = threadIdx.x % kThreads, piece = thread % kPieces, first = thread / kPieces;
  const int line = row + Order::from(first);
  const int rows = static_cast<int>(m.rows) - line, stride = static_cast<int>(m.row_stride);
  const bool within = piece * 8 < static_cast<int>(m.columns);
  const T* from = m.data + line * m.row_stride + piece * 8;
  T* const to = shared + piece / 8 * kRows * kPanel + first * kPanel + (piece ^ first) % 8 * 8;
  if (row + kRows <= m.rows) {  // most tiles, with few instructions, for others need the time
    const auto copy_all = [&](const T* from, int stride, auto is_there) {
#pragma unroll
      for (int r = 0; r < kRows; r += kStep) {
        copy_async(to + r * kPanel, from, is_there);
        from += int64_t{Order::from(r + kStep) - Order::from(r)} * stride;
      }
    };
    if (m.columns == kColumns) copy_all(from, stride, std::true_type{});
    else copy_all(within ? from : m.data, within ? stride : 0, within);
  } else {
#pragma unroll 4
    for (int r = 0; r < kRows; r += kStep) {
      const bool is_there = within && Order::from(r) < rows;
      copy_async(to + r * kPanel, is_there ? from + int64_t{Order::from(r)} * stride : m.data, is_there);
    }
  }
}

// For a block whose threads all copy and multiply: what they copied is there, but for that of so many commits of each.
template <int kPending>
__device__ __forceinline__ void await_copies() {
  copy_wait<kPending>();
  publish_copies();
  __syncthreads();
}

// What the block works on, which has one tile of `rows` queries.
template <class T, int N>
struct QueryTile {
  int64_t at[N], batch;
  int first_query;
  Matrix<T> q, k, v;

  __device__ __forceinline__ QueryTile(const T* q, const T* k, const T* v, const AttentionShape& s, const Space<N>& batches,
                                       int rows) {
    const Place place = place_of(blockIdx.x, s.turns);
    batch = place.batch, first_query = place.tile * rows;
    batches.locate_block(batch, at);
    this->q = {q + at[0], s.q_row, 1, s.queries, s.depth};
    this->k = {k + at[1], s.k_row, 1, s.keys, s.depth};
    this->v = {v + at[2], s.v_row, 1, s.keys, s.value_depth};
  }
};

// kAlike: what the score program reads is the same for all queries.
template <class T, int kDepth, int kValueDepth, int kKeys, class Order, int N, class Program, bool kAlike = false>
struct WarpgroupRows {
  using Element = typename Program::Element;
  const AttentionShape& s;
  const Program& program;
  const int64_t (&at)[N];
  const int64_t batch;
  const int first_row, queries, keys;  // the warp's first row, and how many there are
  const bool whole;                    // as Program::is_whole says
  RunningRows<1, Program::kSmall> rows;
  float x[1][kKeys / 8][4], o[1][kValueDepth / 8][4];
  uint32_t p[kKeys / 16][4];
  static constexpr int kStrips = kAlike ? 1 : 2;
  typename Program::template Strip<8> strip[Program::kBare ? 1 : kKeys / 32][kStrips];

  __device__ __forceinline__ WarpgroupRows(const AttentionShape& s, const Program& program, const int64_t (&at)[N],
                                           int64_t batch, int first_row, bool whole)
      : s(s), program(program), at(at), batch(batch), first_row(first_row), queries(static_cast<int>(s.queries)),
        keys(static_cast<int>(s.keys)), whole(whole), rows(score_unit<Program>(s)) {
    if constexpr (Program::kSink) {
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        rows.begin_with(program.sink(0.0f, Element{program, at, row(r), 0}, batch, row(r), 0), 0, r);
      }
    }
#pragma unroll
    for (int j = 0; j < kValueDepth / 8; ++j) o[0][j][0] = o[0][j][1] = o[0][j][2] = o[0][j][3] = 0.0f;
  }

  __device__ __forceinline__ static int lane() { return threadIdx.x % 32; }
  // Rows past the end read the last one's operands; nothing comes of it.
  __device__ __forceinline__ int row(int r) const { return min(first_row + lane() / 4 + r * 8, queries - 1); }
  __device__ __forceinline__ int column(int t, int j, int e) const {
    return t * kKeys + Order::from(j * 8 + lane() % 4 * 2 + e % 2);
  }

  // Starts the products of the queries and a tile of keys, both in panels.
  __device__ __forceinline__ void start_scores(uint32_t tile_q, uint32_t tile_k) {
    products_of(x[0]);
    products_begin();
    const uint64_t a = panel(tile_q), b = panel(tile_k);
#pragma unroll
    for (int d = 0; d < kDepth / 16; ++d) {
      const int column = d % 4 * 32;
      WarpgroupProduct<T, kKeys>::by_rows(x[0], further(a, d / 4 * (64 * 128) + column), further(b, d / 4 * (kKeys * 128) + column), d > 0);
    }
    products_commit();
  }

  // Starts those of the weights and a tile of values.
  __device__ __forceinline__ void start_values(uint32_t tile_v) {
    products_of(o[0]);
    products_begin();
    const uint64_t b = panel(tile_v, kKeys * 128);
#pragma unroll
    for (int j = 0; j < kKeys / 16; ++j) WarpgroupProduct<T, kValueDepth>::by_columns(o[0], p[j], further(b, j * 16 * 128), true);
    products_commit();
  }

  // Reads what the score program will, on its way during the product; of one row where all are `alike`: far fewer bytes.
  __device__ __forceinline__ void read_operands(int t, bool alike = false) {
    if constexpr (Program::kBare) return;
    read_strips<8>(program, keys, (t + 1) * kKeys, whole, [&](const auto& read) {
#pragma unroll
      for (int g = 0; g < kKeys / 32; ++g) {
#pragma unroll
        for (int r = 0; r < kStrips; ++r) {
          read(strip[g][r], at, kAlike || alike ? min(first_row, queries - 1) : row(r), column(t, g * 4, 0));
        }
      }
    });
  }

  // What it has read for element e of fragment j.
  __device__ __forceinline__ auto element(int j, int e) const {
    return strip[Program::kBare ? 0 : j / 4][e / 2 % kStrips][j % 4 * 2 + e % 2];
  }

  template <class Made>
  __device__ __forceinline__ void each_score(const Made& made) {
#pragma unroll
    for (int j = 0; j < kKeys / 8; ++j) {
#pragma unroll
      for (int e = 0; e < 4; ++e) x[0][j][e] = made(x[0][j][e], j, e);
    }
  }

  // Whether the products in x, of keys that are hidden from all queries, add nothing to this lane's rows.
  __device__ __forceinline__ bool adds_nothing(int t) const {
    const LaterProduct<Program> later_product(s.scale);
    bool far = true;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      float top = -INFINITY;
#pragma unroll
      for (int j = 0; j < kKeys / 8; ++j) {
#pragma unroll
        for (int e = 2 * r; e < 2 * r + 2; ++e) {
          float score;
          if constexpr (Program::kBare) score = later_product(x[0][j][e]);
          else score = program.score(x[0][j][e] * s.scale, element(j, e), batch, row(r), column(t, j, e));
          top = column(t, j, e) < keys ? max_nan(top, score) : top;
        }
      }
      far = far && rows.is_far(top, 0, r);
    }
    return far;
  }

  // Makes weights of the scores in x; those so far are to be multiplied by `shrink`. kPlain: no mask changes them.
  template <bool kPlain>
  __device__ __forceinline__ void weigh(int t, float (&shrink)[2]) {
    constexpr bool kRaw = kPlain && !Program::kBare;  // x is not scaled yet
    if constexpr (!kPlain) {
      each_score([&](float product, int j, int e) {
        return program.score(product * s.scale, element(j, e), batch, row(e / 2), column(t, j, e));
      });
    }
    const bool crosses = (t + 1) * kKeys > (kTriangle<Program> ? min(keys, first_row + 1) : keys);
    if (crosses) {
      const LaterProduct<Program> later_product(s.scale);
      each_score([&](float score, int j, int e) {
        const bool later = kTriangle<Program> && column(t, j, e) > row(e / 2);
        const float found = later ? later_product(score) : score;
        return column(t, j, e) < keys ? found : -INFINITY;
      });
    }
    const float unit = kRaw ? s.scale : 1.0f;  // of x, in scores
#pragma unroll
    for (int r = 0; r < 2; ++r) shrink[r] = rows.raise(highest<kKeys>(x[0], r) * unit, 0, r);
    const bool small = Program::kLowers && !crosses;  // and so is the highest score of a row
    if (kRaw || Program::kSmall || small) {
      const float factor = unit * rows.unit, of_offset = Program::kSmall ? 1.0f : rows.unit;
      const float offset[2] = {rows.offset[0][0] * of_offset, rows.offset[0][1] * of_offset};
      each_score([&](float product, int, int e) { return exp2_fast(fmaf(product, factor, -offset[e / 2])); });
    } else {
      each_score([&](float score, int, int e) { return rows.weight(score, 0, e / 2); });
    }
#pragma unroll
    for (int j = 0; j < kKeys / 8; ++j) {
#pragma unroll
      for (int e = 0; e < 4; ++e) rows.sum[0][e / 2] += x[0][j][e];
    }
  }

  // Readies the values so far and the new weights for the next values.
  __device__ __forceinline__ void join(const float (&shrink)[2]) {
#pragma unroll
    for (int j = 0; j < kValueDepth / 8; ++j) {
#pragma unroll
      for (int e = 0; e < 4; ++e) o[0][j][e] *= shrink[e / 2];
    }
#pragma unroll
    for (int j = 0; j < kKeys / 8; ++j) {
      p[j / 2][j % 2 * 2] = pack<T>(x[0][j][0], x[0][j][1]);
      p[j / 2][j % 2 * 2 + 1] = pack<T>(x[0][j][2], x[0][j][3]);
    }
  }
};

}  // namespace fusion::gpu
#endif

// Hopper's kernels that go through phases, with epilogues and pieces as they are generated: how many results are wrong.
#include <algorithm>
#include <cstdio>

#include "at_once.h"
#include "few_attention.h"
#include "include/rowwise.cuh"
#include "include/skinny_phases.cuh"

namespace gpu = fusion::gpu;
using fusion::half;

constexpr float kUnwritten = -2000;

// Small whole numbers, of which sums are exact.
float folded(float x) { return x - 7 * std::floor((x + 3) / 7); }
half whole(int i, int from, int to) { return fusion::to_half(i * 7919 % 101 % (to - from + 1) + from); }

struct Matrix {
  half* data;
  int rows, columns;
  float at(int row, int column) const { return fusion::to_float(data[row * columns + column]); }
  int count() const { return rows * columns; }
};
Matrix constant(cuda_host::Arena& arena, int rows, int columns, int seed) {
  const Matrix m{arena.take<half>(rows * columns), rows, columns};
  for (int i = 0; i < m.count(); ++i) m.data[i] = whole(i + seed * 29, -1, 2);
  return m;
}

// Of a row's element: the one there, a bias, and what another has there.
template <int kProducts>
struct Epilogue {
  const half *bias, *other;
  half* out;
  int64_t columns;
  struct Operands {
    gpu::Vector<half, 8> bias, other;
  };
  static float of(const float (&sums)[kProducts], float bias, float other) {
    float x = folded(sums[0] + bias) + other;
    for (int p = 1; p < kProducts; ++p) x = folded(x) * folded(sums[p]) + bias;
    return folded(x);
  }
  void fetch(Operands& x, uint32_t row, uint32_t column) const {
    gpu::fetch_eight(x.bias, bias, 0, 1, row, column);
    gpu::fetch_eight(x.other, other, columns, 1, row, column);
  }
  void spread(Operands& x) const {
    gpu::spread(x.bias, 1);
    gpu::spread(x.other, 1);
  }
  void store(uint32_t row, uint32_t column, bool inside, const float (&sums)[kProducts][8], const Operands& x) const {
    float y[8];
    for (int i = 0; i < 8; ++i) {
      float each[kProducts];
      for (int p = 0; p < kProducts; ++p) each[p] = sums[p][i];
      y[i] = of(each, gpu::get(x.bias, i), gpu::get(x.other, i));
      // Each is to be written once.
      if (inside && fusion::to_float(out[row * columns + column + i]) != kUnwritten) y[i] = kUnwritten / 2;
    }
    gpu::store_eight(inside, out + row * columns + column, y);
  }
};

template <int kProducts, int kChains>
struct Products {
  Matrix left, right[kChains][kProducts], bias[kChains], other[kChains], out[kChains];
  gpu::StreamOperands<kProducts, kChains> x{};
  Epilogue<kProducts> epilogues[kChains];

  // `others`: what is added to each, or constants where there is none.
  Products(cuda_host::Arena& arena, const Matrix& left, const int (&columns)[kChains], const Matrix& added = {})
      : left(left) {
    for (int c = 0; c < kChains; ++c) {
      bias[c] = constant(arena, 1, columns[c], c);
      other[c] = added.data != nullptr ? added : constant(arena, left.rows, columns[c], c + 5);
      out[c] = {arena.take<half>(left.rows * columns[c]), left.rows, columns[c]};
      for (int p = 0; p < kProducts; ++p) right[c][p] = constant(arena, left.columns, columns[c], c * 3 + p);
      epilogues[c] = {bias[c].data, other[c].data, out[c].data, columns[c]};
    }
  }
  struct Described {
    gpu::Product p;
    const half *a, *b;
  };
  template <int kRows, size_t... i>
  bool described(unsigned blocks, std::index_sequence<i...>) {
    const auto one = [&](const Matrix& b) {
      const int64_t stride = left.rows == 1 ? 1 : left.columns;  // of one row nobody's
      return Described{{left.rows, b.columns, left.columns, stride, 1, b.columns, 1, 1.0f}, left.data, b.data};
    };
    return gpu::describe_stream<kRows>(x, blocks, one(right[i / kProducts][i % kProducts])...);
  }
  template <int kRows>
  bool describe(unsigned blocks) {
    return described<kRows>(blocks, std::make_index_sequence<kProducts * kChains>());
  }
  // The phase has it by reference.
  auto phase() const {
    return gpu::product_phase(x, Each{*this});
  }
  struct Each {
    const Products& of;
    template <class Use>
    void operator()(const Use& use) const {
      for (const auto& epilogue : of.epilogues) use(epilogue);
    }
  };
  void reset() const {
    for (const Matrix& m : out) std::fill(m.data, m.data + m.count(), fusion::to_half(kUnwritten));
  }
  int wrong() const {
    int wrong = 0;
    for (int c = 0; c < kChains; ++c)
      for (int i = 0; i < out[c].count(); ++i) {
        const int row = i / out[c].columns, column = i % out[c].columns;
        float sums[kProducts] = {};
        for (int p = 0; p < kProducts; ++p)
          for (int k = 0; k < left.columns; ++k) sums[p] += left.at(row, k) * right[c][p].at(k, column);
        wrong += out[c].at(row, column) != Epilogue<kProducts>::of(sums, bias[c].at(0, column), other[c].at(row, column));
      }
    return wrong;
  }
};

// What is computed in pieces of one matrix.
struct Pieces {
  Matrix in, out;
  Pieces(cuda_host::Arena& arena, const Matrix& in, int columns = 0)
      : in(in), out{arena.take<half>(in.count()), in.rows, in.columns} {}
  template <int kRows>
  bool describe(unsigned) {
    return true;
  }
  void reset() const { std::fill(out.data, out.data + out.count(), fusion::to_half(kUnwritten)); }
};

// Every element with twice the sum of its row.
struct Rows : Pieces {
  using Pieces::Pieces;
  auto phase() const {
    return gpu::piece_phase(in.rows, [this](int64_t index) {
      gpu::Row<8, 1, gpu::kWarpgroup, true, gpu::OfWarpgroup> row(in.columns, index);
      gpu::Vector<half, 8> x[1], y{};
      row.load(in.data + index * in.columns, 1, x);
      float sum = 0;
      for (int i = 0; i < 8 && row.valid(0, i); ++i) sum += gpu::get(x[0], i);
      sum = row.reduce(sum, gpu::Sum{});
      for (int i = 0; i < 8; ++i) gpu::put(y, i, folded(2 * sum + gpu::get(x[0], i)));
      row.store(out.data + index * in.columns, 0, y);
    });
  }
  int wrong() const {
    int wrong = 0;
    for (int r = 0; r < in.rows; ++r) {
      float sum = 0;
      for (int c = 0; c < in.columns; ++c) sum += in.at(r, c);
      for (int c = 0; c < in.columns; ++c) wrong += out.at(r, c) != folded(2 * sum + in.at(r, c));
    }
    return wrong;
  }
};

struct Elements : Pieces {
  using Pieces::Pieces;
  auto phase() const {
    return gpu::piece_phase(gpu::pieces(in.count(), 8), [this](int64_t index) {
      const int64_t first = (index * gpu::kWarpgroup + threadIdx.x) * 8;
      if (first >= in.count()) return;
      const auto x = gpu::load_whole<half, 8>(in.data + first);
      gpu::Vector<half, 8> y{};
      for (int i = 0; i < 8; ++i) gpu::put(y, i, folded(3 * gpu::get(x, i) + 1));
      gpu::store_whole(out.data + first, y);
    });
  }
  int wrong() const {
    int wrong = 0;
    for (int c = 0; c < in.count(); ++c) wrong += out.at(0, c) != folded(3 * in.at(0, c) + 1);
    return wrong;
  }
};

// Heads of 64 with as many constant keys, of which one has all the weight.
struct Heads : Pieces {
  static constexpr int kDepth = 64, kKeys = 21;
  Matrix keys, values;
  fusion::gpu::AttentionShape shape;
  gpu::Space<4> batches;
  Heads(cuda_host::Arena& arena, const Matrix& in)
      : Pieces(arena, in), keys(constant(arena, kKeys, kDepth, 3)), values(constant(arena, kKeys, kDepth, 8)) {
    const gpu::View q{3, {in.count() / kDepth, 1, kDepth}, {kDepth, kDepth, 1}}, k{3, {1, kKeys, kDepth}, {0, kDepth, 1}};
    const gpu::View views[] = {q, k, k, q};
    shape = gpu::attention_shape(q, k, k, q, 1e4f);
    batches = gpu::space<4>({in.count() / kDepth, 1, kDepth}, views, 2);
  }
  auto phase() const {
    return gpu::piece_phase(batches.count * shape.queries, [this](int64_t index) {
      const Falling program{100};
      gpu::attention_row<half, kDepth, gpu::Prob::kIdentity>(in.data, keys.data, values.data, out.data, shape, batches, program, index);
    });
  }
  int wrong() const {
    int wrong = 0;
    for (int head = 0; head < in.count() / kDepth; ++head) {
      int best = 0;
      float most = -INFINITY;
      for (int key = 0; key < kKeys; ++key) {
        float score = -100.0f * key;
        for (int d = 0; d < kDepth; ++d) score += 1e4f * in.at(0, head * kDepth + d) * keys.at(key, d);
        if (score > most) best = key, most = score;
      }
      for (int d = 0; d < kDepth; ++d) wrong += out.at(0, head * kDepth + d) != values.at(best, d);
    }
    return wrong;
  }
};

// Some launches of one kernel: each leaves the memory as the next one wants it, and the tags of another are not its own.
template <class... Phases>
int wrong(cuda_host::Arena& arena, unsigned grid, int rows, Phases&... phases) {
  constexpr unsigned kLaunches = 3;
  constexpr size_t kBefore = gpu::kTaggedBytes + gpu::kCounters * sizeof(unsigned);
  const gpu::PhaseMemory memory(arena.take<char>(kBefore) + kBefore);
  // The third launch of some is counted anew, and what was left is of another tag.
  memory.kept->ended = grid % 2 == 0 ? 0 : grid * (memory.kLaunches - 2);
  gpu::Device device;
  device.multiprocessors = static_cast<int>(grid);
  int wrong = 0;
  for (unsigned launch = 0; launch < kLaunches; ++launch) {
    (phases.reset(), ...);
    const bool started = gpu::with_stream_rows(device, {1, rows}, [&](auto most, unsigned blocks) {
      constexpr int kRows = decltype(most)::value;
      if (!(phases.template describe<kRows>(blocks) && ...)) return false;
      cuda_host::launch_at_once(blocks, gpu::kStreamThreads, gpu::StreamTile<kRows>::kBytes, [&] {
        gpu::few_phases<half, kRows>(launch % 2 == 0, memory, phases.phase()...);
      });
      return true;
    });
    wrong += !started + (phases.wrong() + ... + 0);
  }
  for (const unsigned left : memory.kept->done[kLaunches % 2]) wrong += left != 0;
  wrong += memory.kept->ended != (grid % 2 == 0 ? kLaunches : kLaunches - 2) * grid;
  if (wrong != 0) std::fprintf(stderr, "%zu phases, %d rows, %u blocks: %d wrong\n", sizeof...(Phases), rows, grid, wrong);
  return wrong;
}

int alone(unsigned grid, int rows, int depth, int columns) {
  cuda_host::Arena arena;
  Products<1, 1> product(arena, constant(arena, rows, depth, 1), {columns});
  return wrong(arena, grid, rows, product);
}

int after_norm(unsigned grid, int rows) {
  cuda_host::Arena arena;
  Rows norm(arena, constant(arena, rows, 136, 1));
  Products<1, 3> three(arena, norm.out, {136, 72, 8});
  return wrong(arena, grid, rows, norm, three);
}

int after_attention(unsigned grid, int rows) {
  cuda_host::Arena arena;
  Elements turned(arena, constant(arena, rows, 128, 1));
  Heads attention(arena, turned.out);
  Products<1, 1> product(arena, attention.out, {328});
  return wrong(arena, grid, rows, turned, attention, product);
}

// As in a decoder: what went into the norm is added behind the gated products.
int layer(unsigned grid, int rows) {
  cuda_host::Arena arena;
  Products<1, 1> first(arena, constant(arena, rows, 200, 1), {136});
  Rows norm(arena, first.out[0]);
  Products<2, 1> gated(arena, norm.out, {328});
  Products<1, 1> down(arena, gated.out[0], {136}, first.out[0]);
  Products<1, 2> next(arena, down.out[0], {8, 72});
  return wrong(arena, grid, rows, first, norm, gated, down, next);
}

// How often a strip, or as much of it as blocks have each, does not begin at the row where the others are at that time.
int apart(unsigned blocks, int strips, int steps) {
  const gpu::StreamShares shares(steps, strips, blocks);
  const int period = std::min(strips * steps / static_cast<int>(blocks), steps);
  int found = 0;
  for (unsigned block = 0; block < blocks; ++block) {
    gpu::StreamPath path(shares, block);
    for (int step = 0; step < path.count; ++step) {
      const int row = path.row_of(step);
      found += step == path.begin && path.end - path.begin >= period && (row - step) % period != 0;
    }
  }
  return found;
}

int main() {
  gpu::have_driver();
  int found = wrong_attentions();
  for (const unsigned grid : {1, 3, 5, 7}) {
    found += layer(grid, grid == 3 ? 7 : 8) + layer(grid, grid == 5 ? 1 : 9) + layer(grid, 16);
    found += after_norm(grid, grid == 3 ? 9 : 8) + after_attention(grid, grid == 5 ? 16 : 1);
  }
  found += alone(9, 16, 584, 8) + alone(2, 1, 13, 136) + alone(7, 7, 8, 8) + alone(4, 8, 520, 328);
  found += apart(132, 28, 296) + apart(132, 296, 56) + apart(5, 3, 7) + apart(3, 1, 8);
  std::printf("%d\n", found);
}

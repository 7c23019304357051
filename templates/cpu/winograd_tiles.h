// Winograd's filtering of images whose channels come last: vectors are of channels, and the product of a place is one
// of rows, which are tiles.
#pragma once

#include <cstring>

#include "cpu/row_product.h"
#include "cpu/winograd.h"

namespace fusion {
namespace cpu {
namespace winograd {

// A convolution of images [images, height, width, channels] by 3 by 3 points next to each other, with `above` and
// `before` numbers of padding; its result has rows of `made` numbers, with what Strip says.
struct Call {
  const float *x, *bias, *added;
  float* out;
  int64_t images, height, width, channels, out_height, out_width, made, above, before;
  bool relu;

  int64_t across(int64_t side) const { return (out_width + side - 1) / side; }
  int64_t per_image(int64_t side) const { return (out_height + side - 1) / side * across(side); }
  int64_t tiles(int64_t side) const { return images * per_image(side); }
};

// The sums of the inputs of `count` tiles from `first` on, by place, tile and channel. Places lie an odd number of
// cache lines apart, so that they do not all fall into the same few sets.
struct Sums {
  Sums(const Call& c, int64_t first, int64_t count) : first(first), count(count), place(apart(count * c.channels)) {}
  static int64_t apart(int64_t n) { return ((n + 15) / 16 | 1) * 16; }
  int64_t first, count, place;
  float* data = nullptr;
};

template <int kSide>
class Tiles {
 public:
  static constexpr int kReach = kSide + 2, kPoints = kReach * kReach;

  static void fill(StripMatrix& matrix, const float* w, int64_t made, int64_t channels) {
    for (int64_t o = 0; o < made; ++o)
      for (int64_t i = 0; i < channels; ++i, w += 9) {
        const auto sums = weights_of<kSide>(w);
        for (int p = 0; p < kPoints; ++p) matrix.at(p, i, o) = sums[static_cast<size_t>(p)];
      }
  }

  // The sums of tiles [begin, end) of `to`.
  static void add_inputs(const Call& c, const Sums& to, int64_t begin, int64_t end) {
    has_wide_vectors() ? add_wide(c, to, begin, end) : add<8>(c, to, begin, end);
  }

  // The results of tiles [begin, end) of `from` for the channels of a strip; false where one is not finite.
  static bool multiply(const Call& c, const StripMatrix& weights, const Sums& from, int64_t strip, int64_t begin,
                       int64_t end) {
    const int64_t tiles = end - begin, width = StripMatrix::width(), place = Sums::apart(tiles * width);
    float* const products = thread_row<float>(1, kPoints * place);
    const float** const rows = thread_row<const float*>(2, tiles);
    const Parts parts(tiles, most_rows());
    for (int p = 0; p < kPoints; ++p) {
      for (int64_t t = 0; t < tiles; ++t) rows[t] = from.data + p * from.place + (begin + t) * c.channels;
      multiply_parts(parts, rows, 1, c.channels, weights.strip(strip, p), false,
                     {products + p * place, width, width, nullptr, nullptr, false});
    }
    const int64_t column = strip * width, columns = std::min(width, c.made - column);
    return has_wide_vectors() ? store_wide(c, from.first + begin, tiles, column, columns, products, place)
                              : store<8>(c, from.first + begin, tiles, column, columns, products, place);
  }

 private:
  struct Place {
    Place(const Call& c, int64_t tile)
        : image(tile / c.per_image(kSide)), top(tile % c.per_image(kSide) / c.across(kSide) * kSide),
          left(tile % c.per_image(kSide) % c.across(kSide) * kSide) {}
    int64_t image, top, left;
  };

  FUSION_WIDE static void add_wide(const Call& c, const Sums& to, int64_t begin, int64_t end) {
    add<16>(c, to, begin, end);
  }
  FUSION_WIDE static bool store_wide(const Call& c, int64_t first, int64_t tiles, int64_t column, int64_t columns,
                                     const float* products, int64_t place) {
    return store<16>(c, first, tiles, column, columns, products, place);
  }

  template <int kLanes>
  FUSION_INLINE static void add(const Call& c, const Sums& to, int64_t begin, int64_t end) {
    typedef Lanes<kLanes> L;
    typedef typename L::Register Register;
    float* const zeros = thread_row<float>(0, c.channels);
    std::memset(zeros, 0, sizeof(float) * static_cast<size_t>(c.channels));
    for (int64_t t = begin; t < end; ++t) {
      const Place at(c, to.first + t);
      const float* const image = c.x + at.image * c.height * c.width * c.channels;
      const float* from[kPoints];
      for (int p = 0; p < kPoints; ++p) {
        const int64_t y = at.top - c.above + p / kReach, x = at.left - c.before + p % kReach;
        const bool inside = y >= 0 && y < c.height && x >= 0 && x < c.width;
        from[p] = inside ? image + (y * c.width + x) * c.channels : zeros;
      }
      for (int64_t i = 0; i < c.channels; i += kLanes) {
        Register down[kPoints], in[kReach], sum[kReach];
#pragma GCC unroll 6
        for (int x = 0; x < kReach; ++x) {
#pragma GCC unroll 6
          for (int y = 0; y < kReach; ++y) in[y] = L::load(from[y * kReach + x] + i);
          Filter<kSide>::transform(in, sum);
#pragma GCC unroll 6
          for (int y = 0; y < kReach; ++y) down[y * kReach + x] = sum[y];
        }
#pragma GCC unroll 6
        for (int y = 0; y < kReach; ++y) {
          Filter<kSide>::transform(down + y * kReach, sum);
#pragma GCC unroll 6
          for (int x = 0; x < kReach; ++x)
            L::store(to.data + (y * kReach + x) * to.place + t * c.channels + i, sum[x]);
        }
      }
    }
  }

  // The results of tiles from `first` on, for `columns` channels, whole vectors of them.
  template <int kLanes>
  FUSION_INLINE static bool store(const Call& c, int64_t first, int64_t tiles, int64_t column, int64_t columns,
                                  const float* products, int64_t place) {
    typedef Lanes<kLanes> L;
    typename L::Register spoilt = {};  // zero, or NaN where a result is not finite
    for (int64_t t = 0; t < tiles; ++t) {
      const Place at(c, first + t);
      for (int64_t i = 0; i < columns; i += kLanes)
        store_tile<kLanes>(c, at, column + i, products + t * StripMatrix::width() + i, place, spoilt);
    }
    float sum = 0;
    for (int i = 0; i < kLanes; ++i) sum += spoilt[i];
    return sum == 0;
  }

  template <int kLanes>
  FUSION_INLINE static void store_tile(const Call& c, const Place& at, int64_t column, const float* products,
                                       int64_t place, typename Lanes<kLanes>::Register& spoilt) {
    typedef Lanes<kLanes> L;
    typedef typename L::Register Register;
    Register down[kSide * kReach], in[kReach], made[kSide];
#pragma GCC unroll 6
    for (int x = 0; x < kReach; ++x) {
#pragma GCC unroll 6
      for (int y = 0; y < kReach; ++y) in[y] = L::load(products + (y * kReach + x) * place);
      Filter<kSide>::invert(in, made);
#pragma GCC unroll 4
      for (int y = 0; y < kSide; ++y) down[y * kReach + x] = made[y];
    }
    const Register bias = c.bias ? L::load(c.bias + column) : Register{};
    const int64_t high = std::min<int64_t>(kSide, c.out_height - at.top);
    const int64_t wide = std::min<int64_t>(kSide, c.out_width - at.left);
    const int64_t first = ((at.image * c.out_height + at.top) * c.out_width + at.left) * c.made + column;
#pragma GCC unroll 4
    for (int y = 0; y < kSide; ++y) {
      Filter<kSide>::invert(down + y * kReach, made);
#pragma GCC unroll 4
      for (int x = 0; x < kSide; ++x) {
        if (y >= high || x >= wide) continue;
        const int64_t to = first + (y * c.out_width + x) * c.made;
        Register sum = made[x] + bias;
        spoilt += sum * 0.0f;
        if (c.added) sum += L::load(c.added + to);
        if (c.relu) sum = sum < 0 ? Register{} : sum;
        L::store(c.out + to, sum);
      }
    }
  }
};

}  // namespace winograd
}  // namespace cpu
}  // namespace fusion

// a @ b with a constant matrix b, in tiles; ONNX Runtime's product where the processor has none.
#pragma once

#include "cpu/tiles.h"

namespace fusion {
namespace cpu {

#if defined(FUSION_NO_TILES)
class TileMatMul : public MatMul {
 public:
  TileMatMul(const Api& api, const OrtKernelInfo* info, int type, bool trans_a, bool trans_b, int)
      : MatMul(api, info, type, trans_a, trans_b) {}
};
#else
class TileMatMul {
 public:
  // `slot` is the operator's input that b is.
  TileMatMul(const Api& api, const OrtKernelInfo* info, int type, bool trans_a, bool trans_b, int slot)
      : vendor_(api, info, type, trans_a, trans_b), trans_b_(trans_b), kept_(!trans_a && is_kept(api, info, slot)) {}

  void operator()(Run& run, const Array<float>& a, const Array<float>& b, const Array<float>& out) {
    if (!kept_ || b.dims.size() != 2 || !count(a.dims) || !count(out.dims) || !multiplied(run, a, b, out))
      vendor_(run, a, b, out);
  }

 private:
  // False where a number has no parts.
  bool multiplied(Run& run, const Array<float>& a, const Array<float>& b, const Array<float>& out) {
    const int64_t k = a.dims[a.dims.size() - 1], n = out.dims[out.dims.size() - 1], m = count(out.dims) / n;
    const Depth depth(k);
    const char* const right = packed_.get([&] { return tiles_of(b.data, k, n, depth); });
    if (!right) return false;
    const int64_t rows = (m + kTile - 1) / kTile * kTile, half = depth.blocks * rows * 64;
    char* const left = aligned(run.scratch(static_cast<size_t>(2 * half + 64)));
    std::atomic<bool> sound{true};
    parallel(run, rows, std::max<int64_t>(1, 16384 / k), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i)
        if (!split_row(i < m ? a.data + i * k : nullptr, k, depth, rows * 64, left + i * 64, left + half + i * 64))
          sound = false;
    });
    if (!sound) return false;
    const int64_t tall = (m + kBlock2 - 1) / kBlock2, wide = (n + kBlock2 - 1) / kBlock2;
    const int64_t column = depth.blocks * 2 * kTileBytes;
    parallel(run, tall * wide, std::max<int64_t>(1, 128 / depth.blocks), [&](int64_t begin, int64_t end) {
      const Tiles tiles(depth.pairs);
      for (int64_t u = begin; u < end; ++u) {
        const int64_t i = u % tall * kBlock2, j = u / tall * kBlock2;
        const Side above{left + i * 64, rows * 64, kTileBytes, half};
        const Side beside{right + j / kTile * column, 2 * kTileBytes, column, kTileBytes};
        Block block;
        multiply(above, beside, depth.blocks, true, i + kTile < m, j + kTile < n, &block);
        const size_t bytes = static_cast<size_t>(std::min<int64_t>(kBlock2, n - j)) * sizeof(float);
        for (int64_t r = i; r < std::min(i + kBlock2, m); ++r)
          std::memcpy(out.data + r * n + j, block.data + (r - i) * kBlock2, bytes);
      }
    });
    return true;
  }

  // Of sixteen columns after the other, block by block of the depth: high parts, then low ones; a row holds the pairs
  // of its place in the depth.
  Aligned tiles_of(const float* b, int64_t k, int64_t n, const Depth& depth) const {
    if (!has_parts(b, k * n)) return {};
    Aligned tiles((n + 2 * kTile - 1) / kTile * depth.blocks * 2 * kTileBytes);
    for (int64_t i = 0; i < k; ++i)
      for (int64_t j = 0; j < n; ++j) {
        const Halves x(trans_b_ ? b[j * k + i] : b[i * n + j]);
        const int64_t pair = i / 2, tile = (j / kTile * depth.blocks + pair / depth.pairs) * 2;
        x.put(tiles.data() + tile * kTileBytes + pair % depth.pairs * 64 + j % kTile * 4 + i % 2 * 2);
      }
    return tiles;
  }

  FUSION_TILES static void store_halves(char* to, __m512i parts) {
    _mm256_store_si256(reinterpret_cast<__m256i*>(to), _mm512_cvtepi32_epi16(_mm512_srli_epi32(parts, 16)));
  }

  // One row's parts, `next` bytes from one block of the depth to the other; zeros where there is none.
  FUSION_TILES static bool split_row(const float* row, int64_t k, const Depth& depth, int64_t next, char* high,
                                     char* low) {
    bool sound = true;
    for (int64_t b = 0; b < depth.blocks; ++b, high += next, low += next)
      for (int64_t i = 0; i < 2 * kTile; i += kTile) {
        const int64_t first = b * depth.pairs * 2 + i, left = std::min(k - first, depth.pairs * 2 - i);
        const __m512 x = row ? _mm512_maskz_loadu_ps(first_lanes(left), row + first) : _mm512_setzero_ps();
        const Parts parts = split(x, &sound);
        store_halves(high + i * 2, parts.high);
        store_halves(low + i * 2, parts.low);
      }
    return sound;
  }

  MatMul vendor_;
  bool trans_b_, kept_;
  Packed packed_;
};
#endif

}  // namespace cpu
}  // namespace fusion

// Products in the tile registers of Intel's processors (AMX), of float factors each split into two bfloat16 numbers.
//
// x is high + low but for 2^-18 of it; of x * y the product of the two lows is left out, so that its error is below
// 2^-16 of it. Sums are float. What is not finite, or nearly infinite, has no such parts.
#pragma once

#include <cstring>
#include <memory>
#include <mutex>
#include <vector>

#include "cpu/vendor.h"

#if defined(__x86_64__) && defined(__linux__) && defined(__GNUC__) && !defined(__clang__) && __GNUC__ >= 11
#define FUSION_TILES __attribute__((target("avx512f,avx512vl,avx512dq,avx512bw,amx-tile,amx-bf16")))
#include <cpuid.h>
#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace fusion {
namespace cpu {

// Whether the processor has tiles of bfloat16, and the system lets this process have their registers.
inline bool has_tiles() {
  static const bool has = [] {
    constexpr unsigned kBfloat16 = 1u << 22, kTiles = 1u << 24;  // of leaf 7
    constexpr long kRequest = 0x1023, kTileData = 18;            // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
    unsigned a, b, c, d;
    const bool known = __get_cpuid_count(7, 0, &a, &b, &c, &d) && (d & kBfloat16) && (d & kTiles);
    return known && has_wide_vectors() && syscall(SYS_arch_prctl, kRequest, kTileData) == 0;
  }();
  return has;
}

constexpr int kTile = 16;                // rows of a tile of either factor's and the result's; columns of the latter
constexpr int kBlock2 = 2 * kTile;       // rows and columns of the result that are computed together
constexpr float kMostSplit = 8.5e37f;    // 2^126: what is larger may round to infinity

constexpr int64_t kTileBytes = kTile * 64;
constexpr int64_t kChunk = 6;            // steps for which the tiles of a block's one side fit into the nearest cache

// How an axis of products is cut: into `blocks` of `pairs` of numbers, each at most as long as a row of a tile.
struct Depth {
  explicit Depth(int64_t size)
      : blocks(((size + 1) / 2 + kTile - 1) / kTile), pairs(((size + 1) / 2 + blocks - 1) / blocks) {}
  int64_t blocks, pairs;
};

// One factor's tiles, whose rows of 64 bytes lie one after the other at addresses that are multiples of that: at step s
// that of the high parts is at `high + s * step`, `next` behind it that of the next rows (or columns), and `low` behind
// either that of the low parts; all in bytes.
struct Side {
  const char* high;
  int64_t step, next, low;
};

// Memory for tiles.
class Aligned {
 public:
  Aligned() = default;
  explicit Aligned(int64_t bytes) : data_(std::aligned_alloc(64, static_cast<size_t>(bytes)), std::free) {
    if (!data_) throw std::bad_alloc();
    std::memset(data_.get(), 0, static_cast<size_t>(bytes));
  }
  char* data() const { return static_cast<char*>(data_.get()); }

 private:
  std::unique_ptr<void, void (*)(void*)> data_{nullptr, std::free};
};

inline char* aligned(void* data) { return reinterpret_cast<char*>((reinterpret_cast<uintptr_t>(data) + 63) / 64 * 64); }

// The tile registers as `multiply` uses them, for the calling thread, as long as this lives.
class Tiles {
 public:
  FUSION_TILES explicit Tiles(int64_t pairs) {
    struct alignas(64) {
      uint8_t palette = 1, first = 0, reserved[14] = {};
      uint16_t bytes[16] = {};
      uint8_t rows[16] = {};
    } shape;
    for (int i = 0; i < 8; ++i) {
      const bool left = i == 4 || i == 5, right = i == 6 || i == 7;
      shape.bytes[i] = static_cast<uint16_t>(left ? pairs * 4 : kTile * 4);
      shape.rows[i] = static_cast<uint8_t>(right ? pairs : kTile);
    }
    // GCC takes the instructions of tiles for reading one word, or nothing, and may leave out what else is written.
    __asm__ volatile("" ::"r"(&shape) : "memory");
    _tile_loadconfig(&shape);
  }
  Tiles(const Tiles&) = delete;
  FUSION_TILES ~Tiles() { _tile_release(); }
};

// Up to two by two tiles of a result.
struct alignas(64) Block {
  float data[kBlock2 * kBlock2];
};

// out (kM x kN tiles) = a @ b over these steps, added to what is there unless it `begins`.
template <int kM, int kN>
FUSION_TILES void multiply_tiles(const Side& a, const Side& b, int64_t steps, bool begins, float* out) {
  constexpr int64_t kStride = kBlock2 * sizeof(float);
  float* const below = out + kTile * kBlock2;
  __asm__ volatile("" ::: "memory");
  if (begins) {
    _tile_zero(0);
    if (kN > 1) _tile_zero(1);
    if (kM > 1) _tile_zero(2);
    if (kM > 1 && kN > 1) _tile_zero(3);
  } else {
    _tile_loadd(0, out, kStride);
    if (kN > 1) _tile_loadd(1, out + kTile, kStride);
    if (kM > 1) _tile_loadd(2, below, kStride);
    if (kM > 1 && kN > 1) _tile_loadd(3, below + kTile, kStride);
  }
  for (int64_t s = 0; s < steps; ++s) {
    const char* const left = a.high + s * a.step;
    const char* const right = b.high + s * b.step;
    for (int part = 0; part < 3; ++part) {  // high * high, low * high, high * low
      const char* const from = left + (part == 1 ? a.low : 0);
      if (part != 1) {
        const char* const to = right + (part == 2 ? b.low : 0);
        _tile_loadd(6, to, 64);
        if (kN > 1) _tile_loadd(7, to + b.next, 64);
      }
      _tile_loadd(4, from, 64);
      _tile_dpbf16ps(0, 4, 6);
      if (kN > 1) _tile_dpbf16ps(1, 4, 7);
      if (kM > 1) {
        _tile_loadd(5, from + a.next, 64);
        _tile_dpbf16ps(2, 5, 6);
        if (kN > 1) _tile_dpbf16ps(3, 5, 7);
      }
    }
  }
  _tile_stored(0, out, kStride);
  if (kN > 1) _tile_stored(1, out + kTile, kStride);
  if (kM > 1) _tile_stored(2, below, kStride);
  if (kM > 1 && kN > 1) _tile_stored(3, below + kTile, kStride);
}

inline void multiply(const Side& a, const Side& b, int64_t steps, bool begins, bool two_rows, bool two_columns,
                     Block* out) {
  const auto product = two_rows ? (two_columns ? multiply_tiles<2, 2> : multiply_tiles<2, 1>)
                                : (two_columns ? multiply_tiles<1, 2> : multiply_tiles<1, 1>);
  product(a, b, steps, begins, out->data);
}

// Sixteen numbers in two parts, each in the upper half of its lane.
struct Parts {
  __m512i high, low;
};

FUSION_TILES inline __m512i upper(__m512i bits) {
  const __m512i rounded = _mm512_add_epi32(bits, _mm512_set1_epi32(0x8000));
  return _mm512_and_si512(rounded, _mm512_set1_epi32(static_cast<int>(0xffff0000)));
}

// `sound` turns false where a number has no such parts.
FUSION_TILES inline Parts split(__m512 x, bool* sound) {
  if (_mm512_cmp_ps_mask(_mm512_abs_ps(x), _mm512_set1_ps(kMostSplit), _CMP_NLE_UQ)) *sound = false;
  const __m512i high = upper(_mm512_castps_si512(x));
  return {high, upper(_mm512_castps_si512(_mm512_sub_ps(x, _mm512_castsi512_ps(high))))};
}

// The pairs (first, second) of sixteen places, high parts and low ones.
FUSION_TILES inline void store_pairs(__m512 first, __m512 second, uint32_t* high, uint32_t* low, bool* sound) {
  const Parts a = split(first, sound), b = split(second, sound);
  _mm512_storeu_si512(high, _mm512_or_si512(_mm512_srli_epi32(a.high, 16), b.high));
  _mm512_storeu_si512(low, _mm512_or_si512(_mm512_srli_epi32(a.low, 16), b.low));
}

inline __mmask16 first_lanes(int64_t n) {
  return static_cast<__mmask16>(n >= kTile ? 0xffff : (1u << std::max<int64_t>(n, 0)) - 1);
}

// One number's parts, as `split` makes them.
struct Halves {
  explicit Halves(float x) {
    high = top(x);
    uint32_t bits = static_cast<uint32_t>(high) << 16;
    float rounded;
    std::memcpy(&rounded, &bits, 4);
    low = top(x - rounded);
  }
  static uint16_t top(float x) {
    uint32_t bits;
    std::memcpy(&bits, &x, 4);
    return static_cast<uint16_t>((bits + 0x8000) >> 16);
  }
  // To a tile of high parts, and to that of low ones behind it.
  void put(char* to) const {
    std::memcpy(to, &high, 2);
    std::memcpy(to + kTileBytes, &low, 2);
  }
  uint16_t high, low;
};

inline bool has_parts(const float* data, int64_t n) {
  for (int64_t i = 0; i < n; ++i)
    if (!(std::abs(data[i]) <= kMostSplit)) return false;
  return true;
}

// A constant factor's tiles, made in the first call that needs them.
class Packed {
 public:
  // make() gives them; none where a number has no parts.
  template <class F>
  const char* get(F make) {
    std::call_once(once_, [&] { tiles_ = make(); });
    return tiles_.data();
  }

 private:
  std::once_flag once_;
  Aligned tiles_;
};

// Whether tiles may be made once and kept of an operator's input.
inline bool is_kept(const Api& api, const OrtKernelInfo* info, int slot) {
  return has_tiles() && is_constant(api, info, slot);
}

}  // namespace cpu
}  // namespace fusion
#else
#define FUSION_NO_TILES
#endif

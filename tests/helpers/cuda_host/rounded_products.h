// Products of float32 in TF32 of one left operand, for programs that run their kernels: numbers, and how many results are wrong.
#pragma once

#include "cuda_runtime.h"

template <bool kTransB, int kProducts>
struct RoundedProducts {
  int rows, depth;
  const int (&columns)[kProducts];
  std::vector<float> left, right[kProducts], out[kProducts], bias, matrix;

  RoundedProducts(int rows, int depth, const int (&columns)[kProducts])
      : rows(rows), depth(depth), columns(columns), left(rows * depth), bias(1024), matrix(rows * 1024) {
    // Whole numbers once they are rounded; with bits cut off they would be less.
    const auto whole = [](int i) { return static_cast<float>(i * 7919 % 101 % 5 - 2) * (1 - 1 / 1048576.0f); };
    for (int i = 0; i < rows * depth; ++i) left[i] = whole(i);
    for (int i = 0; i < 1024; ++i) bias[i] = i % 17;
    for (int i = 0; i < rows * 1024; ++i) matrix[i] = i % 29;
    for (int p = 0; p < kProducts; ++p) {
      for (int i = 0; i < depth * columns[p]; ++i) right[p].push_back(whole(i + p * 13));
      out[p].assign(rows * columns[p], -1e9f);
    }
  }

  // Of `out`, with a bias and a matrix added.
  int wrong() const {
    int wrong = 0;
    for (int p = 0; p < kProducts; ++p)
      for (int r = 0; r < rows; ++r)
        for (int c = 0; c < columns[p]; ++c) {
          float sum = bias[c] + matrix[r * columns[p] + c];
          for (int k = 0; k < depth; ++k) {
            sum += std::round(left[r * depth + k]) * std::round(right[p][kTransB ? c * depth + k : k * columns[p] + c]);
          }
          wrong += out[p][r * columns[p] + c] != sum;
        }
    return wrong;
  }
};

// An epilogue as they are generated, for programs that run the kernels of products: a bias and a matrix are added.
#pragma once

#include "include/wide_epilogue.cuh"

template <class T>
struct AddedMatrix {
  const T *bias, *matrix;
  T* out;
  int64_t columns;
  struct Operands {
    fusion::gpu::Vector<T, 8> bias, matrix;
  };
  void fetch(Operands& x, uint32_t row, uint32_t column) const {
    fusion::gpu::fetch_eight(x.bias, bias, 0, 1, row, column);
    fusion::gpu::fetch_eight(x.matrix, matrix, columns, 1, row, column);
  }
  void fetch(Operands& x, uint32_t row, uint32_t column, const Operands& near) const {
    fetch(x, row, column);
    x.bias = near.bias;
  }
  static constexpr bool kReadsRows = true, kByColumn = false;
  void prefetch(uint32_t row, uint32_t column) const {
    fusion::gpu::prefetch_eight(bias, 0, 1, row, column);
    fusion::gpu::prefetch_eight(matrix, columns, 1, row, column);
  }
  void spread(Operands&) const {}
  void store(uint32_t row, uint32_t column, bool inside, const float (&sums)[1][8], const Operands& x, bool passes) const {
    float y[8];
    for (int i = 0; i < 8; ++i) y[i] = sums[0][i] + fusion::gpu::get(x.bias, i) + fusion::gpu::get(x.matrix, i);
    fusion::gpu::store_eight(inside, out + row * columns + column, y, passes);
  }
};

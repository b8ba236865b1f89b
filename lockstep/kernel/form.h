// Which operation is defined for which type, and which does its work. There are nine operations on fifteen
// types, and few differ in what they do to bits: each has a form that a kernel knows.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <iterator>

#include "lockstep/base/dtype.h"
#include "lockstep/base/reduce_op.h"

namespace lockstep::kernel {

enum class Kind { none, integer, boolean, floating, complex };

constexpr Kind kind_of(Dtype dtype) {
  switch (dtype) {
    case Dtype::u8:
    case Dtype::u16:
    case Dtype::u32:
    case Dtype::u64:
    case Dtype::i8:
    case Dtype::i16:
    case Dtype::i32:
    case Dtype::i64: return Kind::integer;
    case Dtype::boolean: return Kind::boolean;
    case Dtype::f16:
    case Dtype::bf16:
    case Dtype::f32:
    case Dtype::f64: return Kind::floating;
    case Dtype::complex64:
    case Dtype::complex128: return Kind::complex;
  }
  return Kind::none;  // a number that came from elsewhere and is no Dtype
}

constexpr bool can_be_scaled(Kind kind) { return kind == Kind::floating || kind == Kind::complex; }

constexpr bool is_defined(Kind kind, ReduceOp op) {
  switch (op) {
    case ReduceOp::sum: return kind != Kind::none;
    case ReduceOp::product:
    case ReduceOp::min:
    case ReduceOp::max: return kind != Kind::none && kind != Kind::complex;
    case ReduceOp::average: return can_be_scaled(kind);
    case ReduceOp::band:
    case ReduceOp::bor:
    case ReduceOp::bxor: return kind == Kind::integer || kind == Kind::boolean;
    case ReduceOp::custom: return false;
  }
  return false;  // a number that came from elsewhere and is no ReduceOp
}

constexpr Dtype without_sign(Dtype dtype) {
  switch (dtype) {
    case Dtype::i8: return Dtype::u8;
    case Dtype::i16: return Dtype::u16;
    case Dtype::i32: return Dtype::u32;
    case Dtype::i64: return Dtype::u64;
    default: return dtype;
  }
}

/// What an operation on bools does to their bytes.
constexpr ReduceOp on_bits(ReduceOp op) {
  switch (op) {
    case ReduceOp::sum:
    case ReduceOp::max: return ReduceOp::bor;
    case ReduceOp::product:
    case ReduceOp::min: return ReduceOp::band;
    default: return op;
  }
}

/// The operation that does the work of another, so that few kernels serve many types.
struct Form {
  Dtype dtype = {};
  ReduceOp op = {};
  std::uint8_t elements = 0;  ///< of `dtype` for each element; 0: the operation is not defined
};

/// Complex numbers are their parts, bools and bits are bytes, and sums and products of signed integers, which
/// wrap, are those of unsigned ones.
constexpr Form form_of(Dtype dtype, ReduceOp op) {
  const Kind kind = kind_of(dtype);
  if (!is_defined(kind, op)) return {};
  if (op == ReduceOp::average) op = ReduceOp::sum;
  if (kind == Kind::complex) return {dtype == Dtype::complex64 ? Dtype::f32 : Dtype::f64, op, 2};
  if (kind == Kind::boolean) op = on_bits(op);
  if (op == ReduceOp::band || op == ReduceOp::bor || op == ReduceOp::bxor)
    return {Dtype::u8, op, static_cast<std::uint8_t>(size_of(dtype))};
  if (op == ReduceOp::sum || op == ReduceOp::product) dtype = without_sign(dtype);
  return {dtype, op, 1};
}

inline constexpr std::size_t dtypes = std::size(all_dtypes);
inline constexpr std::size_t reduce_ops = std::size(all_reduce_ops);

// Looked up: the branches above took a quarter of the time of a reduction of four bytes.
inline constexpr auto forms = [] {
  std::array<std::array<Form, reduce_ops>, dtypes> table;
  for (const Dtype dtype : all_dtypes) {
    for (const ReduceOp op : all_reduce_ops)
      table[static_cast<std::size_t>(dtype)][static_cast<std::size_t>(op)] = form_of(dtype, op);
  }
  return table;
}();

constexpr Form find_form(Dtype dtype, ReduceOp op) {
  const auto row = static_cast<std::size_t>(dtype);
  const auto column = static_cast<std::size_t>(op);
  return row < dtypes && column < reduce_ops ? forms[row][column] : Form();
}

}  // namespace lockstep::kernel

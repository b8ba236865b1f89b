// The element types and operations of an ABI of MPI that mean the same as ours. Of others MPI is given our own: halves,
// booleans, integers of 8 and 16 bits, which wrap with us, but whose sums Open MPI 5 cuts off at the largest number where
// it adds them by vectors, and least and greatest, for NaN, and because MPICH 4.0 takes u32 for signed there.
#pragma once

#include <optional>
#include <utility>

#include "lockstep/base/dtype.h"
#include "lockstep/base/reduce_op.h"
#include "mpitrace/abi.h"

namespace lockstep::mpi {

using namespace mpitrace;

struct Predefined {
  MPI_Datatype type;
  MPI_Op op;
};

#if defined(LOCKSTEP_MPITRACE_OPENMPI)
template <class Handle>
Handle named(const char* name) {
  return static_cast<Handle>(require_variable(name));
}
inline std::optional<MPI_Datatype> predefined_type(Dtype dtype) {
  switch (dtype) {
    case Dtype::i32: return named<MPI_Datatype>("ompi_mpi_int32_t");
    case Dtype::u32: return named<MPI_Datatype>("ompi_mpi_uint32_t");
    case Dtype::i64: return named<MPI_Datatype>("ompi_mpi_int64_t");
    case Dtype::u64: return named<MPI_Datatype>("ompi_mpi_uint64_t");
    case Dtype::f32: return named<MPI_Datatype>("ompi_mpi_float");
    case Dtype::f64: return named<MPI_Datatype>("ompi_mpi_double");
    case Dtype::complex64: return named<MPI_Datatype>("ompi_mpi_c_float_complex");
    case Dtype::complex128: return named<MPI_Datatype>("ompi_mpi_c_double_complex");
    default: return std::nullopt;
  }
}
inline MPI_Op sum_op() { return named<MPI_Op>("ompi_mpi_op_sum"); }
inline MPI_Op product_op() { return named<MPI_Op>("ompi_mpi_op_prod"); }
inline MPI_Errhandler errors_return() { return named<MPI_Errhandler>("ompi_mpi_errors_return"); }
inline constexpr std::size_t status_ignore = 0;  // as an address

#else
#if defined(LOCKSTEP_MPITRACE_MPICH)
template <class Handle>
Handle numbered(unsigned number) {
  return static_cast<Handle>(number);
}
inline constexpr unsigned type_numbers[] = {0,          0x4c000439, 0x4c00083a, 0,          0,
                                            0x4c00040a, 0x4c00080b, 0,          0,          0,
                                            0x4c00043d, 0x4c00083e, 0,          0x4c000840, 0x4c001041};
inline MPI_Op sum_op() { return 0x58000003; }
inline MPI_Op product_op() { return 0x58000004; }
inline MPI_Errhandler errors_return() { return 0x54000001; }
inline constexpr std::size_t status_ignore = 1;
#else
template <class Handle>
Handle numbered(unsigned number) {
  return predefined<Handle>(number);
}
inline constexpr unsigned type_numbers[] = {0, 0x250, 0x258, 0,     0, 0x210, 0x214, 0,
                                            0, 0,     0x251, 0x259, 0, 0x212, 0x216};
inline MPI_Op sum_op() { return predefined<MPI_Op>(0x21); }
inline MPI_Op product_op() { return predefined<MPI_Op>(0x24); }
inline MPI_Errhandler errors_return() { return predefined<MPI_Errhandler>(0x143); }
inline constexpr std::size_t status_ignore = 0;
#endif
/// By Dtype's numbers; 0: there is none.
inline std::optional<MPI_Datatype> predefined_type(Dtype dtype) {
  const unsigned number = type_numbers[static_cast<std::size_t>(dtype)];
  return number == 0 ? std::nullopt : std::optional(numbered<MPI_Datatype>(number));
}
#endif

/// What MPI has for it; nullopt: nothing that means the same.
inline std::optional<Predefined> predefined_reduction(Dtype dtype, ReduceOp reduce_op) {
  const auto type = predefined_type(dtype);
  if (!type) return std::nullopt;
  switch (reduce_op) {
    case ReduceOp::sum:
    case ReduceOp::average: return Predefined{*type, sum_op()};
    case ReduceOp::product:
      return dtype == Dtype::complex64 || dtype == Dtype::complex128
                 ? std::nullopt
                 : std::optional(Predefined{*type, product_op()});
    default: return std::nullopt;
  }
}

}  // namespace lockstep::mpi

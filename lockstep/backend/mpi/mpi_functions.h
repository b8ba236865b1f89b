// What the core asks of an MPI, as a table of C functions. It is filled by a plug-in, of which there is one for each
// ABI (mpi/plugin.cpp), so that the core needs no MPI, and one installed Lockstep serves all.
#pragma once

#include <cstddef>
#include <cstdint>

#include "lockstep/base/signature.h"

namespace lockstep {

/// A collective, as one rank starts it. Numbers are those of Operation, Dtype and ReduceOp.
struct MpiCollective {
  int operation;
  int dtype, reduce_op;  ///< of reductions
  int root;
  int rank, ranks;
  int in_place;
  const void* input;
  void* output;
  std::size_t elements;
  std::size_t element_bytes;
  /// The blocks of each rank, where they differ: null where all have `elements`.
  const std::size_t* counts;
  const std::size_t* receive_counts;
  const Signature* signature;
  /// What the other rank calls, where two swap messages; else it stays as it is. Outlives the request.
  Signature* others_signature;
};

struct MpiFunctions {
  static constexpr std::uint32_t current_version = 2;
  static constexpr const char* symbol = "lockstep_mpi_functions";

  // Those that return int return an error: 0 is none, `too_many` that a block has more bytes than MPI can count; others
  // are MPI's own, which describe() knows.
  static constexpr int too_many = -1;
  /// Combines `elements` of `left` into `right`: right = left op right.
  using Reduce = void (*)(int dtype, int reduce_op, const void* left, void* right, std::size_t elements);

  std::uint32_t version;
  int (*is_initialized)();
  int (*is_finalized)();
  /// Initialises MPI, unless it is; `thread_level`: what there is now, 0 (single) to 3 (multiple).
  int (*begin)(Reduce reduce, int* thread_level);
  int (*finalize)();
  /// In MPI_COMM_WORLD.
  int (*place)(int* rank, int* ranks);
  /// "MPICH Version: 4.0.2 ..."; the first line of what MPI says of itself.
  void (*library_version)(char* text, std::size_t bytes);
  void (*describe)(int error, char* text, std::size_t bytes);
  /// Of these ranks of MPI_COMM_WORLD, all of which call it. `tag` tells calls apart that are made at the same time.
  int (*make_comm)(const int* ranks, int count, int tag, void** comm);
  void (*free_comm)(void* comm);
  int (*start)(void* comm, const MpiCollective* call, void** request);
  /// When it is over, the request is gone.
  int (*test)(void* request, int* is_over);
};

}  // namespace lockstep

// What every rank of MPI_COMM_WORLD is told by every other, by MPI's own means.
#pragma once

#include <vector>

#include "mpitrace/abi.h"

namespace lockstep::mpitrace {

/// By ranks. Collective over MPI_COMM_WORLD.
template <class T>
std::vector<T> tell_all(const T& mine, int ranks) {
  std::vector<T> all(static_cast<std::size_t>(ranks));
  using AllGather = int(const void*, int, MPI_Datatype, void*, int, MPI_Datatype, MPI_Comm);
  pmpi<AllGather>("PMPI_Allgather")(&mine, sizeof(T), byte_type(), all.data(), sizeof(T), byte_type(),
                                    comm_world());
  return all;
}

/// Rank 0's. Collective over MPI_COMM_WORLD.
template <class T>
void tell_from_first(T& value) {
  using Broadcast = int(void*, int, MPI_Datatype, int, MPI_Comm);
  pmpi<Broadcast>("PMPI_Bcast")(&value, sizeof(T), byte_type(), 0, comm_world());
}

}  // namespace lockstep::mpitrace

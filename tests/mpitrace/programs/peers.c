/* Calls whose ranks and communicators a timeline names: `peers`, and `peers POLLS` with so many probes, on two ranks. */
#include <mpi.h>
#include <stdlib.h>

int main(int count, char** words) {
  MPI_Comm rows, half, self;
  int rank, flag, value = 1, other = 0;
  MPI_Init(&count, &words);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  const int peer = 1 - rank;
  for (int i = 0; count > 1 && i < atoi(words[1]); ++i)
    MPI_Iprobe(peer, 99, MPI_COMM_WORLD, &flag, MPI_STATUS_IGNORE);
  MPI_Comm_dup(MPI_COMM_WORLD, &rows);
  MPI_Comm_set_name(rows, "rows \"\n<b>");
  MPI_Bcast(&value, 1, MPI_INT, 1, rows);
  MPI_Comm_set_name(rows, "columns");
  MPI_Bcast(&value, 1, MPI_INT, 0, rows);
  MPI_Comm_free(&rows);
  MPI_Comm_split(MPI_COMM_WORLD, 0, rank, &half); /* may have the handle of the freed one */
  MPI_Allreduce(&value, &other, 1, MPI_INT, MPI_SUM, half);
  MPI_Comm_free(&half);
  MPI_Comm_split(MPI_COMM_WORLD, rank, 0, &self);
  MPI_Barrier(self);
  MPI_Comm_free(&self);
  if (rank == 0) {
    MPI_Send(&value, 1, MPI_INT, 1, 7, MPI_COMM_WORLD);
    MPI_Send(&value, 1, MPI_INT, MPI_PROC_NULL, 7, MPI_COMM_WORLD);
  } else {
    MPI_Recv(&other, 1, MPI_INT, MPI_ANY_SOURCE, 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  }
  MPI_Sendrecv(&value, 1, MPI_INT, peer, 8, &other, 1, MPI_INT, peer, 8, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  return MPI_Finalize();
}

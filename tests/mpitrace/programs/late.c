/* A program of collectives to which rank 1 comes 3 ms after the others. */
#include <mpi.h>
#include <unistd.h>

int main(int count, char** words) {
  int rank, round;
  double in[1000] = {0}, out[1000];
  MPI_Init(&count, &words);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  for (round = 0; round < 60; ++round) {
    if (rank == 1) usleep(3000);
    MPI_Allreduce(in, out, 1000, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
  }
  MPI_Finalize();
  return 0;
}

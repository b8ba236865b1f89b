/* Calls from places that a profile is to name. */
#include <mpi.h>

static double in[8], out[8];

__attribute__((noinline)) static void solve(void) {
  for (int i = 0; i < 7; ++i) {
    MPI_Allreduce(in, out, 8, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD); /* solves */
  }
}

__attribute__((noinline)) static void meet(void) {
  MPI_Barrier(MPI_COMM_WORLD); /* meets */
}

int main(int count, char** words) {
  MPI_Init(&count, &words);
  solve();
  meet();
  MPI_Allreduce(in, out, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD); /* from main */
  return MPI_Finalize();
}

/* Loaded by loads.c, as Python loads an extension: MPI comes into the process for it alone. */
#include <mpi.h>
#include <stddef.h>

int run(void) {
  int rank;
  double in = 0, out = 0;
  MPI_Init(NULL, NULL);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  for (int i = 0; i < 5; ++i) MPI_Allreduce(&in, &out, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
  MPI_Finalize();
  return 0;
}

/* Threads that call MPI at the same time, and others after they are gone. */
#include <mpi.h>
#include <pthread.h>

#include "truth.h"

enum { threads = 8, rounds = 2000 };
static int rank, provided;

static void* call(void* which) {
  double in, out = 1;
  const int tag = (int)(long)which;
  for (int i = 0; i < rounds; ++i) {
    int size;
    MPI_Sendrecv(&out, 1, MPI_DOUBLE, rank, tag, &in, 1, MPI_DOUBLE, rank, tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
  }
  return NULL;
}

int main(int count, char** words) {
  pthread_t all[threads];
  MPI_Init_thread(&count, &words, MPI_THREAD_MULTIPLE, &provided);
  if (provided != MPI_THREAD_MULTIPLE) {
    puts("no threads");
    return MPI_Finalize();
  }
  CALL(MPI_Comm_rank, MPI_COMM_WORLD, &rank);
  for (int wave = 0; wave < 2; ++wave) {
    for (long i = 0; i < threads; ++i) pthread_create(&all[i], NULL, call, (void*)i);
    for (int i = 0; i < threads; ++i) pthread_join(all[i], NULL);
  }
  for (int i = 0; i < 2 * threads * rounds; ++i) note("MPI_Sendrecv", 8), note("MPI_Comm_size", 0);
  tell_truths(rank);
  return MPI_Finalize();
}

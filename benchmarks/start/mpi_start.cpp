// As start_step.cpp, with MPI.
#include <mpi.h>

#include <chrono>
#include <cstdio>

int main(int count, char** words) {
  MPI_Init(&count, &words);
  MPI_Barrier(MPI_COMM_WORLD);
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  if (rank == 0)
    std::printf("{\"passed_ns\": %lld}\n", static_cast<long long>(std::chrono::nanoseconds(now).count()));
  MPI_Finalize();
  return 0;
}

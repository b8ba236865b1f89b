// What one call of MPI takes on one rank: prints {"call": NAME, "ns": MEDIAN} for each.
#include <mpi.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <vector>

namespace {

template <class Call>
void measure(const char* name, int calls, Call&& call) {
  std::vector<double> batches;
  for (int batch = 0; batch < 101; ++batch) {
    const auto before = std::chrono::steady_clock::now();
    for (int i = 0; i < calls; ++i) call();
    const std::chrono::duration<double, std::nano> took = std::chrono::steady_clock::now() - before;
    batches.push_back(took.count() / calls);
  }
  std::nth_element(batches.begin(), batches.begin() + 50, batches.end());
  std::printf("{\"call\": \"%s\", \"ns\": %.1f}\n", name, batches[50]);
}

}  // namespace

int main(int count, char** words) {
  MPI_Init(&count, &words);
  int rank = 0;
  double in = 1, out = 0;
  measure("MPI_Comm_rank", 10000, [&] { MPI_Comm_rank(MPI_COMM_WORLD, &rank); });
  int flag = 0;
  measure("MPI_Iprobe", 10000, [&] { MPI_Iprobe(0, 1, MPI_COMM_SELF, &flag, MPI_STATUS_IGNORE); });
  measure("MPI_Allreduce", 10000, [&] { MPI_Allreduce(&in, &out, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_SELF); });
  MPI_Finalize();
}

/* Programs that do what a profile must stand: `ends kill|kill_all|exit|abort|fork|exec|finalize`. */
#include <mpi.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "truth.h"

static void forked_child_calls_what_it_should_not(void) {
  const pid_t child = fork();
  if (child == 0) {
    for (int i = 0; i < 1000; ++i) (void)MPI_Wtime();
    _exit(0);
  }
  waitpid(child, NULL, 0);
}

static void program_starts_another(void) {
  const pid_t child = fork();
  if (child == 0) {
    execl("/bin/true", "true", (char*)NULL);
    _exit(1);
  }
  waitpid(child, NULL, 0);
}

int main(int count, char** words) {
  int rank;
  double in[8] = {0}, out[8] = {0};
  const char* what = count > 1 ? words[1] : "finalize";
  MPI_Init(&count, &words);
  CALL(MPI_Comm_rank, MPI_COMM_WORLD, &rank);
  for (int i = 0; i < 10; ++i) MOVE(64, MPI_Allreduce, in, out, 8, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
  if (strcmp(what, "fork") == 0) forked_child_calls_what_it_should_not();
  if (strcmp(what, "exec") == 0) program_starts_another();
  tell_truths(rank);
  PMPI_Barrier(MPI_COMM_WORLD); /* when one ends, launchers kill the others, and none is in a call that counts */
  if (strcmp(what, "exit") == 0) _exit(0);
  if (strcmp(what, "abort") == 0 && rank == 1) {
    MPI_Abort(MPI_COMM_WORLD, 7);
    for (;;) pause(); /* MPICH 5 comes back, and is killed some time later */
  }
  if (strcmp(what, "kill_all") == 0) kill(getpid(), SIGKILL);
  if (strcmp(what, "kill") == 0 && rank == 1) kill(getpid(), SIGKILL);
  if (strcmp(what, "kill") == 0 || strcmp(what, "abort") == 0) MPI_Barrier(MPI_COMM_WORLD);
  return MPI_Finalize();
}

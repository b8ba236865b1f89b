/* The C interface: ranks add something up, in the order of calls and by name. Run it with `lockstep run -np 2 hello_from_c`. */
#include <lockstep_c.h>
#include <stdio.h>
#include <stdlib.h>

static void require(int status) {
  if (status == LOCKSTEP_OK) return;
  fprintf(stderr, "hello_from_c: %s\n", lockstep_last_error());
  exit(1);
}

/* Waits for it and lets it go. */
static void finish(lockstep_work* work) {
  require(lockstep_wait(work, -1));
  lockstep_work_free(work);
}

int main(void) {
  require(lockstep_init());
  lockstep_place place;
  require(lockstep_set_place(LOCKSTEP_WORLD, &place));

  float values[3] = {1, 2, (float)place.rank};
  lockstep_work* work = NULL;
  require(lockstep_all_reduce(LOCKSTEP_WORLD, values, values, 3, LOCKSTEP_F32, LOCKSTEP_SUM, &work));
  finish(work);

  /* By name: ranks may submit in any order. A request is made once, and submitted in each step. */
  const int32_t dimensions = 1;
  const int64_t shape = 2;
  double loss[2] = {place.rank, 10.0 * place.rank};
  void* const buffer = loss;
  lockstep_request* request = NULL;
  require(lockstep_request_new(LOCKSTEP_WORLD, "loss", LOCKSTEP_NAMED_ALL_REDUCE, LOCKSTEP_F64, LOCKSTEP_AVERAGE, 0, 1.0, 1.0, 1,
                               &dimensions, &shape, &request));
  require(lockstep_submit(request, &buffer, NULL, &work));
  finish(work);
  lockstep_request_free(request);

  if (place.rank == 0)
    printf("%d ranks: %g %g %g, loss %g %g\n", (int)place.size, values[0], values[1], values[2], loss[0], loss[1]);
  require(lockstep_shutdown());
  return 0;
}

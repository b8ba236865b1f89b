/* Calls every function of the C interface, right and wrong; what it finds wrong it says, and ends with 1. */
#include <lockstep_c.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int rank_of_this = -1;

#define CHECK(condition)                                                                                          \
  do {                                                                                                            \
    if (!(condition)) {                                                                                           \
      fprintf(stderr, "rank %d, line %d: %s; last error: %s\n", rank_of_this, __LINE__, #condition, lockstep_last_error()); \
      exit(1);                                                                                                    \
    }                                                                                                             \
  } while (0)
#define OK(call) CHECK((call) == LOCKSTEP_OK)
#define REFUSED(call, words) \
  CHECK((call) == LOCKSTEP_INVALID_ARGUMENT && strstr(lockstep_last_error(), words) != NULL)

static void finish(lockstep_work* work) {
  OK(lockstep_wait(work, -1));
  OK(lockstep_wait(work, 0));
  OK(lockstep_test(work));
  lockstep_work_free(work);
}

static void in_the_order_of_calls(const lockstep_place* place) {
  const int ranks = place->size, rank = place->rank;
  lockstep_work* work = NULL;
  int32_t blocks[16], block = rank, all[16];
  OK(lockstep_all_gather(LOCKSTEP_WORLD, &block, all, sizeof block, &work));
  finish(work);
  for (int i = 0; i < ranks; ++i) CHECK(all[i] == i);
  for (int i = 0; i < ranks; ++i) blocks[i] = 100 * rank + i;
  OK(lockstep_all_to_all(LOCKSTEP_WORLD, blocks, all, sizeof block, &work));
  finish(work);
  for (int i = 0; i < ranks; ++i) CHECK(all[i] == 100 * i + rank);
  for (int i = 0; i < ranks; ++i) blocks[i] = i + 1;
  OK(lockstep_reduce_scatter(LOCKSTEP_WORLD, blocks, &block, 1, LOCKSTEP_I32, LOCKSTEP_SUM, &work));
  finish(work);
  CHECK(block == ranks * (rank + 1));
  double sum = 0, one = rank + 1;
  OK(lockstep_reduce(LOCKSTEP_WORLD, &one, &sum, 1, LOCKSTEP_F64, LOCKSTEP_MAX, ranks - 1, &work));
  finish(work);
  CHECK(rank != ranks - 1 || sum == ranks);
  OK(lockstep_broadcast(LOCKSTEP_WORLD, &sum, sizeof sum, ranks - 1, &work));
  finish(work);
  CHECK(sum == ranks);
  OK(lockstep_gather(LOCKSTEP_WORLD, &block, all, sizeof block, 0, &work));
  finish(work);
  OK(lockstep_scatter(LOCKSTEP_WORLD, all, &block, sizeof block, 0, &work));
  finish(work);
  CHECK(block == ranks * (rank + 1));
  OK(lockstep_barrier(LOCKSTEP_WORLD, &work));
  finish(work);
  int32_t came = -1;
  lockstep_work* receiving = NULL;
  OK(lockstep_recv(LOCKSTEP_WORLD, &came, sizeof came, -1, 7, &receiving));
  OK(lockstep_send(LOCKSTEP_WORLD, &rank_of_this, sizeof came, (rank + 1) % ranks, 7, &work));
  finish(work);
  OK(lockstep_wait(receiving, -1));
  CHECK(lockstep_work_source(receiving) == (rank + ranks - 1) % ranks);
  finish(receiving);
  CHECK(came == (rank + ranks - 1) % ranks);
  /* Rank i sends j + 1 numbers to rank j. */
  size_t sent[16], received[16];
  int32_t triangle[136], rows[256];
  int next = 0;
  for (int to = 0; to < ranks; ++to) {
    sent[to] = sizeof(int32_t) * (size_t)(to + 1);
    received[to] = sizeof(int32_t) * (size_t)(rank + 1);
    for (int i = 0; i <= to; ++i) triangle[next++] = 100 * rank + to;
  }
  OK(lockstep_all_to_all_v(LOCKSTEP_WORLD, triangle, sent, rows, received, &work));
  CHECK(lockstep_work_source(work) == -1);
  finish(work);
  for (int i = 0; i < ranks * (rank + 1); ++i) CHECK(rows[i] == 100 * (i / (rank + 1)) + rank);
  REFUSED(lockstep_all_to_all_v(LOCKSTEP_WORLD, triangle, NULL, rows, received, &work), "NULL");
}

struct room {
  void* begin;
  size_t bytes, asked;
};

static void* give(void* context, size_t bytes) {
  struct room* const room = context;
  room->asked = bytes;
  return bytes <= room->bytes ? room->begin : NULL;
}

static void by_name(const lockstep_place* place) {
  const int ranks = place->size, rank = place->rank;
  const int32_t dimensions[2] = {1, 2};
  const int64_t shapes[3] = {3, 2, 2};
  int64_t first[3] = {7, -7, rank}, second[4] = {1, 1, 1, 1};
  void* const buffers[2] = {first, second};
  lockstep_request* request = NULL;
  lockstep_work* work = NULL;
  /* Averages of integers are cut off towards zero. */
  OK(lockstep_request_new(LOCKSTEP_WORLD, "grouped", LOCKSTEP_NAMED_ALL_REDUCE, LOCKSTEP_I64, LOCKSTEP_AVERAGE, 0, 1, 0.5, 2, dimensions,
                          shapes, &request));
  OK(lockstep_submit(request, buffers, NULL, &work));
  finish(work);
  CHECK(first[0] == 3 && first[1] == -3 && second[0] == 0);
  /* A name that is under way is not submitted again. It stays so until rank 1 submits it, after rank 0 has tried. */
  lockstep_work* met = NULL;
  if (rank == 1) {
    OK(lockstep_barrier(LOCKSTEP_WORLD, &met));
    finish(met);
  }
  OK(lockstep_submit(request, buffers, NULL, &work));
  if (ranks > 1 && rank != 1) {
    lockstep_work* twice = NULL;
    REFUSED(lockstep_submit(request, buffers, NULL, &twice), "is under way already on this rank");
    OK(lockstep_barrier(LOCKSTEP_WORLD, &met));
    finish(met);
  }
  finish(work);
  lockstep_request_free(request);
  /* Contributions are scaled on the way: what is refused, and an input, stay what they are. */
  int32_t parts[32], each = place->size * 2;
  for (int i = 0; i < each; ++i) parts[i] = 7;
  const int64_t length = each;
  void* const part = parts;
  OK(lockstep_request_new(LOCKSTEP_WORLD, "scattered", LOCKSTEP_NAMED_REDUCE_SCATTER, LOCKSTEP_I32, LOCKSTEP_SUM, 0, 0.5, 2, 1, dimensions,
                          &length, &request));
  OK(lockstep_submit(request, &part, NULL, &work));
  void* share = NULL;
  size_t share_bytes = 0;
  const int64_t* share_rows = NULL;
  int share_count = 0;
  OK(lockstep_wait(work, -1));
  OK(lockstep_work_output(work, &share, &share_bytes, &share_rows, &share_count));
  CHECK(share_count == 1 && share_rows[0] == 2 && ((int32_t*)share)[0] == 2 * 3 * ranks && parts[0] == 7);
  lockstep_work_free(work);
  lockstep_request_free(request);

  const int32_t none = 0;
  const int64_t rows = rank + 1;
  float mine[16];
  for (int i = 0; i <= rank; ++i) mine[i] = (float)rank;
  void* const input = mine;
  OK(lockstep_request_new(LOCKSTEP_WORLD, "gathered", LOCKSTEP_NAMED_ALL_GATHER, LOCKSTEP_F32, 0, 0, 1, 1, 1, &none, NULL, &request));
  OK(lockstep_submit(request, &input, &rows, &work));
  void* data = NULL;
  size_t bytes = 0;
  const int64_t* made = NULL;
  int count = 0;
  OK(lockstep_wait(work, -1));
  OK(lockstep_work_output(work, &data, &bytes, &made, &count));
  CHECK(count == ranks && bytes == sizeof(float) * (size_t)(ranks * (ranks + 1) / 2));
  for (int r = 0, at = 0; r < ranks; ++r) {
    CHECK(made[r] == r + 1);
    for (int i = 0; i <= r; ++i) CHECK(((float*)data)[at++] == (float)r);
  }
  lockstep_work_free(work);
  /* The same where the program wants it. */
  float room[256];
  struct room mine_to_give = {room, sizeof room, 0};
  OK(lockstep_submit_with_output(request, &input, &rows, give, &mine_to_give, &work));
  OK(lockstep_wait(work, -1));
  OK(lockstep_work_output(work, &data, &bytes, &made, &count));
  CHECK(data == room && mine_to_give.asked == bytes && count == ranks);
  CHECK(bytes == sizeof(float) * (size_t)(ranks * (ranks + 1) / 2) && room[bytes / sizeof(float) - 1] == (float)(ranks - 1));
  lockstep_work_free(work);
  lockstep_request_free(request);

  int last = -1;
  OK(lockstep_join(LOCKSTEP_WORLD, &last));
  CHECK(last >= 0 && last < ranks);
  /* An Adasum, of two buffers: what is alike stays what it is, what is orthogonal is added. */
  const int32_t one_dimension[2] = {1, 1};
  const int64_t sizes[2] = {2, 16};
  float alike[2] = {3, 4}, apart[16] = {0};
  apart[rank] = 2;
  void* const pair[2] = {alike, apart};
  OK(lockstep_request_new(LOCKSTEP_WORLD, "adasum", LOCKSTEP_NAMED_ALL_REDUCE, LOCKSTEP_F32, LOCKSTEP_ADASUM, 0, 1, 0.5, 2, one_dimension,
                          sizes, &request));
  OK(lockstep_submit(request, pair, NULL, &work));
  finish(work);
  lockstep_request_free(request);
  CHECK(alike[0] == 1.5F && alike[1] == 2);
  for (int i = 0; i < 16; ++i) CHECK(apart[i] == (i < ranks ? 1 : 0));
  REFUSED(lockstep_request_new(LOCKSTEP_WORLD, "adasum", LOCKSTEP_NAMED_ALL_REDUCE, LOCKSTEP_I32, LOCKSTEP_ADASUM, 0, 1, 1, 2,
                               one_dimension, sizes, &request),
          "only floating-point numbers have an Adasum");
  REFUSED(lockstep_request_new(LOCKSTEP_WORLD, "adasum", LOCKSTEP_NAMED_REDUCE_SCATTER, LOCKSTEP_F32, LOCKSTEP_ADASUM, 0, 1, 1, 1,
                               one_dimension, sizes, &request),
          "for all_reduce alone");
}

static void sets(const lockstep_place* place) {
  float values_of_two[2] = {1, 1};
  const int32_t all[2] = {1, 0};
  int set = -1;
  if (place->rank > 1) return;
  OK(lockstep_set_new(all, 2, &set));
  lockstep_place in_set;
  OK(lockstep_set_place(set, &in_set));
  CHECK(in_set.rank == 1 - place->rank && in_set.size == 2 && in_set.local_size == 2 && in_set.cross_size == 1 && in_set.is_homogeneous == 1);
  void* memory = NULL;
  OK(lockstep_allocate(set, 4000, &memory));
  float* const values = memory;
  for (int i = 0; i < 1000; ++i) values[i] = 1;
  lockstep_work* work = NULL;
  OK(lockstep_all_reduce(set, values, values, 1000, LOCKSTEP_F32, LOCKSTEP_SUM, &work));
  finish(work);
  CHECK(values[999] == 2);
  lockstep_allocate_free(memory);
  lockstep_allocate_free(NULL);
  float* const own = malloc(400000);
  CHECK(own != NULL);
  for (int i = 0; i < 100000; ++i) own[i] = 2;
  OK(lockstep_register_memory(set, own, 400000));
  REFUSED(lockstep_register_memory(LOCKSTEP_WORLD, own, 400000), "is registered already");
  REFUSED(lockstep_register_memory(set, NULL, 4), "NULL");
  REFUSED(lockstep_register_memory(set, own + 1, 0), "no bytes");
  OK(lockstep_all_reduce(set, own, own, 100000, LOCKSTEP_F32, LOCKSTEP_SUM, &work));
  finish(work);
  CHECK(own[99999] == 4);
  lockstep_register_memory_free(own);
  lockstep_register_memory_free(own);
  CHECK(own[0] == 4 && own[99999] == 4);
  free(own);
  // Two ranks that do not call the same: told as often as asked.
  OK(lockstep_all_reduce(set, values_of_two, values_of_two, 1 + (size_t)place->rank, LOCKSTEP_F32, LOCKSTEP_SUM, &work));
  int status = LOCKSTEP_PENDING;
  while (status == LOCKSTEP_PENDING) status = lockstep_wait(work, 1);
  CHECK(status == LOCKSTEP_MISMATCH);
  CHECK(lockstep_test(work) == LOCKSTEP_MISMATCH && lockstep_wait(work, -1) == LOCKSTEP_MISMATCH);
  lockstep_work_free(work);
  OK(lockstep_set_free(set));
  REFUSED(lockstep_set_place(set, &in_set), "there is no set");
}

static void wrong_use(void) {
  lockstep_work* work = NULL;
  lockstep_request* request = NULL;
  float x = 0;
  int set = 0;
  const int32_t dimensions = 0;
  REFUSED(lockstep_all_reduce(LOCKSTEP_WORLD, &x, &x, 1, 99, LOCKSTEP_SUM, &work), "dtype 99");
  REFUSED(lockstep_all_reduce(LOCKSTEP_WORLD, &x, &x, 1, LOCKSTEP_F32, 8, &work), "reduce_op 8");
  REFUSED(lockstep_all_reduce(LOCKSTEP_WORLD, NULL, &x, 1, LOCKSTEP_F32, LOCKSTEP_SUM, &work), "NULL");
  REFUSED(lockstep_all_reduce(LOCKSTEP_WORLD, &x, &x, 1, LOCKSTEP_F32, LOCKSTEP_SUM, NULL), "NULL");
  REFUSED(lockstep_all_reduce(LOCKSTEP_WORLD, &x, &x, SIZE_MAX, LOCKSTEP_F32, LOCKSTEP_SUM, &work), "more than there can be");
  REFUSED(lockstep_broadcast(LOCKSTEP_WORLD, &x, 4, 99, &work), "99");
  REFUSED(lockstep_barrier(77, &work), "there is no set 77");
  REFUSED(lockstep_set_new(NULL, 0, &set), "1 rank");
  REFUSED(lockstep_set_free(LOCKSTEP_WORLD), "lockstep_shutdown()");
  REFUSED(lockstep_request_new(LOCKSTEP_WORLD, "", LOCKSTEP_NAMED_ALL_REDUCE, LOCKSTEP_F32, 0, 0, 1, 1, 1, &dimensions, NULL, &request),
          "name");
  REFUSED(lockstep_request_new(LOCKSTEP_WORLD, NULL, LOCKSTEP_NAMED_ALL_REDUCE, LOCKSTEP_F32, 0, 0, 1, 1, 1, &dimensions, NULL, &request),
          "NULL");
  REFUSED(lockstep_request_new(LOCKSTEP_WORLD, "x", 42, LOCKSTEP_F32, 0, 0, 1, 1, 1, &dimensions, NULL, &request), "operation 42");
  REFUSED(lockstep_request_new(LOCKSTEP_WORLD, "x", LOCKSTEP_NAMED_BROADCAST, LOCKSTEP_F32, 0, 0, 1, 1, 2, &dimensions, NULL, &request),
          "one buffer");
  CHECK(lockstep_last_error_rank() == -1);
}

/* Without arguments the environment says who this process is; else RANK, SIZE and PORT do. */
static void come_to_a_world(int argc, char** argv, int world) {
  if (argc < 4) {
    OK(lockstep_init());
    OK(lockstep_init());
    CHECK(lockstep_worlds() == world + 1);
    return;
  }
  REFUSED(lockstep_init_at(5, 2, "127.0.0.1", 1), "RANK is 5");
  REFUSED(lockstep_init_at(0, 2, NULL, 1), "NULL");
  OK(lockstep_init_at(atoi(argv[1]), atoi(argv[2]), "127.0.0.1", atoi(argv[3]) + world));
  OK(lockstep_init());
  REFUSED(lockstep_init_at(atoi(argv[1]), atoi(argv[2]), "127.0.0.1", atoi(argv[3])), "there is a world already");
}

/* Which rank 0 writes, before any of them comes back. */
static void timeline(void) {
  char file[1000];
  const char* const folder = getenv("TMPDIR");
  snprintf(file, sizeof file, "%s/timeline.json", folder != NULL ? folder : "/tmp");
  REFUSED(lockstep_timeline_stop(), "no timeline was started");
  REFUSED(lockstep_timeline_start(NULL), "NULL");
  REFUSED(lockstep_timeline_start("/absent/timeline.json"), "there is no folder /absent");
  OK(lockstep_timeline_start(file));
  REFUSED(lockstep_timeline_start(file), "was started before");
  OK(lockstep_timeline_stop());
  FILE* const made = fopen(file, "r");
  CHECK(made != NULL);
  CHECK(fgetc(made) == '{');
  CHECK(fclose(made) == 0);
  lockstep_work* work = NULL;
  OK(lockstep_barrier(LOCKSTEP_WORLD, &work));
  finish(work);
  if (rank_of_this == 0) CHECK(remove(file) == 0);
}

int main(int argc, char** argv) {
  CHECK(lockstep_c_version() >= LOCKSTEP_C_VERSION);
  CHECK(!lockstep_is_initialized());
  lockstep_work* work = NULL;
  REFUSED(lockstep_barrier(LOCKSTEP_WORLD, &work), "lockstep_init() was not called");
  for (int world = 0; world < 2; ++world) {
    come_to_a_world(argc, argv, world);
    CHECK(lockstep_is_initialized());
    CHECK(!lockstep_world_has_changed());
    CHECK(lockstep_incarnation() == 0);
    lockstep_place place;
    OK(lockstep_set_place(LOCKSTEP_WORLD, &place));
    rank_of_this = place.rank;
    in_the_order_of_calls(&place);
    by_name(&place);
    if (place.size > 1) sets(&place);
    wrong_use();
    lockstep_range* const range = lockstep_range_new("probe");
    lockstep_range_free(range);
    lockstep_range_free(NULL);
    timeline();
    lockstep_work_free(NULL);
    lockstep_work_abandon(NULL);
    OK(lockstep_barrier(LOCKSTEP_WORLD, &work));
    finish(work);
    OK(lockstep_shutdown());
    OK(lockstep_shutdown());
  }
  printf("rank %d is through\n", rank_of_this);
  return 0;
}

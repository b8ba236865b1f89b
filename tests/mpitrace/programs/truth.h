/* What a program knows of its own calls: it counts each where it makes it, and writes "truth RANK ROUTINE CALLS BYTES". */
#ifndef TRUTH_H
#define TRUTH_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct {
  const char* name;
  long calls;
  long long bytes;
} truths[512];

static void note(const char* name, long long bytes) {
  int i = 0;
  while (i < 511 && truths[i].name != NULL && strcmp(truths[i].name, name) != 0) ++i;
  truths[i].name = name;
  truths[i].calls += 1;
  truths[i].bytes += bytes;
}

/* Into a file of its own: launchers mix what ranks print. */
static void tell_truths(int rank) {
  char path[4096];
  snprintf(path, sizeof(path), "%s/truth.%d", getenv("LOCKSTEP_TEST_TRUTHS"), rank);
  FILE* file = fopen(path, "w");
  for (int i = 0; truths[i].name != NULL; ++i)
    fprintf(file, "truth %d %s %ld %lld\n", rank, truths[i].name, truths[i].calls, truths[i].bytes);
  fclose(file);
}

/* A call that moves nothing, and one that moves bytes. */
#define CALL(name, ...) (note(#name, 0), check(#name, name(__VA_ARGS__)))
#define MOVE(bytes, name, ...) (note(#name, bytes), check(#name, name(__VA_ARGS__)))
/* The same with large counts, which stands in the same row. */
#define LARGE(bytes, name, ...) (note(#name, bytes), check(#name, name##_c(__VA_ARGS__)))

static void check(const char* name, int error) {
  if (error == 0) return;
  fprintf(stderr, "%s failed: %d\n", name, error);
  exit(3);
}

#endif

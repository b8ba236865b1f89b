/* The core for other languages: C, and whatever calls C (Python by ctypes, Fortran, Rust, Julia).
 *
 *   if (lockstep_init() != LOCKSTEP_OK) fail(lockstep_last_error());
 *   lockstep_work* work;
 *   lockstep_all_reduce(LOCKSTEP_WORLD, x, x, 1000, LOCKSTEP_F32, LOCKSTEP_SUM, &work);
 *   lockstep_wait(work, -1);
 *   lockstep_work_free(work);
 *   lockstep_shutdown();
 *
 * The interface is stable: functions, numbers and structures that are here stay as they are; lockstep_c_version() grows
 * when something is added.
 *
 * Results. Functions that can fail return LOCKSTEP_OK (0), or what went wrong (a positive number). lockstep_last_error() then
 * says it in words, with the names of ranks and operations, until this thread's next call fails. Outputs are untouched.
 *
 * Threads. Any thread may call any function. A lockstep_work belongs to one thread at a time.
 *
 * Lifetimes. Buffers that a call is given are borrowed until its work is over. What a function gives out is given back by the
 * function with the same name and _free, once.
 */
#ifndef LOCKSTEP_C_H
#define LOCKSTEP_C_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define LOCKSTEP_C_VERSION 6

enum {
  LOCKSTEP_PENDING = -1, /* not over yet; no error */
  LOCKSTEP_OK = 0,
  LOCKSTEP_INVALID_ARGUMENT = 1, /* something that can never work; nothing was started */
  LOCKSTEP_TIMEOUT = 2,          /* a deadline passed */
  LOCKSTEP_PEER_LOST = 3,        /* a rank died, or left while others still needed it */
  LOCKSTEP_MISMATCH = 4,         /* ranks called different things */
  LOCKSTEP_ABORTED = 5,          /* the group was closed before */
  LOCKSTEP_UNSUPPORTED = 6,      /* this build or machine cannot do it */
  LOCKSTEP_CORRUPT_DATA = 7,
  LOCKSTEP_SYSTEM = 8, /* the operating system refused */
  LOCKSTEP_OTHER = 9   /* no memory, or a mistake of Lockstep's own */
};

/* Element types. */
enum {
  LOCKSTEP_U8 = 0,
  LOCKSTEP_I32 = 1,
  LOCKSTEP_I64 = 2,
  LOCKSTEP_F16 = 3,
  LOCKSTEP_BF16 = 4,
  LOCKSTEP_F32 = 5,
  LOCKSTEP_F64 = 6,
  LOCKSTEP_I8 = 7,
  LOCKSTEP_U16 = 8,
  LOCKSTEP_I16 = 9,
  LOCKSTEP_U32 = 10,
  LOCKSTEP_U64 = 11,
  LOCKSTEP_BOOL = 12,      /* a byte, 0 or 1 */
  LOCKSTEP_COMPLEX64 = 13, /* two f32 */
  LOCKSTEP_COMPLEX128 = 14
};

/* How elements are combined. */
enum {
  LOCKSTEP_SUM = 0,
  LOCKSTEP_PRODUCT = 1,
  LOCKSTEP_MIN = 2,
  LOCKSTEP_MAX = 3,
  LOCKSTEP_AVERAGE =
      4, /* of integers by a request alone (lockstep_request_new): the sum over the ranks, towards zero */
  LOCKSTEP_BAND = 5,
  LOCKSTEP_BOR = 6,
  LOCKSTEP_BXOR = 7,
  LOCKSTEP_ADASUM =
      8 /* of floats, by a request of LOCKSTEP_NAMED_ALL_REDUCE alone: each rank holds the contributions of all meanwhile.
                         Since version 2 */
};

/* LOCKSTEP_C_VERSION of the library that is loaded. */
int lockstep_c_version(void);
/* Why this thread's last call that failed did so; "" if none has. Valid until its next call fails. */
const char* lockstep_last_error(void);
/* The world rank that caused it; -1 where it is not one alone. */
int lockstep_last_error_rank(void);

/* ---- The job ---- */

/* Joins the job's world, under whatever started this process (docs/running.md); alone, a world of one. Again while it is there: nothing.
 * After lockstep_shutdown() it joins the job's next one. Collective over all ranks. */
int lockstep_init(void);
/* The same for who knows better than the environment who this process is, as one that was forked by its program does: rank `rank` of
 * `size`; rank 0 is reached at `address` (a name or address; 127.0.0.1 where all are on one host), on `port`, which is free there.
 * lockstep_init() then has nothing to do. Since version 2. */
int lockstep_init_at(int rank, int size, const char* address, int port);
/* Leaves it. Works under way end with LOCKSTEP_ABORTED; sets but LOCKSTEP_WORLD are gone. Nothing where there is no world. */
int lockstep_shutdown(void);
int lockstep_is_initialized(void); /* 1 or 0 */
/* In a job whose ranks may die and come back (`lockstep run --tolerate`, --restart, --min-np): 1 where some have since the world was
 * made, so that lockstep_shutdown() and lockstep_init() give another one; else 0. Other ranks may know it a little later. */
int lockstep_world_has_changed(void);
/* How many worlds this process has come to. What was made for an earlier one, requests say, serves no more. */
int lockstep_worlds(void);
/* How often this rank was started again by itself after a failure; 0 at first. */
int lockstep_incarnation(void);

/* ---- Sets of ranks ---- */

/* All ranks. */
#define LOCKSTEP_WORLD 0

typedef struct lockstep_place {
  int32_t rank, size;
  int32_t local_rank, local_size; /* among those of this host */
  int32_t cross_rank,
      cross_size;         /* among those of all hosts that have the same local rank, in the order of hosts */
  int32_t is_homogeneous; /* all hosts have as many ranks of the set */
} lockstep_place;

/* Where this rank is in a set of which it is a member. */
int lockstep_set_place(int set, lockstep_place* place);
/* Makes a set of these ranks of the world, in this order. Collective over them, and over them alone; they all make their common sets
 * in the same order. Its number is this process's own. */
int lockstep_set_new(const int32_t* ranks, int count, int* set);
/* Leaves it. Its works have to be over. Not of LOCKSTEP_WORLD. */
int lockstep_set_free(int set);

/* ---- Works ---- */

typedef struct lockstep_work lockstep_work;

/* Whether it is over: LOCKSTEP_OK, LOCKSTEP_PENDING, or why it failed (again with each call). */
int lockstep_test(lockstep_work* work);
/* The same after at most so many milliseconds; -1: as long as it takes, which the group's own time-out bounds. */
int lockstep_wait(lockstep_work* work, int64_t milliseconds);
/* What it has made, where a request has results of its own (below); `rows` has `row_count` numbers. Valid until the work is freed, but
 * for memory of the program's. REQUIRES: it is over, and well. */
int lockstep_work_output(lockstep_work* work, void** data, size_t* bytes, const int64_t** rows,
                         int* row_count);
/* The rank in its set that sent what lockstep_recv() has received; -1 before it is over, and of other works. Since version 2. */
int lockstep_work_source(const lockstep_work* work);
/* Waits until it is over, unless it is. NULL: nothing. */
void lockstep_work_free(lockstep_work* work);
/* Frees it without waiting: unless it is over, its group fails at once on all ranks, and this one is named. */
void lockstep_work_abandon(lockstep_work* work);

/* ---- Collectives in the order of calls ----
 * All ranks of the set make the same calls in the same order. `elements`, `dtype`: of each buffer; where a buffer holds a block for each
 * rank, of one block. In place: pass the same buffer twice; blocks: this rank's one of the larger buffer. */

int lockstep_all_reduce(int set, const void* input, void* output, size_t elements, int dtype, int reduce_op,
                        lockstep_work** work);
int lockstep_reduce(int set, const void* input, void* output, size_t elements, int dtype, int reduce_op,
                    int root, lockstep_work** work);
int lockstep_reduce_scatter(int set, const void* input, void* output, size_t elements, int dtype,
                            int reduce_op, lockstep_work** work);
int lockstep_broadcast(int set, void* buffer, size_t bytes, int root, lockstep_work** work);
int lockstep_all_gather(int set, const void* input, void* output, size_t bytes, lockstep_work** work);
int lockstep_gather(int set, const void* input, void* output, size_t bytes, int root, lockstep_work** work);
int lockstep_scatter(int set, const void* input, void* output, size_t bytes, int root, lockstep_work** work);
int lockstep_all_to_all(int set, const void* input, void* output, size_t bytes, lockstep_work** work);
/* Blocks of any sizes: `sent`, `received`: the bytes for each rank and from each, one number for each rank; they lie one after another
 * in `input` and `output`. What this rank sends to another is what that one receives of it. Since version 2. */
int lockstep_all_to_all_v(int set, const void* input, const size_t* sent, void* output,
                          const size_t* received, lockstep_work** work);
int lockstep_barrier(int set, lockstep_work** work);
/* Messages of one sender with one tag arrive in order. `source` -1: of any rank. */
int lockstep_send(int set, const void* buffer, size_t bytes, int destination, int tag, lockstep_work** work);
int lockstep_recv(int set, void* buffer, size_t bytes, int source, int tag, lockstep_work** work);

/* ---- GPUs' memory. Since version 5 ----
 * Collectives in the order of calls, messages with tag 0 from a rank that is named, and some requests (below) take it. */

/* Where the buffers are of the calls that this thread begins from now on: in the memory of GPU `device`, as CUDA counts in this process; -1,
 * as at first: in main memory. A call comes after what `stream`, a cudaStream_t of that GPU (NULL: its default one), has been given
 * before it. lockstep_wait() without a limit then does not wait: what the stream gets from now on comes after the call, and the work is over.
 * With a limit it waits for the GPU, which lockstep_test() looks at, too. What fails after that fails the set's next call. */
void lockstep_use_gpu(int device, void* stream);
/* Whether calls of the set can be on this rank's GPU `device`: LOCKSTEP_OK, or LOCKSTEP_UNSUPPORTED with what is missing; on all ranks
 * the same. Connects the ranks when it is asked for the first time, or a call comes there: collective then, in the order of calls. */
int lockstep_set_has_gpu(int set, int device);
/* Whether they reduce these there: 1, or 0, also for numbers that are none. */
int lockstep_gpu_can_reduce(int dtype, int reduce_op);

/* ---- Collectives found by name, in any order, as Horovod has them ----
 * A request is what is to be done with buffers of one kind; it is made once and submitted again and again. */

typedef struct lockstep_request lockstep_request;

enum {
  LOCKSTEP_NAMED_ALL_REDUCE = 1,     /* buffers in place; several: none of them begins before all are there */
  LOCKSTEP_NAMED_BROADCAST = 2,      /* one buffer in place */
  LOCKSTEP_NAMED_ALL_GATHER = 3,     /* output: all ranks' rows, in the order of ranks; rows: of each rank */
  LOCKSTEP_NAMED_ALL_TO_ALL = 4,     /* output: what the ranks send to this one; rows: of each rank */
  LOCKSTEP_NAMED_REDUCE_SCATTER = 5, /* output: this rank's share of the rows; rows: how many, one number */
  LOCKSTEP_NAMED_BARRIER = 6         /* no buffer */
};

/* `name`: of which ranks have one each under way at a time, text without an end in its middle. `shapes`: of each of `buffers` buffers
 * its `dimensions[i]` sizes, one after another; for all_gather and all_to_all without the first one, which may differ between
 * ranks. Contributions are multiplied by `prescale` and results by `postscale`, in f64 for integers, and cut off towards zero. */
int lockstep_request_new(int set, const char* name, int operation, int dtype, int reduce_op, int root,
                         double prescale, double postscale, int buffers, const int32_t* dimensions,
                         const int64_t* shapes, lockstep_request** request);
void lockstep_request_free(lockstep_request* request);
/* `buffers`: one pointer for each. `rows`: all_gather: how many this rank has, one number; all_to_all: how many it sends to each rank;
 * else unused. Fails with LOCKSTEP_INVALID_ARGUMENT while another operation of that name is under way on this rank. */
int lockstep_submit(lockstep_request* request, void* const* buffers, const int64_t* rows,
                    lockstep_work** work);
/* Gives memory for a result of `bytes`, where the request's buffers are; NULL: there is none, and the set fails, on all ranks. Any thread calls
 * it, once, while others may wait in this library; it calls nothing of this library. On a GPU it is memory that nothing there uses any more. */
typedef void* (*lockstep_make_output)(void* context, size_t bytes);
/* lockstep_submit() with a result where the program wants it, which is its own. The work has to be over before `context` is gone. Since
 * version 6. */
int lockstep_submit_with_output(lockstep_request* request, void* const* buffers, const int64_t* rows,
                                lockstep_make_output make, void* context, lockstep_work** work);
/* Whether its buffers may be on a GPU (lockstep_use_gpu), and the result of its own then is: 1 or 0. All in which nothing is scaled but
 * f16, bf16 and f32, and no barrier, nor LOCKSTEP_ADASUM. What has a result is submitted with memory for it. The ranks' GPUs need not
 * reach each other: then the core copies to main memory and back. The work is over when the GPU is through. Since version 5; results
 * since 6. */
int lockstep_request_takes_gpu(const lockstep_request* request);
/* This rank has nothing more to submit: until all have joined, it takes part in the others' operations with zeros. Returns in
 * `last` the rank that joined last, the same on all. Waits. */
int lockstep_join(int set, int* last);

/* ---- Memory that other ranks of the host reach, which collectives need not copy ----
 * Whose set it is of does not matter: all sets and requests use it. */

int lockstep_allocate(int set, size_t bytes, void** data);
void lockstep_allocate_free(void* data); /* NULL: nothing */
/* The program's own memory becomes such, at its place and with what is in it, until lockstep_register_memory_free() with its address.
 * During these two calls no thread writes to it and no work under way has it. Memory that is freed while it is registered is noticed by the
 * next collective with it, but the address stays registered until that function is called. Refused: what is not private to the process and
 * writable, what is registered, and what the arena has no room for. Each of the two costs a copy, and a collective about a microsecond
 * for each such buffer of 32 KiB or more; smaller ones are as others. Not for what a driver has pinned. Since version 4. */
int lockstep_register_memory(int set, void* memory, size_t bytes);
void lockstep_register_memory_free(void* memory); /* what is not registered: nothing */

/* ---- Timeline ---- */

/* A range of time of this thread in the timeline (docs/profiling.md), until it is freed there. */
typedef struct lockstep_range lockstep_range;
lockstep_range* lockstep_range_new(const char* name); /* NULL without memory */
void lockstep_range_free(lockstep_range* range);      /* NULL: nothing */

/* From now on, until lockstep_timeline_stop(), what all ranks do goes into a timeline, which rank 0 then writes into this file.
 * Collective over the world; fails on all ranks where the file cannot be. Since version 3. */
int lockstep_timeline_start(const char* file);
/* Returns when the file is there. Collective over the world. Since version 3. */
int lockstep_timeline_stop(void);

#ifdef __cplusplus
}
#endif
#endif

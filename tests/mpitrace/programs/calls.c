/* Calls of every kind, on two ranks or more. `calls FILE`: FILE is written and read by all. */
#include <mpi.h>

#include "truth.h"

enum { most = 4096 };
static int rank, size, peer;
static double in[most], out[most];
static int ones[64], places[64];

static void point_to_point(void) {
  MPI_Status status, both[2];
  MPI_Request requests[2];
  MPI_Message message;
  int flag, count, index;
  for (int n = 1; n <= 1024; n *= 4) {
    if (rank % 2 == 0) {
      MOVE(n * 8, MPI_Send, out, n, MPI_DOUBLE, peer, 1, MPI_COMM_WORLD);
      MOVE(n * 8, MPI_Recv, in, n, MPI_DOUBLE, peer, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    } else {
      MOVE(n * 8, MPI_Recv, in, n, MPI_DOUBLE, peer, 1, MPI_COMM_WORLD, &status);
      MOVE(n * 8, MPI_Send, out, n, MPI_DOUBLE, peer, 1, MPI_COMM_WORLD);
      CALL(MPI_Get_count, &status, MPI_DOUBLE, &count);
    }
  }
  MOVE(40, MPI_Irecv, in, 10, MPI_INT, peer, 2, MPI_COMM_WORLD, &requests[0]);
  MOVE(40, MPI_Isend, out, 10, MPI_INT, peer, 2, MPI_COMM_WORLD, &requests[1]);
  CALL(MPI_Waitall, 2, requests, both);
  MOVE(3, MPI_Irecv, in, 3, MPI_CHAR, peer, 3, MPI_COMM_WORLD, &requests[0]);
  MOVE(3, MPI_Issend, out, 3, MPI_CHAR, peer, 3, MPI_COMM_WORLD, &requests[1]);
  for (flag = 0; !flag;) CALL(MPI_Testall, 2, requests, &flag, both);
  MOVE(8, MPI_Irecv, in, 2, MPI_FLOAT, peer, 4, MPI_COMM_WORLD, &requests[0]);
  MOVE(8, MPI_Ssend, out, 2, MPI_FLOAT, MPI_PROC_NULL, 4, MPI_COMM_WORLD);
  MOVE(8, MPI_Isend, out, 2, MPI_FLOAT, peer, 4, MPI_COMM_WORLD, &requests[1]);
  CALL(MPI_Waitany, 2, requests, &index, &status);
  CALL(MPI_Wait, &requests[1 - index], &status);
  MOVE(800, MPI_Sendrecv, out, 100, MPI_DOUBLE, peer, 5, in, 200, MPI_DOUBLE, peer, 5, MPI_COMM_WORLD, &status);
  MOVE(16, MPI_Sendrecv_replace, in, 2, MPI_DOUBLE, peer, 6, peer, 6, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  MOVE(4, MPI_Isend, out, 1, MPI_INT, peer, 7, MPI_COMM_WORLD, &requests[0]);
  CALL(MPI_Mprobe, peer, 7, MPI_COMM_WORLD, &message, &status);
  MOVE(4, MPI_Mrecv, in, 1, MPI_INT, &message, &status);
  CALL(MPI_Wait, &requests[0], MPI_STATUS_IGNORE);
  CALL(MPI_Iprobe, peer, 99, MPI_COMM_WORLD, &flag, &status);
  CALL(MPI_Send_init, out, 7, MPI_BYTE, peer, 8, MPI_COMM_WORLD, &requests[0]);
  CALL(MPI_Recv_init, in, 7, MPI_BYTE, peer, 8, MPI_COMM_WORLD, &requests[1]);
  CALL(MPI_Startall, 2, requests);
  CALL(MPI_Waitall, 2, requests, MPI_STATUSES_IGNORE);
  CALL(MPI_Request_free, &requests[0]);
  CALL(MPI_Request_free, &requests[1]);
}

static void collectives(void) {
  MPI_Request request;
  CALL(MPI_Barrier, MPI_COMM_WORLD);
  MOVE(24, MPI_Bcast, out, 3, MPI_DOUBLE, 0, MPI_COMM_WORLD);
  MOVE(4, MPI_Allreduce, out, in, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  MOVE(0, MPI_Allreduce, out, in, 0, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  MOVE(1600, MPI_Allreduce, MPI_IN_PLACE, in, 200, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
  MOVE(8, MPI_Reduce, out, in, 1, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
  MOVE(16, MPI_Gather, out, 2, MPI_DOUBLE, in, rank == 0 ? 2 : -7, rank == 0 ? MPI_DOUBLE : MPI_DATATYPE_NULL, 0,
       MPI_COMM_WORLD);
  if (rank == 0)
    MOVE(24, MPI_Gather, MPI_IN_PLACE, -7, MPI_DATATYPE_NULL, in, 3, MPI_DOUBLE, 0, MPI_COMM_WORLD);
  else
    MOVE(24, MPI_Gather, out, 3, MPI_DOUBLE, NULL, -7, MPI_DATATYPE_NULL, 0, MPI_COMM_WORLD);
  if (rank == 0)
    MOVE(12, MPI_Scatter, out, 3, MPI_INT, MPI_IN_PLACE, -7, MPI_DATATYPE_NULL, 0, MPI_COMM_WORLD);
  else
    MOVE(12, MPI_Scatter, NULL, -7, MPI_DATATYPE_NULL, in, 3, MPI_INT, 0, MPI_COMM_WORLD);
  MOVE(32, MPI_Allgather, out, 4, MPI_DOUBLE, in, 4, MPI_DOUBLE, MPI_COMM_WORLD);
  MOVE(32, MPI_Allgather, MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, in, 4, MPI_DOUBLE, MPI_COMM_WORLD);
  MOVE(8, MPI_Alltoall, out, 1, MPI_DOUBLE, in, 1, MPI_DOUBLE, MPI_COMM_WORLD);
  MOVE(8, MPI_Reduce_scatter_block, out, in, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
  MOVE(8, MPI_Scan, out, in, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
  MOVE(8, MPI_Exscan, out, in, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
  CALL(MPI_Allgatherv, out, 1, MPI_INT, in, ones, places, MPI_INT, MPI_COMM_WORLD);
  CALL(MPI_Gatherv, out, 1, MPI_INT, in, ones, places, MPI_INT, 0, MPI_COMM_WORLD);
  CALL(MPI_Scatterv, out, ones, places, MPI_INT, in, 1, MPI_INT, 0, MPI_COMM_WORLD);
  CALL(MPI_Alltoallv, out, ones, places, MPI_INT, in, ones, places, MPI_INT, MPI_COMM_WORLD);
  CALL(MPI_Reduce_scatter, out, in, ones, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  CALL(MPI_Ibarrier, MPI_COMM_WORLD, &request);
  CALL(MPI_Wait, &request, MPI_STATUS_IGNORE);
  MOVE(8, MPI_Iallreduce, out, in, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD, &request);
  CALL(MPI_Wait, &request, MPI_STATUS_IGNORE);
  MOVE(2, MPI_Ibcast, out, 1, MPI_SHORT, 0, MPI_COMM_WORLD, &request);
  CALL(MPI_Wait, &request, MPI_STATUS_IGNORE);
  MOVE(8, MPI_Iallgather, out, 1, MPI_DOUBLE, in, 1, MPI_DOUBLE, MPI_COMM_WORLD, &request);
  CALL(MPI_Wait, &request, MPI_STATUS_IGNORE);
  CALL(MPI_Reduce_local, out, in, 1, MPI_DOUBLE, MPI_SUM);
}

static void communicators(void) {
  MPI_Comm half, copy, ring, between;
  MPI_Group all, some;
  int dims = 0, period = 1, coordinate, low, high, answer, one = 0;
  CALL(MPI_Comm_split, MPI_COMM_WORLD, rank % 2, rank, &half);
  if (size >= 2) {
    CALL(MPI_Intercomm_create, half, 0, MPI_COMM_WORLD, 1 - rank % 2, 9, &between);
    /* The root's group names it MPI_ROOT, its others MPI_PROC_NULL, and their buffers mean nothing. */
    if (rank % 2 == 1) {
      MOVE(8, MPI_Bcast, in, 1, MPI_DOUBLE, 0, between);
      MOVE(8, MPI_Gather, out, 1, MPI_DOUBLE, NULL, -7, MPI_DATATYPE_NULL, 0, between);
    } else if (rank == 0) {
      MOVE(8, MPI_Bcast, in, 1, MPI_DOUBLE, MPI_ROOT, between);
      MOVE(8, MPI_Gather, NULL, -7, MPI_DATATYPE_NULL, in, 1, MPI_DOUBLE, MPI_ROOT, between);
    } else {
      MOVE(0, MPI_Bcast, NULL, 0, MPI_DOUBLE, MPI_PROC_NULL, between);
      MOVE(0, MPI_Gather, NULL, 0, MPI_DOUBLE, NULL, 0, MPI_DOUBLE, MPI_PROC_NULL, between);
    }
    CALL(MPI_Comm_free, &between);
  }
  CALL(MPI_Comm_dup, half, &copy);
  CALL(MPI_Comm_set_name, copy, "copy");
  CALL(MPI_Comm_compare, half, copy, &answer);
  CALL(MPI_Comm_free, &copy);
  CALL(MPI_Comm_free, &half);
  CALL(MPI_Comm_group, MPI_COMM_WORLD, &all);
  CALL(MPI_Group_incl, all, 1, &one, &some);
  CALL(MPI_Group_free, &some);
  CALL(MPI_Group_free, &all);
  CALL(MPI_Dims_create, size, 1, &dims);
  CALL(MPI_Cart_create, MPI_COMM_WORLD, 1, &dims, &period, 0, &ring);
  CALL(MPI_Cart_coords, ring, rank, 1, &coordinate);
  CALL(MPI_Cart_shift, ring, 0, 1, &low, &high);
  MOVE(8, MPI_Neighbor_allgather, out, 1, MPI_DOUBLE, in, 1, MPI_DOUBLE, ring);
  MOVE(16, MPI_Neighbor_alltoall, out, 2, MPI_DOUBLE, in, 2, MPI_DOUBLE, ring);
  CALL(MPI_Comm_free, &ring);
}

static void windows(void) {
  MPI_Win window;
  double* base;
  double before, add = 1;
  CALL(MPI_Win_allocate, 64 * sizeof(double), sizeof(double), MPI_INFO_NULL, MPI_COMM_WORLD, &base, &window);
  CALL(MPI_Win_fence, 0, window);
  MOVE(32, MPI_Put, out, 4, MPI_DOUBLE, peer, 0, 4, MPI_DOUBLE, window);
  CALL(MPI_Win_fence, 0, window);
  MOVE(16, MPI_Get, in, 2, MPI_DOUBLE, peer, 0, 2, MPI_DOUBLE, window);
  CALL(MPI_Win_fence, 0, window);
  MOVE(8, MPI_Accumulate, out, 1, MPI_DOUBLE, peer, 8, 1, MPI_DOUBLE, MPI_SUM, window);
  CALL(MPI_Win_fence, 0, window);
  CALL(MPI_Win_lock, MPI_LOCK_SHARED, peer, 0, window);
  MOVE(8, MPI_Fetch_and_op, &add, &before, MPI_DOUBLE, peer, 16, MPI_SUM, window);
  CALL(MPI_Win_flush, peer, window);
  MOVE(16, MPI_Get_accumulate, NULL, 0, MPI_DOUBLE, in, 2, MPI_DOUBLE, peer, 0, 2, MPI_DOUBLE, MPI_NO_OP, window);
  CALL(MPI_Win_unlock, peer, window);
  CALL(MPI_Win_free, &window);
}

static void types(void) {
  MPI_Datatype pairs, triples;
  MPI_Aint low, extent;
  int bytes;
  for (int round = 0; round < 3; ++round) {
    CALL(MPI_Type_contiguous, 2, MPI_DOUBLE, &pairs);
    CALL(MPI_Type_commit, &pairs);
    MOVE(3 * 16, MPI_Bcast, out, 3, pairs, 0, MPI_COMM_WORLD);
    CALL(MPI_Type_free, &pairs);
    CALL(MPI_Type_vector, 3, 1, 2, MPI_DOUBLE, &triples); /* where the freed one was, and larger */
    CALL(MPI_Type_commit, &triples);
    MOVE(2 * 24, MPI_Bcast, out, 2, triples, 0, MPI_COMM_WORLD);
    CALL(MPI_Type_free, &triples);
  }
  CALL(MPI_Type_size, MPI_INT, &bytes);
  CALL(MPI_Type_get_extent, MPI_INT, &low, &extent);
}

static void files(const char* path) {
  MPI_File file;
  MPI_Status status;
  MPI_Request request;
  MPI_Offset bytes;
  CALL(MPI_File_open, MPI_COMM_WORLD, path, MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL, &file);
  CALL(MPI_File_set_size, file, 0);
  MOVE(80, MPI_File_write_at_all, file, rank * 80, out, 10, MPI_DOUBLE, &status);
  CALL(MPI_File_sync, file);
  CALL(MPI_Barrier, MPI_COMM_WORLD);
  MOVE(40, MPI_File_read_at, file, 0, in, 5, MPI_DOUBLE, &status);
  MOVE(8, MPI_File_iwrite_at, file, rank * 80, out, 1, MPI_DOUBLE, &request);
  CALL(MPI_Wait, &request, &status);
  CALL(MPI_File_seek, file, 0, MPI_SEEK_SET);
  MOVE(80, MPI_File_read_all, file, in, 10, MPI_DOUBLE, &status);
  CALL(MPI_File_get_size, file, &bytes);
  CALL(MPI_File_close, &file);
}

static void large_counts(void) {
#if MPI_VERSION >= 4
  MPI_Request request;
  MPI_Count counts[64];
  MPI_Aint offsets[64];
  for (int i = 0; i < 64; ++i) counts[i] = 1, offsets[i] = i;
  LARGE(40, MPI_Irecv, in, 5, MPI_DOUBLE, peer, 11, MPI_COMM_WORLD, &request);
  LARGE(40, MPI_Send, out, 5, MPI_DOUBLE, peer, 11, MPI_COMM_WORLD);
  CALL(MPI_Wait, &request, MPI_STATUS_IGNORE);
  LARGE(16, MPI_Allreduce, out, in, 2, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
  LARGE(24, MPI_Bcast, out, 3, MPI_DOUBLE, 0, MPI_COMM_WORLD);
  LARGE(0, MPI_Allgatherv, out, 1, MPI_INT, in, counts, offsets, MPI_INT, MPI_COMM_WORLD);
#endif
}

static void others(void) {
  MPI_Info info;
  char text[MPI_MAX_ERROR_STRING + MPI_MAX_PROCESSOR_NAME];
  int length, flag, version, subversion, key;
  void* value;
  CALL(MPI_Get_processor_name, text, &length);
  CALL(MPI_Get_version, &version, &subversion);
  CALL(MPI_Initialized, &flag);
  CALL(MPI_Error_string, MPI_ERR_TYPE, text, &length);
  CALL(MPI_Info_create, &info);
  CALL(MPI_Info_set, info, "key", "value");
  CALL(MPI_Info_free, &info);
  CALL(MPI_Comm_get_attr, MPI_COMM_WORLD, MPI_TAG_UB, &value, &flag);
  CALL(MPI_Comm_create_keyval, MPI_COMM_NULL_COPY_FN, MPI_COMM_NULL_DELETE_FN, &key, NULL);
  CALL(MPI_Comm_free_keyval, &key);
  CALL(MPI_Pcontrol, 1);
  note("MPI_Wtime", 0);
  (void)MPI_Wtime();
  note("MPI_Wtick", 0);
  (void)MPI_Wtick();
}

int main(int count, char** words) {
  MPI_Init(&count, &words);
  CALL(MPI_Comm_rank, MPI_COMM_WORLD, &rank);
  CALL(MPI_Comm_size, MPI_COMM_WORLD, &size);
  peer = rank ^ 1;
  for (int i = 0; i < 64; ++i) ones[i] = 1, places[i] = i;
  point_to_point();
  collectives();
  communicators();
  windows();
  types();
  if (count > 1) files(words[1]);
  large_counts();
  others();
  tell_truths(rank);
  return MPI_Finalize();
}

// The C interface: works, and collectives in the order of calls.
#include <algorithm>
#include <chrono>

#include "c/adasum.h"
#include "c/handles.h"
#include "c/scale.h"
#include "lockstep/group/gpu_calls.h"

namespace lockstep::c {
namespace {

/// A block of so many bytes for each rank.
std::size_t bytes_of_blocks(const Group& group, std::size_t bytes) {
  return bytes_of(bytes, static_cast<std::size_t>(group.size()), "blocks");
}

/// REQUIRES: none is negative.
std::size_t sum_of_sizes(std::span<const std::size_t> sizes) {
  std::size_t sum = 0;
  for (const std::size_t each : sizes)
    require(!__builtin_add_overflow(sum, each, &sum), "the blocks are more than there can be");
  return sum;
}

/// Begins a call in the order of calls.
template <class Call>
int begin(int set, lockstep_work** work, const Call& call) {
  return guarded([&] {
    require(work != nullptr, "there is no place for the work: the last argument is NULL");
    auto of = set_of(set);
    auto made = std::make_unique<lockstep_work>();
    if constexpr (requires { call(of->group, *made); }) {
      made->work = call(of->group, *made);
    } else {
      made->work = call(of->group);
    }
    made->set = std::move(of);
    *work = made.release();
    return LOCKSTEP_OK;
  });
}

Reduction reduction_of(int dtype, int reduce_op) {
  return {.dtype = dtype_of_number(dtype), .op = op_of_number(reduce_op), .place = place_of_calls()};
}

/// All ranks' contributions become one, in the program's buffers.
void combine(lockstep_work& work) {
  std::vector<std::size_t> parts;
  for (const auto buffer : work.adasums) parts.push_back(buffer.size());
  adasum(work.dtype, work.output, static_cast<std::size_t>(work.set->group.size()), parts);
  const std::byte* from = work.output.data();
  for (const auto buffer : work.adasums) {
    std::copy_n(from, buffer.size(), buffer.data());
    from += buffer.size();
  }
}

/// The results of a request are scaled once.
void finish(lockstep_work& work) {
  if (!work.adasums.empty()) combine(work);
  for (const auto& copy : work.copies) std::copy_n(copy.bytes.get(), copy.result.size(), copy.result.data());
  for (const auto buffer : work.scaled) scale(work.dtype, buffer, work.scale);
  work.is_over = true;
}

/// What has become of a work, the same each time. `look`: whether it is over, as the work itself says, which tells a failure once.
template <class Look>
int outcome(lockstep_work& work, const Look& look) {
  return guarded([&] {
    if (work.failure) throw Error(*work.failure);
    if (work.is_over) return static_cast<int>(LOCKSTEP_OK);
    try {
      if (!look()) return static_cast<int>(LOCKSTEP_PENDING);
    } catch (const Error& error) {
      work.failure = error;
      throw;
    }
    finish(work);
    return static_cast<int>(LOCKSTEP_OK);
  });
}

}  // namespace
}  // namespace lockstep::c

using namespace lockstep::c;  // NOLINT(google-build-using-namespace): the functions below are of no namespace

using lockstep::Group;

int lockstep_set_has_gpu(int set, int device) {
  return guarded([&] {
    const Group group = set_of(set)->group;
    std::string why;
    if (lockstep::can_call_on_gpu(group, device, &why)) return static_cast<int>(LOCKSTEP_OK);
    lockstep::say_through_main_memory(group, why);
    throw lockstep::Error(lockstep::ErrorCode::unsupported, why);
  });
}

int lockstep_gpu_can_reduce(int dtype, int reduce_op) {
  bool can = false;
  (void)guarded([&] {
    can = lockstep::can_reduce_on_gpu(dtype_of_number(dtype), op_of_number(reduce_op));
    return LOCKSTEP_OK;
  });
  return can ? 1 : 0;
}

int lockstep_test(lockstep_work* work) {
  return outcome(*work, [&] { return work->work.test(); });
}

int lockstep_wait(lockstep_work* work, int64_t milliseconds) {
  return outcome(*work, [&] {
    if (milliseconds >= 0) return work->work.wait_for(std::chrono::milliseconds(milliseconds));
    work->work.wait();
    return true;
  });
}

int lockstep_work_output(lockstep_work* work, void** data, size_t* bytes, const int64_t** rows,
                         int* row_count) {
  return guarded([&] {
    require(work->is_over, "the work is not over, or has failed: lockstep_wait() says LOCKSTEP_OK first");
    *data = work->output.data();
    *bytes = work->output.size();
    *rows = work->rows.data();
    *row_count = static_cast<int>(work->rows.size());
    return LOCKSTEP_OK;
  });
}

int lockstep_work_source(const lockstep_work* work) {
  return work->is_over && work->received.source != lockstep::any_source ? work->received.source : -1;
}

void lockstep_work_free(lockstep_work* work) { delete work; }

void lockstep_work_abandon(lockstep_work* work) {
  if (work != nullptr) work->work.abandon();
  delete work;
}

int lockstep_all_reduce(int set, const void* input, void* output, size_t elements, int dtype, int reduce_op,
                        lockstep_work** work) {
  return begin(set, work, [&](const Group& group) {
    const lockstep::Reduction reduction = reduction_of(dtype, reduce_op);
    const std::size_t bytes = bytes_of(elements, size_of(reduction.dtype), "elements");
    return lockstep::all_reduce_bytes(group, input_of(input, bytes), output_of(output, bytes), reduction);
  });
}

int lockstep_reduce(int set, const void* input, void* output, size_t elements, int dtype, int reduce_op,
                    int root, lockstep_work** work) {
  return begin(set, work, [&](const Group& group) {
    const lockstep::Reduction reduction = reduction_of(dtype, reduce_op);
    const std::size_t bytes = bytes_of(elements, size_of(reduction.dtype), "elements");
    const bool is_root = group.rank() == root;
    return lockstep::reduce_bytes(group, input_of(input, bytes),
                                  is_root ? output_of(output, bytes) : std::span<std::byte>(), root,
                                  reduction);
  });
}

int lockstep_reduce_scatter(int set, const void* input, void* output, size_t elements, int dtype,
                            int reduce_op, lockstep_work** work) {
  return begin(set, work, [&](const Group& group) {
    const lockstep::Reduction reduction = reduction_of(dtype, reduce_op);
    const std::size_t bytes = bytes_of(elements, size_of(reduction.dtype), "elements");
    return lockstep::reduce_scatter_bytes(group, input_of(input, bytes_of_blocks(group, bytes)),
                                          output_of(output, bytes), reduction);
  });
}

int lockstep_broadcast(int set, void* buffer, size_t bytes, int root, lockstep_work** work) {
  return begin(set, work, [&](const Group& group) {
    return lockstep::broadcast_bytes(group, output_of(buffer, bytes), root, place_of_calls());
  });
}

int lockstep_all_gather(int set, const void* input, void* output, size_t bytes, lockstep_work** work) {
  return begin(set, work, [&](const Group& group) {
    return lockstep::all_gather_bytes(group, input_of(input, bytes),
                                      output_of(output, bytes_of_blocks(group, bytes)), 1, {},
                                      place_of_calls());
  });
}

int lockstep_gather(int set, const void* input, void* output, size_t bytes, int root, lockstep_work** work) {
  return begin(set, work, [&](const Group& group) {
    const std::size_t all = group.rank() == root ? bytes_of_blocks(group, bytes) : 0;
    return lockstep::gather_bytes(group, input_of(input, bytes), output_of(output, all), root, 1, {},
                                  place_of_calls());
  });
}

int lockstep_scatter(int set, const void* input, void* output, size_t bytes, int root, lockstep_work** work) {
  return begin(set, work, [&](const Group& group) {
    const std::size_t all = group.rank() == root ? bytes_of_blocks(group, bytes) : 0;
    return lockstep::scatter_bytes(group, input_of(input, all), output_of(output, bytes), root, 1, {},
                                   place_of_calls());
  });
}

int lockstep_all_to_all(int set, const void* input, void* output, size_t bytes, lockstep_work** work) {
  return begin(set, work, [&](const Group& group) {
    const std::size_t all = bytes_of_blocks(group, bytes);
    return lockstep::all_to_all_bytes(group, input_of(input, all), output_of(output, all), 1,
                                      place_of_calls());
  });
}

int lockstep_all_to_all_v(int set, const void* input, const size_t* sent, void* output,
                          const size_t* received, lockstep_work** work) {
  return begin(set, work, [&](const Group& group) {
    require(sent != nullptr && received != nullptr, "the sizes of the blocks are NULL");
    const auto ranks = static_cast<std::size_t>(group.size());
    const std::span<const std::size_t> to(sent, ranks), from(received, ranks);
    return lockstep::all_to_all_v_bytes(group, input_of(input, sum_of_sizes(to)), to,
                                        output_of(output, sum_of_sizes(from)), from, 1, place_of_calls());
  });
}

int lockstep_barrier(int set, lockstep_work** work) {
  return begin(set, work, [&](const Group& group) { return lockstep::barrier(group, place_of_calls()); });
}

int lockstep_send(int set, const void* buffer, size_t bytes, int destination, int tag, lockstep_work** work) {
  return begin(set, work, [&](const Group& group) {
    return lockstep::send_bytes(group, input_of(buffer, bytes), destination, tag, place_of_calls());
  });
}

int lockstep_recv(int set, void* buffer, size_t bytes, int source, int tag, lockstep_work** work) {
  return begin(set, work, [&](const Group& group, lockstep_work& made) {
    return lockstep::recv_bytes(group, output_of(buffer, bytes), source < 0 ? lockstep::any_source : source,
                                tag, &made.received, place_of_calls());
  });
}

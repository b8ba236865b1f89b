// The C interface: arguments into C++, errors into numbers. What is not a call of the core's is how integers are scaled, as Horovod
// has it.
#include "c/lockstep_c.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "c/scale.h"
#include "lockstep/base/error.h"
#include "lockstep/engine.h"
#include "lockstep/group/impl.h"
#include "lockstep/kernel/form.h"
#include "lockstep/lockstep.h"

using lockstep::Dtype;
using lockstep::Group;
using lockstep::NamedBuffers;
using lockstep::NamedCollectives;
using lockstep::NamedRequest;
using lockstep::Work;

/// A set of ranks. What is found by name has a group of its own, which is made when all ranks of the set are there.
struct Set {
  explicit Set(Group of) : group(std::move(of)), named(group) {}
  Group group;
  NamedCollectives named;
};

struct lockstep_work {
  std::shared_ptr<Set> set;
  bool is_over = false;
  std::optional<lockstep::Error> failure = {};  ///< which is told as often as asked
  // Of a request: what it has made, and what is to be done with it when it is over.
  std::unique_ptr<std::byte[]> output = {};
  std::size_t output_bytes = 0;
  std::vector<std::int64_t> rows = {};
  std::vector<std::span<std::byte>> scaled = {};
  /// Where a pass of our own scales contributions: copies, and what in-place results are copied to.
  struct Copy {
    std::unique_ptr<std::byte[]> bytes;
    std::span<std::byte> result;
  };
  std::vector<Copy> copies = {};
  Dtype dtype = Dtype::u8;
  double scale = 1;
  Work work = {};  ///< the last one: its end waits for what is written to the others
};

struct lockstep_request {
  std::shared_ptr<Set> set;
  NamedRequest request;
  double prescale = 1, postscale = 1;  ///< by passes of their own
  std::size_t row_bytes = 1;           ///< of results
};

struct lockstep_range {
  lockstep::TracedRange range;
};

namespace lockstep::c {
namespace {

struct LastError {
  std::string text;
  int rank = -1;
};
thread_local LastError last_error;

int fail(int status, std::string text, int rank = -1) {
  last_error = {std::move(text), rank};
  return status;
}

/// What a function of this interface does: errors become numbers.
template <class Function>
int guarded(const Function& function) noexcept try {
  try {
    return function();
  } catch (const Error& error) {
    return fail(static_cast<int>(error.code()) + 1, error.what(), error.peer().value_or(-1));
  } catch (const std::bad_alloc&) {
    return fail(LOCKSTEP_OTHER, "no memory");
  } catch (const std::exception& error) {
    return fail(LOCKSTEP_OTHER, error.what());
  }
} catch (...) {  // no memory for the text
  return LOCKSTEP_OTHER;
}

/// The sets of this process. Never destroyed: threads may wait in calls while a program ends.
struct Sets {
  std::mutex mutex;
  std::map<int, std::shared_ptr<Set>> all;
  int next = LOCKSTEP_WORLD + 1;
  std::map<void*, lockstep::ArenaBlock> blocks;

  static Sets& of_process() {
    static auto& sets = *new Sets();
    return sets;
  }
};

std::shared_ptr<Set> set_of(int number) {
  Sets& sets = Sets::of_process();
  const std::lock_guard lock(sets.mutex);
  const auto found = sets.all.find(number);
  if (found != sets.all.end()) return found->second;
  throw_invalid_argument(
      sets.all.empty()
          ? std::string("there is no world: lockstep_init() was not called, or lockstep_shutdown() was")
          : "there is no set " + std::to_string(number));
}

void require(bool holds, const std::string& what) {
  if (!holds) throw_invalid_argument(what);
}

Dtype dtype_of_number(int number) {
  require(number >= 0 && size_of(static_cast<Dtype>(number)) > 0,
          "dtype " + std::to_string(number) + " is none");
  return static_cast<Dtype>(number);
}

ReduceOp op_of_number(int number) {
  require(number >= 0 && number < static_cast<int>(ReduceOp::custom),
          "reduce_op " + std::to_string(number) + " is none");
  return static_cast<ReduceOp>(number);
}

std::span<const std::byte> input_of(const void* data, std::size_t bytes) {
  require(data != nullptr || bytes == 0, "a buffer of " + std::to_string(bytes) + " bytes is NULL");
  return {static_cast<const std::byte*>(data), bytes};
}
std::span<std::byte> output_of(void* data, std::size_t bytes) {
  const auto checked = input_of(data, bytes);
  return {static_cast<std::byte*>(data), checked.size()};
}

std::size_t bytes_of(std::size_t elements, std::size_t each, const char* what) {
  std::size_t bytes = 0;
  require(!__builtin_mul_overflow(elements, each, &bytes),
          std::to_string(elements) + " " + what + " are more than there can be");
  return bytes;
}

/// A block of so many bytes for each rank.
std::size_t bytes_of_blocks(const Group& group, std::size_t bytes) {
  return bytes_of(bytes, static_cast<std::size_t>(group.size()), "blocks");
}

/// REQUIRES: none is negative.
std::size_t sum_of(std::span<const std::int64_t> rows) {
  std::size_t sum = 0;
  for (const std::int64_t each : rows) sum += static_cast<std::size_t>(each);
  return sum;
}

/// Begins a call in the order of calls.
template <class Call>
int begin(int set, lockstep_work** work, const Call& call) {
  return guarded([&] {
    require(work != nullptr, "there is no place for the work: the last argument is NULL");
    auto of = set_of(set);
    auto made = std::make_unique<lockstep_work>();
    made->work = call(of->group);
    made->set = std::move(of);
    *work = made.release();
    return LOCKSTEP_OK;
  });
}

/// The results of a request are scaled once.
void finish(lockstep_work& work) {
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

/// Among those of all hosts that are as manieth on theirs, in the order of hosts: this rank's number, and how many they are.
std::pair<int, int> cross_place(const Members& members) {
  std::map<int, int> seen;  // ranks of a host so far
  std::vector<int> local;
  for (const int host : members.hosts()) local.push_back(seen[host]++);
  const auto mine = local.begin() + members.rank();
  return {static_cast<int>(std::count(local.begin(), mine, *mine)),
          static_cast<int>(std::count(local.begin(), local.end(), *mine))};
}

/// How many ranks of the set each of its hosts has.
std::vector<int> ranks_of_hosts(const Members& members) {
  std::map<int, int> counts;
  for (const int host : members.hosts()) ++counts[host];
  std::vector<int> all;
  for (const auto& [host, count] : counts) all.push_back(count);
  return all;
}

Operation operation_of(int number) {
  switch (number) {
    case LOCKSTEP_NAMED_ALL_REDUCE: return Operation::all_reduce;
    case LOCKSTEP_NAMED_BROADCAST: return Operation::broadcast;
    case LOCKSTEP_NAMED_ALL_GATHER: return Operation::all_gather;
    case LOCKSTEP_NAMED_ALL_TO_ALL: return Operation::all_to_all;
    case LOCKSTEP_NAMED_REDUCE_SCATTER: return Operation::reduce_scatter;
    case LOCKSTEP_NAMED_BARRIER: return Operation::barrier;
    default: throw_invalid_argument("operation " + std::to_string(number) + " is none");
  }
}

bool combines(Operation operation) {
  return operation == Operation::all_reduce || operation == Operation::reduce_scatter;
}

/// Who scales: the engine, on the way, where that is as exact; else passes of our own.
void share_scales(lockstep_request& made) {
  NamedRequest& request = made.request;
  const bool is_linear = request.reduce_op == ReduceOp::sum || request.reduce_op == ReduceOp::average;
  if (kernel::kind_of(request.dtype) == kernel::Kind::integer && request.reduce_op == ReduceOp::average) {
    request.reduce_op = ReduceOp::sum;
    made.postscale /= made.set->group.size();
  }
  if (!is_linear || !scales_in_f32(request.dtype)) return;
  request.prescale = static_cast<float>(made.prescale * made.postscale);
  made.prescale = made.postscale = 1;
}

}  // namespace
}  // namespace lockstep::c

using namespace lockstep::c;  // NOLINT(google-build-using-namespace): the functions below are of no namespace

int lockstep_c_version(void) { return LOCKSTEP_C_VERSION; }
const char* lockstep_last_error(void) { return last_error.text.c_str(); }
int lockstep_last_error_rank(void) { return last_error.rank; }

int lockstep_init(void) {
  return guarded([] {
    const Group world = lockstep::init();
    Sets& sets = Sets::of_process();
    const std::lock_guard lock(sets.mutex);
    const auto known = sets.all.find(LOCKSTEP_WORLD);
    if (known == sets.all.end() || known->second->group.shared_impl() != world.shared_impl())
      sets.all.insert_or_assign(LOCKSTEP_WORLD, std::make_shared<Set>(world));
    return LOCKSTEP_OK;
  });
}

int lockstep_shutdown(void) {
  return guarded([] {
    Sets& sets = Sets::of_process();
    std::map<int, std::shared_ptr<Set>> gone;
    {
      const std::lock_guard lock(sets.mutex);
      gone.swap(sets.all);
    }
    lockstep::shutdown();
    return LOCKSTEP_OK;
  });
}

int lockstep_is_initialized(void) {
  Sets& sets = Sets::of_process();
  const std::lock_guard lock(sets.mutex);
  return sets.all.empty() ? 0 : 1;
}

int lockstep_world_has_changed(void) { return lockstep::world_has_changed() ? 1 : 0; }

int lockstep_worlds(void) { return lockstep::worlds(); }

int lockstep_incarnation(void) {
  try {
    return lockstep::incarnation();
  } catch (...) {
    return 0;
  }
}

int lockstep_set_place(int set, lockstep_place* place) {
  return guarded([&] {
    require(place != nullptr, "there is no place for the answer: NULL");
    const auto of = set_of(set);
    const Group::Impl& impl = of->group.impl();
    const auto counts = ranks_of_hosts(impl.members);
    const auto [cross_rank, cross_size] = cross_place(impl.members);
    *place = {
        .rank = of->group.rank(),
        .size = of->group.size(),
        .local_rank = of->group.local_rank(),
        .local_size = of->group.local_size(),
        .cross_rank = cross_rank,
        .cross_size = cross_size,
        .is_homogeneous = std::ranges::all_of(counts, [&](int count) { return count == counts[0]; }) ? 1 : 0};
    return LOCKSTEP_OK;
  });
}

int lockstep_set_new(const int32_t* ranks, int count, int* set) {
  return guarded([&] {
    require(set != nullptr && (ranks != nullptr || count == 0),
            "the ranks, or the place for the set's number, are NULL");
    require(count > 0, "a set has 1 rank at least");
    const auto world = set_of(LOCKSTEP_WORLD);
    const std::vector<int> listed(ranks, ranks + count);
    auto made = std::make_shared<Set>(world->group.subgroup(listed));
    Sets& sets = Sets::of_process();
    const std::lock_guard lock(sets.mutex);
    *set = sets.next++;
    sets.all.emplace(*set, std::move(made));
    return LOCKSTEP_OK;
  });
}

int lockstep_set_free(int set) {
  return guarded([&] {
    require(set != LOCKSTEP_WORLD, "the world is left by lockstep_shutdown()");
    const auto of = set_of(set);
    Sets& sets = Sets::of_process();
    const std::lock_guard lock(sets.mutex);
    sets.all.erase(set);
    return LOCKSTEP_OK;
  });
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
    *data = work->output.get();
    *bytes = work->output_bytes;
    *rows = work->rows.data();
    *row_count = static_cast<int>(work->rows.size());
    return LOCKSTEP_OK;
  });
}

void lockstep_work_free(lockstep_work* work) { delete work; }

void lockstep_work_abandon(lockstep_work* work) {
  if (work != nullptr) work->work.abandon();
  delete work;
}

int lockstep_all_reduce(int set, const void* input, void* output, size_t elements, int dtype, int reduce_op,
                        lockstep_work** work) {
  return begin(set, work, [&](const Group& group) {
    const lockstep::Reduction reduction = {.dtype = dtype_of_number(dtype), .op = op_of_number(reduce_op)};
    const std::size_t bytes = bytes_of(elements, size_of(reduction.dtype), "elements");
    return lockstep::all_reduce_bytes(group, input_of(input, bytes), output_of(output, bytes), reduction);
  });
}

int lockstep_reduce(int set, const void* input, void* output, size_t elements, int dtype, int reduce_op,
                    int root, lockstep_work** work) {
  return begin(set, work, [&](const Group& group) {
    const lockstep::Reduction reduction = {.dtype = dtype_of_number(dtype), .op = op_of_number(reduce_op)};
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
    const lockstep::Reduction reduction = {.dtype = dtype_of_number(dtype), .op = op_of_number(reduce_op)};
    const std::size_t bytes = bytes_of(elements, size_of(reduction.dtype), "elements");
    return lockstep::reduce_scatter_bytes(group, input_of(input, bytes_of_blocks(group, bytes)),
                                          output_of(output, bytes), reduction);
  });
}

int lockstep_broadcast(int set, void* buffer, size_t bytes, int root, lockstep_work** work) {
  return begin(set, work, [&](const Group& group) {
    return lockstep::broadcast_bytes(group, output_of(buffer, bytes), root);
  });
}

int lockstep_all_gather(int set, const void* input, void* output, size_t bytes, lockstep_work** work) {
  return begin(set, work, [&](const Group& group) {
    return lockstep::all_gather_bytes(group, input_of(input, bytes),
                                      output_of(output, bytes_of_blocks(group, bytes)));
  });
}

int lockstep_gather(int set, const void* input, void* output, size_t bytes, int root, lockstep_work** work) {
  return begin(set, work, [&](const Group& group) {
    const std::size_t all = group.rank() == root ? bytes_of_blocks(group, bytes) : 0;
    return lockstep::gather_bytes(group, input_of(input, bytes), output_of(output, all), root);
  });
}

int lockstep_scatter(int set, const void* input, void* output, size_t bytes, int root, lockstep_work** work) {
  return begin(set, work, [&](const Group& group) {
    const std::size_t all = group.rank() == root ? bytes_of_blocks(group, bytes) : 0;
    return lockstep::scatter_bytes(group, input_of(input, all), output_of(output, bytes), root);
  });
}

int lockstep_all_to_all(int set, const void* input, void* output, size_t bytes, lockstep_work** work) {
  return begin(set, work, [&](const Group& group) {
    const std::size_t all = bytes_of_blocks(group, bytes);
    return lockstep::all_to_all_bytes(group, input_of(input, all), output_of(output, all));
  });
}

int lockstep_barrier(int set, lockstep_work** work) {
  return begin(set, work, [&](const Group& group) { return lockstep::barrier(group); });
}

int lockstep_send(int set, const void* buffer, size_t bytes, int destination, int tag, lockstep_work** work) {
  return begin(set, work, [&](const Group& group) {
    return lockstep::send_bytes(group, input_of(buffer, bytes), destination, tag);
  });
}

int lockstep_recv(int set, void* buffer, size_t bytes, int source, int tag, lockstep_work** work) {
  return begin(set, work, [&](const Group& group) {
    return lockstep::recv_bytes(group, output_of(buffer, bytes), source < 0 ? lockstep::any_source : source,
                                tag);
  });
}

int lockstep_request_new(int set, const char* name, int operation, int dtype, int reduce_op, int root,
                         double prescale, double postscale, int buffers, const int32_t* dimensions,
                         const int64_t* shapes, lockstep_request** request) {
  return guarded([&] {
    require(name != nullptr && request != nullptr, "the name, or the place for the request, is NULL");
    require(buffers >= 0 && static_cast<std::size_t>(buffers) <= lockstep::named_limits.buffers,
            std::to_string(buffers) + " buffers are none, or too many");
    auto made = std::make_unique<lockstep_request>();
    made->set = set_of(set);
    made->prescale = prescale;
    made->postscale = postscale;
    NamedRequest& named = made->request;
    named = {.name = name, .operation = operation_of(operation), .root = root};
    if (named.operation != lockstep::Operation::barrier) {
      require(buffers == 1 || (buffers > 1 && named.operation == lockstep::Operation::all_reduce),
              std::string(to_string(named.operation)) + " has one buffer");
      require(dimensions != nullptr, "the dimensions are NULL");
      named.dtype = dtype_of_number(dtype);
      for (int i = 0; i < buffers; ++i) {
        const auto count = static_cast<std::size_t>(std::max(dimensions[i], 0));
        require(dimensions[i] >= 0 && count <= lockstep::named_limits.dimensions &&
                    (shapes != nullptr || count == 0),
                std::to_string(dimensions[i]) + " dimensions are too many, or the shapes are NULL");
        named.shapes.emplace_back(shapes, shapes + count);
        shapes += count;
      }
    }
    if (combines(named.operation)) {
      named.reduce_op = op_of_number(reduce_op);
      share_scales(*made);
    }
    lockstep::require_sound(named);
    if (buffers == 1) {
      lockstep::Shape row = named.shapes[0];
      if (named.operation == lockstep::Operation::reduce_scatter && !row.empty()) row.erase(row.begin());
      made->row_bytes = lockstep::elements_of(row) * size_of(named.dtype);
    }
    *request = made.release();
    return LOCKSTEP_OK;
  });
}

void lockstep_request_free(lockstep_request* request) { delete request; }

int lockstep_submit(lockstep_request* request, void* const* buffers, const int64_t* rows,
                    lockstep_work** work) {
  return guarded([&] {
    require(request != nullptr && work != nullptr, "the request, or the place for the work, is NULL");
    using enum lockstep::Operation;
    auto made = std::make_unique<lockstep_work>();
    lockstep_work& its = *made;
    its.set = request->set;
    its.dtype = request->request.dtype;
    its.scale = request->postscale;
    NamedRequest named = request->request;
    NamedBuffers all;
    const bool is_in_place = named.operation == all_reduce || named.operation == broadcast;
    for (std::size_t i = 0; i < named.shapes.size(); ++i) {
      std::size_t elements = lockstep::elements_of(named.shapes[i]);
      if (named.operation == all_gather || named.operation == all_to_all) {
        require(rows != nullptr, "the numbers of rows are NULL");
        const std::size_t count =
            named.operation == all_gather ? 1 : static_cast<std::size_t>(its.set->group.size());
        named.rows.assign(rows, rows + count);
        for (const std::int64_t each : named.rows)
          require(each >= 0, std::to_string(each) + " rows are none");
        elements = bytes_of(elements, sum_of(named.rows), "rows");
      }
      auto buffer = output_of(buffers[i], bytes_of(elements, lockstep::size_of(named.dtype), "elements"));
      if (named.operation == all_reduce && its.scale != 1) its.scaled.push_back(buffer);
      if (request->prescale != 1 && combines(named.operation)) {
        // A copy: what is refused has changed nothing.
        its.copies.push_back(
            {std::unique_ptr<std::byte[]>(new std::byte[std::max<std::size_t>(buffer.size(), 1)]),
             is_in_place ? buffer : std::span<std::byte>()});
        std::ranges::copy(buffer, its.copies.back().bytes.get());
        buffer = {its.copies.back().bytes.get(), buffer.size()};
        scale(named.dtype, buffer, request->prescale);
      }
      if (is_in_place) {
        all.in_place.push_back(buffer);
      } else {
        all.input = buffer;
      }
    }
    if (!is_in_place && named.operation != barrier) {
      all.make_output = [&its, row_bytes = request->row_bytes](std::span<const std::int64_t> made_rows) {
        its.rows.assign(made_rows.begin(), made_rows.end());
        its.output_bytes = sum_of(made_rows) * row_bytes;
        its.output.reset(new std::byte[std::max<std::size_t>(its.output_bytes, 1)]);
        const std::span<std::byte> output(its.output.get(), its.output_bytes);
        if (its.scale != 1) its.scaled.push_back(output);
        return output;
      };
    }
    its.work = its.set->named.submit(std::move(named), std::move(all));
    *work = made.release();
    return LOCKSTEP_OK;
  });
}

int lockstep_join(int set, int* last) {
  return guarded([&] {
    const auto of = set_of(set);
    *last = of->named.join();
    return LOCKSTEP_OK;
  });
}

int lockstep_allocate(int set, size_t bytes, void** data) {
  return guarded([&] {
    require(data != nullptr, "there is no place for the address: NULL");
    auto block = set_of(set)->group.allocate_bytes(bytes);
    *data = block.bytes().data();
    Sets& sets = Sets::of_process();
    const std::lock_guard lock(sets.mutex);
    sets.blocks.emplace(*data, std::move(block));
    return LOCKSTEP_OK;
  });
}

void lockstep_allocate_free(void* data) {
  Sets& sets = Sets::of_process();
  const std::lock_guard lock(sets.mutex);
  sets.blocks.erase(data);
}

lockstep_range* lockstep_range_new(const char* name) {
  return new (std::nothrow) lockstep_range{lockstep::TracedRange(name)};
}
void lockstep_range_free(lockstep_range* range) { delete range; }

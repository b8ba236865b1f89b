// What the functions of the C interface share: what its handles are, how arguments become C++'s and errors become numbers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "c/lockstep_c.h"
#include "lockstep/base/error.h"
#include "lockstep/engine.h"
#include "lockstep/lockstep.h"

/// A set of ranks. What is found by name has a group of its own, which is made when all ranks of the set are there.
struct Set {
  explicit Set(lockstep::Group of) : group(std::move(of)), named(group) {}
  lockstep::Group group;
  lockstep::NamedCollectives named;
};

struct lockstep_work {
  std::shared_ptr<Set> set;
  bool is_over = false;
  std::optional<lockstep::Error> failure = {};  ///< which is told as often as asked
  // Of a request: what it has made, and what is to be done with it when it is over.
  std::unique_ptr<std::byte[]> own_output = {};
  std::span<std::byte> output = {};  ///< that, or memory of the program's
  std::vector<std::int64_t> rows = {};
  std::vector<std::span<std::byte>> scaled = {};
  /// Where a pass of our own scales contributions: copies, and what in-place results are copied to.
  struct Copy {
    std::unique_ptr<std::byte[]> bytes;
    std::span<std::byte> result;
  };
  std::vector<Copy> copies = {};
  std::vector<std::span<std::byte>> adasums = {};  ///< of which `output` has all ranks' contributions
  lockstep::Dtype dtype = lockstep::Dtype::u8;
  double scale = 1;
  lockstep::Received received = {};  ///< of a receive
  lockstep::Work work = {};          ///< the last one: its end waits for what is written to the others
};

struct lockstep_request {
  std::shared_ptr<Set> set;
  lockstep::NamedRequest request;
  double prescale = 1, postscale = 1;  ///< by passes of their own
  std::size_t row_bytes = 1;           ///< of results
  std::vector<std::size_t> adasums =
      {};  ///< the elements of each buffer, of an Adasum; the request gathers them
};

struct lockstep_range {
  lockstep::TracedRange range;
};

namespace lockstep::c {

/// What lockstep_last_error() says in this thread; returns `status`.
int fail(int status, std::string text, int rank = -1);

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
  std::map<void*, lockstep::RegisteredMemory> registered;
  bool was_told = false;                                       ///< the world is that of lockstep_init_at()
  std::shared_ptr<lockstep::TimelineRecording> timeline = {};  ///< of the world that is there

  bool world_was_told() {
    const std::lock_guard lock(mutex);
    return was_told && !all.empty();
  }
  void enter(const Group& world, bool told) {
    const std::lock_guard lock(mutex);
    const auto known = all.find(LOCKSTEP_WORLD);
    if (known == all.end() || known->second->group.shared_impl() != world.shared_impl())
      all.insert_or_assign(LOCKSTEP_WORLD, std::make_shared<Set>(world));
    was_told = told;
  }

  static Sets& of_process() {
    static auto& sets = *new Sets();
    return sets;
  }
};

/// The set of this number. Throws Error{invalid_argument}.
std::shared_ptr<Set> set_of(int number);

/// Throws Error{invalid_argument} unless it holds.
void require(bool holds, const std::string& what);

/// What lockstep_use_gpu() has said in this thread.
MemoryPlace place_of_calls();

// Numbers and addresses of C as C++ has them. Throw Error{invalid_argument} for such as are none.
Dtype dtype_of_number(int number);
ReduceOp op_of_number(int number);
std::span<const std::byte> input_of(const void* data, std::size_t bytes);
std::span<std::byte> output_of(void* data, std::size_t bytes);
/// `elements`, which are called `what`, of `each` bytes.
std::size_t bytes_of(std::size_t elements, std::size_t each, const char* what);

}  // namespace lockstep::c

#include "c/handles.h"

namespace lockstep::c {
namespace {

struct LastError {
  std::string text;
  int rank = -1;
};
thread_local LastError last_error;
thread_local MemoryPlace place;

}  // namespace

int fail(int status, std::string text, int rank) {
  last_error = {std::move(text), rank};
  return status;
}

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

MemoryPlace place_of_calls() { return place; }

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

}  // namespace lockstep::c

using lockstep::c::last_error, lockstep::c::place;

int lockstep_c_version(void) { return LOCKSTEP_C_VERSION; }
const char* lockstep_last_error(void) { return last_error.text.c_str(); }
int lockstep_last_error_rank(void) { return last_error.rank; }

void lockstep_use_gpu(int device, void* stream) { place = {.device = device, .stream = stream}; }

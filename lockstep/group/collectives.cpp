#include "lockstep/group/collectives.h"

#include <cstring>

#include "lockstep/base/error.h"
#include "lockstep/group/impl.h"
#include "lockstep/kernel/reduce.h"

namespace lockstep {
namespace {

void require_rank(const Group& group, int rank, const char* what) {
  if (rank >= 0 && rank < group.size()) return;
  throw_invalid_argument(std::string(what) + " " + std::to_string(rank) + " is not in group \"" +
                         group.name() + "\", whose ranks are 0 to " + std::to_string(group.size() - 1));
}

void require_memory(const void* pointer, std::size_t bytes, const char* what) {
  if (pointer == nullptr && bytes > 0) {
    throw_invalid_argument(std::string(what) + ": the buffer is null but has " + std::to_string(bytes) +
                           " bytes");
  }
}

Work submit(const Group& group, const Request& request) {
  return Work(group.impl().backend->submit(request));
}

}  // namespace

Work all_reduce_bytes(const Group& group, std::span<std::byte> buffer, Dtype dtype, ReduceOp op) {
  const std::size_t element_bytes = size_of(dtype);
  if (!supports(dtype, op)) {
    throw_invalid_argument("all_reduce: " + std::string(to_string(op)) + " is not defined for " +
                           std::string(to_string(dtype)));
  }
  require_memory(buffer.data(), buffer.size(), "all_reduce");
  if (buffer.size() % element_bytes != 0 ||
      reinterpret_cast<std::uintptr_t>(buffer.data()) % alignment_of(dtype) != 0) {
    throw_invalid_argument("all_reduce: a buffer of " + std::to_string(buffer.size()) +
                           " bytes at this address is not "
                           "an array of " +
                           std::string(to_string(dtype)) + "; its size must be a multiple of " +
                           std::to_string(element_bytes) + ", its address of " +
                           std::to_string(alignment_of(dtype)));
  }
  if (group.size() == 1) return {};
  return submit(group, {.signature = {.elements = buffer.size() / element_bytes,
                                      .operation = Operation::all_reduce,
                                      .dtype = dtype,
                                      .reduce_op = op},
                        .output = buffer.data(),
                        .output_bytes = buffer.size()});
}

Work broadcast_bytes(const Group& group, std::span<std::byte> buffer, int root) {
  require_rank(group, root, "broadcast: root");
  require_memory(buffer.data(), buffer.size(), "broadcast");
  if (group.size() == 1) return {};
  return submit(group,
                {.signature = {.elements = buffer.size(), .root = root, .operation = Operation::broadcast},
                 .output = buffer.data(),
                 .output_bytes = buffer.size()});
}

Work all_gather_bytes(const Group& group, std::span<const std::byte> input, std::span<std::byte> output) {
  require_memory(input.data(), input.size(), "all_gather: input");
  require_memory(output.data(), output.size(), "all_gather: output");
  if (output.size() != input.size() * static_cast<std::size_t>(group.size())) {
    throw_invalid_argument("all_gather: an input of " + std::to_string(input.size()) +
                           " bytes from each of " + std::to_string(group.size()) +
                           " ranks needs an output of " +
                           std::to_string(input.size() * static_cast<std::size_t>(group.size())) +
                           " bytes, not " + std::to_string(output.size()));
  }
  const std::byte* own_part = output.data() + static_cast<std::size_t>(group.rank()) * input.size();
  const bool overlap =
      input.data() < output.data() + output.size() && output.data() < input.data() + input.size();
  if (overlap && input.data() != own_part) {
    throw_invalid_argument(
        "all_gather: input and output overlap; they may only where the input is this rank's own part");
  }
  if (group.size() == 1) {
    if (input.data() != output.data() && !input.empty())
      std::memcpy(output.data(), input.data(), input.size());
    return {};
  }
  return submit(group, {.signature = {.elements = input.size(), .operation = Operation::all_gather},
                        .input = input.data(),
                        .output = output.data(),
                        .output_bytes = output.size()});
}

Work barrier(const Group& group) {
  if (group.size() == 1) return {};
  return submit(group, {.signature = {.operation = Operation::barrier}});
}

Work send_bytes(const Group& group, std::span<const std::byte> buffer, int destination) {
  require_rank(group, destination, "send: destination");
  require_memory(buffer.data(), buffer.size(), "send");
  if (destination == group.rank()) throw_invalid_argument("send: a rank cannot send to itself");
  return submit(group,
                {.signature = {.elements = buffer.size(), .root = group.rank(), .operation = Operation::send},
                 .input = buffer.data(),
                 .peer = destination});
}

Work recv_bytes(const Group& group, std::span<std::byte> buffer, int source) {
  require_rank(group, source, "recv: source");
  require_memory(buffer.data(), buffer.size(), "recv");
  if (source == group.rank()) throw_invalid_argument("recv: a rank cannot receive from itself");
  return submit(group,
                {.signature = {.elements = buffer.size(), .root = source, .operation = Operation::receive},
                 .output = buffer.data(),
                 .output_bytes = buffer.size(),
                 .peer = source});
}

}  // namespace lockstep

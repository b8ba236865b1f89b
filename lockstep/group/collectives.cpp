#include "lockstep/group/collectives.h"

#include <array>
#include <cstring>
#include <numeric>

#include "lockstep/base/error.h"
#include "lockstep/base/hash.h"
#include "lockstep/base/overlap.h"
#include "lockstep/group/gpu_calls.h"
#include "lockstep/group/impl.h"
#include "lockstep/group/in_process.h"
#include "lockstep/kernel/reduce.h"
#include "lockstep/schedule/call.h"

namespace lockstep {
namespace {

void require_rank(const Group& group, int rank, const std::string& what) {
  if (rank >= 0 && rank < group.size()) return;
  throw_invalid_argument(what + " " + std::to_string(rank) + " is not in group \"" + group.name() +
                         "\", whose ranks are 0 to " + std::to_string(group.size() - 1));
}

void require_memory(std::span<const std::byte> bytes, const std::string& what) {
  if (bytes.data() == nullptr && !bytes.empty()) {
    throw_invalid_argument(what + ": the buffer is null but has " + std::to_string(bytes.size()) + " bytes");
  }
}

/// Makes a request of what was passed, once it was checked, and hands that on: from here on it is the one
/// description of the call.
class Checked {
 public:
  Checked(const Group& group, Operation operation, bool has_counts = false)
      : group_(group), has_counts_(has_counts) {
    request_.call.operation = operation;
    request_.call.rank = group.rank();
    request_.call.ranks = group.size();
    request_.signature.operation = operation;
  }

  Checked& at(const MemoryPlace& place) {
    request_.place = place;
    return *this;
  }

  Checked& root(int rank) {
    if (rank < 0 || rank >= request_.call.ranks) require_rank(group_, rank, name() + ": root");
    request_.call.root = request_.signature.root = rank;
    return *this;
  }

  Checked& combining(const Reduction& reduction) {
    at(reduction.place);
    request_.signature.reduce_op = reduction.op;
    request_.signature.prescale = reduction.prescale;
    request_.signature.detail = reduction.grouping;
    if (reduction.op == ReduceOp::custom) {
      if (!reduction.custom) throw_invalid_argument(name() + ": a custom operation without a function");
      request_.custom = reduction.custom;
      request_.call.keeps_order = true;
      request_.signature.detail ^= reduction.custom->fingerprint();
      elements_of(reduction.custom->element_bytes());
    } else {
      if (!kernel::supports(reduction.dtype, reduction.op)) {
        throw_invalid_argument(name() + ": " + std::string(to_string(reduction.op)) + " is not defined for " +
                               std::string(to_string(reduction.dtype)));
      }
      request_.signature.dtype = reduction.dtype;
      elements_of(size_of(reduction.dtype));
      alignment_ = alignment_of(reduction.dtype);
    }
    // What has an average can be scaled.
    const bool scales = reduction.op == ReduceOp::sum || reduction.op == ReduceOp::average;
    if (reduction.prescale != 1.0F && !(scales && kernel::supports(reduction.dtype, ReduceOp::average))) {
      throw_invalid_argument(name() +
                             ": prescale is for sum and average of floating-point and complex types, "
                             "not for " +
                             std::string(to_string(reduction.op)) + " of " + type());
    }
    return *this;
  }

  Checked& elements_of(std::size_t bytes) {
    request_.element_bytes = bytes;
    return *this;
  }

  /// The v forms.
  Checked& blocks(std::span<const std::size_t> counts) {
    if (counts.empty()) return *this;
    require_counts(counts, "counts");
    request_.call.counts = agreed(counts);
    if (!reduces(request_.call.operation)) elements_of(1);
    const std::string text(reinterpret_cast<const char*>(request_.call.counts.data()),
                           request_.call.counts.size() * sizeof(std::size_t));
    request_.signature.detail = (request_.signature.detail ^ fnv1a_32(text)) | 1U;
    return *this;
  }

  Checked& blocks(std::span<const std::size_t> sent, std::span<const std::size_t> received) {
    require_counts(sent, "sent_counts");
    require_counts(received, "received_counts");
    const auto self = static_cast<std::size_t>(group_.rank());
    if (sent[self] != received[self]) {
      throw_invalid_argument(name() + ": this rank sends " + std::to_string(sent[self]) +
                             " to itself, and receives " + std::to_string(received[self]) + " of it");
    }
    request_.call.counts = agreed(sent);
    request_.call.receive_counts = agreed(received);
    elements_of(1);
    request_.signature.detail = 1;
    return *this;
  }

  /// Elements of the buffer or of one block, on every rank.
  Checked& elements(std::size_t count) {
    request_.call.elements = count;
    return *this;
  }

  /// What has been said, of these buffers.
  const Request& request(std::span<const std::byte> input, std::span<std::byte> output) {
    const std::size_t in = schedule::input_elements(request_.call);
    const std::size_t out = schedule::output_elements(request_.call);
    // A rank that has no such buffer may pass anything.
    request_.input = in == 0 ? std::span<const std::byte>() : require(input, in, "input");
    if (out > 0) {
      static_cast<void>(require(output, out, "output"));
      request_.output = output;
    }
    if (in == 0) require_empty(input, "input");
    if (out == 0) require_empty(output, "output");
    find_overlap();
    request_.signature.elements =
        request_.call.counts.empty() || request_.call.operation == Operation::all_to_all
            ? request_.call.elements
            : std::accumulate(request_.call.counts.begin(), request_.call.counts.end(), std::size_t{0});
    return request_;
  }

  Work submit(std::span<const std::byte> input, std::span<std::byte> output) {
    static_cast<void>(request(input, output));
    if (request_.place.is_on_gpu()) return submit_on_gpu(group_.impl(), std::span(&request_, 1));
    if (group_.size() == 1) return alone();
    return Work(group_.impl().backend->submit(request_));
  }

  std::size_t element_bytes() const { return request_.element_bytes; }
  /// How many elements a buffer has that must be whole ones.
  std::size_t count_of(std::span<const std::byte> buffer, const char* what) const {
    if (buffer.size() % request_.element_bytes != 0) throw_no_array(buffer, what);
    return buffer.size() / request_.element_bytes;
  }

 private:
  /// As in messages. Only made for them: small calls are short.
  std::string name() const { return name_of_call(request_.call.operation, has_counts_); }

  std::string type() const {
    const bool is_known =
        reduces(request_.call.operation) && request_.signature.reduce_op != ReduceOp::custom;
    return std::string(is_known ? to_string(request_.signature.dtype) : "elements");
  }

  [[noreturn]] void throw_no_array(std::span<const std::byte> buffer, const char* what) const {
    throw_invalid_argument(name() + ": " + what + " of " + std::to_string(buffer.size()) +
                           " bytes at this address is not an array of " + type() +
                           "; its size must be a multiple of " + std::to_string(request_.element_bytes) +
                           ", its address of " + std::to_string(alignment_));
  }

  /// What only moves data moves bytes, so that ranks have to agree in the size of elements, too.
  std::vector<std::size_t> agreed(std::span<const std::size_t> counts) const {
    std::vector<std::size_t> list(counts.begin(), counts.end());
    if (reduces(request_.call.operation)) return list;
    for (std::size_t& count : list) count *= request_.element_bytes;
    return list;
  }

  void require_counts(std::span<const std::size_t> counts, const char* what) const {
    if (counts.size() != static_cast<std::size_t>(group_.size())) {
      throw_invalid_argument(name() + ": " + what + " has " + std::to_string(counts.size()) +
                             " numbers; the group has " + std::to_string(group_.size()) + " ranks");
    }
    std::size_t sum = 0;
    for (const std::size_t count : counts) {
      if (count > SIZE_MAX / request_.element_bytes - sum) {
        throw_invalid_argument(name() + ": " + what + " add up to more than there can be");
      }
      sum += count;
    }
  }

  std::span<const std::byte> require(std::span<const std::byte> buffer, std::size_t wanted,
                                     const char* what) const {
    if (buffer.data() == nullptr && !buffer.empty()) require_memory(buffer, name() + ": " + what);
    if ((reinterpret_cast<std::uintptr_t>(buffer.data()) & (alignment_ - 1)) != 0)
      throw_no_array(buffer, what);
    if (buffer.size() == wanted * request_.element_bytes) return buffer;
    throw_invalid_argument(name() + ": " + what + " has " + std::to_string(buffer.size()) +
                           " bytes, but rank " + std::to_string(request_.call.rank) + " of " +
                           std::to_string(request_.call.ranks) + " needs " +
                           std::to_string(wanted * request_.element_bytes) + layout());
  }

  std::string layout() const {
    if (!request_.call.counts.empty()) return " (see its counts)";
    const bool has_blocks =
        request_.call.operation != Operation::all_reduce && request_.call.operation != Operation::reduce;
    return has_blocks
               ? " (" + std::to_string(request_.call.elements * request_.element_bytes) + " for each block)"
               : " (as many as the input)";
  }

  void require_empty(std::span<const std::byte> buffer, const char* what) const {
    // The root of an operation without elements has empty buffers, too.
    const bool is_ignored = has_root(request_.call.operation) && request_.call.rank != request_.call.root;
    if (buffer.empty() || is_ignored) return;
    throw_invalid_argument(name() + ": " + what + " has " + std::to_string(buffer.size()) +
                           " bytes, but should be empty");
  }

  void find_overlap() {
    if (!base::overlap(request_.input, request_.output)) return;
    const std::size_t offset = schedule::in_place_offset(request_.call) * request_.element_bytes;
    const bool input_is_larger = request_.input.size() > request_.output.size();
    const std::byte* larger = input_is_larger ? request_.input.data() : request_.output.data();
    const std::byte* smaller = input_is_larger ? request_.output.data() : request_.input.data();
    // What arrives in place takes the room of what was sent there.
    const bool fits = request_.call.operation != Operation::all_to_all ||
                      request_.call.counts == request_.call.receive_counts;
    if (smaller != larger + offset || !fits) {
      throw_invalid_argument(name() + ": input and output overlap; they may only where " +
                             (offset == 0 && request_.input.size() == request_.output.size()
                                  ? "they are the same buffer"
                                  : "one of them is this rank's own block of the other"));
    }
    request_.signature.flags |= Signature::is_in_place;
    request_.call.in_place = true;
  }

  /// In a group of one.
  Work alone() const {
    const bool scales = request_.signature.prescale != 1.0F;
    if (scales) {
      const std::byte* source = request_.input.data();
      std::byte* destination = request_.output.data();
      kernel::reduce(request_.signature.dtype, ReduceOp::sum, request_.input.size() / request_.element_bytes,
                     std::span(&source, 1), std::span(&destination, 1), request_.signature.prescale);
    } else if (request_.input.data() != request_.output.data() && !request_.input.empty()) {
      std::memcpy(request_.output.data(), request_.input.data(), request_.input.size());
    }
    return {};
  }

  const Group& group_;
  bool has_counts_;
  Request request_;
  std::size_t alignment_ = 1;  // a power of two
};

Request message(Request request, std::span<const std::byte> buffer, int peer, int tag) {
  request.signature.elements = buffer.size();
  request.signature.detail = static_cast<std::uint32_t>(tag);
  request.peer = peer;
  request.tag = tag;
  return request;
}

Request sending(const Group& group, std::span<const std::byte> buffer, int destination, int tag,
                const MemoryPlace& place) {
  require_rank(group, destination, "send: destination");
  require_memory(buffer, "send");
  if (tag < 0) throw_invalid_argument("send: tag " + std::to_string(tag) + " is negative");
  return message(
      {.signature = {.root = group.rank(), .operation = Operation::send}, .input = buffer, .place = place},
      buffer, destination, tag);
}

Request receiving(const Group& group, std::span<std::byte> buffer, int source, int tag, Received* received,
                  const MemoryPlace& place) {
  if (source != any_source) require_rank(group, source, "recv: source");
  require_memory(buffer, "recv");
  if (tag < 0 && tag != any_tag) {
    throw_invalid_argument("recv: tag " + std::to_string(tag) + " is negative, and not any_tag");
  }
  return message({.signature = {.root = source, .operation = Operation::receive},
                  .output = buffer,
                  .received = received,
                  .place = place},
                 buffer, source, tag);
}

Work submit_message(const Group& group, const Request& request) {
  Group::Impl& impl = group.impl();
  if (request.place.is_on_gpu()) return submit_on_gpu(impl, std::span(&request, 1));
  return Work((impl.backend ? *impl.backend : to_itself(impl)).submit(request));
}

}  // namespace

Work all_reduce_bytes(const Group& group, std::span<const std::byte> input, std::span<std::byte> output,
                      const Reduction& reduction) {
  Checked call(group, Operation::all_reduce);
  call.combining(reduction);
  return call.elements(call.count_of(input, "input")).submit(input, output);
}

Work all_reduce_on_gpu_bytes(const Group& group, std::span<const std::span<std::byte>> buffers,
                             const Reduction& reduction) {
  std::vector<Request> requests;
  for (const auto buffer : buffers) {
    Checked call(group, Operation::all_reduce);
    call.combining(reduction);
    requests.push_back(call.elements(call.count_of(buffer, "input")).request(buffer, buffer));
  }
  return requests.empty() ? Work() : submit_on_gpu(group.impl(), requests);
}

Work reduce_bytes(const Group& group, std::span<const std::byte> input, std::span<std::byte> output, int root,
                  const Reduction& reduction) {
  Checked call(group, Operation::reduce);
  call.root(root).combining(reduction);
  return call.elements(call.count_of(input, "input")).submit(input, output);
}

Work reduce_scatter_bytes(const Group& group, std::span<const std::byte> input, std::span<std::byte> output,
                          const Reduction& reduction, std::span<const std::size_t> counts) {
  Checked call(group, Operation::reduce_scatter, !counts.empty());
  call.combining(reduction).blocks(counts);
  return call.elements(counts.empty() ? call.count_of(output, "output") : 0).submit(input, output);
}

Work broadcast_bytes(const Group& group, std::span<std::byte> buffer, int root, const MemoryPlace& place) {
  return Checked(group, Operation::broadcast).at(place).root(root).elements(buffer.size()).submit({}, buffer);
}

Work scatter_bytes(const Group& group, std::span<const std::byte> input, std::span<std::byte> output,
                   int root, std::size_t element_bytes, std::span<const std::size_t> counts,
                   const MemoryPlace& place) {
  Checked call(group, Operation::scatter, !counts.empty());
  call.at(place).root(root).elements_of(element_bytes).blocks(counts);
  return call.elements(counts.empty() ? call.count_of(output, "output") : 0).submit(input, output);
}

Work gather_bytes(const Group& group, std::span<const std::byte> input, std::span<std::byte> output, int root,
                  std::size_t element_bytes, std::span<const std::size_t> counts, const MemoryPlace& place) {
  Checked call(group, Operation::gather, !counts.empty());
  call.at(place).root(root).elements_of(element_bytes).blocks(counts);
  return call.elements(counts.empty() ? call.count_of(input, "input") : 0).submit(input, output);
}

Work all_gather_bytes(const Group& group, std::span<const std::byte> input, std::span<std::byte> output,
                      std::size_t element_bytes, std::span<const std::size_t> counts,
                      const MemoryPlace& place) {
  Checked call(group, Operation::all_gather, !counts.empty());
  call.at(place).elements_of(element_bytes).blocks(counts);
  return call.elements(counts.empty() ? call.count_of(input, "input") : 0).submit(input, output);
}

Work all_to_all_bytes(const Group& group, std::span<const std::byte> input, std::span<std::byte> output,
                      std::size_t element_bytes, const MemoryPlace& place) {
  Checked call(group, Operation::all_to_all);
  call.at(place).elements_of(element_bytes);
  const std::size_t elements = call.count_of(input, "input");
  const auto ranks = static_cast<std::size_t>(group.size());
  if (elements % ranks != 0) {
    throw_invalid_argument("all_to_all: " + std::to_string(elements) + " elements are not " +
                           std::to_string(ranks) + " equal blocks; use all_to_all_v");
  }
  return call.elements_of(1).elements(input.size() / ranks).submit(input, output);
}

Work all_to_all_v_bytes(const Group& group, std::span<const std::byte> input,
                        std::span<const std::size_t> sent_counts, std::span<std::byte> output,
                        std::span<const std::size_t> received_counts, std::size_t element_bytes,
                        const MemoryPlace& place) {
  Checked call(group, Operation::all_to_all, true);
  return call.at(place).elements_of(element_bytes).blocks(sent_counts, received_counts).submit(input, output);
}

Work barrier(const Group& group, const MemoryPlace& place) {
  return Checked(group, Operation::barrier).at(place).submit({}, {});
}

Work send_bytes(const Group& group, std::span<const std::byte> buffer, int destination, int tag,
                const MemoryPlace& place) {
  return submit_message(group, sending(group, buffer, destination, tag, place));
}

Work recv_bytes(const Group& group, std::span<std::byte> buffer, int source, int tag, Received* received,
                const MemoryPlace& place) {
  return submit_message(group, receiving(group, buffer, source, tag, received, place));
}

Work sendrecv_bytes(const Group& group, std::span<const std::byte> sent, int destination, int sent_tag,
                    std::span<std::byte> arriving, int source, int received_tag, Received* received,
                    const MemoryPlace& place) {
  if (base::overlap(sent, arriving)) {
    throw_invalid_argument(
        "sendrecv: what is sent and what arrives overlap in memory, so that one would be changed before it "
        "is gone; use two buffers");
  }
  const std::array both{receiving(group, arriving, source, received_tag, received, place),
                        sending(group, sent, destination, sent_tag, place)};
  if (place.is_on_gpu()) return submit_on_gpu(group.impl(), both);
  std::vector<Work> works;
  for (const Request& request : both) works.push_back(submit_message(group, request));
  return Work::all(std::move(works));
}

}  // namespace lockstep

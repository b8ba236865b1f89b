// What carries a group's calls on the memory of one GPU of each rank: NCCL (nccl/), what ranks that share a GPU have there
// (device_arena/), or that and main memory between hosts (gpu_hosts/). GpuGroup does what both need: order, deadlines, failures, the record.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lockstep/backend/backend.h"
#include "lockstep/base/deadline.h"
#include "lockstep/base/error.h"
#include "lockstep/memory/gpu.h"
#include "lockstep/rendezvous/store.h"
#include "lockstep/transport/members.h"

namespace lockstep {

/// Why the group has failed, as Backend::failure() knows it.
std::optional<Error> failure_of(Backend& backend, bool needs_all = false);

/// `mark` is where the program's stream is now. Throws Error{invalid_argument}: it is none of this GPU's.
void mark_stream_of_program(const Gpu& gpu, cuda::Event mark, cuda::Stream stream, const Signature& called);

/// Throws Error{unsupported} for what no engine does on a GPU, with what to do instead: a user's operation, tags, any source.
void require_possible_on_gpu(const Request& request);

/// A call that an engine has put. Thread safety: one thread at a time. REQUIRES of all: a Gpu::Current.
class GpuCall {
 public:
  virtual ~GpuCall() = default;
  /// Of one that was put unsettled: it is settled. REQUIRES: nothing was put since. Throws Error{system}.
  virtual void note_settled() {}
  // What follows REQUIRES: it is settled.
  /// What the program had put on its stream before is through.
  virtual bool has_begun() = 0;
  /// Throws Error{system} where the GPU has failed.
  virtual bool is_over() = 0;
  /// What `stream` gets from now on comes after the call.
  virtual void make_wait(cuda::Stream stream) = 0;
  /// How long it took on the GPU, its wait for others included. REQUIRES: is_over().
  virtual std::uint64_t ns_on_gpu() = 0;
};

/// Thread safety: one thread at a time, but for abort(), tell_failure() and look(), which may come from another.
class GpuEngine {
 public:
  struct Options {
    std::string name;  ///< of the group, as in messages
    Members members;
    std::shared_ptr<Gpu> gpu = nullptr;
    std::shared_ptr<Store> store;      ///< of these ranks, and of this GPU of theirs; null in a group of one
    std::shared_ptr<Backend> backend;  ///< of the group, for what lies in main memory; likewise
    std::chrono::nanoseconds timeout{};
    std::function<void()> check;  ///< while something is awaited, now and then: throws why it will not come
  };
  enum class State {
    settled,
    unsettled,  ///< it goes on by itself: look() says when it is settled
  };

  /// Of requests that are put as one call.
  static constexpr std::size_t most_at_once = 32;

  virtual ~GpuEngine() = default;

  /// As the record has it: "nccl".
  virtual const char* name() const = 0;
  /// Throws Error{unsupported} for what it cannot, with what to do instead.
  virtual void require_possible(const Request& request) const = 0;
  /// How many messages from one rank to another may be put before they are over; put() of one more waits.
  virtual std::size_t messages_at_once() const = 0;
  /// Whether a graph may capture its calls.
  virtual bool can_be_captured() const = 0;
  /// What is put, and whether that is settled.
  struct Placed {
    std::unique_ptr<GpuCall> call;
    State state = State::settled;
  };
  /// Puts them on the GPU, after what is on the program's `stream`, and as one: none waits for another. At most `most_at_once`. `is_captured`: by a graph,
  /// see can_be_captured(). Throws Error: invalid_argument
  /// (nothing was put: it is none of this GPU's streams); others, after which nothing more may be put.
  virtual Placed put(std::span<const Request> requests, cuda::Stream stream, bool is_captured) = 0;
  /// Whether what was put is settled. Throws Error: what has gone wrong since.
  virtual State look() = 0;
  /// How often look() has to be called where nothing is under way; zero: never.
  virtual std::chrono::nanoseconds looks_when_idle() const = 0;
  /// Tells its ranks why the group has failed, where there is a way beside the group's own. Before abort().
  virtual void tell_failure(const Error& /*cause*/) noexcept {}
  /// Lets what was put end, right or wrong, wherever it is.
  virtual void abort() noexcept = 0;
  /// Ends it in order, with the others; goes on by itself where they take longer than `deadline`, or `gives_up`.
  virtual void end(Deadline deadline, const std::function<bool()>& gives_up) = 0;

  // Who is missing in collectives, which are counted from 0.

  /// This rank has waited for collective `number` for long; it waits for none before `number`.
  virtual void tell_waiting(std::uint64_t number, const Signature& called) = 0;
  virtual void tell_through(std::uint64_t number) = 0;
  /// World ranks that have not come to it, by what is known here. Throws Error: mismatch where a rank called something else.
  virtual std::vector<int> missing_in(std::uint64_t number, const Signature& called) = 0;
  /// Of a call that all have come to, and that does not end: what to look at.
  virtual std::string advice() const = 0;
};

}  // namespace lockstep

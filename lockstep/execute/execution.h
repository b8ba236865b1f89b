// An execution is one schedule under way on one rank: it takes each step as soon as it can be taken and stops
// where it would have to wait, to be resumed later. It adds nothing to the schedule: what runs is what was
// proven.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "lockstep/base/custom_reduction.h"
#include "lockstep/base/dtype.h"
#include "lockstep/base/reduce_op.h"
#include "lockstep/execute/arrivals.h"
#include "lockstep/execute/exchange.h"
#include "lockstep/execute/link.h"
#include "lockstep/execute/work_memory.h"
#include "lockstep/kernel/copy.h"
#include "lockstep/schedule/schedule.h"
#include "lockstep/schedule/staging_ring.h"

namespace lockstep {

/// Where the places of a schedule lie, and what its elements are.
struct Bindings {
  std::vector<const std::byte*> inputs = {};  ///< by rank; only this rank's where memory is not shared
  std::vector<std::byte*> outputs = {};       ///< by rank; likewise
  std::vector<std::byte*> slots = {};         ///< by rank; empty where there are none
  std::vector<std::byte*> staging = {};       ///< by rank; likewise
  /// all_to_all_v: by rank, the bytes that go there and that come from there, which each message says; else empty.
  std::span<const std::size_t> sent_blocks = {}, received_blocks = {};
  std::size_t window_elements = 1;  ///< as the schedule's Call has it
  StagingWindows windows = {};
  kernel::CrossingCopies* crossing =
      nullptr;  ///< how copies into staging memory are made; outlives the execution
  std::size_t element_bytes = 1;
  Dtype dtype = Dtype::u8;
  Dtype wire_dtype = Dtype::bf16;  ///< in Space::wire; `dtype` is f32 then
  ReduceOp reduce_op = ReduceOp::sum;
  double scale = 1.0;                       ///< applied by the last reduction
  const CustomReduction* custom = nullptr;  ///< of ReduceOp::custom
  const Call* call = nullptr;               ///< of schedules that use an exchange; as its rank made it
};

/// How an execution reaches other ranks. All calls are made under the progress lock.
class Surroundings {
 public:
  virtual ~Surroundings() = default;
  virtual Link& link(int peer) = 0;
  virtual void arrive(std::uint32_t stage) = 0;
  /// Whether all ranks are there; may throw mismatch.
  virtual bool await(std::uint32_t stage) = 0;
  /// Of schedules that use one.
  virtual Exchange& exchange() = 0;
};

class Execution {
 public:
  /// Begins anew. Borrows `schedule` and `surroundings`; keeps its scratch memory for the next time.
  /// `first_step`: 2 leaves the first wait out (Schedule::needs_no_first_wait).
  void begin(const Schedule& schedule, Surroundings& surroundings, int rank, std::uint64_t sequence,
             const Signature& signature, std::size_t first_step = 0);
  Bindings& bindings() { return bindings_; }

  /// Takes steps until one has to wait; true when the last was taken. Adds the time of copies and reductions
  /// to `own_work_ns`.
  bool advance(std::uint64_t& own_work_ns);
  /// The index of the step that has to wait.
  std::size_t next_step() const { return next_; }
  /// Whether anything happened in the last advance().
  bool has_moved() const { return moved_; }
  /// The step that waits. REQUIRES: not finished.
  const Step& current() const { return schedule_->steps()[next_]; }
  /// The send or receive that a wait step waits for.
  const Step& awaited() const { return schedule_->steps()[current().target]; }

 private:
  friend struct ExecutionWatch;  // of tests that compare what runs with what was proven
  static const std::function<void(const Schedule&, const Step&)>* watch_;
  // These return how many steps were taken: 0 if this one has to wait, 2 if the next was done along with it.
  std::size_t take(const Step& step, std::uint64_t& own_work_ns);
  struct Copied {
    std::size_t steps = 1;
    std::size_t told_bytes = 0;  ///< CrossingCopies wants to know how long they took
  };
  Copied copy(const Step& step);
  void convert(const Step& step);
  std::optional<kernel::CopyTask> next_copy_beside(const kernel::CopyTask& task) const;
  void reduce(const Step& step);
  std::uint64_t start_exchange(const Step& step);
  /// Whether it copies to where other ranks read.
  bool is_crossing(const Step& step) const {
    return step.kind == StepKind::copy && schedule_->destinations(step)[0].space == Space::staging;
  }
  /// Whether it copies between whole elements and those that cross to other hosts.
  bool is_conversion(const Step& step) const {
    return step.kind == StepKind::copy && (schedule_->destinations(step)[0].space == Space::wire ||
                                           schedule_->sources(step)[0].space == Space::wire);
  }
  kernel::CopyTask copy_of(const Step& step) const {
    return {address(schedule_->destinations(step)[0]), address(schedule_->sources(step)[0]), bytes_of(step)};
  }
  std::byte* address(const Place& place) const;
  /// What a message to or from the step's peer says of itself.
  Signature signature_of(const Step& step, std::span<const std::size_t> blocks) const;
  std::size_t bytes_of(const Step& step) const { return step.elements * bindings_.element_bytes; }
  std::size_t message_bytes(const Step& step, const Place& place) const {
    return step.elements *
           (place.space == Space::wire ? size_of(bindings_.wire_dtype) : bindings_.element_bytes);
  }

  const Schedule* schedule_ = nullptr;
  Surroundings* surroundings_ = nullptr;
  Bindings bindings_;
  int rank_ = 0;
  std::uint64_t sequence_ = 0;
  Signature signature_;
  std::size_t next_ = 0;
  bool moved_ = false;
  std::vector<std::uint64_t> tickets_;  // of sends and receives, by step
  WorkMemory scratch_, wire_;
  WorkMemory not_crossed_;  // a result that others get by a copy
  std::vector<const std::byte*> sources_;
  std::vector<std::byte*> destinations_;
};

}  // namespace lockstep

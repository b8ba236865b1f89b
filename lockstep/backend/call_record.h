// A group's calls as the record has them (trace/): those under way in the table of open calls, those that are
// over in the ring of events.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/base/signature.h"
#include "lockstep/base/size_bin.h"
#include "lockstep/execute/plan.h"
#include "lockstep/trace/group_names.h"
#include "lockstep/trace/open_calls.h"
#include "lockstep/trace/recorder.h"
#include "lockstep/trace/sent.h"
#include "lockstep/trace/totals.h"
#include "lockstep/transport/members.h"

namespace lockstep {

/// Where a rank's calls are recorded, of all its groups.
struct RecordPlaces {
  trace::Recorder* recorder = nullptr;  ///< borrowed; not null
  std::shared_ptr<trace::Totals> totals = std::make_shared<trace::Totals>();
  std::shared_ptr<trace::OpenCalls> open_calls = std::make_shared<trace::OpenCalls>();
  std::shared_ptr<trace::GroupNames> group_names = std::make_shared<trace::GroupNames>();
  trace::SentTable* sent = nullptr;  ///< borrowed; null: nowhere
};

/// One group's, on one of its ranks. Under the progress lock.
class CallRecord {
 public:
  CallRecord(RecordPlaces places, const std::string& group, const Members& members);
  ~CallRecord() { places_.group_names->leave(name_place_); }
  CallRecord(const CallRecord&) = delete;
  CallRecord& operator=(const CallRecord&) = delete;

  /// What stands for the group in events and open calls.
  std::uint32_t group() const { return group_; }
  trace::OpenCalls& open_calls() { return *places_.open_calls; }
  /// What totals want to know of a call beside its event. `element_bytes`: of a user's operation, whose dtype says nothing.
  struct Sizes {
    std::uint64_t bytes = 0;
    bool has_counts = false;
  };
  static Sizes sizes_of(const Signature& called, std::size_t element_bytes) {
    const bool is_custom = called.reduce_op == ReduceOp::custom;
    return {called.elements * (is_custom ? element_bytes : size_of(called.dtype)), called.has_counts()};
  }
  /// A call that followed `plan` is over. Null: it is a message, or failed before it had one. `blocked_ns`: what the program
  /// has waited for it so far.
  void note(const trace::CompletedCollective& event, const Plan* plan, const Sizes& sizes,
            std::uint64_t blocked_ns) {
    places_.recorder->record(event, plan != nullptr ? number_of(*plan) : 0);
    places_.totals->add(class_of(event.operation, sizes), event, sizes.bytes, blocked_ns);
  }
  /// The same of a call that an engine of another kind carried out: its number is Recorder::number_of()'s.
  void note_by_engine(const trace::CompletedCollective& event, std::uint64_t engine, const Sizes& sizes) {
    places_.recorder->record(event, engine);
    places_.totals->add(class_of(event.operation, sizes), event, sizes.bytes, 0);
  }
  void note_blocked(const Signature& called, std::size_t element_bytes, std::uint64_t ns) {
    places_.totals->add_blocked(class_of(called.operation, sizes_of(called, element_bytes)), ns);
  }
  void note_sent(const trace::Sent& more) {
    if (places_.sent != nullptr) trace::add_sent(*places_.sent, more);
  }
  /// The event of a call that is over and did not fail. Times as in CompletedCollective.
  trace::CompletedCollective event(const Signature& called, std::uint64_t number, std::uint64_t begin_ns,
                                   std::uint64_t arrived_ns, std::uint64_t end_ns) const {
    return {.sequence = number,
            .elements = called.elements,
            .begin_ns = begin_ns,
            .arrived_ns = arrived_ns,
            .end_ns = end_ns,
            .group = group_,
            .operation = called.operation,
            .dtype = called.dtype,
            .reduce_op = called.reduce_op,
            .failed = 0};
  }

 private:
  trace::CallClass class_of(Operation operation, const Sizes& sizes) const {
    return {group_, operation, sizes.has_counts, base::size_bin(sizes.bytes)};
  }
  std::uint64_t number_of(const Plan& plan);

  RecordPlaces places_;
  std::uint32_t group_;
  int name_place_;
  std::vector<std::uint64_t> numbers_;  // of algorithms, 0: not known yet
};

}  // namespace lockstep

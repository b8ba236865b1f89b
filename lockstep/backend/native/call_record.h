// A group's calls as the record has them (trace/): those under way in the table of open calls, those that are
// over in the ring of events.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/base/signature.h"
#include "lockstep/execute/plan.h"
#include "lockstep/trace/group_names.h"
#include "lockstep/trace/open_calls.h"
#include "lockstep/trace/recorder.h"
#include "lockstep/transport/members.h"

namespace lockstep {

/// Where a rank's calls are recorded, of all its groups.
struct RecordPlaces {
  trace::Recorder* recorder = nullptr;  ///< borrowed; not null
  std::shared_ptr<trace::OpenCalls> open_calls = std::make_shared<trace::OpenCalls>();
  std::shared_ptr<trace::GroupNames> group_names = std::make_shared<trace::GroupNames>();
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
  /// A call that followed `plan` is over. Null: it is a message, or failed before it had one.
  void note(const trace::CompletedCollective& event, const Plan* plan) {
    places_.recorder->record(event, plan != nullptr ? number_of(*plan) : 0);
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
  std::uint64_t number_of(const Plan& plan);

  RecordPlaces places_;
  std::uint32_t group_;
  int name_place_;
  std::vector<std::uint64_t> numbers_;  // of algorithms, 0: not known yet
};

}  // namespace lockstep

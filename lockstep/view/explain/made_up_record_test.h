// Flight records of jobs that never were, for tests of what is said of them.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "lockstep/base/hash.h"
#include "lockstep/view/explain/explain.h"

namespace lockstep::view {

using trace::CollectiveEvent;
using trace::FlightEnding;
using trace::FlightGroup;
using trace::FlightRank;
using trace::FlightRecord;
using trace::OpenCall;
using trace::ProcessState;

inline constexpr std::uint64_t ms = 1'000'000;
inline constexpr std::uint64_t failure = 100'000 * ms;

/// The number is the world's, or that of "world/a,b".
inline std::uint32_t group_number(const std::string& name) { return fnv1a_32(name); }

inline Signature reduction(std::uint64_t elements = 100) {
  return {.elements = elements, .operation = Operation::all_reduce, .dtype = Dtype::f32};
}
inline Signature barrier() { return {}; }
inline Signature broadcast(int root) {
  return {.elements = 400, .root = root, .operation = Operation::broadcast};
}
inline Signature message(Operation operation) { return {.elements = 10, .operation = operation}; }

/// Begun so many milliseconds before the failure, and ended by it.
inline OpenCall failed(std::uint64_t sequence, const Signature& signature, std::uint64_t ms_before,
                       const std::vector<int>& awaited = {}, const std::string& group = "world") {
  OpenCall call{.sequence = sequence,
                .begin_ns = failure - ms_before * ms,
                .looked_ns = awaited.empty() ? 0 : failure - ms,
                .failed_ns = failure,
                .signature = signature,
                .group = group_number(group),
                .awaited_count = static_cast<std::uint32_t>(awaited.size())};
  std::copy(awaited.begin(), awaited.end(), call.awaited.begin());
  return call;
}

/// Still under way.
inline OpenCall open(std::uint64_t sequence, const Signature& signature, std::uint64_t ms_before,
                     const std::vector<int>& awaited = {}, const std::string& group = "world") {
  OpenCall call = failed(sequence, signature, ms_before, awaited, group);
  call.failed_ns = 0;
  return call;
}

inline OpenCall with_peer(OpenCall call, int peer) {
  call.peer = peer;
  return call;
}

inline CollectiveEvent over(std::uint64_t sequence, const Signature& signature, std::uint64_t ms_before,
                            const std::string& group = "world") {
  CollectiveEvent event{};
  event.sequence = sequence;
  event.elements = signature.elements;
  event.begin_ns = failure - (ms_before + 1) * ms;
  event.arrived_ns = event.end_ns = failure - ms_before * ms;
  event.group = group_number(group);
  event.operation = signature.operation;
  event.dtype = signature.dtype;
  return event;
}

/// Ranks 0 to `ranks` - 1 of one host, with pids from 100 on, that have all been through barrier #0.
class MadeUpRecord : public ::testing::Test {
 protected:
  void make(int ranks) {
    record.job = "4f2a";
    record.host = "a";
    record.written_at = "now";
    record.at_ns = failure + 500 * ms;
    std::vector<int> all;
    for (int rank = 0; rank < ranks; ++rank) {
      all.push_back(rank);
      record.ranks.push_back(
          {.rank = rank, .pid = 100 + rank, .joined = true, .state = ProcessState::sleeping});
      record.ranks.back().events = {over(0, barrier(), 5000)};
    }
    add_group("world", all);
  }
  void add_group(const std::string& name, const std::vector<int>& members) {
    record.groups.push_back({group_number(name), name, members});
  }
  FlightRank& rank(std::size_t number) { return record.ranks.at(number); }
  void in(std::size_t number, const OpenCall& call) { rank(number).open_calls.push_back(call); }
  void blame(ErrorCode code, int culprit, int reporter, const std::string& text = "what it was") {
    record.first_cause = {code, culprit, reporter, text};
  }
  std::string first_line() const {
    const std::string text = explain(record);
    return text.substr(0, text.find('\n'));
  }

  FlightRecord record;
};

}  // namespace lockstep::view

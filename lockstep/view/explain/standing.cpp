#include "lockstep/view/explain/standing.h"

#include <fmt/core.h>

#include <algorithm>

#include "lockstep/base/words.h"

namespace lockstep::view {
namespace {

using trace::CollectiveEvent;
using trace::OpenCall;
using trace::ProcessState;

// An event has not all of a signature: no root, no hash of counts.
std::string called(const CollectiveEvent& event) {
  std::string text(to_string(event.operation));
  if (event.operation == Operation::barrier) return text;
  if (!reduces(event.operation)) return fmt::format("{} ({} bytes)", text, event.elements);
  return fmt::format("{} ({} of {} x {})", text, to_string(event.reduce_op), to_string(event.dtype),
                     event.elements);
}

std::string numbered(std::string text, std::uint64_t number) {
  return text.insert(std::min(text.find(' '), text.size()), fmt::format(" #{}", number));
}

std::string state_prefix(ProcessState state) {
  if (state == ProcessState::stopped) return "stopped (by SIGSTOP or a debugger), ";
  if (state == ProcessState::blocked) return "in a system call that does not return (disk, network), ";
  return "";
}

std::string place_outside(const Situation& situation, const Standing& standing) {
  if (!standing.rank->joined) return "not in the job: it has not called lockstep::init()";
  if (standing.last_call == nullptr) return "outside of any collective, before its first";
  return "outside of any collective for " + base::duration(situation.since(standing.last_call->end_ns)) +
         ", after " + text_of(situation, *standing.last_call);
}

std::string waits_of(const Standing& standing, const OpenCall& call) {
  const auto wait = std::find_if(standing.waits.begin(), standing.waits.end(),
                                 [&](const Wait& each) { return each.call == &call; });
  if (wait == standing.waits.end()) return "";
  return (wait->any_will_do ? ", waiting for any of " : ", waiting for ") +
         base::name_rank_ranges(wait->ranks);
}

}  // namespace

std::string name_of(const Situation& situation, int world_rank) {
  const Standing* const standing = situation.find(world_rank);
  const std::string name = fmt::format("rank {}", world_rank);
  if (standing == nullptr) return name + " (of another host)";
  return standing->rank->pid == 0 ? name : fmt::format("{} (pid {})", name, standing->rank->pid);
}

std::string text_of(const Situation& situation, const OpenCall& call) {
  return to_string(call.signature, call.sequence) + " " + situation.in_group(call.group);
}

std::string text_of(const Situation& situation, const CollectiveEvent& call) {
  return numbered(called(call), call.sequence) + " " + situation.in_group(call.group);
}

std::string text_of(const Situation::Called& what) {
  return what.call != nullptr ? to_string(what.call->signature) : called(*what.over);
}

std::string place_of(const Situation& situation, const Standing& standing) {
  const std::string state = state_prefix(standing.rank->state);
  if (standing.calls.empty()) return state + place_outside(situation, standing);
  const OpenCall& call = standing.waits.empty() ? *standing.calls.front() : *standing.waits.front().call;
  return state + "in " + text_of(situation, call) + " for " + base::duration(situation.since(call.begin_ns));
}

std::string ending_of(const trace::FlightRank& rank) {
  if (!rank.ending) return "";
  const std::string by = rank.ending->by_launcher ? " by the launcher" : "";
  if (rank.ending->signal == 0)
    return by.empty() ? fmt::format("ended with exit code {}", rank.ending->exit_code) : "ended" + by;
  const int signal = rank.ending->signal;
  return by.empty() ? fmt::format("killed by signal {} ({})", signal, base::signal_name(signal))
                    : "ended" + by;
}

std::string line_of(const Situation& situation, const Standing& standing) {
  std::string text = name_of(situation, standing.rank->rank) + ": " + place_of(situation, standing);
  if (!standing.calls.empty()) {
    const OpenCall& call = standing.waits.empty() ? *standing.calls.front() : *standing.waits.front().call;
    text += waits_of(standing, call);
    if (standing.calls.size() > 1) text += fmt::format(", with {} more under way", standing.calls.size() - 1);
  }
  if (standing.rank->open_calls_left_out > 0) text += ", and more than the record has room for";
  if (const OpenCall* const next = standing.next_call) {
    text += "; called " + text_of(situation, *next) + " " +
            base::duration(next->begin_ns - situation.moment_ns()) + " later";
  }
  const std::string ending = ending_of(*standing.rank);
  if (!ending.empty()) return text + "; " + ending;
  if (standing.rank->state == ProcessState::gone) return text + "; its process is gone";
  return situation.record().goes_on ? text : text + "; it still ran";
}

}  // namespace lockstep::view

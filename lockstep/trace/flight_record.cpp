#include "lockstep/trace/flight_record.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <iterator>
#include <nlohmann/json.hpp>

#include "lockstep/trace/flight_format.h"
#include "lockstep/trace/group_names.h"

namespace lockstep::trace {
namespace {

using nlohmann::ordered_json;

// Texts may hold what a program wrote, in any encoding.
std::string dump(const ordered_json& value) {
  return value.dump(-1, ' ', false, ordered_json::error_handler_t::replace);
}

ordered_json to_json(const OpenCall& call) {
  ordered_json value = {{"group", call.group},
                        {"sequence", call.sequence},
                        {"operation", to_string(call.signature.operation)},
                        {"elements", call.signature.elements},
                        {"dtype", to_string(call.signature.dtype)},
                        {"reduce_op", to_string(call.signature.reduce_op)},
                        {"root", call.signature.root},
                        {"detail", call.signature.detail}};
  const float prescale = call.signature.prescale;
  if (prescale != 1.0F && std::isfinite(prescale)) value["prescale"] = prescale;
  value.update({{"peer", call.peer},
                {"begin_ns", call.begin_ns},
                {"arrived_ns", call.arrived_ns},
                {"looked_ns", call.looked_ns},
                {"failed_ns", call.failed_ns},
                {"awaited_count", call.awaited_count},
                {"awaited", call.awaited_ranks()}});
  return value;
}

// Names of our own; but the record comes from memory that a program may have written to by mistake.
std::string algorithm_of(const CollectiveEvent& event) {
  std::string name(event.algorithm, ::strnlen(event.algorithm, sizeof(event.algorithm)));
  const auto is_odd = [](char c) { return c < ' ' || c > '~' || c == '"' || c == '\\'; };
  std::replace_if(name.begin(), name.end(), is_odd, '?');
  return name;
}

// [sequence, group, operation, dtype, reduce_op, elements, begin_ns, nanoseconds until all had arrived, until
// the end, failed, algorithm]: there are many of them.
void append_event(std::string& text, const CollectiveEvent& event) {
  const auto after = [&](std::uint64_t ns) { return ns - std::min(ns, event.begin_ns); };
  fmt::format_to(std::back_inserter(text), R"([{},{},"{}","{}","{}",{},{},{},{},{},"{}"])", event.sequence,
                 event.group, to_string(event.operation), to_string(event.dtype), to_string(event.reduce_op),
                 event.elements, event.begin_ns, after(event.arrived_ns), after(event.end_ns),
                 event.failed != 0, algorithm_of(event));
}

void append_totals(std::string& text, const TotalsRow& row) {
  const CallTotals& sums = row.totals;
  fmt::format_to(std::back_inserter(text), R"([{},"{}",{},{},{},{},{},{},{}])", row.of.group,
                 to_string(row.of.operation), row.of.has_counts, row.of.size_bin, sums.calls, sums.bytes,
                 sums.ns, sums.waited_ns, sums.blocked_ns);
}

ordered_json to_json(const FlightCosts& costs) {
  return {{"joined_at_ns", costs.joined_at_ns},
          {"left_at_ns", costs.left_at_ns},
          {"user_ns", costs.process.user_ns},
          {"system_ns", costs.process.system_ns},
          {"most_resident_bytes", costs.process.most_resident_bytes},
          {"on_core_ns", costs.on_core_ns},
          {"core_wait_ns", costs.core_wait_ns}};
}

ordered_json to_json(const StepTotals& steps) {
  return {{"steps", steps.steps},
          {"ns", steps.ns},
          {"exposed_work_ns", steps.exposed_work_ns},
          {"exposed_wait_ns", steps.exposed_wait_ns},
          {"gradient_bytes", steps.gradient_bytes}};
}

ordered_json to_json(const CallTotals& sums) {
  return {{"calls", sums.calls},
          {"bytes", sums.bytes},
          {"ns", sums.ns},
          {"waited_ns", sums.waited_ns},
          {"blocked_ns", sums.blocked_ns}};
}

// Each element on a line of its own.
template <class List, class Append>
void append_lines(std::string& text, const List& list, Append append) {
  text += "[";
  const char* separator = "\n";
  for (const auto& element : list) {
    text += separator;
    append(element);
    separator = ",\n";
  }
  text += "]";
}

// The opening brace and the fields of `head`, to be continued.
std::string begin_object(const ordered_json& head) {
  std::string text = dump(head);
  text.pop_back();
  return text;
}

void append_rank(std::string& text, const FlightRank& rank) {
  ordered_json head = {{"rank", rank.rank},
                       {"pid", rank.pid},
                       {"joined", rank.joined},
                       {"left", rank.left},
                       {"state", to_string(rank.state)}};
  if (const auto& ending = rank.ending) {
    head["ending"] = {{"exit_code", ending->exit_code},
                      {"signal", ending->signal},
                      {"order", ending->order},
                      {"by_launcher", ending->by_launcher}};
  }
  head["open_calls_left_out"] = rank.open_calls_left_out;
  head["costs"] = to_json(rank.costs);
  head["steps"] = to_json(rank.steps);
  head["totals_left_out"] = to_json(rank.totals_left_out);
  text += begin_object(head);
  text += ",\n\"open_calls\": ";
  append_lines(text, rank.open_calls, [&](const OpenCall& call) { text += dump(to_json(call)); });
  text += ",\n\"events\": ";
  append_lines(text, rank.events, [&](const CollectiveEvent& event) { append_event(text, event); });
  text += ",\n\"totals\": ";
  append_lines(text, rank.totals, [&](const TotalsRow& row) { append_totals(text, row); });
  text += ",\n\"sent\": ";
  append_lines(text, rank.sent, [&](const Sent& sent) {
    text += dump({{"peer", sent.peer}, {"bytes", sent.bytes}, {"busy_ns", sent.busy_ns}});
  });
  text += "}";
}

}  // namespace

std::string_view to_string(ProcessState state) {
  switch (state) {
    case ProcessState::unknown: return "unknown";
    case ProcessState::running: return "running";
    case ProcessState::sleeping: return "sleeping";
    case ProcessState::blocked: return "blocked";
    case ProcessState::stopped: return "stopped";
    case ProcessState::gone: return "gone";
  }
  return "unknown";
}

std::string FlightRecord::to_text() const {
  ordered_json head = {{"format", flight_format},
                       {"version", flight_version},
                       {"job", job},
                       {"host", host},
                       {"written_at", written_at},
                       {"at_ns", at_ns},
                       {"goes_on", goes_on}};
  if (ended_by != 0) head["ended_by"] = ended_by;
  if (first_cause) {
    head["first_cause"] = {{"code", to_string(first_cause->code)},
                           {"culprit", first_cause->culprit},
                           {"reporter", first_cause->reporter},
                           {"text", first_cause->text}};
  }
  if (!changes.empty()) head["changes_left_out"] = changes_left_out;
  head["event_columns"] = event_columns;
  head["totals_columns"] = totals_columns;
  std::string text = begin_object(head);
  if (!changes.empty()) {
    text += ",\n\"changes\": ";
    append_lines(text, changes, [&](const FlightChange& change) {
      text += dump({{"at_ns", change.at_ns}, {"view", change.view}, {"text", change.text}});
    });
  }
  text += ",\n\"groups\": ";
  append_lines(text, groups, [&](const FlightGroup& group) {
    text += dump({{"number", group.number}, {"name", group.name}, {"members", group.members}});
  });
  text += ",\n\"ranks\": ";
  append_lines(text, ranks, [&](const FlightRank& rank) { append_rank(text, rank); });
  return text += "}\n";
}

CallTotals all_calls(const FlightRank& rank) {
  CallTotals sums = rank.totals_left_out;
  for (const TotalsRow& row : rank.totals) sums += row.totals;
  return sums;
}

int world_size(const FlightRecord& record) {
  const auto world = std::ranges::find_if(record.groups, is_world, &FlightGroup::name);
  const std::size_t known = world == record.groups.end() ? 0 : world->members.size();
  return static_cast<int>(std::max(known, record.ranks.size()));
}

void shift_times(FlightRecord& record, std::int64_t nanoseconds) {
  const auto shift = [&](std::uint64_t& time) {  // 0 is never
    if (time != 0) time += static_cast<std::uint64_t>(nanoseconds);
  };
  shift(record.at_ns);
  for (FlightChange& change : record.changes) shift(change.at_ns);
  for (FlightRank& rank : record.ranks) {
    shift(rank.costs.joined_at_ns);
    shift(rank.costs.left_at_ns);
    for (OpenCall& call : rank.open_calls) {
      for (std::uint64_t* time : {&call.begin_ns, &call.arrived_ns, &call.looked_ns, &call.failed_ns})
        shift(*time);
    }
    for (CollectiveEvent& event : rank.events) {
      for (std::uint64_t* time : {&event.begin_ns, &event.arrived_ns, &event.end_ns}) shift(*time);
    }
  }
}

}  // namespace lockstep::trace

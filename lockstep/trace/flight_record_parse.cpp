// The reading half of flight_record.h. The file may be damaged, cut off or made up: nothing in it is believed
// before it is looked at, and how much is taken of it is bounded before it is taken.
#include <fmt/core.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <span>

#include "lockstep/base/size_bin.h"
#include "lockstep/trace/flight_format.h"
#include "lockstep/trace/flight_record.h"
#include "lockstep/trace/recorder.h"

namespace lockstep::trace {
namespace {

using nlohmann::json;

constexpr int most_depth = 6;  // the record, its ranks, one of them, its calls, one of them, who is awaited
constexpr std::uint64_t any_number = std::numeric_limits<std::uint64_t>::max();

[[noreturn]] void fail(const std::string& what) { throw Error(ErrorCode::corrupt_data, what); }

/// Puts the place of a mistake in front of what is wrong.
template <class Parse>
auto within(const std::string& place, Parse parse) {
  try {
    return parse();
  } catch (const Error& error) {
    fail(place + ": " + error.what());
  }
}

std::string in_quotes(std::string_view name) { return "\"" + std::string(name) + "\""; }

std::uint64_t number_of(const json& value, std::string_view what, std::uint64_t most) {
  if (!value.is_number_unsigned() || value.get<std::uint64_t>() > most)
    fail(fmt::format("{} is no whole number from 0 to {}", in_quotes(what), most));
  return value.get<std::uint64_t>();
}

int integer_of(const json& value, std::string_view what, std::int64_t least, std::int64_t most) {
  const bool is_huge = value.is_number_unsigned() && value.get<std::uint64_t>() > std::uint64_t{1} << 32;
  if (!value.is_number_integer() || is_huge || value.get<std::int64_t>() < least ||
      value.get<std::int64_t>() > most) {
    fail(fmt::format("{} is no whole number from {} to {}", in_quotes(what), least, most));
  }
  return static_cast<int>(value.get<std::int64_t>());
}

bool flag_of(const json& value, std::string_view what) {
  if (!value.is_boolean()) fail(in_quotes(what) + " is neither true nor false");
  return value.get<bool>();
}

std::string text_of(const json& value, std::string_view what) {
  if (!value.is_string()) fail(in_quotes(what) + " is no text");
  if (value.get_ref<const std::string&>().size() > FlightLimits::text_bytes) {
    fail(fmt::format("{} is longer than {} bytes", in_quotes(what), FlightLimits::text_bytes));
  }
  return value.get<std::string>();
}

const json& list_of(const json& value, std::string_view what, std::size_t most) {
  if (!value.is_array()) fail(in_quotes(what) + " is no list");
  if (value.size() > most) fail(fmt::format("{} has more than {} elements", in_quotes(what), most));
  return value;
}

/// The value of a closed set that has this name. `all` are its values.
template <class Values>
auto named(const json& value, std::string_view what, const Values& all) {
  const std::string name = text_of(value, what);
  for (const auto candidate : all) {
    if (to_string(candidate) == name) return candidate;
  }
  fail(in_quotes(what) + " is " + in_quotes(name) + ", which is none");
}

constexpr Operation all_operations[] = {
    Operation::barrier, Operation::all_reduce,     Operation::broadcast, Operation::all_gather,
    Operation::send,    Operation::receive,        Operation::reduce,    Operation::scatter,
    Operation::gather,  Operation::reduce_scatter, Operation::all_to_all};
constexpr ProcessState all_states[] = {ProcessState::unknown, ProcessState::running, ProcessState::sleeping,
                                       ProcessState::blocked, ProcessState::stopped, ProcessState::gone};
constexpr ErrorCode all_codes[] = {ErrorCode::invalid_argument, ErrorCode::timeout, ErrorCode::peer_lost,
                                   ErrorCode::mismatch,         ErrorCode::aborted, ErrorCode::unsupported,
                                   ErrorCode::corrupt_data,     ErrorCode::system};

/// An object, and the complaint about a field that is not there.
class Fields {
 public:
  explicit Fields(const json& object) : object_(object) {
    if (!object.is_object()) fail("is no object");
  }

  const json* find(const char* name) const {
    const auto found = object_.find(name);
    return found == object_.end() ? nullptr : &*found;
  }
  const json& at(const char* name) const {
    const json* const found = find(name);
    if (found == nullptr) fail(in_quotes(name) + " is missing");
    return *found;
  }
  std::uint64_t number(const char* name, std::uint64_t most = any_number) const {
    return number_of(at(name), name, most);
  }
  int integer(const char* name, std::int64_t least, std::int64_t most) const {
    return integer_of(at(name), name, least, most);
  }
  /// A world rank, or -1.
  int rank_or_none(const char* name) const { return integer(name, -1, FlightLimits::ranks - 1); }
  bool flag(const char* name) const { return flag_of(at(name), name); }
  std::string text(const char* name) const { return text_of(at(name), name); }
  const json& list(const char* name, std::size_t most) const { return list_of(at(name), name, most); }
  template <class Values>
  auto one_of(const char* name, const Values& all) const {
    return named(at(name), name, all);
  }

 private:
  const json& object_;
};

constexpr auto most_number_of_group = std::numeric_limits<std::uint32_t>::max();
constexpr auto most_integer = std::numeric_limits<std::int32_t>::max();
constexpr auto least_integer = std::numeric_limits<std::int32_t>::min();

std::vector<int> ranks_of(const json& list, std::string_view what) {
  std::vector<int> ranks;
  for (const json& rank : list) ranks.push_back(integer_of(rank, what, -1, FlightLimits::ranks - 1));
  return ranks;
}

float prescale_of(const json& value) {
  if (!value.is_number() || !(std::abs(value.get<double>()) <= std::numeric_limits<float>::max()))
    fail("\"prescale\" is no number of 32 bits");
  return value.get<float>();
}

OpenCall call_of(const json& value) {
  const Fields fields(value);
  OpenCall call;
  call.group = static_cast<std::uint32_t>(fields.number("group", most_number_of_group));
  call.sequence = fields.number("sequence");
  call.signature.operation = fields.one_of("operation", all_operations);
  call.signature.elements = fields.number("elements");
  call.signature.dtype = fields.one_of("dtype", all_dtypes);
  call.signature.reduce_op = fields.one_of("reduce_op", all_reduce_ops);
  call.signature.root = fields.integer("root", least_integer, most_integer);
  call.signature.detail = static_cast<std::uint32_t>(fields.number("detail", most_number_of_group));
  if (const json* const prescale = fields.find("prescale")) call.signature.prescale = prescale_of(*prescale);
  call.peer = fields.rank_or_none("peer");
  call.begin_ns = fields.number("begin_ns");
  call.arrived_ns = fields.number("arrived_ns");
  call.looked_ns = fields.number("looked_ns");
  call.failed_ns = fields.number("failed_ns");
  call.awaited_count = static_cast<std::uint32_t>(fields.number("awaited_count", FlightLimits::ranks));
  const auto awaited = ranks_of(fields.list("awaited", OpenCall::awaited_capacity), "awaited");
  if (awaited.size() != std::min<std::size_t>(call.awaited_count, OpenCall::awaited_capacity))
    fail("\"awaited\" has not as many ranks as \"awaited_count\" says");
  std::copy(awaited.begin(), awaited.end(), call.awaited.begin());
  return call;
}

/// A list as a row of columns, taken one after the other.
class Columns {
 public:
  template <std::size_t count>
  Columns(const json& row, const std::array<const char*, count>& names) : row_(row), names_(names) {
    list_of(row, "row", count);
    if (row.size() < count) fail(fmt::format("has {} of {} columns", row.size(), count));
  }
  std::uint64_t number(std::uint64_t most = any_number) {
    const std::size_t here = column_++;
    return number_of(row_[here], names_[here], most);
  }
  template <class Values>
  auto one_of(const Values& all) {
    const std::size_t here = column_++;
    return named(row_[here], names_[here], all);
  }
  bool flag() {
    const std::size_t here = column_++;
    return flag_of(row_[here], names_[here]);
  }
  std::string text() {
    const std::size_t here = column_++;
    return text_of(row_[here], names_[here]);
  }

 private:
  const json& row_;
  std::span<const char* const> names_;
  std::size_t column_ = 0;
};

CollectiveEvent event_of(const json& value) {
  Columns columns(value, event_columns);
  CollectiveEvent event{};
  event.sequence = columns.number();
  event.group = static_cast<std::uint32_t>(columns.number(most_number_of_group));
  event.operation = columns.one_of(all_operations);
  event.dtype = columns.one_of(all_dtypes);
  event.reduce_op = columns.one_of(all_reduce_ops);
  event.elements = columns.number();
  event.begin_ns = columns.number();
  event.arrived_ns = event.begin_ns + columns.number(any_number - event.begin_ns);
  event.end_ns = event.begin_ns + columns.number(any_number - event.begin_ns);
  event.failed = columns.flag() ? 1 : 0;
  const std::string algorithm = columns.text();
  if (algorithm.size() > sizeof(event.algorithm)) fail("\"algorithm\" is too long");
  algorithm.copy(event.algorithm, sizeof(event.algorithm));
  return event;
}

TotalsRow totals_of(const json& value) {
  Columns columns(value, totals_columns);
  TotalsRow row;
  row.of.group = static_cast<std::uint32_t>(columns.number(most_number_of_group));
  row.of.operation = columns.one_of(all_operations);
  row.of.has_counts = columns.flag();
  row.of.size_bin = static_cast<int>(columns.number(base::size_bin_count - 1));
  for (std::uint64_t* sum :
       {&row.totals.calls, &row.totals.bytes, &row.totals.ns, &row.totals.waited_ns, &row.totals.blocked_ns})
    *sum = columns.number();
  return row;
}

CallTotals sums_of(const json& value) {
  const Fields fields(value);
  return {.calls = fields.number("calls"),
          .bytes = fields.number("bytes"),
          .ns = fields.number("ns"),
          .waited_ns = fields.number("waited_ns"),
          .blocked_ns = fields.number("blocked_ns")};
}

FlightCosts costs_of(const json& value) {
  const Fields fields(value);
  const auto number = [&](const char* name) {
    return fields.find(name) != nullptr ? fields.number(name) : 0;
  };
  return {.joined_at_ns = fields.number("joined_at_ns"),
          .left_at_ns = fields.number("left_at_ns"),
          .process = {.user_ns = fields.number("user_ns"),
                      .system_ns = fields.number("system_ns"),
                      .most_resident_bytes = fields.number("most_resident_bytes")},
          .on_core_ns = number("on_core_ns"),
          .core_wait_ns = number("core_wait_ns")};
}

StepTotals steps_of(const json& value) {
  const Fields fields(value);
  return {.steps = fields.number("steps"),
          .ns = fields.number("ns"),
          .exposed_work_ns = fields.number("exposed_work_ns"),
          .exposed_wait_ns = fields.number("exposed_wait_ns"),
          .gradient_bytes = fields.number("gradient_bytes")};
}

FlightGroup group_of(const json& value) {
  const Fields fields(value);
  return {.number = static_cast<std::uint32_t>(fields.number("number", most_number_of_group)),
          .name = fields.text("name"),
          .members = ranks_of(fields.list("members", FlightLimits::ranks), "members")};
}

FlightEnding ending_of(const json& value) {
  const Fields fields(value);
  return {.exit_code = fields.integer("exit_code", 0, 255),
          .signal = fields.integer("signal", 0, 255),
          .order = fields.integer("order", 0, most_integer),
          .by_launcher = fields.flag("by_launcher")};
}

/// Elements of a list, each with its place in complaints.
template <class Parse>
auto each(const json& list, const std::string& what, Parse parse) {
  std::vector<decltype(parse(list))> all;
  all.reserve(list.size());
  for (const json& value : list)
    within(fmt::format("{} {}", what, all.size()), [&] { all.push_back(parse(value)); });
  return all;
}

Sent sent_of(const json& value) {
  const Fields fields(value);
  return {.peer = fields.integer("peer", 0, FlightLimits::ranks - 1),
          .bytes = fields.number("bytes"),
          .busy_ns = fields.number("busy_ns")};
}

FlightRank rank_of(const json& value) {
  const Fields fields(value);
  FlightRank rank{.rank = fields.integer("rank", 0, FlightLimits::ranks - 1),
                  .pid = fields.integer("pid", 0, most_integer),
                  .joined = fields.flag("joined"),
                  .left = fields.flag("left"),
                  .state = fields.one_of("state", all_states)};
  if (const json* const ending = fields.find("ending"))
    rank.ending = within("\"ending\"", [&] { return ending_of(*ending); });
  rank.open_calls_left_out = fields.number("open_calls_left_out");
  rank.open_calls = each(fields.list("open_calls", OpenCallTable::capacity), "call", call_of);
  rank.events = each(fields.list("events", ring_capacity), "event", event_of);
  // Records of before do not have these.
  if (const json* const costs = fields.find("costs"))
    rank.costs = within("\"costs\"", [&] { return costs_of(*costs); });
  if (const json* const steps = fields.find("steps"))
    rank.steps = within("\"steps\"", [&] { return steps_of(*steps); });
  if (const json* const rest = fields.find("totals_left_out"))
    rank.totals_left_out = within("\"totals_left_out\"", [&] { return sums_of(*rest); });
  if (fields.find("totals") != nullptr)
    rank.totals = each(fields.list("totals", TotalsTable::capacity), "row of totals", totals_of);
  if (fields.find("sent") != nullptr)
    rank.sent = each(fields.list("sent", SentTable::capacity), "connection", sent_of);
  return rank;
}

FlightCause cause_of(const json& value) {
  const Fields fields(value);
  return {.code = fields.one_of("code", all_codes),
          .culprit = fields.rank_or_none("culprit"),
          .reporter = fields.rank_or_none("reporter"),
          .text = fields.text("text")};
}

FlightChange change_of(const json& value) {
  const Fields fields(value);
  return {.at_ns = fields.number("at_ns"), .view = fields.number("view"), .text = fields.text("text")};
}

FlightRecord record_of(const json& value) {
  const Fields fields(value);
  if (const std::string format = fields.text("format"); format != flight_format)
    fail("\"format\" is " + in_quotes(format) + ", not " + in_quotes(flight_format));
  if (const int version = fields.integer("version", 0, most_integer); version != flight_version) {
    fail(fmt::format("is of version {}, this Lockstep reads version {}: use the `lockstep` of the job",
                     version, flight_version));
  }
  FlightRecord record{.job = fields.text("job"),
                      .host = fields.text("host"),
                      .written_at = fields.text("written_at"),
                      .at_ns = fields.number("at_ns"),
                      .goes_on = fields.flag("goes_on")};
  if (fields.find("ended_by") != nullptr) record.ended_by = fields.integer("ended_by", 0, 255);
  if (const json* const cause = fields.find("first_cause"))
    record.first_cause = within("\"first_cause\"", [&] { return cause_of(*cause); });
  if (fields.find("changes") != nullptr) {
    record.changes = each(fields.list("changes", FlightLimits::changes), "change", change_of);
    record.changes_left_out = fields.number("changes_left_out");
  }
  record.groups = each(fields.list("groups", FlightLimits::groups), "group", group_of);
  record.ranks = each(fields.list("ranks", FlightLimits::ranks), "rank", rank_of);
  std::size_t events = 0;
  for (std::size_t i = 0; i < record.ranks.size(); ++i) {
    events += record.ranks[i].events.size();
    if (i > 0 && record.ranks[i].rank <= record.ranks[i - 1].rank) fail("\"ranks\" are not in their order");
  }
  if (events > FlightLimits::events) fail(fmt::format("has more than {} events", FlightLimits::events));
  return record;
}

/// Counts values before any memory is taken for them.
json parse_json(const std::string& text) {
  std::size_t values = 0;
  const auto count = [&](int depth, json::parse_event_t, const json&) {
    if (depth > most_depth) fail(fmt::format("has lists in lists, more than {} deep", most_depth));
    if (++values > FlightLimits::values) fail(fmt::format("holds more than {} values", FlightLimits::values));
    return true;
  };
  json value = json::parse(text, count, false);
  if (value.is_discarded()) fail("is no JSON, or not all of it is there");
  return value;
}

}  // namespace

FlightRecord FlightRecord::parse(const std::string& text, const std::string& name) {
  return within(name, [&] {
    if (text.size() > FlightLimits::bytes) fail(fmt::format("has more than {} bytes", FlightLimits::bytes));
    return record_of(parse_json(text));
  });
}

}  // namespace lockstep::trace

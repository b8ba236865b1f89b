#include "top_table.h"

#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

#include "lockstep/base/words.h"
#include "lockstep/view/explain/situation.h"

namespace {

using lockstep::base::duration;
using lockstep::trace::FlightRank;
using lockstep::trace::FlightRecord;
using lockstep::trace::ProcessState;
using lockstep::view::RankRates;
using lockstep::view::Situation;
using lockstep::view::Standing;
using lockstep::view::Wait;

/// What ranks wait for each other all the time.
constexpr std::uint64_t worth_telling_ns = 100'000'000;

std::string waiting(const Situation& situation, const Wait& wait) {
  return fmt::format("waiting {} for {} in {}", duration(situation.since(wait.call->begin_ns)),
                     lockstep::base::name_rank_ranges(wait.ranks), to_string(wait.call->signature.operation));
}

std::string state_of(const Situation& situation, const Standing& standing) {
  const FlightRank& rank = *standing.rank;
  if (!rank.joined) return "has not joined";
  if (rank.left) return "ended";
  switch (rank.state) {
    case ProcessState::gone: return "gone";
    case ProcessState::stopped: return "stopped";
    case ProcessState::blocked: return "in a system call that does not return (disk, network)";
    default: break;
  }
  const auto is_long = [&](const Wait& wait) {
    return situation.since(wait.call->begin_ns) >= worth_telling_ns;
  };
  const auto wait = std::ranges::find_if(standing.waits, is_long);
  return wait == standing.waits.end() ? "running" : waiting(situation, *wait);
}

std::uint64_t elapsed(const FlightRecord& record) {
  std::uint64_t first = record.at_ns;
  for (const FlightRank& rank : record.ranks) {
    if (rank.costs.joined_at_ns != 0) first = std::min(first, rank.costs.joined_at_ns);
  }
  return record.at_ns - first;
}

/// "1.2 G": people read it, and it is short.
std::string short_number(double number) {
  constexpr std::string_view units = " kMGTPE";
  std::size_t unit = 0;
  for (; number >= 999.5 && unit + 1 < units.size(); ++unit) number /= 1000;
  return unit == 0 ? fmt::format("{:.{}f}", number, number < 9.95 && number > 0 ? 1 : 0)
                   : fmt::format("{:.{}f} {}", number, number < 9.95 ? 1 : 0, units[unit]);
}

std::string short_bytes(double bytes) {
  const std::string number = short_number(bytes);
  return number + (number.back() >= '0' && number.back() <= '9' ? " B" : "B");
}

std::string short_duration(std::uint64_t ns) {
  return ns < 1'000'000 ? fmt::format("{:.1f} us", static_cast<double>(ns) * 1e-3) : duration(ns);
}

std::string percent(std::optional<double> share) {
  return share ? fmt::format("{:.1f} %", *share * 100) : "-";
}

using Row = std::vector<std::string>;

bool has_images(const TopView& view) {
  return std::ranges::any_of(view.ranks,
                             [](const RankRates& rank) { return rank.images_per_second.has_value(); });
}

Row titles(const TopView& view) {
  Row row = {"rank", "pid", "steps", "step", "exposed"};
  if (has_images(view)) row.emplace_back("images/s");
  for (const char* title : {"calls/s", "bytes/s", "blocked", "last", "late", "memory", "state"})
    row.emplace_back(title);
  return row;
}

Row row_of(const TopView& view, std::size_t index) {
  const RankRates& rank = view.ranks[index];
  Row row = {std::to_string(rank.rank), rank.pid == 0 ? "-" : std::to_string(rank.pid),
             std::to_string(rank.steps), rank.step_ns ? short_duration(*rank.step_ns) : "-",
             percent(rank.exposed_share)};
  if (has_images(view))
    row.push_back(rank.images_per_second ? fmt::format("{:.1f}", *rank.images_per_second) : "-");
  row.push_back(short_number(rank.calls_per_second));
  row.push_back(short_bytes(rank.bytes_per_second));
  row.push_back(percent(rank.blocked_share));
  row.push_back(std::to_string(rank.last_arrivals));
  row.push_back(rank.last_arrivals == 0 ? "-" : short_duration(rank.late_ns));
  row.push_back(rank.resident_bytes == 0 ? "-" : short_bytes(static_cast<double>(rank.resident_bytes)));
  row.push_back(view.states[index]);
  return row;
}

/// The last column is text and begins at one place, the others are numbers and end at one.
std::vector<std::string> align(const std::vector<Row>& rows) {
  std::vector<std::size_t> widths(rows.front().size(), 0);
  for (const Row& row : rows) {
    for (std::size_t i = 0; i + 1 < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::vector<std::string> lines;
  for (const Row& row : rows) {
    std::string line;
    for (std::size_t i = 0; i + 1 < row.size(); ++i) line += fmt::format("{:>{}}  ", row[i], widths[i]);
    lines.push_back(line + row.back());
  }
  return lines;
}

std::string headline(const TopView& view) {
  const std::string name = view.job.name.empty() ? "" : " " + printable(view.job.name);
  const auto here = static_cast<std::int64_t>(view.ranks.size());
  std::string text =
      fmt::format("job{} (pid {}): {}, {}", name, view.job.pid,
                  lockstep::base::counted(view.ranks_in_all, "rank"), duration(view.elapsed_ns));
  if (here < view.ranks_in_all)
    text += fmt::format("; the {} of this host are shown, the others are on other hosts",
                        lockstep::base::counted(here, "rank"));
  return text;
}

}  // namespace

TopView TopView::of(const lockstep::launch::RunningJob& job, const lockstep::view::LiveHost& before,
                    const lockstep::view::LiveHost& after) {
  TopView view{.job = job,
               .ranks = live_rates(before, after),
               .ranks_in_all = lockstep::trace::world_size(after.record),
               .elapsed_ns = elapsed(after.record),
               .interval_ns = after.record.at_ns - before.record.at_ns};
  const Situation situation(after.record);
  for (const Standing& standing : situation.standings()) view.states.push_back(state_of(situation, standing));
  return view;
}

std::string table_of(const TopView& view, std::size_t columns, std::size_t lines) {
  std::vector<Row> rows = {titles(view)};
  for (std::size_t i = 0; i < view.ranks.size(); ++i) rows.push_back(row_of(view, i));
  std::vector<std::string> all = align(rows);
  all.insert(all.begin(), headline(view));
  if (lines > 2 && all.size() > lines) {
    const auto left_out = static_cast<std::int64_t>(all.size() - lines + 1);
    all.resize(lines - 1);
    all.push_back(
        fmt::format("and {} more, for which there is no room", lockstep::base::counted(left_out, "rank")));
  }
  std::string text;
  for (const std::string& line : all) text += (columns == 0 ? line : line.substr(0, columns)) + "\n";
  return text;
}

std::string json_of(const TopView& view) {
  using nlohmann::json;
  const auto seconds = [](std::uint64_t ns) { return static_cast<double>(ns) * 1e-9; };
  json ranks = json::array();
  for (std::size_t i = 0; i < view.ranks.size(); ++i) {
    const RankRates& rank = view.ranks[i];
    json one = {{"rank", rank.rank},
                {"pid", rank.pid},
                {"steps", rank.steps},
                {"calls_per_second", rank.calls_per_second},
                {"bytes_per_second", rank.bytes_per_second},
                {"blocked_share", rank.blocked_share},
                {"last_arrivals", rank.last_arrivals},
                {"resident_bytes", rank.resident_bytes},
                {"state", view.states[i]}};
    if (rank.step_ns) one["step_seconds"] = seconds(*rank.step_ns);
    if (rank.exposed_share) one["exposed_share"] = *rank.exposed_share;
    if (rank.images_per_second) one["images_per_second"] = *rank.images_per_second;
    if (rank.last_arrivals > 0) one["late_seconds"] = seconds(rank.late_ns);
    ranks.push_back(std::move(one));
  }
  const json all = {{"job", view.job.name},
                    {"pid", view.job.pid},
                    {"ranks_in_all", view.ranks_in_all},
                    {"elapsed_seconds", seconds(view.elapsed_ns)},
                    {"interval_seconds", seconds(view.interval_ns)},
                    {"ranks", ranks}};
  return all.dump(-1, ' ', false, json::error_handler_t::replace) + "\n";
}

std::string printable(std::string_view text) {
  std::string out;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    out += byte >= ' ' && byte < 0x7f ? std::string(1, c) : fmt::format("\\x{:02x}", byte);
  }
  return out;
}

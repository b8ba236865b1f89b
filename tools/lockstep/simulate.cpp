#include "simulate.h"

#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>

#include "command_line.h"
#include "lockstep/base/env.h"
#include "lockstep/base/error.h"
#include "lockstep/base/file.h"
#include "lockstep/base/log_chart.h"
#include "lockstep/base/split.h"
#include "lockstep/base/words.h"
#include "lockstep/memory/host_region.h"
#include "lockstep/schedule/simulate/cluster.h"

namespace {

using lockstep::Operation;
using lockstep::schedule::Cluster;
using lockstep::schedule::Simulated;

constexpr const char* simulate_after_help =
    R"(What is simulated are the schedules that jobs execute, in virtual time, with the latency, the rates and the costs
of the topology file; docs/simulate.md says what stands in one, what is modelled, and how well it agrees with real hosts.
Bytes are those of a rank's buffer (all_reduce, reduce, broadcast) or of one rank's block, in float32.

  lockstep simulate --topology cluster.json --ranks 4096 --op all_reduce --bytes 25MiB
  lockstep simulate --topology cluster.json --ranks 8,64,512,4096 --bytes 64K,1M,25M --svg growth.svg
  lockstep simulate --topology cluster.json --ranks 256 --bytes 25M --step-bytes 100M --backward-ms 120
)";

constexpr std::uint64_t element_bytes = 4;
constexpr std::uint64_t most_simulated_bytes = std::uint64_t{1} << 40;
constexpr std::size_t most_cases = 1000;

struct SimulateFlags {
  std::string topology;
  std::string ranks;
  std::string operation = "all_reduce";
  std::string bytes = "25MiB";
  std::string algorithms;
  std::string buffers = "arena";
  std::string json, svg;
  std::string step_bytes, backward;
};

struct SimulateOptions {
  lockstep::schedule::Topology topology = {};
  std::vector<int> ranks = {};
  Operation operation = Operation::all_reduce;
  std::vector<std::uint64_t> bytes = {};
  std::vector<std::string> algorithms = {};  ///< empty: all
  lockstep::BufferClass buffers = lockstep::BufferClass::arena;
  std::uint64_t step_bytes = 0;
  double backward_seconds = 0;
};

/// One row of the table.
struct SimulatedRow {
  int ranks = 0;
  std::uint64_t bytes = 0;
  std::string taken = {};                         ///< by jobs
  std::map<std::string, Simulated> times = {};    ///< of each algorithm
  std::map<std::string, std::string> gaps = {};   ///< why there is none
  std::map<std::string, double> step_waits = {};  ///< seconds of a training step, where one was asked for

  std::string quickest() const {
    const auto found =
        std::ranges::min_element(times, {}, [](const auto& timed) { return timed.second.seconds; });
    return found == times.end() ? "" : found->first;
  }
};

void describe(CLI::App& app, SimulateFlags& flags) {
  command_line::set_usage(
      app,
      "Usage: lockstep simulate --topology FILE --ranks N[,N...] [--op NAME] [--bytes SIZE[,SIZE...]] "
      "[options]\n");
  app.footer(simulate_after_help);
  app.add_option("--topology", flags.topology, "What the cluster is made of, in JSON")->required();
  app.add_option("--ranks", flags.ranks, "How many ranks; several for their growth")->required();
  app.add_option("--op,--operation", flags.operation, "Which collective [all_reduce]");
  app.add_option("--bytes", flags.bytes, "How long, such as 64K,25M [25M]");
  app.add_option("--algorithm", flags.algorithms, "Only these, such as ring,hierarchical [all that can]");
  app.add_option("--buffers", flags.buffers,
                 "arena (from Group::allocate(), as gradients are) or private [arena]");
  app.add_option("--step-bytes", flags.step_bytes,
                 "A training step with so many bytes of gradients, in buckets of each of --bytes");
  app.add_option("--backward-ms", flags.backward, "How long that step's backward takes");
  app.add_option("--json", flags.json, "Writes all figures there");
  app.add_option("--svg", flags.svg,
                 "Draws the times there: over ranks where there are several, else over bytes");
}

template <class Parse>
auto list_of(const std::string& text, Parse parse) {
  std::vector<decltype(parse(text))> parsed;
  for (const std::string& word : lockstep::base::split(text, ',')) parsed.push_back(parse(word));
  std::ranges::sort(parsed);
  parsed.erase(std::unique(parsed.begin(), parsed.end()), parsed.end());
  return parsed;
}

std::uint64_t bytes_in(const char* flag, const std::string& word) {
  const std::uint64_t bytes = lockstep::env::parse_bytes(flag, word);
  if (bytes < element_bytes || bytes > most_simulated_bytes || bytes % element_bytes != 0)
    lockstep::throw_invalid_argument(std::string(flag) + " has " + word +
                                     "; it must be a multiple of 4 bytes, up to 1024G");
  return bytes;
}

void read_algorithms(const std::string& list, SimulateOptions& options) {
  if (list.empty()) return;
  options.algorithms = list_of(list, [](const std::string& word) { return word; });
  for (const std::string& name : options.algorithms) {
    const auto entries = lockstep::schedule::all_algorithms();
    if (std::ranges::none_of(entries, [&](const lockstep::AlgorithmEntry& entry) {
          return entry.name == name && entry.operation == options.operation;
        })) {
      lockstep::throw_invalid_argument("--algorithm: there is no " + name + " for " +
                                       std::string(to_string(options.operation)) + "; there are " +
                                       lockstep::schedule::names_of_algorithms(options.operation));
    }
  }
}

void read_step(const SimulateFlags& flags, SimulateOptions& options) {
  if (flags.step_bytes.empty() != flags.backward.empty())
    lockstep::throw_invalid_argument("--step-bytes and --backward-ms belong together");
  if (flags.step_bytes.empty()) return;
  if (options.operation != Operation::all_reduce)
    lockstep::throw_invalid_argument("--step-bytes is for all_reduce, which training steps wait for");
  options.step_bytes = bytes_in("--step-bytes", flags.step_bytes);
  constexpr int most_milliseconds = 3'600'000;
  options.backward_seconds = static_cast<double>(lockstep::env::parse_integer("--backward-ms", flags.backward,
                                                                              0, most_milliseconds)) *
                             1e-3;
}

SimulateOptions to_options(const SimulateFlags& flags) {
  SimulateOptions options;
  const auto operation = lockstep::schedule::operation_named(flags.operation);
  if (!operation)
    lockstep::throw_invalid_argument("--op: there is no collective \"" + flags.operation + "\"; there are " +
                                     lockstep::schedule::names_of_operations());
  options.operation = *operation;
  options.ranks = list_of(flags.ranks, [](const std::string& word) {
    return static_cast<int>(
        lockstep::env::parse_integer("--ranks", word, 1, lockstep::schedule::most_simulated_ranks));
  });
  options.bytes = list_of(flags.bytes, [](const std::string& word) { return bytes_in("--bytes", word); });
  if (options.operation == Operation::barrier) options.bytes = {0};
  if (options.ranks.size() * options.bytes.size() > most_cases)
    lockstep::throw_invalid_argument(fmt::format("--ranks and --bytes make more than {} cases", most_cases));
  if (flags.buffers != "arena" && flags.buffers != "private")
    lockstep::throw_invalid_argument("--buffers must be arena or private, not \"" + flags.buffers + "\"");
  if (flags.buffers == "private") options.buffers = lockstep::BufferClass::private_memory;
  read_algorithms(flags.algorithms, options);
  read_step(flags, options);
  options.topology = lockstep::schedule::Topology::read(flags.topology);
  return options;
}

SimulatedRow row_of(const SimulateOptions& options, int ranks, std::uint64_t bytes) {
  const Cluster cluster(options.topology, ranks, lockstep::Tuning::from_environment(), lockstep::slot_bytes);
  const Cluster::Question question{.operation = options.operation,
                                   .elements = bytes / element_bytes,
                                   .element_bytes = element_bytes,
                                   .buffers = options.buffers};
  SimulatedRow row{.ranks = ranks, .bytes = bytes, .taken = cluster.taken(question)};
  for (const lockstep::AlgorithmEntry* entry : cluster.candidates(question)) {
    const std::string name(entry->name);
    if (!options.algorithms.empty() &&
        std::ranges::find(options.algorithms, name) == options.algorithms.end())
      continue;
    try {
      row.times[name] = cluster.simulate(*entry, question);
    } catch (const lockstep::Error& error) {
      row.gaps[name] = error.what();
    }
  }
  return row;
}

std::string size_text(std::uint64_t bytes) {
  constexpr std::pair<unsigned, const char*> units[] = {{30, "GiB"}, {20, "MiB"}, {10, "KiB"}};
  for (const auto& [shift, unit] : units) {
    const std::uint64_t one = std::uint64_t{1} << shift;
    if (bytes >= one && bytes % (one / 4) == 0)
      return fmt::format("{:g} {}", static_cast<double>(bytes) / static_cast<double>(one), unit);
  }
  return fmt::format("{} B", bytes);
}

/// Of all rows, in the order of their names.
std::vector<std::string> columns_of(const std::vector<SimulatedRow>& rows) {
  std::map<std::string, bool> names;
  for (const SimulatedRow& row : rows) {
    for (const auto& [name, time] : row.times) names[name] = true;
    for (const auto& [name, why] : row.gaps) names[name] = true;
  }
  std::vector<std::string> columns;
  for (const auto& [name, exists] : names) columns.push_back(name);
  return columns;
}

int width_of(const std::string& column) { return std::max(12, static_cast<int>(column.size()) + 3); }

std::string head_of(const SimulateOptions& options, const std::vector<std::string>& columns) {
  std::string text = fmt::format(
      "{}, float32, {} buffers; microseconds, * the quickest\n{:>10}{:>8}{:>8}", to_string(options.operation),
      options.buffers == lockstep::BufferClass::arena ? "arena" : "private", "bytes", "ranks", "hosts");
  for (const std::string& column : columns) text += fmt::format("{:>{}}", column, width_of(column));
  return text + "   a job takes\n";
}

std::string line_of(const SimulateOptions& options, const SimulatedRow& row,
                    const std::vector<std::string>& columns) {
  std::string text =
      fmt::format("{:>10}{:>8}{:>8}", size_text(row.bytes), row.ranks, options.topology.hosts_of(row.ranks));
  for (const std::string& column : columns) {
    const auto found = row.times.find(column);
    const std::string time =
        found == row.times.end() ? "-" : fmt::format("{:.1f}", found->second.seconds * 1e6);
    text += fmt::format("{:>{}}", (column == row.quickest() ? "*" : "") + time, width_of(column));
  }
  return text + "   " + row.taken + "\n";
}

/// What each algorithm needs, in the largest case.
std::string needs_of(const SimulatedRow& row) {
  std::string text = fmt::format("\n{} ranks, {}:\n", row.ranks, size_text(row.bytes));
  for (const auto& [name, time] : row.times) {
    text += fmt::format(
        "  {:<20} {} between hosts, {:.3g} MB; the busiest port sends {:.3g} MB; a rank needs {:.3g} MB "
        "beside its buffers\n",
        name, lockstep::base::counted(static_cast<std::int64_t>(time.messages), "message"),
        static_cast<double>(time.bytes) * 1e-6, static_cast<double>(time.bytes_of_busiest) * 1e-6,
        static_cast<double>(time.own_bytes) * 1e-6);
  }
  return text;
}

std::string gaps_of(const std::vector<SimulatedRow>& rows) {
  std::string text;
  for (const SimulatedRow& row : rows) {
    for (const auto& [name, why] : row.gaps)
      text += fmt::format("- {}, {} ranks, {}: {}\n", name, row.ranks, size_text(row.bytes), why);
  }
  return text.empty() ? "" : "\n" + text;
}

/// How long a step waits after its backward, whose gradients are ready evenly and are reduced bucket by bucket. `whole`, `rest`:
/// seconds for a bucket, and for the last one, which may be shorter.
double wait_of_step(const SimulateOptions& options, std::uint64_t bucket, double whole, double rest) {
  double done = 0;
  for (std::uint64_t sent = 0; sent < options.step_bytes;) {
    const bool is_whole = options.step_bytes - sent >= bucket;
    sent = std::min(options.step_bytes, sent + bucket);
    const double ready =
        options.backward_seconds * static_cast<double>(sent) / static_cast<double>(options.step_bytes);
    done = std::max(done, ready) + (is_whole ? whole : rest);
  }
  return done - options.backward_seconds;
}

void add_step_waits(const SimulateOptions& options, SimulatedRow& row) {
  const std::uint64_t rest = options.step_bytes % row.bytes;
  const SimulatedRow of_rest = rest > 0 ? row_of(options, row.ranks, rest) : SimulatedRow();
  for (const auto& [name, time] : row.times) {
    const auto found = of_rest.times.find(name);
    const double rest_seconds = found == of_rest.times.end() ? time.seconds : found->second.seconds;
    row.step_waits[name] = wait_of_step(options, row.bytes, time.seconds, rest_seconds);
  }
}

std::string steps_of(const SimulateOptions& options, const std::vector<SimulatedRow>& rows) {
  if (options.step_bytes == 0) return "";
  std::string text = fmt::format("\nA step of {} ms of backward and {} of gradients waits after it:\n",
                                 std::lround(options.backward_seconds * 1e3), size_text(options.step_bytes));
  for (const SimulatedRow& row : rows) {
    text += fmt::format("  {} ranks, buckets of {}:", row.ranks, size_text(row.bytes));
    for (const auto& [name, wait] : row.step_waits)
      text +=
          fmt::format(" {} {:.1f} ms{}", name, wait * 1e3, name == row.step_waits.rbegin()->first ? "" : ",");
    text += "\n";
  }
  return text;
}

nlohmann::json json_of(const SimulateOptions& options, const std::vector<SimulatedRow>& rows) {
  nlohmann::json all = nlohmann::json::array();
  for (const SimulatedRow& row : rows) {
    for (const auto& [name, time] : row.times) {
      all.push_back({{"op", to_string(options.operation)},
                     {"algorithm", name},
                     {"ranks", row.ranks},
                     {"hosts", options.topology.hosts_of(row.ranks)},
                     {"bytes", row.bytes},
                     {"us", time.seconds * 1e6},
                     {"is_quickest", name == row.quickest()},
                     {"is_taken", name == row.taken},
                     {"messages", time.messages},
                     {"bytes_between_hosts", time.bytes},
                     {"bytes_of_busiest_port", time.bytes_of_busiest},
                     {"own_bytes", time.own_bytes}});
      if (options.step_bytes > 0) all.back()["step_waits_us"] = row.step_waits.at(name) * 1e6;
    }
  }
  return {{"format", "lockstep-simulation-1"}, {"rows", all}};
}

std::string picture_of(const SimulateOptions& options, const std::vector<SimulatedRow>& rows) {
  const bool is_growth = options.ranks.size() > 1;
  std::vector<lockstep::base::LogLine> lines;
  for (const std::string& column : columns_of(rows)) {
    // Growth is of one size: the largest.
    lockstep::base::LogLine line{.name = column};
    for (const SimulatedRow& row : rows) {
      const auto found = row.times.find(column);
      if (found == row.times.end() || (is_growth && row.bytes != options.bytes.back())) continue;
      line.points.push_back(
          {is_growth ? row.ranks : static_cast<double>(row.bytes), found->second.seconds * 1e6});
    }
    lines.push_back(std::move(line));
  }
  const std::string what = is_growth ? "of " + size_text(options.bytes.back())
                                     : "among " + lockstep::base::counted(options.ranks.front(), "rank");
  return draw_log_chart(lines, std::string(to_string(options.operation)) + " " + what,
                        is_growth ? "ranks" : "bytes", "microseconds");
}

/// A file that was asked for, or none. It is made first: who cannot have it need not wait for what would stand in it.
class Output {
 public:
  Output(const std::string& path, const char* kind) {
    if (!path.empty()) file_.emplace(path, kind);
  }
  template <class MakeText>
  void write(MakeText text) {
    if (!file_) return;
    const std::string whole = text();
    file_->write(std::as_bytes(std::span(whole)));
    file_->commit();
  }

 private:
  std::optional<lockstep::FileReplacement> file_;
};

int simulate_all(const SimulateOptions& options, const SimulateFlags& flags) {
  Output json(flags.json, "JSON file"), svg(flags.svg, "picture");
  std::vector<SimulatedRow> rows;
  for (const std::uint64_t bytes : options.bytes) {
    for (const int ranks : options.ranks) rows.push_back(row_of(options, ranks, bytes));
  }
  const std::vector<std::string> columns = columns_of(rows);
  if (columns.empty()) lockstep::throw_invalid_argument("none of these algorithms can do that call");
  if (options.step_bytes > 0) {
    for (SimulatedRow& row : rows) add_step_waits(options, row);
  }
  std::string text = head_of(options, columns);
  for (const SimulatedRow& row : rows) text += line_of(options, row, columns);
  text += gaps_of(rows) + needs_of(rows.back()) + steps_of(options, rows);
  json.write([&] { return json_of(options, rows).dump(1) + "\n"; });
  svg.write([&] { return picture_of(options, rows); });
  return command_line::print(text);
}

}  // namespace

int simulate_command(const std::vector<std::string>& arguments) {
  SimulateFlags flags;
  CLI::App app("Simulates collectives on a cluster that need not be there.");
  describe(app, flags);
  SimulateOptions options;
  try {
    command_line::parse(app, arguments);
    options = to_options(flags);
  } catch (...) {
    return command_line::answer(app, "simulate");
  }
  try {
    return simulate_all(options, flags);
  } catch (const std::exception& error) {
    (void)std::fprintf(stderr, "lockstep simulate: %s\n", error.what());
    return 1;
  }
}

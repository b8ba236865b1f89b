#include "algorithms.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <memory>

#include "command_line.h"
#include "lockstep/base/env.h"
#include "lockstep/base/error.h"
#include "lockstep/schedule/cost.h"
#include "lockstep/schedule/draw.h"
#include "lockstep/schedule/replay.h"

namespace {

using lockstep::AlgorithmEntry;

constexpr const char* about_costs =
    R"(
Below each picture: how many rounds follow each other, and what the rank that does most sends, reads and
writes (by copies and sums, between separate buffers), where n is the size of the buffer (all_reduce, reduce,
broadcast) or of one rank's block. docs/algorithms.md says what each algorithm is for.

  lockstep algorithms ring
  lockstep algorithms --operation all_reduce --ranks 8 halving_doubling
)";

struct AlgorithmsFlags {
  std::string ranks = "4";
  std::string operation;
  std::string name;
};

void describe(CLI::App& app, AlgorithmsFlags& flags) {
  command_line::set_usage(app, "Usage: lockstep algorithms [--ranks N] [--operation OPERATION] [NAME]\n");
  app.footer(std::string(lockstep::schedule::picture_signs) + about_costs);
  app.add_option("--ranks", flags.ranks, "How many ranks are drawn [4]");
  app.add_option("--operation", flags.operation, "Only algorithms for this collective, such as all_reduce");
  app.add_option("NAME", flags.name, "Only this algorithm, such as ring");
}

/// Names that algorithms go by, each once.
template <class Name>
std::string names(Name name) {
  std::vector<std::string_view> all;
  for (const AlgorithmEntry& entry : lockstep::schedule::all_algorithms()) {
    if (!lockstep::schedule::is_seen(entry)) continue;
    if (std::find(all.begin(), all.end(), name(entry)) == all.end()) all.push_back(name(entry));
  }
  std::string text;
  for (const std::string_view one : all) text += (text.empty() ? "" : ", ") + std::string(one);
  return text;
}

/// Throws Error{invalid_argument} where nothing is meant.
std::vector<AlgorithmEntry> meant_by(const AlgorithmsFlags& flags) {
  const auto algorithm = [](const AlgorithmEntry& entry) { return entry.name; };
  const auto operation = [](const AlgorithmEntry& entry) { return to_string(entry.operation); };
  std::vector<AlgorithmEntry> found;
  bool is_name = flags.name.empty();
  bool is_operation = flags.operation.empty();
  for (const AlgorithmEntry& entry : lockstep::schedule::all_algorithms()) {
    if (!lockstep::schedule::is_seen(entry)) continue;
    const bool has_name = flags.name.empty() || flags.name == algorithm(entry);
    const bool has_operation = flags.operation.empty() || flags.operation == operation(entry);
    if (has_name && has_operation) found.push_back(entry);
    is_name = is_name || has_name;
    is_operation = is_operation || has_operation;
  }
  if (!is_name)
    lockstep::throw_invalid_argument("there is no algorithm " + flags.name + "; there are " +
                                     names(algorithm));
  if (!is_operation) {
    lockstep::throw_invalid_argument("there is no algorithm for " + flags.operation +
                                     "; there are some for " + names(operation));
  }
  if (found.empty()) lockstep::throw_invalid_argument(flags.name + " does no " + flags.operation);
  return found;
}

std::string text_of(const std::vector<AlgorithmEntry>& entries, int ranks) {
  std::string text;
  for (const AlgorithmEntry& entry : entries) {
    if (!text.empty()) text += "\n";
    text += std::string(entry.name) + " " + std::string(to_string(entry.operation)) + "\n" +
            lockstep::schedule::draw(entry, ranks) + lockstep::schedule::cost(entry, ranks) + "\n";
  }
  return text;
}

}  // namespace

int algorithms_command(const std::vector<std::string>& arguments) {
  AlgorithmsFlags flags;
  CLI::App app("Draws the algorithms of the collectives from their schedules, and counts what they cost.");
  describe(app, flags);
  try {
    command_line::parse(app, arguments);
    const std::vector<AlgorithmEntry> entries = meant_by(flags);
    const auto ranks =
        lockstep::env::parse_integer("--ranks", flags.ranks, 1, lockstep::schedule::most_replayed_ranks);
    return std::fputs(text_of(entries, static_cast<int>(ranks)).c_str(), stdout) < 0 ? 1 : 0;
  } catch (...) {
    return command_line::answer(app, "algorithms");
  }
}

#include "pipelines.h"

#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>

#include "command_line.h"
#include "lockstep/base/env.h"
#include "lockstep/base/error.h"
#include "lockstep/pipeline/draw.h"
#include "lockstep/pipeline/schedules.h"
#include "lockstep/pipeline/simulate.h"

namespace {

using lockstep::pipeline::Schedule;
using lockstep::pipeline::Shape;

constexpr const char* about =
    R"(
Below each picture: the share of time in which ranks have nothing to do (the bubble), and how many activations the rank that
keeps most keeps, each of one stage and one micro-batch. docs/strategies.md says what each schedule is for.

  lockstep pipelines 1f1b
  lockstep pipelines --ranks 4 --micro-batches 8 --stages-per-rank 2 interleaved
)";

// More do not fit on any screen.
constexpr int most_ranks = 64, most_micro_batches = 1024, most_stages = 16;

struct PipelinesFlags {
  std::string ranks = "4", micro_batches = "8", stages_per_rank;
  std::string name;
};

void describe(CLI::App& app, PipelinesFlags& flags) {
  command_line::set_usage(
      app, "Usage: lockstep pipelines [--ranks N] [--micro-batches M] [--stages-per-rank V] [NAME]\n");
  app.footer(std::string(lockstep::pipeline::picture_signs) + about);
  app.add_option("--ranks", flags.ranks, "How many ranks are drawn [4]");
  app.add_option("--micro-batches", flags.micro_batches, "Into how many parts a batch is cut [8]");
  app.add_option("--stages-per-rank", flags.stages_per_rank, "For interleaved [2], gpipe and naive [1]");
  app.add_option("NAME", flags.name, "Only this schedule, such as 1f1b");
}

std::string text_of(const Schedule& schedule, const Shape& shape) {
  const auto plan = lockstep::pipeline::plan_of(schedule, shape);
  const auto simulation =
      lockstep::pipeline::simulate(plan, lockstep::pipeline::equal_times(shape.stages, 1, 2));
  int most = 0;
  for (int rank = 0; rank < shape.ranks; ++rank)
    most = std::max(most, schedule.most_activations(shape, rank));
  return fmt::format("{}: {}\n{}bubble {:.1f} %, at most {} activations\n", schedule.name, schedule.purpose,
                     lockstep::pipeline::draw(schedule, shape), 100 * simulation.bubble, most);
}

std::string all_texts(const PipelinesFlags& flags) {
  using lockstep::env::parse_integer;
  Shape shape;
  shape.ranks = static_cast<int>(parse_integer("--ranks", flags.ranks, 1, most_ranks));
  shape.micro_batches =
      static_cast<int>(parse_integer("--micro-batches", flags.micro_batches, 1, most_micro_batches));
  std::string text;
  for (const Schedule& schedule : lockstep::pipeline::all_schedules()) {
    if (!flags.name.empty() && flags.name != schedule.name) continue;
    // All schedules at once: those that have one stage on each rank are shown with one.
    std::string stages = schedule.name == "interleaved" ? "2" : "1";
    if (!flags.stages_per_rank.empty() && (schedule.takes_several_stages || !flags.name.empty()))
      stages = flags.stages_per_rank;
    shape.stages = shape.ranks * static_cast<int>(parse_integer("--stages-per-rank", stages, 1, most_stages));
    text += (text.empty() ? "" : "\n") + text_of(schedule, shape);
  }
  if (text.empty()) (void)lockstep::pipeline::schedule_named(flags.name);  // says which there are
  return text;
}

}  // namespace

int pipelines_command(const std::vector<std::string>& arguments) {
  PipelinesFlags flags;
  CLI::App app("Draws the schedules of pipelines, and says how long ranks have nothing to do.");
  describe(app, flags);
  try {
    command_line::parse(app, arguments);
    return command_line::print(all_texts(flags));
  } catch (...) {
    return command_line::answer(app, "pipelines");
  }
}

#include "lockstep/pipeline/draw.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "lockstep/pipeline/simulate.h"

namespace lockstep::pipeline {

const char* const picture_signs =
    R"(F3      forward of this rank's stage with micro-batch 3
B3 --   its backward, which takes twice as long
F3b     of the second of this rank's stages
..      nothing to do
)";

namespace {

std::string cell(const Shape& shape, const Action& action) {
  std::string text = fmt::format("{}{}", action.kind == ActionKind::forward ? 'F' : 'B', action.micro_batch);
  if (shape.stages_per_rank() > 1) text += static_cast<char>('a' + action.stage / shape.ranks % 26);
  return text;
}

}  // namespace

std::string draw(const Schedule& schedule, const Shape& shape) {
  const Simulation simulation =
      simulate(plan_of(schedule, shape), equal_times(shape.stages, shape.stages, 2.0 * shape.stages));
  const auto columns = static_cast<std::size_t>(std::llround(simulation.seconds));
  std::vector<std::vector<std::string>> rows;
  std::size_t width = 2;
  for (const auto& spans : simulation.ranks) {
    auto& row = rows.emplace_back(columns, "..");
    for (const Span& span : spans) {
      const auto begin = static_cast<std::size_t>(std::llround(span.begin));
      row[begin] = cell(shape, span.action);
      width = std::max(width, row[begin].size());
      if (span.action.kind == ActionKind::backward) row[begin + 1] = "--";
    }
  }
  std::string text;
  for (std::size_t rank = 0; rank < rows.size(); ++rank) {
    std::string line = fmt::format("rank {:<{}} ", rank, std::to_string(rows.size() - 1).size());
    for (const std::string& each : rows[rank]) line += fmt::format(" {:<{}}", each, width);
    text += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  }
  return text;
}

}  // namespace lockstep::pipeline

#include "lockstep/train/parameter_server/task_list.h"

#include <utility>

namespace lockstep::ps {

std::uint64_t TaskList::add(std::string name, std::string argument) {
  open_[++added_] = {.name = std::move(name), .argument = std::move(argument)};
  waiting_.push_back(added_);
  return added_;
}

std::optional<Assignment> TaskList::take() {
  if (waiting_.empty()) return std::nullopt;
  const std::uint64_t number = waiting_.front();
  waiting_.pop_front();
  Task& task = open_.at(number);
  ++task.attempts;
  return Assignment{
      .task = number, .settled_below = open_.begin()->first, .name = task.name, .argument = task.argument};
}

void TaskList::note_done(std::uint64_t task, std::string result) { settle(task, std::move(result), ""); }

void TaskList::note_failure(std::uint64_t task, const std::string& error) {
  const auto found = open_.find(task);
  if (found == open_.end()) return;
  if (found->second.attempts >= most_attempts_) return settle(task, "", error);
  waiting_.push_back(task);
}

void TaskList::settle(std::uint64_t task, std::string result, std::string error) {
  const auto found = open_.find(task);
  if (found == open_.end()) return;  // of a worker that was given up, which has done it all the same
  over_[task] = {.task = task,
                 .name = found->second.name,
                 .result = std::move(result),
                 .error = std::move(error),
                 .attempts = found->second.attempts};
  open_.erase(found);
  std::erase(waiting_, task);
}

std::vector<Outcome> TaskList::take_outcomes() {
  std::vector<Outcome> outcomes;
  for (auto& [number, outcome] : std::exchange(over_, {})) outcomes.push_back(std::move(outcome));
  return outcomes;
}

}  // namespace lockstep::ps

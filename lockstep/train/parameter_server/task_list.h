// The tasks of a coordinator: which are waiting, who has which, and what has become of them.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace lockstep::ps {

/// What a worker is given. Bytes are whatever the program makes of them.
struct Assignment {
  std::uint64_t task = 0;           ///< its number, from 1
  std::uint64_t settled_below = 1;  ///< tasks below this number are over, and nobody has them any more
  std::string name, argument;
};

/// What has become of a task.
struct Outcome {
  std::uint64_t task = 0;
  std::string name, result;
  std::string error;  ///< "": done
  int attempts = 0;
};

/// Decisions alone. A task that failed, or whose worker died, is given to the next worker, up to so many times. Thread safety: none.
class TaskList {
 public:
  explicit TaskList(int most_attempts) : most_attempts_(most_attempts) {}

  std::uint64_t add(std::string name, std::string argument);
  /// The next one that waits, now under way. nullopt: none waits.
  std::optional<Assignment> take();
  void note_done(std::uint64_t task, std::string result);
  /// `error`: what it threw, or how its worker ended.
  void note_failure(std::uint64_t task, const std::string& error);

  bool has_waiting() const { return !waiting_.empty(); }
  /// All tasks are over.
  bool is_over() const { return open_.empty(); }
  std::size_t open() const { return open_.size(); }
  /// Of those that are over, by number; they are forgotten here.
  std::vector<Outcome> take_outcomes();

 private:
  struct Task {
    std::string name, argument;
    int attempts = 0;
  };
  void settle(std::uint64_t task, std::string result, std::string error);

  int most_attempts_;
  std::uint64_t added_ = 0;
  std::map<std::uint64_t, Task> open_;  // waiting or under way
  std::deque<std::uint64_t> waiting_;
  std::map<std::uint64_t, Outcome> over_;
};

}  // namespace lockstep::ps

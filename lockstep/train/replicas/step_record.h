// A training step goes into the group's record when it is known what it waited for others: in main memory when the step ends, on a GPU
// when that comes so far, which the host does not wait for.
//
//   host     [ launches backward ]begin_wait()  end_wait()put()[ launches the next step ]   into the record
//   GPU      [ backward                    ]--[ waits: exposed ]--[ the optimizer ...          /
#pragma once

#include <c10/core/Event.h>
#include <torch/torch.h>

#include <deque>
#include <utility>
#include <vector>

#include "lockstep/group/group.h"
#include "lockstep/trace/event.h"

namespace lockstep {

/// Thread safety: none.
class StepRecord {
 public:
  explicit StepRecord(Group group) : group_(std::move(group)) {}
  StepRecord(const StepRecord&) = delete;
  StepRecord& operator=(const StepRecord&) = delete;
  /// What a GPU is not through with is recorded without its waits there.
  ~StepRecord();

  /// A step begins. What one before had that was not put() is forgotten, and what is known by now is recorded.
  void begin();
  /// Between these libtorch's current stream of `device` has nothing but calls, and waits for them; in main memory nothing is noted. A
  /// step may have several.
  void begin_wait(torch::Device device);
  void end_wait();
  /// The step is over for the host. Its waits on a GPU are added to `exposed_wait_ns`.
  void put(const trace::TrainingStepEvent& step);

 private:
  struct Wait {
    c10::Event from, to;
  };
  struct Coming {
    std::vector<Wait> waits;
    trace::TrainingStepEvent step;
  };
  void take_up();

  Group group_;
  std::vector<Wait> waits_;  // of the step that is under way
  std::deque<Coming> coming_;
};

}  // namespace lockstep

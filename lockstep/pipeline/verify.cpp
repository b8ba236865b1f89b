#include "lockstep/pipeline/verify.h"

#include <fmt/core.h>

#include <deque>
#include <map>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

namespace lockstep::pipeline {
namespace {

struct Refused {
  std::string reason;
};

using Cell = std::pair<int, int>;  // stage, micro-batch

class Run {
 public:
  Run(const Schedule& schedule, const Plan& plan)
      : schedule_(schedule), plan_(plan), next_(plan.ranks.size()), ranks_(plan.ranks.size()) {}

  void all() {
    for (bool has_moved = true; has_moved;) {
      has_moved = false;
      for (std::size_t rank = 0; rank < plan_.ranks.size(); ++rank) {
        while (next_[rank] < plan_.ranks[rank].size() && can_do(rank, plan_.ranks[rank][next_[rank]])) {
          ++next_[rank];
          has_moved = true;
        }
      }
    }
    for (std::size_t rank = 0; rank < plan_.ranks.size(); ++rank) {
      if (next_[rank] == plan_.ranks[rank].size()) continue;
      throw Refused{
          fmt::format("deadlock: rank {} waits in the {}", rank, to_string(plan_.ranks[rank][next_[rank]]))};
    }
    for (const auto& [between, messages] : under_way_) {
      if (!messages.empty())
        throw Refused{fmt::format("the {} is never received", to_string(messages.front()))};
    }
    for (int stage = 0; stage < plan_.shape.stages; ++stage) {
      for (int i = 0; i < plan_.shape.micro_batches; ++i) {
        const Rank& rank = ranks_[static_cast<std::size_t>(plan_.shape.rank_of(stage))];
        if (!rank.backwards.contains({stage, i}))
          throw Refused{fmt::format("stage {} has no backward with micro-batch {}", stage, i)};
      }
    }
  }

 private:
  struct Rank {
    std::set<Cell> forwards, backwards, activations,
        gradients;  // what has run; what has come from other ranks
    std::map<int, int> backwards_of_stage;
    int kept = 0;
  };

  [[noreturn]] void refuse(std::size_t rank, const Action& action, const std::string& why) const {
    throw Refused{fmt::format("rank {}, {}: {}", rank, to_string(action), why)};
  }

  /// Does it, unless it has to wait.
  bool can_do(std::size_t rank, const Action& action) {
    require_in_shape(rank, action);
    switch (action.kind) {
      case ActionKind::forward: forward(rank, action); return true;
      case ActionKind::backward: backward(rank, action); return true;
      case ActionKind::send: send(rank, action); return true;
      case ActionKind::receive: return receive(rank, action);
    }
    return false;
  }

  void require_in_shape(std::size_t rank, const Action& action) const {
    const Shape& shape = plan_.shape;
    if (action.stage < 0 || action.stage >= shape.stages) refuse(rank, action, "there is no such stage");
    if (action.micro_batch < 0 || action.micro_batch >= shape.micro_batches)
      refuse(rank, action, "there is no such micro-batch");
    const bool is_message = action.kind == ActionKind::send || action.kind == ActionKind::receive;
    if (is_message &&
        (action.peer < 0 || action.peer >= shape.ranks || action.peer == static_cast<int>(rank)))
      refuse(rank, action, "that is no other rank");
    const int home = shape.rank_of(action.stage);
    if (action.kind == ActionKind::receive ? home != action.peer : home != static_cast<int>(rank))
      refuse(rank, action, fmt::format("the stage lies on rank {}", home));
  }

  void forward(std::size_t rank, const Action& action) {
    Rank& mine = ranks_[rank];
    const Cell cell{action.stage, action.micro_batch}, before{action.stage - 1, action.micro_batch};
    if (!mine.forwards.insert(cell).second) refuse(rank, action, "it has run before");
    if (action.stage > 0) {
      const bool is_here = plan_.shape.rank_of(action.stage - 1) == static_cast<int>(rank);
      if (!(is_here ? mine.forwards : mine.activations).contains(before))
        refuse(rank, action, "its input is not there");
    }
    const int most = schedule_.most_activations(plan_.shape, static_cast<int>(rank));
    if (++mine.kept > most)
      refuse(rank, action,
             fmt::format("the rank keeps the activations of {}, and {} was promised", mine.kept, most));
  }

  void backward(std::size_t rank, const Action& action) {
    Rank& mine = ranks_[rank];
    const Cell cell{action.stage, action.micro_batch}, after{action.stage + 1, action.micro_batch};
    if (!mine.forwards.contains(cell)) refuse(rank, action, "its forward has not run");
    if (!mine.backwards.insert(cell).second) refuse(rank, action, "it has run before");
    if (mine.backwards_of_stage[action.stage]++ != action.micro_batch)
      refuse(rank, action, "backwards of a stage come in the order of micro-batches");
    if (action.stage + 1 < plan_.shape.stages) {
      const bool is_here = plan_.shape.rank_of(action.stage + 1) == static_cast<int>(rank);
      if (!(is_here ? mine.backwards : mine.gradients).contains(after))
        refuse(rank, action, "its gradient is not there");
    }
    --mine.kept;
  }

  void send(std::size_t rank, const Action& action) {
    const Rank& mine = ranks_[rank];
    const bool is_activation = action.payload == Payload::activation;
    if (!(is_activation ? mine.forwards : mine.backwards).contains({action.stage, action.micro_batch}))
      refuse(rank, action, "what it sends has not been computed");
    if (action.peer != reader_of(action)) refuse(rank, action, "that rank does not need it");
    under_way_[{static_cast<int>(rank), action.peer, action.payload}].push_back(action);
  }

  int reader_of(const Action& message) const {
    const int stage = message.stage + (message.payload == Payload::activation ? 1 : -1);
    return stage < 0 || stage >= plan_.shape.stages ? -1 : plan_.shape.rank_of(stage);
  }

  bool receive(std::size_t rank, const Action& action) {
    auto& messages = under_way_[{action.peer, static_cast<int>(rank), action.payload}];
    if (messages.empty()) return false;
    const Action& sent = messages.front();
    if (sent.stage != action.stage || sent.micro_batch != action.micro_batch ||
        sent.payload != action.payload)
      refuse(rank, action, fmt::format("what comes next from there is the {}", to_string(sent)));
    messages.pop_front();
    Rank& mine = ranks_[rank];
    (action.payload == Payload::activation ? mine.activations : mine.gradients)
        .insert({action.stage, action.micro_batch});
    return true;
  }

  const Schedule& schedule_;
  const Plan& plan_;
  std::vector<std::size_t> next_;
  std::vector<Rank> ranks_;
  std::map<std::tuple<int, int, Payload>, std::deque<Action>> under_way_;  // from, to
};

}  // namespace

Verdict verify(const Schedule& schedule, const Plan& plan) {
  if (plan.ranks.size() != static_cast<std::size_t>(plan.shape.ranks))
    return {.proven = false,
            .reason = fmt::format("a plan of {} ranks for {}", plan.ranks.size(), plan.shape.ranks)};
  try {
    Run(schedule, plan).all();
    return {.proven = true, .reason = ""};
  } catch (const Refused& refused) {
    return {.proven = false, .reason = refused.reason};
  }
}

}  // namespace lockstep::pipeline

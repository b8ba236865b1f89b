#include "lockstep/schedule/cost.h"

#include <fmt/core.h>

#include <algorithm>
#include <bit>
#include <map>

#include "lockstep/base/words.h"
#include "lockstep/schedule/replay.h"

namespace lockstep::schedule {
namespace {

class Count {
 public:
  explicit Count(const Replay& run)
      : run_(run), roundings_(run), ranks_(static_cast<std::size_t>(run.ranks())) {}

  Cost all() {
    replay(run_, [this](const Taken& taken) { take(taken); });
    Cost cost{.roundings = most_roundings_};
    const auto elements = static_cast<double>(std::max<std::size_t>(run_.calls[0].elements, 1));
    for (const Rank& rank : ranks_) {
      cost.rounds = std::max(cost.rounds, rank.waits);
      cost.messages = std::max(cost.messages, rank.messages);
      cost.sent = std::max(cost.sent, static_cast<double>(rank.sent) / elements);
      cost.read = std::max(cost.read, static_cast<double>(rank.read) / elements);
      cost.written = std::max(cost.written, static_cast<double>(rank.written) / elements);
    }
    return cost;
  }

 private:
  struct Message {
    int waits = 0;
    std::vector<int> roundings;
  };
  struct Rank {
    int waits = 0;
    std::vector<int> arrivals = {};  // waits before each
    std::map<std::size_t, Message> messages_sent = {};
    std::size_t messages = 0, sent = 0, read = 0, written = 0;
  };

  Rank& at(int rank) { return ranks_[static_cast<std::size_t>(rank)]; }

  void take(const Taken& taken) {
    Rank& rank = at(taken.rank);
    const Step& step = taken.step;
    const Schedule& schedule = run_.schedule(taken.rank);
    switch (step.kind) {
      case StepKind::send:
        ++rank.messages;
        rank.sent += step.elements;
        rank.messages_sent[taken.index] = {rank.waits,
                                           roundings_.read(schedule.sources(step)[0], step.elements)};
        break;
      case StepKind::wait:
        if (taken.sender >= 0) receive(taken);
        break;
      case StepKind::copy:
      case StepKind::reduce: compute(taken); break;
      case StepKind::arrive: rank.arrivals.push_back(rank.waits); break;
      case StepKind::await:
        for (int other = 0; other < run_.ranks(); ++other) {
          if (share_a_host(run_.calls[0], taken.rank, other))
            rank.waits = std::max(rank.waits, at(other).arrivals[step.target - 1] + 1);
        }
        break;
      case StepKind::receive:
      case StepKind::exchange: break;
    }
  }

  void receive(const Taken& wait) {
    const Schedule& schedule = run_.schedule(wait.rank);
    const Message& message = at(wait.sender).messages_sent[wait.send];
    at(wait.rank).waits = std::max(at(wait.rank).waits, message.waits + 1);
    roundings_.write(schedule.destinations(schedule.steps()[wait.step.target])[0], message.roundings);
  }

  void compute(const Taken& taken) {
    const Schedule& schedule = run_.schedule(taken.rank);
    const auto sources = schedule.sources(taken.step);
    const auto destinations = schedule.destinations(taken.step);
    at(taken.rank).read += sources.size() * taken.step.elements;
    at(taken.rank).written += destinations.size() * taken.step.elements;
    std::vector<int> result = roundings_.read(sources[0], taken.step.elements);
    for (const Place& place : sources.subspan(1)) {
      const std::vector<int> other = roundings_.read(place, taken.step.elements);
      for (std::size_t index = 0; index < result.size(); ++index)
        result[index] = std::max(result[index], other[index]);
    }
    if (sources.size() > 1) {
      for (int& roundings : result) most_roundings_ = std::max(most_roundings_, ++roundings);
    }
    for (const Place& place : destinations) roundings_.write(place, result);
  }

  const Replay& run_;
  Memories<int> roundings_;  // of each element so far
  int most_roundings_ = 0;
  std::vector<Rank> ranks_;
};

/// "1.5 n"; "n" instead of "1 n".
std::string of_n(double factor) { return factor == 1 ? "n" : fmt::format("{:.4g} n", factor); }

}  // namespace

Cost cost_of(const AlgorithmEntry& entry, int ranks) {
  // A chunk that can be halved again and again, and divided among all, so that all shares come out even.
  const auto p = static_cast<std::size_t>(ranks);
  const Replay run = replay_of(entry, ranks, std::bit_ceil(p) * p);
  return Count(run).all();
}

std::string cost(const AlgorithmEntry& entry, int ranks) {
  const Cost cost = cost_of(entry, ranks);
  std::string most;
  if (cost.messages > 0)
    most += ", sends " + base::counted(static_cast<std::int64_t>(cost.messages), "message");
  if (cost.sent > 0) most += " (" + of_n(cost.sent) + ")";
  if (cost.read > 0) most += ", reads " + of_n(cost.read) + ", writes " + of_n(cost.written);
  std::string text = base::counted(cost.rounds, "round");
  if (!most.empty()) text += "; at most, a rank" + most.substr(1);
  if (cost.roundings == 1) text += "; halves are rounded once";
  if (cost.roundings > 1) text += fmt::format("; halves are rounded {} times", cost.roundings);
  return text;
}

}  // namespace lockstep::schedule

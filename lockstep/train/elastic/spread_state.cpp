#include "lockstep/train/elastic/spread_state.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <functional>
#include <numeric>
#include <span>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/group/collectives.h"
#include "lockstep/train/optimizer/optimizer_state.h"
#include "lockstep/train/optimizer/parameter_state.h"
#include "lockstep/train/replicas/broadcast_tensors.h"

namespace lockstep {
namespace {

void* key_of(const NamedTensor& parameter) { return parameter.tensor.unsafeGetTensorImpl(); }

bool is_holder(int rank, int owner, int ranks) { return rank == owner || rank == (owner + 1) % ranks; }

bool has_any(const std::vector<bool>& chosen) { return std::ranges::find(chosen, true) != chosen.end(); }

/// Of each parameter the rank whose it is, where so many ranks share `bytes`.
std::vector<int> owners_of(std::span<const std::size_t> bytes, int ranks) {
  std::vector<std::size_t> by_size(bytes.size());
  std::iota(by_size.begin(), by_size.end(), std::size_t{0});
  std::ranges::stable_sort(by_size, std::greater{}, [&](std::size_t i) { return bytes[i]; });
  std::vector<std::size_t> loads(static_cast<std::size_t>(ranks));
  std::vector<int> owners(bytes.size());
  for (const std::size_t i : by_size) {
    const auto least = std::ranges::min_element(loads);
    *least += bytes[i];
    owners[i] = static_cast<int>(least - loads.begin());
  }
  return owners;
}

}  // namespace

SpreadState::SpreadState(std::vector<NamedTensor> parameters, torch::optim::Optimizer& optimizer)
    : parameters_(std::move(parameters)), optimizer_(optimizer), held_(parameters_.size(), 1) {}

void SpreadState::deal(const Group& group) {
  const std::size_t count = parameters_.size();
  const int me = group.rank(), ranks = group.size();
  std::vector<std::uint8_t> held(count * static_cast<std::size_t>(ranks));
  all_gather(group, held_, held).wait();
  const auto holds = [&](int rank, std::size_t i) {
    return held[static_cast<std::size_t>(rank) * count + i] != 0;
  };

  std::vector<int> sources(count);
  std::vector<std::size_t> bytes(count);
  for (std::size_t i = 0; i < count; ++i) {
    bytes[i] = parameters_[i].tensor.nbytes();
    while (sources[i] < ranks && !holds(sources[i], i)) ++sources[i];
    if (sources[i] == ranks)
      throw Error(
          ErrorCode::corrupt_data,
          "Elastic: the optimizer's state of " + parameters_[i].label() +
              " is lost: the two ranks that had it have died together; begin anew, from a checkpoint");
  }
  owners_ = owners_of(bytes, ranks);
  broadcast_values(group, sources);
  for (int source = 0; source < ranks; ++source) {
    Chosen moves(count), wanted(count);
    for (std::size_t i = 0; i < count; ++i) {
      for (int rank = 0; sources[i] == source && rank < ranks; ++rank) {
        if (!is_holder(rank, owners_[i], ranks) || holds(rank, i)) continue;
        moves[i] = true;
        if (rank == me) wanted[i] = true;
      }
    }
    hand_on(group, source, moves, wanted);
    for (std::size_t i = 0; i < count; ++i) {
      if (wanted[i]) held_[i] = 1;
    }
  }
  std::array<std::uint8_t, 1> all_have_it{1};  // only then may anybody forget
  all_reduce(group, all_have_it).wait();
  Chosen kept(count);
  for (std::size_t i = 0; i < count; ++i) kept[i] = is_holder(me, owners_[i], ranks);
  keep_state(kept);
  std::ranges::copy(kept, held_.begin());
}

void SpreadState::leave_others() {
  Chosen kept(held_.begin(), held_.end());
  keep_state(kept);
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    if (!kept[i]) parameters_[i].tensor.mutable_grad().reset();
  }
}

void SpreadState::gather(const Group& group) const { broadcast_values(group, owners_); }

void SpreadState::gather_state(const Group& group, int root) {
  for (int source = 0; source < group.size(); ++source) {
    Chosen theirs(parameters_.size());
    for (std::size_t i = 0; i < theirs.size(); ++i) theirs[i] = owners_[i] == source;
    if (source != root) hand_on(group, source, theirs, group.rank() == root ? theirs : Chosen());
  }
}

void SpreadState::hand_on(const Group& group, int source, const Chosen& moves, const Chosen& wanted) {
  if (!has_any(moves)) return;
  const std::string text =
      broadcast_text(group, group.rank() == source ? state_of(moves) : std::string(), source);
  if (has_any(wanted)) take_state(text, wanted);
}

void SpreadState::broadcast_values(const Group& group, const std::vector<int>& from) const {
  for (int rank = 0; rank < group.size(); ++rank) {
    std::vector<NamedTensor> theirs;
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      if (from[i] == rank) theirs.push_back(parameters_[i]);
    }
    broadcast_tensors(group, theirs, rank);
  }
}

std::string SpreadState::state_of(const Chosen& chosen) const {
  ParameterStates& states = optimizer_.state();
  ParameterStates others;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const auto found = states.find(key_of(parameters_[i]));
    if (chosen[i] || found == states.end()) continue;
    others[found->first] = std::move(found->second);
    states.erase(found);
  }
  std::string text = optimizer_state(optimizer_);
  for (auto& [key, state] : others) states[key] = std::move(state);
  return text;
}

void SpreadState::take_state(const std::string& text, const Chosen& wanted) {
  ParameterStates& states = optimizer_.state();
  ParameterStates own = std::exchange(states, {});
  const std::string options = optimizer_options(optimizer_);  // a rank that is a step ahead may have others
  restore_optimizer(optimizer_, text);
  restore_options(optimizer_, options);
  keep_state(wanted);
  for (auto& [key, state] : own) {
    if (states.find(key) == states.end()) states[key] = std::move(state);
  }
}

void SpreadState::keep_state(const Chosen& kept) const {
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    if (!kept[i]) optimizer_.state().erase(key_of(parameters_[i]));
  }
}

}  // namespace lockstep

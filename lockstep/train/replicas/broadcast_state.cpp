#include "lockstep/train/replicas/broadcast_state.h"

#include <exception>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/group/collectives.h"
#include "lockstep/train/optimizer/optimizer_state.h"
#include "lockstep/train/replicas/broadcast_tensors.h"
#include "lockstep/train/replicas/model_tensors.h"
#include "lockstep/train/replicas/named_tensor.h"
#include "lockstep/train/replicas/same_facts.h"

namespace lockstep {
namespace {

// In front of what travels: whether it is a value, or why it is none.
constexpr char is_value = 'v', is_failure = 'f';

std::string to_bytes(const c10::IValue& value) {
  try {
    const auto bytes = torch::pickle_save(value);
    return std::string(1, is_value).append(bytes.begin(), bytes.end());
  } catch (const std::exception& error) {
    const std::string why = error.what();
    return std::string(1, is_failure).append(why, 0, why.find('\n'));
  }
}

c10::IValue to_value(const std::string& bytes, int rank) {
  const std::string name = "the object of rank " + std::to_string(rank);
  if (bytes.empty() || bytes[0] != is_value) {
    throw_invalid_argument(name + " cannot be sent: " + bytes.substr(bytes.empty() ? 0 : 1) +
                           "; send numbers, strings, tensors, and lists, tuples and dictionaries of them");
  }
  return torch::pickle_load({bytes.begin() + 1, bytes.end()});
}

/// Every rank's `problem`, which is empty where there is none: the first is everybody's error.
void throw_first(const Group& group, const std::string& problem) {
  const std::vector<std::size_t> mine = {problem.size()};
  std::vector<std::size_t> sizes(static_cast<std::size_t>(group.size()));
  all_gather(group, mine, sizes).wait();
  for (int rank = 0; rank < group.size(); ++rank) {
    const auto size = sizes[static_cast<std::size_t>(rank)];
    if (size == 0) continue;
    std::string text = problem;
    text.resize(size);
    broadcast(group, text, rank).wait();
    throw_invalid_argument("on rank " + std::to_string(group.world_rank(rank)) + " " + text);
  }
}

}  // namespace

void broadcast_parameters(const Group& group, const torch::nn::Module& module, int root) {
  const auto tensors = tensors_of(module);
  require_same_facts(group, facts_of(tensors), "Build the same model on every rank");
  broadcast_tensors(group, tensors, root);
}

void broadcast_optimizer_state(const Group& group, torch::optim::Optimizer& optimizer, int root) {
  if (group.size() == 1) return;
  const bool is_root = group.rank() == root;
  std::string own, problem;
  try {
    if (is_root) own = optimizer_state(optimizer);
  } catch (const Error& error) {
    problem = error.what();
  }
  throw_first(group, std::exchange(problem, {}));
  const auto state = broadcast_text(group, std::move(own), root);
  try {
    require_fitting_state(state, optimizer, "what rank " + std::to_string(group.world_rank(root)) + " sends");
  } catch (const Error& error) {
    problem = error.what();
  }
  throw_first(group, problem);
  if (!is_root) restore_optimizer(optimizer, state);
}

c10::IValue broadcast_object(const Group& group, const c10::IValue& value, int root) {
  return to_value(broadcast_text(group, group.rank() == root ? to_bytes(value) : std::string(), root),
                  group.world_rank(root));
}

std::vector<c10::IValue> all_gather_object(const Group& group, const c10::IValue& value) {
  const auto mine = to_bytes(value);
  const auto ranks = static_cast<std::size_t>(group.size());
  const std::vector<std::size_t> size = {mine.size()};
  std::vector<std::size_t> sizes(ranks);
  all_gather(group, size, sizes).wait();
  std::size_t all_bytes = 0;
  for (const auto bytes : sizes) all_bytes += bytes;
  std::string all(all_bytes, '\0');
  all_gather_v(group, mine, all, sizes).wait();
  std::vector<c10::IValue> values;
  std::size_t begin = 0;
  for (std::size_t rank = 0; rank < ranks; begin += sizes[rank++])
    values.push_back(to_value(all.substr(begin, sizes[rank]), group.world_rank(static_cast<int>(rank))));
  return values;
}

}  // namespace lockstep

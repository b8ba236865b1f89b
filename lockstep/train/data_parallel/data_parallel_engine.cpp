#include "lockstep/train/data_parallel/data_parallel_engine.h"

#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/group/collectives.h"
#include "lockstep/train/replicas/broadcast_tensors.h"
#include "lockstep/train/replicas/model_tensors.h"
#include "lockstep/train/replicas/named_tensor.h"
#include "lockstep/train/replicas/parameter_drift.h"
#include "lockstep/train/replicas/same_facts.h"
#include "lockstep/train/replicas/sparse_gradients.h"
#include "lockstep/train/replicas/sync_batch_norm.h"
#include "lockstep/train/replicas/told_where.h"
#include "lockstep/train/tensor/openmp_runtimes.h"
#include "lockstep/train/tensor/tensor_bytes.h"
#include "lockstep/train/tensor/traced_operators.h"

namespace lockstep {
namespace {

std::vector<Fact> facts_of(const DataParallelOptions& options) {
  const auto yes_or_no = [](bool value) { return std::string(value ? "on" : "off"); };
  return {{"option first_bucket_bytes", std::to_string(options.first_bucket_bytes)},
          {"option bucket_cap_bytes", std::to_string(options.bucket_cap_bytes)},
          {"option broadcast_buffers", yes_or_no(options.broadcast_buffers)},
          {"option find_unused_parameters", yes_or_no(options.find_unused_parameters)},
          {"option static_graph", yes_or_no(options.static_graph)},
          {"option compare_parameters", yes_or_no(options.compare_parameters)},
          {"option non_finite", std::to_string(static_cast<int>(options.non_finite))},
          {"communication hook", options.communication_hook ? options.communication_hook->name() : "none"}};
}

/// As tensors of their own in the same memory, so that autograd does not see them change: what the backward
/// of an earlier forward needs of batch norm's statistics, it saved.
}  // namespace

DataParallelEngine::DataParallelEngine(std::shared_ptr<torch::nn::Module> module, const Group& group,
                                       const DataParallelOptions& options)
    : module_(std::move(module)),
      group_(group),
      options_(options),
      hook_claim_(options.communication_hook),
      contributors_(group.size()) {
  warn_of_two_openmp_runtimes();
  trace_operators_if_asked();
  make_hooks();
  if (options_.shared_heap && group_.size() > 1) heap_ = SharedHeap::unless_there_is_one(group_);
}

DataParallelEngine::~DataParallelEngine() = default;

void DataParallelEngine::make_hooks() {
  hooks_.reset();  // before others take their place
  const auto tensors = tensors_of(*module_);
  auto facts = lockstep::facts_of(tensors, "DistributedDataParallel");
  const std::size_t before_tensors = facts.size() - tensors.size();
  const auto are_sparse = sparse_gradients(*module_, tensors);
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (are_sparse[i] != 0) facts[before_tensors + i].value += " (sparse gradient)";
  }
  std::ranges::move(facts_of(options_), std::back_inserter(facts));
  require_same_facts(group_, facts, "Build the same model, with the same options, on every rank");
  for (const auto& item : tensors) require_averageable(item);
  if (!needs_hooks()) return;
  broadcast_tensors(group_, tensors);
  auto trainable = distinct_parameters(tensors, true);
  auto trainable_sparse = sparse_gradients(*module_, trainable);
  const auto agreement = options_.compare_parameters ? std::make_shared<ParameterDrift>(trainable) : nullptr;
  auto reducer = std::make_unique<Reducer>(
      group_, std::move(trainable), std::move(trainable_sparse),
      ReducerOptions{
          .limits = {.first_bytes = options_.first_bucket_bytes, .cap_bytes = options_.bucket_cap_bytes},
          .find_unused = options_.find_unused_parameters,
          .static_graph = options_.static_graph,
          .non_finite = options_.non_finite,
          .hook = options_.communication_hook,
          .agreement = agreement});
  if (options_.communication_hook) options_.communication_hook->forget();
  hooks_ = GradientHooks::attach(std::move(reducer), {.frozen = distinct_parameters(tensors, false)});
  hooks_->set_contributors(contributors_);
}

bool DataParallelEngine::needs_hooks() const {
  return group_.size() > 1 || options_.non_finite != NonFinite::ignore;
}

/// Anew also after a model that the ranks had changed differently.
void DataParallelEngine::follow_model() {
  if (!hooks_ || !hooks_->fit()) make_hooks();
}

GradientHooks* DataParallelEngine::prepare_forward() {
  if (!needs_hooks() || no_sync_ > 0 || !module_->is_training() || !torch::GradMode::is_enabled())
    return nullptr;
  telling_where("what comes before a forward of DistributedDataParallel", [this] { follow_others(); });
  return hooks_.get();
}

/// Collective: what has to be alike before a forward.
void DataParallelEngine::follow_others() {
  int source = 0;
  if (joining_) {
    (void)meet(true);
    source = joining_->source;
  }
  follow_model();
  if (hooks_) still_.look(hooks_->parameters());
  if (options_.broadcast_buffers) spread_buffers(source);
}

/// libtorch gives a tensor any shape that the file has, and stops in the middle where a name is missing.
void DataParallelEngine::load(torch::serialize::InputArchive& archive) {
  std::vector<std::pair<NamedTensor, torch::Tensor>> before;
  for (const auto& item : tensors_of(*module_)) before.emplace_back(item, item.tensor.variable_data());
  const auto put_back = [&] {
    for (const auto& [item, data] : before) item.tensor.set_data(data);
  };
  try {
    module_->load(archive);
  } catch (...) {
    put_back();
    throw;
  }
  const auto misfit = std::ranges::find_if(before, [](const auto& one) {
    return one.first.tensor.sizes() != one.second.sizes() || one.first.tensor.dtype() != one.second.dtype();
  });
  if (misfit == before.end()) return;
  const std::string found = describe(misfit->first.tensor);
  put_back();
  throw_invalid_argument(misfit->first.label() + " is " + describe(misfit->second) + ", and " + found +
                         " in the archive: it is another model's; load what was saved of this one");
}

void DataParallelEngine::spread_buffers(int source) {
  broadcast_tensors(group_, buffers_of(*module_), source);
}

void DataParallelEngine::set_contributors(int count) {
  contributors_ = count;
  if (hooks_) hooks_->set_contributors(count);
}

/// Collective: who still has inputs. False if nobody has.
bool DataParallelEngine::meet(bool has_inputs) {
  const std::array<std::uint8_t, 1> mine = {has_inputs};
  std::vector<std::uint8_t> all(static_cast<std::size_t>(group_.size()));
  all_gather(group_, mine, all).wait();
  const auto active = static_cast<int>(std::ranges::count(all, 1));
  if (active == 0) return false;
  joining_->active = active;
  joining_->source = static_cast<int>(std::ranges::find(all, 1) - all.begin());
  ++joining_->rounds;
  if (joining_->options.throw_on_early_termination && active < group_.size()) {
    joining_->all_ranks_threw = true;
    const int first = group_.world_rank(static_cast<int>(std::ranges::find(all, 0) - all.begin()));
    throw Error(ErrorCode::aborted,
                "rank " + std::to_string(first) + " has no inputs left after " +
                    std::to_string(joining_->rounds - 1) +
                    " steps, while others have; give all ranks as many, or let them join",
                first);
  }
  set_contributors(joining_->options.divide_by_initial_size ? group_.size() : active);
  return true;
}

void DataParallelEngine::join(const std::function<void()>& body, const JoinOptions& options) {
  if (joining_) throw_invalid_argument("join() is called inside of join()");
  if (group_.size() == 1) return body();
  if (!options.throw_on_early_termination && has_sync_batch_norm(*module_)) {
    throw_invalid_argument(
        "join() with a synchronised batch norm: ranks that have no inputs left take no part in its forward; "
        "set throw_on_early_termination, or give all ranks as many batches");
  }
  joining_ = Joining{.options = options};
  struct End {
    DataParallelEngine& engine;
    ~End() {
      engine.joining_.reset();
      engine.set_contributors(engine.group_.size());
    }
  } const end{*this};
  try {
    body();
  } catch (...) {
    const bool all_ranks_threw = joining_->all_ranks_threw || !hooks_ || hooks_->all_ranks_threw();
    // The others count on this rank.
    if (!all_ranks_threw) group_.abort("an exception ended what it does in join() early");
    throw;
  }
  shadow_the_others();
}

void DataParallelEngine::shadow_the_others() {
  while (meet(false)) {
    follow_model();
    if (options_.broadcast_buffers) spread_buffers(joining_->source);
    hooks_->shadow();
  }
  if (joining_->rounds == 0 || joining_->active == group_.size()) return;
  broadcast_tensors(group_, tensors_of(*module_), joining_->source);
}

}  // namespace lockstep

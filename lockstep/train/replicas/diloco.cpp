#include "lockstep/train/replicas/diloco.h"

#include <c10/util/StringUtil.h>

#include <algorithm>
#include <array>

#include "lockstep/base/error.h"
#include "lockstep/base/words.h"
#include "lockstep/group/collectives.h"
#include "lockstep/train/replicas/broadcast_tensors.h"
#include "lockstep/train/replicas/finite_gradients.h"
#include "lockstep/train/replicas/model_average.h"
#include "lockstep/train/replicas/model_tensors.h"
#include "lockstep/train/replicas/same_facts.h"
#include "lockstep/train/tensor/flat_tensors.h"
#include "lockstep/train/tensor/gpu_place.h"
#include "lockstep/train/tensor/tensor_collectives.h"

namespace lockstep {
namespace {

using torch::Tensor;

bool are_finite(const std::vector<Tensor>& tensors) { return std::ranges::all_of(tensors, is_finite); }

std::vector<NamedTensor> buffers_among(const std::vector<NamedTensor>& tensors) {
  std::vector<NamedTensor> buffers;
  for (const NamedTensor& item : tensors) {
    if (!item.is_parameter) buffers.push_back(item);
  }
  return buffers;
}

/// In main memory, wherever they are.
std::vector<Tensor> copies_of(const std::vector<NamedTensor>& tensors) {
  std::vector<Tensor> copies;
  for (const NamedTensor& item : tensors)
    copies.push_back(item.tensor.detach().to(torch::kCPU, item.tensor.scalar_type(), /*non_blocking=*/false,
                                             /*copy=*/true));
  return copies;
}

/// Collective: what all ranks have to have alike, and rank 0's values everywhere.
std::vector<NamedTensor> made_equal(const torch::nn::Module& module, const Group& group,
                                    const torch::optim::SGDOptions& outer, const DiLoCoOptions& options) {
  if (options.every < 1)
    throw_invalid_argument(
        c10::str("DiLoCo: every is ", options.every, "; it is a number of steps, 1 or more"));
  const auto tensors = tensors_of(module);
  auto facts = facts_of(tensors, "DiLoCo");
  facts.push_back({"every", std::to_string(options.every)});
  facts.push_back({"outer optimizer", c10::str("learning rate ", outer.lr(), ", momentum ", outer.momentum(),
                                               ", dampening ", outer.dampening(), ", weight decay ",
                                               outer.weight_decay(), ", nesterov ", outer.nesterov())});
  require_same_facts(group, facts, "Make the same DiLoCo on every rank");
  for (const NamedTensor& item : tensors) {
    require_averageable(item);
    say_leaves_gpu(group, item.tensor.device(), "DiLoCo averages moves there");
  }
  broadcast_tensors(group, tensors);
  return tensors;
}

}  // namespace

DiLoCo::DiLoCo(const torch::nn::Module& module, const Group& group, const torch::optim::SGDOptions& outer,
               const DiLoCoOptions& options)
    : group_(group),
      options_(options),
      buffers_(made_equal(module, group, outer, options)),
      common_((local_ = distinct_parameters(buffers_, true), copies_of(local_))),
      optimizer_(common_, outer) {
  frozen_ = distinct_parameters(buffers_, false);
  buffers_ = buffers_among(buffers_);
  if (options_.non_finite == NonFinite::skip) kept_buffers_ = copies_of(buffers_);
}

bool DiLoCo::step() {
  if (++steps_ % options_.every != 0) return false;
  average();
  return true;
}

void DiLoCo::average() {
  require_frozen(frozen_, "DiLoCo");
  const torch::NoGradGuard no_grad;
  const FlatTensors differences{FlatPlan(common_)};
  for (std::size_t i = 0; i < common_.size(); ++i) {
    Tensor view = differences.views[i];
    torch::sub_out(view, common_[i], local_[i].tensor.detach().to(torch::kCPU));
  }
  bool is_mine_finite = true;
  if (options_.non_finite != NonFinite::ignore) is_mine_finite = are_finite(differences.arrays);
  for (const Tensor& difference : differences.arrays)
    all_reduce(group_, difference, ReduceOp::average).wait();
  if (options_.non_finite != NonFinite::ignore &&
      !are_finite(differences.arrays)) {  // the same bits, so the same answer everywhere
    std::vector<std::uint8_t> finite(static_cast<std::size_t>(group_.size()));
    all_gather(group_, std::array<std::uint8_t, 1>{is_mine_finite ? std::uint8_t{1} : std::uint8_t{0}},
               finite)
        .wait();
    std::vector<int> ranks;
    for (std::size_t rank = 0; rank < finite.size(); ++rank) {
      if (finite[rank] == 0) ranks.push_back(group_.world_rank(static_cast<int>(rank)));
    }
    if (options_.non_finite == NonFinite::stop)
      throw Error(ErrorCode::invalid_argument,
                  c10::str("DiLoCo, after ", steps_, " steps: ",
                           ranks.empty() ? std::string("the sum of the models")
                                         : "the model of " + base::name_rank_ranges(ranks),
                           " is infinite or no number; the common model has not moved"),
                  ranks.size() == 1 ? std::optional(ranks[0]) : std::nullopt);
  } else {
    for (std::size_t i = 0; i < common_.size(); ++i) common_[i].mutable_grad() = differences.views[i];
    optimizer_.step();
    for (Tensor& common : common_) common.mutable_grad().reset();
  }
  for (std::size_t i = 0; i < common_.size(); ++i) local_[i].tensor.detach().copy_(common_[i]);
  average_tensors(group_, buffers_);
  if (options_.non_finite == NonFinite::skip) keep_finite_buffers();
}

/// Those of a rank that has gone astray are in the average.
void DiLoCo::keep_finite_buffers() {
  bool is_good = true;
  for (std::size_t i = 0; i < buffers_.size(); ++i) {  // a mask may well be infinite
    const bool can_tell = kept_buffers_[i].is_floating_point() && is_finite(kept_buffers_[i]);
    if (can_tell && !is_finite(buffers_[i].tensor)) is_good = false;
  }
  for (std::size_t i = 0; i < buffers_.size(); ++i) {
    const auto& [from, to] = is_good ? std::tie(buffers_[i].tensor, kept_buffers_[i])
                                     : std::tie(kept_buffers_[i], buffers_[i].tensor);
    to.copy_(from);
  }
}

}  // namespace lockstep

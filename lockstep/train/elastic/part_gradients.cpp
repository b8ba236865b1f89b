#include "lockstep/train/elastic/part_gradients.h"

#include <array>
#include <cstring>
#include <limits>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/group/collectives.h"
#include "lockstep/schedule/call.h"
#include "lockstep/train/replicas/finite_gradients.h"
#include "lockstep/train/tensor/gpu_place.h"
#include "lockstep/train/tensor/tensor_bytes.h"

namespace lockstep {
namespace {

using torch::Tensor;

constexpr std::uint64_t all_finite = std::numeric_limits<std::uint64_t>::max();

std::vector<Tensor> tensors_in(const std::vector<NamedTensor>& items) {
  std::vector<Tensor> tensors;
  for (const NamedTensor& item : items) tensors.push_back(item.tensor);
  return tensors;
}

Range share_of(const Group& group, int rank, int parts) {
  return schedule::chunk_of(static_cast<std::size_t>(parts), rank, group.size());
}

int rank_of_part(const Group& group, int part, int parts) {
  int rank = 0;
  for (Range range = share_of(group, rank, parts);
       static_cast<std::size_t>(part) >= range.begin + range.count;)
    range = share_of(group, ++rank, parts);
  return group.world_rank(rank);
}

}  // namespace

PartGradients::PartGradients(std::vector<NamedTensor> parameters, int parts, bool looks)
    : parameters_(std::move(parameters)),
      parts_(parts),
      looks_(looks),
      plan_(tensors_in(parameters_)),
      average_(plan_),
      facts_(facts_before_parameters + parameters_.size()) {}

PartGradients::Share PartGradients::begin(const Group& group) {
  const Range range = share_of(group, group.rank(), parts_);
  drop();
  group_ = group;
  const auto total = static_cast<std::uint64_t>(parts_);
  for (const FlatPlan::Array& array : plan_.arrays())
    sums_.emplace_back(group, *reducible_dtype(array.type), static_cast<std::size_t>(array.elements),
                       range.begin, total);
  sums_.emplace_back(group, Dtype::f64, facts_.size(), range.begin, total);
  for (const NamedTensor& item : parameters_)
    say_leaves_gpu(group, item.tensor.device(), "Elastic adds up the gradients of parts there");
  next_ = static_cast<int>(range.begin);
  return {next_, static_cast<int>(range.begin + range.count)};
}

void PartGradients::add(double loss) {
  const torch::NoGradGuard no_grad;
  std::vector<Tensor> arrays;
  for (std::size_t i = 0; i < plan_.arrays().size(); ++i)
    arrays.push_back(
        torch::from_blob(sums_[i].next().data(), {plan_.arrays()[i].elements}, plan_.arrays()[i].type));
  const std::vector<Tensor> places = plan_.views(arrays);
  facts_[0] = loss;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    Tensor& gradient = parameters_[i].tensor.mutable_grad();
    facts_[facts_before_parameters + i] = gradient.defined() ? 1 : 0;
    if (!gradient.defined()) {
      places[i].zero_();
      continue;
    }
    places[i].copy_(gradient.is_sparse() ? gradient.to_dense() : gradient);
    gradient.reset();
    if (looks_ && first_bad_ == all_finite && !is_finite(places[i]))
      first_bad_ = static_cast<std::uint64_t>(next_) * parameters_.size() + i;
  }
  std::memcpy(sums_.back().next().data(), facts_.data(), facts_.size() * sizeof(double));
  for (ReproducibleSum& sum : sums_) sum.add();
  ++next_;
}

void PartGradients::finish() {
  for (std::size_t i = 0; i < average_.arrays.size(); ++i)
    sums_[i].all_reduce(writable_bytes(average_.arrays[i], "gradients"), ReduceOp::average);
  sums_.back().all_reduce(std::as_writable_bytes(std::span(facts_)), ReduceOp::average);
  if (!looks_) return;
  std::array<std::uint64_t, 1> first{first_bad_};
  all_reduce(*group_, first, ReduceOp::min).wait();
  if (first[0] == all_finite) return;
  const auto part = static_cast<int>(first[0] / parameters_.size());
  non_finite_ = {part, rank_of_part(*group_, part, parts_), parameters_[first[0] % parameters_.size()].name};
}

double PartGradients::take() {
  const torch::NoGradGuard no_grad;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const NamedTensor& item = parameters_[i];
    item.tensor.mutable_grad() =
        facts_[facts_before_parameters + i] > 0 ? average_.views[i].to(item.tensor.device()) : Tensor();
  }
  return facts_[0];
}

void PartGradients::release() {
  sums_.clear();
  group_.reset();
}

void PartGradients::drop() {
  release();
  first_bad_ = all_finite;
  non_finite_.reset();
  for (const NamedTensor& item : parameters_) item.tensor.mutable_grad().reset();
}

}  // namespace lockstep

#include "lockstep/train/checkpoint/training_state.h"

#include <ATen/CPUGeneratorImpl.h>

#include <array>
#include <cstring>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "lockstep/base/byte_codec.h"
#include "lockstep/base/error.h"
#include "lockstep/group/collectives.h"
#include "lockstep/train/checkpoint/sha256.h"
#include "lockstep/train/replicas/same_facts.h"
#include "lockstep/train/tensor/tensor_bytes.h"

namespace lockstep {
namespace {

std::string text_of(const torch::Tensor& bytes) {
  const auto elements = elements_of(bytes);
  return std::string(base::text_of(elements));
}

torch::Tensor tensor_of(const std::string& bytes) {
  auto tensor = torch::empty({static_cast<std::int64_t>(bytes.size())}, torch::kUInt8);
  std::memcpy(tensor.mutable_data_ptr(), bytes.data(), bytes.size());
  return tensor;
}

/// Of this rank, to be saved; empty: none.
std::string random_of(const TrainingState& state) {
  if (!state.random.defined()) return "";
  if (state.random.scalar_type() != torch::kUInt8 || !state.random.device().is_cpu() ||
      !state.random.is_contiguous() || state.random.numel() == 0) {
    throw_invalid_argument("TrainingState::random is " + describe(state.random) +
                           "; expected what random_state() returns");
  }
  return text_of(state.random);
}

/// For a rank that was not there.
std::string derived_random(const std::string& of_rank_0, int rank) {
  std::string source = of_rank_0;
  base::append_number(source, static_cast<std::uint64_t>(rank));
  Sha256Sum sum;
  sum.update(std::as_bytes(std::span(source)));
  const auto seed = base::number_at<std::uint64_t>(sum.digest());
  return text_of(at::detail::createCPUGenerator(seed).get_state());
}

}  // namespace

torch::Tensor random_state() {
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  const std::lock_guard lock(generator.mutex());
  return generator.get_state();
}

void set_random_state(const torch::Tensor& state) {
  if (!state.defined())
    throw_invalid_argument("there is no random state to set: was it saved, as TrainingState::random?");
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  const std::lock_guard lock(generator.mutex());
  try {
    generator.set_state(state);
  } catch (const c10::Error& error) {
    throw Error(ErrorCode::corrupt_data, std::string("libtorch takes this for no state of its generator: ") +
                                             error.what_without_backtrace());
  }
}

void advance_schedule(torch::optim::LRScheduler& schedule, torch::optim::Optimizer& optimizer,
                      std::uint64_t steps) {
  std::vector<double> rates;
  for (const auto& group : optimizer.param_groups()) rates.push_back(group.options().get_lr());
  for (std::uint64_t step = 0; step < steps; ++step) schedule.step();
  for (std::size_t i = 0; i < rates.size(); ++i) optimizer.param_groups()[i].options().set_lr(rates[i]);
}

std::optional<TrainingRecord> gather_record(const Group& group, const std::optional<TrainingState>& state) {
  const std::string random = state ? random_of(*state) : "";
  const std::array<Fact, 1> facts = {
      Fact{"saved training state",
           !state ? "none" : "with " + std::to_string(random.size()) + " bytes of random state"}};
  require_same_facts(group, facts, "Save CheckpointInfo::training alike on every rank");
  if (!state) return std::nullopt;
  TrainingRecord record{
      .step = state->step, .schedule_step = state->schedule_step, .sampler = state->sampler};
  if (random.empty()) return record;
  std::string all(random.size() * static_cast<std::size_t>(group.rank() == 0 ? group.size() : 0), '\0');
  gather(group, random, all, 0).wait();
  for (std::size_t begin = 0; begin < all.size(); begin += random.size())
    record.random.push_back(all.substr(begin, random.size()));
  return record;
}

TrainingState state_of_rank(const TrainingRecord& record, int rank) {
  TrainingState state{.step = record.step, .schedule_step = record.schedule_step, .sampler = record.sampler};
  if (record.random.empty()) return state;
  const auto number = static_cast<std::size_t>(rank);
  state.random = tensor_of(number < record.random.size() ? record.random[number]
                                                         : derived_random(record.random[0], rank));
  return state;
}

}  // namespace lockstep

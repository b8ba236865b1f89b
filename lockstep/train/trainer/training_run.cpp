#include "lockstep/train/trainer/training_run.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <sstream>
#include <string_view>
#include <system_error>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/quote.h"
#include "lockstep/group/collectives.h"
#include "lockstep/group/outcome.h"
#include "lockstep/trace/traced_range.h"
#include "lockstep/train/optimizer/optimizer_state.h"
#include "lockstep/train/replicas/metrics.h"
#include "lockstep/train/replicas/same_facts.h"
#include "lockstep/train/replicas/same_options.h"
#include "lockstep/train/tensor/number_text.h"
#include "lockstep/train/tensor/tensor_bytes.h"
#include "lockstep/train/trainer/curve.h"

namespace lockstep {
namespace {

// In a checkpoint's metadata.
constexpr double between_rates = 0.05;  // seconds of training
constexpr const char* trainer_step_key = "trainer.step";
constexpr const char* ranks_key = "trainer.ranks";
constexpr const char* history_key = "trainer.history";
constexpr const char* best_key = "trainer.early_stop.best";
constexpr const char* waited_key = "trainer.early_stop.waited";

/// What `key` says in the metadata of the checkpoint at `path`.
template <class Number>
Number number_in(const CheckpointInfo& info, const char* key, const std::filesystem::path& path) {
  const std::string& text = info.metadata.at(key);
  Number number{};
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (failure == std::errc() && end == text.data() + text.size()) return number;
  throw Error(ErrorCode::corrupt_data, "checkpoint " + path.string() + ": expected a number as " + key +
                                           ", found " + base::quote(text) + "; take another checkpoint");
}

double learning_rate_of(torch::optim::Optimizer& optimizer) try {
  const auto& groups = optimizer.param_groups();
  return groups.empty() ? EpochResult::unknown : groups.front().options().get_lr();
} catch (const c10::Error&) {
  return EpochResult::unknown;  // an optimizer of the program's own may have none
}

bool are_classes(const torch::Tensor& output, const torch::Tensor& target) {
  return output.dim() == 2 && target.dim() == 1 && output.size(0) == target.size(0) &&
         torch::isIntegralType(target.scalar_type(), /*includeBool=*/false);
}

}  // namespace

void BatchMeter::add_loss(double loss, std::size_t samples) {
  loss_sum_ += loss * static_cast<double>(samples);
  samples_ += samples;
}

void BatchMeter::add_accuracy(const torch::Tensor& output, const torch::Tensor& target) {
  right_ +=
      are_classes(output, target) ? output.argmax(1).eq(target).sum().item<double>() : EpochResult::unknown;
}

Evaluation BatchMeter::over_ranks(const Group& group) const {
  const auto samples = static_cast<double>(samples_);  // 0: what the quotients are does not count
  const std::array<double, 2> means = {loss_sum_ / samples, right_ / samples};
  const auto found = metric_average(group, means, samples_);
  return {.loss = found[0], .accuracy = found[1]};
}

std::size_t samples_of(const torch::Tensor& data, const std::string& where) {
  const std::int64_t samples = data.dim() > 0 ? data.size(0) : 0;
  if (samples > 0) return static_cast<std::size_t>(samples);
  throw Error(ErrorCode::invalid_argument, where + ": expected a batch of samples as [N, ...], found " +
                                               describe(data) + "; leave out batches without samples");
}

TrainingRun::TrainingRun(const Group& group, const torch::nn::Module& module,
                         torch::optim::Optimizer& optimizer, const TrainerOptions& options, bool evaluates)
    : group_(group), module_(module), optimizer_(optimizer), options_(options) {
  if (options_.epochs < 1) throw_invalid_argument("a Trainer trains at least 1 epoch, found 0");
  if (options_.resume && options_.checkpoint.empty())
    throw_invalid_argument(
        "a Trainer resumes from a checkpoint: name the file in TrainerOptions::checkpoint");
  if (options_.early_stop) early_stop_.emplace(*options_.early_stop);
  if (options_.async_checkpoint) async_checkpoint_.emplace(group_);
  if (options_.progress) progress_.emplace(group_, *options_.progress);
  require_same_options(evaluates);
  if (!options_.checkpoint.empty()) remove_checkpoint_leftovers(options_.checkpoint, group_);
  if (options_.resume) resume();
  on_rank_0(group_, [&] {  // what cannot be written is known before the first epoch, not after it
    if (!options_.tensorboard.empty()) events_.emplace(options_.tensorboard, group_);
    if (!options_.curve.empty()) write_curve(options_.curve, history_, options_.title);
  });
}

void TrainingRun::require_same_options(bool evaluates) const {
  const auto yes_or_no = [](bool value) { return std::string(value ? "yes" : "no"); };
  const std::vector<Fact> facts = {
      {"optimizer", optimizer_kind(optimizer_)},
      {"number of epochs", number_text(options_.epochs)},
      {"evaluation", yes_or_no(evaluates)},
      {"checkpoint", yes_or_no(!options_.checkpoint.empty())},
      {"asynchronous checkpoint", yes_or_no(options_.async_checkpoint)},
      {"resume", yes_or_no(options_.resume)},
      {"schedule", options_.schedule ? number_text(options_.schedule->at(0)) : "none"},
      {"early stop's patience", options_.early_stop ? number_text(options_.early_stop->patience) : "none"}};
  require_same_facts(group_, facts, "Give the Trainer the same options on every rank");
}

void TrainingRun::resume() {
  if (!checkpoint_exists(options_.checkpoint, group_)) return;
  const auto info = load_checkpoint(options_.checkpoint, group_, module_, &optimizer_);
  const std::string what = "checkpoint " + options_.checkpoint.string();
  if (!info.metadata.contains(trainer_step_key) || !info.metadata.contains(history_key)) {
    throw_invalid_argument(what +
                           " is not a Trainer's, and does not say how many steps were taken; load it with "
                           "load_checkpoint() and train without resume");
  }
  epoch_ = info.epoch;
  step_ = number_in<std::uint64_t>(info, trainer_step_key, options_.checkpoint);
  if (info.metadata.contains(ranks_key))
    count_steps_anew(number_in<std::uint64_t>(info, ranks_key, options_.checkpoint));
  history_ = decode_history(info.metadata.at(history_key), what);
  if (info.training) set_random_state(info.training->random);
  if (early_stop_ && info.metadata.contains(best_key) && info.metadata.contains(waited_key)) {
    early_stop_->restore(number_in<double>(info, best_key, options_.checkpoint),
                         number_in<int>(info, waited_key, options_.checkpoint));
  }
}

/// More ranks take fewer steps for the same samples: schedules, which count steps, are then where as many
/// epochs of these ranks would have brought them.
void TrainingRun::count_steps_anew(std::uint64_t ranks_before) {
  const auto ranks = static_cast<std::uint64_t>(group_.size());
  if (ranks == ranks_before || epoch_ == 0) return;
  const double batches = std::round(static_cast<double>(step_) / static_cast<double>(epoch_)) *
                         static_cast<double>(ranks_before);  // of an epoch, of all ranks
  step_ = epoch_ * static_cast<std::uint64_t>(std::ceil(batches / static_cast<double>(ranks)));
}

CheckpointInfo TrainingRun::info() const {
  CheckpointInfo info{
      .epoch = epoch_,
      .metadata = {{trainer_step_key, number_text(step_)},
                   {ranks_key, number_text(group_.size())},
                   {history_key, encode_history(history_)}},
      .training = TrainingState{.step = step_, .schedule_step = step_, .random = random_state()}};
  if (early_stop_) {
    info.metadata[best_key] = number_text(early_stop_->best());
    info.metadata[waited_key] = number_text(early_stop_->waited());
  }
  return info;
}

void TrainingRun::save() {
  if (!async_checkpoint_) {
    save_checkpoint(options_.checkpoint, group_, module_, &optimizer_, info(), CheckpointOptions{});
    return;
  }
  async_checkpoint_->save(options_.checkpoint, module_, optimizer_, info());
  if (!goes_on()) async_checkpoint_->wait();
}

bool TrainingRun::goes_on() const {
  return epoch_ < options_.epochs && !(early_stop_ && early_stop_->is_over());
}

void TrainingRun::begin_epoch(std::uint64_t steps) {
  if (options_.before_epoch) options_.before_epoch(epoch_);
  std::vector<Fact> facts = {{"number of batches in an epoch", number_text(steps)}};
  std::ranges::move(option_facts(optimizer_.param_groups()), std::back_inserter(facts));
  require_same_facts(group_, facts,
                     "Give each rank as many samples (a DistributedSampler of the same set does), the same "
                     "batch size, and the same optimizer and schedule");
  meter_ = {};
  result_ = {.epoch = epoch_};
  steps_of_epoch_ = 0;
  epoch_began_ = step_ended_ = Clock::now();
  if (progress_)
    progress_->begin(epoch_, options_.epochs, steps != 0 ? steps : steps_of_last_epoch_, epoch_began_);
}

/// Epoch and step counted from 1, as they are shown.
std::string TrainingRun::where() const {
  std::string text = "rank ";
  text.append(number_text(group_.world_rank(group_.rank())))
      .append(", epoch ")
      .append(number_text(epoch_ + 1));
  return text.append(", step ").append(number_text(steps_of_epoch_ + 1));
}

std::size_t TrainingRun::begin_step(const torch::Tensor& data) {
  const std::size_t samples = samples_of(data, where());
  if (options_.schedule) options_.schedule->apply(optimizer_, step_);
  return samples;
}

double TrainingRun::check_loss(const torch::Tensor& loss) const {
  const auto value = loss.item<double>();
  if (std::isfinite(value)) return value;
  std::ostringstream text;
  text << where() << ": the loss is " << (std::isnan(value) ? "nan" : "infinite")
       << ", at a learning rate of " << learning_rate_of(optimizer_)
       << "; take a smaller one or warm it up (LearningRate::scaled), and look for infinite numbers in the "
          "data";
  throw Error(ErrorCode::invalid_argument, text.str(), group_.world_rank(group_.rank()));
}

void TrainingRun::end_step(double loss, std::size_t samples) {
  meter_.add_loss(loss, samples);
  ++step_;
  ++steps_of_epoch_;
  const Clock::time_point now = Clock::now();
  if (progress_) progress_->step(samples, loss, now);
  untold_samples_ += samples;
  untold_seconds_ += std::chrono::duration<double>(now - std::exchange(step_ended_, now)).count();
  if (untold_seconds_ < between_rates) return;
  traced_counter("images/s",
                 static_cast<double>(std::exchange(untold_samples_, 0)) / std::exchange(untold_seconds_, 0));
}

void TrainingRun::end_training() {
  const double seconds = std::chrono::duration<double>(Clock::now() - epoch_began_).count();
  if (steps_of_epoch_ == 0)
    throw_invalid_argument(where() + ": the loader has no batches; every rank's training loader needs some");
  steps_of_last_epoch_ = steps_of_epoch_;
  const double own_rate = static_cast<double>(meter_.samples()) / std::max(seconds, 1e-9);
  result_.train_loss = meter_.over_ranks(group_).loss;
  result_.images_per_second = metric_average(group_, own_rate, 1) * group_.size();
  result_.learning_rate = learning_rate_of(optimizer_);
}

void TrainingRun::end_epoch(const Evaluation& evaluation) {
  result_.eval_loss = evaluation.loss;
  result_.eval_accuracy = evaluation.accuracy;
  history_.push_back(result_);
  ++epoch_;
  if (early_stop_) {
    (void)early_stop_->should_stop(group_,
                                   std::isnan(evaluation.loss) ? result_.train_loss : evaluation.loss);
  }
  if (!options_.checkpoint.empty()) save();
  on_rank_0(group_, [this] { report(); });
  if (!progress_) return;
  progress_->end(result_, Clock::now());
  if (!goes_on() && epoch_ < options_.epochs) {
    std::string text = "stopped early: no better loss than ";
    progress_->say(text.append(number_text(early_stop_->best()))
                       .append(" for ")
                       .append(number_text(early_stop_->waited())) +
                   " epochs");
  }
}

/// On rank 0.
void TrainingRun::report() {
  if (!options_.curve.empty()) write_curve(options_.curve, history_, options_.title);
  if (!events_) return;
  const auto add = [this](const char* tag, double value) {
    if (!std::isnan(value)) events_->add(tag, value, step_);
  };
  add("loss/train", result_.train_loss);
  add("loss/eval", result_.eval_loss);
  add("accuracy/eval", result_.eval_accuracy);
  add("images_per_second", result_.images_per_second);
  add("learning_rate", result_.learning_rate);
}

}  // namespace lockstep

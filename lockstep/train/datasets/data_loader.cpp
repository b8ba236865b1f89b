#include "lockstep/train/datasets/data_loader.h"

#include <algorithm>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "lockstep/base/error.h"
#include "lockstep/base/start_thread.h"
#include "lockstep/trace/traced_range.h"

namespace lockstep {
namespace {

using torch::data::Example;

/// What each worker has a copy of.
struct Recipe {
  BatchMaker make;
  std::vector<BatchTransform> transforms;
  std::uint64_t seed = 0;
  std::uint64_t epoch = 0;

  Example<> batch(torch::ArrayRef<std::size_t> samples) {
    const torch::NoGradGuard no_grad;
    Example<> batch = make(samples);
    if (transforms.empty()) return batch;
    std::vector<SplitMix64> random = transform_streams(seed, epoch, samples);
    for (const BatchTransform& transform : transforms) transform(batch.data, random);
    return batch;
  }
};

struct Outcome {
  Example<> batch;
  std::exception_ptr failure;  // instead
};

std::size_t batches_in(std::size_t samples, const DataLoaderOptions& options) {
  const bool has_smaller_one = !options.drop_last_batch && samples % options.batch_size != 0;
  return samples / options.batch_size + (has_smaller_one ? 1 : 0);
}

}  // namespace

/// What is left of an epoch. Batch n waits in slot n modulo the number of slots; a worker begins it when that
/// slot is free for it, so no more are made ahead than there are slots.
class DataLoader::Pass {
 public:
  Pass(const BatchMaker& make, const DistributedSampler& sampler, const DataLoaderOptions& options)
      : sampler_(sampler),
        begin_(sampler.index()),
        order_(sampler.rest()),
        batch_size_(options.batch_size),
        batches_(batches_in(order_.size(), options)),
        recipe_{make, options.transforms, sampler.seed(), sampler.epoch()},
        slots_(std::max<std::size_t>(options.prefetch, 1)) {
    for (std::size_t i = 0; i < std::min(options.workers, batches_); ++i) {
      workers_.push_back(start_thread<std::jthread>(
          "data-loader",
          [this, recipe = recipe_](const std::stop_token& stop) mutable { work(stop, recipe); }));
    }
  }

  /// Puts the next batch into `batch`; false if there is none.
  bool next() {
    const std::size_t number = handed_out_;
    if (number < batches_) require_unmoved(number);
    if (number == batches_) {
      if (sampler_.epoch() == recipe_.epoch) sampler_.set_epoch(recipe_.epoch + 1);
      return false;
    }
    Outcome outcome = workers_.empty() ? make_here() : take();
    if (outcome.failure) rethrow(outcome.failure, number);
    (void)sampler_.next(samples_of(number).size());
    batch = std::move(outcome.batch);
    return true;
  }

  Example<> batch;

 private:
  torch::ArrayRef<std::size_t> samples_of(std::size_t number) const {
    const std::size_t first = number * batch_size_;
    return torch::ArrayRef<std::size_t>(order_).slice(first, std::min(batch_size_, order_.size() - first));
  }

  Outcome make(Recipe& recipe, std::size_t number) const {
    try {
      return {recipe.batch(samples_of(number)), nullptr};
    } catch (...) {
      return {{}, std::current_exception()};
    }
  }

  Outcome make_here() { return make(recipe_, handed_out_++); }

  Outcome take() {
    std::unique_lock lock(mutex_);
    auto& slot = slots_[handed_out_ % slots_.size()];
    ready_.wait(lock, [&] { return slot.has_value(); });
    Outcome outcome = std::move(*slot);
    slot.reset();
    ++handed_out_;
    room_.notify_one();
    return outcome;
  }

  void work(const std::stop_token& stop, Recipe& recipe) {
    std::unique_lock lock(mutex_);
    while (room_.wait(lock, stop, [this] {
      return begun_ < batches_ && begun_ < handed_out_ + slots_.size();
    }) && !stop.stop_requested()) {
      const std::size_t number = begun_++;
      lock.unlock();
      Outcome outcome = make(recipe, number);
      lock.lock();
      slots_[number % slots_.size()] = std::move(outcome);
      ready_.notify_one();
    }
  }

  void require_unmoved(std::size_t number) const {
    const std::size_t index = begin_ + number * batch_size_;
    if (sampler_.epoch() == recipe_.epoch && sampler_.index() == index) return;
    throw_invalid_argument("the sampler of a DataLoader was moved from sample " + std::to_string(index) +
                           " of epoch " + std::to_string(recipe_.epoch) + " to sample " +
                           std::to_string(sampler_.index()) + " of epoch " +
                           std::to_string(sampler_.epoch()) +
                           " while a loop went through its batches; move it between loops, and use no other "
                           "loader with it");
  }

  [[noreturn]] void rethrow(const std::exception_ptr& failure, std::size_t number) const {
    const std::size_t first = begin_ + number * batch_size_;
    const std::string place = std::string("the batch of this rank's samples ")
                                  .append(std::to_string(first))
                                  .append(" to ")
                                  .append(std::to_string(first + samples_of(number).size() - 1))
                                  .append(" of epoch ")
                                  .append(std::to_string(recipe_.epoch))
                                  .append(": ");
    try {
      std::rethrow_exception(failure);
    } catch (const Error& error) {
      throw Error(error.code(), place + error.what(), error.peer());
    } catch (const std::exception& error) {
      const std::string text = error.what();  // libtorch adds a call stack
      std::throw_with_nested(Error(ErrorCode::system, place + text.substr(0, text.find('\n'))));
    }
  }

  DistributedSampler sampler_;
  const std::size_t begin_;
  const std::vector<std::size_t> order_;
  const std::size_t batch_size_;
  const std::size_t batches_;
  Recipe recipe_;

  std::mutex mutex_;  // of what follows; handed_out_ is changed by the program's thread alone
  std::condition_variable ready_;
  std::condition_variable_any room_;
  std::vector<std::optional<Outcome>> slots_;
  std::size_t begun_ = 0;
  std::size_t handed_out_ = 0;

  std::vector<std::jthread> workers_;  // the first to go
};

DataLoader::DataLoader(BatchMaker make, const DistributedSampler& sampler, DataLoaderOptions options, Checked)
    : make_(std::move(make)), sampler_(sampler), options_(std::move(options)) {
  if (options_.batch_size == 0)
    throw_invalid_argument("DataLoader: expected a batch size of at least 1, found 0");
  if (options_.workers > 0 && options_.prefetch == 0) {
    throw_invalid_argument(
        "DataLoader: workers make batches ahead, which prefetch = 0 forbids; use workers = 0, or prefetch");
  }
  if (steps_per_epoch() == 0) {
    throw_invalid_argument("DataLoader: drop_last_batch leaves no batch of " +
                           std::to_string(options_.batch_size) + " of the " +
                           std::to_string(sampler_.size()) +
                           " samples that a rank has; use smaller batches, or keep the last one");
  }
}

std::size_t DataLoader::steps_per_epoch() const { return batches_in(sampler_.size(), options_); }

DataLoader::Iterator DataLoader::begin() {
  return Iterator(std::make_unique<Pass>(make_, sampler_, options_));
}

DataLoader::Iterator::Iterator(std::unique_ptr<Pass> pass) : pass_(std::move(pass)) { ++*this; }
DataLoader::Iterator::Iterator(Iterator&&) noexcept = default;
DataLoader::Iterator& DataLoader::Iterator::operator=(Iterator&&) noexcept = default;
DataLoader::Iterator::~Iterator() = default;

torch::data::Example<>& DataLoader::Iterator::operator*() const { return pass_->batch; }

DataLoader::Iterator& DataLoader::Iterator::operator++() {
  const TracedRange range("data");
  std::unique_ptr<Pass> pass = std::move(pass_);  // an error ends it
  if (pass->next()) pass_ = std::move(pass);
  return *this;
}

}  // namespace lockstep

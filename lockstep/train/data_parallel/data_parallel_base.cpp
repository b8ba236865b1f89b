#include "lockstep/train/data_parallel/data_parallel_base.h"

#include <utility>

#include "lockstep/trace/clock.h"
#include "lockstep/train/data_parallel/data_parallel_engine.h"
#include "lockstep/train/data_parallel/gradient_hooks.h"

namespace lockstep {

AveragedForward::AveragedForward(DataParallelEngine& engine)
    : begin_ns_(trace::now_ns()), hooks_(engine.prepare_forward()) {}

void AveragedForward::watch(const torch::Tensor& output) { is_watched_ |= hooks_->watch(output, begin_ns_); }

void AveragedForward::end() {
  if (hooks_ != nullptr && !is_watched_) hooks_->expect_backward(begin_ns_);
}

DataParallelBase::DataParallelBase(std::shared_ptr<torch::nn::Module> module, const Group& group,
                                   const DataParallelOptions& options)
    : engine_(std::make_shared<DataParallelEngine>(std::move(module), group, options)) {}

std::shared_ptr<void> DataParallelBase::no_sync() {
  engine_->begin_no_sync();
  return {nullptr, [engine = engine_](void*) { engine->end_no_sync(); }};
}

void DataParallelBase::join(const std::function<void()>& body, const JoinOptions& options) {
  engine_->join(body, options);
}

std::uint64_t DataParallelBase::skipped() const { return engine_->skipped(); }

bool DataParallelBase::has_opened_heap() const { return engine_->has_opened_heap(); }

void DataParallelBase::load(torch::serialize::InputArchive& archive) { engine_->load(archive); }

}  // namespace lockstep

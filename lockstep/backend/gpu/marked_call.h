// A call between two marks on a stream of its engine's: it begins when the first one is reached, and ends with the second.
#pragma once

#include <memory>

#include "lockstep/backend/gpu/gpu_engine.h"
#include "lockstep/memory/gpu.h"

namespace lockstep {

class MarkedCall final : public GpuCall {
 public:
  MarkedCall(std::shared_ptr<Gpu> gpu, std::shared_ptr<GpuEvents> events)
      : gpu_(std::move(gpu)), events_(std::move(events)), begin_(events_->take()), end_(events_->take()) {}
  ~MarkedCall() override {
    events_->put_back(begin_);
    events_->put_back(end_);
  }
  MarkedCall(const MarkedCall&) = delete;
  MarkedCall& operator=(const MarkedCall&) = delete;

  /// `stream` goes on after what the program has put on its own. Throws Error{invalid_argument}: it is none of the GPU's.
  void begin(const Signature& called, cuda::Stream program, cuda::Stream stream, bool is_captured) {
    const cuda::Driver& driver = gpu_->driver();
    mark_stream_of_program(*gpu_, end_, program, called);
    driver.check(driver.make_wait(stream, end_, 0), "making a stream wait");
    stream_ = stream;
    if (!is_captured) driver.check(driver.record_event(begin_, stream), "marking a stream");
  }
  /// After what the engine's stream has now.
  void note_settled() override {
    gpu_->driver().check(gpu_->driver().record_event(end_, stream_), "marking a stream");
  }

  bool has_begun() override { return gpu_->driver().query_event(begin_) == cuda::success; }
  bool is_over() override {
    const cuda::Result result = gpu_->driver().query_event(end_);
    if (result == cuda::not_ready) return false;
    gpu_->driver().check(result, "waiting for a call on the GPU");
    return true;
  }
  void make_wait(cuda::Stream stream) override {
    gpu_->driver().check(gpu_->driver().make_wait(stream, end_, 0), "making a stream wait");
  }
  std::uint64_t ns_on_gpu() override {
    float milliseconds = 0;
    if (gpu_->driver().elapsed_ms(&milliseconds, begin_, end_) != cuda::success) return 0;
    return static_cast<std::uint64_t>(std::max(milliseconds, 0.0F) * 1e6F);
  }

 private:
  const std::shared_ptr<Gpu> gpu_;
  const std::shared_ptr<GpuEvents> events_;
  const cuda::Event begin_, end_;
  cuda::Stream stream_ = nullptr;  // the engine's
};

}  // namespace lockstep

// A named operation of this rank, from its submission until it is over.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <memory>
#include <utility>

#include "lockstep/engine/named_gpu.h"
#include "lockstep/engine/named_request.h"

namespace lockstep {

/// Under the engine's lock, but for whether it is over: then nobody but who has submitted it uses it or its buffers any more.
struct NamedOperation {
  NamedRequest request;
  NamedBuffers buffers;
  std::unique_ptr<NamedGpu::Mark> mark =
      nullptr;  // of a GPU's: its buffers are ready there; until it is started
  std::uint64_t submitted_ns = 0, started_ns = 0;  // by trace::now_ns(); started: all ranks had submitted it
  std::exception_ptr failure = nullptr;            // once it is over
  std::atomic<bool> is_over = false;

  void end(std::exception_ptr why = nullptr) {
    failure = std::move(why);
    is_over = true;
  }
};

}  // namespace lockstep

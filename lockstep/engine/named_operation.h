// A named operation of this rank, from its submission until it is over.
#pragma once

#include <cstdint>
#include <exception>
#include <utility>

#include "lockstep/engine/named_request.h"

namespace lockstep {

/// Under the engine's lock.
struct NamedOperation {
  NamedRequest request;
  NamedBuffers buffers;
  std::uint64_t submitted_ns = 0, started_ns = 0;  // by trace::now_ns(); started: all ranks had submitted it
  bool is_over = false;
  std::exception_ptr failure = nullptr;  // once it is over

  void end(std::exception_ptr why = nullptr) {
    failure = std::move(why);
    is_over = true;
  }
};

}  // namespace lockstep

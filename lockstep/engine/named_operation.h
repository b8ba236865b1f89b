// A named operation of this rank, from its submission until it is over.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <span>
#include <vector>

#include "lockstep/engine/named_request.h"

namespace lockstep {

/// What a named operation reads and writes; borrowed until it is over.
struct NamedBuffers {
  std::vector<std::span<std::byte>> in_place = {};  ///< all_reduce: as many as shapes; broadcast: one
  std::span<const std::byte> input = {};            ///< the others
  /// The others' result, once its size is known: rows from each rank; of reduce_scatter, this rank's alone.
  /// Called by whoever drives the operation, which may be another thread.
  std::function<std::span<std::byte>(std::span<const std::int64_t> rows)> make_output = {};
};

/// Under the engine's lock.
struct NamedOperation {
  NamedRequest request;
  NamedBuffers buffers;
  bool is_over = false;
  std::exception_ptr failure = nullptr;  // once it is over

  void end(std::exception_ptr why = nullptr) {
    failure = std::move(why);
    is_over = true;
  }
};

}  // namespace lockstep

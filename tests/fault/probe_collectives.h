// Collectives whose results are known beforehand: whoever calls one finds out whether every element is right.
#pragma once

#include <cstddef>
#include <stdexcept>
#include <string>

#include "lockstep/base/dtype.h"
#include "lockstep/group/collectives.h"
#include "tests/fault/probe_memory.h"

namespace probe {

/// A collective returned something else than it should have.
class WrongResult : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Each fills a buffer, calls, waits and checks.
/// Throws WrongResult, and lockstep::Error as the library does.
void all_reduce(const lockstep::Group& group, lockstep::Dtype dtype, std::size_t elements, Memory memory,
                lockstep::ReduceOp op = lockstep::ReduceOp::sum);
void broadcast(const lockstep::Group& group, std::size_t bytes, int root, Memory memory);
void all_gather(const lockstep::Group& group, std::size_t bytes_of_each, Memory memory);

/// All of the above with many sizes, types and roots, and all_collectives() of probe_shapes.h. Returns how
/// many calls were checked.
int everything(const lockstep::Group& group);

/// "f32" and so on; throws std::invalid_argument.
lockstep::Dtype dtype_named(const std::string& name);

}  // namespace probe

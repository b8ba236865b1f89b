// How ranks that called different things are told so: the sentence names two of them, and what both called.
#pragma once

#include <cstdint>
#include <string>

#include "lockstep/base/error.h"
#include "lockstep/base/signature.h"

namespace lockstep {

struct Caller {
  int rank = 0;  ///< in the world
  Signature signature = {};
  std::uint64_t number = 0;  ///< of the call
};

/// Error{mismatch}. `difference`: what they differ in, where the two calls do not show it.
Error mismatch(const Caller& one, const Caller& other, const std::string& difference = {});

/// Of all_to_all_v: both called it, but the `receiver` expects a block of another size than the `sender` has for
/// it. Signatures as in the header of a message.
Error mismatch_of_blocks(const Caller& receiver, const Caller& sender);

}  // namespace lockstep

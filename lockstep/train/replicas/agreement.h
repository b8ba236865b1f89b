// Replicas stay equal only if their optimizers do the same with the average. What says so is compared in the
// word of status that ranks exchange at the end of each backward anyway, so that it costs no meeting.
#pragma once

#include <cstdint>
#include <optional>

#include "lockstep/group/group.h"

namespace lockstep {

/// Something in which all ranks that have gradients agree. Passes are the backwards that are averaged,
/// counted from 0.
class Agreement {
 public:
  Agreement() = default;
  Agreement(const Agreement&) = delete;
  Agreement& operator=(const Agreement&) = delete;
  virtual ~Agreement() = default;

  /// Of what this rank has in this pass: ranks that have the same have the same digest. Nothing, on all of
  /// them, where this pass compares nothing.
  virtual std::optional<std::uint32_t> digest(std::uint64_t pass) = 0;

  /// Collective, where digests differ. Throws Error{mismatch}, the same on every rank; or returns, if the
  /// difference does not matter. `has_digest`: whether this rank's was among them.
  virtual void compare(const Group& group, std::uint64_t pass, bool has_digest) = 0;
};

/// Collective. Whether all ranks have the same, where no word of status says so. Cost: one all_gather of 8 bytes.
bool have_the_same(const Group& group, std::optional<std::uint32_t> digest);

}  // namespace lockstep

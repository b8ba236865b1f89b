// Views (view.h) in the store of a job: whoever starts the ranks says each view there once, and so all ranks see the same ones.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "lockstep/base/deadline.h"
#include "lockstep/rendezvous/store.h"
#include "lockstep/rendezvous/view.h"

namespace lockstep {

/// Where views stand in the store of a job.
class ViewBoard {
 public:
  /// Borrows `job`.
  explicit ViewBoard(Store& job) : job_(job) {}

  /// By whoever starts the ranks, each number once and in order. What ranks of much earlier views have left is erased.
  void publish(const View& view);
  /// The same, before the view in which it is no longer: why.
  void note_out(const Life& life, const std::string& why);

  /// Waits for it. Throws as Store::get().
  View get(std::uint64_t number, Deadline deadline);
  /// nullopt: it has not left the job, as far as is known.
  std::optional<std::string> why_out(const Life& life);

  /// The part of the store that what is done in a view has to itself.
  static std::string place_of(std::uint64_t view);

 private:
  Store& job_;
};

}  // namespace lockstep

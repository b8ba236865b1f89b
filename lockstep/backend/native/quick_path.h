// Small calls while nothing else of their group is under way: they are done sooner than a task could be set
// up for them. A call that cannot be done so goes the usual way, and nothing is lost.
#pragma once

#include <optional>

#include "lockstep/backend/native/call_numbers.h"
#include "lockstep/backend/native/group_parts.h"
#include "lockstep/backend/native/native_task.h"
#include "lockstep/backend/native/small_call.h"

namespace lockstep {

/// One rank's of one group. Under the progress lock. REQUIRES of each call: no work of the group is under way,
/// and it has not failed.
class QuickPath {
 public:
  /// Borrows both.
  QuickPath(GroupParts& parts, CallNumbers& numbers);

  enum class Collective {
    untouched,  ///< too large, or its lane is not free
    begun,      ///< some rank has not come: a task has to go_on()
    done,
  };
  Collective collective(const Request& request);
  /// After Collective::begun.
  void hand_over(const Request& request, NativeTask& task) const;

  /// Whether a small message could be passed at once. If not, it has to be posted next. Throws as Mailbox does.
  bool message(const Request& request);

 private:
  /// It is over, and its end was the arrival of the last one.
  void note(const Request& request, std::uint64_t number, std::uint64_t begin_ns, std::uint64_t end_ns,
            const Plan* plan);

  GroupParts& parts_;
  CallNumbers& numbers_;
  std::optional<SmallCall> small_call_;  // where ranks share memory
};

/// How often a call looks for the others before it becomes a work of its own: a microsecond or two.
inline constexpr int short_looks = 128;

}  // namespace lockstep

#include "lockstep/train/sharded/step_versions.h"

#include <atomic>
#include <new>

#include "lockstep/base/error.h"
#include "lockstep/group/collectives.h"

namespace lockstep {
namespace {

using Number = std::atomic_ref<std::uint64_t>;
static_assert(Number::is_always_lock_free);

}  // namespace

StepVersions::StepVersions(const Group& group, bool is_shared)
    : block_(group, static_cast<std::size_t>(group.size()) * sizeof(Row)),
      mine_(static_cast<std::size_t>(group.rank())),
      first_(is_shared ? 0 : mine_),
      end_(is_shared ? static_cast<std::size_t>(group.size()) : mine_ + 1) {
  new (&row(mine_)) Row;
  barrier(group).wait();
}

StepVersions::Row& StepVersions::row(std::size_t number) const {
  return reinterpret_cast<Row*>(block_.bytes().data())[number];
}

bool StepVersions::somebody_has_given_up() const {
  for (std::size_t other = first_; other < end_; ++other) {
    if (Number(row(other).has_given_up).load() != 0) return true;
  }
  return false;
}

// Sequentially consistent, as all here: either this rank sees that another has given up, or that one sees
// that this has begun. One that has given up long ago is seen first, so that nobody takes this rank for one in the middle of a step.
void StepVersions::begin() {
  bool is_refused = somebody_has_given_up();
  if (!is_refused) {
    Number(row(mine_).begun).fetch_add(1);
    is_refused = somebody_has_given_up();
    if (is_refused) Number(row(mine_).begun).fetch_sub(1);
  }
  if (is_refused)
    throw Error(ErrorCode::aborted, "this step is not taken: another rank has given up before it");
}

void StepVersions::end() { Number(row(mine_).ended).fetch_add(1); }

void StepVersions::give_up() noexcept { Number(row(mine_).has_given_up).store(1); }

bool StepVersions::are_whole() const {
  const std::uint64_t ended = Number(row(mine_).ended).load();
  for (std::size_t other = first_; other < end_; ++other) {
    if (Number(row(other).begun).load() != ended || Number(row(other).ended).load() != ended) return false;
  }
  return true;
}

}  // namespace lockstep

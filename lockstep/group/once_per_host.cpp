#include "lockstep/group/once_per_host.h"

#include <fmt/core.h>

#include <optional>
#include <string>

#include "lockstep/base/words.h"
#include "lockstep/group/outcome.h"

namespace lockstep {
namespace {

Error with_place(const Group& group, const Error& failure) {
  const int rank = group.world_rank(group.rank());
  const std::string text = failure.what();
  return {failure.code(),
          fmt::format("once_per_host: rank {} failed on host {}: {}", rank, base::host_name(),
                      text.substr(0, text.find('\n'))),
          rank};
}

}  // namespace

void once_per_host(const Group& group, const std::function<void()>& task) {
  if (group.size() == 1) return task();
  std::optional<Error> failure;
  if (group.local_rank() == 0) failure = failure_in(task);
  if (failure) failure = with_place(group, *failure);
  if (const auto failed = lowest_failure(group, failure)) throw Error(failed->error);
}

}  // namespace lockstep

#include "lockstep/train/replicas/agreement.h"

#include <algorithm>
#include <span>
#include <vector>

#include "lockstep/group/collectives.h"

namespace lockstep {

bool have_the_same(const Group& group, std::optional<std::uint32_t> digest) {
  const std::uint64_t mine = digest.value_or(0);
  std::vector<std::uint64_t> all(static_cast<std::size_t>(group.size()));
  all_gather(group, std::span(&mine, 1), all).wait();
  return std::ranges::count(all, mine) == std::ssize(all);
}

}  // namespace lockstep

#include "lockstep/train/replicas/missing_gradients.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/group/collectives.h"

namespace lockstep {

void throw_missing_gradients(const Group& group, std::span<const NamedTensor> parameters,
                             std::span<const char> has_gradient, const std::string& pass,
                             const std::string& remedy) {
  struct Report {
    std::uint64_t missing, first;
  };
  const Report mine{static_cast<std::uint64_t>(std::ranges::count(has_gradient, 0)),
                    static_cast<std::uint64_t>(std::ranges::find(has_gradient, 0) - has_gradient.begin())};
  std::vector<Report> reports(static_cast<std::size_t>(group.size()));
  all_gather(group, std::span(&mine, 1), reports).wait();
  std::string texts;
  bool same = true;
  std::optional<int> culprit;
  int culprits = 0;
  for (std::size_t rank = 0; rank < reports.size(); ++rank) {
    const auto [missing, first] = reports[rank];
    same = same && missing == reports[0].missing && first == reports[0].first;
    if (missing == 0) continue;
    ++culprits;
    culprit = group.world_rank(static_cast<int>(rank));
    texts += (texts.empty() ? "" : "; ") + std::string("on rank ") + std::to_string(rank) + " parameter " +
             parameters[first].name + (missing > 1 ? " and " + std::to_string(missing - 1) + " more" : "");
  }
  throw Error(same ? ErrorCode::invalid_argument : ErrorCode::mismatch,
              pass + " left parameters without a gradient: " + texts + ". " + remedy,
              culprits == 1 ? culprit : std::nullopt);
}

}  // namespace lockstep

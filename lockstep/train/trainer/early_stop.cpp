#include "lockstep/train/trainer/early_stop.h"

#include <array>
#include <sstream>
#include <string>

#include "lockstep/base/error.h"
#include "lockstep/group/collectives.h"

namespace lockstep {

EarlyStop::EarlyStop(const EarlyStopOptions& options) : options_(options) {
  if (options.patience < 1) {
    throw_invalid_argument(std::string("an early stop's patience is at least 1, found ")
                               .append(std::to_string(options.patience)));
  }
  if (options.min_delta >= 0) return;
  std::ostringstream found;
  found << "an early stop's min_delta is not negative, found " << options.min_delta;
  throw_invalid_argument(found.str());
}

bool EarlyStop::should_stop(const Group& group, double value) {
  std::array<double, 1> of_rank_0 = {value};
  broadcast(group, of_rank_0, 0).wait();
  if (of_rank_0[0] < best_ - options_.min_delta) {
    best_ = of_rank_0[0];
    waited_ = 0;
  } else {
    ++waited_;
  }
  return is_over();
}

}  // namespace lockstep

// One timeline out of what the ranks of a job have written (events.h), in rank 0's time.
#pragma once

#include <string>
#include <vector>

#include "lockstep/view/profile/timeline.h"

namespace lockstep::mpitrace {

struct Merged {
  view::Timeline timeline;
  std::string wanted;      ///< the file that the ranks were told of
  std::vector<int> ranks;  ///< that are in it
};
/// Of all ranks no more than `most` events are taken: of more every second slice of time goes, then three of four and so on.
/// What is not there stands in the timeline's notes. Of what cannot be read, too: nothing is thrown.
Merged merge(const std::vector<std::string>& paths, std::size_t most = 1'000'000);

}  // namespace lockstep::mpitrace

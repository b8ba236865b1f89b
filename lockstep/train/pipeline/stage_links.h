// How stages of a pipeline reach each other on their GPUs: for each rank and the next, a group of two for activations and one for
// gradients. In a group messages go one way, in the order of the plan, so its stream on the GPU, which takes them one by one, never
// waits for what comes later; with both ways on one stream each rank's send could stand before the receive that the other waits for.
#pragma once

#include <torch/torch.h>

#include <cstddef>
#include <exception>
#include <map>
#include <tuple>

#include "lockstep/group/group.h"
#include "lockstep/pipeline/plan.h"

namespace lockstep {

class StageLinks {
 public:
  struct Link {
    Group group;       ///< in which rank 0 sends and rank 1 receives
    std::size_t room;  ///< for so many messages on their way; one more would have the host wait
  };

  /// Collective over the pipeline's ranks. `device`: of this rank's stages. Where the GPUs of two ranks do not reach each other, what they
  /// hand on goes through main memory, and it is said why. Throws Error as a first call on a GPU does.
  StageLinks(const Group& group, const pipeline::Shape& shape, torch::Device device);

  /// This rank's stages'; a GPU has its number.
  torch::Device device() const { return device_; }
  /// Null where these ranks hand on in main memory.
  const Link* between(int sender, int receiver, pipeline::Payload payload) const;
  void abort(const std::exception& why) const;

 private:
  using Key = std::tuple<int, int, pipeline::Payload>;  // sender, receiver

  torch::Device device_;
  std::map<Key, Link> links_;  // this rank's
};

}  // namespace lockstep

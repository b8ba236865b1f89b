#include "lockstep/train/pipeline/stage_links.h"

#include <array>
#include <cstdint>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "lockstep/group/collectives.h"
#include "lockstep/group/gpu_calls.h"
#include "lockstep/train/tensor/device.h"
#include "lockstep/train/tensor/gpu_place.h"

namespace lockstep {
namespace {

/// NCCL connects two ranks by their first message, for which each of them waits: within a step that could be one that comes after what
/// the other waits for.
void send_first_message(const Group& link, torch::Device device) {
  const torch::Tensor message = torch::zeros({1}, torch::dtype(torch::kUInt8).device(device));
  const auto bytes = bytes_for_calls(message, true);
  Work work = link.rank() == 0 ? send_bytes(link, bytes, 1, 0, place_on(device))
                               : recv_bytes(link, bytes, 0, 0, nullptr, place_on(device));
  work.synchronize();
}

}  // namespace

StageLinks::StageLinks(const Group& group, const pipeline::Shape& shape, torch::Device device)
    : device_(with_number(device)) {
  std::vector<std::uint8_t> are_gpus(static_cast<std::size_t>(group.size()));
  const std::uint8_t is_gpu = device_.type() == gpu_kind ? 1 : 0;
  all_gather(group, std::span(&is_gpu, 1), are_gpus).wait();
  std::set<std::pair<int, int>> neighbours;
  for (int stage = 0; stage + 1 < shape.stages; ++stage) {
    const std::pair both{shape.rank_of(stage), shape.rank_of(stage + 1)};
    if (both.first != both.second) neighbours.insert(both);
  }
  // In one order on all ranks.
  for (const auto& [before, after] : neighbours) {
    if (before != group.rank() && after != group.rank()) continue;
    const bool has_gpus =
        are_gpus[static_cast<std::size_t>(before)] != 0 && are_gpus[static_cast<std::size_t>(after)] != 0;
    if (!has_gpus) {
      if (is_gpu != 0)
        say_through_main_memory(group, "a stage on one hands on to a stage that is in main memory");
      continue;
    }
    const std::array ways{Key{before, after, pipeline::Payload::activation},
                          Key{after, before, pipeline::Payload::gradient}};
    for (const Key& way : ways) {
      const std::array ranks{std::get<0>(way), std::get<1>(way)};
      Group link = group.subgroup(ranks);
      if (!stays_on_gpu(link, device_)) break;  // nor in the other way
      send_first_message(link, device_);
      const std::size_t room = messages_on_gpu(link, device_.index());
      links_.emplace(way, Link{std::move(link), room});
    }
  }
}

const StageLinks::Link* StageLinks::between(int sender, int receiver, pipeline::Payload payload) const {
  const auto found = links_.find({sender, receiver, payload});
  return found == links_.end() ? nullptr : &found->second;
}

void StageLinks::abort(const std::exception& why) const {
  for (const auto& [way, link] : links_) link.group.abort(why);
}

}  // namespace lockstep

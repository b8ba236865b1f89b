// The transport of ranks that share a HostRegion, be they processes or threads: channels are pairs of byte
// rings, failures and goodbyes stand in the region and the control page.
#pragma once

#include <functional>
#include <map>
#include <memory>

#include "lockstep/transport/byte_ring.h"
#include "lockstep/transport/channel.h"

namespace lockstep {

struct RingTransportOptions {
  int rank = 0;                ///< in the group
  std::vector<int> local_of;   ///< group rank -> its number in the region; -1: on another host
  std::vector<int> status_of;  ///< group rank -> its number in the control page; -1: on another host
  std::vector<int> world_of;   ///< group rank -> world rank
  std::shared_ptr<HostRegion> region;
  std::shared_ptr<ControlPage> page;
  /// Whether the rank with this number in the region still runs.
  std::function<bool(int)> is_alive;
};

class RingTransport final : public Transport {
 public:
  explicit RingTransport(RingTransportOptions options);
  ~RingTransport() override;

  Channel& channel(int peer, Purpose purpose) override;
  std::vector<PeerNews> look() override;
  void tell_failure(const FirstCause::Cause& cause) override;
  void tell_waiting(int rank) override;
  std::optional<int> awaited_by(int rank, std::chrono::nanoseconds within) override;
  void say_goodbye() override;
  std::vector<pollfd> wait_descriptors() override { return {}; }

 private:
  class RingChannel;
  bool is_local(int rank) const { return options_.local_of[static_cast<std::size_t>(rank)] >= 0; }
  RankStatus& status(int rank) const;

  RingTransportOptions options_;
  std::map<std::pair<int, Purpose>, std::unique_ptr<RingChannel>> channels_;
};

}  // namespace lockstep

// The transport of ranks that share a HostRegion, be they processes or threads: channels are pairs of byte
// rings, failures and goodbyes stand in the region and the control page.
#pragma once

#include <functional>
#include <map>
#include <memory>

#include "lockstep/transport/channel.h"
#include "lockstep/transport/members.h"
#include "lockstep/transport/ring/byte_ring.h"

namespace lockstep {

struct RingTransportOptions {
  Members members;
  std::shared_ptr<HostRegion> region;
  std::shared_ptr<ControlPage> page;
  /// Whether the rank with this number in the region still runs.
  std::function<bool(int)> is_alive;
  bool is_whole_job = true;  ///< whoever says goodbye here leaves the job, too
};

class RingTransport final : public Transport {
 public:
  explicit RingTransport(RingTransportOptions options);
  ~RingTransport() override;

  Channel& channel(int peer, Purpose purpose) override;
  std::vector<PeerNews> look() override;
  void tell_failure(const FirstCause::Cause& cause) override;
  void tell_waiting(int world) override;
  std::optional<int> awaited_by(int world, std::chrono::nanoseconds within) override;
  void say_goodbye() override;
  std::vector<pollfd> wait_descriptors() override { return {}; }

 private:
  class RingChannel;
  RankStatus& status(int rank) const;

  RingTransportOptions options_;
  std::map<std::pair<int, Purpose>, std::unique_ptr<RingChannel>> channels_;
};

}  // namespace lockstep

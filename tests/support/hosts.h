// Several hosts on one machine: network namespaces, two with a cable (veth) between them, more with cables to a switch.
// Shared memory, unix sockets and loopback stop at a namespace, as they stop at a host.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "lockstep/base/unique_fd.h"

namespace lockstep::testing {

/// The namespaces have no names: the kernel removes them, cables and all, with the last process in them and
/// this object, whatever becomes of the test.
class Hosts {
 public:
  /// `count` of 2 to 8. nullopt where that is not possible (it takes root's rights and `ip`); `why_not` then says why.
  static std::optional<Hosts> make(int count, std::string& why_not);

  int count() const { return count_; }
  /// For Command::network. Hosts are counted from 0. Its interface is called "cable".
  int network(int host) const { return networks_.at(static_cast<std::size_t>(host)).get(); }
  std::string address(int host) const { return "10.177.0." + std::to_string(host + 1); }
  /// Processes that live there now.
  std::vector<pid_t> processes(int host) const;

 private:
  Hosts() = default;
  int count_ = 0;
  std::vector<UniqueFd> networks_;  // of the hosts; of more than two, the switch's at the end
};

}  // namespace lockstep::testing

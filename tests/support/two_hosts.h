// Two hosts on one machine: network namespaces with a cable (veth) between them. Shared memory, unix sockets
// and loopback stop at a namespace, as they stop at a host.
#pragma once

#include <array>
#include <optional>
#include <string>

#include "lockstep/base/unique_fd.h"

namespace lockstep::testing {

/// The namespaces have no names: the kernel removes them, cable and all, with the last process in them and
/// this object, whatever becomes of the test.
class TwoHosts {
 public:
  /// nullopt where that is not possible (it takes root's rights and `ip`); `why_not` then says why.
  static std::optional<TwoHosts> make(std::string& why_not);

  /// For Command::network. Hosts are 0 and 1.
  int network(int host) const { return networks_.at(static_cast<std::size_t>(host)).get(); }
  std::string address(int host) const { return host == 0 ? "10.177.0.1" : "10.177.0.2"; }

 private:
  TwoHosts() = default;
  std::array<UniqueFd, 2> networks_;
};

}  // namespace lockstep::testing

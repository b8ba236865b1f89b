// Whether agents would start on hosts: the first half of gather(), for who only wants to know.
#pragma once

#include <string>
#include <vector>

#include "lockstep/launch/hosts/host_list.h"
#include "lockstep/launch/run.h"

namespace lockstep::launch::agents {

struct HostCheck {
  std::string host = {};
  std::string problem = {};  ///< "": an agent of this version has answered
  double milliseconds = 0;   ///< until it did
};

/// All at once, within remote.start_timeout. The agents end again. Throws CannotExecute (the remote shell), Error{system}.
std::vector<HostCheck> check_hosts(const std::vector<Host>& hosts, const RemoteOptions& remote);

}  // namespace lockstep::launch::agents

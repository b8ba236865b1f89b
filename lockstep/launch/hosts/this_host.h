// Whether a host that the user names is the one that we run on, which needs no remote shell.
#pragma once

#include <string>

namespace lockstep::launch {

/// "localhost", this host's name with or without its domain, a loopback address, or a name or address of an interface here. Not
/// where a user is named ("root@server1"): that may be another one.
bool is_this_host(const std::string& name);

}  // namespace lockstep::launch

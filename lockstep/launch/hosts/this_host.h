// Whether a host that the user names is the one that we run on, which needs no remote shell.
#pragma once

#include <string>
#include <vector>

namespace lockstep::launch {

/// Numeric IPv4 addresses of the interfaces that are up, but for loopback. Throws Error{system}.
std::vector<std::string> own_addresses();

/// The numeric IPv4 addresses of a name, in the system's order; empty where it has none.
std::vector<std::string> addresses_of(const std::string& name);

/// "localhost", this host's name with or without its domain, a loopback address, or a name or address of an interface here. Not
/// where a user is named ("root@server1"): that may be another one.
bool is_this_host(const std::string& name);

}  // namespace lockstep::launch

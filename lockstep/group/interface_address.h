// Which of this host's addresses other hosts are to use.
#pragma once

#include <string>
#include <vector>

namespace lockstep {

struct NetworkInterface {
  std::string name = {};
  bool is_up = false;
  bool is_loopback = false;
  std::vector<std::string> v4 = {}, v6 = {};  ///< numeric addresses
};

/// Of this host, each once, in the system's order. Throws Error{system}.
std::vector<NetworkInterface> network_interfaces();

/// The numeric addresses of interfaces ("eth0" or "eth0,eth1"), each given by name (IPv4 before IPv6) or by an address of it.
/// Throws invalid_argument listing the interfaces there are, and where one is named twice or there are more than
/// most_interfaces.
std::vector<std::string> addresses_of_interfaces(const std::string& names_or_addresses);
inline constexpr std::size_t most_interfaces = 8;

bool is_v6(const std::string& address);

/// Numeric addresses of the interfaces that are up, IPv4 before IPv6, without those of loopback and of a single link. Throws
/// Error{system}.
std::vector<std::string> own_addresses();

/// The numeric addresses of a name, IPv4 before IPv6, else in the system's order, without those of a single link; empty where it has
/// none.
std::vector<std::string> addresses_of(const std::string& name);

/// One of own_addresses(): if possible that of this host's name. Throws Error{system} where there is none.
std::string address_for_other_hosts();

}  // namespace lockstep

// Which of this host's addresses other hosts are to use.
#pragma once

#include <string>

namespace lockstep {

/// The numeric address of an interface given by name ("eth0"; IPv4 before IPv6) or by an address of it.
/// Throws invalid_argument listing the interfaces there are.
std::string address_of_interface(const std::string& name_or_address);

}  // namespace lockstep

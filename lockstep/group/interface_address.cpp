#include "lockstep/group/interface_address.h"

#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <iterator>
#include <memory>

#include "lockstep/base/error.h"
#include "lockstep/base/split.h"
#include "lockstep/base/words.h"

namespace lockstep {
namespace {

std::string numeric(const ifaddrs& entry) {
  const socklen_t length = entry.ifa_addr->sa_family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
  char text[NI_MAXHOST] = {};
  if (::getnameinfo(entry.ifa_addr, length, text, sizeof(text), nullptr, 0, NI_NUMERICHOST) != 0) return {};
  return text;
}

/// "fe80::1%eth0": another host would need the name of its own interface.
bool is_of_one_link(const std::string& address) { return address.find('%') != std::string::npos; }

}  // namespace

bool is_v6(const std::string& address) { return address.find(':') != std::string::npos; }

std::vector<NetworkInterface> network_interfaces() {
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) throw_system("listing the network interfaces");
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> owner(list, ::freeifaddrs);
  std::vector<NetworkInterface> all;
  for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
    auto one = std::ranges::find(all, entry->ifa_name, &NetworkInterface::name);
    if (one == all.end()) one = all.insert(one, {.name = entry->ifa_name});
    one->is_up = (entry->ifa_flags & IFF_UP) != 0;
    one->is_loopback = (entry->ifa_flags & IFF_LOOPBACK) != 0;
    const int family = entry->ifa_addr != nullptr ? entry->ifa_addr->sa_family : AF_UNSPEC;
    if (family != AF_INET && family != AF_INET6) continue;
    const std::string address = numeric(*entry);
    if (!address.empty()) (family == AF_INET ? one->v4 : one->v6).push_back(address);
  }
  return all;
}

namespace {

std::string address_of_interface(const std::string& name_or_address) {
  std::string known;
  const auto all = network_interfaces();
  for (const auto addresses : {&NetworkInterface::v4, &NetworkInterface::v6}) {
    for (const NetworkInterface& one : all) {
      for (const std::string& address : one.*addresses) {
        if (name_or_address == one.name || name_or_address == address) return address;
        known += (known.empty() ? "" : ", ") + one.name + " (" + address + ")";
      }
    }
  }
  const bool is_there = std::ranges::find(all, name_or_address, &NetworkInterface::name) != all.end();
  throw_invalid_argument("LOCKSTEP_IFACE=\"" + name_or_address + "\" " +
                         (is_there ? "has no address" : "is no interface of this host") + "; there are " +
                         known);
}

}  // namespace

std::vector<std::string> addresses_of_interfaces(const std::string& names_or_addresses) {
  std::vector<std::string> addresses;
  for (const std::string& one : base::split(names_or_addresses, ',')) {
    const std::string address = address_of_interface(one);
    if (std::ranges::find(addresses, address) != addresses.end())
      throw_invalid_argument("LOCKSTEP_IFACE=\"" + names_or_addresses + "\" names " + address + " twice");
    addresses.push_back(address);
  }
  if (addresses.size() > most_interfaces) {
    throw_invalid_argument("LOCKSTEP_IFACE=\"" + names_or_addresses + "\" names more than " +
                           std::to_string(most_interfaces) + " interfaces");
  }
  return addresses;
}

std::vector<std::string> own_addresses() {
  std::vector<std::string> addresses;
  const auto all = network_interfaces();
  for (const auto family : {&NetworkInterface::v4, &NetworkInterface::v6}) {
    for (const NetworkInterface& one : all) {
      if (!one.is_up || one.is_loopback) continue;
      std::ranges::remove_copy_if(one.*family, std::back_inserter(addresses), is_of_one_link);
    }
  }
  return addresses;
}

std::vector<std::string> addresses_of(const std::string& name) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* list = nullptr;
  if (::getaddrinfo(name.c_str(), nullptr, &hints, &list) != 0) return {};
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owner(list, ::freeaddrinfo);
  std::vector<std::string> addresses;
  for (const addrinfo* entry = list; entry != nullptr; entry = entry->ai_next) {
    char text[NI_MAXHOST] = {};
    if (::getnameinfo(entry->ai_addr, entry->ai_addrlen, text, sizeof(text), nullptr, 0, NI_NUMERICHOST) == 0)
      addresses.emplace_back(text);
  }
  std::erase_if(addresses, is_of_one_link);
  std::stable_partition(addresses.begin(), addresses.end(),
                        [](const std::string& address) { return !is_v6(address); });
  return addresses;
}

std::string address_for_other_hosts() {
  const std::vector<std::string> own = own_addresses();
  if (own.empty())
    throw Error(ErrorCode::system,
                "no network interface of this host has an address that other hosts could reach");
  for (const std::string& address : addresses_of(base::host_name())) {
    if (std::ranges::find(own, address) != own.end()) return address;
  }
  return own.front();
}

}  // namespace lockstep

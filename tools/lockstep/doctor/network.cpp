#include <fmt/core.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>

#include <map>
#include <memory>
#include <string>

#include "examine.h"
#include "lockstep/base/words.h"
#include "system_files.h"

namespace doctor {
namespace {

struct Interface {
  bool is_up = false;
  std::vector<std::string> addresses = {};
};

std::string numeric(const sockaddr* address) {
  const socklen_t length = address->sa_family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
  char text[NI_MAXHOST] = {};
  return ::getnameinfo(address, length, text, sizeof(text), nullptr, 0, NI_NUMERICHOST) == 0 ? text : "";
}

std::map<std::string, Interface> interfaces() {
  std::map<std::string, Interface> found;
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) return found;
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> owner(list, ::freeifaddrs);
  for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
    if ((entry->ifa_flags & IFF_LOOPBACK) != 0) continue;
    Interface& one = found[entry->ifa_name];
    one.is_up = (entry->ifa_flags & IFF_UP) != 0;
    const bool has_address = entry->ifa_addr != nullptr && (entry->ifa_addr->sa_family == AF_INET ||
                                                            entry->ifa_addr->sa_family == AF_INET6);
    if (has_address) one.addresses.push_back(numeric(entry->ifa_addr));
  }
  return found;
}

/// In Mbit/s; 0: not told.
long speed_of(const std::string& name) {
  const std::string text = line_of("/sys/class/net/" + name + "/speed");
  const long speed = text.empty() ? 0 : std::strtol(text.c_str(), nullptr, 10);
  return speed > 0 ? speed : 0;
}

}  // namespace

void examine_network(Report& report) {
  report.section("Network", "network");
  report.fact("name", lockstep::base::host_name(), "host", lockstep::base::host_name());
  bool is_reachable = false;
  for (const auto& [name, one] : interfaces()) {
    const long speed = speed_of(name);
    std::string addresses;
    for (const std::string& address : one.addresses) addresses += (addresses.empty() ? "" : ", ") + address;
    report.fact(name,
                fmt::format("{}, {}{}", addresses.empty() ? "no address" : addresses,
                            one.is_up ? "up" : "down", speed > 0 ? fmt::format(", {} Mbit/s", speed) : ""),
                name, {{"addresses", one.addresses}, {"is_up", one.is_up}, {"mbit_per_s", speed}});
    is_reachable = is_reachable || (one.is_up && !one.addresses.empty());
  }
  if (!is_reachable) {
    report.problem(
        {.weight = 20,
         .what = "no network interface but loopback has an address: jobs on several hosts cannot include "
                 "this one",
         .remedy =
             "on one host nothing is missing; else `ip address` shows which interface is to be set up"});
  }
}

}  // namespace doctor

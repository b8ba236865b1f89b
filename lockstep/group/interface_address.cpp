#include "lockstep/group/interface_address.h"

#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <memory>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

std::string numeric(const ifaddrs& entry) {
  const socklen_t length = entry.ifa_addr->sa_family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
  char text[NI_MAXHOST] = {};
  if (::getnameinfo(entry.ifa_addr, length, text, sizeof(text), nullptr, 0, NI_NUMERICHOST) != 0) return {};
  return text;
}

}  // namespace

std::string address_of_interface(const std::string& name_or_address) {
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) throw_system("listing the network interfaces");
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> owner(list, ::freeifaddrs);
  std::string known;
  for (const int family : {AF_INET, AF_INET6}) {
    for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
      if (entry->ifa_addr == nullptr || entry->ifa_addr->sa_family != family) continue;
      std::string address = numeric(*entry);
      if (address.empty()) continue;
      if (name_or_address == entry->ifa_name || name_or_address == address) return address;
      known += (known.empty() ? "" : ", ") + std::string(entry->ifa_name) + " (" + address + ")";
    }
  }
  throw_invalid_argument("LOCKSTEP_IFACE=\"" + name_or_address +
                         "\" is no interface of this host; there are " + known);
}

}  // namespace lockstep

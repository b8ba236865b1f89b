#include "lockstep/launch/hosts/this_host.h"

#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <memory>

#include "lockstep/base/error.h"
#include "lockstep/base/words.h"

namespace lockstep::launch {
namespace {

std::string numeric_text(const sockaddr* address) {
  std::array<char, NI_MAXHOST> text{};
  const int problem =
      ::getnameinfo(address, sizeof(sockaddr_in), text.data(), text.size(), nullptr, 0, NI_NUMERICHOST);
  return problem == 0 ? text.data() : "";
}

std::string without_domain(const std::string& name) { return name.substr(0, name.find('.')); }

}  // namespace

std::vector<std::string> own_addresses() {
  ifaddrs* first = nullptr;
  if (::getifaddrs(&first) != 0) throw_system("asking for this host's interfaces");
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> owner(first, ::freeifaddrs);
  std::vector<std::string> addresses;
  for (const ifaddrs* one = first; one != nullptr; one = one->ifa_next) {
    const bool is_useful = (one->ifa_flags & IFF_UP) != 0 && (one->ifa_flags & IFF_LOOPBACK) == 0;
    if (is_useful && one->ifa_addr != nullptr && one->ifa_addr->sa_family == AF_INET)
      addresses.push_back(numeric_text(one->ifa_addr));
  }
  return addresses;
}

std::vector<std::string> addresses_of(const std::string& name) {
  addrinfo hints{};
  hints.ai_family = AF_INET;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* first = nullptr;
  if (::getaddrinfo(name.c_str(), nullptr, &hints, &first) != 0) return {};
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owner(first, ::freeaddrinfo);
  std::vector<std::string> addresses;
  for (const addrinfo* one = first; one != nullptr; one = one->ai_next)
    addresses.push_back(numeric_text(one->ai_addr));
  return addresses;
}

bool is_this_host(const std::string& name) {
  if (name.find('@') != std::string::npos) return false;
  const std::string own = base::host_name();
  if (name == "localhost" || name.starts_with("127.") || name == "::1") return true;
  if (name == own) return true;
  const std::vector<std::string> ours = own_addresses();
  const std::vector<std::string> found = addresses_of(name);
  const auto is_ours = [&](const std::string& address) {
    return address.starts_with("127.") || std::ranges::find(ours, address) != ours.end();
  };
  if (!found.empty()) return std::ranges::all_of(found, is_ours);
  return without_domain(name) == without_domain(own) &&
         name.find_first_not_of("0123456789.") != std::string::npos;
}

}  // namespace lockstep::launch

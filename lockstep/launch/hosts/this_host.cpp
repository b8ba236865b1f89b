#include "lockstep/launch/hosts/this_host.h"

#include <algorithm>
#include <vector>

#include "lockstep/base/words.h"
#include "lockstep/group/interface_address.h"

namespace lockstep::launch {
namespace {

std::string without_domain(const std::string& name) { return name.substr(0, name.find('.')); }

}  // namespace

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

#include <fmt/core.h>
#include <fmt/format.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "examine.h"
#include "lockstep/base/error.h"
#include "lockstep/base/system_file.h"
#include "lockstep/base/words.h"
#include "lockstep/group/interface_address.h"

namespace doctor {
namespace {

/// In Mbit/s; 0: not told.
long speed_of(const std::string& name) {
  const std::string text = lockstep::base::system_line("/sys/class/net/" + name + "/speed");
  const long speed = text.empty() ? 0 : std::strtol(text.c_str(), nullptr, 10);
  return speed > 0 ? speed : 0;
}

std::vector<lockstep::NetworkInterface> interfaces() try {
  return lockstep::network_interfaces();
} catch (const lockstep::Error&) {
  return {};
}

}  // namespace

void examine_network(Report& report) {
  report.section("Network", "network");
  report.fact("name", lockstep::base::host_name(), "host", lockstep::base::host_name());
  bool is_reachable = false;
  for (const auto& one : interfaces()) {
    if (one.is_loopback) continue;
    std::vector<std::string> addresses = one.v4;
    addresses.insert(addresses.end(), one.v6.begin(), one.v6.end());
    const long speed = speed_of(one.name);
    report.fact(one.name,
                fmt::format("{}, {}{}",
                            addresses.empty() ? "no address" : fmt::format("{}", fmt::join(addresses, ", ")),
                            one.is_up ? "up" : "down", speed > 0 ? fmt::format(", {} Mbit/s", speed) : ""),
                one.name, {{"addresses", addresses}, {"is_up", one.is_up}, {"mbit_per_s", speed}});
    is_reachable = is_reachable || (one.is_up && !addresses.empty());
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

#include <fmt/core.h>

#include "examine.h"
#include "lockstep/base/words.h"
#include "lockstep/launch/agents/check_hosts.h"

namespace doctor {

void examine_hosts(Report& report, const std::vector<lockstep::launch::Host>& hosts,
                   const lockstep::launch::RemoteOptions& remote) {
  if (hosts.empty()) return;
  report.section("Hosts", "hosts");
  for (const auto& found : lockstep::launch::agents::check_hosts(hosts, remote)) {
    const bool is_good = found.problem.empty();
    report.fact(found.host,
                is_good ? fmt::format("answers after {:.0f} ms", found.milliseconds) : found.problem,
                found.host, {{"problem", found.problem}, {"milliseconds", found.milliseconds}});
    if (!is_good) {
      report.problem({.weight = 70,
                      .is_fatal = true,
                      .what = found.host + " cannot take part: " + found.problem,
                      .remedy = "leave it out, or mend what stands there"});
    }
  }
}

}  // namespace doctor

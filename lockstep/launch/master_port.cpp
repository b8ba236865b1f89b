#include "lockstep/launch/master_port.h"

#include <random>
#include <sstream>

#include "lockstep/base/error.h"
#include "lockstep/base/socket.h"
#include "lockstep/base/system_file.h"

namespace lockstep {
namespace {

constexpr int first_port = 10'000;  // below are many services' own

std::uint16_t bound(const std::string& address, int port) {
  return Listener::bind(Endpoint::tcp(address, static_cast<std::uint16_t>(port))).endpoint().port;
}

}  // namespace

std::uint16_t pick_master_port(const std::string& address, int wished) {
  if (wished != 0) return bound(address, wished);
  int first_given = 0;
  std::istringstream(base::system_line("/proc/sys/net/ipv4/ip_local_port_range")) >> first_given;
  std::random_device random;
  constexpr int most_tries = 100;
  for (int tries = 0; tries < most_tries && first_given > first_port; ++tries) {
    try {
      return bound(address, std::uniform_int_distribution(first_port, first_given - 1)(random));
    } catch (const Error&) {
      // somebody listens there
    }
  }
  return bound(address, 0);
}

}  // namespace lockstep

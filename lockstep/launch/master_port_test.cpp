#include "lockstep/launch/master_port.h"

#include <gmock/gmock.h>

#include <fstream>

#include "lockstep/base/error.h"
#include "lockstep/base/socket.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;

TEST(MasterPort, IsNoneThatTheSystemGivesToOthers) {
  int first = 0, last = 0;
  std::ifstream("/proc/sys/net/ipv4/ip_local_port_range") >> first >> last;
  if (first <= 10'000) GTEST_SKIP() << "the system gives away nearly all ports here";
  for (int time = 0; time < 100; ++time) {
    const int port = pick_master_port("127.0.0.1", 0);
    EXPECT_TRUE(port >= 10'000 && port < first) << port;
  }
}

TEST(MasterPort, IsTheOneThatIsWished) {
  const int port = pick_master_port("127.0.0.1", 0);
  EXPECT_EQ(pick_master_port("127.0.0.1", port), port);
  const Listener holder = Listener::bind(Endpoint::tcp("127.0.0.1", static_cast<std::uint16_t>(port)));
  try {
    (void)pick_master_port("127.0.0.1", port);
    FAIL() << "the port is taken";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::system);
    EXPECT_THAT(error.what(), HasSubstr("port " + std::to_string(port) + " on 127.0.0.1 is already in use"));
  }
}

}  // namespace
}  // namespace lockstep

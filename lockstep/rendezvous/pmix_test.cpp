// Finding PMIx's library; that it works is seen under real launchers (tests/fault/launched_test.cpp).
#include "lockstep/rendezvous/pmix.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

TEST(Pmix, IsFoundAmongWhatALauncherHasLoaded) {
  const std::string maps =
      "55d0c8a00000-55d0c8a02000 r--p 00000000 fe:00 1054  /opt/a b/bin/prterun\n"
      "7f11e8200000-7f11e8260000 r--p 00000000 fe:00 1077  /opt/a b/lib/openmpi/libpmix.so.2.13.7\n"
      "7f11e8260000-7f11e8400000 r-xp 00060000 fe:00 1077  /opt/a b/lib/openmpi/libpmix.so.2.13.7\n";
  EXPECT_EQ(detail::pmix_among(maps), "/opt/a b/lib/openmpi/libpmix.so.2.13.7");
  EXPECT_EQ(detail::pmix_among(maps.substr(maps.find('\n') + 1)), "/opt/a b/lib/openmpi/libpmix.so.2.13.7");
  EXPECT_EQ(detail::pmix_among(maps.substr(0, maps.find('\n') + 1)), "");
  EXPECT_EQ(detail::pmix_among(""), "");
}

}  // namespace
}  // namespace lockstep

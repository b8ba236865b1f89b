#include "lockstep/topology/nvlinks.h"

#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep::topology {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::vector<Device> gpus(const std::vector<std::string>& buses) {
  std::vector<Device> all;
  for (const std::string& bus : buses) {
    const auto number = static_cast<int>(all.size());
    all.push_back(
        {.number = number, .name = "GPU" + std::to_string(number), .bus_id = "0000:" + bus + ":00.0"});
  }
  return all;
}

TEST(Nvlinks, AreCountedOneByOneAndThroughSwitches) {
  ASSERT_NE(::dlopen(FAKE_NVML, RTLD_NOW), nullptr) << ::dlerror();  // found by its name from now on
  auto all = gpus({"19", "1a", "1b", "77"});
  find_nvlinks(all);
  EXPECT_THAT(all[0].nvlinks, ElementsAre(0, 3, 1, 0));
  EXPECT_THAT(all[1].nvlinks, ElementsAre(3, 0, 1, 0));
  EXPECT_THAT(all[2].nvlinks, ElementsAre(1, 1, 0, 0));
  EXPECT_THAT(all[3].nvlinks, IsEmpty()) << "the driver does not know it";
  EXPECT_EQ(connection(all[0], all[1]), "NV3");
}

}  // namespace
}  // namespace lockstep::topology

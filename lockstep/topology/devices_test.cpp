#include "lockstep/topology/devices.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "lockstep/base/folder_test.h"

namespace lockstep::topology {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

/// A sysfs of a test's own.
class Devices : public test::FolderTest {
 protected:
  /// At `path` below /sys/devices, the last part of which is its bus id.
  void add(const std::string& path, const std::string& kind, const std::string& vendor, int node) const {
    const fs::path device = folder_ / "devices" / path;
    fs::create_directories(device);
    std::ofstream(device / "class") << kind << "\n";
    std::ofstream(device / "vendor") << vendor << "\n";
    std::ofstream(device / "numa_node") << node << "\n";
    std::ofstream(device / "local_cpulist") << (node == 1 ? "16-31" : "0-15") << "\n";
    fs::create_directories(folder_ / "bus/pci/devices");
    fs::create_directory_symlink(device, folder_ / "bus/pci/devices" / device.filename());
  }
  void add_gpu(const std::string& path, int node) const { add(path, "0x030200", "0x10de", node); }
  void name(const std::string& kind, const std::string& name, const std::string& path) const {
    const fs::path entry = folder_ / "class" / kind / name;
    fs::create_directories(entry);
    fs::create_directory_symlink(folder_ / "devices" / path, entry / "device");
  }
};

TEST_F(Devices, AreConnectedAsTheBusIs) {
  add_gpu("pci0000:16/0000:16:01.0/0000:17:00.0/0000:18:00.0/0000:19:00.0", 0);
  add_gpu("pci0000:16/0000:16:01.0/0000:17:00.0/0000:18:04.0/0000:1a:00.0", 0);
  add_gpu("pci0000:16/0000:16:01.0/0000:17:00.0/0000:18:08.0/0000:1b:00.0/0000:1c:00.0/0000:1d:00.0", 0);
  add_gpu("pci0000:16/0000:16:02.0/0000:2a:00.0", 0);
  add_gpu("pci0000:30/0000:30:01.0/0000:31:00.0", 0);
  add_gpu("pci0000:97/0000:97:01.0/0000:98:00.0", 1);
  const auto all = find_devices(folder_.string());
  ASSERT_THAT(all, SizeIs(6));
  const std::vector<std::string> from_first = {"X", "PIX", "PXB", "PHB", "NODE", "SYS"};
  for (std::size_t i = 0; i < all.size(); ++i) {
    EXPECT_EQ(all[i].name, "GPU" + std::to_string(i));
    EXPECT_EQ(connection(all[0], all[i]), from_first[i]);
    EXPECT_EQ(connection(all[i], all[0]), from_first[i]);
  }
  EXPECT_EQ(all[5].cores, "16-31");
  EXPECT_EQ(all[5].memory_node, 1);
}

TEST_F(Devices, OfTheNetworkHaveOneNameEachAndVirtualOnesNone) {
  const std::string card = "pci0000:16/0000:16:01.0/0000:17:00.0";
  add(card, "0x020700", "0x15b3", 0);
  add("pci0000:00/0000:00:03.0", "0x020000", "0x1af4", -1);
  name("infiniband", "mlx5_0", card);
  name("net", "ib0", card);
  fs::create_directories(folder_ / "devices/pci0000:00/0000:00:03.0/virtio0");
  name("net", "eth0", "pci0000:00/0000:00:03.0/virtio0");
  fs::create_directories(folder_ / "class/net/lo");
  const auto all = find_devices(folder_.string());
  ASSERT_THAT(all, SizeIs(2));
  EXPECT_EQ(all[0].name, "mlx5_0");
  EXPECT_EQ(all[1].name, "eth0");
  EXPECT_EQ(all[1].memory_node, -1);
  const std::string table = connection_table(all);
  EXPECT_THAT(table, HasSubstr("mlx5_0  X       SYS     0-15"));
  EXPECT_THAT(table, HasSubstr("  PIX   one PCIe bridge at most\n"));
}

TEST_F(Devices, AreNoneWhereThereIsNoBus) { EXPECT_THAT(find_devices(folder_.string()), IsEmpty()); }

TEST(Connections, CountNvlinks) {
  const Device gpu{.name = "GPU0", .bus_id = "a", .path = {"pci0000:00", "a"}, .nvlinks = {0, 4, 0}};
  const Device linked{.number = 1, .name = "GPU1", .bus_id = "b", .path = {"pci0000:01", "b"}};
  const Device other{.number = 2, .name = "GPU2", .bus_id = "c", .path = {"pci0000:00", "c"}};
  EXPECT_EQ(connection(gpu, linked), "NV4");
  EXPECT_EQ(connection(gpu, other), "PHB");
}

}  // namespace
}  // namespace lockstep::topology

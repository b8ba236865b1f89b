#include "lockstep/launch/hosts/host_list.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>

#include "lockstep/base/failure_test.h"
#include "lockstep/base/folder_test.h"

namespace lockstep::launch {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string refusal(const std::function<void()>& call) {
  return test::failure_of(call, ErrorCode::invalid_argument);
}

TEST(HostList, HasSlotsBehindAColonAndOneWithout) {
  EXPECT_THAT(parse_host_list("server1:4,server2:2,10.0.0.3"),
              ElementsAre(Host{"server1", 4}, Host{"server2", 2}, Host{"10.0.0.3", 1}));
}

TEST(HostList, TakesUsersAndIpv6InBrackets) {
  EXPECT_THAT(parse_host_list("ann@a:2,[fe80::1%eth0]:3,[::1]"),
              ElementsAre(Host{"ann@a", 2}, Host{"fe80::1%eth0", 3}, Host{"::1", 1}));
}

TEST(HostList, AddsUpAHostThatIsNamedAgain) {
  EXPECT_THAT(parse_host_list("a:2,b,a"), ElementsAre(Host{"a", 3}, Host{"b", 1}));
}

TEST(HostList, RefusesWithTheEntry) {
  const auto why = [](const std::string& text) { return refusal([&] { parse_host_list(text); }); };
  EXPECT_EQ(why(""), "-H: a host is missing; write for example server1:4,server2:4");
  EXPECT_EQ(why("a,"), "-H: a host is missing; write for example server1:4,server2:4");
  EXPECT_EQ(why("a,,b"), "-H: \"\" is no name of a host");
  for (const std::string slots : {"0", "-1", "x", "", "65537", "99999999999"})
    EXPECT_EQ(why("a:" + slots + ",b"),
              "-H: \"a:" + slots + "\" has \"" + slots + "\" slots, which is no number from 1 to 65536");
  EXPECT_EQ(why("a:1:2"), "-H: \"a:1:2\" has several colons; write an IPv6 address in brackets: [fe80::1]:4");
  EXPECT_EQ(why("[::1"), "-H: \"[::1\" has no closing bracket");
  EXPECT_EQ(why("[::1]4"), "-H: \"[::1]4\" goes on behind the closing bracket");
  for (const std::string name : {"-oProxyCommand=x", "a b", "a;b", "$(a)", "a@-b", "@a", "a@", "a@b@c"})
    EXPECT_THAT(why(name), HasSubstr(" is no name of a host")) << name;
}

TEST(HostList, IsBounded) {
  std::string hosts;
  for (int i = 0; i <= most_hosts; ++i) hosts += (i == 0 ? "h" : ",h") + std::to_string(i);
  EXPECT_EQ(refusal([&] { parse_host_list(hosts); }), "-H: there are more than 16384 hosts");
  EXPECT_EQ(refusal([] { parse_host_list("a:65536,b"); }), "-H: there are more than 65536 slots");
}

TEST(Hostfile, IsOpenMpisMpichsHorovodsOrPbss) {
  const std::string text =
      "# the cluster\n"
      "server1 slots=4 max_slots=8\n"
      "  server2 slots = 2   # quiet\r\n"
      "\n"
      "server3:3 binding=user:0 ifname=eth1\n"
      "node7\nnode7\n"
      "server4";
  EXPECT_THAT(parse_hostfile(text, "hostfile h"),
              ElementsAre(Host{"server1", 4}, Host{"server2", 2}, Host{"server3", 3}, Host{"node7", 2},
                          Host{"server4", 1}));
}

TEST(Hostfile, RefusesWithFileAndLine) {
  const auto why = [](const std::string& text) {
    return refusal([&] { parse_hostfile(text, "hostfile h"); });
  };
  EXPECT_EQ(why("\n# nobody\n"),
            "hostfile h: it names no host; write one a line, for example: server1 slots=4");
  EXPECT_EQ(why("a\n\nb slots=none\n"),
            "hostfile h, line 3: \"b slots=none\" has \"none\" slots, which is no number from 1 to 65536");
  EXPECT_EQ(why("a slots="),
            "hostfile h, line 1: \"a slots=\" has \"\" slots, which is no number from 1 to 65536");
  EXPECT_EQ(why("a:2 slots=2"), "hostfile h, line 1: \"a:2 slots=2\" says twice how many slots there are");
  EXPECT_EQ(why("a slots=1 slots=2"),
            "hostfile h, line 1: \"a slots=1 slots=2\" says twice how many slots there are");
  EXPECT_EQ(why("a slots=2\nb c\n"),
            "hostfile h, line 2: \"b c\" has \"c\" behind the host, which is no option like slots=4; a host "
            "a line");
  EXPECT_EQ(why("a\n-l\n"), "hostfile h, line 2: \"-l\" is no name of a host");
}

class HostfileInAFolder : public test::FolderTest {};

TEST_F(HostfileInAFolder, IsReadFromAFileOfBoundedSize) {
  const std::string path = folder_ / "hostfile";
  std::ofstream(path) << "a slots=2\n";
  EXPECT_THAT(read_hostfile(path), ElementsAre(Host{"a", 2}));
  std::ofstream(path) << "\xEF\xBB\xBF"
                         "a:3\r\n";
  EXPECT_THAT(read_hostfile(path), ElementsAre(Host{"a", 3})) << "as an editor of Windows writes it";
  std::filesystem::resize_file(path, (1 << 20) + 1);
  EXPECT_EQ(refusal([&] { read_hostfile(path); }),
            "hostfile " + path + " has 1048577 bytes; a hostfile has at most 1048576");
  std::filesystem::remove(path);
  EXPECT_EQ(refusal([&] { read_hostfile(path); }),
            "hostfile " + path + " cannot be read: No such file or directory");
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  EXPECT_EQ(refusal([&] { read_hostfile(path); }),
            "hostfile " + path + " is no file: a pipe or a terminal is not taken; write it to a file first");
}

TEST(ShareOut, FillsHostsInTheirOrder) {
  const std::vector<Host> hosts = {{"a", 2}, {"b", 4}, {"c", 1}};
  EXPECT_THAT(share_out(3, hosts), ElementsAre(Host{"a", 2}, Host{"b", 1}));
  EXPECT_EQ(share_out(7, hosts), hosts);
}

TEST(ShareOut, SaysWhatThereIsWhereItIsTooLittle) {
  EXPECT_EQ(refusal([] {
              share_out(8, {{"a", 2}, {"fe80::1", 4}});
            }),
            "8 ranks do not fit: there are 6 slots on 2 hosts (a:2, [fe80::1]:4); name more hosts or slots, "
            "or start "
            "fewer ranks");
}

}  // namespace
}  // namespace lockstep::launch

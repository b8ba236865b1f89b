#include "lockstep/launch/hosts/discovery.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/base/error.h"

namespace lockstep::launch {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::vector<Host> parsed(const std::string& printed) { return parse_discovered(printed, "find", 3); }

std::string problem_of(const std::string& printed) {
  try {
    (void)parsed(printed);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(Discovered, AreHostsALineEach) {
  EXPECT_THAT(
      parsed("a:2\n\n  b \r\n# no host\n[fe80::1]:4\n[fe80::2]\nuser@c:1"),
      ElementsAre(Host{"a", 2}, Host{"b", 3}, Host{"fe80::1", 4}, Host{"fe80::2", 3}, Host{"user@c", 1}));
  EXPECT_THAT(parsed("a:0\n[fe80::1]:0\n"), ElementsAre(Host{"a", 0}, Host{"fe80::1", 0}));
  EXPECT_THAT(parsed("a:2\nb:1\na\n"), ElementsAre(Host{"a", 5}, Host{"b", 1}));
  EXPECT_THAT(parsed(""), IsEmpty());
}

TEST(Discovered, NameTheLineThatIsNone) {
  EXPECT_THAT(problem_of("a:2\nb:x\n"), HasSubstr("find, line 2: \"b:x\" has \"x\" slots"));
  EXPECT_THAT(problem_of("a:1,b:1\n"),
              HasSubstr("\"a:1,b:1\" are several hosts; each has a line of its own"));
  EXPECT_THAT(problem_of("a\tb\n"), HasSubstr("line 1: "));
  EXPECT_THAT(problem_of("a:65536\nb:1\n"),
              HasSubstr("line 2: more than 1024 hosts, or 65536 slots together"));
}

TEST(Discovered, AreAskedOnce) {
  EXPECT_THAT(discover({.script = "echo a:1; echo b"}), ElementsAre(Host{"a", 1}, Host{"b", 1}));
  EXPECT_THAT(discover({.script = "echo \"it's $((1 + 1))\" >/dev/null"}), IsEmpty());
  EXPECT_THAT(discover({.script = "echo a; sleep 1000 &"}), ElementsAre(Host{"a", 1}))
      << "which holds the pipe";
  EXPECT_THROW((void)discover({.script = "kill -9 $$"}), Error);
  EXPECT_THROW((void)discover({.script = "sleep 100", .limit = std::chrono::milliseconds(50)}), Error);
  EXPECT_THROW((void)discover({.script = "/no/such/program"}), Error);
}

}  // namespace
}  // namespace lockstep::launch

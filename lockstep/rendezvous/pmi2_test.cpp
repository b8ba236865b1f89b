#include "lockstep/rendezvous/pmi2.h"

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <array>
#include <chrono>
#include <thread>
#include <utility>
#include <vector>

#include "lockstep/base/failure_test.h"
#include "lockstep/base/unique_fd.h"

namespace lockstep {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;
using ::testing::Pair;
using ::testing::UnorderedElementsAre;

const Deadline deadline = Deadline::after(30s);

std::string framed(const std::string& message) { return fmt::format("{:6}{}", message.size(), message); }

/// A launcher that expects bytes, and answers each with what is told.
class Pmi2Test : public ::testing::Test {
 protected:
  using Conversation = std::vector<std::pair<std::string, std::string>>;

  Pmi2Test() {
    std::array<int, 2> ends{};
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends.data()), 0);
    rank_ = UniqueFd(ends[0]);
    launcher_ = UniqueFd(ends[1]);
  }
  ~Pmi2Test() override { finish(); }

  void answer(Conversation conversation) {
    thread_ = std::thread([this, conversation = std::move(conversation)] {
      for (const auto& [expected, answer] : conversation) {
        std::string got(expected.size(), ' ');
        EXPECT_EQ(::recv(launcher_.get(), got.data(), got.size(), MSG_WAITALL),
                  static_cast<ssize_t>(got.size()));
        EXPECT_EQ(got, expected);
        for (const char byte : answer) EXPECT_EQ(::send(launcher_.get(), &byte, 1, 0), 1);
      }
    });
  }
  void finish() {
    if (thread_.joinable()) thread_.join();
  }
  std::string why(const std::string& bytes, ErrorCode code) {
    answer({{framed("cmd=kvs-fence;"), bytes}});
    const std::string text = test::failure_of([&] { Pmi2(rank_.get(), "7.0", true).fence(deadline); }, code);
    finish();
    return text;
  }

  UniqueFd rank_, launcher_;

 private:
  std::thread thread_;
};

TEST_F(Pmi2Test, SpeaksAsSlurmExpects) {
  answer({{"cmd=init pmi_version=2 pmi_subversion=0\n",
           "cmd=response_to_init pmi_version=2 pmi_subversion=0 rc=0\n"},
          {framed("cmd=kvs-put;key=place;value=tcp:10.0.0.1:5;"), framed("cmd=kvs-put-response;rc=0;")},
          {framed("cmd=kvs-fence;"), "28    cmd=kvs-fence-response;rc=0;"},
          {framed("cmd=kvs-get;jobid=7.0;srcid=-1;key=place;"),
           framed("cmd=kvs-get-response;found=TRUE;value=tcp:10.0.0.1:5;rc=0;")}});
  Pmi2 pmi(rank_.get(), "7.0", false);
  EXPECT_EQ(pmi.job(deadline), "7.0");
  pmi.put("place", "tcp:10.0.0.1:5", deadline);
  pmi.fence(deadline);
  EXPECT_EQ(pmi.get("place", deadline), "tcp:10.0.0.1:5");
}

TEST_F(Pmi2Test, WhatNobodyHasPutIsSaid) {
  answer({{framed("cmd=kvs-get;jobid=7.0;srcid=-1;key=place;"),
           framed("cmd=kvs-get-response;found=FALSE;value=;rc=0;")}});
  EXPECT_THAT(test::failure_of([&] { (void)Pmi2(rank_.get(), "7.0", true).get("place", deadline); },
                               ErrorCode::mismatch),
              HasSubstr("no rank has put \"place\""));
}

TEST_F(Pmi2Test, AnAnswerThatMakesNoSenseIsSaid) {
  EXPECT_THAT(why("abcdef", ErrorCode::corrupt_data), HasSubstr("the length \"abcdef\""));
  EXPECT_THAT(why("999999", ErrorCode::corrupt_data), HasSubstr("the length \"999999\""));
  EXPECT_THAT(why(framed("cmd=other;"), ErrorCode::corrupt_data), HasSubstr("instead of kvs-fence-response"));
  EXPECT_THAT(why(framed("cmd=kvs-fence-response;rc=5;"), ErrorCode::system), HasSubstr("rc=5"));
}

TEST_F(Pmi2Test, ALauncherThatIsGoneOrSilentIsSaid) {
  test::failure_of([&] { Pmi2(rank_.get(), "7.0", true).fence(Deadline::after(50ms)); }, ErrorCode::timeout);
  launcher_.reset();
  test::failure_of([&] { Pmi2(rank_.get(), "7.0", true).fence(deadline); }, ErrorCode::peer_lost);
}

TEST(ParsePmi2, TakesNamesAndValues) {
  EXPECT_THAT(parse_pmi2("cmd=a;value=x=y;rc=0;"),
              UnorderedElementsAre(Pair("cmd", "a"), Pair("value", "x=y"), Pair("rc", "0")));
  for (const char* wrong : {"", "cmd", "cmd=a", "=a;", "cmd=a;cmd=b;", "rc=0;", "cmd=a;b;", "cmd=\n;"})
    test::failure_of([&] { parse_pmi2(wrong); }, ErrorCode::corrupt_data);
}

}  // namespace
}  // namespace lockstep

#include "lockstep/rendezvous/pmi1.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <array>
#include <thread>
#include <utility>
#include <vector>

#include "lockstep/base/failure_test.h"

namespace lockstep {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Pair;
using ::testing::UnorderedElementsAre;

const Deadline limit = Deadline::after(30s);

/// A launcher that expects lines, and answers each with what is told.
class Pmi1Test : public ::testing::Test {
 protected:
  using Conversation = std::vector<std::pair<std::string, std::string>>;

  Pmi1Test() {
    std::array<int, 2> ends{};
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends.data()), 0);
    rank_ = UniqueFd(ends[0]);
    launcher_ = UniqueFd(ends[1]);
  }
  ~Pmi1Test() override { finish(); }

  void answer(Conversation conversation) {
    thread_ = std::thread([this, conversation = std::move(conversation)] {
      for (const auto& [expected, answer] : conversation) {
        EXPECT_EQ(read_line(), expected);
        // In pieces, as a network may.
        for (const char byte : answer) EXPECT_EQ(::send(launcher_.get(), &byte, 1, 0), 1);
      }
    });
  }
  void finish() {
    if (thread_.joinable()) thread_.join();
  }
  std::string why(const std::string& answer_text, ErrorCode code) {
    answer({{"cmd=barrier_in", answer_text}});
    const std::string text = test::failure_of([&] { Pmi1(rank_.get()).fence(limit); }, code);
    finish();
    return text;
  }

  UniqueFd rank_, launcher_;

 private:
  std::string read_line() {
    std::string line;
    for (char byte = 0; ::recv(launcher_.get(), &byte, 1, 0) == 1 && byte != '\n';) line += byte;
    return line;
  }
  std::thread thread_;
};

TEST_F(Pmi1Test, SpeaksAsMpichsLauncherExpects) {
  answer({{"cmd=get_my_kvsname", "cmd=my_kvsname rc=0 kvsname=kvs_21751_0_1430376528_vm\n"},
          {"cmd=put kvsname=kvs_21751_0_1430376528_vm key=store value=tcp:10.0.0.1:29500",
           "cmd=put_result rc=0\n"},
          {"cmd=barrier_in", "cmd=barrier_out tag=0\n"},
          {"cmd=get kvsname=kvs_21751_0_1430376528_vm key=store",
           "cmd=get_result rc=0 value=tcp:10.0.0.1:29500\n"}});
  Pmi1 pmi(rank_.get());
  EXPECT_EQ(pmi.job(limit), "kvs_21751_0_1430376528_vm");
  pmi.put("store", "tcp:10.0.0.1:29500", limit);
  pmi.fence(limit);
  EXPECT_EQ(pmi.get("store", limit), "tcp:10.0.0.1:29500");
}

TEST_F(Pmi1Test, SpeaksAsIntelsLauncherExpects) {
  answer({{"cmd=get_my_kvsname", "cmd=my_kvsname kvsname=kvs_21924_0\n"},
          {"cmd=put kvsname=kvs_21924_0 key=a value=b", "cmd=put_result rc=0 msg=success\n"},
          {"cmd=get kvsname=kvs_21924_0 key=c", "cmd=get_result rc=-1 msg=key_c_not_found value=unknown\n"}});
  Pmi1 pmi(rank_.get());
  pmi.put("a", "b", limit);
  EXPECT_EQ(test::failure_of([&] { pmi.get("c", limit); }, ErrorCode::mismatch),
            "PMI, \"cmd=get\": no rank has put \"c\"");
}

TEST_F(Pmi1Test, LeavesToMpiWhatIsNotItsOwn) {
  answer({{"cmd=barrier_in", "cmd=barrier_out\nMPI's"}});
  Pmi1(rank_.get()).fence(limit);
  finish();
  std::array<char, 16> rest{};
  EXPECT_EQ(::recv(rank_.get(), rest.data(), rest.size(), MSG_DONTWAIT), 5);
  EXPECT_EQ(std::string(rest.data()), "MPI's");
  EXPECT_EQ(::fcntl(rank_.get(), F_GETFL) & O_NONBLOCK, 0);
}

TEST_F(Pmi1Test, NamesAnAnswerThatIsNone) {
  EXPECT_EQ(why("cmd=finalize_ack\n", ErrorCode::corrupt_data),
            "PMI, \"cmd=barrier_in\": the launcher answers \"finalize_ack\" instead of barrier_out");
  EXPECT_EQ(why("hello\n", ErrorCode::corrupt_data),
            "PMI: the launcher answers \"hello\", which is not made of names and values");
  EXPECT_EQ(why("rc=0\n", ErrorCode::corrupt_data), "PMI: the launcher answers \"rc=0\", which has no cmd");
  EXPECT_THAT(why("cmd=\x01\n", ErrorCode::corrupt_data), HasSubstr("which is no text"));
  EXPECT_THAT(why("cmd=a cmd=b\n", ErrorCode::corrupt_data), HasSubstr("says something twice"));
}

TEST_F(Pmi1Test, ReadsNoLineWithoutAnEnd) {
  std::string endless(Pmi1::most_line_bytes + 1, 'x');
  EXPECT_EQ(why(endless, ErrorCode::corrupt_data),
            "PMI, \"cmd=barrier_in\": the launcher's answer has more than 8192 bytes");
}

TEST_F(Pmi1Test, TakesNoJobWithANameThatSocketsCannotHave) {
  answer({{"cmd=get_my_kvsname", "cmd=my_kvsname kvsname=a/b\n"}});
  Pmi1 pmi(rank_.get());
  EXPECT_EQ(test::failure_of([&] { pmi.job(limit); }, ErrorCode::corrupt_data),
            "PMI, \"cmd=get_my_kvsname\": the job is called \"a/b\"");
}

TEST_F(Pmi1Test, WaitsNoLongerThanItMay) {
  Pmi1 pmi(rank_.get());
  EXPECT_THAT(test::failure_of([&] { pmi.fence(Deadline::after(10ms)); }, ErrorCode::timeout),
              HasSubstr("the launcher did not answer before the deadline"));
}

TEST_F(Pmi1Test, NoticesThatTheLauncherIsGone) {
  Pmi1 pmi(rank_.get());
  launcher_.reset();
  EXPECT_EQ(test::failure_of([&] { pmi.fence(limit); }, ErrorCode::peer_lost),
            "PMI, \"cmd=barrier_in\": the launcher has closed the connection");
}

TEST_F(Pmi1Test, NeedsASocket) {
  EXPECT_EQ(test::failure_of([] { Pmi1(12345); }, ErrorCode::invalid_argument),
            "PMI_FD=12345 is no socket of this process; was it started by mpiexec, and were its descriptors "
            "left open?");
}

TEST(Pmi1Answers, AreNamesAndValues) {
  EXPECT_THAT(parse_pmi1("cmd=get_result rc=0 value=a=b"),
              UnorderedElementsAre(Pair("cmd", "get_result"), Pair("rc", "0"), Pair("value", "a=b")));
}

}  // namespace
}  // namespace lockstep

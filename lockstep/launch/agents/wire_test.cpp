#include "lockstep/launch/agents/wire.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/base/failure_test.h"
#include "lockstep/launch/agents/message_pipe.h"

namespace lockstep::launch::agents {
namespace {

using test::failure_of;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// As it goes over the pipe.
std::string bytes_of(const Message& message) {
  std::string bytes;
  base::append_number(bytes, static_cast<std::uint32_t>(message.body.size()));
  base::append_number(bytes, message.kind);
  return bytes + message.body;
}

TEST(AgentWire, WhatIsWrittenIsRead) {
  const Plan plan{.host = 1,
                  .host_name = "server2",
                  .ranks_of_hosts = {2, 4},
                  .job = "cafe",
                  .secret = std::string("\0\n\xff", 3),
                  .roles = {{.name = "worker", .ranks = 3, .command = {"./train", "--epochs", ""}}},
                  .variables = {{"A", "1"}, {"B", "x=y"}},
                  .folder = "/work",
                  .pin = 0};
  const auto read = content_of<Plan>(to_message(plan));
  EXPECT_EQ(read.host, 1);
  EXPECT_EQ(read.host_name, "server2");
  EXPECT_THAT(read.ranks_of_hosts, ElementsAre(2, 4));
  EXPECT_EQ(read.secret, plan.secret);
  EXPECT_THAT(read.roles.front().command, ElementsAre("./train", "--epochs", ""));
  EXPECT_EQ(read.variables, plan.variables);
  EXPECT_EQ(read.pin, 0);

  const auto left = content_of<Stragglers>(to_message(Stragglers{.left = {{3, 42, 1}, {5, 43, 0}}})).left;
  ASSERT_EQ(left.size(), 2U);
  EXPECT_EQ(left[1].pid, 43);
  EXPECT_NO_THROW(content_of<Look>(to_message(Look{})));
}

TEST(AgentWire, BytesThatAreMissingOrTooManyAreNone) {
  const Message whole = to_message(Output{.rank = 1, .stream = 1, .bytes = "hello"});
  for (std::size_t bytes = 0; bytes < whole.body.size(); ++bytes) {
    const Message cut{.kind = whole.kind, .body = whole.body.substr(0, bytes)};
    EXPECT_THAT(failure_of([&] { content_of<Output>(cut); }, ErrorCode::corrupt_data), HasSubstr("kind 7"));
  }
  const Message longer{.kind = whole.kind, .body = whole.body + "x"};
  failure_of([&] { content_of<Output>(longer); }, ErrorCode::corrupt_data);
}

TEST(AgentWire, AListOfMoreThanThereIsTakesNoMemory) {
  Message message{.kind = Kind::probe};
  base::append_number(message.body, std::uint32_t{0xffffffff});
  failure_of([&] { content_of<Probe>(message); }, ErrorCode::corrupt_data);
}

TEST(MessageParser, TakesMessagesWhateverThePieces) {
  const std::string bytes = bytes_of(to_message(Start{.store = "s"})) + bytes_of(to_message(Look{})) +
                            bytes_of(to_message(Input{.bytes = "typed"}));
  for (std::size_t piece = 1; piece <= bytes.size(); ++piece) {
    MessageParser parser;
    std::vector<Kind> kinds;
    for (std::size_t at = 0; at < bytes.size(); at += piece)
      parser.add(std::string_view(bytes).substr(at, piece),
                 [&](const Message& message) { kinds.push_back(message.kind); });
    EXPECT_THAT(kinds, ElementsAre(Kind::start, Kind::look, Kind::input)) << piece;
    EXPECT_TRUE(parser.is_between_messages());
  }
}

TEST(MessageParser, RefusesAMessageThatIsTooLong) {
  std::string bytes;
  base::append_number(bytes, static_cast<std::uint32_t>(most_message_bytes + 1));
  base::append_number(bytes, Kind::output);
  MessageParser parser;
  EXPECT_THAT(failure_of([&] { parser.add(bytes, [](const Message&) {}); }, ErrorCode::corrupt_data),
              HasSubstr("8388609 bytes, of which 8388608 are allowed"));
}

}  // namespace
}  // namespace lockstep::launch::agents

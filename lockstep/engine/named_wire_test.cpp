#include "lockstep/engine/named_wire.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/base/failure_test.h"

namespace lockstep {
namespace {

using test::corruption_of;
using ::testing::HasSubstr;
using namespace std::string_literals;

NamedRequest request_with_everything() {
  return {.name = "layer.weight",
          .operation = Operation::all_to_all,
          .dtype = Dtype::bf16,
          .reduce_op = ReduceOp::max,
          .prescale = 0.5F,
          .root = 3,
          .shapes = {{3, 0, 7}},
          .rows = {1, 2, 3}};
}

/// Those of docs/wire_formats.md, section "Named operations".
TEST(NamedWire, HasTheBytesOfTheDocument) {
  const NamedRequest request{.name = "ab",
                             .operation = Operation::broadcast,
                             .dtype = Dtype::bf16,
                             .reduce_op = ReduceOp::max,
                             .prescale = 0.5F,
                             .root = 3,
                             .is_on_gpu = true,
                             .shapes = {{7}}};
  const std::string request_bytes =
      "\x02\x00\x00\x00"s + "ab"s + static_cast<char>(Operation::broadcast) + static_cast<char>(Dtype::bf16) +
      static_cast<char>(ReduceOp::max) + "\x00\x00\x00\x3f"s + "\x03\x00\x00\x00"s + "\x01"s +
      "\x01\x00\x00\x00"s + "\x01\x00\x00\x00"s + "\x07\x00\x00\x00\x00\x00\x00\x00"s + "\x00\x00\x00\x00"s;
  EXPECT_EQ(encode(NamedSubmission{.requests = {request}, .joins = true}), "\x00"s + request_bytes + "\x01"s);
  std::vector<Decision> decisions(3);
  decisions[0].number = 5;
  decisions[0].with_previous = true;
  decisions[0].request = request;
  decisions[0].rows = {{-1}, {2}};
  decisions[1].kind = Decision::Kind::refuse;
  decisions[1].number = 6;
  decisions[1].request.name = "c";
  decisions[1].code = ErrorCode::invalid_argument;
  decisions[1].why = "why";
  decisions[2].kind = Decision::Kind::all_joined;
  decisions[2].number = Decision::no_number;
  decisions[2].last_joined = 1;
  EXPECT_EQ(encode(decisions), "\x00\x02\x05\x00\x00\x00"s + request_bytes + "\x02\x00\x00\x00"s +
                                   "\x01\x00\x00\x00\xff\xff\xff\xff\xff\xff\xff\xff"s +
                                   "\x01\x00\x00\x00\x02\x00\x00\x00\x00\x00\x00\x00"s +
                                   "\x01\x00\x06\x00\x00\x00"s + "\x01\x00\x00\x00"s + "c"s +
                                   static_cast<char>(ErrorCode::invalid_argument) + "\xff\xff\xff\xff"s +
                                   "\x03\x00\x00\x00"s + "why"s + "\x02\x00\xff\xff\xff\x7f"s +
                                   "\x01\x00\x00\x00"s);
}

TEST(NamedWire, BringsSubmissionsAcross) {
  const NamedSubmission sent{.requests = {request_with_everything(), {.name = "b"}}, .joins = true};
  const auto received = decode_submission(encode(sent));
  EXPECT_EQ(received.requests, sent.requests);
  EXPECT_TRUE(received.joins);
}

TEST(NamedWire, BringsDecisionsAcross) {
  std::vector<Decision> sent(4);
  sent[0].number = 5;
  sent[0].request = request_with_everything();
  sent[0].request.rows.clear();
  sent[0].rows = {{1, 2}, {3, 4}};
  sent[1].number = 6;
  sent[1].is_known = sent[1].with_previous = true;
  sent[2].kind = Decision::Kind::refuse;
  sent[2].request.name = "c";
  sent[2].code = ErrorCode::timeout;
  sent[2].peer = 9;
  sent[2].why = "why";
  sent[3].kind = Decision::Kind::all_joined;
  sent[3].last_joined = 1;
  const auto received = decode_decisions(encode(sent), 2);
  ASSERT_EQ(received.size(), 4U);
  EXPECT_EQ(received[0].number, 5U);
  EXPECT_EQ(received[0].request, sent[0].request);
  EXPECT_EQ(received[0].rows, sent[0].rows);
  EXPECT_TRUE(received[1].is_known && received[1].with_previous);
  EXPECT_EQ(received[2].code, ErrorCode::timeout);
  EXPECT_EQ(received[2].peer, 9);
  EXPECT_EQ(received[2].why, "why");
  EXPECT_EQ(received[2].request.name, "c");
  EXPECT_EQ(received[3].last_joined, 1);
}

TEST(NamedWire, RefusesBodiesThatEndTooEarly) {
  std::vector<Decision> decisions(1);
  decisions[0].request = request_with_everything();
  decisions[0].request.rows.clear();
  decisions[0].rows = {{1, 2}, {3, 4}};
  const auto decided = encode(decisions);
  const auto submitted = encode(NamedSubmission{.requests = {request_with_everything()}});
  for (std::size_t length = 1; length < decided.size(); ++length)
    EXPECT_THAT(corruption_of([&] { decode_decisions(decided.substr(0, length), 2); }), HasSubstr("it ends"))
        << length;
  for (std::size_t length = 1; length < submitted.size(); ++length)
    EXPECT_THAT(corruption_of([&] { decode_submission(submitted.substr(0, length)); }), HasSubstr("it ends"))
        << length;
}

TEST(NamedWire, BelievesNoLength) {
  NamedNote note;
  note.words_used = 31;
  EXPECT_THAT(corruption_of([&] { require_sound(note); }), HasSubstr("31 words, of which 30 fit"));
  note = {};
  note.body_bytes = (64U << 20) + 1;
  EXPECT_THAT(corruption_of([&] { require_sound(note); }), HasSubstr("a body of 67108865 bytes"));
  // A request, and a name of 4 GiB.
  EXPECT_THAT(corruption_of([] { decode_submission(std::string("\0\xff\xff\xff\xff", 5)); }),
              HasSubstr("a length of 4294967295, of which 4096 are allowed"));
  NamedRequest large{.name = "a", .operation = Operation::all_reduce, .shapes = {{1 << 30, 1 << 30}}};
  EXPECT_THAT(corruption_of([&] { decode_submission(encode(NamedSubmission{.requests = {large}})); }),
              HasSubstr("has a shape that no memory can hold"));
  NamedRequest negative{.name = "a", .operation = Operation::all_gather, .shapes = {{}}, .rows = {-1}};
  EXPECT_THAT(corruption_of([&] { decode_submission(encode(NamedSubmission{.requests = {negative}})); }),
              HasSubstr("has a negative number of rows"));
  EXPECT_THAT(corruption_of([] { decode_decisions(std::string("\x03", 1), 2); }),
              HasSubstr("there is no decision 3"));
}

}  // namespace
}  // namespace lockstep

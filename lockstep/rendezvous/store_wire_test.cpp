// The bytes of docs/wire_formats.md, section "Store".
#include "lockstep/rendezvous/store_wire.h"

#include <gtest/gtest.h>

#include "lockstep/base/failure_test.h"

namespace lockstep::store_wire {
namespace {

using namespace std::string_literals;
using test::corruption_of;

TEST(StoreWire, HasTheBytesOfTheDocument) {
  const std::array<std::string_view, 2> fields = {"key", ""};
  EXPECT_EQ(encode_request(Operation::set, fields),
            "\x01\x01\x00\x00"s
            "\x0b\x00\x00\x00"s
            "\x03\x00\x00\x00key"s
            "\x00\x00\x00\x00"s);
  EXPECT_EQ(encode_reply(Status::present, encode_number(-2)),
            "\x01\x02\x00\x00"s
            "\x08\x00\x00\x00"s
            "\xfe\xff\xff\xff\xff\xff\xff\xff"s);
}

TEST(StoreWire, BringsFieldsAndNumbersAcross) {
  const std::array<std::string_view, 2> fields = {"key", "value"};
  const std::string request = encode_request(Operation::set, fields);
  const auto bytes = std::as_bytes(std::span(request));
  const Header header = decode_header(bytes.first<header_bytes>());
  EXPECT_EQ(header.kind, static_cast<std::uint8_t>(Operation::set));
  EXPECT_EQ(header.body_bytes, request.size() - header_bytes);
  EXPECT_EQ(decode_fields(request.substr(header_bytes)), (std::vector<std::string>{"key", "value"}));
  EXPECT_EQ(decode_number(encode_number(-2)), -2);
}

TEST(StoreWire, RefusesWhatIsNoMessage) {
  const auto header = [](std::string text) { decode_header(std::as_bytes(std::span(text)).first<8>()); };
  EXPECT_EQ(corruption_of([&] { header("\x02\x01\x00\x00\x00\x00\x00\x00"s); }),
            "store message: version 2, expected 1; do all ranks use the same release of Lockstep?");
  EXPECT_EQ(corruption_of([&] { header("\x01\x01\x00\x01\x00\x00\x00\x00"s); }),
            "store message: reserved bytes are not zero");
  EXPECT_EQ(corruption_of([] { decode_fields("\x01\x00\x00"s); }), "store message: half a field");
  EXPECT_EQ(corruption_of([] { decode_fields("\x04\x00\x00\x00key"s); }),
            "store message: a field longer than its message");
  EXPECT_EQ(corruption_of([] { decode_number("1234567"); }), "store message: a number of 7 bytes");
}

}  // namespace
}  // namespace lockstep::store_wire

#include "lockstep/rendezvous/store_wire.h"

#include <algorithm>

#include "lockstep/base/byte_codec.h"
#include "lockstep/base/error.h"

namespace lockstep::store_wire {
namespace {

constexpr std::size_t length_bytes = sizeof(base::Length);
constexpr std::size_t number_bytes = sizeof(std::int64_t);

[[noreturn]] void throw_corrupt(const std::string& what) {
  throw Error(ErrorCode::corrupt_data, "store message: " + what);
}

void put_header(std::string& out, std::uint8_t kind, std::size_t body_bytes) {
  base::append_number(out, version);
  base::append_number(out, kind);
  base::append_number(out, std::uint16_t{0});
  base::append_number(out, static_cast<base::Length>(body_bytes));
}

}  // namespace

Header decode_header(std::span<const std::byte, header_bytes> bytes) {
  if (const auto found = base::number_at<std::uint8_t>(bytes); found != version) {
    throw_corrupt("version " + std::to_string(found) + ", expected " + std::to_string(version) +
                  "; do all ranks use the same release of Lockstep?");
  }
  if (base::number_at<std::uint16_t>(bytes, 2) != 0) throw_corrupt("reserved bytes are not zero");
  return {.kind = base::number_at<std::uint8_t>(bytes, 1),
          .body_bytes = base::number_at<base::Length>(bytes, 4)};
}

std::size_t longest_body(std::uint8_t operation) {
  constexpr std::size_t key = length_bytes + limits.key_bytes;
  constexpr std::size_t value = length_bytes + limits.value_bytes;
  switch (static_cast<Operation>(operation)) {
    case Operation::set:
    case Operation::bequeath: return key + value;
    case Operation::try_get:
    case Operation::get:
    case Operation::erase:
    case Operation::withdraw:
    case Operation::erase_all: return key;
    case Operation::add: return key + length_bytes + number_bytes;
    case Operation::compare_set: return key + value + value;
    case Operation::wait: return keys_bytes;
  }
  throw_corrupt("unknown operation " + std::to_string(operation));
}

std::size_t longest_reply(Operation operation, std::uint8_t status) {
  using enum Operation;
  const auto answers = [operation](std::initializer_list<Operation> operations) {
    return std::find(operations.begin(), operations.end(), operation) != operations.end();
  };
  switch (static_cast<Status>(status)) {
    case Status::done:
      if (answers({try_get, get, compare_set})) return limits.value_bytes;
      return answers({add, erase_all}) ? number_bytes : 0;
    case Status::missing:
      if (answers({try_get, erase, withdraw})) return 0;
      break;
    case Status::present:
      if (answers({wait})) return number_bytes;
      break;
    case Status::parked:
      if (answers({get, wait})) return 0;
      break;
    case Status::refused: return refusal_bytes;
  }
  throw_corrupt("status " + std::to_string(status) + " in reply to operation " +
                std::to_string(static_cast<int>(operation)));
}

std::string encode_request(Operation operation, std::span<const std::string_view> fields) {
  std::size_t body_bytes = 0;
  for (const std::string_view field : fields) body_bytes += length_bytes + field.size();
  std::string out;
  out.reserve(header_bytes + body_bytes);
  put_header(out, static_cast<std::uint8_t>(operation), body_bytes);
  for (const std::string_view field : fields) base::append_with_length(out, field);
  return out;
}

std::string encode_reply(Status status, std::string_view body) {
  return encode_reply_header(status, body.size()) += body;
}

std::string encode_reply_header(Status status, std::size_t body_bytes) {
  std::string out;
  put_header(out, static_cast<std::uint8_t>(status), body_bytes);
  return out;
}

std::vector<std::string> decode_fields(std::string_view body) {
  std::vector<std::string> fields;
  for (base::ByteReader in(body); !in.at_end();) {
    const auto bytes = in.number<base::Length>();
    if (!bytes) throw_corrupt("half a field");
    const auto field = in.take(*bytes);
    if (!field) throw_corrupt("a field longer than its message");
    fields.emplace_back(base::text_of(*field));
  }
  return fields;
}

std::string encode_number(std::int64_t number) {
  std::string out;
  base::append_number(out, number);
  return out;
}

std::int64_t decode_number(std::string_view bytes) {
  if (bytes.size() != number_bytes) throw_corrupt("a number of " + std::to_string(bytes.size()) + " bytes");
  return base::number_at<std::int64_t>(std::as_bytes(std::span(bytes)));
}

}  // namespace lockstep::store_wire

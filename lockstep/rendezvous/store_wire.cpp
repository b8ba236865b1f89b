#include "lockstep/rendezvous/store_wire.h"

#include <algorithm>

#include "lockstep/base/error.h"

namespace lockstep::store_wire {
namespace {

constexpr std::size_t length_bytes = 4;
constexpr std::size_t number_bytes = 8;

[[noreturn]] void throw_corrupt(const std::string& what) {
  throw Error(ErrorCode::corrupt_data, "store message: " + what);
}

void put(std::string& out, std::uint64_t number, std::size_t bytes) {
  for (std::size_t i = 0; i < bytes; ++i) out.push_back(static_cast<char>(number >> (8 * i)));
}

std::uint64_t take(std::string_view in, std::size_t bytes) {
  std::uint64_t number = 0;
  for (std::size_t i = 0; i < bytes; ++i)
    number |= std::uint64_t{static_cast<unsigned char>(in[i])} << (8 * i);
  return number;
}

void put_header(std::string& out, std::uint8_t kind, std::size_t body_bytes) {
  put(out, version, 1);
  put(out, kind, 1);
  put(out, 0, 2);
  put(out, body_bytes, length_bytes);
}

}  // namespace

Header decode_header(std::span<const std::byte, header_bytes> bytes) {
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  if (take(text, 1) != version) {
    throw_corrupt("version " + std::to_string(take(text, 1)) + ", expected " + std::to_string(version) +
                  "; do all ranks use the same release of Lockstep?");
  }
  if (take(text.substr(2), 2) != 0) throw_corrupt("reserved bytes are not zero");
  return {.kind = static_cast<std::uint8_t>(text[1]),
          .body_bytes = static_cast<std::size_t>(take(text.substr(4), length_bytes))};
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
    case Operation::withdraw: return key;
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
      return answers({add}) ? number_bytes : 0;
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
  for (const std::string_view field : fields) {
    put(out, field.size(), length_bytes);
    out += field;
  }
  return out;
}

std::string encode_reply(Status status, std::string_view body) {
  std::string out;
  out.reserve(header_bytes + body.size());
  put_header(out, static_cast<std::uint8_t>(status), body.size());
  out += body;
  return out;
}

std::vector<std::string> decode_fields(std::string_view body) {
  std::vector<std::string> fields;
  while (!body.empty()) {
    if (body.size() < length_bytes) throw_corrupt("half a field");
    const std::uint64_t bytes = take(body, length_bytes);
    body.remove_prefix(length_bytes);
    if (bytes > body.size()) throw_corrupt("a field longer than its message");
    fields.emplace_back(body.substr(0, bytes));
    body.remove_prefix(bytes);
  }
  return fields;
}

std::string encode_number(std::int64_t number) {
  std::string out;
  put(out, static_cast<std::uint64_t>(number), number_bytes);
  return out;
}

std::int64_t decode_number(std::string_view bytes) {
  if (bytes.size() != number_bytes) throw_corrupt("a number of " + std::to_string(bytes.size()) + " bytes");
  return static_cast<std::int64_t>(take(bytes, number_bytes));
}

}  // namespace lockstep::store_wire

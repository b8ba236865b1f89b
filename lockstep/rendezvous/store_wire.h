// The bytes between TcpStore and StoreServer after the proof: docs/wire_formats.md, section "Store". Nothing
// here believes a length that it has not compared with a limit.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/base/proof.h"
#include "lockstep/rendezvous/store.h"

namespace lockstep::store_wire {

inline constexpr std::uint8_t version = 1;
inline constexpr std::size_t header_bytes = 8;
inline constexpr StoreLimits limits = {};                         ///< of one key and one value
inline constexpr std::size_t keys_bytes = std::size_t{16} << 20;  ///< body of a wait
inline constexpr std::size_t refusal_bytes = 4096;                ///< text of a refusal

enum class Operation : std::uint8_t {
  set = 1,
  try_get,
  get,
  add,
  compare_set,
  wait,
  erase,
  bequeath,
  withdraw,
  erase_all
};
enum class Status : std::uint8_t {
  done = 0,     ///< body: what the call returns
  missing = 1,  ///< there is no such key; body empty
  present = 2,  ///< wait: body is the index of a key that has been seen; more follows
  parked = 3,   ///< get, wait: the store will answer when keys come; body empty; more follows
  refused = 4,  ///< the call changed nothing; body: why
};

/// First bytes of every request (kind: Operation) and reply (kind: Status).
struct Header {
  std::uint8_t kind = 0;
  std::size_t body_bytes = 0;
};

using HeaderBytes = std::array<std::byte, header_bytes>;

/// Error{corrupt_data}: another version, or reserved bytes that are not zero.
Header decode_header(std::span<const std::byte, header_bytes> bytes);

/// The most that a request of this kind may carry. Error{corrupt_data}: there is no such operation.
std::size_t longest_body(std::uint8_t operation);
/// The most that a reply of this status to such a request may carry. Error{corrupt_data}: there is none.
std::size_t longest_reply(Operation operation, std::uint8_t status);

/// What both sides prove before.
inline Destination destination_of(const std::string& job, const Endpoint& endpoint) {
  return {.kind = Destination::Kind::store, .job = job, .endpoint = endpoint.to_string()};
}

/// Header and fields, each with its length in front.
std::string encode_request(Operation operation, std::span<const std::string_view> fields);
std::string encode_reply(Status status, std::string_view body);
/// Of a reply whose body follows.
std::string encode_reply_header(Status status, std::size_t body_bytes);

/// The fields of a request's body. Error{corrupt_data} unless they fill it exactly.
std::vector<std::string> decode_fields(std::string_view body);

/// Numbers in bodies: little-endian, 8 bytes. Error{corrupt_data}: another size.
std::string encode_number(std::int64_t number);
std::int64_t decode_number(std::string_view bytes);

}  // namespace lockstep::store_wire

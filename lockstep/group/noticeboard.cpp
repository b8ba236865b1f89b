#include "lockstep/group/noticeboard.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

constexpr const char* key = "lockstep-meeting-place";

std::string in_digits(const Secret& secret) {
  std::string digits;
  for (const std::byte byte : secret.bytes())
    digits += fmt::format("{:02x}", std::to_integer<unsigned>(byte));
  return digits;
}

Secret from_digits(std::string_view digits) {
  std::vector<std::byte> bytes;
  const auto refuse = [] {
    throw Error(ErrorCode::corrupt_data, "what rank 0 has put on the launcher's noticeboard is no secret", 0);
  };
  if (digits.size() < 2 * Secret::min_bytes || digits.size() > 2 * Secret::max_bytes ||
      digits.size() % 2 != 0)
    refuse();
  for (std::size_t at = 0; at < digits.size(); at += 2) {
    unsigned value = 0;
    const auto [read, problem] = std::from_chars(digits.data() + at, digits.data() + at + 2, value, 16);
    if (problem != std::errc() || read != digits.data() + at + 2) refuse();
    bytes.push_back(static_cast<std::byte>(value));
  }
  return Secret::from_bytes(bytes);
}

}  // namespace

MeetingPlace meet_on(ProcessManager& board, const std::optional<std::string>& address,
                     const std::optional<Secret>& own, Deadline deadline) {
  MeetingPlace place{.secret = own};
  if (address) {
    place.listener = std::make_shared<Listener>(Listener::bind(Endpoint::tcp(*address, 0)));
    if (!own) place.secret = Secret::random();
    const std::string text = place.listener->endpoint().to_string();
    board.put(key, own ? text : text + "/" + in_digits(*place.secret), deadline);
  }
  board.fence(deadline);
  const std::string told = board.get(key, deadline);
  const std::size_t end = std::min(told.find('/'), told.size());
  place.store = Endpoint::parse(told.substr(0, end));
  if (own.has_value() != (end == told.size())) {
    throw Error(ErrorCode::mismatch,
                own ? "this rank has a secret (LOCKSTEP_SECRET_FILE), and rank 0 has none: give it to all "
                      "ranks or to none"
                    : "rank 0 has a secret (LOCKSTEP_SECRET_FILE), and this rank has none: give it to all "
                      "ranks or to none",
                0);
  }
  if (!place.secret) place.secret = from_digits(std::string_view(told).substr(end + 1));
  return place;
}

}  // namespace lockstep

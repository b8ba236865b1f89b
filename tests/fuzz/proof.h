// The client's half of the proof, for an input that plays a client: right, or not.
#pragma once

#include <algorithm>
#include <array>
#include <span>
#include <string_view>

#include "lockstep/base/proof.h"
#include "tests/fuzz/targets.h"

namespace lockstep::fuzz {

inline const Trust& trust() {
  static const std::array<std::byte, 32> bytes{};
  static const Trust instance{.secret = Secret::from_bytes(bytes)};
  return instance;
}

inline const Destination& destination() {
  static const Destination instance{.kind = Destination::Kind::door,
                                    .job = "job",
                                    .group = "world",
                                    .rank = 1,
                                    .endpoint = "tcp:10.0.0.1:4711"};
  return instance;
}

/// Of who knows the secret: answers rightly whatever it hears first.
class RightClient {
 public:
  explicit RightClient(const Claim& claim) : proof_(trust(), destination(), claim) {}

  std::span<const std::byte> opening() const { return proof_.opening(); }
  /// `heard`: all that the server has said. False: its answer has not come.
  bool hear(std::string_view heard) {
    constexpr std::size_t before = sizeof(proof::Greeting);
    if (heard.size() < before + sizeof(proof::Answer)) return false;
    proof::Answer answer{};
    std::ranges::copy(std::as_bytes(std::span(heard)).subspan<before, sizeof(answer)>(), answer.begin());
    confirmation_ = proof_.hear(answer);
    require(proof_.server_is_right(), "the server proves itself, too");
    return true;
  }
  std::span<const std::byte> confirmation() const { return confirmation_; }

 private:
  ClientProof proof_;
  proof::Confirmation confirmation_{};
};

}  // namespace lockstep::fuzz

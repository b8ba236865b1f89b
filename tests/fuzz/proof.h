// The client's half of the proof (docs/wire_formats.md), for an input that plays a client: right, or not.
#pragma once

#include <openssl/evp.h>
#include <openssl/hmac.h>

#include <algorithm>
#include <array>
#include <string_view>
#include <vector>

#include "lockstep/base/secret.h"
#include "tests/fuzz/targets.h"

namespace lockstep::fuzz {

inline const Trust& trust() {
  static const std::array<std::byte, 32> bytes{};
  static const Trust instance{.secret = Secret::from_bytes(bytes)};
  return instance;
}

/// Of who knows the secret, with a nonce of zeros.
inline std::array<std::byte, ServerProof::answer_bytes> right_answer(Input challenge) {
  constexpr std::string_view label = "lockstep-proof-1 client";
  std::array<std::byte, ServerProof::answer_bytes> answer{};
  std::vector<std::byte> text;
  std::ranges::transform(label, std::back_inserter(text), [](char c) { return static_cast<std::byte>(c); });
  text.insert(text.end(), challenge.begin(), challenge.end());
  text.resize(text.size() + 32);
  const auto key = trust().secret->bytes();
  require(::HMAC(::EVP_sha256(), key.data(), static_cast<int>(key.size()),
                 reinterpret_cast<const unsigned char*>(text.data()), text.size(),
                 reinterpret_cast<unsigned char*>(answer.data() + 32), nullptr) != nullptr,
          "libcrypto has HMAC");
  return answer;
}

}  // namespace lockstep::fuzz

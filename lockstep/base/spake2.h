// SPAKE2 (RFC 9382, SPAKE2-P256-SHA256-HKDF-SHA256-HMAC-SHA256): two sides that know the same secret find out that
// they do, over a line that anybody may listen to or change. Whoever does not know it can try one guess in each
// exchange, and learns nothing that further guesses could be tried on afterwards, however weak the secret is.
//
//   side a                                  side b
//   share = x G + w M        ------->
//                            <-------       share = y G + w N
//   both: K = x y G, and from it and all that was said the confirmations of a and of b
//                            <------>       each checks the other's
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>

namespace lockstep::spake2 {

using Scalar = std::array<std::byte, 32>;  ///< big-endian
using Share = std::array<std::byte, 65>;   ///< a point, uncompressed
using Confirmation = std::array<std::byte, 32>;

enum class Side { a, b };

/// What both sides have to mean alike; it is part of what they confirm.
struct Identities {
  std::string a = {};
  std::string b = {};
  std::string more = {};  ///< RFC 9382's AAD
};

struct Confirmations {
  Confirmation own = {};
  Confirmation others = {};  ///< what the other side has to send
};

/// The number w that a secret stands for. A memory-hard function would only help where one can guess offline.
Scalar scalar_of(std::span<const std::byte> secret);

/// In constant time.
bool same(const Confirmation& a, const Confirmation& b);

/// One side of one exchange. Errors: system, where libcrypto refuses.
class Half {
 public:
  /// A number of the system's generator is this side's own secret.
  Half(Side side, const Scalar& w);
  /// With a given one, for the RFC's examples. REQUIRES: 0 < own < the group's order.
  Half(Side side, const Scalar& w, const Scalar& own);
  Half(Half&& other) noexcept;
  ~Half();

  const Share& share() const { return share_; }
  /// nullopt: what the other side sent is no point of the curve, or one that only a forger sends.
  std::optional<Confirmations> finish(const Share& others, const Identities& identities) const;

 private:
  struct Numbers;

  Side side_;
  std::unique_ptr<Numbers> numbers_;
  Share share_{};
};

}  // namespace lockstep::spake2

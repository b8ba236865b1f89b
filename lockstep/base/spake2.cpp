#include "lockstep/base/spake2.h"

#include <openssl/crypto.h>
#include <openssl/ec.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/obj_mac.h>
#include <openssl/sha.h>

#include <algorithm>
#include <cstdint>
#include <string_view>
#include <vector>

#include "lockstep/base/error.h"

namespace lockstep::spake2 {
namespace {

using Bytes = std::vector<std::byte>;

// RFC 9382, section 6: points of which nobody knows a logarithm.
constexpr const char* m_hex = "02886e2f97ace46e55ba9dd7242579f2993b64e16ef3dcab95afd497333d8fa12f";
constexpr const char* n_hex = "03d8bbd6c639c62937b04d997f38c3770719c629d7014d49a24b4f98baa1292b49";

template <auto free>
struct Freed {
  template <class Object>
  void operator()(Object* object) const {
    free(object);
  }
};
using Number = std::unique_ptr<BIGNUM, Freed<::BN_clear_free>>;
using Point = std::unique_ptr<EC_POINT, Freed<::EC_POINT_clear_free>>;
using Work = std::unique_ptr<BN_CTX, Freed<::BN_CTX_free>>;

void require(bool done) {
  if (!done) throw Error(ErrorCode::system, "arithmetic on the curve P-256 failed in libcrypto");
}

template <class Owner, class Object>
Owner owned(Object* object) {
  require(object != nullptr);
  return Owner(object);
}

// Wiped when it goes, because keys come of it.
struct Transcript : Bytes {
  ~Transcript() { ::OPENSSL_cleanse(data(), size()); }
  void add(std::span<const std::byte> part) {
    for (std::uint64_t length = part.size(), i = 0; i < 8; ++i)
      push_back(static_cast<std::byte>(length >> (8 * i)));
    insert(end(), part.begin(), part.end());
  }
};

struct Curve {
  EC_GROUP* group = ::EC_GROUP_new_by_curve_name(NID_X9_62_prime256v1);
  EC_POINT* m = decode(m_hex);
  EC_POINT* n = decode(n_hex);

  EC_POINT* decode(const char* hex) const {
    require(group != nullptr);
    EC_POINT* point = ::EC_POINT_hex2point(group, hex, nullptr, nullptr);
    require(point != nullptr);
    return point;
  }
};

// Never freed: threads may prove themselves while the process ends.
const Curve& curve() {
  static const Curve& instance = *new Curve;
  return instance;
}

Point new_point() { return owned<Point>(::EC_POINT_new(curve().group)); }

Number number_of(const Scalar& bytes) {
  auto number = owned<Number>(::BN_bin2bn(reinterpret_cast<const unsigned char*>(bytes.data()),
                                          static_cast<int>(bytes.size()), nullptr));
  ::BN_set_flags(number.get(), BN_FLG_CONSTTIME);
  return number;
}

Scalar bytes_of(const BIGNUM* number) {
  Scalar bytes{};
  require(::BN_bn2binpad(number, reinterpret_cast<unsigned char*>(bytes.data()),
                         static_cast<int>(bytes.size())) == static_cast<int>(bytes.size()));
  return bytes;
}

Share bytes_of(const EC_POINT* point, BN_CTX* work) {
  Share bytes{};
  require(::EC_POINT_point2oct(curve().group, point, POINT_CONVERSION_UNCOMPRESSED,
                               reinterpret_cast<unsigned char*>(bytes.data()), bytes.size(),
                               work) == bytes.size());
  return bytes;
}

// One factor at a time: products of several are not computed in constant time everywhere.
Point times(const BIGNUM* factor, const EC_POINT* point, BN_CTX* work) {
  Point product = new_point();
  require(::EC_POINT_mul(curve().group, product.get(), nullptr, point, factor, work) == 1);
  return product;
}

Point times_generator(const BIGNUM* factor, BN_CTX* work) {
  Point product = new_point();
  require(::EC_POINT_mul(curve().group, product.get(), factor, nullptr, nullptr, work) == 1);
  return product;
}

void add(EC_POINT* to, const EC_POINT* other, BN_CTX* work) {
  require(::EC_POINT_add(curve().group, to, to, other, work) == 1);
}

std::array<std::byte, 32> hmac(std::span<const std::byte> key, std::span<const std::byte> text) {
  std::array<std::byte, 32> mac{};
  const void* done = ::HMAC(::EVP_sha256(), key.data(), static_cast<int>(key.size()),
                            reinterpret_cast<const unsigned char*>(text.data()), text.size(),
                            reinterpret_cast<unsigned char*>(mac.data()), nullptr);
  if (done == nullptr) throw Error(ErrorCode::system, "HMAC-SHA256 failed in libcrypto");
  return mac;
}

std::array<std::byte, 32> hmac(std::span<const std::byte> key, std::string_view text) {
  return hmac(key, std::as_bytes(std::span(text)));
}

// HKDF-SHA256 without salt, of as many bytes as one hash has.
std::array<std::byte, 32> hkdf(std::span<const std::byte> key, std::string info) {
  const std::array<std::byte, 32> no_salt{};
  info.push_back('\1');
  return hmac(hmac(no_salt, key), info);
}

Confirmations confirmations(Side side, const Transcript& transcript, const std::string& more) {
  std::array<std::byte, SHA256_DIGEST_LENGTH> digest{};
  ::SHA256(reinterpret_cast<const unsigned char*>(transcript.data()), transcript.size(),
           reinterpret_cast<unsigned char*>(digest.data()));
  auto keys = hkdf(std::span(digest).last<16>(), "ConfirmationKeys" + more);
  const Confirmation a = hmac(std::span(keys).first<16>(), transcript);
  const Confirmation b = hmac(std::span(keys).last<16>(), transcript);
  ::OPENSSL_cleanse(digest.data(), digest.size());
  ::OPENSSL_cleanse(keys.data(), keys.size());
  return side == Side::a ? Confirmations{a, b} : Confirmations{b, a};
}

Scalar random_scalar() {
  const auto number = owned<Number>(::BN_secure_new());
  do {
    require(::BN_priv_rand_range(number.get(), ::EC_GROUP_get0_order(curve().group)) == 1);
  } while (::BN_is_zero(number.get()) == 1);
  return bytes_of(number.get());
}

}  // namespace

struct Half::Numbers {
  Number w;
  Number own;
};

Scalar scalar_of(std::span<const std::byte> secret) {
  const auto high = hmac(secret, "lockstep spake2 w, high"), low = hmac(secret, "lockstep spake2 w, low");
  std::array<std::byte, 64> wide{};
  std::ranges::copy(low, std::ranges::copy(high, wide.begin()).out);
  const auto number =
      owned<Number>(::BN_bin2bn(reinterpret_cast<const unsigned char*>(wide.data()), wide.size(), nullptr));
  const auto work = owned<Work>(::BN_CTX_secure_new());
  const auto rest = owned<Number>(::BN_secure_new());
  require(::BN_mod(rest.get(), number.get(), ::EC_GROUP_get0_order(curve().group), work.get()) == 1);
  ::OPENSSL_cleanse(wide.data(), wide.size());
  return bytes_of(rest.get());
}

bool same(const Confirmation& a, const Confirmation& b) {
  return ::CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

Half::Half(Side side, const Scalar& w) : Half(side, w, random_scalar()) {}

Half::Half(Side side, const Scalar& w, const Scalar& own)
    : side_(side), numbers_(new Numbers{number_of(w), number_of(own)}) {
  const auto work = owned<Work>(::BN_CTX_secure_new());
  const Point sum = times_generator(numbers_->own.get(), work.get());
  const EC_POINT* mask = side == Side::a ? curve().m : curve().n;
  add(sum.get(), times(numbers_->w.get(), mask, work.get()).get(), work.get());
  share_ = bytes_of(sum.get(), work.get());
}

Half::Half(Half&& other) noexcept = default;
Half::~Half() = default;

std::optional<Confirmations> Half::finish(const Share& others, const Identities& identities) const {
  const auto work = owned<Work>(::BN_CTX_secure_new());
  const EC_GROUP* group = curve().group;
  const Point point = new_point();
  // Of the group's own order is every point of this curve; that it is one is checked here.
  if (::EC_POINT_oct2point(group, point.get(), reinterpret_cast<const unsigned char*>(others.data()),
                           others.size(), work.get()) != 1)
    return std::nullopt;
  const Point mask = times(numbers_->w.get(), side_ == Side::a ? curve().n : curve().m, work.get());
  require(::EC_POINT_invert(group, mask.get(), work.get()) == 1);
  add(point.get(), mask.get(), work.get());
  const Point shared = times(numbers_->own.get(), point.get(), work.get());
  if (::EC_POINT_is_at_infinity(group, shared.get()) == 1) return std::nullopt;

  const bool is_a = side_ == Side::a;
  Transcript transcript;
  transcript.reserve(512 + identities.a.size() + identities.b.size());  // what it grows out of is not wiped
  transcript.add(std::as_bytes(std::span(identities.a)));
  transcript.add(std::as_bytes(std::span(identities.b)));
  transcript.add(is_a ? share_ : others);
  transcript.add(is_a ? others : share_);
  transcript.add(bytes_of(shared.get(), work.get()));
  transcript.add(bytes_of(numbers_->w.get()));
  return confirmations(side_, transcript, identities.more);
}

}  // namespace lockstep::spake2

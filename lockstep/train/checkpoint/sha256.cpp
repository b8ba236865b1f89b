#include "lockstep/train/checkpoint/sha256.h"

#include <openssl/evp.h>

#include "lockstep/base/error.h"

namespace lockstep {

struct Sha256Sum::State {
  std::unique_ptr<EVP_MD_CTX, decltype(&::EVP_MD_CTX_free)> context{::EVP_MD_CTX_new(), &::EVP_MD_CTX_free};
};

Sha256Sum::Sha256Sum() : state_(std::make_unique<State>()) {
  if (!state_->context || ::EVP_DigestInit_ex(state_->context.get(), ::EVP_sha256(), nullptr) != 1) {
    throw Error(ErrorCode::system, "SHA-256 failed in libcrypto");
  }
}
Sha256Sum::~Sha256Sum() = default;

void Sha256Sum::update(std::span<const std::byte> bytes) {
  if (::EVP_DigestUpdate(state_->context.get(), bytes.data(), bytes.size()) != 1) {
    throw Error(ErrorCode::system, "SHA-256 failed in libcrypto");
  }
}

Sha256 Sha256Sum::digest() {
  Sha256 sum;
  if (::EVP_DigestFinal_ex(state_->context.get(), reinterpret_cast<unsigned char*>(sum.data()), nullptr) !=
      1) {
    throw Error(ErrorCode::system, "SHA-256 failed in libcrypto");
  }
  return sum;
}

}  // namespace lockstep

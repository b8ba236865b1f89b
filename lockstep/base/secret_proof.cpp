// The proof of secret.h, with libcrypto's HMAC over EVP's SHA-256.
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>
#include <unistd.h>

#include <algorithm>
#include <string_view>

#include "lockstep/base/error.h"
#include "lockstep/base/secret.h"

namespace lockstep {
namespace {

using Nonce = std::array<std::byte, 32>;
using Mac = std::array<std::byte, 32>;
constexpr std::string_view client_label = "lockstep-proof-1 client";
constexpr std::string_view server_label = "lockstep-proof-1 server";

// Stands in for the secret where there is none, so that a side with a secret and one without find each other
// out by the same proof. It is public: what lets such a connection in is Trust's other rule.
constexpr std::string_view no_secret = "lockstep: no secret";

Nonce fresh_nonce() {
  Nonce nonce;
  if (::RAND_bytes(reinterpret_cast<unsigned char*>(nonce.data()), static_cast<int>(nonce.size())) != 1) {
    throw Error(ErrorCode::system, "the system's random generator failed");
  }
  return nonce;
}

Mac mac_of(const Trust& trust, std::string_view label, std::span<const std::byte, 32> server_nonce,
           std::span<const std::byte, 32> client_nonce) {
  std::vector<std::byte> text;
  for (const char c : label) text.push_back(static_cast<std::byte>(c));
  text.insert(text.end(), server_nonce.begin(), server_nonce.end());
  text.insert(text.end(), client_nonce.begin(), client_nonce.end());
  const auto key = trust.secret ? trust.secret->bytes() : std::as_bytes(std::span(no_secret));
  Mac mac{};
  unsigned int size = 0;
  const void* done = ::HMAC(::EVP_sha256(), key.data(), static_cast<int>(key.size()),
                            reinterpret_cast<const unsigned char*>(text.data()), text.size(),
                            reinterpret_cast<unsigned char*>(mac.data()), &size);
  if (done == nullptr || size != mac.size())
    throw Error(ErrorCode::system, "HMAC-SHA256 failed in libcrypto");
  return mac;
}

bool same(std::span<const std::byte, 32> a, std::span<const std::byte, 32> b) {
  return ::CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

// The user at the other end, where that is the proof.
void require_same_user(const Socket& socket, const Trust& trust) {
  require_usable(trust, socket.is_unix() ? Endpoint::Kind::unix_abstract : Endpoint::Kind::tcp);
  if (trust.secret || !socket.is_unix()) return;
  const uid_t other = socket.peer_credentials().uid;
  if (other != ::geteuid()) {
    throw_invalid_argument(socket.peer() + ": it belongs to user " + std::to_string(other) +
                           ", and this job has no secret to let another user in; give all its ranks the same "
                           "LOCKSTEP_SECRET_FILE");
  }
}

[[noreturn]] void throw_wrong_secret(const Socket& socket, const Trust& trust) {
  throw_invalid_argument(
      socket.peer() + ": wrong secret: this side has " + (trust.secret ? "one" : "none") +
      ", and the other side has not the same; give all ranks of the job the same "
      "LOCKSTEP_SECRET_FILE (or start them with lockstep run), and check that this address and port "
      "are this job's");
}

}  // namespace

void require_usable(const Trust& trust, Endpoint::Kind kind) {
  if (trust.secret || trust.tcp_without_secret || kind == Endpoint::Kind::unix_abstract) return;
  throw_invalid_argument(
      "a tcp connection needs a job secret; set LOCKSTEP_SECRET_FILE on all ranks to a file of mode 0600 "
      "with the "
      "same 16 or more random bytes, or start them with lockstep run");
}

void prove_as_client(Socket& socket, const Trust& trust, Deadline deadline) try {
  require_same_user(socket, trust);
  Nonce challenge{};
  socket.receive_all(challenge, deadline);
  const Nonce nonce = fresh_nonce();
  const Mac mine = mac_of(trust, client_label, challenge, nonce);
  std::array<std::byte, ServerProof::answer_bytes> answer{};
  std::copy(nonce.begin(), nonce.end(), answer.begin());
  std::copy(mine.begin(), mine.end(), answer.begin() + nonce.size());
  socket.send_all(answer, deadline);
  Mac reply{};
  socket.receive_all(reply, deadline);
  if (!same(reply, mac_of(trust, server_label, challenge, nonce))) throw_wrong_secret(socket, trust);
} catch (const Error& error) {
  if (error.code() != ErrorCode::timeout && error.code() != ErrorCode::peer_lost) throw;
  throw Error(error.code(), "proving the job secret to " + std::string(error.what()) +
                                " (does something else than this job listen there?)");
}

void prove_as_server(Socket& socket, const Trust& trust, Deadline deadline) {
  ServerProof proof(socket, trust);
  socket.send_all(proof.challenge(), deadline);
  std::array<std::byte, ServerProof::answer_bytes> answer{};
  socket.receive_all(answer, deadline);
  const bool proven = proof.check(answer);
  socket.send_all(proof.reply(), deadline);
  if (!proven) throw_wrong_secret(socket, trust);
}

ServerProof::ServerProof(const Socket& socket, const Trust& trust)
    : trust_(trust), challenge_(fresh_nonce()) {
  require_same_user(socket, trust);
}

bool ServerProof::check(std::span<const std::byte, answer_bytes> answer) {
  const auto nonce = answer.first<32>();
  const bool proven = same(answer.last<32>(), mac_of(trust_, client_label, challenge_, nonce));
  if (proven) reply_ = mac_of(trust_, server_label, challenge_, nonce);
  return proven;
}

}  // namespace lockstep

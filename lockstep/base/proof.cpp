#include "lockstep/base/proof.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

static_assert(std::endian::native == std::endian::little, "the wire format is little-endian");

// "LkP2": begins a greeting and an opening. Before, servers began with 32 random bytes.
constexpr std::array<std::byte, 4> magic{std::byte{'L'}, std::byte{'k'}, std::byte{'P'}, std::byte{'2'}};

// Stands in for the secret where there is none, so that a side with a secret and one without find each other
// out by the same proof. It is public: what lets such a connection in is Trust's other rule.
constexpr std::string_view no_secret = "lockstep: no secret";

spake2::Scalar scalar_of(const Trust& trust) {
  return spake2::scalar_of(trust.secret ? trust.secret->bytes() : std::as_bytes(std::span(no_secret)));
}

void append(std::string& text, const void* bytes, std::size_t count) {
  text.append(static_cast<const char*>(bytes), count);
}
void append(std::string& text, const std::string& part) {
  const std::uint64_t length = part.size();
  append(text, &length, sizeof(length));
  text += part;
}

spake2::Identities identities_of(const Destination& destination, const Claim& claim) {
  spake2::Identities identities{.more = "lockstep-proof-2"};
  append(identities.a, &claim.rank, sizeof(claim.rank));
  append(identities.a, &claim.use, sizeof(claim.use));
  append(identities.b, &destination.kind, sizeof(destination.kind));
  append(identities.b, &destination.rank, sizeof(destination.rank));
  for (const std::string* text : {&destination.job, &destination.group, &destination.endpoint})
    append(identities.b, *text);
  return identities;
}

// The user at the other end, where that is the proof.
void require_same_user(const Socket& socket, const Trust& trust) {
  require_usable(trust, socket.is_unix() ? Endpoint::Kind::unix_abstract : Endpoint::Kind::tcp);
  if (trust.secret || !socket.is_unix()) return;
  const uid_t other = socket.peer_credentials().uid;
  if (other != ::geteuid()) {
    throw_invalid_argument(
        fmt::format("{}: it belongs to user {}, and this job has no secret to let another user "
                    "in; give all its ranks the same LOCKSTEP_SECRET_FILE",
                    socket.peer(), other));
  }
}

[[noreturn]] void throw_wrong_secret(const Socket& socket, const Trust& trust,
                                     const Destination& destination) {
  throw_invalid_argument(
      fmt::format("{}: wrong secret: this side has {}, and the other side has not the same, or is not {}; "
                  "give all ranks of the "
                  "job the same LOCKSTEP_SECRET_FILE (or start them with lockstep run) and the same "
                  "MASTER_ADDR and MASTER_PORT",
                  socket.peer(), trust.secret ? "one" : "none", destination.to_string()));
}

[[noreturn]] void throw_not_ours(const Socket& socket) {
  throw Error(ErrorCode::corrupt_data,
              socket.peer() +
                  ": another version of Lockstep, or something else, listens there; all "
                  "ranks must use the same version");
}

void require_greeting(Socket& socket, Deadline deadline) {
  proof::Greeting greeting{};
  socket.receive_all(greeting, deadline);
  if (!std::equal(magic.begin(), magic.end(), greeting.begin())) throw_not_ours(socket);
}

}  // namespace

void require_usable(const Trust& trust, Endpoint::Kind kind) {
  if (trust.secret || trust.tcp_without_secret || kind == Endpoint::Kind::unix_abstract) return;
  throw_invalid_argument(
      "a tcp connection needs a job secret; set LOCKSTEP_SECRET_FILE on all ranks to a file of mode 0600 "
      "with the "
      "same 16 or more random bytes, or start them with lockstep run");
}

std::string Destination::to_string() const {
  switch (kind) {
    case Kind::store: return fmt::format("the store of job \"{}\" at {}", job, endpoint);
    case Kind::door:
      return fmt::format("the door of rank {} of group \"{}\" in job \"{}\" at {}", rank, group, job,
                         endpoint);
    case Kind::launcher: return fmt::format("the launcher of run \"{}\" at {}", job, endpoint);
    case Kind::region: break;
  }
  return fmt::format("the shared memory of group \"{}\" in job \"{}\" at {}", group, job, endpoint);
}

void prove_as_client(Socket& socket, const Trust& trust, const Destination& destination, const Claim& claim,
                     Deadline deadline) try {
  require_same_user(socket, trust);
  require_greeting(socket, deadline);
  ClientProof client(trust, destination, claim);
  socket.send_all(client.opening(), deadline);
  proof::Answer answer{};
  socket.receive_all(answer, deadline);
  const proof::Confirmation confirmation = client.hear(answer);
  socket.send_all(confirmation, deadline);
  if (!client.server_is_right()) throw_wrong_secret(socket, trust, destination);
  proof::Verdict verdict{};
  socket.receive_all(std::as_writable_bytes(std::span(&verdict, 1)), deadline);
  if (verdict != proof::Verdict::welcome) {
    throw_invalid_argument(fmt::format("{}: turned away: {} has no place for a rank {} that connects for {}",
                                       socket.peer(), destination.to_string(), claim.rank, claim.use));
  }
} catch (const Error& error) {
  if (error.code() != ErrorCode::timeout && error.code() != ErrorCode::peer_lost) throw;
  throw Error(error.code(), "proving the job secret to " + std::string(error.what()) +
                                " (does something else than this job listen there?)");
}

Claim prove_as_server(Socket& socket, const Trust& trust, const Destination& destination, Deadline deadline) {
  ServerProof proof(socket, trust, destination);
  socket.send_all(ServerProof::greeting(), deadline);
  std::array<std::byte, ServerProof::most_awaited> heard{};
  while (!proof.is_over()) {
    const auto bytes = std::span(heard).first(proof.awaited());
    socket.receive_all(bytes, deadline);
    socket.send_all(proof.hear(bytes), deadline);  // often nothing
  }
  if (!proof.is_proven()) throw_wrong_secret(socket, trust, destination);
  const auto verdict = proof::Verdict::welcome;
  socket.send_all(std::as_bytes(std::span(&verdict, 1)), deadline);
  return proof.claim();
}

ClientProof::ClientProof(const Trust& trust, const Destination& destination, const Claim& claim)
    : half_(spake2::Side::a, scalar_of(trust)), identities_(identities_of(destination, claim)) {
  static_assert(sizeof(Claim) == 8);
  auto out = std::ranges::copy(magic, opening_.begin()).out;
  out = std::ranges::copy(std::as_bytes(std::span(&claim, 1)), out).out;
  std::ranges::copy(half_.share(), out);
}

proof::Confirmation ClientProof::hear(const proof::Answer& answer) {
  spake2::Share share{};
  spake2::Confirmation confirmation{};
  std::ranges::copy(std::span(answer).first<sizeof(share)>(), share.begin());
  std::ranges::copy(std::span(answer).last<sizeof(confirmation)>(), confirmation.begin());
  const auto confirmations = half_.finish(share, identities_);
  server_is_right_ = confirmations && spake2::same(confirmations->others, confirmation);
  return server_is_right_ ? confirmations->own : proof::Confirmation{};
}

ServerProof::ServerProof(const Socket& socket, const Trust& trust, const Destination& destination)
    : trust_(trust), destination_(destination), client_(socket.peer()) {
  require_same_user(socket, trust);
}

const proof::Greeting& ServerProof::greeting() {
  static constexpr proof::Greeting greeting = [] {
    proof::Greeting bytes{};
    std::ranges::copy(magic, bytes.begin());
    return bytes;
  }();
  return greeting;
}

std::size_t ServerProof::awaited() const {
  if (state_ == State::magic) return magic.size();
  return state_ == State::opening ? sizeof(proof::Opening) - magic.size() : sizeof(proof::Confirmation);
}

std::span<const std::byte> ServerProof::hear(std::span<const std::byte> bytes) {
  switch (state_) {
    case State::magic:
      if (!std::ranges::equal(bytes, magic)) return refuse("another version of Lockstep, or no rank");
      state_ = State::opening;
      return {};
    case State::opening: return answer(bytes);
    default: break;
  }
  spake2::Confirmation confirmation{};
  std::ranges::copy(bytes, confirmation.begin());
  const bool is_right = spake2::same(confirmation, expected_);
  if (!is_right)
    (void)refuse("wrong secret");  // of which its client knows from the answer, and reads no more
  if (is_right) state_ = State::proven;
  return {};
}

std::span<const std::byte> ServerProof::answer(std::span<const std::byte> opening) {
  std::memcpy(&claim_, opening.data(), sizeof(claim_));
  spake2::Share share{};
  std::ranges::copy(opening.last(sizeof(share)), share.begin());
  const spake2::Half half(spake2::Side::b, scalar_of(trust_));
  const auto confirmations = half.finish(share, identities_of(destination_, claim_));
  if (!confirmations) return refuse("no proof that a rank sends");
  expected_ = confirmations->others;
  std::ranges::copy(confirmations->own, std::ranges::copy(half.share(), reply_.begin()).out);
  state_ = State::confirmation;
  return reply_;
}

// Zeros, of which clients of earlier versions understand as many.
std::span<const std::byte> ServerProof::refuse(const char* why) {
  state_ = State::refused;
  why_ = why;
  reply_.fill(std::byte{0});
  return std::span(reply_).first<sizeof(spake2::Confirmation)>();
}

std::string ServerProof::refusal() const {
  return fmt::format(
      "{}: {}: it was turned away; give all ranks of the job the same LOCKSTEP_SECRET_FILE (or start "
      "them with lockstep run), MASTER_ADDR and MASTER_PORT (this is {})",
      client_, why_, destination_.to_string());
}

}  // namespace lockstep

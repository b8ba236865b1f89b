#include "lockstep/rendezvous/store_connection.h"

#include <sys/epoll.h>

#include <algorithm>
#include <array>
#include <utility>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

constexpr std::size_t bytes_per_turn = std::size_t{256} << 10;

std::string_view as_text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace

StoreConnection::StoreConnection(Socket socket, const Trust& trust) : socket_(std::move(socket)) {
  proof_.emplace(socket_, trust);
  out_ = as_text(proof_->challenge());
  send_queued();
}

std::optional<StoreRequest> StoreConnection::advance() {
  send_queued();
  if (answering_) {
    expect_silence();
    return std::nullopt;
  }
  if (!out_.empty() || closing_) return std::nullopt;  // who does not read its replies is not read either
  if (proof_ && !finish_proof()) return std::nullopt;
  return read_request();
}

void StoreConnection::reply(store_wire::Status status, std::string_view body) {
  if (status != store_wire::Status::present && status != store_wire::Status::parked) answering_ = false;
  if (!closing_) out_ += store_wire::encode_reply(status, body);
}

void StoreConnection::refuse_and_close(const std::string& why) {
  reply(store_wire::Status::refused, std::string_view(why).substr(0, store_wire::refusal_bytes));
  closing_ = true;
}

void StoreConnection::flush() {
  try {
    send_queued();
  } catch (const Error&) {
    out_.clear();
    sent_ = 0;
    closing_ = true;
  }
}

std::uint32_t StoreConnection::interest() const {
  return (out_.empty() ? 0U : EPOLLOUT) | (out_.empty() || answering_ ? EPOLLIN : 0U);
}

void StoreConnection::send_queued() {
  while (sent_ < out_.size()) {
    const auto sent = socket_.try_send(std::as_bytes(std::span(out_)).subspan(sent_));
    if (!sent) return;
    sent_ += *sent;
  }
  sent_ = 0;
  out_.clear();
  if (out_.capacity() > bytes_per_turn) out_.shrink_to_fit();
}

// Reads until in_ has `bytes`; room is made as bytes arrive, not when a header promises them.
bool StoreConnection::fill(std::size_t bytes) {
  std::size_t turn = bytes_per_turn;
  while (in_.size() < bytes && turn > 0) {
    const std::size_t before = in_.size();
    in_.resize(before + std::min(bytes - before, turn));
    const auto received = socket_.try_receive(std::as_writable_bytes(std::span(in_)).subspan(before));
    in_.resize(before + received.value_or(0));
    if (!received) return false;
    if (*received == 0) throw Error(ErrorCode::peer_lost, socket_.peer() + ": connection closed");
    turn -= *received;
  }
  return in_.size() == bytes;
}

bool StoreConnection::finish_proof() {
  if (!fill(ServerProof::answer_bytes)) return false;
  std::array<std::byte, ServerProof::answer_bytes> answer{};
  std::ranges::copy(std::as_bytes(std::span(in_)), answer.begin());
  in_.clear();
  const bool proven = proof_->check(answer);
  out_ += as_text(proof_->reply());
  send_queued();
  if (!proven) {
    throw Error(ErrorCode::invalid_argument,
                socket_.peer() +
                    ": wrong secret: it was turned away; give all ranks of the job the same "
                    "LOCKSTEP_SECRET_FILE (or start them with lockstep run)");
  }
  proof_.reset();
  return out_.empty();
}

std::optional<StoreRequest> StoreConnection::read_request() {
  if (!header_) {
    if (!fill(store_wire::header_bytes)) return std::nullopt;
    const auto bytes = std::as_bytes(std::span(in_)).first<store_wire::header_bytes>();
    const store_wire::Header header = store_wire::decode_header(bytes);
    if (header.body_bytes > store_wire::longest_body(header.kind)) {
      throw Error(ErrorCode::corrupt_data, "store message: operation " + std::to_string(header.kind) +
                                               " with a body of " + std::to_string(header.body_bytes) +
                                               " bytes");
    }
    header_ = header;
    in_.clear();
  }
  if (!fill(header_->body_bytes)) return std::nullopt;
  StoreRequest request{.operation = static_cast<store_wire::Operation>(header_->kind),
                       .fields = store_wire::decode_fields(in_)};
  header_.reset();
  in_ = std::string();
  answering_ = true;
  return request;
}

void StoreConnection::expect_silence() {
  std::byte byte{};
  const auto received = socket_.try_receive(std::span(&byte, 1));
  if (!received) return;
  if (*received == 0) throw Error(ErrorCode::peer_lost, socket_.peer() + ": connection closed");
  throw Error(ErrorCode::corrupt_data, "store message: a request before the last one was answered");
}

}  // namespace lockstep

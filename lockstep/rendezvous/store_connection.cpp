#include "lockstep/rendezvous/store_connection.h"

#include <sys/epoll.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "lockstep/base/byte_codec.h"
#include "lockstep/base/error.h"

namespace lockstep {
namespace {

constexpr std::size_t bytes_per_turn = std::size_t{256} << 10;
// So much each connection may hold for nothing: a proof, a short request, a refusal.
constexpr std::size_t free_bytes = std::size_t{8} << 10;

std::size_t counted(const std::string& text) { return text.capacity() > free_bytes ? text.capacity() : 0; }

// An assignment would keep the memory.
void release(std::string& text) { std::string().swap(text); }

}  // namespace

StoreConnection::StoreConnection(Socket socket, const Trust& trust, const Destination& destination,
                                 std::shared_ptr<StoreBudget> traffic)
    : socket_(std::move(socket)), in_share_(traffic), out_share_(std::move(traffic)) {
  proof_.emplace(socket_, trust, destination);
  out_ = base::text_of(ServerProof::greeting());
  send_queued();
}

std::optional<StoreRequest> StoreConnection::advance() {
  send_queued();
  if (answering_) {
    expect_silence();
    return std::nullopt;
  }
  if (!is_sent() || closing_) return std::nullopt;  // who does not read its replies is not read either
  if (proof_ && !finish_proof()) return std::nullopt;
  return read_request();
}

void StoreConnection::reply(store_wire::Status status, std::string_view body) {
  end_answer(status);
  if (closing_) return;
  out_ += store_wire::encode_reply(status, body);
  if (!out_share_.resize(counted(out_))) hang_up();
}

void StoreConnection::reply(store_wire::Status status, SharedValue value) {
  end_answer(status);
  if (closing_) return;
  out_ += store_wire::encode_reply_header(status, value->text.size());
  value_ = std::move(value);
}

void StoreConnection::end_answer(store_wire::Status status) {
  if (status != store_wire::Status::present && status != store_wire::Status::parked) answering_ = false;
}

void StoreConnection::hang_up() {
  release(out_);
  value_.reset();
  sent_ = 0;
  closing_ = true;
}

void StoreConnection::refuse_and_close(const std::string& why) {
  reply(store_wire::Status::refused, std::string_view(why).substr(0, store_wire::refusal_bytes));
  closing_ = true;
}

void StoreConnection::flush() {
  try {
    send_queued();
  } catch (const Error&) {
    hang_up();
  }
}

std::uint32_t StoreConnection::interest() const {
  return (is_sent() ? 0U : EPOLLOUT) | (is_sent() || answering_ ? EPOLLIN : 0U);
}

void StoreConnection::send_queued() {
  if (!send(out_)) return;
  if (value_) {
    sent_ -= out_.size();
    const bool is_whole = send(value_->text);
    sent_ += out_.size();
    if (!is_whole) return;
  }
  sent_ = 0;
  out_.clear();
  value_.reset();
  if (counted(out_) > 0) release(out_);
  out_share_.shrink(0);
}

// What of the text was not sent before. False: not all of it goes now.
bool StoreConnection::send(std::string_view text) {
  while (sent_ < text.size()) {
    const auto sent = socket_.try_send(std::as_bytes(std::span(text)).subspan(sent_));
    if (!sent) return false;
    sent_ += *sent;
  }
  return true;
}

// Reads until in_ has `bytes`; room is made as bytes arrive, not when a header promises them.
bool StoreConnection::fill(std::size_t bytes) {
  // Not in the thread itself: a library with much of that cannot be loaded by a program that runs, as Python is.
  static thread_local std::vector<std::byte> part(std::size_t{64} << 10);
  std::size_t turn = bytes_per_turn;
  while (in_.size() < bytes && turn > 0) {
    const std::size_t most = std::min({bytes - in_.size(), turn, part.size()});
    const auto received = socket_.try_receive(std::span(part).first(most));
    if (!received) return false;
    if (*received == 0) throw Error(ErrorCode::peer_lost, socket_.peer() + ": connection closed");
    if (in_.capacity() < in_.size() + *received)
      in_.reserve(std::min(bytes, std::max(2 * in_.size(), in_.size() + *received)));
    in_ += base::text_of(std::span(part).first(*received));
    if (!in_share_.resize(counted(in_))) {
      release(in_);
      throw Error(ErrorCode::corrupt_data, "store message: too much is on the way to the store for " +
                                               std::to_string(bytes) + " bytes more");
    }
    turn -= *received;
  }
  return in_.size() == bytes;
}

bool StoreConnection::finish_proof() {
  while (!proof_->is_over()) {
    if (!fill(proof_->awaited())) return false;
    out_ += base::text_of(proof_->hear(std::as_bytes(std::span(in_))));
    in_.clear();
    send_queued();
  }
  if (!proof_->is_proven()) throw Error(ErrorCode::invalid_argument, proof_->refusal());
  proof_.reset();
  out_.push_back(static_cast<char>(proof::Verdict::welcome));
  send_queued();
  return is_sent();
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
  release(in_);
  in_share_.shrink(0);
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

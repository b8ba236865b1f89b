#include "lockstep/launch/agents/message_pipe.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>

namespace lockstep::launch::agents {
namespace {

constexpr std::size_t header_bytes = sizeof(std::uint32_t) + sizeof(Kind);
constexpr std::size_t most_before_greeting = std::size_t{1} << 16;

void make_nonblocking(int fd) {
  const int flags = ::fcntl(fd, F_GETFL);
  if (flags < 0 || ::fcntl(fd, F_SETFL, flags | O_NONBLOCK) != 0)
    throw_system("preparing a pipe to an agent");
}

}  // namespace

UniqueFd copy_of(int fd) {
  UniqueFd copy(::fcntl(fd, F_DUPFD_CLOEXEC, 3));
  if (!copy) throw_system("copying a descriptor");
  return copy;
}

void MessageParser::add(std::string_view bytes, const Take& take) {
  part_ += bytes;
  std::size_t at = 0;
  while (part_.size() - at >= header_bytes) {
    const auto header = std::as_bytes(std::span(part_)).subspan(at);
    const auto length = base::number_at<std::uint32_t>(header);
    if (length > most_message_bytes) {
      throw Error(ErrorCode::corrupt_data, "a message of " + std::to_string(length) + " bytes, of which " +
                                               std::to_string(most_message_bytes) + " are allowed");
    }
    if (part_.size() - at < header_bytes + length) break;
    Message message{.kind = base::number_at<Kind>(header, sizeof(std::uint32_t)),
                    .body = part_.substr(at + header_bytes, length)};
    at += header_bytes + length;
    take(std::move(message));
  }
  part_.erase(0, at);
}

MessagePipe::MessagePipe(UniqueFd in, UniqueFd out) : in_(std::move(in)), out_(std::move(out)) {
  make_nonblocking(in_.get());
  make_nonblocking(out_.get());
}

void MessagePipe::greet(std::string_view version) {
  queue_.append(greeting_begin).append(version).append("\n");
}

void MessagePipe::send(const Message& message) {
  if (!out_) return;
  base::append_number(queue_, static_cast<std::uint32_t>(message.body.size()));
  base::append_number(queue_, message.kind);
  queue_ += message.body;
}

void MessagePipe::watch(PollSet& poll, const MessageParser::Take& take) {
  if (in_) poll.watch(in_.get(), POLLIN, [this, take] { read_some(take); });
  if (out_ && queued_bytes() > 0) poll.watch(out_.get(), POLLOUT, [this] { write_some(); });
}

void MessagePipe::read_some(const MessageParser::Take& take) {
  std::array<char, 65536> buffer;
  if (!in_) return;
  const ssize_t got = ::read(in_.get(), buffer.data(), buffer.size());
  if (got < 0 && (errno == EINTR || errno == EAGAIN)) return;
  if (got <= 0) return in_.reset();
  const std::string_view bytes = after_greeting({buffer.data(), static_cast<std::size_t>(got)});
  if (bytes.empty()) return;
  try {
    parser_.add(bytes, take);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::corrupt_data) throw;
    problem_ = error.what();
    close();
  }
}

std::string_view MessagePipe::after_greeting(std::string_view bytes) {
  if (!awaits_greeting_) return bytes;
  const std::size_t before = before_greeting_.size();
  before_greeting_ += bytes;
  const std::size_t begin = before_greeting_.find(greeting_begin);
  const std::size_t end = begin == std::string::npos ? begin : before_greeting_.find('\n', begin);
  if (end == std::string::npos) {
    if (before_greeting_.size() > most_before_greeting) in_.reset();
    return {};
  }
  awaits_greeting_ = false;
  version_ = before_greeting_.substr(begin + greeting_begin.size(), end - begin - greeting_begin.size());
  return bytes.substr(end + 1 - before);
}

void MessagePipe::write_some() {
  const ssize_t written = ::write(out_.get(), queue_.data() + written_, queued_bytes());
  if (written < 0) {
    if (errno == EINTR || errno == EAGAIN) return;
    queue_.clear();
    written_ = 0;
    return out_.reset();
  }
  written_ += static_cast<std::size_t>(written);
  if (written_ * 2 >= queue_.size()) {
    queue_.erase(0, written_);
    written_ = 0;
  }
}

void MessagePipe::close() {
  in_.reset();
  out_.reset();
}

}  // namespace lockstep::launch::agents

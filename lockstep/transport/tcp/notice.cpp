#include "lockstep/transport/tcp/notice.h"

#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <algorithm>
#include <span>

#include "lockstep/base/byte_codec.h"
#include "lockstep/base/error.h"
#include "lockstep/base/log.h"

namespace lockstep::tcp {
namespace {

struct Header {
  static constexpr std::uint32_t expected_magic = 0x316e'6b4cU;  // "Lkn1"
  std::uint32_t magic = expected_magic;
  Notice::Kind kind{};
  std::uint16_t text_bytes = 0;
  std::int32_t value = 0;  // failure: the error code; waiting: a rank
  std::int32_t culprit = -1;
  std::int32_t reporter = -1;
};

std::string encode(const Header& header) {
  std::string bytes;
  base::append_number(bytes, header.magic);
  base::append_number(bytes, header.kind);
  base::append_number(bytes, header.text_bytes);
  base::append_number(bytes, header.value);
  base::append_number(bytes, header.culprit);
  base::append_number(bytes, header.reporter);
  return bytes;
}

Header decode_header(std::span<const std::byte, NoticeStream::header_bytes> bytes) {
  return {.magic = base::number_at<std::uint32_t>(bytes),
          .kind = base::number_at<Notice::Kind>(bytes, 4),
          .text_bytes = base::number_at<std::uint16_t>(bytes, 6),
          .value = base::number_at<std::int32_t>(bytes, 8),
          .culprit = base::number_at<std::int32_t>(bytes, 12),
          .reporter = base::number_at<std::int32_t>(bytes, 16)};
}

bool is_valid(const Header& header) {
  if (header.magic != Header::expected_magic) return false;
  switch (header.kind) {
    case Notice::Kind::failure:
      return header.text_bytes <= NoticeStream::text_bytes && header.value >= 0 &&
             header.value <= static_cast<int>(ErrorCode::system);
    case Notice::Kind::waiting:
    case Notice::Kind::goodbye: return header.text_bytes == 0;
  }
  return false;
}

// A host that vanished is found out by keepalive only while nothing waits to be acknowledged; this is for the
// rest.
void limit_retransmissions(int fd) {
  const unsigned int milliseconds = 50'000;
  (void)::setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &milliseconds, sizeof(milliseconds));
}

// A leaving rank waits for its goodbye to be acknowledged. The kernel falls back to late acknowledgements by
// itself.
void acknowledge_at_once(int fd) {
  const int on = 1;
  (void)::setsockopt(fd, IPPROTO_TCP, TCP_QUICKACK, &on, sizeof(on));
}

}  // namespace

std::string encode(const Notice& notice) {
  Header header;
  header.kind = notice.kind;
  std::string text;
  if (notice.kind == Notice::Kind::waiting) header.value = notice.awaited;
  if (notice.kind == Notice::Kind::failure) {
    header.value = static_cast<std::int32_t>(notice.cause.code);
    header.culprit = notice.cause.culprit;
    header.reporter = notice.cause.reporter;
    text = notice.cause.text.substr(0, NoticeStream::text_bytes);
    header.text_bytes = static_cast<std::uint16_t>(text.size());
  }
  return encode(header) + text;
}

NoticeStream::NoticeStream(Socket socket, std::size_t words_told)
    : socket_(std::move(socket)), words_told_(words_told) {
  limit_retransmissions(socket_.fd());
  acknowledge_at_once(socket_.fd());
}

std::vector<Notice> NoticeStream::read() {
  std::vector<Notice> notices;
  while (!ended_) {
    try {
      const auto received = socket_.try_receive(std::span(in_).subspan(received_));
      if (!received) break;
      ended_ = *received == 0;
      received_ += *received;
      acknowledge_at_once(socket_.fd());
      while (auto notice = next()) notices.push_back(std::move(*notice));
    } catch (const Error& error) {
      if (error.code() == ErrorCode::corrupt_data) log::warning(error.what());
      ended_ = true;
    }
  }
  return notices;
}

std::optional<Notice> NoticeStream::next() {
  if (received_ < header_bytes) return std::nullopt;
  const std::span<const std::byte> in(in_);
  const Header header = decode_header(in.first<header_bytes>());
  if (!is_valid(header)) throw Error(ErrorCode::corrupt_data, socket_.peer() + " sent what is no notice");
  const std::size_t whole = header_bytes + header.text_bytes;
  if (received_ < whole) return std::nullopt;
  Notice notice{.kind = header.kind};
  if (header.kind == Notice::Kind::waiting) notice.awaited = header.value;
  if (header.kind == Notice::Kind::failure) {
    notice.cause = {static_cast<ErrorCode>(header.value), header.culprit, header.reporter,
                    std::string(base::text_of(in.subspan(header_bytes, header.text_bytes)))};
  }
  std::copy(in_.begin() + static_cast<std::ptrdiff_t>(whole),
            in_.begin() + static_cast<std::ptrdiff_t>(received_), in_.begin());
  received_ -= whole;
  return notice;
}

void NoticeStream::tell(const std::string& words, int awaited,
                        std::chrono::steady_clock::time_point awaited_at) {
  if (words.size() > words_told_) {
    out_ += words.substr(words_told_);
    words_told_ = words.size();
  }
  flush();
  const bool is_news = awaited != awaited_told_ || (awaited >= 0 && awaited_at > awaited_told_at_);
  if (out_.empty() && is_news) {  // only the last one counts, so it never queues up
    out_ = encode({.kind = Notice::Kind::waiting, .awaited = awaited});
    awaited_told_ = awaited;
    awaited_told_at_ = awaited_at;
    flush();
  }
}

void NoticeStream::flush() {
  try {
    while (!out_.empty() && !deaf_) {
      const auto sent = socket_.try_send(std::as_bytes(std::span(out_)));
      if (!sent) return;
      out_.erase(0, *sent);
    }
  } catch (const Error&) {
    deaf_ = true;  // what it said before is still to be read
  }
  if (deaf_) out_.clear();
}

bool NoticeStream::is_delivered() const {
  int queued = 0;
  if (deaf_ || ended_ || ::ioctl(socket_.fd(), SIOCOUTQ, &queued) != 0) return true;
  return out_.empty() && queued == 0;
}

pollfd NoticeStream::wait_descriptor() const {
  const int wanted = POLLIN | (out_.empty() ? 0 : POLLOUT);
  return {.fd = socket_.fd(), .events = static_cast<short>(wanted), .revents = 0};
}

}  // namespace lockstep::tcp

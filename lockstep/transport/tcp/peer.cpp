#include "lockstep/transport/tcp/peer.h"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>

namespace lockstep::tcp {
namespace {

// Who reads no more than this reads the first bytes of a message, or a small one.
constexpr std::size_t small_bytes = 512;

// What it sent may still be on its way: there is neither anything to read nor the end.
bool may_still_receive(const Socket& socket) {
  std::byte byte{};
  return ::recv(socket.fd(), &byte, 1, MSG_PEEK | MSG_DONTWAIT) < 0 && (errno == EAGAIN || errno == EINTR);
}

}  // namespace

std::size_t ReadAhead::take(std::span<std::byte> bytes) {
  const std::size_t count = std::min(bytes.size(), end_ - begin_);
  std::copy_n(bytes_.begin() + static_cast<std::ptrdiff_t>(begin_), count, bytes.begin());
  begin_ += count;
  return count;
}

std::optional<std::size_t> ReadAhead::receive(Socket& socket, std::size_t most) {
  const auto received = socket.try_receive(std::span(bytes_).first(std::min(most, bytes_.size())));
  begin_ = 0;
  end_ = received.value_or(0);
  return received;
}

void Peer::admit(Door::Arrival arrival) {
  const Strand& strand = arrival.strand;
  if (strand.line == Line::notices) {
    notices_.emplace_back(std::move(arrival.socket), arrival.words_told);
    return;
  }
  Stripes& in = path(static_cast<Purpose>(strand.line)).in;
  if (in.count() == 0) in.set_count(strand.count);
  if (in.count() == strand.count && !in.has(strand.index)) in.put(strand.index, std::move(arrival.socket));
}

std::size_t Peer::write(Purpose purpose, std::span<const std::byte> first,
                        std::span<const std::byte> second) {
  Path& data = path(purpose);
  if (data.out.current() == nullptr) continue_dials(data, purpose);
  Socket* const socket = data.out.current();
  if (socket != nullptr && !data.out_ended && first.size() + second.size() > 0) {
    const std::size_t room = data.out.room();
    first = first.first(std::min(first.size(), room));
    second = second.first(std::min(second.size(), room - first.size()));
    try {
      if (const auto sent = socket->try_send_both(first, second)) {
        data.out.moved(*sent);
        return *sent;
      }
    } catch (const Error&) {
      data.out_ended = true;
    }
  }
  data.out_blocked = true;
  return 0;
}

std::size_t Peer::read(Purpose purpose, std::span<std::byte> bytes) {
  Path& data = path(purpose);
  if (!data.ahead.empty()) return data.ahead.take(bytes);
  Socket* const socket = data.in.current();
  if (socket != nullptr && !data.in_ended && !bytes.empty()) {
    try {
      const bool is_small = bytes.size() <= small_bytes;
      const std::size_t room = data.in.room();
      const auto received = is_small ? data.ahead.receive(*socket, room)
                                     : socket->try_receive(bytes.first(std::min(bytes.size(), room)));
      if (received) data.in.moved(*received);
      if (received && *received > 0) return is_small ? data.ahead.take(bytes) : *received;
      data.in_ended = received.has_value();
    } catch (const Error&) {
      data.in_ended = true;
    }
  }
  (void)has_notices();  // who waits for a rank has to learn of its end
  data.in_awaited = true;
  return 0;
}

// Notices come first: whoever has data of a rank can also hear what became of it.
void Peer::continue_dials(Path& data, Purpose purpose) {
  if (data.out_ended || !has_notices()) return;
  if (data.out.count() == 0) {
    data.out.set_count(strands_);
    for (int index = 0; index < strands_; ++index)
      data.dials.push_back(make_dial_({.line = line_of(purpose), .index = index, .count = strands_}));
  }
  for (int index = 0; index < strands_; ++index) {
    auto& under_way = data.dials[static_cast<std::size_t>(index)];
    if (!under_way || !under_way->is_over()) continue;
    const auto dial = std::move(under_way);
    if (auto socket = dial->take()) {
      data.out.put(index, std::move(*socket));
    } else {
      data.out_ended = true;
    }
  }
}

bool Peer::has_notices() {
  hear();
  if (notices_.empty() && error_) throw Error(*error_);
  return !notices_.empty();
}

void Peer::hear() {
  if (!notices_.empty()) return;
  if (!notices_dial_ && !refused_ && !error_) notices_dial_ = make_dial_({.line = Line::notices});
  continue_notices_dial();
}

void Peer::continue_notices_dial() {
  if (!notices_dial_ || !notices_dial_->is_over()) return;
  const auto dial = std::move(notices_dial_);
  try {
    if (auto socket = dial->take()) {
      notices_.emplace_back(std::move(*socket), dial->words_told());
    } else {
      refused_ = true;
    }
  } catch (const Error& error) {
    error_ = error;
  }
}

void Peer::listen() {
  continue_notices_dial();
  for (NoticeStream& stream : notices_) {
    for (Notice& notice : stream.read()) {
      if (notice.kind == Notice::Kind::failure && !failure_) failure_ = std::move(notice.cause);
      if (notice.kind == Notice::Kind::goodbye) left_ = true;
      if (notice.kind != Notice::Kind::waiting) continue;
      awaited_ = notice.awaited;
      awaited_heard_ = std::chrono::steady_clock::now();
    }
  }
}

std::optional<int> Peer::awaited(std::chrono::nanoseconds within) const {
  const bool is_stale = std::chrono::steady_clock::now() - awaited_heard_ > within;
  return awaited_ < 0 || is_stale ? std::nullopt : std::optional(awaited_);
}

void Peer::tell(const std::string& words, int awaited, std::chrono::steady_clock::time_point awaited_at) {
  if (notices_dial_ && !words.empty() && !notices_dial_->set_last_words(words)) continue_notices_dial();
  for (NoticeStream& stream : notices_) stream.tell(words, awaited, awaited_at);
}

bool Peer::is_gone() const {
  if (left_) return true;
  if (notices_.empty()) return refused_;
  const auto has_ended = [](const NoticeStream& stream) { return stream.has_ended(); };
  return !notices_dial_ && std::all_of(notices_.begin(), notices_.end(), has_ended);
}

std::optional<PeerNews> Peer::news(bool may_arrive) {
  if (failure_) return PeerNews{PeerNews::Kind::failed, rank_, *failure_};
  if (!is_gone() || may_arrive) return std::nullopt;
  for (const Path& data : paths_) {
    bool is_all_here = data.ahead.empty();
    data.in.each([&](const Socket& socket) {
      if (!data.in_ended && may_still_receive(socket)) is_all_here = false;
    });
    if (!is_all_here) return std::nullopt;
  }
  // Who was never connected has heard no goodbye.
  const bool has_left = left_ || (may_just_leave_ && notices_.empty());
  return PeerNews{has_left ? PeerNews::Kind::left : PeerNews::Kind::died, rank_, {}};
}

base::SocketTraffic Peer::sent() const {
  base::SocketTraffic all;
  for (const Path& data : paths_) {
    std::uint64_t busy_ns = 0;
    data.out.each([&](const Socket& socket) {
      const base::SocketTraffic one = base::traffic_of(socket.fd());
      all.sent_bytes += one.sent_bytes;
      busy_ns = std::max(busy_ns, one.busy_ns);  // they are busy at the same time
    });
    all.busy_ns += busy_ns;
  }
  return all;
}

void Peer::end_writing() {
  for (Path& data : paths_) {
    data.out.each([](const Socket& socket) { (void)::shutdown(socket.fd(), SHUT_WR); });
  }
}

bool Peer::is_delivered() const {
  return std::all_of(notices_.begin(), notices_.end(),
                     [](const NoticeStream& stream) { return stream.is_delivered(); });
}

void Peer::add_wait_descriptors(std::vector<pollfd>& descriptors) {
  for (const NoticeStream& stream : notices_) {
    if (!stream.has_ended()) descriptors.push_back(stream.wait_descriptor());
  }
  for (Path& data : paths_) {
    const Socket* const in = data.in.current();
    const Socket* const out = data.out.current();
    if (in != nullptr && !data.in_ended && data.in_awaited)
      descriptors.push_back({.fd = in->fd(), .events = POLLIN, .revents = 0});
    if (out != nullptr && !data.out_ended && data.out_blocked)
      descriptors.push_back({.fd = out->fd(), .events = POLLOUT, .revents = 0});
    data.in_awaited = data.out_blocked = false;
  }
}

}  // namespace lockstep::tcp

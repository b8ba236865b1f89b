#include "lockstep/transport/tcp/door.h"

#include <poll.h>
#include <sys/eventfd.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "lockstep/base/error.h"
#include "lockstep/base/log.h"

namespace lockstep::tcp {
namespace {

using Clock = Deadline::Clock;

constexpr int accepts_per_turn = 64;
constexpr auto pause_when_refused = std::chrono::milliseconds(100);  // the system is out of descriptors

Listener listen_on(const DoorOptions& options) {
  require_usable(options.trust, Endpoint::Kind::tcp);
  return Listener::bind(Endpoint::tcp(options.address, 0));
}

}  // namespace

Door::Door(DoorOptions options, Bell& bell)
    : options_(std::move(options)),
      bell_(bell),
      stop_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      listener_(listen_on(options_)),
      endpoint_(listener_.endpoint()) {
  if (!stop_) throw_system("eventfd");
  thread_.emplace("lockstep-door", [this] { run(); });
}

Door::~Door() {
  if (is_here()) (void)::eventfd_write(stop_.get(), 1);
  thread_.reset();
}

std::vector<Door::Arrival> Door::take() {
  const std::lock_guard lock(mutex_);
  return std::exchange(arrivals_, {});
}

void Door::set_last_words(const std::string& words) {
  const std::lock_guard lock(mutex_);
  last_words_ = words;
}

void Door::run() noexcept {
  try {
    while (turn()) {
    }
  } catch (const std::exception& error) {
    log::error("no more connections of other hosts are accepted: " + std::string(error.what()));
  }
}

bool Door::turn() {
  const bool listening = !is_full() && accept_again_ <= Clock::now();
  std::vector<pollfd> descriptors{{.fd = stop_.get(), .events = POLLIN, .revents = 0},
                                  {.fd = listening ? listener_.fd() : -1, .events = POLLIN, .revents = 0}};
  const std::size_t first = descriptors.size();
  for (const auto& guest : guests_)
    descriptors.push_back({.fd = guest->socket().fd(), .events = POLLIN, .revents = 0});
  if (::poll(descriptors.data(), descriptors.size(), poll_milliseconds()) < 0 && errno != EINTR)
    throw_system("poll");
  if (descriptors[0].revents != 0) return false;
  for (std::size_t index = guests_.size(); index-- > 0;) {
    if (descriptors[first + index].revents != 0 && !serve(*guests_[index])) remove(index);
  }
  drop_late();
  if (descriptors[1].revents != 0) accept_guests();
  return true;
}

int Door::poll_milliseconds() const {
  Deadline next = Deadline::never();
  if (!guests_.empty()) next = next.earlier_of(Deadline::at(guests_.front()->since() + patience()));
  if (accept_again_ > Clock::now()) next = next.earlier_of(Deadline::at(accept_again_));
  return next.poll_milliseconds(std::chrono::hours(1));
}

void Door::accept_guests() {
  for (int count = 0; count < accepts_per_turn && !is_full(); ++count) {
    try {
      auto socket = listener_.try_accept();
      if (!socket) return;
      guests_.push_back(std::make_unique<Guest>(std::move(*socket), options_.trust));
    } catch (const Error& error) {
      if (error.code() == ErrorCode::peer_lost) continue;  // this one is gone already
      log::debug("the next connections wait: " + std::string(error.what()));
      accept_again_ = Clock::now() + pause_when_refused;
      return;
    }
  }
}

// False: done with, one way or the other.
bool Door::serve(Guest& guest) {
  try {
    if (!guest.is_proven()) {
      if (!guest.prove()) return true;
      arriving_.fetch_add(1, std::memory_order_acq_rel);  // before it can send anything
      guest.welcome();
      return true;
    }
    const auto hello = guest.hello<Hello>();
    if (!hello) return true;
    let_in(guest, *hello);
  } catch (const Error& error) {
    log::debug("a connection was dropped: " + std::string(error.what()));
  }
  return false;
}

void Door::let_in(Guest& guest, const Hello& hello) {
  if (!is_for(hello, options_.group, options_.rank, options_.ranks))
    throw Error(ErrorCode::corrupt_data, guest.socket().peer() + ": not a rank of this group");
  {
    const std::lock_guard lock(mutex_);
    const std::string& words = last_words_;
    if (!words.empty() && hello.line == Line::notices) {
      if (guest.socket().try_send(std::as_bytes(std::span(words))) != words.size()) return;
    }
    arrivals_.push_back({std::move(guest.socket()), hello.from, hello.line, words.size()});
  }
  bell_.ring();
}

void Door::drop_late() {
  const auto oldest = Clock::now() - patience();
  while (!guests_.empty() && guests_.front()->since() <= oldest) remove(0);
}

void Door::remove(std::size_t index) {
  const bool was_proven = guests_[index]->is_proven();
  guests_.erase(guests_.begin() + static_cast<std::ptrdiff_t>(index));
  if (was_proven) arriving_.fetch_sub(1, std::memory_order_acq_rel);
}

}  // namespace lockstep::tcp

#include "lockstep/transport/tcp/door.h"

#include <poll.h>
#include <sys/eventfd.h>

#include <cerrno>
#include <span>

#include "lockstep/base/error.h"
#include "lockstep/base/log.h"

namespace lockstep::tcp {
namespace {

using Clock = Deadline::Clock;

constexpr int accepts_per_turn = 64;
constexpr auto pause_when_refused = std::chrono::milliseconds(100);  // the system is out of descriptors

class Counted {
 public:
  explicit Counted(std::atomic<int>& count) : count_(count) {
    count_.fetch_add(1, std::memory_order_acq_rel);
  }
  ~Counted() { count_.fetch_sub(1, std::memory_order_acq_rel); }
  Counted(const Counted&) = delete;
  Counted& operator=(const Counted&) = delete;

 private:
  std::atomic<int>& count_;
};

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
      endpoint_(listener_.endpoint()),
      destination_(door_of(options_.job, options_.group, options_.rank, endpoint_)),
      guests_(options_.trust, destination_, options_.guests) {
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
  const bool listening = accept_again_ <= Clock::now();
  std::vector<pollfd> descriptors{{.fd = stop_.get(), .events = POLLIN, .revents = 0},
                                  {.fd = listening ? listener_.fd() : -1, .events = POLLIN, .revents = 0}};
  const std::size_t first = descriptors.size();
  guests_.add_descriptors(descriptors);
  if (::poll(descriptors.data(), descriptors.size(), poll_milliseconds()) < 0 && errno != EINTR)
    throw_system("poll");
  if (descriptors[0].revents != 0) return false;
  guests_.serve(std::span(descriptors).subspan(first), [this](Guest& guest) { let_in(guest); });
  guests_.drop_late();
  if (descriptors[1].revents != 0) accept_guests();
  return true;
}

int Door::poll_milliseconds() const {
  Deadline next = guests_.next_deadline();
  if (accept_again_ > Clock::now()) next = next.earlier_of(Deadline::at(accept_again_));
  return next.poll_milliseconds(std::chrono::hours(1));
}

void Door::accept_guests() {
  try {
    for (int count = 0; count < accepts_per_turn && guests_.take_one(listener_); ++count) {
    }
  } catch (const Error& error) {
    log::debug("the next connections wait: " + std::string(error.what()));
    accept_again_ = Clock::now() + pause_when_refused;
  }
}

void Door::let_in(Guest& guest) {
  const auto strand = strand_of(guest.claim(), options_.rank, options_.ranks);
  if (!strand) {
    guest.turn_away();
    throw Error(ErrorCode::corrupt_data, guest.socket().peer() + ": not a rank of this group");
  }
  const Counted arriving(arriving_);  // before it can send anything, until take() finds it
  admit(guest, *strand);
}

void Door::admit(Guest& guest, const Strand& strand) {
  guest.welcome();
  {
    const std::lock_guard lock(mutex_);
    const std::string& words = last_words_;
    if (!words.empty() && strand.line == Line::notices) {
      if (guest.socket().try_send(std::as_bytes(std::span(words))) != words.size()) return;
    }
    arrivals_.push_back({std::move(guest.socket()), guest.claim().rank, strand, words.size()});
  }
  bell_.ring();
}

}  // namespace lockstep::tcp

#include "lockstep/transport/tcp/dial.h"

#include <thread>
#include <utility>

#include "lockstep/base/error.h"

namespace lockstep::tcp {
namespace {

constexpr auto time_for_last_words = std::chrono::seconds(1);
// A door that is beset by strangers may drop a slow rank, too.
constexpr int attempts_to_prove = 10;

}  // namespace

Dial::Dial(Call call, Bell& bell) : call_(std::move(call)), bell_(bell) {
  thread_.emplace("lockstep-dial", [this] { run(); });
}

Dial::~Dial() {
  if (thread_->runs_here()) {
    const std::lock_guard lock(mutex_);
    giving_up_ = true;
    if (socket_ && !is_over()) socket_.shutdown();
  }
  thread_.reset();
}

bool Dial::set_last_words(const std::string& words) {
  const std::lock_guard lock(mutex_);
  if (is_over()) return false;
  last_words_ = words;
  return true;
}

std::optional<Socket> Dial::take() {
  if (!error_) return std::move(socket_);
  if (error_->code() == ErrorCode::peer_lost) return std::nullopt;
  const std::string rank = "rank " + std::to_string(call_.world_rank);
  if (error_->code() == ErrorCode::timeout) {
    throw Error(ErrorCode::timeout, rank + " did not answer: " + error_->what(), call_.world_rank);
  }
  throw Error(error_->code(), "reaching " + rank + ": " + error_->what());
}

void Dial::run() noexcept {
  try {
    connect();
  } catch (const Error& error) {
    error_ = error;
  } catch (const std::exception& error) {
    error_ = Error(ErrorCode::system, error.what());
  }
  finish();
  bell_.ring();
}

void Dial::finish() {
  const std::lock_guard lock(mutex_);
  try {
    if (!error_ && !last_words_.empty()) {
      socket_.send_all(std::as_bytes(std::span(last_words_)), Deadline::after(time_for_last_words));
    }
  } catch (const Error& error) {
    error_ = error;
  }
  over_.store(true, std::memory_order_release);
}

void Dial::connect() {
  for (int attempt = 1;; ++attempt) {
    open();
    try {
      return prove_as_client(socket_, call_.trust, call_.destination, call_.claim, call_.deadline);
    } catch (const Error& error) {
      if (error.code() != ErrorCode::peer_lost || attempt == attempts_to_prove) throw;
    }
  }
}

void Dial::open() {
  const auto lock_unless_given_up = [this] {
    std::unique_lock lock(mutex_);
    if (giving_up_) throw Error(ErrorCode::aborted, "given up");
    return lock;
  };
  Socket socket =
      Socket::connect_through_cuts(call_.endpoint, call_.deadline, [&] { (void)lock_unless_given_up(); });
  const auto lock = lock_unless_given_up();
  socket_ = std::move(socket);
}

}  // namespace lockstep::tcp

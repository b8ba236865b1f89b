#include "lockstep/rendezvous/tcp_store.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <thread>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/quote.h"
#include "lockstep/rendezvous/store_replies.h"
#include "lockstep/rendezvous/store_wire.h"

namespace lockstep {
namespace {

using base::quote;

using store_wire::Operation;
using store_wire::Status;

constexpr std::size_t most_idle = 8;  // connections kept for later calls
constexpr auto pause_between_proofs = std::chrono::milliseconds(10);

}  // namespace

// One request with all its replies. Its connection goes back when the last reply came; after any failure it
// is in an unknown state, and ends with the call.
class TcpStore::Call {
 public:
  Call(TcpStore& store, const char* name, std::string what, Deadline deadline)
      : store_(store), what_(std::string("store ") + name + " of " + std::move(what)), deadline_(deadline) {}

  StoreReply run(Operation operation, std::initializer_list<std::string_view> fields) {
    send(operation, std::span(fields.begin(), fields.size()));
    return next();
  }

  /// As run(); the connection is the caller's afterwards.
  Socket run_and_keep(Operation operation, std::initializer_list<std::string_view> fields) {
    send(operation, std::span(fields.begin(), fields.size()));
    if (const StoreReply reply = receive(); reply.status == Status::refused)
      throw_invalid_argument(reply.body);
    return std::move(socket_);
  }

  void send(Operation operation, std::span<const std::string_view> fields) {
    const std::string request = store_wire::encode_request(operation, fields);
    replies_.emplace(operation, fields.size());
    translated([&] {
      socket_ = store_.borrow(deadline_);
      socket_.send_all(std::as_bytes(std::span(request)), deadline_);
    });
  }

  StoreReply next() {
    StoreReply reply = receive();
    if (replies_->is_over()) store_.give_back(std::move(socket_));
    if (reply.status == Status::refused) throw_invalid_argument(reply.body);
    return reply;
  }

  /// REQUIRES: a request was sent.
  const StoreReplies& replies() const { return *replies_; }

 private:
  StoreReply receive() {
    StoreReply reply;
    translated([&] { reply = replies_->receive(socket_, deadline_); });
    return reply;
  }

  template <typename Action>
  void translated(Action action) {
    try {
      action();
    } catch (const Error& error) {
      const std::string where = what_ + ": the store at " + store_.endpoint_.to_string();
      if (error.code() == ErrorCode::peer_lost) {
        throw Error(ErrorCode::peer_lost, where + " is gone (its host, rank 0, ended?)");
      }
      if (error.code() == ErrorCode::timeout) {
        throw Error(ErrorCode::timeout,
                    where +
                        " did not answer before the deadline (its host, rank 0, is stopped or "
                        "overloaded?)");
      }
      throw;
    }
  }

  TcpStore& store_;
  const std::string what_;
  const Deadline deadline_;
  Socket socket_;
  std::optional<StoreReplies> replies_;
};

class TcpStore::Will {
 public:
  Will(Socket socket, std::string key) : socket_(std::move(socket)), key_(std::move(key)) {}
  Will(const Will&) = delete;
  Will& operator=(const Will&) = delete;
  ~Will() {
    if (::getpid() != process_) return;
    const std::string request =
        store_wire::encode_request(Operation::withdraw, std::array<std::string_view, 1>{key_});
    try {  // where it does not go, the store is gone, or has more than this to think of
      (void)socket_.try_send(std::as_bytes(std::span(request)));
    } catch (const Error&) {
      return;
    }
  }

 private:
  const int process_ = ::getpid();
  Socket socket_;
  const std::string key_;
};

TcpStore::TcpStore(Endpoint endpoint, Deadline deadline, TcpStoreOptions options)
    : endpoint_(std::move(endpoint)), options_(std::move(options)), process_(::getpid()) {
  require_usable(options_.trust, endpoint_.kind);
  give_back(connect(true, deadline));
}

TcpStore::~TcpStore() = default;

// A server with more newcomers than it has room for may close a connection in the middle of the proof; it is
// there, so another try is worth it. One that is gone refuses the next try.
Socket TcpStore::connect(bool wait_for_server, Deadline deadline) const {
  for (;;) {
    Socket socket = wait_for_server ? Socket::connect(endpoint_, deadline)
                                    : Socket::connect_through_cuts(endpoint_, deadline);
    try {
      prove_as_client(socket, options_.trust, store_wire::destination_of(options_.job, endpoint_),
                      {.rank = options_.rank}, deadline);
      return socket;
    } catch (const Error& error) {
      if (error.code() != ErrorCode::peer_lost) throw;
      if (deadline.expired()) throw Error(ErrorCode::timeout, error.what());
    }
    // It has no room just now, and will not say when it has.
    std::this_thread::sleep_for(
        std::min<std::chrono::nanoseconds>(pause_between_proofs, deadline.remaining()));
  }
}

Socket TcpStore::borrow(Deadline deadline) {
  if (::getpid() != process_) {
    throw Error(ErrorCode::unsupported, "the store's connections belong to process " +
                                            std::to_string(process_) +
                                            "; a forked child cannot use them: exec, or connect anew");
  }
  {
    const std::scoped_lock lock(mutex_);
    if (!idle_.empty()) {
      Socket socket = std::move(idle_.back());
      idle_.pop_back();
      return socket;
    }
  }
  return connect(false, deadline);
}

void TcpStore::give_back(Socket socket) {
  const std::scoped_lock lock(mutex_);
  if (idle_.size() < most_idle) idle_.push_back(std::move(socket));
}

void TcpStore::set(const std::string& key, std::string value) {
  detail::require_key(key, store_wire::limits);
  detail::require_value(key, value.size(), store_wire::limits);
  Call(*this, "set", quote(key), usual_deadline()).run(Operation::set, {key, value});
}

std::string TcpStore::get(const std::string& key, Deadline deadline) {
  detail::require_key(key, store_wire::limits);
  Call call(*this, "get", quote(key), deadline);
  StoreReply reply = call.run(Operation::get, {key});
  if (reply.status != Status::parked) return std::move(reply.body);
  try {
    return call.next().body;
  } catch (const Error& error) {
    if (error.code() == ErrorCode::timeout) detail::throw_missing(std::span(&key, 1));
    throw;
  }
}

std::optional<std::string> TcpStore::try_get(const std::string& key) {
  detail::require_key(key, store_wire::limits);
  StoreReply reply = Call(*this, "try_get", quote(key), usual_deadline()).run(Operation::try_get, {key});
  if (reply.status == Status::missing) return std::nullopt;
  return std::move(reply.body);
}

std::int64_t TcpStore::add(const std::string& key, std::int64_t amount) {
  detail::require_key(key, store_wire::limits);
  Call call(*this, "add", quote(key), usual_deadline());
  return store_wire::decode_number(call.run(Operation::add, {key, store_wire::encode_number(amount)}).body);
}

std::string TcpStore::compare_set(const std::string& key, const std::string& expected,
                                  const std::string& desired) {
  detail::require_key(key, store_wire::limits);
  detail::require_value(key, std::max(expected.size(), desired.size()), store_wire::limits);
  Call call(*this, "compare_set", quote(key), usual_deadline());
  return call.run(Operation::compare_set, {key, expected, desired}).body;
}

void TcpStore::wait(std::span<const std::string> keys, Deadline deadline) {
  std::size_t bytes = 0;
  for (const std::string& key : keys) {
    detail::require_key(key, store_wire::limits);
    bytes += 4 + key.size();
  }
  if (bytes > store_wire::keys_bytes)
    throw_invalid_argument("store wait: more than 16 MiB of keys; wait for fewer at once");
  const std::vector<std::string_view> fields(keys.begin(), keys.end());
  Call call(*this, "wait", std::to_string(keys.size()) + " keys", deadline);
  call.send(Operation::wait, fields);
  try {
    while (!call.replies().is_over()) (void)call.next();
  } catch (const Error& error) {
    if (error.code() != ErrorCode::timeout || !call.replies().is_parked()) throw;
    std::vector<std::string> missing;
    for (std::size_t i = 0; i < keys.size(); ++i) {
      if (!call.replies().seen()[i]) missing.push_back(keys[i]);
    }
    detail::throw_missing(missing);
  }
}

bool TcpStore::erase(const std::string& key) {
  detail::require_key(key, store_wire::limits);
  return Call(*this, "erase", quote(key), usual_deadline()).run(Operation::erase, {key}).status ==
         Status::done;
}

std::int64_t TcpStore::erase_all(const std::string& prefix) {
  detail::require_key(prefix, store_wire::limits);
  return store_wire::decode_number(
      Call(*this, "erase_all", quote(prefix), usual_deadline()).run(Operation::erase_all, {prefix}).body);
}

std::shared_ptr<void> TcpStore::bequeath(const std::string& key, std::string value) {
  detail::require_key(key, store_wire::limits);
  detail::require_value(key, value.size(), store_wire::limits);
  Call call(*this, "bequeath", quote(key), usual_deadline());
  return std::make_shared<Will>(call.run_and_keep(Operation::bequeath, {key, value}), key);
}

}  // namespace lockstep

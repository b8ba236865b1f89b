// One client as StoreServer sees it: bytes that arrive whenever they like on one side, whole requests on the
// other. Nothing here waits; what would block is continued when the server's loop calls again.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/base/proof.h"
#include "lockstep/base/socket.h"
#include "lockstep/rendezvous/store_budget.h"
#include "lockstep/rendezvous/store_wire.h"

namespace lockstep {

struct StoreRequest {
  store_wire::Operation operation{};
  std::vector<std::string> fields = {};
};

/// The life of a connection: proof, then request and reply in turn.
class StoreConnection {
 public:
  /// Greets. Borrows `trust` and `destination`; what arrives and what is not fetched counts in `traffic`. Throws
  /// Error: the client is not to be let in, or gone.
  StoreConnection(Socket socket, const Trust& trust, const Destination& destination,
                  std::shared_ptr<StoreBudget> traffic);

  /// Continues whatever is under way as far as it goes without waiting: sends replies, then reads. Returns a
  /// request when it is complete; it has to be answered before the next one is read. Also finds out that a
  /// client that waits for an answer left. What it reads in one call is bounded, so that all clients have
  /// their turn. Throws Error: the client is gone, or sent what it must not.
  std::optional<StoreRequest> advance();

  /// Queues a reply for flush(). The last one of a request ends it; `present` and `parked` announce more.
  void reply(store_wire::Status status, std::string_view body = {});
  /// The same, of a value that is not copied.
  void reply(store_wire::Status status, SharedValue value);
  /// Queues a last reply, after which the connection ends.
  void refuse_and_close(const std::string& why);
  /// Sends what can be sent now. A client that is gone only makes this connection finished().
  void flush();

  bool proven() const { return !proof_; }
  /// All is said and sent: to be dropped.
  bool finished() const { return closing_ && is_sent(); }
  /// What to ask epoll for.
  std::uint32_t interest() const;
  int fd() const { return socket_.fd(); }
  const std::string& peer() const { return socket_.peer(); }

 private:
  void send_queued();
  bool send(std::string_view text);
  bool is_sent() const { return out_.empty() && !value_; }
  void hang_up();
  void end_answer(store_wire::Status status);
  bool fill(std::size_t bytes);
  bool finish_proof();
  std::optional<StoreRequest> read_request();
  void expect_silence();

  Socket socket_;
  std::optional<ServerProof> proof_;          // until the client has proven itself
  std::optional<store_wire::Header> header_;  // of the request being read
  std::string in_;                            // of the message being read
  StoreShare in_share_;
  std::string out_;    // replies
  SharedValue value_;  // the end of the last of them
  StoreShare out_share_;
  std::size_t sent_ = 0;    // bytes of both
  bool answering_ = false;  // a request was returned and is not answered yet
  bool closing_ = false;
};

}  // namespace lockstep

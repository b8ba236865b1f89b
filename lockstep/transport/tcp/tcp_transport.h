// The transport of ranks on different hosts. Whoever sends connects, when it first sends; data goes one way
// on its connection. Notices (why a rank failed, for whom it waits, that it leaves) go both ways on a
// connection of their own, made before any other with that rank, so that they never wait behind data:
//
//   rank 0 <-notices-> rank 1   made by whichever first sends or waits; two where both did
//
//   rank 0 == data ==> rank 1   made by rank 0, one or several for each purpose (stripes.h)
//
//   rank 0 <== data == rank 1   made by rank 1
//
// A rank's end is the end of its notices: with a failure or a goodbye before it, or else a death. It is news
// once all data that was sent before has arrived. Every connection begins with a proof of the job's secret,
// of who connects and of what for (base/proof.h); all are made and accepted by threads of the transport's
// own, so that no call here ever waits for another rank.
#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/base/proof.h"
#include "lockstep/base/socket.h"
#include "lockstep/transport/channel.h"
#include "lockstep/transport/members.h"

namespace lockstep {

namespace tcp {
class Bell;
class Dial;
class Door;
class Peer;
struct Strand;
}  // namespace tcp

struct TcpTransportOptions {
  Members members;
  std::string job;
  std::string group;  ///< name; strangers to job and group are refused
  std::vector<std::string>
      listen_addresses;  ///< numeric ones of the interfaces to listen on, the same order on all hosts
  /// For data of each purpose, to each address of the other side.
  int connections = 1;
  Trust trust;
  std::chrono::nanoseconds connect_timeout = std::chrono::minutes(1);
  std::chrono::nanoseconds told_again = std::chrono::milliseconds(100);  ///< see waiting_told_again()
  bool is_whole_job = true;  ///< whoever closes its door here is gone from the job
};

/// Channels never throw for the end of a peer: they move nothing more, and look() says what happened, after
/// all that arrived was read. They throw Error{timeout} (peer() is the world rank) when a rank does not
/// answer within the connect timeout, invalid_argument when it has another secret, and system.
class TcpTransport final : public Transport {
 public:
  /// Listens at once, on a port of the kernel's choice. Throws Error{invalid_argument, system}.
  explicit TcpTransport(TcpTransportOptions options);
  /// Without a goodbye before it, the others see a death.
  ~TcpTransport() override;

  /// What the other ranks need to connect, which they exchange through the store: an endpoint for each interface, with
  /// commas between them.
  std::string address() const;
  /// Their address(); empty for ranks that are reached otherwise. Throws Error{invalid_argument} for what is none.
  void set_addresses(const PerRank<std::string>& addresses);

  /// REQUIRES: set_addresses() has one for `peer`, else Error{invalid_argument}.
  Channel& channel(int peer, Purpose purpose) override;
  std::vector<PeerNews> look() override;
  void tell_failure(const FirstCause::Cause& cause) override;
  void tell_waiting(int world) override;
  std::optional<int> awaited_by(int world, std::chrono::nanoseconds within) override;
  void tell_waiting_afar(int world) override;
  void say_goodbye() override;
  std::vector<trace::Sent> sent() const override;
  /// For what the channels could not do since the last call.
  std::vector<pollfd> wait_descriptors() override;

 private:
  class TcpChannel;
  bool has_address(int rank) const { return rank < endpoints_.size() && !endpoints_[rank].empty(); }
  tcp::Peer& peer(int rank);
  std::unique_ptr<tcp::Dial> dial(int rank, const tcp::Strand& strand);
  void admit_arrivals();
  void say(const std::string& last_words);
  void tell_peers();

  TcpTransportOptions options_;
  PerRank<std::vector<Endpoint>> endpoints_;
  std::unique_ptr<tcp::Bell> bell_;
  std::vector<std::unique_ptr<tcp::Door>> doors_;  // one for each address
  std::map<int, std::unique_ptr<tcp::Peer>> peers_;
  std::map<std::pair<int, Purpose>, std::unique_ptr<TcpChannel>> channels_;
  std::string last_words_;  // notices of failure and goodbye, for everybody who is or ever will be connected
  int awaited_ = -1;        // for whom this rank waits, in the world
  std::chrono::steady_clock::time_point awaited_since_{};
  int awaited_told_ = -1;
  std::chrono::steady_clock::time_point awaited_told_at_{};
};

}  // namespace lockstep

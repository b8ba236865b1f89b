#include "lockstep/transport/tcp/tcp_transport.h"

#include <fmt/core.h>

#include <algorithm>

#include "lockstep/base/error.h"
#include "lockstep/base/split.h"
#include "lockstep/transport/tcp/bell.h"
#include "lockstep/transport/tcp/peer.h"

namespace lockstep {
namespace {

using Clock = Deadline::Clock;

// Who waits for less than this does not tell: most waits are over by then, and a notice costs each peer a
// look.
constexpr auto quiet_wait = std::chrono::milliseconds(20);
// How long a leaving rank stays for the others' hosts to acknowledge its goodbye; most often that is no time
// at all.
constexpr auto longest_goodbye = std::chrono::milliseconds(20);

}  // namespace

class TcpTransport::TcpChannel final : public Channel {
 public:
  TcpChannel(TcpTransport& transport, tcp::Peer& peer, Purpose purpose)
      : transport_(transport), peer_(peer), purpose_(purpose) {}

  std::size_t try_write(std::span<const std::byte> bytes) override { return try_write_both(bytes, {}); }
  std::size_t try_write_both(std::span<const std::byte> first, std::span<const std::byte> second) override {
    transport_.admit_arrivals();
    return peer_.write(purpose_, first, second);
  }
  std::size_t try_read(std::span<std::byte> bytes) override {
    transport_.admit_arrivals();
    return peer_.read(purpose_, bytes);
  }

 private:
  TcpTransport& transport_;
  tcp::Peer& peer_;
  const Purpose purpose_;
};

TcpTransport::TcpTransport(TcpTransportOptions options)
    : options_(std::move(options)), bell_(std::make_unique<tcp::Bell>()) {
  for (const std::string& address : options_.listen_addresses) {
    doors_.push_back(std::make_unique<tcp::Door>(tcp::DoorOptions{.address = address,
                                                                  .trust = options_.trust,
                                                                  .job = options_.job,
                                                                  .group = options_.group,
                                                                  .rank = options_.members.rank(),
                                                                  .ranks = options_.members.size()},
                                                 *bell_));
  }
}

TcpTransport::~TcpTransport() {
  if (!doors_.front()->is_here()) return;
  for (auto& [rank, peer] : peers_) peer->listen();  // closing on unread bytes would reset what we told
}

std::string TcpTransport::address() const {
  std::string text;
  for (const auto& door : doors_) text += (text.empty() ? "" : ",") + door->endpoint().to_string();
  return text;
}

void TcpTransport::set_addresses(const PerRank<std::string>& addresses) {
  endpoints_ = PerRank<std::vector<Endpoint>>(addresses.size());
  for (int rank = 0; rank < addresses.size(); ++rank) {
    if (addresses[rank].empty()) continue;
    for (const std::string& one : base::split(addresses[rank], ','))
      endpoints_[rank].push_back(Endpoint::parse(one));
    if (endpoints_[rank].size() * static_cast<std::size_t>(options_.connections) > tcp::most_strands) {
      throw_invalid_argument(fmt::format(
          "rank {} listens at {} addresses; with {} connections to each that is more than {}",
          options_.members[rank].world, endpoints_[rank].size(), options_.connections, tcp::most_strands));
    }
  }
}

Channel& TcpTransport::channel(int peer, Purpose purpose) {
  if (!has_address(peer)) {
    throw_invalid_argument("rank " + std::to_string(peer) + " of group \"" + options_.group +
                           "\" has no address");
  }
  auto& made = channels_[{peer, purpose}];
  if (!made) made = std::make_unique<TcpChannel>(*this, this->peer(peer), purpose);
  return *made;
}

tcp::Peer& TcpTransport::peer(int rank) {
  auto& made = peers_[rank];
  if (!made) {
    const int strands = options_.connections * static_cast<int>(endpoints_[rank].size());
    made = std::make_unique<tcp::Peer>(
        rank, strands, [this, rank](const tcp::Strand& strand) { return dial(rank, strand); },
        !options_.is_whole_job);
  }
  return *made;
}

std::unique_ptr<tcp::Dial> TcpTransport::dial(int rank, const tcp::Strand& strand) {
  const auto& endpoints = endpoints_[rank];
  const Endpoint& endpoint = endpoints[static_cast<std::size_t>(strand.index) % endpoints.size()];
  return std::make_unique<tcp::Dial>(
      tcp::Dial::Call{.endpoint = endpoint,
                      .destination = tcp::door_of(options_.job, options_.group, rank, endpoint),
                      .claim = tcp::claim_of(options_.members.rank(), strand),
                      .world_rank = options_.members[rank].world,
                      .trust = options_.trust,
                      .deadline = Deadline::after(options_.connect_timeout)},
      *bell_);
}

void TcpTransport::admit_arrivals() {
  if (!bell_->take()) return;
  for (const auto& door : doors_) {
    for (auto& arrival : door->take()) {
      tcp::Peer& from = peer(arrival.rank);
      from.admit(std::move(arrival));
    }
  }
}

std::vector<PeerNews> TcpTransport::look() {
  for (auto& [rank, peer] : peers_) peer->listen();
  const bool may_arrive = std::ranges::any_of(doors_, [](const auto& door) {
    return door->has_arriving();
  });  // in this order: what arrived before their end is admitted
  admit_arrivals();
  tell_peers();
  std::vector<PeerNews> all;
  for (auto& [rank, peer] : peers_) {
    auto news = peer->news(may_arrive);
    if (!news) continue;
    // A cause comes before its consequences.
    all.insert(news->kind == PeerNews::Kind::failed ? all.begin() : all.end(), std::move(*news));
  }
  return all;
}

void TcpTransport::tell_failure(const FirstCause::Cause& cause) {
  say(tcp::encode({.kind = tcp::Notice::Kind::failure, .cause = cause}));
}

void TcpTransport::tell_waiting(int world) {
  if (world != awaited_) awaited_since_ = Clock::now();
  awaited_ = world;
  const bool is_due = world < 0 || Clock::now() - awaited_since_ >= quiet_wait;
  const bool is_old = world >= 0 && Clock::now() - awaited_told_at_ >= options_.told_again;
  if (!is_due || (world == awaited_told_ && !is_old)) return;
  awaited_told_ = world;
  awaited_told_at_ = Clock::now();
  tell_peers();
}

std::optional<int> TcpTransport::awaited_by(int world, std::chrono::nanoseconds within) {
  const auto rank = options_.members.rank_of(world);
  if (!rank || !has_address(*rank)) return std::nullopt;
  tcp::Peer& asked = peer(*rank);
  asked.hear();
  return asked.awaited(within);
}

void TcpTransport::tell_waiting_afar(int world) {
  for (auto& [rank, peer] : peers_) peer->listen();
  admit_arrivals();
  tell_waiting(world);
  tell_peers();
}

void TcpTransport::say_goodbye() {
  say(tcp::encode({.kind = tcp::Notice::Kind::goodbye}));
  for (auto& [rank, peer] : peers_) peer->end_writing();
  const Deadline deadline = Deadline::after(longest_goodbye);
  for (auto& [rank, peer] : peers_) {
    while (!peer->is_delivered() && !deadline.expired()) (void)::poll(nullptr, 0, 1);
  }
}

void TcpTransport::say(const std::string& last_words) {
  last_words_ += last_words;
  for (const auto& door : doors_) door->set_last_words(last_words_);
  admit_arrivals();
  tell_peers();
}

void TcpTransport::tell_peers() {
  for (auto& [rank, peer] : peers_) peer->tell(last_words_, awaited_told_, awaited_told_at_);
}

std::vector<trace::Sent> TcpTransport::sent() const {
  std::vector<trace::Sent> all;
  for (const auto& [rank, peer] : peers_) {
    const base::SocketTraffic data = peer->sent();
    if (data.sent_bytes == 0) continue;
    all.push_back({.peer = options_.members[rank].world, .bytes = data.sent_bytes, .busy_ns = data.busy_ns});
  }
  return all;
}

std::vector<pollfd> TcpTransport::wait_descriptors() {
  std::vector<pollfd> descriptors{bell_->wait_descriptor()};
  for (auto& [rank, peer] : peers_) peer->add_wait_descriptors(descriptors);
  return descriptors;
}

}  // namespace lockstep

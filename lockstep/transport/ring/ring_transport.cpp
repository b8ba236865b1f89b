#include "lockstep/transport/ring/ring_transport.h"

namespace lockstep {

class RingTransport::RingChannel final : public Channel {
 public:
  RingChannel(std::byte* outgoing, std::byte* incoming, Doorbell& doorbell)
      : outgoing_(outgoing, ring_bytes), incoming_(incoming, ring_bytes), doorbell_(doorbell) {}

  std::size_t try_write(std::span<const std::byte> bytes) override { return rung(outgoing_.write(bytes)); }
  std::size_t try_write_both(std::span<const std::byte> first, std::span<const std::byte> second) override {
    return rung(outgoing_.write(first, second));
  }
  std::size_t try_read(std::span<std::byte> bytes) override { return rung(incoming_.read(bytes)); }
  void note_taken() override {
    incoming_.note_taken();
    doorbell_.ring();
  }
  std::uint64_t taken() override { return outgoing_.taken(); }

 private:
  std::size_t rung(std::size_t count) {
    if (count > 0) doorbell_.ring();
    return count;
  }
  ByteRing outgoing_;
  ByteRing incoming_;
  Doorbell& doorbell_;
};

RingTransport::RingTransport(RingTransportOptions options) : options_(std::move(options)) {}
RingTransport::~RingTransport() = default;

RankStatus& RingTransport::status(int rank) const {
  return options_.page->status(options_.members[rank].page);
}

Channel& RingTransport::channel(int peer, Purpose purpose) {
  auto& made = channels_[{peer, purpose}];
  if (!made) {
    const int mine = options_.members.self().local;
    const int other = options_.members[peer].local;
    made =
        std::make_unique<RingChannel>(options_.region->ring(purpose, mine, other),
                                      options_.region->ring(purpose, other, mine), options_.page->doorbell());
  }
  return *made;
}

std::vector<PeerNews> RingTransport::look() {
  std::vector<PeerNews> news;
  if (auto cause = options_.region->first_cause().get()) {
    news.push_back({PeerNews::Kind::failed, cause->reporter, std::move(*cause)});
    return news;
  }
  const Members& members = options_.members;
  for (int rank = 0; rank < members.size(); ++rank) {
    if (rank == members.rank() || !members[rank].is_here()) continue;
    const RankProgress& progress = options_.region->progress(members[rank].local);
    if (progress.has_left.load(std::memory_order_acquire) != 0 ||
        status(rank).said_goodbye.load(std::memory_order_acquire) != 0) {
      news.push_back({PeerNews::Kind::left, rank, {}});
    } else if (!options_.is_alive(members[rank].local)) {
      news.push_back({PeerNews::Kind::died, rank, {}});
    }
  }
  return news;
}

void RingTransport::tell_failure(const FirstCause::Cause& cause) {
  options_.region->first_cause().set(cause);
  options_.page->first_cause().set(cause);
  options_.page->doorbell().ring();
}

void RingTransport::tell_waiting(int world) {
  status(options_.members.rank()).awaits_at_ns.store(trace::now_ns(), std::memory_order_release);
  status(options_.members.rank()).awaits.store(world + 1, std::memory_order_release);
}

std::optional<int> RingTransport::awaited_by(int world, std::chrono::nanoseconds within) {
  const auto rank = options_.members.rank_of(world);
  if (!rank || !options_.members[*rank].is_here()) return std::nullopt;
  const int awaited = status(*rank).awaits.load(std::memory_order_acquire) - 1;
  if (awaited < 0) return std::nullopt;
  const auto said = std::chrono::nanoseconds(status(*rank).awaits_at_ns.load(std::memory_order_acquire));
  if (std::chrono::nanoseconds(trace::now_ns()) - said > within) return std::nullopt;
  return awaited;
}

void RingTransport::say_goodbye() {
  options_.region->progress(options_.members.self().local).has_left.store(1, std::memory_order_release);
  if (options_.is_whole_job) status(options_.members.rank()).said_goodbye.store(1, std::memory_order_release);
  options_.page->doorbell().ring();
}

}  // namespace lockstep

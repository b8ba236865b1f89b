// The transport of a group that spans hosts: rings to the ranks on this host, sockets to all others.
#pragma once

#include <memory>

#include "lockstep/transport/channel.h"
#include "lockstep/transport/members.h"

namespace lockstep {

class SplitTransport final : public Transport {
 public:
  SplitTransport(Members members, std::unique_ptr<Transport> near, std::unique_ptr<Transport> far)
      : members_(std::move(members)), near_(std::move(near)), far_(std::move(far)) {}

  Channel& channel(int peer, Purpose purpose) override { return to(peer).channel(peer, purpose); }
  std::vector<PeerNews> look() override {
    auto news = near_->look();
    const auto more = far_->look();
    news.insert(news.end(), more.begin(), more.end());
    return news;
  }
  void tell_failure(const FirstCause::Cause& cause) override {
    near_->tell_failure(cause);
    far_->tell_failure(cause);
  }
  void tell_waiting(int world) override {
    near_->tell_waiting(world);
    far_->tell_waiting(world);
  }
  std::optional<int> awaited_by(int world, std::chrono::nanoseconds within) override {
    const auto rank = members_.rank_of(world);
    return rank ? to(*rank).awaited_by(world, within) : std::nullopt;
  }
  void tell_waiting_afar(int world) override { far_->tell_waiting_afar(world); }
  void say_goodbye() override {
    near_->say_goodbye();
    far_->say_goodbye();
  }
  std::vector<trace::Sent> sent() const override { return far_->sent(); }
  std::vector<pollfd> wait_descriptors() override { return far_->wait_descriptors(); }

 private:
  Transport& to(int rank) const { return members_[rank].is_here() ? *near_ : *far_; }

  Members members_;
  std::unique_ptr<Transport> near_;
  std::unique_ptr<Transport> far_;
};

}  // namespace lockstep

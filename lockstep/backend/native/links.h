// A group's links, on which the messages of its collectives go: one to each rank that it has had to do with.
#pragma once

#include <map>
#include <optional>

#include "lockstep/execute/link.h"

namespace lockstep {

/// One rank's. Under the progress lock.
class Links {
 public:
  /// Borrows `transport`.
  explicit Links(Transport& transport) : transport_(transport) {}

  /// Made when first used.
  Link& to(int peer) {
    const auto found = links_.find(peer);
    if (found != links_.end()) return found->second;
    return links_.emplace(peer, Link(transport_.channel(peer, Purpose::collective))).first->second;
  }
  bool has(int peer) const { return links_.contains(peer); }

  /// Moves what can be moved without waiting; true if anything was. Throws as Link::advance() does.
  bool advance() {
    bool moved = false;
    for (auto& [peer, link] : links_) {
      if (!link.is_sending() && !link.is_receiving()) continue;
      moved = link.advance() || moved;
      if (link.unexpected()) {
        stopped_at_ = peer;
        break;
      }
    }
    return moved;
  }
  /// The peer whose message stopped its link: see Link::unexpected().
  std::optional<int> stopped_at() const { return stopped_at_; }

 private:
  Transport& transport_;
  std::map<int, Link> links_;  // by peer
  std::optional<int> stopped_at_;
};

}  // namespace lockstep

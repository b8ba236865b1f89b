// Messages between two ranks, matched by source and tag. Those of one source and tag arrive in the order in
// which they were sent, at receives in the order in which they were posted. A message stays in its channel
// until somebody wants something of its sender; only if that is another message is it put aside.
//
// A long message in memory that both ranks reach is lent: only its place goes through the channel. The
// receiver copies it from there piece by piece, and counts the pieces. That is one copy instead of two; the
// send is over when the receiver has all of it, as it is for any message that is longer than the channel.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "lockstep/execute/link.h"
#include "lockstep/execute/message.h"

namespace lockstep {

/// What a mailbox has to know of memory that all ranks of a group reach.
struct Lending {
  std::size_t least_bytes = SIZE_MAX;  ///< of a message; one that the channel could hold ends by itself
  /// Where `bytes` lie in this rank's part of it; nullopt if they do not.
  std::function<std::optional<std::uint64_t>(std::span<const std::byte> bytes)> place_of = {};
  /// What lies there; nullopt where nothing can.
  std::function<std::optional<std::span<const std::byte>>(int rank, std::uint64_t place, std::uint64_t bytes)>
      memory_of = {};
  /// Throws if a rank that lends may have failed: its program may then change what it had lent.
  std::function<void()> require_sound = [] {};
};

/// A send under way. Its owner keeps it until it is over or the mailbox is cleared.
struct Outgoing {
  int peer = 0;
  std::uint64_t number = 0;  ///< of this rank's sends to the peer
  Signature signature = {};  ///< detail: the tag; the operation goes out as send
  std::span<const std::byte> bytes = {};
  bool is_over = false;
  // Of what is lent, by the mailbox:
  std::optional<std::uint64_t> place = {};
  std::uint64_t pieces_left = 0;  ///< that the peer has not copied yet
};

/// A receive under way, likewise.
struct Incoming {
  int source = any_source;
  int tag = any_tag;
  std::uint64_t number = 0;
  Signature signature = {};
  std::span<std::byte> bytes = {};
  bool is_over = false;
  Received from = {};
};

/// One rank's. Under the progress lock.
class Mailbox {
 public:
  /// `channel`: to a peer, made when first used. `most_aside_bytes`: bound for what is put aside,
  /// headers included. `lending`: where all ranks share memory.
  Mailbox(int rank, int ranks, std::function<Channel&(int)> channel, std::size_t most_aside_bytes,
          Lending lending = {});

  void post(Outgoing& message);
  void post(Incoming& receive);

  /// Sends a small message at once, while nothing else is under way with its peer; returns whether all of it
  /// went out. If not, post it next: a part may have gone. REQUIRES: it is too small to be lent.
  bool send_now(const Outgoing& message);
  /// Likewise looks so many times for a message; returns whether all of it came. If not, post this receive
  /// next: a part may be there. `last_look_ns`: set to the time (record_now_ns()) of each look in vain.
  /// Throws as advance() does.
  bool receive_now(Incoming& receive, int looks, std::uint64_t& last_look_ns);

  /// Moves what can be moved without waiting; true if anything was. Throws peer_lost from a channel,
  /// corrupt_data for what is no message or lies nowhere, invalid_argument when too much would have to be put
  /// aside. After a message of another size than its receive has, it stands still: see misfit().
  bool advance();

  struct Misfit {
    int source;
    MessageHeader arrived;
    const Incoming* receive;
  };
  const std::optional<Misfit>& misfit() const { return misfit_; }

  /// How many messages of `source` have arrived as a whole, received or aside.
  std::uint64_t arrived_from(int source) const;

  /// What lies aside, for messages about receives that find nothing: source, tag, bytes.
  struct Unclaimed {
    int source;
    int tag;
    std::size_t bytes;
  };
  std::vector<Unclaimed> unclaimed() const;

  /// Forgets all that is under way.
  void clear();

 private:
  struct Aside {
    MessageHeader header;
    std::vector<std::byte> bytes;
    bool is_complete = false;
    Incoming* claimed_by = nullptr;
  };
  struct Peer {
    Channel* channel = nullptr;
    std::deque<Outgoing*> sends;
    std::deque<Outgoing*> lent;    ///< sent, and not taken yet
    std::uint64_t taken_back = 0;  ///< pieces of all that were lent
    MessageHeader leaving;
    std::size_t sent_bytes = 0;  // of header and payload together
    MessageHeader arriving;
    std::uint64_t place = 0;         ///< of what is lent
    std::size_t received_bytes = 0;  ///< of header, place and payload together
    std::uint64_t arrived = 0;       ///< messages, whole
    Incoming* target = nullptr;
    bool has_begun = false;  ///< receive_now() found the target, which is posted next
    bool goes_aside = false;
    std::list<Aside> aside;  // in the order of arrival
  };

  Peer& peer(int rank);
  bool send(Peer& peer);
  static bool take_back(Peer& peer);
  bool receive(int source, Peer& peer);
  bool read_header(int source, Peer& peer);
  void require_data(const MessageHeader& header) const;
  static std::size_t read_payload(const Peer& peer, std::span<std::byte> rest);
  std::size_t copy_lent(int source, const Peer& peer, std::span<std::byte> rest) const;
  bool begin_payload(int source, Peer& peer);
  bool is_wanted(int source) const;
  Incoming* take_receive_for(int source, const MessageHeader& header);
  bool take_from_aside(int source, Peer& peer, Incoming& receive);
  bool fits(int source, const MessageHeader& header, const Incoming& receive);
  std::span<std::byte> put_aside(int source, Peer& peer, const MessageHeader& header);
  static MessageHeader header_of(const Outgoing& message);
  static void deliver(int source, const MessageHeader& header, Incoming& receive);

  int rank_;
  int ranks_;
  std::function<Channel&(int)> channel_;
  std::size_t most_aside_bytes_;
  Lending lending_;
  std::size_t aside_bytes_ = 0;
  std::map<int, Peer> peers_;
  std::list<Incoming*> receives_;  // not yet matched, in the order posted
  std::optional<Misfit> misfit_;
};

}  // namespace lockstep

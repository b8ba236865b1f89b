#include "lockstep/execute/mailbox.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/execute/short_look.h"

namespace lockstep {
namespace {

int tag_of(const MessageHeader& header) { return static_cast<int>(header.signature.detail); }

/// The memory of a message that is put aside. The header counts too, or there could be any number of empty
/// messages.
std::size_t bytes_aside(const MessageHeader& header) { return sizeof(MessageHeader) + header.bytes; }

/// So much of a lent message is copied before other works have their turn. The sender sees each piece go.
constexpr std::size_t lent_piece_bytes = std::size_t{1} << 20;

std::uint64_t pieces_of(std::size_t bytes) { return (bytes + lent_piece_bytes - 1) / lent_piece_bytes; }

bool is_lent(const MessageHeader& header) { return header.kind == MessageHeader::Kind::lent; }

/// What comes before the payload.
std::size_t head_bytes(const MessageHeader& header) {
  return sizeof(MessageHeader) + (is_lent(header) ? sizeof(std::uint64_t) : 0);
}

/// What goes out behind the header.
std::span<const std::byte> body_of(const Outgoing& message) {
  return message.place ? std::as_bytes(std::span(&*message.place, 1)) : message.bytes;
}

bool matches(const Incoming& receive, int source, const MessageHeader& header) {
  return (receive.source == any_source || receive.source == source) &&
         (receive.tag == any_tag || receive.tag == tag_of(header));
}

}  // namespace

Mailbox::Mailbox(int rank, int ranks, std::function<Channel&(int)> channel, std::size_t most_aside_bytes,
                 Lending lending)
    : rank_(rank),
      ranks_(ranks),
      channel_(std::move(channel)),
      most_aside_bytes_(most_aside_bytes),
      lending_(std::move(lending)) {}

Mailbox::Peer& Mailbox::peer(int rank) {
  Peer& found = peers_[rank];
  if (found.channel == nullptr && rank != rank_) found.channel = &channel_(rank);
  return found;
}

void Mailbox::post(Outgoing& message) {
  Peer& to = peer(message.peer);
  if (message.peer != rank_) {
    if (message.bytes.size() >= lending_.least_bytes) message.place = lending_.place_of(message.bytes);
    message.pieces_left = pieces_of(message.bytes.size());
    to.sends.push_back(&message);
    return;
  }
  // To itself: into the receive that waits for it, or aside.
  const MessageHeader header = header_of(message);
  message.is_over = true;
  if (Incoming* receive = take_receive_for(rank_, header)) {
    if (!fits(rank_, header, *receive)) return;
    if (!message.bytes.empty())
      std::memcpy(receive->bytes.data(), message.bytes.data(), message.bytes.size());
    deliver(rank_, header, *receive);
    return;
  }
  const auto aside = put_aside(rank_, to, header);
  if (!aside.empty()) std::memcpy(aside.data(), message.bytes.data(), aside.size());
  to.aside.back().is_complete = true;
}

MessageHeader Mailbox::header_of(const Outgoing& message) {
  MessageHeader header{.kind = message.place ? MessageHeader::Kind::lent : MessageHeader::Kind::data,
                       .sequence = message.number,
                       .bytes = message.bytes.size(),
                       .signature = message.signature};
  header.signature.operation = Operation::send;
  return header;
}

bool Mailbox::send_now(const Outgoing& message) {
  if (message.peer == rank_) return false;
  Peer& to = peer(message.peer);
  if (!to.sends.empty()) return false;
  to.leaving = header_of(message);
  write_rest(*to.channel, to.leaving, message.bytes, to.sent_bytes);
  if (to.sent_bytes < sizeof(MessageHeader) + message.bytes.size()) return false;
  to.sent_bytes = 0;
  return true;
}

bool Mailbox::receive_now(Incoming& receive, int looks, std::uint64_t& last_look_ns) {
  if (receive.source == any_source || receive.source == rank_ || !receives_.empty() || misfit_) return false;
  Peer& from = peer(receive.source);
  if (!from.aside.empty() || from.received_bytes != 0) return false;
  const auto header = std::as_writable_bytes(std::span(&from.arriving, 1));
  const auto has_begun = [&] {
    from.received_bytes = from.channel->try_read(header);
    return from.received_bytes != 0;
  };
  if (!look_shortly(looks, last_look_ns, has_begun) || from.received_bytes < header.size()) return false;
  require_data(from.arriving);
  if (is_lent(from.arriving)) return false;
  if (!matches(receive, receive.source, from.arriving) || from.arriving.bytes != receive.bytes.size())
    return false;
  if (!receive.bytes.empty()) from.received_bytes += from.channel->try_read(receive.bytes);
  if (from.received_bytes < header.size() + receive.bytes.size()) {
    from.has_begun = true;
    return false;
  }
  from.received_bytes = 0;
  ++from.arrived;
  deliver(receive.source, from.arriving, receive);
  return true;
}

void Mailbox::post(Incoming& receive) {
  if (receive.source != any_source && std::exchange(peer(receive.source).has_begun, false)) {
    peer(receive.source).target = &receive;
    return;
  }
  const int first = receive.source == any_source ? 0 : receive.source;
  const int last = receive.source == any_source ? ranks_ - 1 : receive.source;
  for (int source = first; source <= last; ++source) {
    if (take_from_aside(source, peer(source), receive)) return;
  }
  receives_.push_back(&receive);
}

bool Mailbox::advance() {
  bool moved = false;
  for (auto& [rank, peer] : peers_) {
    if (rank == rank_ || misfit_) continue;
    moved = send(peer) || moved;
    moved = receive(rank, peer) || moved;
  }
  return moved;
}

bool Mailbox::send(Peer& peer) {
  bool moved = take_back(peer);
  while (!peer.sends.empty()) {
    Outgoing& message = *peer.sends.front();
    if (peer.sent_bytes == 0) peer.leaving = header_of(message);
    const auto body = body_of(message);
    if (write_rest(*peer.channel, peer.leaving, body, peer.sent_bytes)) moved = true;
    if (peer.sent_bytes < sizeof(MessageHeader) + body.size()) return moved;
    peer.sends.pop_front();
    peer.sent_bytes = 0;
    if (message.place) {
      peer.lent.push_back(&message);
    } else {
      message.is_over = true;
    }
  }
  return moved;
}

/// Messages are taken in the order in which they were lent.
bool Mailbox::take_back(Peer& peer) {
  bool moved = false;
  while (!peer.lent.empty() && peer.taken_back < peer.channel->taken()) {
    moved = true;
    ++peer.taken_back;
    Outgoing& message = *peer.lent.front();
    if (--message.pieces_left > 0) continue;
    message.is_over = true;
    peer.lent.pop_front();
  }
  return moved;
}

bool Mailbox::receive(int source, Peer& peer) {
  bool moved = false;
  while (true) {
    const std::size_t before = peer.received_bytes;
    const bool has_header = read_header(source, peer);
    moved = moved || peer.received_bytes != before;
    if (!has_header || !begin_payload(source, peer)) return moved;
    const std::span<std::byte> payload =
        peer.goes_aside ? std::span(peer.aside.back().bytes) : peer.target->bytes;
    const auto rest = payload.subspan(peer.received_bytes - head_bytes(peer.arriving));
    const std::size_t count =
        is_lent(peer.arriving) ? copy_lent(source, peer, rest) : read_payload(peer, rest);
    peer.received_bytes += count;
    moved = moved || count > 0;
    if (count < rest.size()) return moved;
    moved = true;
    peer.received_bytes = 0;
    ++peer.arrived;
    if (peer.goes_aside) {
      peer.goes_aside = false;
      Aside& aside = peer.aside.back();
      aside.is_complete = true;
      if (Incoming* receive = aside.claimed_by) {
        if (!aside.bytes.empty()) std::memcpy(receive->bytes.data(), aside.bytes.data(), aside.bytes.size());
        deliver(source, aside.header, *receive);
        aside_bytes_ -= bytes_aside(aside.header);
        peer.aside.pop_back();
      }
    } else {
      deliver(source, peer.arriving, *std::exchange(peer.target, nullptr));
    }
  }
}

/// True when the header of a message is there whose payload may be read.
bool Mailbox::read_header(int source, Peer& peer) {
  const auto header = std::as_writable_bytes(std::span(&peer.arriving, 1));
  while (peer.received_bytes < header.size()) {
    // A message that nobody wants stays in the channel, which holds up its sender.
    if (peer.received_bytes == 0 && !is_wanted(source)) return false;
    const std::size_t count = peer.channel->try_read(header.subspan(peer.received_bytes));
    if (count == 0) return false;
    peer.received_bytes += count;
  }
  require_data(peer.arriving);
  const auto place = std::as_writable_bytes(std::span(&peer.place, 1));
  while (peer.received_bytes < head_bytes(peer.arriving)) {
    const std::size_t count = peer.channel->try_read(place.subspan(peer.received_bytes - header.size()));
    if (count == 0) return false;
    peer.received_bytes += count;
  }
  return true;
}

void Mailbox::require_data(const MessageHeader& header) const {
  const bool may_be_lent =
      is_lent(header) && header.magic == MessageHeader::expected_magic && lending_.memory_of;
  if (!may_be_lent && (!is_message(header) || header.kind != MessageHeader::Kind::data)) throw_no_message();
}

/// Reads as much of the rest of a payload as is there; returns how much that was.
std::size_t Mailbox::read_payload(const Peer& peer, std::span<std::byte> rest) {
  std::size_t done = 0;
  while (done < rest.size()) {
    const std::size_t count = peer.channel->try_read(rest.subspan(done));
    if (count == 0) break;
    done += count;
  }
  return done;
}

std::size_t Mailbox::copy_lent(int source, const Peer& peer, std::span<std::byte> rest) const {
  const auto whole = lending_.memory_of(source, peer.place, peer.arriving.bytes);
  if (!whole) {
    throw Error(ErrorCode::corrupt_data,
                "rank " + std::to_string(source) + " of the group says that a message of " +
                    std::to_string(peer.arriving.bytes) + " bytes lies at " + std::to_string(peer.place) +
                    " of its arena, where it cannot: shared memory was overwritten");
  }
  const std::size_t count = std::min(rest.size(), lent_piece_bytes);
  if (count == 0) return 0;
  std::memcpy(rest.data(), whole->last(rest.size()).data(), count);
  if (count == rest.size()) lending_.require_sound();
  peer.channel->note_taken();
  return count;
}

/// Finds out where the payload goes; returns false as long as nobody wants it.
bool Mailbox::begin_payload(int source, Peer& peer) {
  if (peer.target != nullptr || peer.goes_aside) return true;
  if (Incoming* receive = take_receive_for(source, peer.arriving)) {
    if (!fits(source, peer.arriving, *receive)) return false;
    peer.target = receive;
    return true;
  }
  if (!is_wanted(source)) return false;
  put_aside(source, peer, peer.arriving);
  peer.goes_aside = true;
  return true;
}

bool Mailbox::is_wanted(int source) const {
  return std::any_of(receives_.begin(), receives_.end(), [&](const Incoming* receive) {
    return receive->source == any_source || receive->source == source;
  });
}

Incoming* Mailbox::take_receive_for(int source, const MessageHeader& header) {
  const auto found = std::find_if(receives_.begin(), receives_.end(),
                                  [&](const Incoming* receive) { return matches(*receive, source, header); });
  if (found == receives_.end()) return nullptr;
  Incoming* receive = *found;
  receives_.erase(found);
  return receive;
}

bool Mailbox::take_from_aside(int source, Peer& peer, Incoming& receive) {
  for (auto aside = peer.aside.begin(); aside != peer.aside.end(); ++aside) {
    if (aside->claimed_by != nullptr || !matches(receive, source, aside->header)) continue;
    if (!fits(source, aside->header, receive)) return true;
    if (!aside->is_complete) {
      aside->claimed_by = &receive;
      return true;
    }
    if (!aside->bytes.empty()) std::memcpy(receive.bytes.data(), aside->bytes.data(), aside->bytes.size());
    deliver(source, aside->header, receive);
    aside_bytes_ -= bytes_aside(aside->header);
    peer.aside.erase(aside);
    return true;
  }
  return false;
}

bool Mailbox::fits(int source, const MessageHeader& header, const Incoming& receive) {
  if (header.bytes == receive.bytes.size()) return true;
  misfit_ = Misfit{source, header, &receive};
  return false;
}

/// Makes room for the message; returns the memory for its payload.
std::span<std::byte> Mailbox::put_aside(int source, Peer& peer, const MessageHeader& header) {
  const auto what = [&] {
    return "rank " + std::to_string(source) + " of the group sent a message of " +
           std::to_string(header.bytes) + " bytes with tag " + std::to_string(tag_of(header)) +
           " that no receive was posted for, and ";
  };
  const std::size_t room = most_aside_bytes_ - aside_bytes_;
  if (room < sizeof(MessageHeader) || header.bytes > room - sizeof(MessageHeader)) {
    throw_invalid_argument(
        what() + (aside_bytes_ == 0 ? "it is longer than what may wait aside" : "others wait aside already") +
        "; post its receive first, or raise LOCKSTEP_MAILBOX_BYTES (" + std::to_string(most_aside_bytes_) +
        ")");
  }
  Aside aside{.header = header, .bytes = {}};
  try {
    aside.bytes.resize(header.bytes);
  } catch (const std::exception&) {  // bad_alloc, length_error
    throw Error(ErrorCode::system, what() + "there is no memory to put it aside; post its receive first");
  }
  aside_bytes_ += bytes_aside(header);
  peer.aside.push_back(std::move(aside));
  return peer.aside.back().bytes;
}

void Mailbox::deliver(int source, const MessageHeader& header, Incoming& receive) {
  receive.from = {source, tag_of(header)};
  receive.is_over = true;
}

std::uint64_t Mailbox::arrived_from(int source) const {
  const auto found = peers_.find(source);
  return found == peers_.end() ? 0 : found->second.arrived;
}

std::vector<Mailbox::Unclaimed> Mailbox::unclaimed() const {
  std::vector<Unclaimed> list;
  for (const auto& [source, peer] : peers_) {
    for (const Aside& aside : peer.aside) {
      if (aside.claimed_by == nullptr) list.push_back({source, tag_of(aside.header), aside.header.bytes});
    }
  }
  return list;
}

void Mailbox::clear() {
  receives_.clear();
  for (auto& [rank, peer] : peers_) {
    peer.sends.clear();
    peer.lent.clear();
    peer.target = nullptr;
    peer.has_begun = false;
    peer.goes_aside = false;
    peer.received_bytes = 0;
    peer.aside.clear();
  }
  aside_bytes_ = 0;
  // What is half read or half sent makes the channels useless; nobody will use them.
  misfit_ = std::nullopt;
}

}  // namespace lockstep

// The mailbox of rank 0 among three: it receives from anybody and by tag while the others, and it itself,
// send what they like. Messages of an odd size take the quick way if they can; long ones that arrive are
// lent, from memory that all ranks share, or from where none is.
#include "lockstep/execute/mailbox.h"

#include <array>
#include <cstring>
#include <deque>
#include <optional>

#include "lockstep/base/error.h"
#include "tests/fuzz/channel.h"

namespace lockstep::fuzz::mailbox {
namespace {

constexpr int me = 0;
constexpr int ranks = 3;
constexpr int tags = 3;
constexpr std::size_t most_aside_bytes = 2048;
constexpr std::size_t shared_bytes = 500;
constexpr std::size_t lent_from = 200;

struct Send {
  Outgoing message;
  std::vector<std::byte> bytes;
};

struct Receive {
  Incoming message;
  std::vector<std::byte> bytes;
};

MessageHeader header_of(int source, int tag, std::uint64_t bytes) {
  MessageHeader header{.bytes = bytes};
  header.signature = {.elements = bytes,
                      .root = source,
                      .detail = static_cast<std::uint32_t>(tag),
                      .operation = Operation::send};
  return header;
}

Input shared_memory() {
  static const auto bytes = payload(shared_bytes, 0);
  return bytes;
}

std::optional<Input> lent(std::uint64_t place, std::uint64_t bytes) {
  if (place > shared_bytes || bytes > shared_bytes - place) return std::nullopt;
  return shared_memory().subspan(place, bytes);
}

bool is_lent(const MessageHeader& header) { return header.kind == MessageHeader::Kind::lent; }

/// What of a message came through the channel, behind its header.
std::uint64_t body_bytes(const MessageHeader& header) {
  return is_lent(header) ? sizeof(std::uint64_t) : header.bytes;
}

bool matches(const Incoming& receive, int source, int tag) {
  return (receive.source == any_source || receive.source == source) &&
         (receive.tag == any_tag || receive.tag == tag);
}

class Trial {
 public:
  void run(Script& script) {
    try {
      while (!script.is_over() && !mailbox_.misfit()) {
        step(script);
        require_bound();
      }
      (void)mailbox_.advance();
      require_bound();
      if (!mailbox_.misfit()) require_no_wait_in_vain();
    } catch (const Error& error) {
      require(error.code() == ErrorCode::corrupt_data || error.code() == ErrorCode::invalid_argument,
              "what is no message, or too much, is found");
    }
    for (int source = 0; source < ranks; ++source) {
      for (int tag = -1; tag < tags; ++tag) compare_receives(source, tag);
      if (source != me) compare_sends(source);
    }
    mailbox_.clear();
    require(mailbox_.unclaimed().empty(), "a cleared mailbox holds nothing");
  }

 private:
  void step(Script& script) {
    const int kind = script.below(8);
    const int peer = script.below(ranks);
    ScriptedChannel& channel = channels_[static_cast<std::size_t>(peer)];
    if (kind == 3) return channel.arrive(script.bytes(script.byte()));
    if (kind == 5) return channel.set_piece(script.byte());
    if (kind == 6) return channel.make_room(script.byte());
    if (kind == 7) return (void)mailbox_.advance();
    const int tag = script.below(tags + 1) - 1;
    if (kind == 0) return receive(script, tag);
    if (kind == 4) return channel.arrive(bytes_of(header_of(peer, tag, script.number(2))));
    const std::size_t bytes = script.byte();
    if (kind == 1) return send(peer, std::max(tag, 0), bytes);
    arrive(channel, header_of(peer, tag, bytes));
  }

  void receive(Script& script, int tag) {
    Receive& made = receives_.emplace_back();
    const int source = script.below(ranks + 1) - 1;
    made.bytes.resize(script.byte());
    made.message = {.source = source, .tag = tag, .bytes = made.bytes};
    std::uint64_t ignored = 0;
    if (made.bytes.size() % 2 == 1 && mailbox_.receive_now(made.message, 2, ignored)) return;
    mailbox_.post(made.message);
  }
  void send(int peer, int tag, std::size_t bytes) {
    Send& made = sends_.emplace_back();
    made.bytes = payload(bytes, next_serial_++);
    made.message = {.peer = peer, .signature = header_of(me, tag, bytes).signature, .bytes = made.bytes};
    made.message.is_over = bytes % 2 == 1 && mailbox_.send_now(made.message);
    if (!made.message.is_over) mailbox_.post(made.message);
  }
  void arrive(ScriptedChannel& channel, MessageHeader header) {
    const int serial = next_serial_++;
    if (header.bytes >= lent_from) header.kind = MessageHeader::Kind::lent;
    channel.arrive(bytes_of(header));
    if (!is_lent(header)) return channel.arrive(payload(header.bytes, serial));
    const std::uint64_t place = static_cast<std::uint64_t>(serial) * 83 % shared_bytes;
    channel.arrive(std::as_bytes(std::span(&place, 1)));
  }

  void require_bound() const {
    std::size_t bytes = 0;
    for (const auto& message : mailbox_.unclaimed()) bytes += sizeof(MessageHeader) + message.bytes;
    require(bytes <= most_aside_bytes, "what is put aside is bounded, be it many small messages");
  }

  void require_no_wait_in_vain() const {
    for (const auto& aside : mailbox_.unclaimed()) {
      for (const Receive& receive : receives_) {
        require(!waits_for(receive, aside.source, aside.tag), "no receive waits for what lies aside");
      }
    }
    for (std::size_t later = 0; later < receives_.size(); ++later) {
      const Incoming& over = receives_[later].message;
      for (std::size_t earlier = 0; over.is_over && earlier < later; ++earlier) {
        require(!waits_for(receives_[earlier], over.from.source, over.from.tag), "no receive is overtaken");
      }
    }
  }
  /// Surely: one from anybody may be about to get what has half arrived.
  bool waits_for(const Receive& receive, int source, int tag) const {
    if (receive.message.is_over || !matches(receive.message, source, tag)) return false;
    return receive.message.source != any_source || std::ranges::none_of(channels_, has_half_a_message);
  }
  static bool has_half_a_message(const ScriptedChannel& channel) {
    Messages messages(channel.read());
    while (const auto header = messages.header()) {
      if (!messages.payload(body_bytes(*header))) return true;
    }
    return false;
  }

  /// The messages with this tag that came from a rank, in the order in which it sent them.
  std::vector<Input> sent_by(int source, int tag) const {
    std::vector<Input> sent;
    if (source == me) {
      for (const Send& send : sends_) {
        if (send.message.peer == me && static_cast<int>(send.message.signature.detail) == tag)
          sent.push_back(send.bytes);
      }
      return sent;
    }
    Messages messages(channels_[static_cast<std::size_t>(source)].read());
    while (const auto header = messages.header()) {
      auto arrived = messages.payload(body_bytes(*header));
      if (header->magic != MessageHeader::expected_magic ||
          (header->kind != MessageHeader::Kind::data && !is_lent(*header)))
        break;
      if (!arrived) break;
      if (is_lent(*header)) {
        std::uint64_t place = 0;
        std::memcpy(&place, arrived->data(), sizeof(place));
        arrived = lent(place, header->bytes);
        if (!arrived) break;
      }
      if (static_cast<int>(header->signature.detail) == tag) sent.push_back(*arrived);
    }
    return sent;
  }

  void compare_receives(int source, int tag) const {
    const auto sent = sent_by(source, tag);
    std::size_t next = 0;
    for (const Receive& receive : receives_) {
      if (!receive.message.is_over || receive.message.from.source != source ||
          receive.message.from.tag != tag)
        continue;
      require(matches(receive.message, source, tag), "a receive gets a message that it asked for");
      require(next < sent.size(), "no message is received twice");
      require(same(sent[next++], receive.bytes), "messages of one source and tag come in order");
    }
  }

  void compare_sends(int peer) const {
    const Input written = channels_[static_cast<std::size_t>(peer)].written();
    std::vector<std::byte> all;
    for (const Send& send : sends_) {
      if (send.message.peer != peer) continue;
      MessageHeader header{.bytes = send.bytes.size(), .signature = send.message.signature};
      const Input begin = bytes_of(header);
      all.insert(all.end(), begin.begin(), begin.end());
      all.insert(all.end(), send.bytes.begin(), send.bytes.end());
      require(send.message.is_over == (all.size() <= written.size()),
              "a send is over when all of it has gone out");
    }
    require(is_beginning(written, all), "messages go out whole and in order");
  }

  std::array<ScriptedChannel, ranks> channels_;
  Mailbox mailbox_{
      me,
      ranks,
      [this](int peer) -> Channel& { return channels_[static_cast<std::size_t>(peer)]; },
      most_aside_bytes,
      {.memory_of = [](int, std::uint64_t place, std::uint64_t bytes) { return lent(place, bytes); }}};
  std::deque<Send> sends_;
  std::deque<Receive> receives_;
  int next_serial_ = 0;
};

}  // namespace

int run_one(Input input) { return play<Trial>(input); }

}  // namespace lockstep::fuzz::mailbox

// A link that sends and receives while the other side sends what it likes. What it makes of that is held
// against a second, simple reading of the same bytes.
#include "lockstep/execute/link.h"

#include <deque>

#include "lockstep/base/error.h"
#include "tests/fuzz/channel.h"

namespace lockstep::fuzz::link {
namespace {

struct Posted {
  MessageHeader header;
  std::vector<std::byte> bytes;
};

MessageHeader header_in(Script& script) {
  static constexpr Operation operations[] = {Operation::all_reduce, Operation::broadcast, Operation::barrier};
  MessageHeader header{.sequence = script.byte(), .bytes = script.byte()};
  header.signature.operation = operations[script.below(3)];
  return header;
}

class Trial {
 public:
  void run(Script& script) {
    try {
      while (!script.is_over() && !link_.unexpected()) step(script);
      (void)link_.advance();
    } catch (const Error& error) {
      require(error.code() == ErrorCode::corrupt_data, "what is no message is corrupt data");
      is_corrupt_ = true;
    }
    compare_receives();
    compare_sends();
  }

 private:
  void step(Script& script) {
    switch (script.below(9)) {
      case 0: return post_receive(header_in(script));
      case 1: return post_send(header_in(script));
      case 2: return arrive(header_in(script));
      case 3: return expect_and_arrive(header_in(script));
      case 4: return channel_.arrive(script.bytes(script.byte()));
      case 5: return channel_.set_piece(script.byte());
      case 6: return channel_.make_room(script.byte());
      case 7: return call(header_in(script));
      case 8: return move();
      default: return;
    }
  }

  void post_receive(const MessageHeader& header) {
    receives_.push_back({header, std::vector<std::byte>(header.bytes)});
    require(link_.post_receive(header.sequence, header.signature, receives_.back().bytes) == receives_.size(),
            "receives are counted");
  }
  void post_send(const MessageHeader& header) {
    sends_.push_back({header, payload(header.bytes, next_serial_++)});
    require(link_.post_send(header.sequence, header.signature, sends_.back().bytes) == sends_.size(),
            "sends are counted");
  }
  void arrive(const MessageHeader& header) {
    channel_.arrive(bytes_of(header));
    channel_.arrive(payload(header.bytes, next_serial_++));
  }
  void expect_and_arrive(const MessageHeader& header) {
    post_receive(header);
    arrive(header);
  }
  void call(MessageHeader header) {
    header.kind = MessageHeader::Kind::call;
    header.bytes = 0;
    channel_.arrive(bytes_of(header));
    link_.post_call(header.sequence, header.signature);
    sends_.push_back({header, {}});
  }
  void move() {
    (void)link_.listen();
    (void)link_.advance();
  }

  // Reads what the link has read, and finds out what it should have made of it.
  void compare_receives() {
    Messages messages(channel_.read());
    bool corrupt = false;
    bool unexpected = false;
    std::size_t received = 0;
    while (const auto header = messages.header()) {
      const bool is_call = header->kind == MessageHeader::Kind::call;
      corrupt = header->magic != MessageHeader::expected_magic ||
                (!is_call && header->kind != MessageHeader::Kind::data);
      if (corrupt) break;
      if (is_call) continue;
      if (received == receives_.size()) break;  // read by listen() before anybody expects it
      const Posted& expected = receives_[received];
      unexpected = header->sequence != expected.header.sequence || header->bytes != expected.bytes.size() ||
                   !header->signature.matches(expected.header.signature);
      if (unexpected) break;
      const auto arrived = messages.payload(header->bytes);
      if (!arrived) break;
      require(same(*arrived, expected.bytes), "a receive gets the bytes of its message");
      ++received;
    }
    require(is_corrupt_ == corrupt, "what is no message is found, and nothing else");
    require(link_.received() == received, "a message is over when all of it has come");
    require(link_.unexpected().has_value() == unexpected, "another message than expected stops the link");
  }

  void compare_sends() {
    std::vector<std::byte> all;
    std::size_t sent = 0;
    for (const Posted& send : sends_) {
      const Input header = bytes_of(send.header);
      all.insert(all.end(), header.begin(), header.end());
      all.insert(all.end(), send.bytes.begin(), send.bytes.end());
      if (all.size() <= channel_.written().size()) ++sent;
    }
    require(is_beginning(channel_.written(), all), "messages go out whole and in order");
    require(link_.sent() == sent, "a send is over when all of it has gone out");
  }

  ScriptedChannel channel_;
  Link link_{channel_};
  std::deque<Posted> receives_;
  std::deque<Posted> sends_;
  int next_serial_ = 0;
  bool is_corrupt_ = false;
};

}  // namespace

int run_one(Input input) { return play<Trial>(input); }

}  // namespace lockstep::fuzz::link

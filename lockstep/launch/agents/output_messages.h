// Output of an agent's ranks as messages, with the launcher's window: what there is no room for stays in the ranks' pipes.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "lockstep/base/error.h"
#include "lockstep/launch/agents/message_pipe.h"
#include "lockstep/launch/agents/wire.h"
#include "lockstep/launch/output/rank_pipes.h"

namespace lockstep::launch::agents {

/// What the ranks print, on its way to the launcher, as far as that has room for it.
class OutputMessages final : public OutputTaker {
 public:
  explicit OutputMessages(MessagePipe& pipe) : pipe_(pipe) {}

  bool has_room(PrintStream stream) const override { return of(stream).room > 0; }
  bool reader_gone(PrintStream stream) const override { return of(stream).reader_gone; }
  void take(int rank, PrintStream stream, std::string_view bytes) override {
    Stream& one = of(stream);
    one.room -= static_cast<std::int64_t>(bytes.size());
    pipe_.send(
        Output{.rank = rank, .stream = static_cast<std::uint8_t>(stream), .bytes = std::string(bytes)});
  }
  void end(int rank, PrintStream stream) override {
    pipe_.send(OutputEnd{.rank = rank, .stream = static_cast<std::uint8_t>(stream)});
  }
  void add_room(const Room& room) { of(room.stream).room += room.bytes; }
  void note_gone(const ReaderGone& gone) { of(gone.stream).reader_gone = true; }

 private:
  struct Stream {
    std::int64_t room = first_room;  // below 0 after the ranks' end
    bool reader_gone = false;
  };
  const Stream& of(PrintStream stream) const { return streams_[static_cast<std::size_t>(stream)]; }
  Stream& of(PrintStream stream) { return streams_[static_cast<std::size_t>(stream)]; }
  Stream& of(std::uint8_t stream) {
    if (stream >= print_streams)
      throw Error(ErrorCode::corrupt_data, "there is no stream " + std::to_string(stream));
    return streams_[stream];
  }

  MessagePipe& pipe_;
  std::array<Stream, print_streams> streams_;
};

}  // namespace lockstep::launch::agents

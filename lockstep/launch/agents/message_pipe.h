// Messages over two descriptors, one for each direction, that never make their owner wait: what cannot be written yet is
// kept, and what comes is taken when all of it is there.
#pragma once

#include <functional>
#include <string>

#include "lockstep/base/unique_fd.h"
#include "lockstep/launch/agents/wire.h"
#include "lockstep/launch/poll_set.h"

namespace lockstep::launch::agents {

/// Takes bytes apart into messages.
class MessageParser {
 public:
  using Take = std::function<void(Message)>;

  /// Throws Error{corrupt_data} for a message of more than most_message_bytes, or of none.
  void add(std::string_view bytes, const Take& take);
  /// Nothing of a message has been left over.
  bool is_between_messages() const { return part_.empty(); }

 private:
  std::string part_;
};

/// The same open file or socket under another number.
UniqueFd copy_of(int fd);

class MessagePipe {
 public:
  MessagePipe(UniqueFd in, UniqueFd out);

  /// Goes out as soon as there is room.
  void send(const Message& message);
  template <class T>
  void send(const T& content) {
    send(to_message(content));
  }
  /// Before the first message: who we are, a version.
  void greet(std::string_view version);

  /// Says what to wait for. `take` gets each message. Bytes that are none, and a message that `take` finds to be none
  /// (Error{corrupt_data}), are the end, with problem() as the reason; wait() throws what else `take` does.
  void watch(PollSet& poll, const MessageParser::Take& take);
  /// The other side begins with a greeting. What comes before it is dropped, up to 64 KiB.
  void await_greeting() { awaits_greeting_ = true; }
  /// The version that it said; "": it has not come yet.
  const std::string& version() const { return version_; }

  /// The other side has ended, or nobody reads any more what we write.
  bool is_over() const { return !in_ || !out_; }
  const std::string& problem() const { return problem_; }
  std::size_t queued_bytes() const { return queue_.size() - written_; }
  /// The other side then finds it over.
  void close();

 private:
  void read_some(const MessageParser::Take& take);
  void write_some();
  std::string_view after_greeting(std::string_view bytes);

  UniqueFd in_, out_;
  MessageParser parser_;
  bool awaits_greeting_ = false;
  std::string before_greeting_;
  std::string version_;
  std::string problem_;
  std::string queue_;
  std::size_t written_ = 0;  // of queue_
};

}  // namespace lockstep::launch::agents

// What clients (workers and the coordinator) and hosts (servers, and the coordinator for its workers) say to each other, over a group
// of the two. A client asks and is answered, each by a header and what it announces.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/group/group.h"
#include "lockstep/train/parameter_server/placement.h"

namespace lockstep::ps {

enum class Kind : std::uint32_t {
  // a client to a host
  hello = 1,  ///< number: what it has, as a digest; then a word for each stretch, where its values lie
  pull,       ///< the variables that are no tables
  pull_rows,  ///< count: indices, of the table `number`
  push,  ///< count: tables with rows; number: which push of the task; then a word for each piece, where its gradient lies
  rest,
  work,
  leave,
  end,   ///< of the job: the coordinator's
  save,  ///< number: of the save, alike for all hosts; text: the file's name, beside which it is written
  keep,  ///< text: as before; what was saved takes its place
  drop,  ///< text: as before; what was saved goes
  next,  ///< task: the one that is done, with its result as text; 0: none. number: 1, if there is time to wait
  failed,  ///< task: that failed, and why
  // a host to a client
  ok,
  not_yet,  ///< ask again
  refused,  ///< text: why
  task,     ///< task, number: settled below; text: name, a zero, argument
  none,     ///< no task just now
};

struct Header {
  std::uint32_t magic = 0x5053'3031;
  Kind kind = Kind::ok;
  std::uint64_t task = 0, number = 0, settled_below = 0, count = 0;
  std::uint64_t text_bytes = 0;
};

/// The other end is rank `1 - group.rank()`.
/// The most that travels as a text: tasks' arguments and results.
inline constexpr std::uint64_t most_text_bytes = std::uint64_t{64} << 20;

class Line {
 public:
  explicit Line(Group group) : group_(std::move(group)) {}

  void send(Header header, const std::string& text = "") const;
  /// Throws Error{corrupt_data} for what is no header, or announces a longer text.
  Header receive(std::string* text = nullptr) const;
  /// client: asks until the answer is another than not_yet. Throws Error{mismatch} with the text of a refusal.
  Header ask(const Header& header, std::string* text = nullptr, const std::string& sent_text = "") const;

  /// Of what was sent, if it is a refusal. Throws as ask().
  void take_answer() const;

  void send_bytes(std::span<const std::byte> bytes) const;
  void receive_bytes(std::span<std::byte> bytes) const;
  void send_tensor(const torch::Tensor& dense) const;
  void receive_tensor(const torch::Tensor& dense) const;

  const Group& group() const { return group_; }

 private:
  int other() const { return 1 - group_.rank(); }
  Group group_;
};

/// In place of a word: it follows as a message.
inline constexpr std::uint64_t by_message = 1;
/// As a word, where the other end finds `dense`; 0 where it cannot reach it: on another host.
std::uint64_t word_of(const Group& group, const torch::Tensor& dense);
/// What the other end has told so; undefined for 0. Valid while the group is there. Throws Error{corrupt_data} for what is in no arena.
torch::Tensor tensor_at(const Group& group, std::uint64_t word, torch::ScalarType type,
                        std::vector<std::int64_t> sizes);

}  // namespace lockstep::ps

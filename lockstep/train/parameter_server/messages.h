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
  hello = 1,  ///< text: what it has, as a digest
  pull,       ///< the variables that are no tables
  pull_rows,  ///< count: indices, of the table `number`
  push,       ///< count: tables with rows; number: which push of the task
  rest,
  work,
  leave,
  end,   ///< of the job: the coordinator's
  save,  ///< text: the file's name
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
class Line {
 public:
  explicit Line(Group group) : group_(std::move(group)) {}

  void send(Header header, const std::string& text = "") const;
  /// Throws Error{corrupt_data} for what is no header, or announces a text of more than 64 MiB.
  Header receive(std::string* text = nullptr) const;
  /// client: asks until the answer is another than not_yet. Throws Error{mismatch} with the text of a refusal.
  Header ask(const Header& header, std::string* text = nullptr, const std::string& sent_text = "") const;

  void send_bytes(std::span<const std::byte> bytes) const;
  void receive_bytes(std::span<std::byte> bytes) const;
  void send_tensor(const torch::Tensor& dense) const;
  void receive_tensor(const torch::Tensor& dense) const;

  const Group& group() const { return group_; }

 private:
  int other() const { return 1 - group_.rank(); }
  Group group_;
};

/// Memory of the group's arena, which the other end reads where it is.
struct ArenaTensors {
  std::vector<ArenaBuffer<std::byte>> blocks;
  std::vector<torch::Tensor> tensors;
  ArenaTensors(const Group& group, std::span<const Placement::Stretch> like);
};

}  // namespace lockstep::ps

// What stages of a pipeline hand to each other: tensors, whose shapes travel with them, so that micro-batches may differ.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <deque>
#include <map>
#include <utility>
#include <vector>

#include "lockstep/group/collectives.h"
#include "lockstep/group/group.h"
#include "lockstep/pipeline/plan.h"
#include "lockstep/train/pipeline/stage_links.h"

namespace lockstep {

/// Messages between the stages of one step. Tensors on a GPU go from there to there where the stages have a link (stage_links.h), and
/// the host waits for none of them; what says how many there are, and how large, is in main memory. Where a link has room for so many
/// alone, later ones wait here, as a whole, so that whoever has been told of one waits for nothing but the GPU. Thread safety: none.
class StageMessages {
 public:
  /// `links`: of this rank; tensors arrive on their device, but for those that a stage on another one has in main memory.
  StageMessages(const Group& group, const StageLinks& links) : group_(group), links_(links) {}

  /// What a stage makes of a micro-batch.
  struct Activation {
    std::int64_t samples = 0;  ///< of the micro-batch
    std::vector<torch::Tensor> tensors = {};
  };

  /// Begins to send; the tensors are kept until it is over. At most 16 tensors of up to 8 dimensions.
  void send_activation(const Activation& activation, int rank);
  /// Waits for it, but for what comes on a GPU: that is there for what libtorch's current stream gets from now on. Tensors that want a
  /// gradient are leaves that require one.
  Activation receive_activation(int rank);

  /// `alike`: what the gradients are of, the same at both ends. Those that are undefined arrive so.
  void send_gradient(const std::vector<torch::Tensor>& gradients, const std::vector<torch::Tensor>& alike,
                     int rank);
  std::vector<torch::Tensor> receive_gradient(const std::vector<torch::Tensor>& alike, int rank);

  /// Waits until everything that was sent has been received, and what was received is there. Throws Error where a message has failed
  /// since it was begun.
  void finish();

 private:
  struct UnderWay {
    torch::Tensor tensor;
    Work work;
  };
  /// The tensors of a micro-batch, and what is to be said of them first, in main memory.
  struct Message {
    torch::Tensor header;
    std::vector<torch::Tensor> tensors;
  };
  /// To one rank, of one kind.
  struct Line {
    explicit Line(const StageLinks::Link* link) : link(link) {}

    const StageLinks::Link* link;  // null: in main memory
    std::deque<Message> waiting;
    std::deque<UnderWay> on_gpu;
  };

  void send(Message message, int rank, pipeline::Payload payload);
  void send_in_main_memory(torch::Tensor tensor, int rank, pipeline::Payload payload);
  void begin(const Message& message, Line& line, int rank, pipeline::Payload payload);
  bool begin_waiting();
  torch::Tensor receive_header(torch::Tensor header, int rank, pipeline::Payload payload);
  void receive_into(const std::vector<torch::Tensor*>& tensors, int rank, pipeline::Payload payload);

  const Group& group_;
  const StageLinks& links_;
  std::map<std::pair<int, pipeline::Payload>, Line> lines_;
  std::deque<UnderWay> under_way_;  // sent in main memory, or received on a GPU
};

}  // namespace lockstep

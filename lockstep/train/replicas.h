// Replicas of a model stay equal only if they start equal. Ranks that built different models are told which
// and how, before anything waits for a tensor that another rank does not have; then rank 0's values are
// everybody's.
#pragma once

#include <torch/torch.h>

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "lockstep/group/group.h"

namespace lockstep {

struct NamedTensor {
  std::string name;  ///< as in named_parameters(): "fc.weight"
  torch::Tensor tensor;
  bool is_parameter = true;  ///< or else a buffer

  /// As in messages: "parameter fc.weight".
  std::string label() const { return (is_parameter ? "parameter " : "buffer ") + name; }
};

/// Parameters, then buffers, in the module's order. One registered under two names appears twice.
std::vector<NamedTensor> tensors_of(const torch::nn::Module& module);

/// Throws Error{unsupported} if it is no plain array (host_array.h), or a trainable parameter of a type that
/// has no average.
void require_averageable(const NamedTensor& item);

/// The parameters for which a gradient is wanted, or the others; each once: one that is registered under two
/// names has one gradient.
std::vector<NamedTensor> distinct_parameters(std::span<const NamedTensor> tensors, bool trainable);

/// For each of `tensors`, whether its gradients are sparse: the weights of the module's embeddings that say
/// so.
std::vector<char> sparse_gradients(const torch::nn::Module& module, std::span<const NamedTensor> tensors);

/// Something that all ranks must agree on: {"parameter fc.weight", "f32 [10, 64]"}.
struct Fact {
  std::string name;
  std::string value;
};

/// What decides whether two models are the same: name, shape, type, kind of device, and whether a gradient is
/// wanted. `wrapper`: the class that makes replicas of them, "DistributedDataParallel"; ranks may have made
/// different ones, which is then the first fact.
std::vector<Fact> facts_of(std::span<const NamedTensor> tensors, const std::string& wrapper = "");

/// Collective. Returns if every rank passes the same facts in the same order. Otherwise every rank throws the
/// same Error{mismatch}: "rank 1's parameter fc.weight is f32 [10, 32], rank 0's is f32 [10, 64]", up to
/// three differences of the lowest rank that differs from rank 0, which is peer(). `remedy` ends the message.
/// Cost: one all_gather of 24 bytes where they agree.
void require_same_facts(const Group& group, std::span<const Fact> facts, const std::string& remedy);

/// Collective. The root's values into everybody's tensors, which are alike on all ranks; they need not be
/// contiguous, nor in main memory. Cost: one broadcast for each 4 MiB, through the arena; what is on other
/// devices takes as much main memory meanwhile.
void broadcast_tensors(const Group& group, std::span<const NamedTensor> tensors, int root = 0);

/// Collective. The root's bytes into everybody's; each span is as long on all ranks. Cost: as above.
void broadcast_spans(const Group& group, std::span<const std::span<std::byte>> spans, int root = 0);

/// Collective. The root's text everywhere.
std::string broadcast_text(const Group& group, std::string text, int root = 0);

}  // namespace lockstep

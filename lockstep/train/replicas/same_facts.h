// Ranks that built different models would wait for tensors that others do not have. So they compare what
// they built before anything else, and each is told which rank differs, and how.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "lockstep/group/group.h"
#include "lockstep/train/replicas/named_tensor.h"

namespace lockstep {

/// Something that all ranks must agree on: {"parameter fc.weight", "f32 [10, 64]"}.
struct Fact {
  std::string name;
  std::string value;
};

/// What decides whether two models are the same: name, shape, type, kind of device, and whether a gradient is
/// wanted. `wrapper`: the class that makes replicas of them, "DistributedDataParallel"; ranks may have made
/// different ones, which is then the first fact.
std::vector<Fact> facts_of(std::span<const NamedTensor> tensors, const std::string& wrapper = "");

/// One number for them, another for others.
std::uint64_t digest_of(std::span<const Fact> facts);

/// Collective. Returns if every rank passes the same facts in the same order. Otherwise every rank throws the
/// same Error{mismatch}: "rank 1's parameter fc.weight is f32 [10, 32], rank 0's is f32 [10, 64]", up to
/// three differences of the lowest rank that differs from rank 0, which is peer(). `remedy` ends the message.
/// Cost: one all_gather of 24 bytes where they agree.
void require_same_facts(const Group& group, std::span<const Fact> facts, const std::string& remedy);

}  // namespace lockstep

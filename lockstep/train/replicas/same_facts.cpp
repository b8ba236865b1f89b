#include "lockstep/train/replicas/same_facts.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <sstream>

#include "lockstep/base/error.h"
#include "lockstep/base/hash.h"
#include "lockstep/group/collectives.h"
#include "lockstep/train/tensor/tensor_bytes.h"

namespace lockstep {
namespace {

std::string pack(std::span<const Fact> facts) {
  std::string text;
  for (const auto& fact : facts) text.append(fact.name).append(1, '\0').append(fact.value).append(1, '\0');
  return text;
}

std::vector<Fact> unpack(const std::string& text) {
  std::istringstream in(text);
  std::vector<Fact> facts;
  for (Fact fact; std::getline(in, fact.name, '\0') && std::getline(in, fact.value, '\0');)
    facts.push_back(fact);
  return facts;
}

/// One sentence for each difference between what `rank` says and what `first` says.
std::vector<std::string> differences(int rank, const std::vector<Fact>& found, int first,
                                     const std::vector<Fact>& expected) {
  const std::string who = "rank " + std::to_string(rank), other = "rank " + std::to_string(first);
  std::map<std::string, std::string> left;
  for (const auto& fact : found) left.emplace(fact.name, fact.value);
  std::vector<std::string> texts;
  for (const auto& fact : expected) {
    const auto same_name = left.extract(fact.name);
    if (same_name.empty()) {
      texts.push_back(who + " has no " + fact.name + ", " + other + "'s is " + fact.value);
    } else if (same_name.mapped() != fact.value) {
      texts.push_back(who + "'s " + fact.name + " is " + same_name.mapped() + ", " + other + "'s is " +
                      fact.value);
    }
  }
  for (const auto& [name, value] : left) {
    texts.push_back(who + "'s " + name + " is " + value + ", " + other + " has none");
  }
  if (!texts.empty()) return texts;
  const auto [here, there] = std::ranges::mismatch(found, expected, {}, &Fact::name, &Fact::name);
  if (here == found.end() || there == expected.end())
    return {who + " names something twice that " + other + " does not"};
  return {who + " has " + here->name + " where " + other + " has " + there->name + ", in another order"};
}

[[noreturn]] void throw_difference(int rank, std::vector<std::string> texts, const std::string& remedy) {
  constexpr std::size_t shown = 3;
  std::string message = texts.front();
  for (std::size_t i = 1; i < std::min(texts.size(), shown); ++i) message += "; " + texts[i];
  if (texts.size() > shown) message += "; and " + std::to_string(texts.size() - shown) + " more differences";
  throw Error(ErrorCode::mismatch, message + ". " + remedy, rank);
}

/// Everybody's text, cut or filled up to `bytes`.
std::vector<std::string> gather(const Group& group, std::string text, std::size_t bytes) {
  const auto ranks = static_cast<std::size_t>(group.size());
  text.resize(bytes, '\0');
  std::string all(bytes * ranks, '\0');
  all_gather(group, text, all).wait();
  std::vector<std::string> texts;
  for (std::size_t rank = 0; rank < ranks; ++rank) texts.push_back(all.substr(rank * bytes, bytes));
  return texts;
}

}  // namespace

std::vector<Fact> facts_of(std::span<const NamedTensor> tensors, const std::string& wrapper) {
  std::vector<Fact> facts;
  if (!wrapper.empty()) facts.push_back({"wrapper", wrapper});
  for (const auto& item : tensors) {
    const bool frozen = item.is_parameter && !item.tensor.requires_grad();
    facts.push_back({item.label(), describe_for_all_ranks(item.tensor) + (frozen ? " (frozen)" : "")});
  }
  return facts;
}

std::uint64_t digest_of(std::span<const Fact> facts) { return fnv1a_64(pack(facts)); }

void require_same_facts(const Group& group, std::span<const Fact> facts, const std::string& remedy) {
  if (group.size() == 1) return;
  const std::string mine = pack(facts);
  struct Digest {
    std::uint64_t what = 0x7366616374735f21, size = 0, hash = 0;
  };
  // Two different texts of one length that share it would go unnoticed; nobody chooses them to.
  const Digest digest{.size = mine.size(), .hash = fnv1a_64(mine)};
  std::vector<Digest> digests(static_cast<std::size_t>(group.size()));
  all_gather(group, std::span(&digest, 1), digests).wait();
  std::size_t longest = 0;
  bool same = true;
  for (std::size_t rank = 0; rank < digests.size(); ++rank) {
    if (digests[rank].what != digest.what) {
      const int culprit = group.world_rank(static_cast<int>(rank));
      throw Error(ErrorCode::mismatch,
                  "rank " + std::to_string(culprit) +
                      " calls something else where this rank compares models; " + remedy,
                  culprit);
    }
    longest = std::max(longest, static_cast<std::size_t>(digests[rank].size));
    same = same && digests[rank].size == digests[0].size && digests[rank].hash == digests[0].hash;
  }
  if (same) return;
  auto texts = gather(group, mine, longest);
  for (std::size_t rank = 0; rank < texts.size(); ++rank) texts[rank].resize(digests[rank].size);
  const auto expected = unpack(texts[0]);
  for (std::size_t rank = 1; rank < texts.size(); ++rank) {
    if (texts[rank] == texts[0]) continue;
    const int odd = group.world_rank(static_cast<int>(rank));
    throw_difference(odd, differences(odd, unpack(texts[rank]), group.world_rank(0), expected), remedy);
  }
}

}  // namespace lockstep

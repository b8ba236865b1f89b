#include "probe_named.h"

#include <algorithm>
#include <random>
#include <utility>
#include <vector>

#include "lockstep/engine/named_collectives.h"
#include "probe_collectives.h"
#include "tests/soak/victim.h"

namespace probe {
namespace {

using lockstep::Group;
using lockstep::NamedCollectives;

/// Of a word "name=elements".
struct Sum {
  explicit Sum(const std::string& word)
      : name(word.substr(0, word.find('='))),
        value(static_cast<float>(name.size())),
        buffer(std::stoul(word.substr(name.size() + 1)), value) {}

  std::string name;
  float value;  // of this rank
  std::vector<float> buffer;
};

void sum_all(const NamedCollectives& collectives, std::span<const std::string> words) {
  std::vector<Sum> sums(words.begin(), words.end());
  std::vector<lockstep::Work> works;
  for (Sum& sum : sums)
    works.push_back(collectives.all_reduce(sum.name, sum.buffer, lockstep::ReduceOp::sum));
  lockstep::Work::all(std::move(works)).wait();
  for (const Sum& sum : sums) {
    const float expected = sum.value * static_cast<float>(collectives.size());
    if (std::ranges::count(sum.buffer, expected) != std::ssize(sum.buffer))
      throw WrongResult("the sum named " + sum.name + " is wrong");
  }
}

}  // namespace

void named(const Group& group, std::span<const std::string> words) {
  sum_all(NamedCollectives(group), words);
}

int loop_named(const Group& group) {
  const NamedCollectives collectives(group);
  std::mt19937_64 dice(static_cast<std::uint64_t>(group.rank()));
  std::vector<std::string> words;
  for (int i = 1; i <= 20; ++i)
    words.push_back(std::string(static_cast<std::size_t>(i), 't') + "=" + std::to_string(i * i * i));
  std::vector<float> kept;
  return soak::loop_until_hurt(
      group,
      [&] {
        std::ranges::shuffle(words, dice);
        sum_all(collectives, words);
      },
      [&] { kept.assign(1'000'000, 7.0F); },
      [&] { return std::ranges::count(kept, 7.0F) == std::ssize(kept); });
}

}  // namespace probe

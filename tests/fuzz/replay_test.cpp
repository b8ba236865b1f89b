// Replays what the fuzzers have found worth keeping, and mutations of it, in a build without a fuzzer: an
// input that was once too much stays borne. script/fuzz looks for new ones.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <ostream>
#include <random>
#include <vector>

#include "tests/fuzz/targets.h"

namespace lockstep::fuzz {
namespace {

using Bytes = std::vector<std::byte>;

constexpr int mutations = 3000;
constexpr std::size_t most_files = 200;
constexpr std::size_t most_bytes = 200 << 10;

struct Target {
  const char* name;
  int (*run_one)(Input);
};
void PrintTo(const Target& target, std::ostream* out) { *out << target.name; }

constexpr Target targets[] = {
    {"link", link::run_one},
    {"mailbox", mailbox::run_one},
    {"store_requests", store_requests::run_one},
    {"store_replies", store_replies::run_one},
    {"hello", hello::run_one},
    {"notices", notices::run_one},
    {"tuning", tuning::run_one},
    {"topology", topology::run_one},
    {"settings", settings::run_one},
    {"hosts", hosts::run_one},
    {"agents", agents::run_one},
    {"idx", idx::run_one},
    {"checkpoint", checkpoint::run_one},
    {"cifar10", cifar10::run_one},
    {"tokens", tokens::run_one},
    {"pth", pth::run_one},
    {"named", named::run_one},
    {"output", output::run_one},
    {"flight_record", flight_record::run_one},
    {"timeline", timeline::run_one},
    {"mpi_events", mpi_events::run_one},
};

std::filesystem::path corpora() {
  const char* source = std::getenv("LOCKSTEP_SOURCE_DIR");
  return std::filesystem::path(source == nullptr ? "." : source) / "tests" / "fuzz" / "corpus";
}

struct File {
  std::string name;
  Bytes bytes;
};

/// In an order that is everywhere the same.
std::vector<File> files_of(const std::string& target) {
  std::vector<File> files;
  for (const auto& entry : std::filesystem::directory_iterator(corpora() / target)) {
    std::ifstream stream(entry.path(), std::ios::binary);
    const std::string text{std::istreambuf_iterator<char>(stream), {}};
    const auto bytes = std::as_bytes(std::span(text));
    files.push_back({entry.path().filename(), Bytes(bytes.begin(), bytes.end())});
  }
  std::ranges::sort(files, {}, &File::name);
  return files;
}

std::string hex(const Bytes& bytes) {
  static constexpr char digits[] = "0123456789abcdef";
  std::string text;
  for (const std::byte byte : bytes) {
    text += digits[std::to_integer<unsigned>(byte) >> 4U];
    text += digits[std::to_integer<unsigned>(byte) & 15U];
  }
  return text;
}

/// What fuzzers do: bits, bytes that matter, parts left out, doubled, or from another input.
class Mutations {
 public:
  explicit Mutations(const std::vector<File>& files) : files_(files) {}

  Bytes next() {
    Bytes bytes = any_file();
    for (std::size_t count = 1 + below(4); count > 0; --count) change(bytes);
    return bytes;
  }

 private:
  // Not std::uniform_int_distribution, whose numbers differ between libraries.
  std::size_t below(std::size_t end) { return end == 0 ? 0 : random_() % end; }
  const Bytes& any_file() { return files_[below(files_.size())].bytes; }

  void change(Bytes& bytes) {
    static constexpr std::array<unsigned, 8> values = {0, 1, 7, 0x7f, 0x80, 0xff, '"', '0'};
    const std::size_t begin = below(bytes.size() + 1);
    const std::size_t end = begin + below(std::min<std::size_t>(bytes.size() - begin, 16) + 1);
    const auto first = bytes.begin() + static_cast<std::ptrdiff_t>(begin);
    const auto last = bytes.begin() + static_cast<std::ptrdiff_t>(end);
    switch (below(5)) {
      case 0:
        if (begin < bytes.size()) *first ^= static_cast<std::byte>(1U << below(8));
        return;
      case 1:
        if (begin < bytes.size()) *first = static_cast<std::byte>(values[below(values.size())]);
        return;
      case 2: bytes.erase(first, last); return;
      case 3: {
        const Bytes part(first, last);
        bytes.insert(first, part.begin(), part.end());
        return;
      }
      default: {
        const Bytes& other = any_file();
        const std::size_t from = below(other.size() + 1);
        bytes.resize(begin);
        bytes.insert(bytes.end(), other.begin() + static_cast<std::ptrdiff_t>(from), other.end());
      }
    }
  }

  const std::vector<File>& files_;
  std::mt19937_64 random_{1};
};

class Fuzz : public testing::TestWithParam<Target> {
 protected:
  static void SetUpTestSuite() { (void)::setenv("LOCKSTEP_LOG", "off", 1); }

  const std::vector<File> files_ = files_of(GetParam().name);
};

INSTANTIATE_TEST_SUITE_P(All, Fuzz, testing::ValuesIn(targets),
                         [](const auto& target) { return target.param.name; });

TEST_P(Fuzz, BearsItsCorpus) {
  for (const File& file : files_) {
    EXPECT_NO_THROW((void)GetParam().run_one(file.bytes)) << file.name;
  }
}

TEST_P(Fuzz, BearsMutationsOfItsCorpus) {
  ASSERT_FALSE(files_.empty());
  Mutations mutation(files_);
  for (int i = 0; i < mutations && !HasFailure(); ++i) {
    const Bytes bytes = mutation.next();
    EXPECT_NO_THROW((void)GetParam().run_one(bytes))
        << "make a file of it in tests/fuzz/corpus/" << GetParam().name << ": xxd -r -p <<<" << hex(bytes);
  }
}

TEST_P(Fuzz, BearsNothingAtAll) { EXPECT_EQ(GetParam().run_one({}), 0); }

TEST_P(Fuzz, HasASmallCorpus) {
  std::size_t bytes = 0;
  for (const File& file : files_) bytes += file.bytes.size();
  EXPECT_LT(files_.size(), most_files);
  EXPECT_LT(bytes, most_bytes);
}

TEST(Fuzzing, HasACorpusForEachTargetAndNoOther) {
  std::vector<std::string> folders;
  for (const auto& entry : std::filesystem::directory_iterator(corpora()))
    folders.push_back(entry.path().filename());
  std::vector<std::string> names;
  for (const Target& target : targets) names.emplace_back(target.name);
  EXPECT_THAT(folders, testing::UnorderedElementsAreArray(names));
}

}  // namespace
}  // namespace lockstep::fuzz

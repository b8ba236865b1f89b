#include "lockstep/train/tensor/device_ranks_test.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <array>
#include <chrono>
#include <exception>
#include <memory>
#include <new>
#include <optional>
#include <string>

#include "lockstep/base/error.h"
#include "lockstep/group/init.h"
#include "lockstep/launch/spawn.h"
#include "lockstep/train/tensor/fake_device_test.h"

namespace lockstep::test {
namespace {

/// How a rank ended, in memory that its parent sees.
struct SharedEnding {
  bool ok;
  ErrorCode code;
  bool has_peer;
  int peer;
  std::array<char, 8192> text;

  void tell(bool succeeded, ErrorCode error, std::optional<int> of, const std::string& what) {
    ok = succeeded;
    code = error;
    has_peer = of.has_value();
    peer = of.value_or(0);
    text[what.copy(text.data(), text.size() - 1)] = '\0';
  }
  Ending ending() const { return {ok, code, has_peer ? std::optional(peer) : std::nullopt, text.data()}; }
};

void run_rank(const std::function<void(Group)>& rank_main, SharedEnding& ending) {
  GroupOptions group_options;
  group_options.timeout = std::chrono::seconds(60);
  InitOptions options;
  options.group = group_options;
  try {
    rank_main(init(options));
    const bool failed = testing::Test::HasFailure();
    ending.tell(!failed, ErrorCode::system, std::nullopt, failed ? "an expectation, see above" : "");
  } catch (const Error& error) {
    ending.tell(false, error.code(), error.peer(), error.what());
  } catch (const std::exception& error) {
    ending.tell(false, ErrorCode::system, std::nullopt, error.what());
  }
}

std::vector<Ending> run_processes(int ranks, const std::function<void(Group)>& rank_main) {
  const auto bytes = sizeof(SharedEnding) * static_cast<std::size_t>(ranks);
  void* const memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  auto* const shared = static_cast<SharedEnding*>(memory);
  try {
    spawn({.ranks = ranks, .pin = false, .prefix = true, .record_dir = "none"},
          [&](int rank) { run_rank(rank_main, shared[rank]); });
  } catch (const Error& error) {  // who ends early by intention is a failure to it
    if (error.code() != ErrorCode::peer_lost) throw;
  }
  std::vector<Ending> endings;
  for (int rank = 0; rank < ranks; ++rank) endings.push_back(shared[rank].ending());
  ::munmap(memory, bytes);
  return endings;
}

}  // namespace

std::vector<Ending> run_device_ranks(int ranks, const std::function<void(Group)>& rank_main) {
  return other_device(0) == other_device(1) ? run_processes(ranks, rank_main) : run_ranks(ranks, rank_main);
}

void on_device_ranks(int ranks, const std::function<void(Group)>& rank_main) {
  expect_all_ok(run_device_ranks(ranks, rank_main));
}

torch::Device device_of(const Group& group) { return other_device(group.rank()); }

Tensors on_cpu(const Tensors& tensors) {
  Tensors copies;
  for (const auto& tensor : tensors) copies.push_back(tensor.detach().to(torch::kCPU).clone());
  return copies;
}

void expect_close(const Tensors& found, const Tensors& expected) {
  ASSERT_EQ(found.size(), expected.size());
  for (std::size_t i = 0; i < found.size(); ++i) {
    EXPECT_TRUE(torch::allclose(found[i], expected[i], 1e-5, 1e-6)) << "number " << i << ":\n"
                                                                    << found[i] << "\nexpected:\n"
                                                                    << expected[i];
  }
}

}  // namespace lockstep::test

// Ranks as threads, for tests of this floor.
#pragma once

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <chrono>
#include <cstring>
#include <exception>
#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/group/in_process.h"

namespace lockstep::test {

/// How a rank ended.
struct Ending {
  bool ok = true;
  ErrorCode code = ErrorCode::system;
  std::optional<int> peer;
  std::string text;
};

/// Runs `rank_main` on every rank of a world of threads.
inline std::vector<Ending> run_ranks(int ranks, const std::function<void(Group)>& rank_main) {
  GroupOptions options;
  options.timeout = std::chrono::seconds(30);
  auto groups = in_process_world(ranks, options);
  std::vector<Ending> endings(static_cast<std::size_t>(ranks));
  std::vector<std::thread> threads;
  for (std::size_t rank = 0; rank < endings.size(); ++rank) {
    threads.emplace_back([&, rank, group = std::move(groups[rank])]() mutable {
      torch::set_num_threads(1);
      try {
        rank_main(std::move(group));
      } catch (const Error& error) {
        endings[rank] = {false, error.code(), error.peer(), error.what()};
      } catch (const std::exception& error) {
        endings[rank] = {false, ErrorCode::system, std::nullopt, error.what()};
      }
    });
  }
  for (auto& thread : threads) thread.join();
  return endings;
}

inline void expect_all_ok(const std::vector<Ending>& endings) {
  for (std::size_t rank = 0; rank < endings.size(); ++rank) {
    EXPECT_TRUE(endings[rank].ok) << "rank " << rank << ": " << endings[rank].text;
  }
}

/// The same, where no rank may fail.
inline void on_ranks(int ranks, const std::function<void(Group)>& rank_main) {
  expect_all_ok(run_ranks(ranks, rank_main));
}

/// Bit for bit.
inline bool same_bits(const torch::Tensor& a, const torch::Tensor& b) {
  return a.sizes() == b.sizes() && a.scalar_type() == b.scalar_type() &&
         (a.numel() == 0 ||
          std::memcmp(a.contiguous().const_data_ptr(), b.contiguous().const_data_ptr(), a.nbytes()) == 0);
}

}  // namespace lockstep::test

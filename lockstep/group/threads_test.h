// What tests of groups share: ranks that are threads, and what their calls throw.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <thread>
#include <vector>

#include "lockstep/base/failure_test.h"
#include "lockstep/group/in_process.h"

namespace lockstep::test {

/// Runs `body` on `ranks` threads, one a rank; a failed expectation inside counts.
inline void on_ranks(int ranks, const std::function<void(Group&)>& body, const GroupOptions& options = {}) {
  auto world = in_process_world(ranks, options, std::size_t{32} << 20);
  std::vector<std::thread> threads;
  for (auto& group : world) {
    threads.emplace_back([&body, mine = std::move(group)]() mutable { body(mine); });
  }
  world.clear();
  for (auto& thread : threads) thread.join();
}

}  // namespace lockstep::test

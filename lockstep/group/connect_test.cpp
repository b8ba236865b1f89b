// A group whose ranks do not all get through the meeting: who is through already is told why the others are
// not.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <unistd.h>

#include <atomic>
#include <thread>

#include "lockstep/base/failure_test.h"
#include "lockstep/group/collectives.h"
#include "lockstep/group/impl.h"
#include "lockstep/rendezvous/memory_store.h"
#include "lockstep/rendezvous/prefix_store.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;

/// A store that answers nothing any more, once all that it was asked to wait for is there.
class FallsSilent final : public PrefixStore {
 public:
  using PrefixStore::PrefixStore;
  void wait(std::span<const std::string> keys, Deadline deadline) override {
    PrefixStore::wait(keys, deadline);
    silent_ = true;
    require_answer();
  }
  std::optional<std::string> try_get(const std::string& key) override {
    require_answer();
    return PrefixStore::try_get(key);
  }

 private:
  void require_answer() const {
    if (silent_) throw Error(ErrorCode::timeout, "no answer");
  }
  std::atomic<bool> silent_ = false;
};

/// Ranks 0 and 1 of a world of three, each on a host of its own; rank 2 serves the store.
std::shared_ptr<Group::Impl> unconnected(int rank, std::shared_ptr<Store> store, const Trust& trust) {
  auto context = Context::of_process(
      {.store = std::move(store),
       .trust = trust,
       .socket_prefix = "connect-test-" + std::to_string(::getpid()) + "-" + std::to_string(rank),
       .store_host = 2,
       .options = {.timeout = std::chrono::seconds(20)},
       .arena_bytes = std::size_t{1} << 20,
       .arrival_timeout = std::chrono::seconds(20)});
  context->places = {{.host = 0}, {.host = 1}, {.host = 2}};
  context->places[rank].page = 0;
  context->listen_addresses = {"127.0.0.1"};
  context->join_page(std::make_shared<ControlPage>(ControlPage::in_process(1)), 0,
                     WaitPolicy::for_ranks_per_core(2));
  auto impl = std::make_shared<Group::Impl>();
  impl->name = "world/0,1";
  impl->members = Members(rank, {0, 1}, context->places);
  impl->tuning = Tuning::standard();
  impl->context = std::move(context);
  return impl;
}

TEST(Connect, ARankOfAnotherHostThatIsThroughIsToldWhyOneIsNot) {
  const Trust trust{.secret = Secret::random()};
  const auto keys = std::make_shared<MemoryStore>();
  const auto through = unconnected(0, std::make_shared<PrefixStore>(keys, "job"), trust);
  const auto held_up = unconnected(1, std::make_shared<FallsSilent>(keys, "job"), trust);
  const std::string why = "rank 2, which holds the job's meeting place, does not answer";
  std::thread other(
      [&] { EXPECT_THAT(test::failure_of([&] { connect(*held_up); }, ErrorCode::timeout), HasSubstr(why)); });
  connect(*through);
  try {
    barrier(Group(through)).wait();
    ADD_FAILURE() << "the barrier ended without rank 1";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::timeout) << error.what();
    EXPECT_EQ(error.peer(), 2);
    EXPECT_THAT(error.what(), HasSubstr(why));
  }
  other.join();
}

}  // namespace
}  // namespace lockstep

// Calls of ranks that share one GPU: by kernels of Lockstep's own, over device arenas. On the CPU here; check_gpu does it on a real
// one.
#include <chrono>
#include <latch>
#include <thread>

#include "lockstep/backend/device_arena/kernel_image.h"
#include "lockstep/group/gpu_calls.h"
#include "lockstep/group/gpu_update.h"
#include "lockstep/group/threads_test.h"
#include "lockstep/trace/recorder.h"
#include "tests/conformance/conformance.h"
#include "tests/gpu/check_updates.h"
#include "tests/gpu/on_gpus_test.h"

namespace lockstep {
namespace {

using namespace std::chrono_literals;
using test::failure_of;
using test::on_ranks;
using test::OnGpu;
using ::testing::AllOf;
using testing::ConformanceOptions;
using ::testing::Each;
using testing::GpuMemory;
using ::testing::HasSubstr;

/// All ranks' GPU.
const MemoryPlace gpu{.device = 0};

class SharedGpu : public test::GpuFaults {
 protected:
  SharedGpu() {
    device_arena::take_kernels_of_the_driver();
    (void)can_update_on_gpu(0);  // what it loads is kept
  }
};

struct Case {
  int ranks;
  bool in_arena;
};

void PrintTo(const Case& given, std::ostream* out) {
  *out << given.ranks << " ranks" << (given.in_arena ? ", in the arena" : "");
}

/// Of the device arena, or of what programs allocate for themselves. It is freed at the end: ranks that are threads of one process
/// would wait for each other, since a GPU frees nothing while streams of the process wait.
GpuMemory memory_of(const Group& group, bool in_arena) {
  void* const one = standin::allocate(0, 1);
  const auto to_gpu = static_cast<std::ptrdiff_t>(reinterpret_cast<std::uintptr_t>(one) -
                                                  reinterpret_cast<std::uintptr_t>(standin::host(one)));
  auto blocks = std::make_shared<std::vector<std::shared_ptr<void>>>();
  const auto own = [](void* memory) { return std::shared_ptr<void>(memory, standin::release); };
  blocks->push_back(own(one));
  return {.place = gpu,
          .allocate =
              [=](std::size_t bytes) {
                void* memory = nullptr;
                if (in_arena) {
                  blocks->push_back(allocate_on_gpu(group, 0, bytes, &memory));
                } else {
                  memory = standin::allocate(0, bytes);
                  blocks->push_back(own(memory));
                }
                return standin::host(memory);
              },
          .release = [](std::byte*) {},
          .to_gpu = to_gpu,
          .supports = [](Dtype, ReduceOp op) { return op != ReduceOp::custom; }};
}

class SharedGpuRanks : public SharedGpu, public ::testing::WithParamInterface<Case> {
 protected:
  static void check(void (*function)(const Group&, const ConformanceOptions&)) {
    on_ranks(GetParam().ranks, [&](const Group& group) {
      const GpuMemory memory = memory_of(group, GetParam().in_arena);
      constexpr std::size_t counts[] = {0, 1, 17, 1000};
      try {
        function(group, {.counts = counts, .gpu = &memory});
      } catch (const std::exception& error) {
        ADD_FAILURE() << error.what();
      }
      barrier(group).wait();
    });
  }
};

TEST_P(SharedGpuRanks, ReduceEveryTypeByEveryOperation) { check(testing::check_reductions); }
TEST_P(SharedGpuRanks, MoveBlocks) { check(testing::check_movements); }

/// Of memory for calls.
testing::GpuAccess access_to(const Group& group) {
  return {
      .place = gpu,
      .allocate = [=](std::size_t bytes, void** on_gpu) { return allocate_on_gpu(group, 0, bytes, on_gpu); },
      .write =
          [](void* on_gpu, const void* from, std::size_t bytes) {
            standin::synchronize(nullptr);
            if (bytes > 0) std::memcpy(standin::host(on_gpu), from, bytes);
          },
      .read =
          [](void* to, const void* on_gpu, std::size_t bytes) {
            standin::synchronize(nullptr);
            if (bytes > 0) std::memcpy(to, standin::host(on_gpu), bytes);
          }};
}

TEST_F(SharedGpu, MoveTheirParametersTogether) {
  for (const int ranks : {2, 3}) {
    on_ranks(ranks, [](const Group& group) {
      try {
        ASSERT_TRUE(can_call_on_gpu(group, 0) && shares_gpu(group, 0));
        testing::check_updates(group, access_to(group));
      } catch (const std::exception& error) {
        ADD_FAILURE() << error.what();
      }
      barrier(group).wait();
    });
  }
}

TEST_F(SharedGpu, MovesTensorsOfOneRankByAList) {
  on_ranks(1, [&](const Group& alone) {
    ASSERT_TRUE(can_update_on_gpu(0));
    testing::check_updates(alone, {.place = gpu,
                                   .allocate =
                                       [](std::size_t bytes, void** on_gpu) {
                                         *on_gpu = standin::allocate(0, bytes);
                                         return std::shared_ptr<void>(*on_gpu, standin::release);
                                       },
                                   .write = access_to(alone).write,
                                   .read = access_to(alone).read});
  });
}

TEST_F(SharedGpu, NameRanksWhoseOptimizersDiffer) {
  on_ranks(2, [](const Group& world) {
    if (!can_call_on_gpu(world, 0)) FAIL();
    void* memory = nullptr;
    const auto block = allocate_on_gpu(world, 0, 8, &memory);
    auto* const values = static_cast<float*>(memory);
    const SharedUpdate update{.gradients = std::as_bytes(std::span(values, 1)),
                              .parameters = std::as_writable_bytes(std::span(values + 1, 1)),
                              .update = {.step = kernel::SgdStep{.learning_rate = 0.1 * (world.rank() + 1)},
                                         .own = {0, world.rank() == 0 ? 1U : 0U}}};
    EXPECT_THAT(failure_of([&] { update_on_shared_gpu(world, gpu, std::span(&update, 1)).synchronize(); },
                           ErrorCode::mismatch),
                HasSubstr("all_reduce_update (sum of f32 x 1)"));
  });
}

TEST_F(SharedGpu, RefuseParametersThatLieElsewhere) {
  on_ranks(2, [](const Group& world) {
    if (!can_call_on_gpu(world, 0)) FAIL();
    void* memory = nullptr;
    const auto block = allocate_on_gpu(world, 0, 8, &memory);
    const OnGpu<float> elsewhere(0, 1, 1.0F);
    auto* const values = static_cast<float*>(memory);
    const SharedUpdate update{.gradients = std::as_bytes(std::span(values, 1)),
                              .parameters = std::as_writable_bytes(elsewhere.span()),
                              .update = {.step = kernel::SgdStep{.learning_rate = 0.1}, .own = {}}};
    EXPECT_THAT(failure_of([&] { update_on_shared_gpu(world, gpu, std::span(&update, 1)).synchronize(); }),
                HasSubstr("parameters do not lie in memory for calls on the GPU"));
  });
}

INSTANTIATE_TEST_SUITE_P(Of, SharedGpuRanks,
                         ::testing::Values(Case{2, false}, Case{2, true}, Case{3, true}, Case{4, false}));

TEST_F(SharedGpu, ComeAfterWhatIsOnTheStreamAndBeforeWhatFollowsTheWait) {
  on_ranks(3, [](const Group& world) {
    const cuda::Stream stream = standin::make_stream(0);
    {
      const OnGpu<float> values(0, 100), copy(0, 100);
      for (int step = 1; step <= 100; ++step) {  // more than are under way at once
        standin::launch(stream, [&, step] {
          std::ranges::fill(values.seen(), static_cast<float>(step * (world.rank() + 1)));
        });
        all_reduce(world, values.span(), ReduceOp::sum, {.place = {.device = 0, .stream = stream}}).wait();
        standin::launch(stream, [&] { std::ranges::copy(values.seen(), copy.seen().begin()); });
        if (step % 10 != 0) continue;
        standin::synchronize(stream);
        EXPECT_THAT(copy.seen(), Each(static_cast<float>(6 * step)));
      }
    }
    standin::destroy_stream(stream);
  });
}

TEST_F(SharedGpu, ExchangeMessages) {
  on_ranks(3, [](const Group& world) {
    const int next = (world.rank() + 1) % 3, previous = (world.rank() + 2) % 3;
    const OnGpu<int> sent(0, 1000, world.rank()), got(0, 1000, -1);
    for (int time = 0; time < 10; ++time) {
      sendrecv(world, sent.span(), next, got.span(), previous, 0, 0, nullptr, gpu).synchronize();
      EXPECT_THAT(got.seen(), Each(previous));
    }
    if (world.rank() == 0) send(world, sent.span(), 2, 0, gpu).synchronize();
    if (world.rank() == 2) {
      recv(world, got.span(), 0, 0, nullptr, gpu).synchronize();
      EXPECT_THAT(got.seen(), Each(0));
    }
    const OnGpu<int> own(0, 10, 7), back(0, 10);
    sendrecv(world, own.span(), world.rank(), back.span(), world.rank(), 0, 0, nullptr, gpu).synchronize();
    EXPECT_THAT(back.seen(), Each(7));
    barrier(world, gpu).synchronize();
  });
}

TEST_F(SharedGpu, WaitForBothSidesOfASendrecv) {
  on_ranks(3, [](const Group& world) {
    const int next = (world.rank() + 1) % 3, previous = (world.rank() + 2) % 3;
    const cuda::Stream stream = standin::make_stream(0);
    void* memory = nullptr;
    auto block = allocate_on_gpu(world, 0, 1000 * sizeof(int), &memory);
    const std::span sent(static_cast<int*>(memory), 1000);
    const std::span seen(reinterpret_cast<int*>(standin::host(memory)), 1000);
    std::ranges::fill(seen, world.rank());
    {
      const OnGpu<int> got(0, 1000, -1);
      barrier(world).wait();
      if (world.rank() == 1) std::this_thread::sleep_for(200ms);  // for whom 0 has to keep what it sends
      sendrecv(world, sent, next, got.span(), previous, 0, 0, nullptr, {.device = 0, .stream = stream})
          .wait();
      standin::launch(stream, [seen] { std::ranges::fill(seen, 9); });
      standin::synchronize(stream);
      EXPECT_THAT(got.seen(), Each(previous));
      barrier(world).wait();
    }
    block = nullptr;
    standin::destroy_stream(stream);
  });
}

TEST_F(SharedGpu, NeedNoCopyInTheArena) {
  on_ranks(2, [](const Group& world) {
    void* memory = nullptr;
    const auto block = allocate_on_gpu(world, 0, 4000, &memory);
    ASSERT_NE(block, nullptr);
    const std::span<float> values(static_cast<float*>(memory), 1000);
    std::fill_n(reinterpret_cast<float*>(standin::host(memory)), 1000, 1.0F);
    const int copies = standin::copies();
    all_reduce(world, values, ReduceOp::average, {.prescale = 3, .place = gpu}).synchronize();
    barrier(world).wait();
    EXPECT_EQ(standin::copies(), copies);
    EXPECT_EQ(*reinterpret_cast<float*>(standin::host(memory)), 3.0F);
    barrier(world).wait();
  });
}

TEST_F(SharedGpu, GrowTheirArenaWhileOthersAreBusy) {
  on_ranks(2, [](const Group& world) {
    void* memory = nullptr;
    EXPECT_NE(allocate_on_gpu(world, 0, 4, &memory), nullptr);
    if (world.rank() == 0) {
      const auto more = allocate_on_gpu(world, 0, std::size_t{40} << 20, &memory);
      EXPECT_NE(more, nullptr);
    } else {
      std::this_thread::sleep_for(300ms);
    }
    barrier(world).wait();
  });
}

TEST_F(SharedGpu, SayHowMuchMemoryThereIsNotOnTheGpu) {
  std::latch told(2);
  on_ranks(2, [&](const Group& world) {
    void* memory = nullptr;
    EXPECT_NE(allocate_on_gpu(world, 0, 4, &memory), nullptr);
    EXPECT_THAT(failure_of([&] { (void)allocate_on_gpu(world, 0, std::size_t{1} << 30, &memory); },
                           ErrorCode::system),
                AllOf(HasSubstr("1073741824 bytes for what ranks share on GPU 0"),
                      HasSubstr("CUDA_ERROR_OUT_OF_MEMORY")));
    told.arrive_and_wait();
  });
}

TEST_F(SharedGpu, HaveArenasOfTheirOwnInSubgroups) {
  on_ranks(4, [](const Group& world) {
    const auto half = world.split(world.rank() % 2);
    const OnGpu<int> values(0, 10, world.rank());
    all_reduce(*half, values.span(), ReduceOp::sum, {.place = gpu}).synchronize();
    EXPECT_THAT(values.seen(), Each(world.rank() % 2 == 0 ? 2 : 4));
    all_reduce(world, values.span(), ReduceOp::sum, {.place = gpu}).synchronize();
    EXPECT_THAT(values.seen(), Each(12));
  });
}

TEST_F(SharedGpu, AreInTheRecordByTheirName) {
  on_ranks(2, [](const Group& world) {
    const OnGpu<float> values(0, 10, 1);
    all_reduce(world, values.span(), ReduceOp::sum, {.place = gpu}).synchronize();
    const auto events = world.recorder().collectives_since(0);
    ASSERT_FALSE(events.empty());
    EXPECT_STREQ(events.back().algorithm, "device_arena");
  });
}

TEST_F(SharedGpu, NameARankThatDoesNotCall) {
  std::latch told(3);
  on_ranks(3,
           [&](const Group& world) {
             const OnGpu<float> values(0, 10, 1);
             const auto call = [&] {
               all_reduce(world, values.span(), ReduceOp::sum, {.place = gpu}).synchronize();
             };
             call();
             if (world.rank() != 1) {
               EXPECT_THAT(
                   failure_of(call, ErrorCode::timeout),
                   AllOf(HasSubstr("all_reduce #1 (sum of f32 x 10) on GPU 0 in group \"world\": "),
                         HasSubstr("rank 1 did not call all_reduce #1 (sum of f32 x 10) on GPUs within 1 s"),
                         HasSubstr("the group is closed")));
             }
             told.arrive_and_wait();
             EXPECT_THAT(failure_of(call, ErrorCode::timeout),
                         HasSubstr("rank 1 did not call all_reduce #1"));
           },
           {.timeout = 1s});
}

TEST_F(SharedGpu, NameARankThatDoesNotCallBeforeManyMoreCalls) {
  std::latch told(2);
  on_ranks(2,
           [&](const Group& world) {
             const CollectiveOptions options{.place = gpu};
             std::vector<std::unique_ptr<OnGpu<float>>> values;
             for (int i = 0; i < 40; ++i)  // more than are under way at once
               values.push_back(std::make_unique<OnGpu<float>>(0, 10, 1));
             all_reduce(world, values.front()->span(), ReduceOp::sum, options).synchronize();
             const auto call = [&] {
               std::vector<Work> works;
               for (const auto& each : values)
                 works.push_back(all_reduce(world, each->span(), ReduceOp::sum, options));
             };
             if (world.rank() == 0) {
               EXPECT_THAT(failure_of(call, ErrorCode::timeout),
                           HasSubstr("rank 1 did not call all_reduce #1 (sum of f32 x 10) on GPUs"));
             }
             told.arrive_and_wait();
           },
           {.timeout = 1s});
}

TEST_F(SharedGpu, OfAGroupThatFailedLeaveWhatTheyToldEachOtherToNobodyElse) {
  std::latch taken(1), dropped(1);
  on_ranks(2, [&](const Group& world) {
    std::optional<Group> both = world.subgroup(std::array{0, 1});
    const OnGpu<float> values(0, 10, 1);
    const auto call = [&] {
      if (world.rank() == 0) {
        all_reduce(*both, values.span(), ReduceOp::sum, {.place = gpu}).synchronize();
      } else {
        broadcast(*both, values.span(), 0, gpu).synchronize();
      }
    };
    EXPECT_THAT(failure_of(call, ErrorCode::mismatch), HasSubstr("ranks called different operations"));
    barrier(world).wait();
    if (world.rank() == 1) {
      taken.wait();
      both.reset();
      dropped.count_down();
    } else {
      both.reset();
      std::vector<ArenaBlock> all;
      try {
        for (;;) all.push_back(world.allocate_bytes(1000));
      } catch (const Error&) {  // there is no more
      }
      for (const ArenaBlock& block : all) std::ranges::fill(block.bytes(), std::byte{0x55});
      taken.count_down();
      dropped.wait();
      EXPECT_TRUE(std::ranges::all_of(all, [](const ArenaBlock& block) {
        return std::ranges::count(block.bytes(), std::byte{0x55}) == std::ssize(block.bytes());
      }));
    }
    barrier(world).wait();
  });
}

TEST_F(SharedGpu, NameRanksThatCallDifferentThings) {
  on_ranks(2, [&](const Group& world) {
    const OnGpu<float> values(0, 10, 1);
    all_reduce(world, values.span(), ReduceOp::sum, {.place = gpu}).synchronize();
    const auto call = [&] {
      if (world.rank() == 0) {
        all_reduce(world, values.span(), ReduceOp::sum, {.place = gpu}).synchronize();
      } else {
        broadcast(world, values.span(), 0, gpu).synchronize();
      }
    };
    EXPECT_THAT(
        failure_of(call, ErrorCode::mismatch),
        HasSubstr("ranks called different operations: rank 0 called all_reduce (sum of f32 x 10) as #1, "
                  "rank 1 called broadcast (40 bytes from rank 0) as #1"));
  });
}

TEST_F(SharedGpu, NameTheSizesOfAMessageThatDiffer) {
  on_ranks(2, [&](const Group& world) {
    const OnGpu<float> values(0, 10, 1);
    barrier(world, gpu).synchronize();
    const auto call = [&] {
      if (world.rank() == 0) {
        send(world, values.span(), 1, 0, gpu).synchronize();
      } else {
        recv(world, values.span().first(5), 0, 0, nullptr, gpu).synchronize();
      }
    };
    EXPECT_THAT(failure_of(call, ErrorCode::mismatch), AllOf(HasSubstr("40 bytes"), HasSubstr("20 bytes")));
  });
}

TEST_F(SharedGpu, RefuseAStreamOfAnotherGpu) {
  on_ranks(2, [](const Group& world) {
    const cuda::Stream stream = standin::make_stream(1);
    const OnGpu<int> values(0, 4, 1);
    const auto call = [&](const MemoryPlace& place) {
      all_reduce(world, values.span(), ReduceOp::sum, {.place = place}).synchronize();
    };
    if (world.rank() == 0) {
      EXPECT_THAT(failure_of([&] { call({.device = 0, .stream = stream}); }, ErrorCode::invalid_argument),
                  HasSubstr("the call's stream is none of this GPU's"));
    }
    call(gpu);  // the others have not heard of it
    EXPECT_THAT(values.seen(), Each(2));
    standin::destroy_stream(stream);
  });
}

TEST_F(SharedGpu, RefuseGraphs) {
  on_ranks(2, [](const Group& world) {
    const cuda::Stream stream = standin::make_stream(0);
    {
      const OnGpu<float> values(0, 10, 1);
      const auto call = [&] {
        all_reduce(world, values.span(), ReduceOp::sum, {.place = {.device = 0, .stream = stream}})
            .synchronize();
      };
      call();
      standin::capture(stream, true);
      EXPECT_THAT(failure_of(call, ErrorCode::unsupported),
                  HasSubstr("ranks that share a GPU cannot have a graph"));
      barrier(world).wait();
      standin::capture(stream, false);
      barrier(world).wait();
      call();
    }
    standin::destroy_stream(stream);
  });
}

TEST_F(SharedGpu, HearOfAFailureInMainMemory) {
  on_ranks(2, [&](const Group& world) {
    const OnGpu<float> values(0, 10, 1);
    const auto call = [&] { all_reduce(world, values.span(), ReduceOp::sum, {.place = gpu}).synchronize(); };
    call();
    if (world.rank() == 1) {
      std::this_thread::sleep_for(20ms);
      return world.abort("it had enough");
    }
    EXPECT_THAT(failure_of(call, ErrorCode::peer_lost), HasSubstr("rank 1 gave up: it had enough"));
  });
}

/// Where a rank submits while another thread of it fails the group, again and again.
TEST_F(SharedGpu, MayFailWhileARankSubmits) {
  for (int time = 0; time < 30; ++time) {
    on_ranks(2, [&](const Group& world) {
      // Of its own: what one rank waits for must not stand before what another brings.
      const cuda::Stream stream = standin::make_stream(0);
      {
        const OnGpu<float> values(0, 10, 1);
        const auto call = [&] {
          return all_reduce(world, values.span(), ReduceOp::sum, {.place = {.device = 0, .stream = stream}});
        };
        if (world.rank() == 1) {
          call().synchronize();
          std::this_thread::sleep_for(std::chrono::microseconds(time * 100));
          world.abort("it had enough");
        } else {
          EXPECT_THAT(failure_of(
                          [&] {
                            for (;;) call().wait();
                          },
                          ErrorCode::peer_lost),
                      HasSubstr("rank 1 gave up: it had enough"));
        }
      }
      standin::destroy_stream(stream);
    });
  }
}

}  // namespace
}  // namespace lockstep

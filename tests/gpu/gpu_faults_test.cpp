// What goes wrong with calls on GPUs is named, on all ranks, and no kernel waits for ever.
#include <chrono>
#include <latch>
#include <thread>

#include "lockstep/group/gpu_calls.h"
#include "lockstep/group/threads_test.h"
#include "tests/gpu/on_gpus_test.h"

namespace lockstep {
namespace {

using namespace std::chrono_literals;
using test::failure_of;
using test::GpuFaults;
using test::on_ranks;
using test::OnGpu;
using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;

CollectiveOptions here(const Group& world) { return {.place = {.device = world.rank()}}; }

void add_up(const Group& world, const OnGpu<float>& values) {
  all_reduce(world, values.span(), ReduceOp::sum, here(world)).synchronize();
}

TEST_F(GpuFaults, NameARankThatDoesNotCall) {
  std::latch told(3);
  on_ranks(
      3,
      [&](const Group& world) {
        const OnGpu<float> values(world.rank(), 10, 1);
        add_up(world, values);
        const auto call = [&] { add_up(world, values); };
        if (world.rank() != 1) {
          EXPECT_THAT(
              failure_of(call, ErrorCode::timeout),
              AllOf(HasSubstr("all_reduce #1 (sum of f32 x 10) on GPU " + std::to_string(world.rank()) +
                              " in group \"world\": "),
                    HasSubstr("rank 1 did not call all_reduce #1 (sum of f32 x 10) on GPUs within 1 s"),
                    HasSubstr("the group is closed")));
          // The cause stays, and holds for main memory, too.
          EXPECT_THAT(failure_of(call, ErrorCode::timeout), HasSubstr("rank 1 did not call all_reduce #1"));
        }
        told.arrive_and_wait();
        EXPECT_THAT(failure_of([&] { barrier(world).wait(); }, ErrorCode::timeout),
                    HasSubstr("rank 1 did not call all_reduce #1"));
        EXPECT_THAT(failure_of(call, ErrorCode::timeout), HasSubstr("rank 1 did not call all_reduce #1"));
      },
      {.timeout = 1s});
}

TEST_F(GpuFaults, NameTheRankThatDoesNotMakeTheFirstCall) {
  std::latch told(3);
  on_ranks(3,
           [&](const Group& world) {
             const OnGpu<float> values(world.rank(), 10, 1);
             EXPECT_TRUE(can_call_on_gpu(world, world.rank()));  // connects
             if (world.rank() != 1) {
               EXPECT_THAT(
                   failure_of([&] { add_up(world, values); }, ErrorCode::timeout),
                   HasSubstr("rank 1 did not call all_reduce #0 (sum of f32 x 10) on GPUs within 1 s"));
             }
             told.arrive_and_wait();
           },
           {.timeout = 1s});
}

TEST_F(GpuFaults, NameTheRightRankAfterMessagesOfSome) {
  std::latch told(3);
  on_ranks(3,
           [&](const Group& world) {
             const OnGpu<float> values(world.rank(), 10, 1);
             const auto place = here(world).place;
             if (world.rank() == 0) send(world, values.span(), 1, 0, place).synchronize();
             if (world.rank() == 1) recv(world, values.span(), 0, 0, nullptr, place).synchronize();
             add_up(world, values);
             if (world.rank() != 1) {
               EXPECT_THAT(
                   failure_of([&] { add_up(world, values); }, ErrorCode::timeout),
                   HasSubstr("rank 1 did not call all_reduce #1 (sum of f32 x 10) on GPUs within 1 s"));
             }
             told.arrive_and_wait();
           },
           {.timeout = 1s});
}

TEST_F(GpuFaults, NameTheOtherRankOfAMessage) {
  std::latch told(3);
  on_ranks(3,
           [&](const Group& world) {
             const OnGpu<float> values(world.rank(), 10, 1);
             const auto place = here(world).place;
             barrier(world, place).synchronize();
             if (world.rank() == 2) {
               EXPECT_THAT(failure_of([&] { recv(world, values.span(), 1, 0, nullptr, place).synchronize(); },
                                      ErrorCode::timeout),
                           HasSubstr("rank 1 did not do its part of recv #0"));
             }
             told.arrive_and_wait();
           },
           {.timeout = 1s});
}

TEST_F(GpuFaults, NameRanksThatCallDifferentThings) {
  on_ranks(
      2,
      [&](const Group& world) {
        const OnGpu<float> values(world.rank(), 10, 1);
        const auto options = here(world);
        all_reduce(world, values.span(), ReduceOp::sum, options).synchronize();
        const auto call = [&] {
          if (world.rank() == 0) {
            all_reduce(world, values.span(), ReduceOp::sum, options).synchronize();
          } else {
            broadcast(world, values.span(), 0, options.place).synchronize();
          }
        };
        EXPECT_THAT(
            failure_of(call, ErrorCode::mismatch),
            HasSubstr("ranks called different operations: rank 0 called all_reduce (sum of f32 x 10) as #1, "
                      "rank 1 called broadcast (40 bytes from rank 0) as #1"));
      },
      {.timeout = 1s});
}

TEST_F(GpuFaults, NameARankThatDoesNotComeToTheFirstCall) {
  std::latch told(2);
  on_ranks(2,
           [&](const Group& world) {
             const OnGpu<float> values(world.rank(), 10, 1);
             if (world.rank() == 0) {
               EXPECT_THAT(
                   failure_of([&] { all_reduce(world, values.span(), ReduceOp::sum, here(world)).wait(); },
                              ErrorCode::timeout),
                   HasSubstr("rank 1 did not come to a first call on GPUs"));
             }
             told.arrive_and_wait();
           },
           {.timeout = 1s});
}

TEST_F(GpuFaults, AreNotSharedByRanksWhereNcclForbidsIt) {
  on_ranks(3, [&](const Group& world) {
    const int device = world.rank() == 0 ? 0 : 1;
    const OnGpu<float> values(device, 10, 1);
    EXPECT_THAT(
        failure_of(
            [&] { all_reduce(world, values.span(), ReduceOp::sum, {.place = {.device = device}}).wait(); },
            ErrorCode::unsupported),
        AllOf(HasSubstr("ranks 1 and 2 have the same GPU (GPU-"), HasSubstr("give each rank its own")));
    barrier(world).wait();  // goes on
  });
}

TEST_F(GpuFaults, OneRankThatHasNoneTellsTheOthers) {
  on_ranks(2, [&](const Group& world) {
    const int device = world.rank() == 0 ? 0 : 7;
    const OnGpu<float> values(0, 10, 1);
    EXPECT_THAT(
        failure_of(
            [&] { all_reduce(world, values.span(), ReduceOp::sum, {.place = {.device = device}}).wait(); },
            ErrorCode::unsupported),
        HasSubstr(world.rank() == 0 ? "rank 1: there is no GPU 7" : "there is no GPU 7"));
    barrier(world).wait();
  });
}

TEST_F(GpuFaults, SayThatAKernelOfTheProgramsWentWrong) {
  const Group alone;
  const OnGpu<float> values(0, 10, 1);
  const auto call = [&] {
    all_reduce(alone, values.span(), ReduceOp::sum, {.place = {.device = 0}}).synchronize();
  };
  call();
  standin::break_gpu(0, cuda::illegal_address);
  EXPECT_THAT(failure_of(call, ErrorCode::system),
              AllOf(HasSubstr("an illegal memory access was encountered (CUDA_ERROR_ILLEGAL_ADDRESS)"),
                    HasSubstr("a kernel that the program ran before this went wrong")));
  standin::break_gpu(0, cuda::success);
}

TEST_F(GpuFaults, SayWhatNcclSays) {
  const int aborted = standin::nccl_aborted();
  on_ranks(2, [&](const Group& world) {
    const OnGpu<float> values(world.rank(), 10, 1);
    const auto call = [&] { add_up(world, values); };
    call();
    barrier(world).wait();
    standin::break_nccl(nccl::remote_error);
    EXPECT_THAT(
        failure_of(call, ErrorCode::system),
        ContainsRegex("NCCL 2.27.3 on rank [01] says: remote process exited .*no socket.*NCCL_DEBUG"));
  });
  standin::break_nccl(nccl::success);
  EXPECT_EQ(standin::nccl_aborted() - aborted, 2) << "no kernel may wait for ever";
}

TEST_F(GpuFaults, EndForAllWhenAnExceptionLeavesOne) {
  std::latch gave_up(1);
  on_ranks(2, [&](const Group& world) {
    const OnGpu<float> values(world.rank(), 10, 1);
    add_up(world, values);
    barrier(world).wait();
    if (world.rank() == 1) {
      try {
        const OnGpu<float> local(1, 10);
        const Work all = all_reduce(world, local.span(), ReduceOp::sum, here(world));
        throw std::runtime_error("the program's own");
      } catch (const std::runtime_error&) {
        gave_up.count_down();
      }
      return;
    }
    gave_up.wait();
    EXPECT_THAT(failure_of([&] { add_up(world, values); }, ErrorCode::peer_lost),
                HasSubstr("rank 1 gave up all_reduce #1: an exception there ended it early"));
  });
}

/// Where a rank submits while another thread of it fails the group, again and again.
TEST_F(GpuFaults, MayComeWhileARankSubmits) {
  for (int time = 0; time < 30; ++time) {
    on_ranks(2, [&](const Group& world) {
      const OnGpu<float> values(world.rank(), 10, 1);
      if (world.rank() == 1) {
        add_up(world, values);
        std::this_thread::sleep_for(std::chrono::microseconds(time * 100));
        return world.abort("it had enough");
      }
      EXPECT_THAT(failure_of(
                      [&] {
                        for (int call = 1;; ++call) {
                          Work work = all_reduce(world, values.span(), ReduceOp::sum, here(world));
                          if (call % 50 == 0) {
                            work.synchronize();
                          } else {
                            work.wait();
                          }
                        }
                      },
                      ErrorCode::peer_lost),
                  HasSubstr("rank 1 gave up: it had enough"));
    });
  }
}

TEST_F(GpuFaults, HearOfAFailureInMainMemory) {
  on_ranks(2, [&](const Group& world) {
    const OnGpu<float> values(world.rank(), 10, 1);
    add_up(world, values);
    if (world.rank() == 1) {
      std::this_thread::sleep_for(20ms);
      world.abort("it had enough");
      return;
    }
    EXPECT_THAT(failure_of([&] { add_up(world, values); }, ErrorCode::peer_lost),
                HasSubstr("rank 1 gave up: it had enough"));
  });
}

TEST_F(GpuFaults, DoNotBlameOthersForTheProgramsOwnKernels) {
  on_ranks(2,
           [&](const Group& world) {
             const OnGpu<float> values(world.rank(), 10, 1);
             add_up(world, values);
             standin::launch(
                 nullptr, [] { std::this_thread::sleep_for(1500ms); }, world.rank());
             add_up(world, values);
           },
           {.timeout = 1s});
}

}  // namespace
}  // namespace lockstep

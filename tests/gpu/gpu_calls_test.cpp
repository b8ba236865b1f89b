// What calls on GPUs' memory promise beside right results: streams, order, what NCCL is asked for, what is refused.
#include <atomic>
#include <chrono>
#include <limits>
#include <thread>

#include "lockstep/group/init.h"
#include "lockstep/group/threads_test.h"
#include "lockstep/trace/recorder.h"
#include "tests/gpu/on_gpus_test.h"

namespace lockstep {
namespace {

using namespace std::chrono_literals;
using test::failure_of;
using test::Gpus;
using test::on_ranks;
using test::OnGpu;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

MemoryPlace gpu(int device, cuda::Stream stream = nullptr) { return {.device = device, .stream = stream}; }

/// A stream of one rank's program.
class ProgramStream {
 public:
  explicit ProgramStream(int device) : stream_(standin::make_stream(device)) {}
  ~ProgramStream() { standin::destroy_stream(stream_); }
  ProgramStream(const ProgramStream&) = delete;
  ProgramStream& operator=(const ProgramStream&) = delete;
  operator cuda::Stream() const { return stream_; }

 private:
  cuda::Stream stream_;
};

TEST_F(Gpus, ComeAfterWhatIsOnTheStreamAndBeforeWhatFollowsTheWait) {
  on_ranks(3, [](const Group& world) {
    const int device = world.rank();
    const ProgramStream stream(device);
    const OnGpu<float> values(device, 100), copy(device, 100);
    for (int step = 1; step <= 5; ++step) {
      standin::launch(stream, [&, step] {
        std::this_thread::sleep_for(10ms);
        std::ranges::fill(values.seen(), static_cast<float>(step * (device + 1)));
      });
      all_reduce(world, values.span(), ReduceOp::sum, {.place = gpu(device, stream)}).wait();
      standin::launch(stream, [&] { std::ranges::copy(values.seen(), copy.seen().begin()); });
      standin::synchronize(stream);
      EXPECT_THAT(copy.seen(), Each(static_cast<float>(6 * step)));
    }
  });
}

// Which NCCL puts on its stream when all are connected.
TEST_F(Gpus, ComeBeforeWhatFollowsTheWaitInTheFirstCallToo) {
  on_ranks(2, [](const Group& world) {
    const int device = world.rank();
    const ProgramStream stream(device);
    constexpr std::size_t many = 1'000'000;
    const OnGpu<float> values(device, many, 1), copy(device, many);
    all_reduce(world, values.span(), ReduceOp::sum, {.place = gpu(device, stream)}).wait();
    standin::launch(stream, [&] { std::ranges::copy(values.seen(), copy.seen().begin()); });
    standin::synchronize(stream);
    EXPECT_EQ(std::ranges::count(copy.seen(), 2.0F), std::ssize(copy.seen()));
  });
}

TEST_F(Gpus, DoNotHoldTheProgramUp) {
  on_ranks(2, [](const Group& world) {
    const int device = world.rank();
    const OnGpu<float> values(device, 10, 1);
    all_reduce(world, values.span(), ReduceOp::sum, {.place = gpu(device)}).synchronize();  // connects
    const ProgramStream stream(device);
    std::atomic<bool> may_end = false;
    standin::launch(stream, [&] { may_end.wait(false); });
    Work work = all_reduce(world, values.span(), ReduceOp::sum, {.place = gpu(device, stream)});
    EXPECT_FALSE(work.test());
    EXPECT_FALSE(work.wait_for(20ms));
    work.wait();  // the stream waits; this does not
    may_end = true;
    may_end.notify_all();
    standin::synchronize(stream);
    EXPECT_THAT(values.seen(), Each(4.0F));
  });
}

/// The program's kernel that makes the values 1.
void fill_late(cuda::Stream stream, const OnGpu<float>& values) {
  standin::launch(stream, [&values] {
    std::this_thread::sleep_for(30ms);
    std::ranges::fill(values.seen(), 1.0F);
  });
}

TEST_F(Gpus, SynchronizeWaitsOnTheHost) {
  on_ranks(2, [](const Group& world) {
    const int device = world.rank();
    const ProgramStream stream(device);
    const OnGpu<float> values(device, 10);
    fill_late(stream, values);
    Work one = all_reduce(world, values.span(), ReduceOp::sum, {.place = gpu(device, stream)});
    Work two = all_reduce(world, values.span(), ReduceOp::sum, {.place = gpu(device, stream)});
    std::vector<Work> both;
    both.push_back(std::move(one));
    both.push_back(std::move(two));
    Work::all(std::move(both)).synchronize();
    EXPECT_THAT(values.seen(), Each(4.0F));
    Work third = all_reduce(world, values.span(), ReduceOp::sum, {.place = gpu(device, stream)});
    while (!third.test()) continue;
    EXPECT_THAT(values.seen(), Each(8.0F));
  });
}

TEST_F(Gpus, KeepBuffersUntilAWorkThatNobodyWaitedForIsOver) {
  on_ranks(2, [](const Group& world) {
    const int device = world.rank();
    const ProgramStream stream(device);
    const OnGpu<float> values(device, 10);
    fill_late(stream, values);
    { const Work dropped = all_reduce(world, values.span(), ReduceOp::sum, {.place = gpu(device, stream)}); }
    EXPECT_THAT(values.seen(), Each(2.0F));
  });
}

TEST_F(Gpus, EndWhatWasBegunBeforeTheirGroupGoes) {
  on_ranks(2, [](const Group& world) {
    const int device = world.rank();
    const ProgramStream stream(device);
    const OnGpu<float> values(device, 10, 1);
    {
      const Group both = world.subgroup(std::vector<int>{0, 1});
      standin::launch(stream, [] { std::this_thread::sleep_for(30ms); });
      all_reduce(both, values.span(), ReduceOp::sum, {.place = gpu(device, stream)}).wait();
    }
    standin::synchronize(stream);
    EXPECT_THAT(values.seen(), Each(2.0F));
  });
}

TEST_F(Gpus, ScaleBeforeTheyAdd) {
  on_ranks(2, [](const Group& world) {
    const int device = world.rank();
    const OnGpu<float> values(device, 8, 3);
    all_reduce(world, values.span(), ReduceOp::sum, {.prescale = 0.5F, .place = gpu(device)}).synchronize();
    EXPECT_THAT(values.seen(), Each(3.0F));
    all_reduce(world, values.span(), ReduceOp::average, {.prescale = 4.0F, .place = gpu(device)})
        .synchronize();
    EXPECT_THAT(values.seen(), Each(12.0F));
    // Each half of the sum would be infinite.
    const OnGpu<float16> halves(device, 8, to_float16(60000.0F));
    all_reduce(world, halves.span(), ReduceOp::average, {.prescale = 0.5F, .place = gpu(device)})
        .synchronize();
    for (const float16 half : halves.seen()) EXPECT_NEAR(to_float(half), 30000.0F, 16);
  });
}

TEST_F(Gpus, ExchangeMessages) {
  on_ranks(3, [](const Group& world) {
    const int device = world.rank();
    const int next = (world.rank() + 1) % 3, previous = (world.rank() + 2) % 3;
    const OnGpu<int> sent(device, 1000, world.rank()), got(device, 1000, -1);
    // All around a circle at once: messages of one call do not wait for each other.
    sendrecv(world, sent.span(), next, got.span(), previous, 0, 0, nullptr, gpu(device)).synchronize();
    EXPECT_THAT(got.seen(), Each(previous));
    if (world.rank() == 0) send(world, sent.span(), 2, 0, gpu(device)).synchronize();
    if (world.rank() == 2) {
      recv(world, got.span(), 0, 0, nullptr, gpu(device)).synchronize();
      EXPECT_THAT(got.seen(), Each(0));
    }
    // To itself.
    const OnGpu<int> own(device, 10, 7), back(device, 10);
    sendrecv(world, own.span(), world.rank(), back.span(), world.rank(), 0, 0, nullptr, gpu(device))
        .synchronize();
    EXPECT_THAT(back.seen(), Each(7));
    barrier(world, gpu(device)).synchronize();
  });
}

TEST_F(Gpus, MayBeSeveralOfAProcess) {
  on_ranks(2, [](const Group& world) {
    const int first = world.rank(), second = world.rank() + 2;
    const OnGpu<float> here(first, 10, 1), there(second, 10, 2);
    Work one = all_reduce(world, here.span(), ReduceOp::sum, {.place = gpu(first)});
    Work two = all_reduce(world, there.span(), ReduceOp::sum, {.place = gpu(second)});
    one.synchronize();
    two.synchronize();
    EXPECT_THAT(here.seen(), Each(2.0F));
    EXPECT_THAT(there.seen(), Each(4.0F));
  });
}

TEST_F(Gpus, HaveGroupsOfTheirOwnInSubgroups) {
  on_ranks(4, [](const Group& world) {
    const auto half = world.split(world.rank() % 2);
    const int device = world.rank();
    const OnGpu<int> values(device, 10, world.rank());
    all_reduce(*half, values.span(), ReduceOp::sum, {.place = gpu(device)}).synchronize();
    EXPECT_THAT(values.seen(), Each(world.rank() % 2 == 0 ? 2 : 4));
    all_reduce(world, values.span(), ReduceOp::sum, {.place = gpu(device)}).synchronize();
    EXPECT_THAT(values.seen(), Each(12));
  });
}

TEST_F(Gpus, WorkBesideCallsInMainMemory) {
  on_ranks(2, [](const Group& world) {
    const int device = world.rank();
    const OnGpu<float> values(device, 10, 1);
    for (int i = 0; i < 20; ++i) {
      std::vector<float> here(10, 1);
      Work on_gpu = all_reduce(world, values.span(), ReduceOp::average, {.place = gpu(device)});
      all_reduce(world, here).wait();
      on_gpu.synchronize();
      EXPECT_THAT(here, Each(2.0F));
      EXPECT_THAT(values.seen(), Each(1.0F));
    }
  });
}

TEST_F(Gpus, OfAGroupOfOneNeedNobody) {
  const Group alone;
  const OnGpu<double> values(1, 10, 3), copy(1, 10);
  all_reduce(alone, values.span(), ReduceOp::average, {.place = gpu(1)}).synchronize();
  all_gather(alone, values.span(), copy.span(), gpu(1)).synchronize();
  EXPECT_THAT(copy.seen(), Each(3.0));
}

TEST_F(Gpus, AreAskedForTheFewestCallsOfNccl) {
  const Group alone;
  const OnGpu<float> one(0, 8, 1), other(0, 8);
  const auto asked = [&](Work work) {
    work.synchronize();
    return standin::take_nccl_calls();
  };
  const CollectiveOptions here{.place = gpu(0)};
  const std::vector<std::size_t> counts{8};
  EXPECT_THAT(asked(all_reduce(alone, one.span(), ReduceOp::sum, here)),
              ElementsAre("all_reduce 8 x float32 sum"));
  EXPECT_THAT(asked(all_reduce(alone, one.span(), ReduceOp::average, {.prescale = 2, .place = gpu(0)})),
              ElementsAre("all_reduce 8 x float32 sum scaled by 2"));
  EXPECT_THAT(asked(reduce(alone, one.span(), other.span(), 0, ReduceOp::max, here)),
              ElementsAre("reduce 8 x float32 max root 0"));
  EXPECT_THAT(asked(reduce_scatter(alone, one.span(), other.span(), ReduceOp::min, here)),
              ElementsAre("reduce_scatter 8 x float32 min"));
  EXPECT_THAT(asked(reduce_scatter_v(alone, one.span(), counts, other.span(), ReduceOp::sum, here)),
              ElementsAre("reduce 8 x float32 sum root 0"));
  EXPECT_THAT(asked(broadcast(alone, one.span(), 0, gpu(0))), ElementsAre("broadcast 32 x uint8 root 0"));
  EXPECT_THAT(asked(all_gather(alone, one.span(), other.span(), gpu(0))),
              ElementsAre("all_gather 32 x uint8"));
  EXPECT_THAT(asked(all_gather_v(alone, one.span(), other.span(), counts, gpu(0))),
              ElementsAre("broadcast 32 x uint8 root 0"));
  EXPECT_THAT(asked(all_to_all(alone, one.span(), other.span(), gpu(0))),
              ElementsAre("send 32 x uint8 to 0", "recv 32 x uint8 from 0"));
  EXPECT_THAT(asked(gather(alone, one.span(), other.span(), 0, gpu(0))),
              ElementsAre("recv 32 x uint8 from 0", "send 32 x uint8 to 0"));
  EXPECT_THAT(asked(gather(alone, one.span(), one.span(), 0, gpu(0))), IsEmpty())
      << "its own block lies there";
  EXPECT_THAT(asked(barrier(alone, gpu(0))), ElementsAre("all_reduce 1 x float32 sum"));
  EXPECT_THAT(asked(all_reduce(alone, std::span<float>(), ReduceOp::sum, here)), IsEmpty());
}

TEST_F(Gpus, SayWhatNcclCannot) {
  const Group alone;
  const OnGpu<std::int16_t> shorts(0, 4);
  const OnGpu<int> ints(0, 4);
  const auto refused = [&](const std::function<void()>& call) {
    return failure_of(call, ErrorCode::unsupported);
  };
  const CollectiveOptions here{.place = gpu(0)};
  EXPECT_THAT(refused([&] { all_reduce(alone, shorts.span(), ReduceOp::sum, here).wait(); }),
              HasSubstr("all_reduce (sum of i16 x 4): NCCL has no i16"));
  EXPECT_THAT(refused([&] { all_reduce(alone, ints.span(), ReduceOp::bxor, here).wait(); }),
              HasSubstr("NCCL has no bxor"));
  const auto first = custom_op<int>("first", [](int a, int) { return a; });
  EXPECT_THAT(refused([&] { all_reduce(alone, ints.span(), first, here).wait(); }),
              HasSubstr("a function of the program's own cannot run on a GPU"));
  EXPECT_THAT(refused([&] { send(alone, ints.span(), 0, 3, gpu(0)).wait(); }), HasSubstr("no tags"));
  EXPECT_THAT(refused([&] { recv(alone, ints.span(), any_source, 0, nullptr, gpu(0)).wait(); }),
              HasSubstr("name the source"));
  EXPECT_THAT(refused([&] { all_to_all(alone, ints.span(), ints.span(), gpu(0)).wait(); }),
              HasSubstr("pass another output"));
  EXPECT_THAT(refused([&] { send(alone, ints.span(), 0, 0, gpu(0)).wait(); }),
              HasSubstr("by sendrecv() only"));
  // None of these has closed the group.
  all_reduce(alone, ints.span(), ReduceOp::sum, here).synchronize();
}

TEST_F(Gpus, RefuseAStreamOfAnotherGpu) {
  const Group alone;
  const OnGpu<int> ints(0, 4);
  const ProgramStream stream(1);
  EXPECT_THAT(
      failure_of([&] { all_reduce(alone, ints.span(), ReduceOp::sum, {.place = gpu(0, stream)}).wait(); }),
      HasSubstr("the call's stream is none of this GPU's"));
  all_reduce(alone, ints.span(), ReduceOp::sum, {.place = gpu(0)}).synchronize();
}

TEST_F(Gpus, SayWhoseMemoryABufferIs) {
  const Group alone;
  std::vector<float> here(4);
  const OnGpu<float> values(0, 4), there(1, 4);
  EXPECT_THAT(failure_of([&] { all_reduce(alone, here, ReduceOp::sum, {.place = gpu(0)}).wait(); }),
              HasSubstr("all_reduce: input is main memory, but the call is for GPU 0"));
  EXPECT_THAT(failure_of([&] {
                all_reduce(alone, values.span(), there.span(), ReduceOp::sum, {.place = gpu(0)}).wait();
              }),
              HasSubstr("all_reduce: output is on GPU 1, but the call is for GPU 0"));
  EXPECT_THAT(failure_of([&] { all_reduce(alone, values.span(), ReduceOp::sum, {.place = gpu(4)}).wait(); },
                         ErrorCode::unsupported),
              HasSubstr("there is no GPU 4: this process sees 4"));
  EXPECT_THAT(
      failure_of([&] {
        all_reduce(alone, values.span(), values.span().first(3), ReduceOp::sum, {.place = gpu(0)}).wait();
      }),
      HasSubstr("output has 12 bytes"));
}

TEST_F(Gpus, AreInTheRecordWithTheirTimeThere) {
  on_ranks(2, [](const Group& world) {
    const int device = world.rank();
    const OnGpu<float> values(device, 10, 1);
    barrier(world, gpu(device)).synchronize();
    const std::uint64_t before = world.recorder().collectives();
    if (world.rank() == 1) std::this_thread::sleep_for(1000ms);
    all_reduce(world, values.span(), ReduceOp::sum, {.place = gpu(device)}).synchronize();
    const auto events = world.recorder().collectives_since(before);
    ASSERT_EQ(events.size(), 1);
    const auto& event = events.front();
    EXPECT_STREQ(event.algorithm, "nccl");
    EXPECT_EQ(event.operation, Operation::all_reduce);
    EXPECT_EQ(event.elements, 10);
    EXPECT_EQ(event.failed, 0);
    EXPECT_LE(event.begin_ns, event.arrived_ns);
    EXPECT_LE(event.arrived_ns, event.end_ns);
    if (world.rank() == 0) {
      EXPECT_GE(event.end_ns - event.arrived_ns, 40'000'000) << "its kernel waits for the other's";
    }
  });
}

TEST_F(Gpus, MayBeCapturedInAGraph) {
  const Group alone;
  const ProgramStream stream(0);
  const OnGpu<float> values(0, 10, 1);
  const std::uint64_t before = alone.recorder().collectives();
  standin::capture(stream, true);
  Work work = all_reduce(alone, values.span(), ReduceOp::sum, {.place = gpu(0, stream)});
  EXPECT_TRUE(work.wait_for(0ns)) << "nothing runs that could be waited for";
  standin::capture(stream, false);
  standin::synchronize(stream);
  EXPECT_EQ(alone.recorder().collectives(), before);
}

TEST_F(Gpus, LeaveAGraphAloneThatIsCapturedMeanwhile) {
  const Group alone;
  const ProgramStream captured(0), stream(0);
  const OnGpu<float> values(0, 10, 1);
  std::atomic<bool> may_end = false;
  standin::launch(stream, [&] { may_end.wait(false); });
  Work before = all_reduce(alone, values.span(), ReduceOp::sum, {.place = gpu(0, stream)});
  standin::capture(captured, true);
  std::this_thread::sleep_for(10ms);  // the watch has looked
  EXPECT_FALSE(before.test());
  standin::capture(captured, false);
  may_end = true;
  may_end.notify_all();
  before.synchronize();
}

TEST_F(Gpus, ConnectAtTheFirstCallAlone) {
  on_ranks(2, [](const Group& world) {
    const int device = world.rank();
    const OnGpu<float> values(device, 10, 1);
    EXPECT_EQ(standin::nccl_left(), 0);
    barrier(world).wait();
    all_reduce(world, values.span(), ReduceOp::sum, {.place = gpu(device)}).synchronize();
    all_reduce(world, values.span(), ReduceOp::sum, {.place = gpu(device)}).synchronize();
    barrier(world).wait();
    EXPECT_EQ(standin::nccl_left(), 2);
    barrier(world).wait();
  });
}

}  // namespace
}  // namespace lockstep

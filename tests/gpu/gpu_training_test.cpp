// Training whose tensors and gradients stay on a GPU, by NCCL. All tests of training on another device
// (lockstep/train/trials/other_device_test.cpp) are in this program, too: libtorch's made-up device has its memory on the
// stand-in's GPUs here, so that the group's calls are carried there, as on a real one.
#include "lockstep/backend/device_arena/kernel_image.h"
#include "lockstep/base/half.h"
#include "lockstep/trace/recorder.h"
#include "lockstep/train/data_parallel/communication_hook.h"
#include "lockstep/train/data_parallel/data_parallel.h"
#include "lockstep/train/data_parallel/data_parallel_test.h"
#include "lockstep/train/horovod/distributed_optimizer.h"
#include "lockstep/train/horovod/gradient_tape.h"
#include "lockstep/train/horovod/named_tensors.h"
#include "lockstep/train/pipeline/pipeline.h"
#include "lockstep/train/pipeline/stage_links.h"
#include "lockstep/train/pipeline/stage_messages.h"
#include "lockstep/train/tensor/fake_device_test.h"
#include "lockstep/train/tensor/gpu_place.h"
#include "lockstep/train/tensor/ranks_test.h"
#include "lockstep/train/tensor/tensor_collectives.h"
#include "tests/gpu/fake_device_on_standin.h"
#include "tests/gpu/on_gpus_test.h"

namespace lockstep {
namespace {

using namespace test;
using ::testing::Contains;
using ::testing::DoubleNear;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::Pointwise;

/// Before main(), as the first tensor is made after it.
[[maybe_unused]] const bool is_set_up = [] {
  gpu_kind = fake_kind;
  put_fake_devices_on_standin();
  return true;
}();

torch::Tensor on_gpu(const Group& group, const torch::Tensor& tensor) {
  return tensor.to(fake_device(group.rank()));
}

TEST(TensorsOnGpus, GoByNccl) {
  (void)standin::take_nccl_calls();
  on_ranks(3, [](const Group& group) {
    const int rank = group.rank();
    const auto values = on_gpu(group, torch::full({4}, static_cast<float>(rank + 1)));
    all_reduce(group, values, ReduceOp::average).wait();
    EXPECT_TRUE(torch::equal(values.cpu(), torch::full({4}, 2.0F))) << values.cpu();
    broadcast(group, values.fill_(rank), 1).wait();
    EXPECT_TRUE(torch::equal(values.cpu(), torch::ones({4})));
    const auto all = on_gpu(group, torch::zeros({12}));
    all_gather(group, values.fill_(rank), all).wait();
    const auto in_order = torch::arange(3, torch::kFloat32).repeat_interleave(4);
    EXPECT_TRUE(torch::equal(all.cpu(), in_order)) << all.cpu();
    const auto exchanged = on_gpu(group, torch::zeros({12}));
    all_to_all(group, on_gpu(group, in_order + 10 * rank), exchanged).wait();
    EXPECT_TRUE(torch::equal(exchanged.cpu(),
                             (torch::arange(3) * 10 + rank).repeat_interleave(4).to(torch::kFloat32)))
        << exchanged.cpu();
    reduce_scatter(group, all, values).wait();
    EXPECT_TRUE(torch::equal(values.cpu(), torch::full({4}, 3.0F * static_cast<float>(rank))))
        << values.cpu();
    reduce(group, values, rank == 2 ? values : torch::Tensor(), 2).wait();
    if (rank == 2) {
      EXPECT_TRUE(torch::equal(values.cpu(), torch::full({4}, 9.0F))) << values.cpu();
    }
    const auto rows = on_gpu(group, torch::zeros({12}));
    gather(group, values.fill_(rank), rank == 0 ? rows : torch::Tensor(), 0).wait();
    scatter(group, rank == 0 ? rows : torch::Tensor(), values, 0).wait();
    EXPECT_TRUE(torch::equal(values.cpu(), torch::full({4}, static_cast<float>(rank)))) << values.cpu();
  });
  const auto calls = standin::take_nccl_calls();
  for (const char* const call :
       {"all_reduce 4 x float32 average", "broadcast 16 x uint8 root 1", "all_gather 16 x uint8",
        "reduce_scatter 4 x float32 sum", "reduce 4 x float32 sum root 2"}) {
    EXPECT_THAT(calls, Contains(call));
  }
}

TEST(TensorsOnGpus, GatherIntoAListOfTensors) {
  on_ranks(2, [](const Group& group) {
    std::vector<torch::Tensor> outputs = {on_gpu(group, torch::zeros({3})), on_gpu(group, torch::zeros({5}))};
    const auto mine =
        on_gpu(group, torch::full({group.rank() == 0 ? 3 : 5}, static_cast<float>(group.rank() + 1)));
    all_gather(group, mine, outputs).synchronize();
    EXPECT_TRUE(torch::equal(outputs[0].cpu(), torch::ones({3})));
    EXPECT_TRUE(torch::equal(outputs[1].cpu(), torch::full({5}, 2.0F)));
  });
}

TEST(TensorsOnGpus, GoThroughMainMemoryWhereNcclHasNoSuchReduction) {
  on_ranks(2, [](const Group& group) {
    const auto bits = on_gpu(group, torch::full({4}, group.rank() + 1, torch::kInt64));
    all_reduce(group, bits, ReduceOp::bor).wait();
    EXPECT_TRUE(torch::equal(bits.cpu(), torch::full({4}, 3, torch::kInt64)));
    const auto shorts = on_gpu(group, torch::full({4}, group.rank() + 1, torch::kInt16));
    all_reduce(group, shorts).wait();
    EXPECT_TRUE(torch::equal(shorts.cpu(), torch::full({4}, 3, torch::kInt16)));
  });
}

TEST(TensorsOnGpus, OfSeveralCallsAreUnderWayYetWhenTheStreamFollowsThem) {
  on_ranks(2, [](const Group& group) {
    std::vector<torch::Tensor> many;
    for (int i = 0; i < 40; ++i) many.push_back(on_gpu(group, torch::full({3}, static_cast<float>(i))));
    all_reduce(group, many[0].clone()).synchronize();  // which connects them
    standin::launch(
        nullptr, [] { std::this_thread::sleep_for(std::chrono::milliseconds(100)); }, group.rank());
    Work work = all_reduce_grouped(group, many);
    work.follow();
    EXPECT_FALSE(work.wait_for(std::chrono::nanoseconds(0)));
    work.synchronize();
    for (int i = 0; i < 40; ++i)
      EXPECT_TRUE(torch::equal(many[static_cast<std::size_t>(i)].cpu(),
                               torch::full({3}, 2.0F * static_cast<float>(i))));
  });
}

TEST(TensorsOnGpus, OfOneCallAreOnOneDevice) {
  on_ranks(2, [](const Group& group) {
    const auto input = on_gpu(group, torch::zeros({8}));
    const auto text = failure_of([&] { reduce_scatter(group, input, torch::zeros({4})).wait(); });
    EXPECT_THAT(text, HasSubstr("reduce_scatter's output is f32 [4], but the call's other tensor is on GPU " +
                                std::to_string(group.rank())));
  });
}

/// What ranks submit by name stays on their GPUs.
TEST(NamedOnGpus, GoByNccl) {
  (void)standin::take_nccl_calls();
  on_ranks(3, [](const Group& group) {
    const NamedCollectives named(group);
    const int rank = group.rank();
    const auto a = on_gpu(group, torch::full({4}, static_cast<float>(rank)));
    const auto b = on_gpu(group, torch::full({2, 3}, static_cast<float>(10 * rank)));
    // In another order on each rank.
    NamedResult first = rank == 1 ? all_reduce_(named, b, "b") : all_reduce_(named, a, "a");
    NamedResult second = rank == 1 ? all_reduce_(named, a, "a") : all_reduce_(named, b, "b");
    (void)first.wait();
    (void)second.wait();
    EXPECT_TRUE(torch::equal(a.cpu(), torch::ones({4}))) << a.cpu();
    EXPECT_TRUE(torch::equal(b.cpu(), torch::full({2, 3}, 10.0F))) << b.cpu();
    const auto c = on_gpu(group, torch::full({5}, static_cast<float>(rank)));
    const torch::Tensor copied = broadcast(named, c, 2, "c").wait();
    EXPECT_TRUE(torch::equal(copied.cpu(), torch::full({5}, 2.0F)));
    EXPECT_TRUE(torch::equal(c.cpu(), torch::full({5}, static_cast<float>(rank))));
    EXPECT_EQ(copied.device(), c.device());
    for (int step = 0; step < 3; ++step) {  // whose name is known
      const std::vector<torch::Tensor> both = {on_gpu(group, torch::ones({7})),
                                               on_gpu(group, torch::full({1}, 2.0F))};
      all_reduce_grouped_(named, both, "both", ReduceOp::sum, {.prescale = 0.5F}).wait();
      EXPECT_TRUE(torch::equal(both[0].cpu(), torch::full({7}, 1.5F)));
      EXPECT_TRUE(torch::equal(both[1].cpu(), torch::full({1}, 3.0F)));
    }
  });
  const auto calls = standin::take_nccl_calls();
  for (const char* const call : {"all_reduce 4 x float32 average", "all_reduce 6 x float32 average",
                                 "broadcast 20 x uint8 root 2", "all_reduce 7 x float32 sum"}) {
    EXPECT_THAT(calls, Contains(HasSubstr(call)));
  }
}

TEST(NamedOnGpus, OfOneCallAreOneCallOfNccl) {
  (void)standin::take_largest_nccl_group();
  on_ranks(2, [](const Group& group) {
    const NamedCollectives named(group);
    std::vector<torch::Tensor> many;
    for (int i = 0; i < 40; ++i)
      many.push_back(on_gpu(group, torch::full({i % 3 + 1}, static_cast<float>(i))));
    all_reduce_grouped_(named, many, "many", ReduceOp::sum).wait();
    for (int i = 0; i < 40; ++i) {
      const auto sum = torch::full({i % 3 + 1}, 2.0F * static_cast<float>(i));
      EXPECT_TRUE(torch::equal(many[static_cast<std::size_t>(i)].cpu(), sum));
    }
  });
  EXPECT_EQ(standin::take_largest_nccl_group(), 32);
}

TEST(NamedOnGpus, WaitForWhatTheProgramsStreamHasGot) {
  on_ranks(2, [](const Group& group) {
    const NamedCollectives named(group);
    const int device = group.rank();
    const OnGpu<float> values(device, 1000, -1);
    const cuda::Stream stream = standin::make_stream(device);
    standin::launch(stream, [&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      std::ranges::fill(values.seen(), 1.0F);
    });
    NamedBuffers buffers{.in_place = {std::as_writable_bytes(values.span())},
                         .place = {.device = device, .stream = stream}};
    named
        .submit({.name = "late",
                 .operation = Operation::all_reduce,
                 .dtype = Dtype::f32,
                 .reduce_op = ReduceOp::sum,
                 .shapes = {{1000}}},
                std::move(buffers))
        .wait();
    EXPECT_THAT(values.seen(), Each(2.0F));
    standin::destroy_stream(stream);
  });
}

TEST(NamedOnGpus, GoThroughMainMemoryWhereOneRanksDoes) {
  (void)standin::take_nccl_calls();
  on_ranks(2, [](const Group& group) {
    const NamedCollectives named(group);
    for (int step = 0; step < 3; ++step) {
      auto mine = torch::full({4}, static_cast<float>(group.rank() + 1));
      if (group.rank() == 0) mine = on_gpu(group, mine);
      (void)all_reduce_(named, mine, "some", ReduceOp::sum).wait();
      EXPECT_TRUE(torch::equal(mine.cpu(), torch::full({4}, 3.0F))) << mine.cpu();
    }
    const auto bits = on_gpu(group, torch::full({4}, group.rank() + 1, torch::kInt64));
    (void)all_reduce_(named, bits, "bits", ReduceOp::bor).wait();
    EXPECT_TRUE(torch::equal(bits.cpu(), torch::full({4}, 3, torch::kInt64)));
  });
  EXPECT_THAT(standin::take_nccl_calls(), IsEmpty());
}

TEST(NamedOnGpus, GoOnWithoutRanksThatHaveJoined) {
  on_ranks(3, [](const Group& group) {
    const NamedCollectives named(group);
    for (int step = 0; step < 2 + group.rank(); ++step) {
      const auto values = on_gpu(group, torch::ones({4}));
      (void)all_reduce_(named, values, "sum", ReduceOp::sum).wait();
      EXPECT_TRUE(
          torch::equal(values.cpu(), torch::full({4}, step < 2 ? 3.0F : static_cast<float>(4 - step))))
          << step << values.cpu();
    }
    EXPECT_EQ(named.join(), 2);
    const auto values = on_gpu(group, torch::ones({4}));
    (void)all_reduce_(named, values, "sum", ReduceOp::sum).wait();
    EXPECT_TRUE(torch::equal(values.cpu(), torch::full({4}, 3.0F)));
  });
}

/// A rank that waits in one set for a second one, which waits for a third in another, and so on around, waits for ever.
TEST(NamedOnGpus, OfSetsThatOverlapBeginInAnyOrder) {
  on_ranks(3, [](const Group& group) {
    const NamedCollectives named(group);
    const std::vector<std::vector<int>> members = {{0, 1}, {1, 2}, {2, 0}};
    std::vector<NamedCollectives> sets;
    for (const auto& ranks : members)
      if (std::ranges::count(ranks, group.rank()) > 0) sets.push_back(named.process_set(ranks));
    for (int step = 0; step < 5; ++step) {
      std::vector<std::vector<torch::Tensor>> tensors;
      std::vector<Work> works;
      for (const NamedCollectives& set : sets) {
        auto& many = tensors.emplace_back();  // more than an engine has slots for
        for (int i = 0; i < 40; ++i)
          many.push_back(on_gpu(group, torch::full({4}, static_cast<float>(group.rank() + 1))));
        works.push_back(all_reduce_grouped_(set, many, "sums", ReduceOp::sum));
      }
      for (Work& work : works) work.wait();
      float sum = 0;
      for (const auto& many : tensors)
        for (const torch::Tensor& tensor : many) sum += tensor.cpu()[0].item<float>();
      EXPECT_EQ(sum, 40.0F * (6 + static_cast<float>(group.rank() + 1)));
    }
  });
}

TEST(NamedOnGpus, OfOneRankAloneEnd) {
  on_ranks(1, [](const Group& group) {
    const NamedCollectives named(group);
    const auto values = on_gpu(group, torch::ones({4}));
    (void)all_reduce_(named, values, "alone", ReduceOp::average, {.prescale = 3.0F}).wait();
    EXPECT_TRUE(torch::equal(values.cpu(), torch::full({4}, 3.0F))) << values.cpu();
  });
}

TEST(NamedOnGpus, OfARanksOtherGpusGoThroughMainMemory) {
  (void)standin::take_nccl_calls();
  on_ranks(2, [](const Group& group) {
    const NamedCollectives named(group);
    for (int step = 0; step < 3; ++step) {
      const auto here = on_gpu(group, torch::full({4}, static_cast<float>(group.rank())));
      const auto elsewhere =
          torch::full({5}, static_cast<float>(group.rank())).to(fake_device(group.rank() + 2));
      NamedResult first = all_reduce_(named, here, "here", ReduceOp::sum);
      NamedResult second = all_reduce_(named, elsewhere, "elsewhere", ReduceOp::sum);
      (void)second.wait();
      (void)first.wait();
      EXPECT_TRUE(torch::equal(here.cpu(), torch::ones({4}))) << here.cpu();
      EXPECT_TRUE(torch::equal(elsewhere.cpu(), torch::ones({5}))) << elsewhere.cpu();
    }
  });
  const auto calls = standin::take_nccl_calls();
  EXPECT_THAT(calls, Contains(HasSubstr("all_reduce 4 x float32 sum")));
  EXPECT_THAT(calls, Not(Contains(HasSubstr("all_reduce 5 x float32 sum"))));
}

TEST(NamedOnGpus, ThatAreRefusedLeaveTheirNamesFree) {
  on_ranks(2, [](const Group& group) {
    const NamedCollectives named(group);
    const int device = group.rank();
    const NamedRequest request{.name = "x",
                               .operation = Operation::all_reduce,
                               .dtype = Dtype::f32,
                               .reduce_op = ReduceOp::sum,
                               .shapes = {{4}}};
    std::vector<float> in_main_memory(4, 1);
    const OnGpu<float> there(device, 4, 1);
    const auto refusal = [&](std::span<float> values, MemoryPlace place, NamedRequest of,
                             ErrorCode code = ErrorCode::invalid_argument) {
      NamedBuffers buffers{.in_place = {std::as_writable_bytes(values)}, .place = place};
      return failure_of([&] { named.submit(std::move(of), std::move(buffers)).wait(); }, code);
    };
    EXPECT_THAT(refusal(in_main_memory, {.device = device}, request),
                HasSubstr("all_reduce \"x\" (sum of f32 [4]) is main memory, but the call is for GPU"));
    const cuda::Stream of_another = standin::make_stream(device + 2);
    EXPECT_THAT(refusal(there.span(), {.device = device, .stream = of_another}, request),
                HasSubstr("the call's stream is none of this GPU's"));
    standin::destroy_stream(of_another);
    const auto gathering = [&](std::vector<float>& output) {
      NamedBuffers buffers{.place = {.device = device},
                           .input = std::as_bytes(there.span()),
                           .make_output = [&](auto) { return std::as_writable_bytes(std::span(output)); }};
      named
          .submit({.name = "y", .operation = Operation::all_gather, .shapes = {{4}}, .rows = {4}},
                  std::move(buffers))
          .wait();
    };
    NamedBuffers buffers{.in_place = {std::as_writable_bytes(there.span())}, .place = {.device = device}};
    named.submit(request, std::move(buffers)).wait();
    EXPECT_THAT(there.seen(), Each(2.0F));
    // Which is found when all ranks are there: what waits for this one ends.
    std::vector<float> not_there(8);
    try {
      gathering(not_there);
      ADD_FAILURE() << "it was taken";
    } catch (const Error& error) {  // this rank's own, or what the other one has told
      EXPECT_THAT(
          error.what(),
          HasSubstr("all_gather \"y\" (u8 rows of [4]): output is main memory, but the call is for GPU"));
    }
  });
}

/// What all ranks give, whose sizes differ, each on its own GPU.
void require_results_of_any_size(const Group& group, const NamedCollectives& named) {
  const int rank = group.rank();
  for (int step = 0; step < 3; ++step) {
    const auto given = on_gpu(group, torch::full({rank + 1, 2}, static_cast<float>(rank)));
    const torch::Tensor gathered = all_gather(named, given, "gathered").wait();
    EXPECT_EQ(gathered.device(), given.device());
    EXPECT_TRUE(
        torch::equal(gathered.cpu(), torch::tensor({0.0F, 0.0F, 1.0F, 1.0F, 1.0F, 1.0F}).view({3, 2})))
        << gathered.cpu();
    const auto alike = on_gpu(group, torch::full({1, 2}, static_cast<float>(rank)));
    EXPECT_TRUE(torch::equal(all_gather(named, alike, "alike").wait().cpu(),
                             torch::tensor({0.0F, 0.0F, 1.0F, 1.0F}).view({2, 2})));
    const auto to_send = on_gpu(group, torch::arange(3, torch::kInt64) + 10 * rank);
    const torch::Tensor arrived = all_to_all(named, to_send, "sent", {rank + 1, 2 - rank}).wait();
    const auto expected =
        rank == 0 ? torch::tensor({0, 10, 11}, torch::kInt64) : torch::tensor({1, 2, 12}, torch::kInt64);
    EXPECT_TRUE(torch::equal(arrived.cpu(), expected)) << arrived.cpu();
    const auto to_add = on_gpu(group, torch::arange(3, torch::kFloat));
    const torch::Tensor share = reduce_scatter(named, to_add, "share", ReduceOp::sum).wait();
    EXPECT_TRUE(torch::equal(share.cpu(), rank == 0 ? torch::tensor({0.0F, 2.0F}) : torch::tensor({4.0F})))
        << share.cpu();
    const auto even = on_gpu(group, torch::arange(4, torch::kFloat));
    const torch::Tensor half = reduce_scatter(named, even, "half").wait();
    EXPECT_TRUE(torch::equal(half.cpu(), torch::arange(2, torch::kFloat) + 2.0F * static_cast<float>(rank)))
        << half.cpu();
  }
}

TEST(NamedOnGpus, MakeTheirResultsThere) {
  (void)standin::take_nccl_calls();
  on_ranks(2, [](const Group& group) { require_results_of_any_size(group, NamedCollectives(group)); });
  const auto calls = standin::take_nccl_calls();
  for (const char* const call :
       {"all_gather 8 x uint8", "reduce_scatter 2 x float32 average", "reduce 2 x float32 sum root 0",
        "reduce 1 x float32 sum root 1", "send 16 x uint8"})
    EXPECT_THAT(calls, Contains(HasSubstr(call)));
}

TEST(NamedOnGpus, MakeTheirResultsInMainMemoryWhereOneRanksIs) {
  (void)standin::take_nccl_calls();
  on_ranks(2, [](const Group& group) {
    const NamedCollectives named(group);
    for (int step = 0; step < 2; ++step) {
      auto mine = torch::full({group.rank() + 1}, static_cast<float>(group.rank()));
      if (group.rank() == 0) mine = on_gpu(group, mine);
      const torch::Tensor gathered = all_gather(named, mine, "gathered").wait();
      EXPECT_EQ(gathered.device(), mine.device());
      EXPECT_TRUE(torch::equal(gathered.cpu(), torch::tensor({0.0F, 1.0F, 1.0F}))) << gathered.cpu();
      const auto bits = on_gpu(group, torch::full({2, 4}, group.rank() + 1, torch::kInt16));
      EXPECT_TRUE(torch::equal(reduce_scatter(named, bits, "bits", ReduceOp::sum).wait().cpu(),
                               torch::full({1, 4}, 3, torch::kInt16)));
    }
  });
  EXPECT_THAT(standin::take_nccl_calls(), IsEmpty());
}

torch::Tensor squares(const torch::Tensor& output, const torch::Tensor& target) {
  return torch::mse_loss(output, target);
}

/// Whose second layer hands on two tensors.
Layers skipping_layers(int broken_at = -1) {
  Layers layers;
  layers.add<torch::nn::Linear>(4, 4).add(
      [](const torch::Tensor& x) { return std::tuple(x, torch::tanh(x)); });
  layers.add([](const torch::Tensor& x, const torch::Tensor& skipped) { return x + skipped; });
  layers.add<torch::nn::Linear>(4, 4)
      .add(torch::tanh)
      .add([broken_at, calls = std::make_shared<int>(0)](const torch::Tensor& x) {
        if ((*calls)++ == broken_at) throw std::runtime_error("it broke");
        return x;
      });
  return layers;
}

/// The losses of a few steps; what the ranks begin with is the same each time.
std::vector<double> losses_of(const Group& group, torch::Device device, const std::string& schedule) {
  Pipeline pipe(skipping_layers(), group,
                {.schedule = schedule,
                 .micro_batches = 12,
                 .stages_per_rank = schedule == "1f1b" ? 1 : 3,
                 .cut = schedule == "1f1b" ? std::vector<std::size_t>{2, 4} : std::vector<std::size_t>(),
                 .device = device});
  {
    const torch::NoGradGuard no_grad;
    for (const torch::Tensor& parameter : pipe.parameters()) parameter.fill_(0.1);
  }
  torch::optim::SGD optimizer(pipe.parameters(), 0.1);
  std::vector<double> losses;
  for (int step = 0; step < 3; ++step) {
    pipe.zero_grad();
    const auto batch = torch::arange(64).view({16, 4}) * 0.02 + 0.1 * step;
    losses.push_back(pipe.step(batch, batch + 1, squares));
    optimizer.step();
  }
  return losses;
}

TEST(PipelinesOnGpus, HandOnByNccl) {
  (void)standin::take_nccl_calls();
  for (const std::string schedule : {"gpipe", "1f1b", "interleaved"}) {
    on_ranks(2, [&](const Group& group) {
      const auto expected = losses_of(group, torch::kCPU, schedule);
      EXPECT_THAT(losses_of(group, fake_device(group.rank()), schedule),
                  Pointwise(DoubleNear(1e-5), expected));
    });
    const auto calls = standin::take_nccl_calls();
    const auto count = [&](const char* what) {
      return std::ranges::count_if(calls, [&](const std::string& call) { return call.starts_with(what); });
    };
    // Three steps of twelve micro-batches: an activation and a gradient across each cut, two tensors as one. Before, one for each link.
    const int cuts = schedule == "1f1b" ? 1 : 5, links = schedule == "1f1b" ? 2 : 4;
    EXPECT_EQ(count("send"), 3 * 12 * 2 * cuts + links) << schedule;
    EXPECT_EQ(count("recv"), count("send"));
  }
}

TEST(PipelinesOnGpus, OfRanksThatShareOneHaveLinksThere) {
  device_arena::take_kernels_of_the_driver();
  on_ranks(2, [](const Group& group) {
    const StageLinks links(group, {.ranks = 2, .stages = 2}, fake_device(0));
    EXPECT_NE(links.between(0, 1, pipeline::Payload::activation), nullptr);
    EXPECT_NE(links.between(1, 0, pipeline::Payload::gradient), nullptr);
    EXPECT_EQ(links.between(1, 0, pipeline::Payload::activation), nullptr);
  });
}

/// An optimizer would step by what never came.
TEST(PipelinesOnGpus, SayAtTheEndOfAStepThatAMessageFailedOnItsWay) {
  on_ranks(2, [](const Group& group) {
    const StageLinks links(group, {.ranks = 2, .stages = 2}, fake_device(group.rank()));
    StageMessages messages(group, links);
    if (group.rank() == 0) {
      const torch::Tensor made = on_gpu(group, torch::ones({4})).requires_grad_();
      (void)messages.receive_gradient({made}, 1);
      barrier(group).wait();
      EXPECT_THROW(messages.finish(), Error);
    } else {
      const torch::Tensor header = torch::zeros({16}, torch::kUInt8);
      header[0] = 1;
      send(group, header, 0, 1).wait();  // and not what it speaks of
      barrier(group).wait();
      links.abort(std::runtime_error("its GPU has failed"));
    }
  });
}

TEST(PipelinesOnGpus, EndOnAllRanksWithOne) {
  const auto endings = run_ranks(2, [](const Group& group) {
    Pipeline pipe(skipping_layers(5), group, {.micro_batches = 8, .device = fake_device(group.rank())});
    const auto batch = torch::ones({16, 4});
    pipe.step(batch, batch, squares);
  });
  for (const Ending& ending : endings)
    EXPECT_THAT(ending.text, HasSubstr("pipeline, stage 1, micro-batch 5: layer \"5\": it broke"));
}

/// Looks at where buckets are.
class Looking final : public CommunicationHook {
 public:
  std::string name() const override { return "looking"; }
  Work begin(const GradientBucket& bucket) override {
    EXPECT_EQ(bucket.flat.device().type(), fake_kind);
    EXPECT_EQ(bucket.scratch({3}, torch::kHalf).device(), bucket.flat.device());
    return bucket.average(bucket.flat);
  }
};

TEST(GradientsOnGpus, StayThere) {
  on_ranks(2, [](const Group& group) {
    auto net = ones(3, 2);
    net->to(fake_device(group.rank()));
    DistributedDataParallel ddp(net, group, {.communication_hook = std::make_shared<Looking>()});
    for (int step = 0; step < 3; ++step) {
      net->zero_grad();
      ddp(on_gpu(group, row(group.rank() + 1))).sum().backward();
      EXPECT_EQ(net->weight.grad().device(), net->weight.device());
      const auto gradient = net->weight.grad().cpu();
      EXPECT_TRUE(torch::allclose(gradient, torch::full_like(gradient, average_of_inputs(group))))
          << gradient;
    }
  });
}

TEST(GradientsOnGpus, AreViewsOfTheirBuckets) {
  (void)standin::take_nccl_calls();
  on_ranks(2, [](const Group& group) {
    auto net = ones(3, 2);
    net->to(fake_device(group.rank()));
    DistributedDataParallel ddp(net, group);
    ddp(on_gpu(group, row(group.rank() + 1))).sum().backward();
    EXPECT_TRUE(net->weight.grad().is_alias_of(net->bias.grad())) << "no copy back";
  });
  EXPECT_THAT(standin::take_nccl_calls(), Not(IsEmpty()));
}

/// Has rank 1's GPU be slow, which no host notices.
class SlowOnRankOne final : public CommunicationHook {
 public:
  std::string name() const override { return "slow on rank 1"; }
  Work begin(const GradientBucket& bucket) override {
    const int rank = bucket.group.rank();
    if (rank == 1)
      standin::launch(
          nullptr, [] { std::this_thread::sleep_for(std::chrono::milliseconds(200)); }, rank);
    return bucket.average(bucket.flat);
  }
};

TEST(GradientsOnGpus, AreWaitedForInTheRecordByTheGpusClock) {
  on_ranks(2, [](const Group& group) {
    auto net = ones(3, 2);
    net->to(fake_device(group.rank()));
    {
      DistributedDataParallel ddp(net, group, {.communication_hook = std::make_shared<SlowOnRankOne>()});
      ddp(on_gpu(group, row(group.rank() + 1))).sum().backward();
      (void)net->weight.grad().cpu();  // its GPU is through
    }
    const auto steps = group.recorder().steps_since(0);
    ASSERT_EQ(steps.size(), 1U);
    if (group.rank() == 0) {
      EXPECT_GT(steps[0].exposed_wait_ns, 100'000'000U);
    } else {
      EXPECT_LT(steps[0].exposed_wait_ns, 100'000'000U) << "what is its own is no wait";
    }
  });
}

TEST(GradientsOnGpus, ThatFindNoRoomNameTheirBucket) {
  const auto endings = run_ranks(2, [](const Group& group) {
    auto net = ones(1 << 20, 4);
    net->to(fake_device(group.rank()));
    // All but 8 of 256 MiB.
    const auto rest = torch::empty({(256 << 20) - (16 << 20) - (8 << 20)},
                                   torch::dtype(torch::kUInt8).device(fake_device(group.rank())));
    const DistributedDataParallel ddp(net, group);
  });
  for (const auto& ending : endings) {
    EXPECT_EQ(ending.code, ErrorCode::system);
    EXPECT_THAT(ending.text,
                ::testing::ContainsRegex("the gradients' bucket of [0-9]+ bytes on hpu:[01]: out of memory"));
  }
}

TEST(GradientsOnGpus, OfADistributedOptimizerStayThere) {
  (void)standin::take_nccl_calls();
  on_ranks(2, [](const Group& group) {
    auto net = ones(3, 2);
    net->to(fake_device(group.rank()));
    torch::optim::SGD sgd(net->parameters(), 0.5);
    DistributedOptimizer optimizer(sgd, *net, group);
    net->forward(on_gpu(group, row(group.rank() + 1))).sum().backward();
    optimizer.step();
    const auto weight = net->weight.cpu();
    EXPECT_TRUE(torch::allclose(weight, torch::full_like(weight, 1 - 0.5 * average_of_inputs(group))))
        << weight;
  });
  EXPECT_THAT(standin::take_nccl_calls(), Contains(HasSubstr("float32 average")));
}

TEST(GradientsOnGpus, OfATapeTravelAsOneTensor) {
  for (const auto compression : {Compression::none, Compression::bf16}) {
    (void)standin::take_nccl_calls();
    on_ranks(2, [&](const Group& group) {
      auto net = ones(3, 2);
      net->to(fake_device(group.rank()));
      DistributedGradientTape tape(group, {.compression = compression});
      for (int step = 0; step < 3; ++step) {
        const auto loss = net->forward(on_gpu(group, row(group.rank() + 1))).sum();
        const auto gradients = tape.gradient(loss, net->parameters());
        ASSERT_EQ(gradients.size(), 2U);
        EXPECT_EQ(gradients[0].device(), net->weight.device());
        EXPECT_TRUE(torch::allclose(gradients[0].cpu(), torch::full({2, 3}, average_of_inputs(group))))
            << gradients[0].cpu();
        EXPECT_TRUE(torch::allclose(gradients[1].cpu(), torch::ones({2})));
      }
    });
    const char* const type = compression == Compression::none ? "float32" : "bfloat16";
    EXPECT_THAT(standin::take_nccl_calls(),
                Each(HasSubstr("all_reduce 8 x " + std::string(type) + " average")));
  }
}

TEST(GradientsOnGpus, OfATapeAreOfTheSameSourcesOnAllRanks) {
  const auto endings = run_ranks(2, [](const Group& group) {
    auto net = group.rank() == 0 ? ones(3, 2) : ones(2, 3);
    net->to(fake_device(group.rank()));
    DistributedGradientTape tape(group);
    const auto loss = net->forward(on_gpu(group, torch::ones({1, group.rank() == 0 ? 3 : 2}))).sum();
    (void)tape.gradient(loss, net->parameters());
  });
  for (const auto& ending : endings) {
    EXPECT_EQ(ending.code, ErrorCode::mismatch);
    EXPECT_THAT(ending.text, HasSubstr("all ranks take gradients of the same sources"));
  }
}

}  // namespace
}  // namespace lockstep

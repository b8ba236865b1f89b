// Training whose tensors and gradients stay on a GPU, by NCCL. All tests of training on another device
// (lockstep/train/trials/other_device_test.cpp) are in this program, too: libtorch's made-up device has its memory on the
// stand-in's GPUs here, so that the group's calls are carried there, as on a real one.
#include "lockstep/base/half.h"
#include "lockstep/train/data_parallel/communication_hook.h"
#include "lockstep/train/data_parallel/data_parallel.h"
#include "lockstep/train/data_parallel/data_parallel_test.h"
#include "lockstep/train/horovod/distributed_optimizer.h"
#include "lockstep/train/horovod/gradient_tape.h"
#include "lockstep/train/horovod/named_tensors.h"
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
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

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
    EXPECT_THAT(refusal(there.span(), {.device = device},
                        {.name = "x", .operation = Operation::all_gather, .shapes = {{4}}, .rows = {4}},
                        ErrorCode::unsupported),
                HasSubstr("of a GPU's memory named operations take all_reduce and broadcast"));
    NamedBuffers buffers{.in_place = {std::as_writable_bytes(there.span())}, .place = {.device = device}};
    named.submit(request, std::move(buffers)).wait();
    EXPECT_THAT(there.seen(), Each(2.0F));
  });
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

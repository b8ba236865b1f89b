#include "lockstep/train/devices/device_data_parallel.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <stdexcept>
#include <thread>

#include "lockstep/train/data_parallel/data_parallel.h"
#include "lockstep/train/tensor/device_ranks_test.h"
#include "lockstep/train/tensor/fake_device_test.h"
#include "lockstep/train/tensor/ranks_test.h"

namespace lockstep {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using torch::nn::Linear;
using torch::nn::Sequential;

template <class Call>
std::string error_of(const Call& call) {
  try {
    call();
  } catch (const Error& error) {
    return std::string(to_string(error.code())) + ": " + error.what();
  }
  return "nothing was thrown";
}

/// Of a generator of its own, because ranks are threads here.
Sequential make_net(std::uint64_t seed = 1) {
  Sequential net(Linear(6, 16), torch::nn::Tanh(), Linear(16, 3));
  net->to(torch::kFloat64);
  const torch::NoGradGuard no_grad;
  const auto generator = at::detail::createCPUGenerator(seed);
  for (auto& parameter : net->parameters()) parameter.uniform_(-0.3, 0.3, generator);
  return net;
}

/// As many as there are, and no more than three.
std::vector<torch::Device> other_devices() {
  std::vector<torch::Device> all = {test::other_device(0)};
  for (int i = 1; i < 3 && test::other_device(i) != all[0]; ++i) all.push_back(test::other_device(i));
  return all;
}

/// On slots of the CPU, and on others.
struct Place {
  std::vector<torch::Device> devices;
  ReplicaOptions options;
};
std::vector<Place> places() {
  std::vector<Place> all;
  for (const auto variables : {Variables::central, Variables::mirrored}) {
    all.push_back({devices("cpu:2"), {.variables = variables}});
    all.push_back({other_devices(), {.variables = variables}});
  }
  return all;
}

TEST(Devices, AreSlotsOfTheCpuOrGpus) {
  EXPECT_EQ(devices("cpu"), (std::vector<torch::Device>{torch::kCPU}));
  EXPECT_EQ(devices("cpu:2").size(), 2U);
  EXPECT_EQ(devices("cpu,cpu:2").size(), 3U);
  for (const char* name : {"", "cpu:0", "cpu:x", "cpu:", "cpu:99999", "cpux", "tpu", "cpu,", "cuda:x", "cud"})
    EXPECT_THAT(error_of([&] { devices(name); }),
                HasSubstr("invalid_argument: devices \"" + std::string(name) + "\": "))
        << name;
  if (!torch::cuda::is_available()) {
    EXPECT_THAT(error_of([] { devices("cuda"); }), HasSubstr("unsupported: "));
    EXPECT_THAT(error_of([] { devices("cpu,cuda:1"); }), HasSubstr("unsupported: "));
  }
}

/// Trains with batches of different sizes; parameters at the end.
template <class Net, class Step>
std::vector<torch::Tensor> train(Net& net, const Step& step) {
  torch::optim::SGD sgd(net->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
  const auto generator = at::detail::createCPUGenerator(7);
  for (int i = 0; i < 20; ++i) {
    const auto x = torch::randn({i % 2 == 0 ? 24 : 10, 6}, generator, torch::kFloat64),
               y = torch::randn({x.size(0), 3}, generator, torch::kFloat64);
    sgd.zero_grad();
    step(x, y);
    sgd.step();
  }
  std::vector<torch::Tensor> parameters;
  for (const auto& parameter : net->parameters()) parameters.push_back(parameter.detach().clone());
  return parameters;
}

double difference(const std::vector<torch::Tensor>& a, const std::vector<torch::Tensor>& b) {
  double most = 0;
  for (std::size_t i = 0; i < a.size(); ++i)
    most = std::max(most, ((a[i] - b[i]).norm() / b[i].norm()).item<double>());
  return most;
}

class OnSlots : public ::testing::TestWithParam<int> {
 protected:
  std::vector<torch::Device> slots() const { return devices("cpu:" + std::to_string(GetParam())); }
};

TEST_P(OnSlots, TrainsAsOneDeviceDoes) {
  auto alone = make_net();
  const auto expected =
      train(alone, [&](const auto& x, const auto& y) { torch::mse_loss(alone->forward(x), y).backward(); });
  std::vector<std::vector<torch::Tensor>> trained;
  for (const auto variables : {Variables::central, Variables::mirrored}) {
    DataParallel net([] { return make_net(); }, slots(), {.variables = variables});
    trained.push_back(
        train(net, [&](const auto& x, const auto& y) { torch::mse_loss(net(x), y).backward(); }));
    EXPECT_LE(difference(trained.back(), expected), 1e-12);
  }
  for (std::size_t i = 0; i < expected.size(); ++i)
    EXPECT_TRUE(test::same_bits(trained[0][i], trained[1][i]));
}

/// The same by steps of replicas, whose mean loss is that of the whole batch.
template <class Net>
std::vector<torch::Tensor> train_by_steps(Net& net, double tolerance) {
  return train(net, [&](const auto& x, const auto& y) {
    const auto losses = net.run(
        [](auto& replica, const torch::Tensor& part, const torch::Tensor& target) {
          auto loss = torch::mse_loss(replica.forward(part), target);
          loss.backward();
          return loss.detach();
        },
        x, y);
    const torch::NoGradGuard no_grad;
    const auto output = net(x);
    EXPECT_NEAR(losses.mean().template item<double>(),
                torch::mse_loss(output, y.to(output.device())).template item<double>(), tolerance);
  });
}

TEST_P(OnSlots, RunsStepsOfReplicas) {
  auto alone = make_net();
  const auto expected =
      train(alone, [&](const auto& x, const auto& y) { torch::mse_loss(alone->forward(x), y).backward(); });
  DataParallel net([] { return make_net(); }, slots());
  EXPECT_LE(difference(train_by_steps(net, 1e-12), expected), 1e-12);
}

INSTANTIATE_TEST_SUITE_P(Each, OnSlots, ::testing::Values(1, 2, 3, 4));

TEST(DataParallelOnDevices, DealsSamplesEvenly) {
  DataParallel net([] { return make_net(); }, devices("cpu:4"));
  EXPECT_THAT(net->deal(10), ElementsAre(3, 3, 2, 2));
  EXPECT_THAT(net->deal(3), ElementsAre(1, 1, 1));
  EXPECT_THAT(error_of([&] {
                net(torch::ones({0, 6}, torch::kFloat64));
              }),
              HasSubstr("a batch without samples"));
  const auto seen =
      net.run([](auto&, const torch::Tensor& part) { return part.size(0); }, torch::ones({10, 6}));
  EXPECT_THAT(seen.values, ElementsAre(3, 3, 2, 2));
  EXPECT_EQ(seen.sum(), 10);
  const auto of_batch =
      net.run([](auto&, const torch::data::Example<>& part) { return part.target.sum().item<double>(); },
              torch::data::Example<>(torch::ones({3, 6}), torch::ones({3})));
  EXPECT_THAT(of_batch.values, ElementsAre(1, 1, 1));
  EXPECT_THAT(
      error_of([&] { net.run([](auto&, const auto&, const auto&) {}, torch::ones({3}), torch::ones({2})); }),
      HasSubstr("inputs have different numbers of samples"));
}

/// Has what a net may have: several inputs and outputs, buffers, parameters that are not used.
struct ManyImpl : torch::nn::Module {
  ManyImpl() {
    register_module("linear", linear);
    register_module("norm", norm);
    register_module("spare", spare);
  }
  std::tuple<torch::Tensor, std::vector<torch::Tensor>> forward(const torch::Tensor& x, double scale) {
    auto hidden = norm(linear(x));
    return {hidden * scale, {hidden.mean(), hidden.argmax(1)}};
  }
  Linear linear{4, 4}, spare{2, 2};
  torch::nn::BatchNorm1d norm{4};
};
TORCH_MODULE(Many);

TEST(DataParallelOnDevices, TakesWhatModulesReturn) {
  DataParallel net([] { return Many(); }, devices("cpu:2"));
  const auto x = torch::randn({6, 4}).set_requires_grad(true);
  const auto [scaled, others] = net(x, 2.0);
  EXPECT_EQ(scaled.sizes(), (std::vector<std::int64_t>{6, 4}));
  EXPECT_EQ(others[0].sizes(), (std::vector<std::int64_t>{2}));  // a number of each replica
  EXPECT_EQ(others[1].sizes(), (std::vector<std::int64_t>{6}));
  EXPECT_FALSE(others[1].requires_grad());
  (scaled.pow(2).sum() + others[0].sum()).backward();
  EXPECT_TRUE(x.grad().defined());
  EXPECT_EQ(x.grad().sizes(), x.sizes());
  EXPECT_FALSE(net.module()->spare->weight.grad().defined());
  EXPECT_TRUE(net.module()->linear->weight.grad().defined());
}

TEST(DataParallelOnDevices, KeepsTheFirstReplicasBuffersAndTheModelsMode) {
  DataParallel net([] { return Many(); }, devices("cpu:2"));
  const auto x = torch::cat({torch::ones({2, 4}), torch::full({2, 4}, 5.0)});
  net(x, 1.0);
  torch::nn::BatchNorm1d reference(4);
  const torch::NoGradGuard no_grad;
  reference(net.module()->linear(x.narrow(0, 0, 2)));
  EXPECT_TRUE(torch::allclose(net.module()->norm->running_mean, reference->running_mean, 1e-4, 1e-6));
  EXPECT_EQ(net.module()->norm->num_batches_tracked.item<std::int64_t>(), 1);
  net.eval();
  EXPECT_FALSE(net.module()->norm->is_training());
  const auto whole = std::get<0>(net(x, 1.0));
  EXPECT_TRUE(torch::allclose(whole, net.module()->norm(net.module()->linear(x)), 1e-4, 1e-6));
  EXPECT_EQ(net.module()->norm->num_batches_tracked.item<std::int64_t>(), 1);
}

struct DroppingImpl : torch::nn::Module {
  torch::Tensor forward(const torch::Tensor& x) { return torch::dropout(x, 1.0, is_training()); }
};
TORCH_MODULE(Dropping);

TEST(DataParallelOnDevices, HasItsModelsModeWhicheverIsToldOfIt) {
  DataParallel net([] { return Dropping(); }, devices("cpu:2"));
  const auto drops = [&] { return net(torch::ones({4, 2})).sum().item<double>() == 0; };
  EXPECT_TRUE(drops());
  net.module()->eval();
  EXPECT_FALSE(drops());
  net.train();
  EXPECT_TRUE(net.module()->is_training());
  EXPECT_TRUE(drops());
  net.eval();
  EXPECT_FALSE(net.module()->is_training());
  EXPECT_FALSE(drops());
}

TEST(DataParallelOnDevices, SeesBuffersThatHaveMoved) {
  DataParallel net([] { return torch::nn::BatchNorm1d(torch::nn::BatchNormOptions(2).affine(false)); },
                   devices("cpu:2"));
  for (torch::Tensor& buffer : net.module()->buffers())
    buffer.set_data(buffer.clone());  // as torch::load() does
  const torch::NoGradGuard no_grad;
  net.module()->running_mean.fill_(5.0);
  net.eval();
  EXPECT_TRUE(torch::allclose(net(torch::full({4, 2}, 5.0)), torch::zeros({4, 2}), 0, 1e-5));
  net.train();
  net(torch::full({4, 2}, 7.0));
  EXPECT_GT(net.module()->running_mean[0].item<double>(), 5.1);
}

TEST(DataParallelOnDevices, SeesWhatHappensToTheModel) {
  for (const auto& [devices, options] : places()) {
    DataParallel net([] { return Linear(2, 1); }, devices, options);
    {
      const torch::NoGradGuard no_grad;
      net.module()->weight.fill_(2);
      net.module()->bias.set_data(torch::full({1}, 7.0).to(net.module()->bias.device()));
    }
    EXPECT_TRUE(torch::equal(net(torch::ones({2, 2})).cpu(), torch::full({2, 1}, 11.0)));
    net.module()->weight.set_requires_grad(false);
    net(torch::ones({2, 2})).sum().backward();
    EXPECT_FALSE(net.module()->weight.grad().defined());
    EXPECT_EQ(net.module()->bias.grad().item<double>(), 2);
    net(torch::ones({2, 2})).sum().backward();  // adds up
    EXPECT_EQ(net.module()->bias.grad().item<double>(), 4);
    net(torch::ones({1, 2})).sum().backward();  // fewer samples than devices
    EXPECT_EQ(net.module()->bias.grad().item<double>(), 5);
  }
}

TEST(DataParallelOnDevices, TakesSeveralForwardsBeforeABackward) {
  const auto first = torch::linspace(-1, 1, 24, torch::kFloat64).view({4, 6}), second = first * 2;
  auto alone = make_net();
  (alone->forward(first).pow(2).sum() + alone->forward(second).sum()).backward();
  for (const auto& [devices, options] : places()) {
    DataParallel net([] { return make_net(); }, devices, options);
    const auto loss = net(first).pow(2).sum() + net(second).sum();
    {
      const torch::NoGradGuard no_grad;
      net(second);  // for a metric
    }
    loss.backward();
    const auto parameters = net.parameters();
    for (std::size_t i = 0; i < parameters.size(); ++i)
      EXPECT_TRUE(torch::allclose(parameters[i].grad().cpu(), alone->parameters()[i].grad()));
  }
}

struct ThrowingImpl : torch::nn::Module {
  ThrowingImpl() { register_module("linear", linear); }
  torch::Tensor forward(const torch::Tensor& x) {
    if (x.sum().item<double>() < 0) throw std::runtime_error("a negative part");
    return linear(x);
  }
  Linear linear{2, 1};
};
TORCH_MODULE(Throwing);

TEST(DataParallelOnDevices, ThrowsWhenAllHaveReturned) {
  for (const auto& some : {devices("cpu:3"), other_devices()}) {
    if (some.size() < 3) continue;
    DataParallel net([] { return Throwing(); }, some, {.variables = Variables::mirrored});
    const auto good = torch::ones({3, 2}),
               bad = torch::tensor({{1.0F, 1.0F}, {-1.0F, -1.0F}, {-1.0F, -1.0F}});
    net(good).sum().backward();
    const auto before = net.module()->linear->weight.grad().clone();
    std::atomic<int> returned = 0;
    const auto step = [&](auto& replica, const torch::Tensor& part) {
      const bool is_last = part.sum().item<double>() > 0;
      if (is_last) std::this_thread::sleep_for(std::chrono::milliseconds(20));
      if (is_last) ++returned;
      replica.forward(part).sum().backward();
    };
    EXPECT_THROW(net.run(step, bad), std::runtime_error);
    EXPECT_EQ(returned, 1);
    EXPECT_THROW(net(bad), std::runtime_error);
    EXPECT_TRUE(torch::equal(net.module()->linear->weight.grad(), before));
    net.zero_grad();
    net.run(step, good);
    EXPECT_TRUE(torch::allclose(net.module()->linear->weight.grad(),
                                before / 3));  // nothing was left of the failed one
  }
}

TEST(DataParallelOnDevices, RefusesModelsThatDiffer) {
  int made = 0;
  EXPECT_THAT(error_of([&] { DataParallel net([&] { return Linear(2, ++made); }, devices("cpu:2")); }),
              HasSubstr("invalid_argument: DataParallel: the factory made another model for slot 0 than "
                        "before: parameter weight is Float "
                        "[2, 2] where it had weight, Float [1, 2]"));
  const auto one = std::make_shared<torch::nn::LinearImpl>(2, 2);
  EXPECT_THAT(error_of([&] { DataParallel net([&] { return one; }, devices("cpu:2")); }),
              HasSubstr("returned one module twice"));
  EXPECT_THAT(error_of([] { DataParallel net([] { return Linear(2, 2); }, {}); }), HasSubstr("no devices"));
}

TEST(DataParallelOnDevices, GradientsOfGradientsAreRefused) {
  DataParallel net([] { return Linear(2, 1); }, devices("cpu:2"));
  const auto x = torch::ones({2, 2}).set_requires_grad(true);
  const auto y = net(x).pow(2).sum();
  EXPECT_THAT(
      error_of([&] { torch::autograd::grad({y}, {x}, torch::autograd::variable_list(), true, true); }),
      HasSubstr("gradients of gradients"));
}

TEST(DataParallelOnDevices, KeepsItsGraphWhenAsked) {
  for (const auto& [devices, options] : places()) {
    DataParallel net([] { return Linear(2, 1); }, devices, options);
    const auto loss = net(torch::ones({2, 2})).sum();
    loss.backward({}, /*retain_graph=*/true);
    loss.backward();
    EXPECT_EQ(net.module()->bias.grad().item<double>(), 4);
    EXPECT_ANY_THROW(loss.backward());
  }
}

TEST(DataParallelOnDevices, DrawsAModelsRandomNumbersOnce) {
  torch::manual_seed(3);
  const Linear alone(3, 2);
  const auto expected = torch::rand(3);
  torch::manual_seed(3);
  DataParallel net([] { return Linear(3, 2); }, devices("cpu:3"));
  EXPECT_TRUE(torch::equal(torch::rand(3), expected));
  EXPECT_TRUE(torch::equal(net.parameters()[0], alone->parameters()[0]));
  EXPECT_EQ(net.named_parameters().keys(), alone->named_parameters().keys());
}

TEST(DataParallelOnGpus, TrainAsOneDeviceDoes) {
  auto alone = make_net();
  const auto expected =
      train(alone, [&](const auto& x, const auto& y) { torch::mse_loss(alone->forward(x), y).backward(); });
  for (const auto variables : {Variables::central, Variables::mirrored}) {
    const auto home = variables == Variables::central ? torch::Device(torch::kCPU) : other_devices()[0];
    DataParallel net([] { return make_net(); }, other_devices(), {.variables = variables});
    EXPECT_EQ(net.parameters()[0].device(), home);
    const auto trained = train(net, [&](const auto& x, const auto& y) {
      const auto output = net(x);
      EXPECT_EQ(output.device(), other_devices()[0]);
      torch::mse_loss(output, y.to(output.device())).backward();
      EXPECT_EQ(net.parameters()[0].grad().device(), home);
    });
    EXPECT_LE(difference(test::on_cpu(trained), expected), 1e-10);

    DataParallel steps([] { return make_net(); }, other_devices(), {.variables = variables});
    EXPECT_LE(difference(test::on_cpu(train_by_steps(steps, 1e-10)), expected), 1e-10);
  }
}

TEST(DataParallelOnGpus, FindTheModelWhereverItIs) {
  auto alone = make_net();
  const auto expected =
      train(alone, [&](const auto& x, const auto& y) { torch::mse_loss(alone->forward(x), y).backward(); });
  std::vector<torch::Device> homes = other_devices();
  homes.emplace_back(torch::kCPU);
  for (const auto variables : {Variables::central, Variables::mirrored}) {
    for (const torch::Device& home : homes) {
      const auto factory = [&] {
        auto net = make_net();
        net->to(home);
        return net;
      };
      DataParallel net(factory, other_devices(), {.variables = variables});
      const auto trained = train(net, [&](const auto& x, const auto& y) {
        const auto output = net(x);
        torch::mse_loss(output, y.to(output.device())).backward();
      });
      EXPECT_LE(difference(test::on_cpu(trained), expected), 1e-10) << home;
      // Elsewhere, as torch::load() may leave it; gradients are where it is then.
      for (const torch::Device& next : homes) {
        net.module()->to(next);
        net.zero_grad();
        net(torch::ones({3, 6}, torch::kFloat64)).sum().backward();
        const auto place = variables == Variables::mirrored ? other_devices()[0] : next;
        for (const torch::Tensor& parameter : net.parameters()) {
          EXPECT_EQ(parameter.device(), place);
          EXPECT_EQ(parameter.grad().device(), place);
        }
        EXPECT_TRUE(
            torch::allclose(net(torch::ones({3, 6}, torch::kFloat64)).cpu(),
                            net.module()->forward(torch::ones({3, 6}, torch::kFloat64).to(place)).cpu()));
      }
    }
  }
}

TEST(DataParallelOnGpus, TakeWhatModulesReturn) {
  for (const auto variables : {Variables::central, Variables::mirrored}) {
    DataParallel net([] { return Many(); }, other_devices(), {.variables = variables});
    const auto x = torch::arange(24.0).view({6, 4}).set_requires_grad(true);
    const auto [scaled, others] = net(x, 2.0);
    EXPECT_EQ(others[0].sizes(), (std::vector<std::int64_t>{std::ssize(other_devices())}));
    EXPECT_EQ(others[1].sizes(), (std::vector<std::int64_t>{6}));
    (scaled.pow(2).sum() + others[0].sum()).backward();
    EXPECT_EQ(x.grad().device(), x.device());
    EXPECT_FALSE(net.module()->spare->weight.grad().defined());
    EXPECT_TRUE(net.module()->linear->weight.grad().defined());
    EXPECT_EQ(net.module()->norm->num_batches_tracked.item<std::int64_t>(), 1);
  }
}

struct AddingImpl : torch::nn::Module {
  AddingImpl() { sum = register_buffer("sum", torch::zeros({})); }
  torch::Tensor forward(const torch::Tensor& x) {
    sum.add_(x.detach().sum());
    return x * sum;
  }
  torch::Tensor sum;
};
TORCH_MODULE(Adding);

TEST(DataParallelOnGpus, KeepTheFirstReplicasBuffers) {
  for (const auto variables : {Variables::central, Variables::mirrored}) {
    DataParallel net([] { return Adding(); }, other_devices(), {.variables = variables});
    const auto x = torch::arange(12.0).view({6, 2});
    const auto expected = x.narrow(0, 0, 6 / std::ssize(other_devices())).sum().item<double>();
    net(x);
    EXPECT_EQ(net.module()->sum.item<double>(), expected);
    net.run([](auto& replica, const torch::Tensor& part) { replica.forward(part); }, x);
    EXPECT_EQ(net.module()->sum.item<double>(), 2 * expected);
  }
}

TEST(DataParallelOnGpus, AreEachForOneReplica) {
  const auto gpu = test::other_device(0);
  const auto error = [](const std::vector<torch::Device>& some) {
    return error_of([&] { DataParallel net([] { return Linear(2, 1); }, some); });
  };
  EXPECT_THAT(error({gpu, gpu}), HasSubstr("invalid_argument: DataParallel: device " + gpu.str() +
                                           " is named twice: a GPU computes for one replica"));
  EXPECT_THAT(error({torch::kCPU, gpu}),
              HasSubstr("invalid_argument: DataParallel: replicas on cpu and on " + gpu.str() +
                        "; take slots of the CPU alone, or GPUs alone"));
  EXPECT_THAT(error({torch::Device(gpu.type())}), HasSubstr("say which"));
}

TEST(DataParallelOnGpus, ServeEachRankOfAWorld) {
  if (test::other_device(0).type() != test::fake_device(0).type())
    GTEST_SKIP() << "libtorch computes the backwards of a GPU on one thread, and ranks are threads here";
  test::on_ranks(2, [](const Group& world) {
    auto alone = make_net();
    const auto expected =
        train(alone, [&](const auto& x, const auto& y) { torch::mse_loss(alone->forward(x), y).backward(); });
    const std::vector<torch::Device> own = {test::other_device(2 * world.rank()),
                                            test::other_device(2 * world.rank() + 1)};
    DataParallel net([&] { return make_net(1 + static_cast<std::uint64_t>(world.rank())); }, own,
                     {.variables = Variables::mirrored});
    DistributedDataParallel ddp(net, world);
    const auto trained = train(net, [&](const auto& x, const auto& y) {
      const auto half = x.size(0) / 2;
      const auto output = ddp(x.narrow(0, half * world.rank(), half));
      torch::mse_loss(output, y.narrow(0, half * world.rank(), half).to(output.device())).backward();
    });
    EXPECT_LE(difference(test::on_cpu(trained), expected), 1e-10);
  });
}

TEST(DataParallelOnDevices, ServesEachRankOfAWorld) {
  test::on_ranks(2, [](const Group& world) {
    auto alone = make_net();
    const auto expected =
        train(alone, [&](const auto& x, const auto& y) { torch::mse_loss(alone->forward(x), y).backward(); });
    DataParallel net([&] { return make_net(1 + static_cast<std::uint64_t>(world.rank())); },
                     devices("cpu:2"));
    DistributedDataParallel ddp(net, world);
    const auto trained = train(net, [&](const auto& x, const auto& y) {
      const auto half = x.size(0) / 2;
      torch::mse_loss(ddp(x.narrow(0, half * world.rank(), half)), y.narrow(0, half * world.rank(), half))
          .backward();
    });
    EXPECT_LE(difference(trained, expected), 1e-12);
  });
}

}  // namespace
}  // namespace lockstep

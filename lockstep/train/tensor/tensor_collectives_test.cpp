#include "lockstep/train/tensor/tensor_collectives.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/train/tensor/ranks_test.h"

namespace lockstep {
namespace {

using testing::HasSubstr;

std::string refusal(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return std::string(to_string(error.code())) + ": " + error.what();
  }
  return "no error";
}

TEST(TensorCollectives, ReduceEveryTypeThatHasASum) {
  test::on_ranks(3, [](const Group& group) {
    for (const auto type :
         {torch::kUInt8, torch::kInt8, torch::kInt16, torch::kInt32, torch::kInt64, torch::kFloat16,
          torch::kBFloat16, torch::kFloat32, torch::kFloat64, torch::kComplexFloat, torch::kComplexDouble}) {
      const auto tensor = torch::full({2, 3}, group.rank() + 1, type);
      all_reduce(group, tensor).wait();
      EXPECT_TRUE(torch::equal(tensor, torch::full({2, 3}, 6, type))) << type;
    }
  });
}

TEST(TensorCollectives, ReduceUnsignedIntegersAndBools) {
  test::on_ranks(2, [](const Group& group) {
    for (const auto type : {torch::kUInt16, torch::kUInt32, torch::kUInt64}) {  // libtorch cannot add these
      const auto tensor = torch::full({3}, group.rank() + 1, torch::kInt64).to(type);
      all_reduce(group, tensor).wait();
      EXPECT_TRUE(tensor.to(torch::kInt64).eq(3).all().item<bool>()) << type;
    }
    const auto any = torch::full({3}, group.rank() == 1, torch::kBool);
    all_reduce(group, any).wait();
    EXPECT_TRUE(any.all().item<bool>());
  });
}

TEST(TensorCollectives, ReduceSeveralAsOneCall) {
  test::on_ranks(3, [](const Group& group) {
    const auto rank = static_cast<float>(group.rank());
    const std::vector<torch::Tensor> tensors = {torch::full({3}, rank), torch::full({1 << 16}, 2 * rank),
                                                torch::empty({0}), torch::full({2, 2}, 10 * rank)};
    all_reduce_grouped(group, tensors, ReduceOp::average, {.prescale = 2}).wait();
    EXPECT_TRUE(torch::equal(tensors[0], torch::full({3}, 2.0F)));
    EXPECT_TRUE(torch::equal(tensors[1], torch::full({1 << 16}, 4.0F)));
    EXPECT_TRUE(torch::equal(tensors[3], torch::full({2, 2}, 20.0F)));
    all_reduce_grouped(group, {}).wait();
    EXPECT_THAT(
        refusal([&] {
          (void)all_reduce_grouped(group, {tensors[0], torch::ones({2}, torch::kInt64)});
        }),
        HasSubstr("invalid_argument: all_reduce_grouped has tensors of f32 and i64; a call is for one type"));
  });
}

TEST(TensorCollectives, BroadcastAnyType) {
  test::on_ranks(2, [](const Group& group) {
    const auto tensor = torch::full({5}, group.rank() == 1, torch::kBool);
    broadcast(group, tensor, 1).wait();
    EXPECT_TRUE(tensor.all().item<bool>());
  });
}

TEST(TensorCollectives, GatherAnyType) {
  test::on_ranks(3, [](const Group& group) {
    const auto mine = torch::full({2}, group.rank(), torch::kInt16);
    const auto all = torch::empty({3, 2}, torch::kInt16);
    all_gather(group, mine, all).wait();
    for (int rank = 0; rank < 3; ++rank) EXPECT_TRUE(all[rank].eq(rank).all().item<bool>());
  });
}

TEST(TensorCollectives, SendAndReceiveWithoutChangingWhatIsSent) {
  test::on_ranks(2, [](const Group& group) {
    const auto tensor = torch::full({5}, group.rank() + 7, torch::kUInt8);
    const auto before = tensor._version();
    if (group.rank() == 0) {
      send(group, tensor, 1).wait();
      EXPECT_EQ(tensor._version(), before);
    } else {
      recv(group, tensor, 0).wait();
      EXPECT_TRUE(tensor.eq(7).all().item<bool>());
      EXPECT_GT(tensor._version(), before);
    }
  });
}

TEST(TensorCollectives, ReduceForTheRootAlone) {
  test::on_ranks(3, [](const Group& group) {
    const bool is_root = group.rank() == 1;
    const auto input = torch::full({2, 3}, group.rank() + 1, torch::kFloat64);
    const auto sum = is_root ? torch::zeros({6}, torch::kFloat64) : torch::Tensor();
    reduce(group, input, sum, 1).wait();
    EXPECT_TRUE(!is_root || sum.eq(6).all().item<bool>());
    const auto average = is_root ? torch::zeros({2, 3}, torch::kFloat64) : torch::Tensor();
    reduce(group, input, average, 1, ReduceOp::average, {.prescale = 2}).wait();
    EXPECT_TRUE(!is_root || average.eq(4).all().item<bool>());
    EXPECT_TRUE(input.eq(group.rank() + 1).all().item<bool>());
    reduce(group, input, input, 1, ReduceOp::max).wait();  // in place
    EXPECT_TRUE(input.eq(is_root ? 3 : group.rank() + 1).all().item<bool>());
  });
}

TEST(TensorCollectives, ReduceABlockForEachRank) {
  test::on_ranks(3, [](const Group& group) {
    const auto input = torch::arange(6).view({3, 2}) * (group.rank() + 1);
    const auto version = input._version();
    const auto mine = torch::zeros({2}, torch::kInt64);
    reduce_scatter(group, input, mine).wait();
    EXPECT_TRUE(torch::equal(mine, torch::arange(6).view({3, 2})[group.rank()] * 6));
    EXPECT_EQ(input._version(), version);
    reduce_scatter(group, input, mine, ReduceOp::min).wait();
    EXPECT_TRUE(torch::equal(mine, torch::arange(6).view({3, 2})[group.rank()]));
  });
}

TEST(TensorCollectives, AllReduceWithAFactor) {
  test::on_ranks(2, [](const Group& group) {
    const auto tensor = torch::full({3}, group.rank() + 1.0);
    all_reduce(group, tensor, ReduceOp::sum, {.prescale = 0.5F}).wait();
    EXPECT_TRUE(tensor.eq(1.5).all().item<bool>());
  });
}

TEST(TensorCollectives, ScatterAndGatherAnyType) {
  test::on_ranks(3, [](const Group& group) {
    const bool is_root = group.rank() == 2;
    const auto blocks = is_root ? torch::arange(6).to(torch::kInt16).view({3, 2}) : torch::Tensor();
    const auto mine = torch::zeros({2}, torch::kInt16);
    scatter(group, blocks, mine, 2).wait();
    EXPECT_TRUE(torch::equal(mine, torch::arange(6).to(torch::kInt16).view({3, 2})[group.rank()]));
    const auto all = is_root ? torch::zeros({6}, torch::kInt16) : torch::Tensor();
    gather(group, mine, all, 2).wait();
    EXPECT_TRUE(!is_root || torch::equal(all.view({3, 2}), blocks));
  });
}

TEST(TensorCollectives, ExchangeABlockBetweenAnyTwoRanks) {
  test::on_ranks(3, [](const Group& group) {
    const auto input = torch::arange(3, torch::kFloat32) + 10 * group.rank();
    const auto output = torch::zeros({3});
    all_to_all(group, input, output).wait();
    EXPECT_TRUE(torch::equal(output, torch::arange(3, torch::kFloat32) * 10 + group.rank()));
  });
}

TEST(TensorCollectives, GatherIntoAListOfTensors) {
  test::on_ranks(3, [](const Group& group) {
    const auto mine = torch::full({2, 2}, group.rank() + 1, torch::kBFloat16);
    std::vector<torch::Tensor> all;
    for (int rank = 0; rank < 3; ++rank) all.push_back(torch::zeros({2, 2}, torch::kBFloat16));
    const auto version = all[0]._version();
    all_gather(group, mine, all).wait();
    for (int rank = 0; rank < 3; ++rank)
      EXPECT_TRUE(torch::equal(all[static_cast<std::size_t>(rank)], torch::full_like(mine, rank + 1)));
    EXPECT_GT(all[0]._version(), version);
  });
}

TEST(TensorCollectives, GatherTensorsOfDifferentSizesIntoAList) {
  test::on_ranks(3, [](const Group& group) {
    const auto mine = torch::arange(group.rank() * 2);  // none, two, four
    std::vector<torch::Tensor> all;
    for (int rank = 0; rank < 3; ++rank) all.push_back(torch::zeros({rank, 2}, torch::kInt64));
    all_gather(group, mine, all).wait();
    for (int rank = 0; rank < 3; ++rank)
      EXPECT_TRUE(torch::equal(all[static_cast<std::size_t>(rank)], torch::arange(rank * 2).view({rank, 2})));
  });
}

TEST(TensorCollectives, GatherIntoAListOnOneRankAndIntoATensorOnAnother) {
  test::on_ranks(2, [](const Group& group) {
    const auto mine = torch::full({3}, group.rank() + 1.0);
    const auto all = torch::zeros({2, 3});
    if (group.rank() == 0) {
      all_gather(group, mine, all).wait();
    } else {
      all_gather(group, mine, std::vector{all[0], all[1]}).wait();
    }
    for (int rank = 0; rank < 2; ++rank) EXPECT_TRUE(all[rank].eq(rank + 1).all().item<bool>());
  });
}

TEST(TensorCollectives, SendWithTagsAndReceiveFromAnySource) {
  test::on_ranks(3, [](const Group& group) {
    if (group.rank() != 0) {
      send(group, torch::full({2}, group.rank() * 10), 0, group.rank()).wait();
      send(group, torch::full({2}, group.rank()), 0, 7).wait();
      return;
    }
    for (const int source : {2, 1}) {  // the later message first: by its tag
      const auto tensor = torch::zeros({2}, torch::kInt64);
      recv(group, tensor, source, 7).wait();
      EXPECT_TRUE(tensor.eq(source).all().item<bool>());
    }
    int sources = 0;
    for (int message = 0; message < 2; ++message) {
      const auto tensor = torch::zeros({2}, torch::kInt64);
      Received received;
      recv(group, tensor, any_source, any_tag, &received).wait();
      EXPECT_EQ(received.tag, received.source);
      EXPECT_TRUE(tensor.eq(received.source * 10).all().item<bool>());
      sources += received.source;
    }
    EXPECT_EQ(sources, 3);
  });
}

TEST(TensorCollectives, TellAutogradThatTheTensorChanged) {
  const auto tensor = torch::ones({2});
  const auto before = tensor._version();
  all_reduce(Group(), tensor).wait();
  EXPECT_GT(tensor._version(), before);
}

TEST(TensorCollectives, SayWhatTheyCannotMove) {
  const Group alone;
  EXPECT_THAT(refusal([&] { all_reduce(alone, torch::Tensor()).wait(); }), HasSubstr("undefined"));
  EXPECT_THAT(refusal([&] {
                all_reduce(alone, torch::ones({4, 4}).t()).wait();
              }),
              HasSubstr("f32 [4, 4] and not contiguous"));
  EXPECT_THAT(refusal([&] { all_reduce(alone, torch::empty({2}, torch::kComplexHalf)).wait(); }),
              HasSubstr("unsupported: all_reduce's tensor is ComplexHalf [2]"));
  EXPECT_THAT(refusal([&] { broadcast(alone, torch::ones({2}, torch::kMeta), 0).wait(); }),
              HasSubstr("broadcast's tensor is f32 [2] on meta, which has a shape and no elements"));
  EXPECT_THAT(refusal([&] { broadcast(alone, torch::ones({2}).to_sparse(), 0).wait(); }),
              HasSubstr("only dense tensors"));
  EXPECT_THAT(refusal([&] { all_gather(alone, torch::Tensor(), torch::ones({2})).wait(); }),
              HasSubstr("all_gather's input is an undefined tensor"));
  EXPECT_THAT(refusal([&] { all_gather(alone, torch::ones({2}), torch::ones({2}, torch::kInt32)).wait(); }),
              HasSubstr("all_gather's input is f32 [2], its output i32 [2]; they need the same type"));
  EXPECT_THAT(refusal([&] {
                send(alone, torch::ones({4, 4}).t(), 0).wait();
              }),
              HasSubstr("not contiguous; pass tensor.contiguous()"));
}

/// What each of two ranks is told of a call, before anything starts.
void expect_refusal(const std::function<void(const Group&)>& call, const std::string& text) {
  test::on_ranks(2, [&](const Group& group) {
    EXPECT_THAT(refusal([&] { call(group); }), HasSubstr("invalid_argument: " + text));
    barrier(group).wait();  // the group is unharmed
  });
}

TEST(TensorCollectives, SayWhichSizesDoNotFit) {
  const auto two = torch::ones({2}), three = torch::ones({3}), six = torch::ones({2, 3});
  expect_refusal([&](const Group& group) { reduce(group, two, three, group.rank()).wait(); },
                 "reduce's input is f32 [2], its output f32 [3]; they need as many elements");
  expect_refusal([&](const Group& group) { reduce_scatter(group, three, two).wait(); },
                 "reduce_scatter's input is f32 [3]; it needs 4 elements, 2 for each of 2 ranks");
  expect_refusal([&](const Group& group) { scatter(group, three, two, group.rank()).wait(); },
                 "scatter's input is f32 [3]; it needs 4 elements, 2 for each of 2 ranks");
  expect_refusal([&](const Group& group) { gather(group, two, six, group.rank()).wait(); },
                 "gather's output is f32 [2, 3]; it needs 4 elements, 2 for each of 2 ranks");
  expect_refusal([&](const Group& group) { all_gather(group, two, six).wait(); },
                 "all_gather's output is f32 [2, 3]; it needs 4 elements, 2 for each of 2 ranks");
  expect_refusal([&](const Group& group) { all_to_all(group, two, six).wait(); },
                 "all_to_all's input is f32 [2], its output f32 [2, 3]; they need as many elements");
  expect_refusal([&](const Group& group) { all_to_all(group, three, three.clone()).wait(); },
                 "all_to_all's input is f32 [3]; its 3 elements are not equal blocks for 2 ranks");
  expect_refusal([&](const Group& group) { all_gather(group, two, std::vector{six}).wait(); },
                 "all_gather has 1 outputs for 2 ranks; pass a tensor for each");
  expect_refusal(
      [&](const Group& group) {
        all_gather(group, two, std::vector{three, three.clone()}).wait();
      },
      "all_gather's input is f32 [2], and output ");
  expect_refusal([&](const Group& group) { reduce(group, two, two, 2).wait(); }, "reduce: root 2 is not in");
  expect_refusal([&](const Group& group) { send(group, two, 1, -1).wait(); }, "send: tag -1 is negative");
}

TEST(TensorCollectives, SayWhichTypesDoNotFit) {
  const auto floats = torch::ones({2}), four = torch::ones({4});
  const auto integers = torch::ones({2}, torch::kInt32), halves = torch::ones({4}, torch::kComplexHalf);
  const auto type = [](const std::string& operation) {
    return operation + "'s input is f32 [4], its output i32 [2]; they need the same type";
  };
  expect_refusal([&](const Group& group) { reduce_scatter(group, four, integers).wait(); },
                 type("reduce_scatter"));
  expect_refusal([&](const Group& group) { scatter(group, four, integers, group.rank()).wait(); },
                 type("scatter"));
  expect_refusal([&](const Group& group) { reduce(group, four, integers, group.rank()).wait(); },
                 type("reduce"));
  expect_refusal([&](const Group& group) { gather(group, four, integers, group.rank()).wait(); },
                 type("gather"));
  expect_refusal([&](const Group& group) { all_to_all(group, four, integers).wait(); }, type("all_to_all"));
  expect_refusal(
      [&](const Group& group) {
        all_gather(group, floats, std::vector{floats, integers}).wait();
      },
      "all_gather's output 1 is i32 [2], its input f32 [2]; they need the same type");
  const Group alone;
  EXPECT_THAT(refusal([&] { reduce(alone, halves, halves, 0).wait(); }),
              HasSubstr("unsupported: reduce's input is ComplexHalf [4]"));
  EXPECT_THAT(refusal([&] { reduce_scatter(alone, halves, halves).wait(); }),
              HasSubstr("unsupported: reduce_scatter's input is ComplexHalf [4]"));
}

TEST(TensorCollectives, RefuseTensorsWithGapsOrWithoutElements) {
  const Group alone;
  const auto gaps = torch::ones({2, 3}).t(), whole = torch::ones({6});
  const std::vector<std::pair<std::string, std::function<void()>>> calls = {
      {"reduce's input", [&] { reduce(alone, gaps, whole, 0).wait(); }},
      {"reduce_scatter's output", [&] { reduce_scatter(alone, whole, gaps).wait(); }},
      {"scatter's input", [&] { scatter(alone, gaps, whole, 0).wait(); }},
      {"gather's output", [&] { gather(alone, whole, gaps, 0).wait(); }},
      {"all_gather's output 0", [&] { all_gather(alone, whole, std::vector{gaps}).wait(); }},
      {"all_to_all's input", [&] { all_to_all(alone, gaps, whole).wait(); }}};
  for (const auto& [what, call] : calls)
    EXPECT_THAT(refusal(call), HasSubstr("invalid_argument: " + what + " is f32 [3, 2] and not contiguous"));
  EXPECT_THAT(refusal([&] { gather(alone, whole, torch::Tensor(), 0).wait(); }),
              HasSubstr("gather's output is an undefined tensor"));
  EXPECT_THAT(refusal([&] { scatter(alone, whole.to_sparse(), whole, 0).wait(); }),
              HasSubstr("unsupported: scatter's input"));
}

}  // namespace
}  // namespace lockstep

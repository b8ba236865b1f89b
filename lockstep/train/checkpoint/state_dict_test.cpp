#include "lockstep/train/checkpoint/state_dict.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "lockstep/data/folder_test.h"
#include "lockstep/train/data_parallel/data_parallel.h"
#include "lockstep/train/replicas/model_tensors.h"
#include "lockstep/train/replicas/named_tensor.h"
#include "lockstep/train/tensor/ranks_test.h"

namespace lockstep {
namespace {

using test::content_of;
using test::recorded;
using test::refusal;
using test::same_bits;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;
using torch::nn::BatchNorm1d;
using torch::nn::Linear;

struct PartImpl : torch::nn::Module {
  PartImpl() {
    register_module("inner", inner);
    register_module("norm", norm);
    scale = register_parameter("scale", torch::ones({2}));
    seen = register_buffer("seen", torch::zeros({1}));
    register_parameter("none", torch::Tensor(), /*requires_grad=*/false);
  }
  Linear inner{3, 2};
  BatchNorm1d norm{2};
  torch::Tensor scale, seen;
};
TORCH_MODULE(Part);

/// As tests/pth/record.py has it.
torch::nn::Sequential recorded_model() { return torch::nn::Sequential(Linear(3, 2), BatchNorm1d(2)); }

/// Tensor number i is filled with i, i + 1/4, i + 1/2, ... plus `more`.
void fill(const torch::nn::Module& module, double more = 0) {
  const torch::NoGradGuard no_grad;
  double first = more;
  for (const auto& item : tensors_of(module)) {
    item.tensor.copy_((torch::arange(item.tensor.numel(), torch::kFloat64) / 4 + first).view_as(item.tensor));
    first += 1;
  }
}

bool same(const torch::nn::Module& a, const torch::nn::Module& b) {
  return std::ranges::equal(tensors_of(a), tensors_of(b),
                            [](const auto& x, const auto& y) { return same_bits(x.tensor, y.tensor); });
}

void expect_same(const StateDict& a, const StateDict& b) {
  EXPECT_EQ(a.keys(), b.keys());
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) EXPECT_TRUE(same_bits(a[i].value(), b[i].value())) << a[i].key();
}

class StateDictTest : public test::FolderTest {
 protected:
  template <class Model>
  std::string refused(const std::filesystem::path& path, Model& model) const {
    return refusal([&] { load_state_dict(path, Group(), model); });
  }
  std::filesystem::path path_ = folder_ / "model.pth";
};

TEST_F(StateDictTest, HasPythonsNamesAndOrder) {
  const Part part;
  save_state_dict(path_, Group(), part);
  EXPECT_THAT(read_pth(path_).keys(),
              ElementsAre("scale", "seen", "inner.weight", "inner.bias", "norm.weight", "norm.bias",
                          "norm.running_mean", "norm.running_var", "norm.num_batches_tracked"));
}

TEST_F(StateDictTest, BringsAModelBack) {
  Part saved, loaded;
  fill(*saved);
  fill(*loaded, 100);
  save_state_dict(path_, Group(), saved);
  ASSERT_FALSE(same(*saved, *loaded));
  load_state_dict(path_, Group(), loaded);
  EXPECT_TRUE(same(*saved, *loaded));
  EXPECT_TRUE(loaded->inner->weight.requires_grad());
}

TEST_F(StateDictTest, LoadsWhatPythonHasWritten) {
  auto net = recorded_model();
  load_state_dict(recorded("model"), Group(), net);
  const auto* const linear = net[0]->as<Linear>();
  const auto* const norm = net[1]->as<BatchNorm1d>();
  EXPECT_TRUE(same_bits(linear->weight, (torch::arange(6) / 4).view({2, 3})));
  EXPECT_TRUE(same_bits(linear->bias, torch::tensor({1.0F, 1.25F})));
  EXPECT_TRUE(same_bits(norm->running_var, torch::tensor({5.0F, 5.25F})));
  EXPECT_EQ(norm->num_batches_tracked.item<std::int64_t>(), 6);
  save_state_dict(path_, Group(), net);
  expect_same(read_pth(path_), read_pth(recorded("model")));
}

TEST_F(StateDictTest, GivesEverybodyWhatRank0Reads) {
  Part saved;
  fill(*saved);
  test::on_ranks(3, [&](const Group& group) {
    save_state_dict(path_, group, saved);
    Part net;
    fill(*net, group.rank());
    load_state_dict(group.rank() == 0 ? path_ : folder_ / "not here", group, net);
    EXPECT_TRUE(same(*saved, *net)) << group.rank();
  });
}

TEST_F(StateDictTest, OfDataParallelIsThatOfTheModel) {
  Part net;
  fill(*net);
  DistributedDataParallel ddp(net, Group());
  save_state_dict(path_, Group(), ddp);
  EXPECT_EQ(read_pth(path_).keys().front(), "scale");
  fill(*net, 100);
  load_state_dict(path_, Group(), ddp);
  Part other;
  fill(*other);
  EXPECT_TRUE(same(*net, *other));
}

TEST_F(StateDictTest, LeavesOutTheNameThatPythonsDataParallelPutsBefore) {
  Linear net(3, 2);
  fill(*net, 100);
  load_state_dict(recorded("data_parallel"), Group(), net);
  EXPECT_TRUE(same_bits(net->weight, (torch::arange(6) / 4).view({2, 3})));
  EXPECT_TRUE(same_bits(net->bias, torch::tensor({1.0F, 1.25F})));
  EXPECT_THAT(read_pth(recorded("data_parallel")).keys(), ElementsAre("module.weight", "module.bias"));

  struct HolderImpl : torch::nn::Module {
    HolderImpl() { register_module("module", module); }
    Linear module{3, 2};
  } holder;  // whose own names are these
  load_state_dict(recorded("data_parallel"), Group(), holder);
  EXPECT_TRUE(same(*holder.module, *net));
}

TEST_F(StateDictTest, ReadsADictInADict) {
  const StateDict read = read_pth(recorded("nested"), "model");
  ASSERT_THAT(read.keys(), ElementsAre("weight"));
  EXPECT_TRUE(same_bits(read["weight"], torch::arange(3, torch::kFloat32)));
  struct WeightImpl : torch::nn::Module {
    torch::Tensor weight = register_parameter("weight", torch::zeros({3}));
  } net;
  load_state_dict(recorded("nested"), Group(), net, "model");
  EXPECT_TRUE(same_bits(net.weight, read["weight"]));
  EXPECT_THAT(refused(recorded("nested"), net),
              AllOf(StartsWith("invalid_argument: "),
                    HasSubstr("to read a dict in it pass its key, such as \"model\"")));
}

TEST_F(StateDictTest, HasEveryTypeOfElements) {
  const StateDict read = read_pth(recorded("types"));
  EXPECT_EQ(read["float16"].scalar_type(), torch::kFloat16);
  EXPECT_EQ(read["uint64"].scalar_type(), torch::kUInt64);
  EXPECT_EQ(read["complex128"].scalar_type(), torch::kComplexDouble);
  EXPECT_EQ(read["bool"].scalar_type(), torch::kBool);
  EXPECT_TRUE(same_bits(read["bool"], torch::tensor({true, false, true})));
  EXPECT_TRUE(same_bits(read["int16"], torch::tensor({0x0201, 0x0403, 0x0605}, torch::kInt16)));
  write_pth(path_, read);
  expect_same(read_pth(path_), read);
}

TEST_F(StateDictTest, ReadsViewsAsTheyWere) {
  const StateDict read = read_pth(recorded("views"));
  const auto base = torch::arange(12, torch::kFloat32).view({3, 4});
  EXPECT_TRUE(same_bits(read["turned"], base.t()));
  EXPECT_EQ(read["turned"].strides(), base.t().strides());
  EXPECT_TRUE(same_bits(read["inner"], base.slice(0, 1).slice(1, 1, 3)));
  EXPECT_TRUE(same_bits(read["parameter"], base[0]));
  EXPECT_TRUE(same_bits(read["repeated"], torch::ones({3, 5})));
  EXPECT_EQ(read["repeated"].storage().nbytes(), 4U);
  EXPECT_EQ(read["empty"].sizes(), (std::vector<std::int64_t>{0, 3}));
  EXPECT_EQ(read["scalar"].item<std::int64_t>(), 5);
  EXPECT_TRUE(read["turned"].is_alias_of(read["inner"]));
  read["turned"][1][1].fill_(-1);
  EXPECT_EQ(read["inner"][0][0].item<float>(), -1) << "they share memory, as in Python";
}

TEST_F(StateDictTest, KeepsEveryBitOfWhatIsWritten) {
  const auto x = torch::arange(24, torch::kFloat32).view({2, 3, 4});
  const auto imaginary = torch::complex(torch::ones({2}), torch::full({2}, 3.0F));
  StateDict written;
  written.insert("turned", x.permute({2, 0, 1}));
  written.insert("part", x.slice(2, 1, 3));
  written.insert("repeated", torch::ones({1}).expand({3, 5}));
  written.insert("none of them", torch::empty({0, 3}));
  written.insert("scalar", torch::tensor(5));
  written.insert("special", torch::tensor({std::numeric_limits<float>::quiet_NaN(), -0.0F,
                                           std::numeric_limits<float>::denorm_min()}));
  written.insert("conjugated", imaginary.conj());
  written.insert("as it was", imaginary);
  written.insert("wants a gradient", torch::ones({2}, torch::requires_grad()));
  write_pth(path_, written);
  const StateDict read = read_pth(path_);
  EXPECT_EQ(read.keys(), written.keys());
  for (const auto& item : written) {
    const auto resolved = item.value().detach().resolve_conj();
    EXPECT_TRUE(same_bits(read[item.key()], resolved)) << item.key();
  }
}

TEST_F(StateDictTest, WritesWhatIsSharedOnce) {
  const auto tied = torch::ones({1000});
  StateDict written;
  written.insert("a", tied);
  written.insert("b", tied.detach());
  write_pth(path_, written);
  EXPECT_LT(std::filesystem::file_size(path_), 8000U);
  const StateDict read = read_pth(path_);
  EXPECT_TRUE(read["a"].is_alias_of(read["b"]));
  EXPECT_TRUE(same_bits(read["b"], tied));
}

TEST_F(StateDictTest, WritesTheSameBytesForTheSameTensors) {
  Part net;
  save_state_dict(path_, Group(), net);
  const auto first = content_of(path_);
  save_state_dict(path_, Group(), net);
  EXPECT_EQ(content_of(path_), first);
}

TEST_F(StateDictTest, NamesWhatIsMissingUnexpectedAndDifferent) {
  torch::nn::Sequential saved(Linear(3, 4), BatchNorm1d(2));
  save_state_dict(path_, Group(), saved);
  torch::nn::Sequential net(Linear(3, 2), Linear(2, 2));
  fill(*net);
  const auto before = net->parameters()[0].detach().clone();
  EXPECT_EQ(
      refused(path_, net),
      "invalid_argument: the state dict " + path_.string() +
          " is of another model; 3 unexpected (\"1.running_mean\", \"1.running_var\", "
          "\"1.num_batches_tracked\"); 3 different (\"0.weight\" is f32 [4, 3] there and f32 [2, 3] here, "
          "\"0.bias\" is f32 [4] there and f32 [2] here, \"1.weight\" is f32 [2] there and f32 [2, 2] here); "
          "build the model that it was saved from");
  EXPECT_TRUE(same_bits(net->parameters()[0], before));

  torch::nn::Sequential larger(Linear(3, 4), BatchNorm1d(2), BatchNorm1d(2));
  EXPECT_EQ(refused(path_, larger), "invalid_argument: the state dict " + path_.string() +
                                        " is of another model; 5 missing (\"2.weight\", \"2.bias\", "
                                        "\"2.running_mean\", ...); build the model "
                                        "that it was saved from");
  torch::nn::Sequential halved(Linear(3, 4), BatchNorm1d(2));
  halved->to(torch::kFloat16);
  EXPECT_THAT(refused(path_, halved),
              HasSubstr(" different (\"0.weight\" is f32 [4, 3] there and f16 [4, 3] here, "));
}

TEST_F(StateDictTest, IsRefusedByAllRanksWithTheSameErrorAndNothingChanges) {
  const auto missing = folder_ / "none" / "model.pth";
  auto endings = test::run_ranks(3, [&](const Group& group) { save_state_dict(missing, group, Part()); });
  for (const auto& ending : endings) {
    EXPECT_EQ(ending.code, ErrorCode::system);
    EXPECT_EQ(ending.text, "cannot write the state dict " + missing.string() + ": there is no folder " +
                               missing.parent_path().string() + "; make it first");
  }
  const auto damaged = file("damaged.pth", content_of(recorded("model")));
  std::filesystem::resize_file(damaged, 2000);
  for (const auto& [path, code, text] :
       {std::tuple(damaged, ErrorCode::corrupt_data,
                   "damaged.pth: at byte 1978 expected the end of a zip archive"),
        std::tuple(recorded("malicious"), ErrorCode::unsupported, "it asks for \"posix.system\""),
        std::tuple(recorded("views"), ErrorCode::invalid_argument, "is of another model; 7 missing"),
        std::tuple(folder_ / "none", ErrorCode::system, "cannot open the state dict ")}) {
    endings = test::run_ranks(3, [&, file = path](const Group& group) {
      auto net = recorded_model();
      fill(*net, group.rank());
      auto before = recorded_model();
      fill(*before, group.rank());
      const std::string outcome = refusal([&] { load_state_dict(file, group, net); });
      EXPECT_TRUE(same(*net, *before));
      load_state_dict(file, group, net);  // and once more, to see how it ends
    });
    for (const auto& ending : endings) {
      EXPECT_EQ(ending.code, code) << ending.text;
      EXPECT_THAT(ending.text, HasSubstr(text));
      EXPECT_EQ(ending.text, endings[0].text);
    }
  }
}

TEST_F(StateDictTest, IsNotLoadedIntoDifferentModels) {
  const auto endings = test::run_ranks(2, [&](const Group& group) {
    Linear net(3, group.rank() == 0 ? 2 : 4);
    load_state_dict(recorded("data_parallel"), group, net);
  });
  for (const auto& ending : endings) {
    EXPECT_EQ(ending.code, ErrorCode::mismatch);
    EXPECT_THAT(ending.text,
                AllOf(HasSubstr("rank 1's parameter weight is f32 [4, 3], rank 0's is f32 [2, 3]"),
                      HasSubstr("Build the same model on every rank before a state dict is loaded")));
  }
}

TEST_F(StateDictTest, SaysWhichTensorsCannotBeWritten) {
  const auto refused_to_write = [&](const torch::Tensor& tensor) {
    StateDict written;
    written.insert("w", tensor);
    return refusal([&] { write_pth(path_, written); });
  };
  EXPECT_EQ(refused_to_write(torch::Tensor()), "invalid_argument: tensor w is undefined; leave it out");
  EXPECT_EQ(refused_to_write(torch::ones({2}).to(torch::kFloat8_e4m3fn)),
            "unsupported: tensor w is Float8_e4m3fn [2]; a state dict cannot hold that type here: convert "
            "it, or leave "
            "it out");
  EXPECT_THAT(
      refused_to_write(torch::ones({2, 2}).to_sparse()),
      AllOf(StartsWith("unsupported: tensor w is f32 [2, 2] (Sparse)"), HasSubstr("use .to_dense()")));
  EXPECT_FALSE(std::filesystem::exists(path_));
}

TEST_F(StateDictTest, OfTorchscriptIsToldWhatItIs) {
  Linear net(3, 2);
  torch::save(net, path_.string());
  EXPECT_THAT(refusal([&] { (void)read_pth(path_); }),
              AllOf(StartsWith("unsupported: "), HasSubstr("it is a TorchScript archive (torch.jit.save, or "
                                                           "torch::save in C++) and no state dict")));
}

}  // namespace
}  // namespace lockstep

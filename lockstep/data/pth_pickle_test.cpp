#include "lockstep/data/pth_pickle.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "lockstep/data/folder_test.h"

namespace lockstep {
namespace {

using test::Bytes;
using test::bytes_of;
using test::refusal;
using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;

constexpr std::int64_t largest = std::numeric_limits<std::int64_t>::max();

PthIndex decode(const Bytes& bytes, const std::string& key = "") {
  return decode_pth_pickle(bytes, "m.pth", key);
}

std::string refused(const Bytes& bytes, const std::string& key = "") {
  return refusal([&] { (void)decode(bytes, key); });
}

/// One tensor over one storage.
PthIndex alone(PthTensor tensor, std::uint64_t storage_bytes) {
  tensor.name = "w";
  return {.tensors = {std::move(tensor)}, .storages = {{.key = "0", .bytes = storage_bytes}}};
}

/// What encode() makes of a tensor that it is not meant for.
std::string refused(PthTensor tensor, std::uint64_t storage_bytes) {
  return refused(encode_pth_pickle(alone(std::move(tensor), storage_bytes)));
}

/// A pickle of a dict that has `content`, opcodes, between its marks.
Bytes dict_of(std::string_view content) {
  return bytes_of(std::string("\x80\x02}(").append(content).append("u."));
}

std::string text(std::string_view content) {
  const std::string zeros(3, '\0');
  return std::string("X").append(1, static_cast<char>(content.size())).append(zeros).append(content);
}

/// A tensor of two f32, opcodes, whose `part` is another.
std::string tensor_with(std::size_t part, const std::string& other) {
  const std::string id =
      "(" + text("storage") + "ctorch\nFloatStorage\n" + text("0") + text("cpu") + "K\x02tQ";
  std::vector<std::string> parts = {"ctorch._utils\n_rebuild_tensor_v2\n",
                                    "(",
                                    id,
                                    std::string("K\0", 2),
                                    "K\x02\x85",
                                    "K\x01\x85",
                                    "\x89",
                                    "}",
                                    "tR"};
  if (part < parts.size()) parts[part] = other;
  std::string all;
  for (const auto& one : parts) all += one;
  return all;
}
constexpr std::size_t no_part = 100;

void expect_same(const PthIndex& found, const PthIndex& expected) {
  ASSERT_EQ(found.tensors.size(), expected.tensors.size());
  ASSERT_EQ(found.storages.size(), expected.storages.size());
  for (std::size_t i = 0; i < found.tensors.size(); ++i) {
    const PthTensor &a = found.tensors[i], &b = expected.tensors[i];
    EXPECT_EQ(a.name, b.name);
    EXPECT_EQ(a.dtype, b.dtype);
    EXPECT_EQ(a.shape, b.shape);
    EXPECT_EQ(a.strides, b.strides);
    EXPECT_EQ(a.offset, b.offset);
    EXPECT_EQ(a.storage, b.storage);
  }
  for (std::size_t i = 0; i < found.storages.size(); ++i) {
    EXPECT_EQ(found.storages[i].key, expected.storages[i].key);
    EXPECT_EQ(found.storages[i].bytes, expected.storages[i].bytes);
    EXPECT_EQ(found.storages[i].has_bools, expected.storages[i].has_bools);
  }
}

TEST(PthPickle, DecodesWhatItEncodes) {
  PthIndex index;
  for (const Dtype dtype : all_dtypes) {
    index.tensors.push_back({.name = std::string(to_string(dtype)),
                             .dtype = dtype,
                             .shape = {3, 300},
                             .strides = {300, 1},
                             .storage = index.storages.size()});
    index.storages.push_back({.key = std::to_string(index.storages.size()),
                              .bytes = 900 * size_of(dtype),
                              .has_bools = dtype == Dtype::boolean});
  }
  index.tensors.push_back({.name = "scalar", .dtype = Dtype::f32, .offset = 899, .storage = 5});
  index.tensors.push_back({.name = "turned",
                           .dtype = Dtype::f32,
                           .shape = {2, 0, 4},
                           .strides = {1, 1, 7},
                           .offset = 70,
                           .storage = 5});
  ASSERT_EQ(index.tensors[5].dtype, Dtype::f32);
  const std::uint64_t many = std::uint64_t{1} << 40;
  index.tensors.push_back({.name = "large",
                           .dtype = Dtype::f64,
                           .shape = {1 << 20, 1 << 17},
                           .strides = {1 << 17, 1},
                           .offset = 1 << 16,
                           .storage = index.storages.size()});
  index.storages.push_back({.key = "large", .bytes = many + (1 << 19)});
  expect_same(decode(encode_pth_pickle(index)), index);
  expect_same(decode(encode_pth_pickle({})), {});
}

TEST(PthPickle, AllowsExactlyTheElementsInTheStorage) {
  const auto tensor = [](std::vector<std::int64_t> shape, std::vector<std::int64_t> strides,
                         std::int64_t offset = 0) {
    return PthTensor{.shape = std::move(shape), .strides = std::move(strides), .offset = offset};
  };
  EXPECT_EQ(refused(tensor({2, 3}, {3, 1}), 24), "accepted");
  EXPECT_EQ(refused(tensor({2, 3}, {3, 1}), 23 * 4), "accepted");
  EXPECT_EQ(
      refused(tensor({2, 3}, {3, 1}, 1), 24),
      "corrupt_data: m.pth: tensor \"w\": expected its elements in the 24 bytes of storage \"0\", found one "
      "that ends at byte 28");
  EXPECT_THAT(refused(tensor({2, 3}, {4, 1}), 24), HasSubstr("found one that ends at byte 28"));
  EXPECT_EQ(refused(tensor({}, {}, 5), 24), "accepted");
  EXPECT_THAT(refused(tensor({}, {}, 6), 24), HasSubstr("found one that ends at byte 28"));
  EXPECT_EQ(refused(tensor({0, 9}, {9, 1}, 6), 24), "accepted") << "none of them is read";
  EXPECT_THAT(refused(tensor({0}, {1}, 7), 24), HasSubstr("found one that ends at byte 28"));
  for (const auto& far : {tensor({2}, {largest}), tensor({largest}, {2}), tensor({1}, {1}, largest),
                          tensor({2, 2}, {largest, largest}), tensor({1 << 30, 1 << 30, 16}, {0, 0, 0}),
                          tensor({0, 1 << 30, 1 << 30, 16}, {0, 0, 0, 0}), tensor({1}, {1}, largest / 2)})
    EXPECT_THAT(refused(far, 24),
                HasSubstr("expected its elements in the 24 bytes of storage \"0\", found one beyond "
                          "2^63"));
}

TEST(PthPickle, BoundsWhatRepeatsElements) {
  const auto repeated = [](std::int64_t times) { return PthTensor{.shape = {times}, .strides = {0}}; };
  EXPECT_EQ(refused(repeated(1 << 28), 4), "accepted");  // 1 GiB
  EXPECT_EQ(refused(repeated((1 << 28) + 1), 4),
            "unsupported: m.pth: tensor \"w\": it repeats the 4 bytes of its storage until they are "
            "1073741828; up to "
            "1073741824 are read");
}

TEST(PthPickle, HoldsAnObjectAgainstWhatTorchWrites) {
  const auto with = [](std::size_t part, const std::string& other) {
    return refused(dict_of(text("w") + tensor_with(part, other)));
  };
  EXPECT_EQ(with(no_part, ""), "accepted");
  const std::string beginning = "corrupt_data: m.pth: tensor \"w\": ";
  const std::string zero("K\0", 2);
  EXPECT_EQ(with(2, "N"), beginning + "expected a storage, found None");
  EXPECT_EQ(with(2, "NQ"), beginning + "expected the place of a storage, found None");
  EXPECT_EQ(with(2, "(" + text("storage") + "tQ"),
            beginning + "expected the place of a storage in five parts, found 1");
  EXPECT_EQ(with(3, "J\xff\xff\xff\xff"), beginning + "expected an offset of at least 0, found -1");
  EXPECT_EQ(with(3, text("1")), beginning + "expected an offset, found a str");
  EXPECT_EQ(with(4, zero), beginning + "expected a shape, found an int");
  EXPECT_EQ(with(4, "J\xfe\xff\xff\xff\x85"), beginning + "expected a shape of at least 0, found -2");
  EXPECT_EQ(with(5, ")"), beginning + "expected 1 strides, found 0");
  EXPECT_EQ(with(6, "N"), beginning + "expected whether it wants a gradient, found None");
  EXPECT_EQ(with(7, "N"), beginning + "expected a dict of hooks, found None");
  EXPECT_EQ(with(7, ""), beginning + "expected 6 arguments of torch._utils._rebuild_tensor_v2, found 5");
  EXPECT_EQ(with(7, "}}NN"), beginning + "expected 6 arguments of torch._utils._rebuild_tensor_v2, found 9");
  EXPECT_EQ(with(7, "}N"), "accepted");
  EXPECT_EQ(with(7, "}NNs"), "unsupported: m.pth: tensor \"w\": it has hooks; save it without");
  std::string deep;
  for (int i = 0; i < 65; ++i) deep += zero;
  EXPECT_EQ(with(4, "(" + deep + "t"), beginning + "expected a shape of at most 64 dimensions, found 65");
  const auto place = [](const std::string& type, const std::string& count) {
    return "(" + text("storage") + type + text("0") + text("cpu") + count + "tQ";
  };
  EXPECT_EQ(with(2, place("ctorch\nuint16\n", "K\x02")),
            beginning + "expected a type of elements, found torch.uint16");
  EXPECT_EQ(with(2, place("ctorch.storage\nUntypedStorage\n", "K\x02")),
            beginning + "expected a type of elements, found torch.storage.UntypedStorage");
  EXPECT_EQ(with(2, place("ctorch\nFloatStorage\n", "\x8a\x08\xff\xff\xff\xff\xff\xff\xff\x7f")),
            beginning + "expected a storage of less than 2^64 bytes, found 9223372036854775807 elements");
  EXPECT_EQ(refused(dict_of(text("v") + tensor_with(no_part, "") + text("w") +
                            tensor_with(2, place("ctorch\nFloatStorage\n", "K\x03")))),
            beginning + "expected storage \"0\" of 8 bytes as before, found 12");
  EXPECT_EQ(refused(dict_of(text("w") + tensor_with(no_part, "") + text("w") + tensor_with(no_part, ""))),
            beginning + "expected each name once, found it twice");
}

TEST(PthPickle, TakesTheTensorOutOfAParameter) {
  const std::string function = "ctorch._utils\n_rebuild_parameter\n";
  const PthIndex index = decode(dict_of(text("w") + function + "(" + tensor_with(no_part, "") + "\x88}tR"));
  ASSERT_EQ(index.tensors.size(), 1U);
  EXPECT_EQ(index.tensors[0].shape, (std::vector<std::int64_t>{2}));
  EXPECT_EQ(refused(dict_of(text("w") + function + "(N\x88}tR")),
            "corrupt_data: m.pth: tensor \"w\": expected a tensor in a parameter, found None");
  EXPECT_EQ(refused(dict_of(text("w") + function + "(" + function + "(N\x88}tR\x88}tR")),
            "corrupt_data: m.pth: tensor \"w\": expected a tensor in a parameter, found a parameter");
}

TEST(PthPickle, SaysWhatThereIsWhereNoDictOfTensorsIs) {
  const std::string tensor = tensor_with(no_part, "");
  EXPECT_EQ(refused(bytes_of("\x80\x02K\x01.")),
            "invalid_argument: m.pth: it holds an int and no dict of tensors; save model.state_dict()");
  EXPECT_EQ(refused(bytes_of("\x80\x02" + tensor + ".")),
            "invalid_argument: m.pth: it holds a tensor and no dict of tensors; save model.state_dict()");
  const std::string model = text("model") + "}(" + text("w") + tensor + "u";
  const Bytes nested = dict_of(text("epoch") + "K\x03" + model + text("best") + tensor);
  const std::string top =
      "at the top level it has \"epoch\" (an int), \"model\" (a dict of 1), \"best\" (a tensor)";
  EXPECT_EQ(refused(nested), "invalid_argument: m.pth: it is no plain state dict: " + top +
                                 "; to read a dict in it pass its key, such as \"model\"");
  EXPECT_EQ(refused(nested, "optimizer"),
            "invalid_argument: m.pth: it has nothing under the key \"optimizer\"; " + top);
  EXPECT_EQ(refused(nested, "epoch"),
            "invalid_argument: m.pth: under the key \"epoch\" is no dict of tensors; " + top);
  ASSERT_EQ(decode(nested, "model").tensors.size(), 1U);
  EXPECT_EQ(decode(nested, "model").tensors[0].name, "w");
  EXPECT_EQ(refused(dict_of(text("w") + tensor + "K\x01" + tensor)),
            "invalid_argument: m.pth: it is no plain state dict: at the top level it has \"w\" (a tensor), "
            "an int (a "
            "tensor); save model.state_dict() alone");
  EXPECT_EQ(
      refused(dict_of(text("model") + "}(" + text("w") + "Nu"), "model"),
      "invalid_argument: m.pth: what is under the key \"model\" has \"w\" (None), which is no tensor under a "
      "name");
  EXPECT_EQ(
      refused(dict_of(""), "model"),
      "invalid_argument: m.pth: it has nothing under the key \"model\"; at the top level it has nothing");
  EXPECT_EQ(refused(dict_of(text("w") + tensor + text("epoch") + "K\x01")),
            "invalid_argument: m.pth: it is no plain state dict: at the top level it has \"epoch\" (an int), "
            "\"w\" (a tensor); save model.state_dict() alone");
  std::string many;
  for (char name = 'a'; name < 'k'; ++name) many += text(std::string(1, name)) + "N";
  EXPECT_THAT(refused(dict_of(many)),
              AllOf(HasSubstr("\"h\" (None) and 2 more; save"), testing::Not(HasSubstr("\"i\""))));
}

TEST(PthPickle, EveryTruncationIsRefused) {
  const Bytes whole = dict_of(text("w") + tensor_with(no_part, ""));
  for (std::size_t length = 0; length < whole.size(); ++length) {
    const Bytes cut(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(length));
    EXPECT_THAT(refused(cut), StartsWith("corrupt_data: m.pth: data.pkl: at byte ")) << length;
  }
}

}  // namespace
}  // namespace lockstep

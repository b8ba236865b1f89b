#include "lockstep/data/pth_file.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <numeric>

#include "lockstep/data/folder_test.h"
#include "lockstep/data/pth_pickle.h"
#include "lockstep/data/zip_writer.h"

namespace lockstep {
namespace {

using test::Bytes;
using test::bytes_of;
using test::content_of;
using test::recorded;
using test::refusal;
using testing::AllOf;
using testing::AnyOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;

struct Content {
  PthIndex index;
  std::vector<Bytes> storages;
};

Content read(const std::filesystem::path& path, const std::string& key = "") {
  const PthFile file(path, key);
  Content content{file.index(), {}};
  for (std::size_t i = 0; i < content.index.storages.size(); ++i) {
    Bytes& bytes = content.storages.emplace_back(content.index.storages[i].bytes);
    file.read(i, bytes);
  }
  return content;
}

std::vector<float> floats(const Bytes& bytes) {
  std::vector<float> values(bytes.size() / sizeof(float));
  if (!values.empty()) std::memcpy(values.data(), bytes.data(), values.size() * sizeof(float));
  return values;
}

/// What a reader of the tensors can tell; not the names of storages.
std::string told(const Content& content) {
  std::string text;
  for (const PthTensor& tensor : content.index.tensors) {
    text.append(tensor.name).append(" ").append(to_string(tensor.dtype));
    for (const auto& numbers : {tensor.shape, tensor.strides, std::vector{tensor.offset}}) {
      text.append(" [");
      for (const auto number : numbers) text.append(std::to_string(number)).append(" ");
      text.append("]");
    }
    const Bytes& bytes = content.storages[tensor.storage];
    text.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  }
  return text;
}

class Pth : public test::FolderTest {
 protected:
  std::string refused(const Bytes& content, const std::string& key = "") const {
    return refusal([&] { (void)read(memory_.with(content), key); });
  }
  std::filesystem::path written(const Content& content) const {
    std::filesystem::path path = folder_ / "written.pth";
    write_pth_file(path, content.index,
                   [&](std::size_t number) { return std::span(content.storages[number]); });
    return path;
  }
  test::MemoryFile memory_;
};

std::string refused_as_recorded(const std::string& name, const std::string& key = "") {
  return refusal([&] { (void)read(recorded(name), key); });
}

TEST(PthRecorded, AModelHasPythonsNamesAndOrder) {
  const Content content = read(recorded("model"));
  std::vector<std::string> names;
  for (const PthTensor& tensor : content.index.tensors) names.push_back(tensor.name);
  EXPECT_THAT(names, ElementsAre("0.weight", "0.bias", "1.weight", "1.bias", "1.running_mean",
                                 "1.running_var", "1.num_batches_tracked"));
  EXPECT_EQ(content.index.tensors[0].shape, (std::vector<std::int64_t>{2, 3}));
  EXPECT_EQ(content.index.tensors[0].strides, (std::vector<std::int64_t>{3, 1}));
  EXPECT_THAT(floats(content.storages[0]), ElementsAre(0, 0.25, 0.5, 0.75, 1, 1.25));
  EXPECT_THAT(floats(content.storages[5]), ElementsAre(5, 5.25));
  EXPECT_EQ(content.index.tensors[6].dtype, Dtype::i64);
  EXPECT_TRUE(content.index.tensors[6].shape.empty());
  EXPECT_EQ(content.storages[6], bytes_of(std::string("\6\0\0\0\0\0\0\0", 8)));
}

TEST(PthRecorded, HasEveryTypeOfElements) {
  const Content content = read(recorded("types"));
  const std::vector<std::pair<std::string, Dtype>> types = {{"uint8", Dtype::u8},
                                                            {"int8", Dtype::i8},
                                                            {"int16", Dtype::i16},
                                                            {"int32", Dtype::i32},
                                                            {"int64", Dtype::i64},
                                                            {"float16", Dtype::f16},
                                                            {"bfloat16", Dtype::bf16},
                                                            {"float32", Dtype::f32},
                                                            {"float64", Dtype::f64},
                                                            {"complex64", Dtype::complex64},
                                                            {"complex128", Dtype::complex128},
                                                            {"uint16", Dtype::u16},
                                                            {"uint32", Dtype::u32},
                                                            {"uint64", Dtype::u64},
                                                            {"bool", Dtype::boolean}};
  ASSERT_EQ(types.size(), std::size(all_dtypes));
  ASSERT_EQ(content.index.tensors.size(), types.size());
  for (std::size_t i = 0; i < types.size(); ++i) {
    const PthTensor& tensor = content.index.tensors[i];
    EXPECT_EQ(tensor.name, types[i].first);
    EXPECT_EQ(tensor.dtype, types[i].second) << tensor.name;
    EXPECT_EQ(tensor.shape, std::vector<std::int64_t>{3}) << tensor.name;
    std::string expected(3 * size_of(tensor.dtype), '\0');
    std::iota(expected.begin(), expected.end(), '\1');
    if (tensor.dtype == Dtype::boolean) expected = std::string("\1\0\1", 3);
    EXPECT_EQ(content.storages[tensor.storage], bytes_of(expected)) << tensor.name;
  }
}

TEST(PthRecorded, ViewsShareAStorageAndHaveTheirStrides) {
  const PthIndex index = read(recorded("views")).index;
  const auto is = [&](std::size_t i, const std::string& name, const std::vector<std::int64_t>& shape,
                      const std::vector<std::int64_t>& strides, std::int64_t offset) {
    EXPECT_EQ(index.tensors[i].name, name);
    EXPECT_EQ(index.tensors[i].shape, shape) << name;
    EXPECT_EQ(index.tensors[i].strides, strides) << name;
    EXPECT_EQ(index.tensors[i].offset, offset) << name;
  };
  ASSERT_EQ(index.tensors.size(), 6U);
  is(0, "turned", {4, 3}, {1, 4}, 0);
  is(1, "inner", {2, 2}, {4, 1}, 5);
  is(2, "parameter", {4}, {1}, 0);
  is(3, "repeated", {3, 5}, {0, 0}, 0);
  is(4, "empty", {0, 3}, {3, 1}, 0);
  is(5, "scalar", {}, {}, 0);
  EXPECT_EQ(index.tensors[0].storage, index.tensors[1].storage);
  EXPECT_EQ(index.tensors[0].storage, index.tensors[2].storage);
  EXPECT_EQ(index.storages[index.tensors[0].storage].bytes, 48U);
  EXPECT_EQ(index.storages[index.tensors[3].storage].bytes, 4U);
  EXPECT_EQ(index.storages[index.tensors[4].storage].bytes, 0U);
}

TEST(PthRecorded, ADictInADictIsReadByItsKey) {
  const Content content = read(recorded("nested"), "model");
  ASSERT_EQ(content.index.tensors.size(), 1U);
  EXPECT_EQ(content.index.tensors[0].name, "weight");
  EXPECT_THAT(floats(content.storages.at(0)), ElementsAre(0, 1, 2));
  EXPECT_THAT(
      refused_as_recorded("nested"),
      AllOf(
          StartsWith("invalid_argument: "),
          HasSubstr("nested.pth: it is no plain state dict: at the top level it has \"epoch\" (an int), "
                    "\"model\" (a dict of 1), \"optimizer\" (a dict of 2), \"done\" (a bool); to read a dict "
                    "in it pass its key, such as \"model\"")));
}

TEST(PthRecorded, NothingElseIsReadAndNothingIsRun) {
  EXPECT_THAT(
      refused_as_recorded("malicious"),
      AllOf(StartsWith("unsupported: "), HasSubstr("malicious.pth: data.pkl: at byte "),
            HasSubstr(
                "it asks for \"posix.system\", which is not among what is read: tensors in dicts; nothing "
                "of the file was run")));
  EXPECT_THAT(
      refused_as_recorded("before_1_6"),
      AllOf(
          StartsWith("unsupported: "),
          HasSubstr("before_1_6.pth: it is as torch.save wrote before torch 1.6; write it anew with a newer "
                    "torch: torch.save(torch.load(path), path)")));
  EXPECT_THAT(refused_as_recorded("conjugated"),
              AllOf(StartsWith("unsupported: "),
                    HasSubstr("tensor \"weight\": it is conjugated or negated only when it is read")));
  EXPECT_THAT(refused_as_recorded("float8"),
              AllOf(StartsWith("unsupported: "), HasSubstr("it asks for \"torch.float8_e4m3fn\"")));
  EXPECT_THAT(refused_as_recorded("tensor"),
              AllOf(StartsWith("invalid_argument: "), HasSubstr("it holds a tensor and no dict of tensors")));
}

TEST_F(Pth, ReadsWhatItWrites) {
  for (const char* const name : {"model", "types", "views"}) {
    const Content content = read(recorded(name));
    EXPECT_EQ(told(read(written(content))), told(content)) << name;
  }
  EXPECT_EQ(told(read(written({}))), "");
}

TEST_F(Pth, WritesTheSameBytesForTheSameContent) {
  const Content content = read(recorded("model"));
  const Bytes first = content_of(written(content));
  EXPECT_EQ(content_of(written(content)), first);
}

TEST_F(Pth, AFailureWhileItWritesLeavesTheFileThatWasThere) {
  Content content = read(recorded("model"));
  const Bytes before = content_of(written(content));
  const auto fails = [&] {
    write_pth_file(folder_ / "written.pth", content.index, [&](std::size_t number) {
      if (number == 3) throw Error(ErrorCode::system, "the test's");
      return std::span<const std::byte>(content.storages[number]);
    });
  };
  EXPECT_EQ(refusal(fails), "system: the test's");
  EXPECT_EQ(content_of(folder_ / "written.pth"), before);
  EXPECT_EQ(
      std::distance(std::filesystem::directory_iterator(folder_), std::filesystem::directory_iterator()), 1);
}

/// A file of one tensor, of which one part is another.
struct Parts {
  std::string folder = "archive/", order = "little", version = "3\n";
  PthIndex index = {.tensors = {{.name = "w", .dtype = Dtype::boolean, .shape = {2}, .strides = {1}}},
                    .storages = {{.key = "0", .bytes = 2}}};
  Bytes content = Bytes(2, std::byte{1});
  std::string more{};  // the name of one more file

  Bytes archive() const {
    Bytes archive;
    ZipWriter zip(
        [&](std::span<const std::byte> bytes) { archive.insert(archive.end(), bytes.begin(), bytes.end()); });
    zip.add(folder + "data.pkl", encode_pth_pickle(index));
    zip.add(folder + "byteorder", bytes_of(order));
    zip.add(folder + "data/0", content);
    zip.add(folder + "version", bytes_of(version));
    if (!more.empty()) zip.add(more, bytes_of("x"));
    zip.finish();
    return archive;
  }
};

TEST_F(Pth, SaysWhatIsWrongInTheArchive) {
  const std::string x = memory_.with({}).string();
  const auto with = [&](const auto& change) {
    Parts parts;
    change(parts);
    return refused(parts.archive());
  };
  EXPECT_EQ(with([](Parts&) {}), "accepted");
  EXPECT_EQ(with([](Parts& parts) { parts.folder = "my model/"; }), "accepted");
  EXPECT_EQ(with([](Parts& parts) { parts.order = "big"; }),
            "unsupported: " + x +
                ": it was written on a machine with the other byte order (big); write it anew on one "
                "with the order of this");
  EXPECT_EQ(with([](Parts& parts) { parts.order = "middle"; }),
            "corrupt_data: " + x + ": expected a byteorder of little or big, found \"middle\"");
  EXPECT_EQ(with([](Parts& parts) { parts.version = "11\n"; }),
            "unsupported: " + x + ": it is of version 11; up to 10 are read");
  EXPECT_EQ(with([](Parts& parts) { parts.version = "three"; }),
            "corrupt_data: " + x + ": expected the number of a version, found \"three\"");
  EXPECT_EQ(with([](Parts& parts) { parts.folder = ""; }),
            "corrupt_data: " + x +
                ": expected an archive as torch.save writes it, found a zip archive without a "
                "data.pkl in a folder; check its name");
  EXPECT_EQ(with([](Parts& parts) { parts.more = "b/data.pkl"; }),
            "corrupt_data: " + x +
                ": expected one data.pkl, found one in \"archive/\" and another, \"b/data.pkl\"");
  EXPECT_THAT(
      with([](Parts& parts) { parts.more = "archive/constants.pkl"; }),
      AllOf(StartsWith("unsupported: "), HasSubstr(x + ": it is a TorchScript archive"),
            HasSubstr("save model.state_dict() with torch.save, or the model with save_state_dict()")));
  EXPECT_EQ(
      with([](Parts& parts) { parts.index.storages[0].key = "1"; }),
      "corrupt_data: " + x + ": expected a file \"archive/data/1\" of 2 bytes in the archive, found none");
  EXPECT_EQ(with([](Parts& parts) { parts.index.storages[0].bytes = std::uint64_t{1} << 60; }),
            "corrupt_data: " + x +
                ": expected a file \"archive/data/0\" of 1152921504606846976 bytes in the archive, "
                "found one of 2");
  EXPECT_EQ(with([](Parts& parts) { parts.content[1] = std::byte{2}; }),
            "corrupt_data: " + x + ": expected 0 or 1 for each bool in storage \"0\", found 2 at its byte 1");
}

TEST_F(Pth, SaysWhatOtherFilesAre) {
  Bytes tar(600, std::byte{0});
  std::ranges::copy(bytes_of("ustar"), tar.begin() + 257);
  EXPECT_THAT(refused(tar), AllOf(StartsWith("unsupported: "), HasSubstr("wrote before torch 1.6")));
  EXPECT_THAT(
      refused(bytes_of("\x89LSCK\r\n\x1a")),
      AllOf(StartsWith("corrupt_data: "), HasSubstr(": at byte 0 expected a zip archive as torch.save "
                                                    "writes it, found \"\x89LSC\"; this is another kind of "
                                                    "file: check its name")));
  EXPECT_THAT(refused({}), HasSubstr("at byte 0 expected a zip archive, found 0 bytes in all"));
  EXPECT_THAT(refusal([&] { (void)read(folder_ / "none"); }),
              AllOf(StartsWith("system: cannot open the state dict "), HasSubstr("No such file")));
  EXPECT_THAT(refusal([&] { (void)read(folder_); }), HasSubstr("expected the state dict, found a directory"));
}

TEST_F(Pth, EveryTruncationIsRefused) {
  const Bytes whole = content_of(recorded("model"));
  for (std::size_t length = 0; length < whole.size(); ++length) {
    const Bytes cut(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(length));
    ASSERT_THAT(refused(cut), StartsWith("corrupt_data: ")) << length;
  }
  EXPECT_EQ(refused(whole), "accepted");
}

TEST_F(Pth, AChangedByteIsNoticedOrIsInNoTensor) {
  for (const char* const name : {"model", "views"}) {
    const Bytes whole = content_of(recorded(name));
    const std::string before = told(read(recorded(name)));
    for (std::size_t at = 0; at < whole.size(); ++at) {
      for (const auto change : {std::byte{0x01}, std::byte{0xff}}) {
        Bytes other = whole;
        other[at] ^= change;
        std::string after = before;
        const std::string outcome = refusal([&] { after = told(read(memory_.with(other))); });
        ASSERT_EQ(after, before) << name << " at " << at;
        ASSERT_THAT(outcome, AnyOf("accepted", StartsWith("corrupt_data: "), StartsWith("unsupported: ")))
            << name << " at " << at;
      }
    }
  }
}

}  // namespace
}  // namespace lockstep

#include "lockstep/data/idx.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <functional>
#include <limits>

#include "lockstep/base/folder_test.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;
using Bytes = std::vector<std::byte>;

Bytes bytes(std::initializer_list<int> values) {
  Bytes result;
  for (const int value : values) result.push_back(static_cast<std::byte>(value));
  return result;
}

template <class T>
Bytes bytes_of(const std::vector<T>& values) {
  Bytes result(values.size() * sizeof(T));
  std::memcpy(result.data(), values.data(), result.size());
  return result;
}

class Idx : public test::FolderTest {};

// 2 × 3 of u8: the bytes of a whole file.
const Bytes small_file = bytes({0, 0, 8, 2, 0, 0, 0, 2, 0, 0, 0, 3, 10, 11, 12, 13, 14, 255});

void expect_error(ErrorCode code, const std::vector<std::string>& parts, const std::function<void()>& call) {
  try {
    call();
    FAIL() << "no Error";
  } catch (const Error& error) {
    const std::string text = error.what();
    EXPECT_EQ(error.code(), code) << text;
    EXPECT_EQ(text.find('\n'), std::string::npos) << text;
    for (const std::string& part : parts)
      EXPECT_NE(text.find(part), std::string::npos) << part << " not in: " << text;
  }
}

/// All three ways to open a file refuse it alike.
void expect_refused(const fs::path& path, ErrorCode code, std::vector<std::string> parts) {
  parts.push_back(path.string());
  expect_error(code, parts, [&] { static_cast<void>(read_idx(path)); });
  expect_error(code, parts, [&] { static_cast<void>(read_idx_header(path)); });
  expect_error(code, parts, [&] { const IdxFile file(path); });
}

TEST_F(Idx, ReadsTheBytesOfTheFormat) {
  const IdxArray array = read_idx(file("x", small_file));
  EXPECT_EQ(array.type, IdxType::u8);
  EXPECT_EQ(array.shape, (std::vector<std::size_t>{2, 3}));
  EXPECT_EQ(array.data, bytes({10, 11, 12, 13, 14, 255}));
  EXPECT_EQ(array.size(), 6u);
}

TEST_F(Idx, ReadsBigEndianElementsOfEveryType) {
  const auto read = [&](const Bytes& content) { return read_idx(file("x", content)).data; };
  EXPECT_EQ(read(bytes({0, 0, 0x09, 1, 0, 0, 0, 2, 0x80, 0x7f})), bytes_of<std::int8_t>({-128, 127}));
  EXPECT_EQ(read(bytes({0, 0, 0x0b, 1, 0, 0, 0, 2, 1, 2, 0xff, 0xfe})), bytes_of<std::int16_t>({258, -2}));
  EXPECT_EQ(read(bytes({0, 0, 0x0c, 1, 0, 0, 0, 1, 1, 2, 3, 4})), bytes_of<std::int32_t>({0x01020304}));
  EXPECT_EQ(read(bytes({0, 0, 0x0d, 1, 0, 0, 0, 1, 0x3f, 0xc0, 0, 0})), bytes_of<float>({1.5f}));
  EXPECT_EQ(read(bytes({0, 0, 0x0e, 1, 0, 0, 0, 1, 0xc0, 4, 0, 0, 0, 0, 0, 0})), bytes_of<double>({-2.5}));
}

TEST_F(Idx, WritesWhatItReads) {
  const std::vector<IdxArray> arrays = {
      {IdxType::u8, {2, 3}, bytes({1, 2, 3, 4, 5, 6})},
      {IdxType::i8, {2}, bytes_of<std::int8_t>({-1, 2})},
      {IdxType::i16, {1, 2, 1}, bytes_of<std::int16_t>({-300, 300})},
      {IdxType::i32, {3}, bytes_of<std::int32_t>({-70000, 0, 70000})},
      {IdxType::f32, {2, 1}, bytes_of<float>({-0.0f, 3.25f})},
      {IdxType::f64, {1, 1, 1, 1, 1, 1, 1, 2}, bytes_of<double>({1e300, -1e-300})},
  };
  for (const IdxArray& array : arrays) {
    const fs::path path = folder_ / "array";
    write_idx(path, array);
    const IdxArray again = read_idx(path);
    EXPECT_EQ(again.type, array.type);
    EXPECT_EQ(again.shape, array.shape);
    EXPECT_EQ(again.data, array.data);
    EXPECT_EQ(read_idx_header(path).elements(), array.size());
  }
  EXPECT_EQ(files().size(), 1U);  // nothing left beside
}

TEST_F(Idx, WritesTheBytesOfTheFormat) {
  write_idx(folder_ / "x", {IdxType::i16, {258, 1}, Bytes(516, std::byte{0})});
  std::ifstream in(folder_ / "x", std::ios::binary);
  const std::string content(std::istreambuf_iterator<char>(in), {});
  EXPECT_EQ(content.substr(0, 12), std::string("\0\0\x0b\x02\0\0\x01\x02\0\0\0\x01", 12));
  EXPECT_EQ(content.size(), 12u + 516u);
}

TEST_F(Idx, WritesNothingThatItCouldNotRead) {
  const fs::path path = folder_ / "x";
  const std::vector<IdxArray> refused = {
      {IdxType::u8, {}, bytes({1})},
      {IdxType::u8, {1, 1, 1, 1, 1, 1, 1, 1, 1}, bytes({1})},
      {IdxType::u8, {0}, {}},
      {IdxType::u8, {2}, bytes({1})},
      {IdxType::i16, {2}, bytes({1, 2})},
      {IdxType::u8, {std::size_t{1} << 33, std::size_t{1} << 33}, {}},
      {static_cast<IdxType>(7), {1}, bytes({1})},
  };
  for (const IdxArray& array : refused) {
    expect_error(ErrorCode::invalid_argument, {path.string()}, [&] { write_idx(path, array); });
  }
  EXPECT_EQ(files().size(), 0U);
}

TEST_F(Idx, AWriteThatFailsLeavesNothingBehind) {
  const IdxArray array{IdxType::u8, {1}, bytes({1})};
  expect_error(ErrorCode::system, {"there is no folder"}, [&] { write_idx(folder_ / "none" / "x", array); });
  fs::create_directory(folder_ / "taken");
  expect_error(ErrorCode::system, {"taken"}, [&] { write_idx(folder_ / "taken", array); });
  EXPECT_EQ(files().size(), 1U);
}

TEST_F(Idx, GivesOneRecordAtATime) {
  const IdxFile idx(file("x", small_file));
  EXPECT_EQ(idx.size(), 2u);
  EXPECT_EQ(idx.header().record_elements(), 3u);
  EXPECT_TRUE(std::ranges::equal(idx.record(0), bytes({10, 11, 12})));
  EXPECT_TRUE(std::ranges::equal(idx.record(1), bytes({13, 14, 255})));
  expect_error(ErrorCode::invalid_argument, {"below 2", "found 2"},
               [&] { static_cast<void>(idx.record(2)); });
}

TEST_F(Idx, RecordsOutliveTheFilesNameAndAMove) {
  const fs::path path = file("x", small_file);
  IdxFile idx(path);
  write_idx(path, {IdxType::u8, {1}, bytes({1})});
  const IdxFile moved = std::move(idx);
  EXPECT_TRUE(std::ranges::equal(moved.record(1), bytes({13, 14, 255})));
}

TEST_F(Idx, AFileThatIsShortenedMeanwhileIsAnError) {
  const fs::path path = file("x", small_file);
  const IdxFile idx(path);
  fs::resize_file(path, small_file.size() - 1);
  EXPECT_TRUE(std::ranges::equal(idx.record(0), bytes({10, 11, 12})));
  expect_error(ErrorCode::corrupt_data, {path.string(), "at byte", "became shorter"},
               [&] { (void)idx.record(1); });
}

TEST_F(Idx, DecodesEveryTypeToFloat) {
  const auto decoded = [&](IdxType type, const Bytes& data) {
    write_idx(folder_ / "x", {type, {2, 1}, data});
    const IdxFile idx(folder_ / "x");
    std::vector<float> values(2);
    idx.decode(0, std::span(values).first(1));
    idx.decode(1, std::span(values).last(1));
    return values;
  };
  EXPECT_EQ(decoded(IdxType::u8, bytes({0, 255})), (std::vector<float>{0, 255}));
  EXPECT_EQ(decoded(IdxType::i8, bytes({128, 127})), (std::vector<float>{-128, 127}));
  EXPECT_EQ(decoded(IdxType::i16, bytes_of<std::int16_t>({-300, 258})), (std::vector<float>{-300, 258}));
  EXPECT_EQ(decoded(IdxType::i32, bytes_of<std::int32_t>({-70000, 1})), (std::vector<float>{-70000, 1}));
  EXPECT_EQ(decoded(IdxType::f32, bytes_of<float>({0.1f, -2})), (std::vector<float>{0.1f, -2}));
  EXPECT_EQ(decoded(IdxType::f64, bytes_of<double>({0.1, -2})), (std::vector<float>{0.1f, -2}));
}

TEST_F(Idx, DecodesIntegersExactly) {
  constexpr std::int32_t largest = std::numeric_limits<std::int32_t>::max();  // a float would round it
  write_idx(folder_ / "x", {IdxType::i32, {1, 2}, bytes_of<std::int32_t>({largest, -1})});
  std::vector<std::int64_t> labels(2);
  IdxFile(folder_ / "x").decode(0, std::span(labels));
  EXPECT_EQ(labels, (std::vector<std::int64_t>{largest, -1}));
}

TEST_F(Idx, LabelsOutsideOfTheirClassesAreRefusedWhereTheyStand) {
  const IdxFile labels(file("labels", bytes({0, 0, 8, 1, 0, 0, 0, 3, 0, 9, 10})));
  EXPECT_EQ(labels.label(1, 10), 9);
  expect_error(ErrorCode::corrupt_data,
               {"labels: at byte 10 expected a label of 0 to 9, found 10 (record 2); check the number of"},
               [&] { static_cast<void>(labels.label(2, 10)); });
  EXPECT_EQ(labels.label(2), 10) << "unchecked";
  const IdxFile negative(file("negative", bytes({0, 0, 9, 1, 0, 0, 0, 1, 255})));
  expect_error(ErrorCode::corrupt_data, {"at byte 8 expected a label of 0 to 9, found -1 (record 0)"},
               [&] { static_cast<void>(negative.label(0, 10)); });
  EXPECT_EQ(negative.label(0), -1);
}

TEST_F(Idx, DecodeRefusesWhatWouldLoseSomething) {
  const IdxFile images(file("x", small_file));
  std::vector<float> floats(2);
  expect_error(ErrorCode::invalid_argument, {"3 elements", "room for 2"},
               [&] { images.decode(0, std::span(floats)); });
  write_idx(folder_ / "f", {IdxType::f32, {1}, bytes_of<float>({1e30f})});
  const IdxFile reals(folder_ / "f");
  std::vector<std::int64_t> labels(1);
  expect_error(ErrorCode::invalid_argument, {"integers", "f32 1"},
               [&] { reals.decode(0, std::span(labels)); });
}

TEST_F(Idx, DamageIsNamedWithOffsetExpectedAndFound) {
  const auto refused = [&](const Bytes& content, std::vector<std::string> parts) {
    expect_refused(file("x", content), ErrorCode::corrupt_data, std::move(parts));
  };
  refused({}, {"byte 0", "0 bytes in all", "truncated"});
  refused(bytes({0, 0, 8}), {"byte 0", "3 bytes in all"});
  refused(bytes({0x1f, 0x8b, 8, 0}), {"gzip", "gunzip"});
  refused(bytes({'P', 'K', 3, 4}), {"byte 0", "expected IDX (00 00)", "found 50 4b"});
  refused(bytes({0, 0, 0x0a, 1, 0, 0, 0, 1, 0}), {"byte 2", "found 0a"});
  refused(bytes({0, 0, 8, 0, 0, 0, 0, 1, 0}), {"byte 3", "1 to 8 dimensions", "found 0"});
  refused(bytes({0, 0, 8, 9, 0, 0, 0, 1, 0}), {"byte 3", "found 9"});
  refused(bytes({0, 0, 8, 2, 0, 0, 0, 1, 0}), {"byte 4", "2 sizes of 4 bytes", "found 5 bytes"});
  refused(bytes({0, 0, 8, 2, 0, 0, 0, 1, 0, 0, 0, 0}), {"byte 8", "at least 1", "found 0"});
  refused(bytes({0, 0, 8, 1, 0, 0, 0, 3, 1, 2}),
          {"byte 8", "expected 3 bytes (u8 3)", "found 2", "truncated"});
  refused(bytes({0, 0, 0x0b, 1, 0, 0, 0, 1, 1, 2, 3}), {"expected 2 bytes (i16 1)", "found 3", "appended"});
}

TEST_F(Idx, LyingSizesAllocateNothing) {
  const auto refused = [&](const Bytes& content, const std::string& part) {
    expect_refused(file("x", content), ErrorCode::corrupt_data, {part});
  };
  refused(bytes({0, 0, 8, 1, 255, 255, 255, 255, 0}), "expected 4294967295 bytes");
  refused(bytes({0, 0, 8, 2, 0x80, 0, 0, 0, 0x80, 0, 0, 0, 0}), "expected 4611686018427387904 bytes");
  // Products that would be 0 modulo 2^64: with the sizes alone, and with the element's.
  refused(bytes({0, 0, 8, 3, 0x80, 0, 0, 0, 0x80, 0, 0, 0, 0, 0, 0, 4}), "more than 2^64");
  refused(bytes({0, 0, 0x0e, 2, 0x80, 0, 0, 0, 0x80, 0, 0, 0}), "more than 2^64");
}

TEST_F(Idx, WhatIsNoReadableFileIsRefusedAtOnce) {
  expect_refused(folder_ / "none", ErrorCode::system, {"No such file"});
  expect_refused(folder_, ErrorCode::invalid_argument, {"a directory"});
  expect_refused("/dev/null", ErrorCode::invalid_argument, {"a device"});
  const fs::path fifo = folder_ / "fifo";
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
  expect_refused(fifo, ErrorCode::invalid_argument, {"a FIFO"});

  const fs::path locked = file("locked", small_file);
  ASSERT_EQ(::chmod(locked.c_str(), 0), 0);
  const bool root = ::geteuid() == 0;
  if (root) {
    ASSERT_EQ(::seteuid(65534), 0);  // root may read everything
  }
  expect_refused(locked, ErrorCode::system, {"Permission denied"});
  if (root) {
    ASSERT_EQ(::seteuid(0), 0);
  }
}

/// Reads `content` in every way; true if it was accepted, and then it was consistent.
bool accepted(const fs::path& path, const Bytes& content) {
  try {
    const IdxArray array = read_idx(path);
    std::size_t elements = 1;
    for (const std::size_t size : array.shape) elements *= size;
    EXPECT_EQ(array.size(), elements);
    EXPECT_EQ(4 + 4 * array.shape.size() + elements * size_of(array.type), content.size());
    const IdxFile idx(path);
    std::vector<float> record(idx.header().record_elements());
    for (std::size_t i = 0; i < idx.size(); ++i) idx.decode(i, std::span(record));
    return true;
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::corrupt_data) << error.what();
    return false;
  }
}

TEST_F(Idx, EveryTruncationIsRefused) {
  for (std::size_t length = 0; length < small_file.size(); ++length) {
    const Bytes content(small_file.begin(), small_file.begin() + static_cast<std::ptrdiff_t>(length));
    EXPECT_FALSE(accepted(file("x", content), content)) << length;
  }
  EXPECT_TRUE(accepted(file("x", small_file), small_file));
}

TEST_F(Idx, EveryChangedHeaderByteIsAnErrorOrAConsistentArray) {
  std::vector<Bytes> fitting;
  for (std::size_t at = 0; at < 12; ++at) {
    for (int value = 0; value < 256; ++value) {
      Bytes content = small_file;
      content[at] = static_cast<std::byte>(value);
      try {
        const IdxHeader header = parse_idx_header(content, content.size(), "x");
        EXPECT_EQ(header.data_offset() + header.elements() * size_of(header.type), content.size());
        if (content != small_file) fitting.push_back(content);
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::corrupt_data) << error.what();
      }
    }
  }
  ASSERT_EQ(fitting.size(), 1u);  // u8 read as i8 is as long; all else does not fit the file's size
  EXPECT_TRUE(accepted(file("x", fitting[0]), fitting[0]));
}

TEST_F(Idx, PairsAreFoundAsMnistNamesThem) {
  const IdxArray images{IdxType::u8, {2, 1, 1}, bytes({1, 2})};
  const IdxArray labels{IdxType::u8, {2}, bytes({1, 2})};
  for (const std::string separator : {"-", "."}) {
    const fs::path prefix = folder_ / (separator == "-" ? "train" : "t10k");
    const fs::path expected_images = prefix.string() + "-images" + separator + "idx3-ubyte";
    const fs::path expected_labels = prefix.string() + "-labels" + separator + "idx1-ubyte";
    write_idx(expected_images, images);
    write_idx(expected_labels, labels);
    const IdxPair pair = find_idx_pair(prefix);
    EXPECT_EQ(pair.images, expected_images);
    EXPECT_EQ(pair.labels, expected_labels);
  }
}

TEST_F(Idx, AMissingPairSaysWhatWasLookedFor) {
  const fs::path prefix = folder_ / "train";
  const auto find = [&] { static_cast<void>(find_idx_pair(prefix)); };
  expect_error(
      ErrorCode::invalid_argument,
      {prefix.string() + "-images-idx3-ubyte", prefix.string() + "-images.idx3-ubyte", "script/make-digits"},
      find);
  write_idx(folder_ / "train-images-idx3-ubyte", {IdxType::u8, {2, 1, 1}, bytes({1, 2})});
  expect_error(ErrorCode::invalid_argument, {"no labels", "train-labels-idx1-ubyte"}, find);
  file("train-labels-idx1-ubyte.gz", bytes({0x1f, 0x8b}));
  expect_error(ErrorCode::invalid_argument, {"train-labels-idx1-ubyte.gz", "gunzip"}, find);
}

TEST_F(Idx, APairThatDoesNotBelongTogetherIsRefused) {
  const auto find = [&] { static_cast<void>(find_idx_pair(folder_ / "train")); };
  write_idx(folder_ / "train-images-idx3-ubyte", {IdxType::u8, {2, 1, 1}, bytes({1, 2})});
  write_idx(folder_ / "train-labels-idx1-ubyte", {IdxType::u8, {3}, bytes({1, 2, 3})});
  expect_error(ErrorCode::corrupt_data, {"byte 4", "each of the 2 images", "found u8 3"}, find);
  write_idx(folder_ / "train-labels-idx1-ubyte", {IdxType::u8, {2, 1}, bytes({1, 2})});
  expect_error(ErrorCode::corrupt_data, {"byte 3", "found u8 2 × 1"}, find);
}

}  // namespace
}  // namespace lockstep

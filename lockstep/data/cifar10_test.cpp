#include "lockstep/data/cifar10.h"

#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "lockstep/base/folder_test.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;
using test::refusal;

class Cifar10 : public test::FolderTest {
 protected:
  fs::path write(const std::string& name, const std::string& content) const { return file(name, content); }
  /// The five files of the training part, with `records` each, whose labels go on from file to file.
  void write_train(int records) const {
    for (int file = 0; file < 5; ++file) {
      std::string content;
      for (int i = 0; i < records; ++i) content += record(static_cast<char>((file * records + i) % 10));
      write("data_batch_" + std::to_string(file + 1) + ".bin", content);
    }
  }
  /// Red pixels count up, green ones are `label`, blue ones 200.
  static std::string record(char label) {
    std::string bytes(1, label);
    for (int i = 0; i < 1024; ++i) bytes += static_cast<char>(i % 256);
    return bytes + std::string(1024, label) + std::string(1024, static_cast<char>(200));
  }
};

TEST_F(Cifar10, RecordsAreALabelAndThreePlanes) {
  const Cifar10File file(write("test_batch.bin", record(3) + record(7)));
  ASSERT_EQ(file.size(), 2U);
  const Cifar10Record second = file.read(1);
  EXPECT_EQ(second.label, 7);
  EXPECT_EQ(second.pixels[5], 5);
  EXPECT_EQ(second.pixels[1023], 255);
  EXPECT_EQ(second.pixels[1024], 7);
  EXPECT_EQ(second.pixels[2048], 200);
  EXPECT_EQ(second.pixels[3071], 200);
  EXPECT_EQ(file.read(0).label, 3);
}

TEST_F(Cifar10, TrainingPartIsFiveFilesOneAfterTheOther) {
  write_train(3);
  const Cifar10Files files(folder_, Cifar10Part::train);
  ASSERT_EQ(files.size(), 15U);
  for (std::size_t i = 0; i < 15; ++i) EXPECT_EQ(files.read(i).label, i % 10);
  EXPECT_EQ(refusal([&] { (void)files.read(15); }),
            "invalid_argument: this part of CIFAR-10 has no record 15; it has 15, counted from 0");
}

TEST_F(Cifar10, TestPartIsAFileOfItsOwn) {
  write("test_batch.bin", record(4));
  const Cifar10Files files(folder_, Cifar10Part::test);
  ASSERT_EQ(files.size(), 1U);
  EXPECT_EQ(files.read(0).label, 4);
}

TEST_F(Cifar10, AMissingFileSaysFromWhereToGetIt) {
  write_train(1);
  fs::remove(folder_ / "data_batch_3.bin");
  EXPECT_EQ(refusal([&] { const Cifar10Files files(folder_, Cifar10Part::train); }),
            "invalid_argument: no CIFAR-10 file " + (folder_ / "data_batch_3.bin").string() +
                "; download \"CIFAR-10 binary version\" (cifar-10-binary.tar.gz) from "
                "https://www.cs.toronto.edu/~kriz/cifar.html, unpack it, and name the folder "
                "cifar-10-batches-bin that comes out of it, with data_batch_1.bin to data_batch_5.bin and "
                "test_batch.bin in it");
  EXPECT_NE(refusal([&] {
              const Cifar10Files files(folder_ / "absent", Cifar10Part::test);
            }).find("no CIFAR-10 file " + (folder_ / "absent" / "test_batch.bin").string()),
            std::string::npos);
}

TEST_F(Cifar10, AFileThatIsNoRowOfRecordsIsRefused) {
  const std::string again =
      "; it is truncated, or no CIFAR-10 file: get it again: cifar-10-binary.tar.gz, unpacked";
  const fs::path empty = write("empty", "");
  EXPECT_EQ(refusal([&] { const Cifar10File file(empty); }),
            "corrupt_data: " + empty.string() +
                ": at byte 0 expected a record of 3073 bytes, found an empty file" + again);
  const fs::path cut = write("cut", (record(1) + record(2)).substr(0, 3073 + 12));
  EXPECT_EQ(refusal([&] { const Cifar10File file(cut); }),
            "corrupt_data: " + cut.string() +
                ": at byte 3073 expected a record of 3073 bytes, found 12 bytes and the end of the file" +
                again);
}

TEST_F(Cifar10, ALabelAboveNineIsRefusedWhereItStands) {
  const fs::path path = write("labels", record(9) + record(10));
  const Cifar10File file(path);
  EXPECT_EQ(file.read(0).label, 9);
  EXPECT_EQ(
      refusal([&] { (void)file.read(1); }),
      "corrupt_data: " + path.string() +
          ": at byte 3073 expected a label of 0 to 9, found 10 (record 1); it is damaged, or no CIFAR-10 "
          "file: get it again: cifar-10-binary.tar.gz, unpacked");
}

TEST_F(Cifar10, AFileThatShrinksIsAnErrorAndNotTheEnd) {
  const fs::path path = write("shrinking", record(1) + record(2));
  const Cifar10File file(path);
  fs::resize_file(path, 3073);
  EXPECT_EQ(file.read(0).label, 1);
  EXPECT_NE(refusal([&] { (void)file.read(1); }).find("it became shorter while it was read"),
            std::string::npos);
}

}  // namespace
}  // namespace lockstep

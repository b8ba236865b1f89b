// What becomes of the file that is replaced, and of all that is not to be touched; that a kill leaves it
// whole is tests/soak/kill_in_save.
#include "lockstep/base/file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <cstdlib>
#include <fstream>

#include "lockstep/base/folder_test.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;
using test::refusal;
using test::text_in;
using testing::HasSubstr;
using testing::UnorderedElementsAre;

class FileTest : public test::FolderTest {
 protected:
  static void replace(const fs::path& path, const std::string& content) {
    FileReplacement file(path, "note");
    file.write(std::as_bytes(std::span(content)));
    file.commit();
  }
};

TEST_F(FileTest, ALinkStaysAndItsTargetIsReplaced) {
  fs::create_directory(folder_ / "there");
  fs::create_symlink("there/target", folder_ / "link");
  replace(folder_ / "link", "first");
  EXPECT_EQ(text_in(folder_ / "there/target"), "first");
  replace(folder_ / "link", "second");
  EXPECT_TRUE(fs::is_symlink(folder_ / "link"));
  EXPECT_EQ(text_in(folder_ / "there/target"), "second");
  EXPECT_THAT(files(), UnorderedElementsAre("there", "link"));
}

TEST_F(FileTest, LinksInACircleAreNamed) {
  fs::create_symlink("b", folder_ / "a");
  fs::create_symlink("a", folder_ / "b");
  EXPECT_THAT(refusal([&] { replace(folder_ / "a", "x"); }), HasSubstr("its links lead nowhere"));
}

TEST_F(FileTest, WhatIsNoRegularFileStays) {
  ASSERT_EQ(::mkfifo((folder_ / "fifo").c_str(), 0600), 0);
  fs::create_directory(folder_ / "folder");
  EXPECT_THAT(
      refusal([&] { replace(folder_ / "fifo", "x"); }),
      HasSubstr("system: cannot write the note " + (folder_ / "fifo").string() + ": it is no regular file"));
  EXPECT_THAT(refusal([&] { replace(folder_ / "folder", "x"); }),
              HasSubstr("it is a folder; name a file in it"));
  EXPECT_TRUE(fs::is_fifo(folder_ / "fifo"));
  EXPECT_THAT(files(), UnorderedElementsAre("fifo", "folder"));
}

TEST_F(FileTest, OnlyTemporariesOfItsOwnAreRemoved) {
  const std::vector<std::string> others = {"note.tmp-2024",      "note.tmp-",
                                           "note.tmp-12-abc",    "note.tmp-12-0123456g",
                                           "note.tmp--01234567", "notes.tmp-12-01234567"};
  for (const auto& name : others) std::ofstream(folder_ / name) << "keep";
  std::ofstream(folder_ / "note.tmp-12-01234567") << "left behind";
  remove_leftovers(folder_ / "note");
  EXPECT_THAT(files(), testing::UnorderedElementsAreArray(others));
}

TEST_F(FileTest, IsNotTakenForLeftBehindWhileItsWriterHoldsIt) {
  FileReplacement file(folder_ / "note", "note");
  UniqueFd held = file.commit();
  const auto remove = [&](bool is_unwanted) {
    remove_unless_locked(folder_ / "note", [=] { return is_unwanted; });
  };
  remove(true);
  EXPECT_THAT(files(), UnorderedElementsAre("note"));
  held.reset();
  remove(false);
  EXPECT_THAT(files(), UnorderedElementsAre("note"));
  remove(true);
  EXPECT_THAT(files(), UnorderedElementsAre());
}

TEST_F(FileTest, BeyondTheLimitOfItsSizeIsAnErrorAndNoSignal) {
  replace(folder_ / "note", "old");
  const pid_t child = ::fork();
  if (child == 0) {
    const rlimit limit{100, 100};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    const std::string said = refusal([&] { replace(folder_ / "note", std::string(1000, 'x')); });
    std::_Exit(said.find("File too large") == std::string::npos ? 1 : 0);
  }
  int status = -1;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(text_in(folder_ / "note"), "old");
  EXPECT_THAT(files(), UnorderedElementsAre("note"));
}

TEST_F(FileTest, IsMappedAsItStands) {
  std::ofstream(folder_ / "note") << "as it stands";
  const InputFile file(folder_ / "note", "note");
  const Mapping mapped = file.map();
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(mapped.data()), mapped.size()), "as it stands");
  EXPECT_NO_THROW(file.require_whole());
}

TEST_F(FileTest, NamesWhatCannotBeMappedOrHasShrunk) {
  const fs::path path = folder_ / "note";
  std::ofstream(path) << "";
  EXPECT_EQ(refusal([&] { (void)InputFile(path, "note").map(); }),
            "corrupt_data: the note " + path.string() + " has 0 bytes, expected at least 1");
  std::ofstream(path) << "ten bytes.";
  const InputFile file(path, "note");
  fs::resize_file(path, 4);
  EXPECT_EQ(
      refusal([&] { file.require_whole(); }),
      "corrupt_data: note " + path.string() +
          " at byte 4: expected 6 more bytes, found the end of the file; it became shorter while it was "
          "read: try again when its writer is done");
}

}  // namespace
}  // namespace lockstep

#include "lockstep/launch/program.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "lockstep/base/folder_test.h"

namespace lockstep::launch {
namespace {

using ::testing::HasSubstr;
namespace fs = std::filesystem;

class FindProgram : public test::FolderTest {
 protected:
  FindProgram() {
    fs::create_directories(folder_ / "first");
    fs::create_directories(folder_ / "second" / "train");
    file("second/text", "text");
    file("first/tool", "#!/bin/sh\n");
    fs::permissions(folder_ / "first" / "tool", fs::perms::owner_all);
    file("second/tool", "#!/bin/sh\n");
    fs::permissions(folder_ / "second" / "tool", fs::perms::owner_all);
  }
  std::string at(const std::string& path) const { return (folder_ / path).string(); }
  std::string search() const { return at("nowhere") + "::" + at("second") + ":" + at("first"); }
};

TEST_F(FindProgram, TakesAPathAsItIs) {
  EXPECT_EQ(find_program(at("first/tool"), "").path, at("first/tool"));
}

TEST_F(FindProgram, SearchesThePathInOrder) {
  EXPECT_EQ(find_program("tool", search()).path, at("second/tool"));
}

TEST_F(FindProgram, WhatIsNotThereIs127) {
  for (const std::string& name : {std::string("absent"), at("absent"), std::string(), std::string("train")}) {
    const Program found = find_program(name, search());
    EXPECT_EQ(found.exit_code, 127) << name;
    EXPECT_EQ(found.path, "");
    EXPECT_THAT(found.problem, HasSubstr(name));
  }
}

TEST_F(FindProgram, WhatCannotRunIs126) {
  const Program text = find_program(at("second/text"), "");
  EXPECT_EQ(text.exit_code, 126);
  EXPECT_THAT(text.problem, HasSubstr("is not executable; run chmod +x"));
  const Program folder = find_program(at("second/train"), "");
  EXPECT_EQ(folder.exit_code, 126);
  EXPECT_THAT(folder.problem, HasSubstr("is a folder"));
}

TEST_F(FindProgram, GuessesThatTheWorkingFolderWasMeant) {
  const fs::path before = fs::current_path();
  fs::current_path(at("first"));
  EXPECT_THAT(find_program("tool", at("nowhere")).problem, HasSubstr("did you mean ./tool?"));
  fs::current_path(before);
}

}  // namespace
}  // namespace lockstep::launch

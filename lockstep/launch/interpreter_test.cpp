#include "lockstep/launch/interpreter.h"

#include <elf.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>

#include "lockstep/base/folder_test.h"

namespace lockstep::launch {
namespace {

namespace fs = std::filesystem;

class InterpreterOf : public test::FolderTest {
 protected:
  std::string file_with(const std::string& content) { return file(std::to_string(++made_), content); }
  std::string named_in(const std::string& content) {
    const auto found = interpreter_of(file_with(content));
    return found ? found->path : "(none)";
  }
  int made_ = 0;
};

// As an old program of 32 bits has it.
std::string small_elf(const std::string& loader) {
  Elf32_Ehdr header{};
  const unsigned char start[] = {0x7f, 'E', 'L', 'F', ELFCLASS32, ELFDATA2LSB, EV_CURRENT};
  std::copy(std::begin(start), std::end(start), header.e_ident);
  header.e_phoff = sizeof(header);
  header.e_phentsize = sizeof(Elf32_Phdr);
  header.e_phnum = 2;
  Elf32_Phdr segments[2] = {};
  segments[0].p_type = PT_LOAD;
  segments[1].p_type = PT_INTERP;
  segments[1].p_offset = sizeof(header) + sizeof(segments);
  segments[1].p_filesz = static_cast<Elf32_Word>(loader.size() + 1);
  return std::string(reinterpret_cast<const char*>(&header), sizeof(header)) +
         std::string(reinterpret_cast<const char*>(segments), sizeof(segments)) + loader + '\0';
}

TEST_F(InterpreterOf, AScriptIsTheFirstWordOfItsFirstLine) {
  EXPECT_EQ(named_in("#!/bin/sh\necho"), "/bin/sh");
  EXPECT_EQ(named_in("#! \t/usr/bin/env python3 -u\n"), "/usr/bin/env");
  EXPECT_EQ(named_in("#!/no/end"), "/no/end");
  EXPECT_EQ(named_in("#!/bin/sh\r\n"), "/bin/sh\r");
  EXPECT_TRUE(interpreter_of(file_with("#!/bin/sh"))->of_script);
}

TEST_F(InterpreterOf, ALinkedProgramIsItsLoader) {
  EXPECT_EQ(named_in(small_elf("/lib/ld-old.so.1")), "/lib/ld-old.so.1");
  const auto own = interpreter_of("/proc/self/exe");
  ASSERT_TRUE(own);
  EXPECT_FALSE(own->of_script);
  EXPECT_TRUE(fs::exists(own->path)) << own->path;
}

TEST_F(InterpreterOf, AnythingElseIsNone) {
  const std::string elf = small_elf("/lib/ld-old.so.1");
  for (const std::string& content :
       {std::string("echo"), std::string(), std::string("#!"), std::string("#! \n"), elf.substr(0, 20),
        elf.substr(0, 60), elf.substr(0, elf.size() - 5)}) {
    EXPECT_EQ(named_in(content), "(none)") << content.size();
  }
  EXPECT_FALSE(interpreter_of(folder_ / "absent"));
}

TEST_F(InterpreterOf, WhatIsMissingIsNamed) {
  const std::string script = file_with("#!/no/such/python\n");
  EXPECT_EQ(explain_exec_failure(script, ENOENT),
            "cannot start " + script + ": the interpreter /no/such/python in the first line of " + script +
                " does not exist");
  const std::string outer = file_with("#!" + script + "\n");
  EXPECT_EQ(explain_exec_failure(outer, ENOENT),
            "cannot start " + outer + ": the interpreter /no/such/python in the first line of " + script +
                " does not exist");
  const std::string linked = file_with(small_elf("/no/such/ld.so"));
  EXPECT_EQ(explain_exec_failure(linked, ENOENT),
            "cannot start " + linked + ": the loader /no/such/ld.so that " + linked +
                " was linked for does not exist; it was built for another system");
  const std::string windows = file_with("#!/bin/sh\r\n");
  EXPECT_EQ(explain_exec_failure(windows, ENOENT),
            "cannot start " + windows + ": the first line of " + windows +
                " ends with a carriage return, as on Windows; remove those with sed -i 's/\\r$//' " +
                windows);
}

TEST_F(InterpreterOf, OtherwiseTheSystemsWordsHaveToDo) {
  const std::string text = file_with("echo\n");
  EXPECT_EQ(explain_exec_failure(text, ENOEXEC),
            "cannot start " + text + ": Exec format error; a script needs a first line such as #!/bin/sh");
  const std::string linked = file_with(small_elf("/no/such/ld.so"));
  EXPECT_EQ(explain_exec_failure(linked, ENOEXEC),
            "cannot start " + linked + ": Exec format error; it was built for another kind of machine");
  EXPECT_EQ(explain_exec_failure(text, ENOENT), "cannot start " + text + ": No such file or directory");
  EXPECT_EQ(explain_exec_failure(text, E2BIG), "cannot start " + text + ": Argument list too long");
}

}  // namespace
}  // namespace lockstep::launch

// Scripts of tests/python on several ranks, with a Python that is a peer.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "tests/support/job_test.h"

namespace lockstep::testing {

class PythonJob : public JobTest {
 protected:
  /// Skips the test where that peer is not installed.
  void use_peer(const std::string& name) {
    const auto python = peer_python(name);
    if (!python) GTEST_SKIP() << name << " is not installed: script/bootstrap --peers " << name;
    python_ = *python;
  }
  static std::string source(const std::string& path) {
    return std::string(std::getenv("LOCKSTEP_SOURCE_DIR")) + "/" + path;
  }
  Variables variables(const Variables& more = {}) const {
    Variables all = {
        {"PYTHONPATH", source("python")},
        {"PYTHONDONTWRITEBYTECODE", "1"},
        {"TORCHINDUCTOR_CACHE_DIR", folder() / "inductor"},
        {"TORCH_CPP_LOG_LEVEL", "ERROR"},
        {"TF_CPP_MIN_LOG_LEVEL", "3"},
        {"LOCKSTEP_C_LIBRARY", std::string(std::getenv("LOCKSTEP_BINARY_DIR")) + "/lib/liblockstep_c.so"}};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  /// For scripts that use fake_gpu.py.
  Variables on_fake_gpu(const Variables& more = {}) const {
    const std::string libraries = std::string(std::getenv("LOCKSTEP_BINARY_DIR")) + "/standin";
    Variables all = {{"LOCKSTEP_FAKE_GPU", libraries + "/libfake_gpu_for_python.so"},
                     {"LOCKSTEP_NCCL_LIBRARY", libraries + "/libnccl.so.2"},
                     {"LD_LIBRARY_PATH", libraries},
                     {"STANDIN_NCCL_DIR", folder()},
                     {"LOCKSTEP_LOG", "info"}};
    for (const auto& [name, value] : more) {
      std::erase_if(all, [&](const auto& each) { return each.first == name; });
      all.emplace_back(name, value);
    }
    return all;
  }
  /// Said where calls on GPUs are carried in main memory, with why.
  static constexpr const char* through_main_memory =
      "tensors on GPUs go through main memory in group \"world[^\"]*\": ";
  /// Skips the test where the made-up GPU was not built.
  void use_fake_gpu() const {
    if (!std::filesystem::exists(on_fake_gpu().front().second)) {
      GTEST_SKIP() << "no made-up GPU for Python: it is built with -DLOCKSTEP_TRAIN=ON";
    }
  }
  const std::string& python() const { return python_; }
  /// A script of this folder, or one with its whole path, on so many ranks.
  Process job(int ranks, std::vector<std::string> words, const Variables& more = {},
              const std::vector<std::string>& options = {}) const {
    if (!words[0].starts_with('/')) words[0] = source("tests/python/" + words[0]);
    std::vector<std::string> command = {program("lockstep"), "run", "--no-prefix", "-np",
                                        std::to_string(ranks)};
    command.insert(command.end(), options.begin(), options.end());
    command.push_back(python_);
    command.insert(command.end(), words.begin(), words.end());
    return start(command, variables(more));
  }
  /// lockstep.FRAMEWORK answers as many cases of FRAMEWORK_cases.py on so many ranks as the real Horovod was recorded to.
  void expect_horovods_answers(const std::string& framework, int cases, int ranks, const Variables& more = {},
                               int left_out = 0) const {
    (void)answers(framework, cases, ranks, more, left_out);
  }
  Ending answers(const std::string& framework, int cases, int ranks, const Variables& more,
                 int left_out) const {
    const std::string place = folder() / "answers", count = std::to_string(ranks);
    const Ending ending =
        job(ranks, {framework + "_cases.py", "lockstep." + framework, place}, more).finish();
    EXPECT_EQ(ending.exit_code, 0) << ending.err;
    const Ending compared =
        start({python(), source("tests/python/compare_answers.py"),
               source("tests/python/answers/" + framework + "." + count + ".json.gz"), place, count})
            .finish();
    EXPECT_EQ(compared.exit_code, 0) << compared.out << compared.err;
    EXPECT_THAT(
        compared.out,
        ::testing::HasSubstr(std::to_string(cases) + " cases, 0 differ" +
                             (left_out == 0 ? "" : ", " + std::to_string(left_out) + " left out") + "\n"));
    if (left_out > 0) {
      EXPECT_THAT(ending.out, ::testing::ContainsRegex("^[1-9][0-9][0-9] calls on a GPU\n"));
    }
    return ending;
  }

 private:
  std::string python_;
};

}  // namespace lockstep::testing

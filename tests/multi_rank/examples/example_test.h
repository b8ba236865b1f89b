// How these tests start an example: two ranks under `lockstep run`, as its first lines say.
#pragma once

#include <string>
#include <vector>

#include "tests/support/job_test.h"

namespace lockstep::testing {

class ExampleTest : public JobTest {
 protected:
  Process launch(std::vector<std::string> words, Variables variables = {}) const {
    words.insert(words.begin(), {program("lockstep"), "run", "-np", "2", "--"});
    return start(std::move(words), std::move(variables));
  }

  /// `name` with `flags`, but on rank 1 with `flags_of_1`. Flags are a shell's.
  Process launch_unlike(const std::string& name, const std::string& flags, const std::string& flags_of_1,
                        Variables variables = {}) const {
    const std::string script =
        "if [ \"$RANK\" = 1 ]; then exec \"$0\" " + flags_of_1 + "; fi; exec \"$0\" " + flags;
    return launch({"sh", "-c", script, program(name)}, std::move(variables));
  }

  /// Rank 1 sends itself `signal` before it becomes the program.
  Process launch_hurt(const std::string& name, const std::string& signal, Variables variables = {}) const {
    const std::string script = "if [ \"$RANK\" = 1 ]; then kill -" + signal + " $$; fi; exec \"$0\"";
    return launch({"sh", "-c", script, program(name)}, std::move(variables));
  }
};

}  // namespace lockstep::testing

// What of the ranks' words a user wants to see, and what to find in files.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/launch/output/rank_pipes.h"

namespace lockstep::launch {

/// Some of the streams of some of the ranks.
class StreamChoice {
 public:
  static StreamChoice all();
  /// torchrun's form: "0" none, "1" stdout, "2" stderr, "3" both; or LOCAL_RANK:NUMBER,... and none of the others. Throws
  /// Error{invalid_argument} that begins with `option`.
  static StreamChoice parse(const std::string& option, const std::string& text);

  bool has(int local_rank, PrintStream stream) const;
  bool empty() const;

 private:
  unsigned of_all_ = 0;  // a bit for each stream
  std::map<int, unsigned> of_rank_;
};

/// Local ranks, "0,2". Throws Error{invalid_argument} that begins with `option`.
std::vector<int> parse_local_ranks(const std::string& option, const std::string& text);

struct OutputOptions {
  bool prefix = true;  ///< "[rank] " before each line that is shown; false leaves every byte as it is

  /// `folder`/RUN/attempt_N/RANK/stdout.log as torchrun has it, with ranks of the world; or `folder`/rank.NN/stdout, which
  /// grows where ranks start again, as horovodrun has it.
  enum class Layout { torchrun, horovodrun } layout = Layout::torchrun;
  std::string folder = {};                                 ///< for files; "": none
  std::string run = {};                                    ///< begins the name RUN, which is new each time
  StreamChoice redirected = {};                            ///< to files, and not shown
  StreamChoice teed = {};                                  ///< to files, and shown
  std::optional<std::vector<int>> local_ranks_shown = {};  ///< nullopt: of all
};

}  // namespace lockstep::launch

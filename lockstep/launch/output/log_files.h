// What ranks print, in files: each stream of each rank in one of its own, as it was printed. A disk that takes no more is no
// reason to end a training.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "lockstep/base/unique_fd.h"
#include "lockstep/launch/environment.h"
#include "lockstep/launch/output/output_options.h"

namespace lockstep::launch {

class LogFiles {
 public:
  /// `run`: the name of the folder of torchrun's layout. `restarts`: which attempt this is. Borrows `options`.
  LogFiles(const OutputOptions& options, std::string run, int restarts)
      : options_(options), run_(std::move(run)), restarts_(restarts) {}

  /// Makes the files of a rank of a job of `ranks`.
  void make(const RankPlace& place, int ranks);
  /// False: this stream has no file, or none any more.
  bool write(int rank, PrintStream stream, std::string_view bytes);
  /// The folder whose name the user does not know, when its files have been made; "" else.
  std::string new_folder() const;
  /// What went wrong first, in a line for the user, once; no file is written after that. "": nothing.
  std::string take_problem() { return std::exchange(problem_, {}); }

 private:
  struct File {
    std::filesystem::path path;
    UniqueFd fd = {};  // opened when there is something to write: there may be more ranks than descriptors
  };

  std::filesystem::path path_of(int rank, PrintStream stream, int ranks) const;
  void fail(const std::filesystem::path& path, const std::string& why);

  const OutputOptions& options_;
  const std::string run_;
  const int restarts_;
  std::map<std::pair<int, PrintStream>, File> files_;
  std::string problem_;
};

}  // namespace lockstep::launch

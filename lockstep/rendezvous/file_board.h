// A noticeboard for ranks whose launcher has none, in a folder that all hosts share: a file, which nobody but this user can read.
#pragma once

#include <filesystem>
#include <string>

#include "lockstep/rendezvous/process_manager.h"

namespace lockstep {

/// Only rank 0 may put, and once: its file is there, whole, or it is not. It goes with rank 0's object, which has to live until
/// all others have read it.
class FileBoard final : public ProcessManager {
 public:
  static constexpr std::size_t most_bytes = 4096;

  /// `folder` is there. `job`: of this job alone among those that use the folder. Throws Error{invalid_argument} for a folder that
  /// is none.
  FileBoard(const std::filesystem::path& folder, std::string job);
  ~FileBoard() override;

  std::string job(Deadline deadline) override;
  void put(const std::string& key, const std::string& value, Deadline deadline) override;
  /// Does nothing: get() waits.
  void fence(Deadline deadline) override;
  /// Looks again and again until the file is there. Throws Error: timeout, with its path; invalid_argument where it is not this
  /// user's own or others may touch it; corrupt_data.
  std::string get(const std::string& key, Deadline deadline) override;

 private:
  std::filesystem::path folder_;
  const std::string job_;
  std::filesystem::path path_;
  bool is_ours_ = false;
};

}  // namespace lockstep

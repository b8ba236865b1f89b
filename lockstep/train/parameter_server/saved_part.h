// A server's part of a checkpoint of several servers, which count only together. Each writes its part beside the one it replaces,
// and when all have, each lets it take that one's place. Whenever they are killed, one save is there of which all have their parts:
// beside or in place.
//
//   state.0-of-2        in place
//   state.0-of-2.new    beside it: of a save that was not finished
#pragma once

#include <torch/torch.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <utility>

#include "lockstep/group/group.h"

namespace lockstep::ps {

/// Thread safety: none.
class SavedPart {
 public:
  /// `path`: in place.
  explicit SavedPart(std::string path) : path_(std::move(path)) {}

  // All throw Error{system} with the file's name.

  /// Beside, on the disk. `bytes`: an archive whose "save" is the number of the save, as write_number() has it.
  void write(std::span<const std::byte> bytes) const;
  /// In place.
  void keep() const;
  /// Removes what is beside.
  void drop() const;

  /// Of files that were written without one.
  static constexpr std::uint64_t no_number = 1;

  /// Collective over the servers: the newest save of which each has its part is in place on all. 0: there is none, nor a part of one.
  /// `path_of`: each server's. Throws Error on all of them: corrupt_data (a file that is no such part); invalid_argument (parts of different saves, or some without).
  std::uint64_t settle(const Group& servers, const std::function<std::string(int)>& path_of) const;

 private:
  std::string beside() const { return path_ + ".new"; }

  std::string path_;
};

/// A part. Throws Error{corrupt_data} for what is none.
torch::serialize::InputArchive opened(const std::string& path);
[[noreturn]] void throw_no_part(const std::string& path, const c10::Error& error);

}  // namespace lockstep::ps

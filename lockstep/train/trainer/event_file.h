// Somebody wants to watch a training in TensorBoard while it runs, and to read its curves after it was
// killed. So each figure is a record of its own in a TensorBoard event file, handed to the system at once.
//
//   record   u64 length | u32 masked crc32c of it | the event | u32 masked crc32c of the event    little
//   endian event    protobuf: 1 wall_time f64, 2 step i64, 3 file_version "brain.Event:2" (the first
//   record's),
//            5 summary { 1 value { 1 tag, 2 simple_value f32 } }
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "lockstep/base/unique_fd.h"
#include "lockstep/group/group.h"

namespace lockstep {

/// The record that a file begins with. `wall_time`: seconds since 1970.
std::string first_event(double wall_time);
/// A record with one figure. `tag`: UTF-8, as TensorBoard wants it; "train/loss" and "train/rate" share a
/// section there.
std::string scalar_event(double wall_time, std::uint64_t step, std::string_view tag, float value);

/// <folder>/events.out.tfevents.<seconds since 1970>.<host>.<pid>, new: a run that goes on after a kill adds
/// another file to the folder, and TensorBoard shows them as one run.
///
/// Rank 0 writes; on other ranks everything returns without doing anything. Thread safety: none.
class EventFile {
 public:
  /// Not collective. Makes the folder where it is missing. Throws Error{system} on rank 0, alone, with the
  /// path and what the system said.
  EventFile(const std::filesystem::path& folder, const Group& group);

  /// The record is the system's when this returns: a kill of the process does not lose it.
  /// Throws as the constructor does. Cost: one write of about 50 bytes.
  void add(std::string_view tag, double value, std::uint64_t step);

  /// Empty on other ranks.
  const std::filesystem::path& path() const { return path_; }

 private:
  void write(const std::string& record);

  std::filesystem::path path_;
  UniqueFd fd_;
};

}  // namespace lockstep

// Events and calls name their group by a number. Here each rank writes down, in shared memory, which group
// that is and which rank it has there; a reader that has all ranks' tables knows the groups' members.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

namespace lockstep::trace {

/// Begins the last part of the name of a group that named operations use: its messages are theirs, not the program's.
inline constexpr const char* named_purpose = "named:";
inline bool is_for_named_operations(const std::string& group) {
  return group.find(std::string("/") + named_purpose) != std::string::npos;
}

/// "world", and "world#2" of the second one that a process has joined; what is made of one has a '/' in its name.
inline bool is_world(const std::string& group) {
  return group.starts_with("world") && group.find('/') == std::string::npos;
}

/// In shared memory, zeroed at the start.
struct GroupTable {
  static constexpr std::size_t capacity = 128;
  static constexpr std::size_t name_capacity = 104;
  struct Cell {
    std::atomic<std::uint64_t> stamp;  ///< number of the entry, from 1; 0 while it is being written
    std::uint32_t number;
    std::int32_t ranks;
    std::int32_t rank;  ///< this one's, in the group
    std::uint32_t name_bytes;
    char name[name_capacity];  ///< the beginning of one that is longer
  };
  Cell cells[capacity];
};

struct GroupEntry {
  std::uint32_t number = 0;
  int ranks = 0;
  int rank = 0;
  std::string name = {};  ///< ends in "..." where the table had no room for the whole
};

/// One rank's groups. Thread safe.
class GroupNames {
 public:
  /// Borrows `table`, and goes on in it: groups that stand there are gone. Null keeps nothing.
  explicit GroupNames(GroupTable* table = nullptr);

  static constexpr int nowhere = -1;
  /// Returns its place, or `nowhere` while all places are taken by groups that are there.
  int enter(const GroupEntry& group);
  /// The group is gone. Its name stays until the place is needed: its events may still be read.
  void leave(int place);

 private:
  GroupTable* table_;
  std::mutex mutex_;
  std::uint64_t entered_ = 0;
  std::vector<int> left_;  // places, the one that was left first in front
};

std::vector<GroupEntry> read_group_names(const GroupTable& table);

}  // namespace lockstep::trace

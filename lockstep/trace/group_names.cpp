#include "lockstep/trace/group_names.h"

#include <algorithm>
#include <cstring>

namespace lockstep::trace {
namespace {

constexpr std::string_view cut_short = "...";

std::string fitting(const std::string& name) {
  if (name.size() <= GroupTable::name_capacity) return name;
  return name.substr(0, GroupTable::name_capacity - cut_short.size()).append(cut_short);
}

}  // namespace

GroupNames::GroupNames(GroupTable* table) : table_(table) {
  if (table_ == nullptr) return;
  const auto stamp = [&](int place) { return table_->cells[place].stamp.load(std::memory_order_relaxed); };
  for (int place = 0; place < static_cast<int>(GroupTable::capacity); ++place) {
    if (stamp(place) != 0) left_.push_back(place);
    entered_ = std::max(entered_, stamp(place));
  }
  std::ranges::sort(left_, {}, stamp);
}

int GroupNames::enter(const GroupEntry& group) {
  const std::lock_guard lock(mutex_);
  if (table_ == nullptr) return nowhere;
  int place = nowhere;
  if (entered_ < GroupTable::capacity) {
    place = static_cast<int>(entered_);
  } else if (!left_.empty()) {
    place = left_.front();
    left_.erase(left_.begin());
  } else {
    return nowhere;
  }
  GroupTable::Cell& cell = table_->cells[place];
  static_cast<void>(cell.stamp.exchange(0, std::memory_order_acq_rel));
  const std::string name = fitting(group.name);
  cell.number = group.number;
  cell.ranks = group.ranks;
  cell.rank = group.rank;
  cell.name_bytes = static_cast<std::uint32_t>(name.size());
  std::memcpy(cell.name, name.data(), name.size());
  cell.stamp.store(++entered_, std::memory_order_release);
  return place;
}

void GroupNames::leave(int place) {
  const std::lock_guard lock(mutex_);
  if (place != nowhere) left_.push_back(place);
}

std::vector<GroupEntry> read_group_names(const GroupTable& table) {
  std::vector<GroupEntry> groups;
  for (const GroupTable::Cell& cell : table.cells) {
    const std::uint64_t stamp = cell.stamp.load(std::memory_order_acquire);
    const std::size_t bytes = std::min<std::size_t>(cell.name_bytes, GroupTable::name_capacity);
    GroupEntry group{cell.number, cell.ranks, cell.rank, std::string(cell.name, bytes)};
    if (stamp != 0 && cell.stamp.load(std::memory_order_acquire) == stamp) groups.push_back(std::move(group));
  }
  return groups;
}

}  // namespace lockstep::trace

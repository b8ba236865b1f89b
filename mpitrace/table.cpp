#include "mpitrace/table.h"

#include <cerrno>
#include <cstring>
#include <utility>

namespace lockstep::mpitrace {
namespace {

constexpr std::size_t most_table_bytes = threads_at + most_threads * thread_bytes;

}  // namespace

Table* Table::create(const std::string& wanted, bool has_sites, std::string& problem) {
  auto file = RankFile::create(wanted, most_table_bytes, problem);
  if (!file) return nullptr;
  const bool is_there = file->reserve(0, page_bytes) && file->reserve(threads_at, thread_bytes) &&
                        (!has_sites || file->reserve(modules_at, threads_at - modules_at));
  if (is_there) return new Table(std::move(*file));
  problem = file->path() + ": " + std::strerror(errno);  // a full disk
  file->remove_file();
  file->forget();
  return create("", has_sites, problem);
}

Sums* Table::join() {
  const std::lock_guard lock(mutex_);
  if (!free_.empty()) {
    Sums* const sums = free_.back();
    free_.pop_back();
    return sums;
  }
  const std::size_t at = size();
  is_full_ = is_full_ || header().threads == most_threads || !file_.reserve(at, thread_bytes);
  if (is_full_) return nullptr;
  ++header().threads;
  return reinterpret_cast<Sums*>(file_.data() + at);
}

void Table::leave(Sums* sums) {
  const std::lock_guard lock(mutex_);
  free_.push_back(sums);
}

}  // namespace lockstep::mpitrace

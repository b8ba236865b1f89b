#include "lockstep/memory/control_page.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>

#include "lockstep/base/deadline.h"

namespace lockstep {
namespace {

constexpr std::uint64_t magic = 0x34656761506b634cULL;  // "LckPage4": change it when the layout changes

struct Header {
  std::uint64_t magic;
  std::uint32_t local_ranks;
  FirstCause first_cause;
  alignas(64) Doorbell doorbell;
};

constexpr std::size_t page_bytes = 4096;
// Whoever sets the first cause copies a sentence; only one that dies meanwhile takes longer.
constexpr std::chrono::milliseconds setting_limit{100};

}  // namespace

struct RankRecord {
  trace::RecordRings rings;
  alignas(64) trace::OpenCallTable open_calls;
  alignas(64) trace::GroupTable groups;
};

namespace {

constexpr std::size_t round_up(std::size_t bytes) {
  return (bytes + page_bytes - 1) / page_bytes * page_bytes;
}

std::size_t status_offset() { return round_up(sizeof(Header)); }
std::size_t record_offset(int ranks) {
  return round_up(status_offset() + static_cast<std::size_t>(ranks) * sizeof(RankStatus));
}
std::size_t record_stride() { return round_up(sizeof(RankRecord)); }
std::size_t total_bytes(int ranks) {
  return record_offset(ranks) + static_cast<std::size_t>(ranks) * record_stride();
}

Header& header(const Mapping& mapping) { return *reinterpret_cast<Header*>(mapping.data()); }

void initialise(const Mapping& mapping, int ranks) {
  header(mapping).magic = magic;
  header(mapping).local_ranks = static_cast<std::uint32_t>(ranks);
}

}  // namespace

bool FirstCause::set(const Cause& cause) {
  std::uint32_t expected = empty;
  if (!state_.compare_exchange_strong(expected, writing, std::memory_order_acq_rel)) return false;
  code_ = static_cast<std::uint32_t>(cause.code);
  culprit_ = cause.culprit;
  reporter_ = cause.reporter;
  text_bytes_ = static_cast<std::uint32_t>(std::min(cause.text.size(), text_capacity));
  std::memcpy(text_, cause.text.data(), text_bytes_);
  state_.store(written, std::memory_order_release);
  return true;
}

std::optional<FirstCause::Cause> FirstCause::get() const {
  if (state_.load(std::memory_order_acquire) == writing) {
    const Deadline patience = Deadline::after(setting_limit);
    while (!is_set() && !patience.expired()) std::this_thread::yield();
  }
  if (!is_set()) return std::nullopt;
  const std::size_t length = std::min<std::size_t>(text_bytes_, text_capacity);
  return Cause{static_cast<ErrorCode>(code_), culprit_, reporter_, std::string(text_, length)};
}

ControlPage ControlPage::create(int local_ranks) {
  UniqueFd fd = make_memfd(file_name, total_bytes(local_ranks));
  Mapping mapping = Mapping::of_file(fd.get(), total_bytes(local_ranks));
  initialise(mapping, local_ranks);
  return {std::move(fd), std::move(mapping)};
}

ControlPage ControlPage::attach(UniqueFd fd, int local_ranks) {
  Mapping mapping = Mapping::of_file(fd.get(), sizeof(Header));
  return attach(std::move(mapping), std::move(fd), local_ranks);
}

ControlPage ControlPage::read_only(UniqueFd fd) {
  Mapping mapping = Mapping::of_file(fd.get(), sizeof(Header), Mapping::Access::read);
  return attach(std::move(mapping), std::move(fd), 0);
}

ControlPage ControlPage::attach(Mapping mapping, UniqueFd fd, int local_ranks) {
  const int found = static_cast<int>(header(mapping).local_ranks);
  const bool fits = found >= 1 && found <= (1 << 16) && mapping.size() >= total_bytes(found);
  if (header(mapping).magic != magic || !fits) {
    throw Error(
        ErrorCode::corrupt_data,
        "the job's control page is not of this version of Lockstep; use the `lockstep` that was built "
        "with the program's library");
  }
  if (local_ranks != 0 && found != local_ranks) {
    throw Error(ErrorCode::corrupt_data, "the launcher's control page is for " + std::to_string(found) +
                                             " local ranks, but " + std::to_string(local_ranks) +
                                             " run on this host");
  }
  return {std::move(fd), std::move(mapping)};
}

ControlPage ControlPage::in_process(int local_ranks) {
  Mapping mapping = Mapping::anonymous(total_bytes(local_ranks));
  initialise(mapping, local_ranks);
  return {UniqueFd(), std::move(mapping)};
}

int ControlPage::local_ranks() const { return static_cast<int>(header(mapping_).local_ranks); }
FirstCause& ControlPage::first_cause() const { return header(mapping_).first_cause; }
Doorbell& ControlPage::doorbell() const { return header(mapping_).doorbell; }

RankStatus& ControlPage::status(int local_rank) const {
  return reinterpret_cast<RankStatus*>(mapping_.data() + status_offset())[local_rank];
}

RankRecord& ControlPage::rank_record(int local_rank) const {
  const std::size_t offset =
      record_offset(local_ranks()) + static_cast<std::size_t>(local_rank) * record_stride();
  return *reinterpret_cast<RankRecord*>(mapping_.data() + offset);
}

trace::RecordRings& ControlPage::record(int local_rank) const { return rank_record(local_rank).rings; }
trace::OpenCallTable& ControlPage::open_calls(int local_rank) const {
  return rank_record(local_rank).open_calls;
}
trace::GroupTable& ControlPage::groups(int local_rank) const { return rank_record(local_rank).groups; }

}  // namespace lockstep

#include "lockstep/memory/control_page.h"

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>

#include "lockstep/base/deadline.h"
#include "lockstep/base/pages.h"

namespace lockstep {
namespace {

using base::round_up;

// "LckPage7": change it when the layout changes.
constexpr std::uint64_t page_magic = 0x37656761506b634cULL;

struct PageHeader {
  std::uint64_t magic;
  std::uint32_t local_ranks;
  std::atomic<std::uint32_t> profile_turn_taken;
  FirstCause first_cause;
  std::atomic<std::uint64_t> view;
  alignas(64) Doorbell doorbell;
};

// Whoever sets the first cause copies a sentence; only one that dies meanwhile takes longer.
constexpr std::chrono::milliseconds setting_limit{100};

}  // namespace

struct RankRecord {
  trace::RecordRings rings;
  trace::TotalsTable totals;
  trace::SpanRings spans;
  alignas(64) trace::OpenCallTable open_calls;
  alignas(64) trace::GroupTable groups;
  alignas(64) trace::SentTable sent;
};

namespace {

std::size_t status_offset() { return round_up(sizeof(PageHeader)); }
std::size_t record_offset(int ranks) {
  return round_up(status_offset() + static_cast<std::size_t>(ranks) * sizeof(RankStatus));
}
std::size_t record_stride() { return round_up(sizeof(RankRecord)); }
std::size_t total_bytes(int ranks) {
  return record_offset(ranks) + static_cast<std::size_t>(ranks) * record_stride();
}

PageHeader& page_header(const Mapping& mapping) { return *reinterpret_cast<PageHeader*>(mapping.data()); }

void initialise(const Mapping& mapping, int ranks) {
  page_header(mapping).magic = page_magic;
  page_header(mapping).local_ranks = static_cast<std::uint32_t>(ranks);
}

}  // namespace

bool FirstCause::set(const Cause& cause) {
  std::uint32_t expected = empty;
  if (!state_.compare_exchange_strong(expected, writing, std::memory_order_acq_rel)) return false;
  code_ = static_cast<std::uint32_t>(cause.code);
  culprit_ = cause.culprit;
  reporter_ = cause.reporter;
  several_count_ = static_cast<std::uint32_t>(std::min(cause.several.size(), several_capacity));
  std::copy_n(cause.several.begin(), several_count_, several_);
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
  const std::size_t several = std::min<std::size_t>(several_count_, several_capacity);
  return Cause{static_cast<ErrorCode>(code_), culprit_, reporter_, std::string(text_, length),
               std::vector<int>(several_, several_ + several)};
}

void RankStatus::begin_life() {
  for (std::atomic<std::int32_t>* number : {&pid, &awaits, &wants_in, &worlds}) number->store(0);
  for (std::atomic<std::uint32_t>* number : {&said_goodbye, &has_worked}) number->store(0);
  for (std::atomic<std::uint64_t>* number : {&awaits_at_ns, &joined_at_ns, &left_at_ns, &user_ns, &system_ns,
                                             &most_resident_bytes, &on_core_ns, &core_wait_ns}) {
    number->store(0);
  }
}

ControlPage ControlPage::create(int local_ranks) {
  UniqueFd fd = make_memfd(file_name, total_bytes(local_ranks));
  Mapping mapping = Mapping::of_file(fd.get(), total_bytes(local_ranks));
  initialise(mapping, local_ranks);
  return {std::move(fd), std::move(mapping), local_ranks};
}

ControlPage ControlPage::attach(UniqueFd fd, int local_ranks) {
  require_unshrinkable(fd.get(), "the job's control page");
  Mapping mapping = Mapping::of_file(fd.get(), sizeof(PageHeader));
  return attach(std::move(mapping), std::move(fd), local_ranks);
}

ControlPage ControlPage::read_only(UniqueFd fd) {
  Mapping mapping = Mapping::of_file(fd.get(), sizeof(PageHeader), Mapping::Access::read);
  return attach(std::move(mapping), UniqueFd(), 0);  // who is looked for by this descriptor are the job's own
}

ControlPage ControlPage::attach(Mapping mapping, UniqueFd fd, int local_ranks) {
  const int found = static_cast<int>(page_header(mapping).local_ranks);
  const bool fits = found >= 1 && found <= (1 << 16) && mapping.size() >= total_bytes(found);
  if (page_header(mapping).magic != page_magic || !fits) {
    throw Error(ErrorCode::corrupt_data,
                "the job's control page is not of this version of Lockstep, or a process has written into it "
                "by mistake "
                "(descriptors of a rank that are not its own); use the `lockstep` that was built with the "
                "program's library");
  }
  if (local_ranks != 0 && found != local_ranks) {
    throw Error(ErrorCode::corrupt_data,
                fmt::format("the launcher's control page is for {} local ranks, but {} run on this host",
                            found, local_ranks));
  }
  return {std::move(fd), std::move(mapping), found};
}

ControlPage ControlPage::in_process(int local_ranks) {
  Mapping mapping = Mapping::anonymous(total_bytes(local_ranks));
  initialise(mapping, local_ranks);
  return {UniqueFd(), std::move(mapping), local_ranks};
}

bool ControlPage::take_profile_turn() const {
  return page_header(mapping_).profile_turn_taken.exchange(1) == 0;
}
std::uint64_t ControlPage::view() const { return page_header(mapping_).view.load(std::memory_order_acquire); }
void ControlPage::set_view(std::uint64_t number) const {
  page_header(mapping_).view.store(number);
  doorbell().ring();
}
FirstCause& ControlPage::first_cause() const { return page_header(mapping_).first_cause; }
Doorbell& ControlPage::doorbell() const { return page_header(mapping_).doorbell; }

RankStatus& ControlPage::status(int local_rank) const {
  return reinterpret_cast<RankStatus*>(mapping_.data() + status_offset())[local_rank];
}

RankRecord& ControlPage::rank_record(int local_rank) const {
  const std::size_t offset =
      record_offset(local_ranks()) + static_cast<std::size_t>(local_rank) * record_stride();
  return *reinterpret_cast<RankRecord*>(mapping_.data() + offset);
}

trace::RecordRings& ControlPage::record(int local_rank) const { return rank_record(local_rank).rings; }
trace::TotalsTable& ControlPage::totals(int local_rank) const { return rank_record(local_rank).totals; }
trace::SpanRings& ControlPage::spans(int local_rank) const { return rank_record(local_rank).spans; }
trace::OpenCallTable& ControlPage::open_calls(int local_rank) const {
  return rank_record(local_rank).open_calls;
}
trace::GroupTable& ControlPage::groups(int local_rank) const { return rank_record(local_rank).groups; }
trace::SentTable& ControlPage::sent(int local_rank) const { return rank_record(local_rank).sent; }

}  // namespace lockstep

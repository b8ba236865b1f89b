#include "lockstep/memory/host_region.h"

#include <fmt/core.h>

#include "lockstep/base/pages.h"

namespace lockstep {
namespace {

using base::page_bytes;
using base::round_up;

// "LcRegio4": change it when the layout changes.
constexpr std::uint64_t region_magic = 0x346f69676552634cULL;

struct RegionHeader {
  std::uint64_t magic;
  std::uint32_t local_ranks;
  std::uint64_t arena_bytes;
  FirstCause first_cause;
};

/// Arenas that can have huge pages begin where one can.
constexpr std::size_t arena_alignment(std::size_t arena_bytes) {
  return arena_bytes >= huge_page_bytes ? huge_page_bytes : page_bytes;
}

struct Layout {
  std::size_t progress, cells, slots, staging, rings, arenas, total;
};

Layout layout_of(int local_ranks, std::size_t arena_bytes) {
  const auto ranks = static_cast<std::size_t>(local_ranks);
  Layout layout{};
  layout.progress = round_up(sizeof(RegionHeader));
  layout.cells = round_up(layout.progress + ranks * sizeof(RankProgress));
  layout.slots = round_up(layout.cells + lane_count * ranks * sizeof(Cell));
  layout.staging = round_up(layout.slots + lane_count * ranks * slot_bytes);
  layout.rings = layout.staging + ranks * staging_bytes;
  layout.arenas =
      round_up(layout.rings + static_cast<std::size_t>(purpose_count) * ranks * ranks * ring_bytes,
               arena_alignment(arena_bytes));
  layout.total = layout.arenas + ranks * arena_bytes;
  return layout;
}

RegionHeader& region_header(const Mapping& mapping) {
  return *reinterpret_cast<RegionHeader*>(mapping.data());
}

void initialise(const Mapping& mapping, int local_ranks, std::size_t arena_bytes) {
  region_header(mapping).magic = region_magic;
  region_header(mapping).local_ranks = static_cast<std::uint32_t>(local_ranks);
  region_header(mapping).arena_bytes = arena_bytes;
}

}  // namespace

HostRegion::HostRegion(UniqueFd fd, Mapping mapping) : fd_(std::move(fd)), mapping_(std::move(mapping)) {
  const Layout layout = layout_of(local_ranks(), arena_bytes());
  row_ = static_cast<std::size_t>(local_ranks());
  cells_ = reinterpret_cast<Cell*>(mapping_.data() + layout.cells);
  slots_ = layout.slots;
  staging_ = layout.staging;
  rings_ = layout.rings;
  for (std::size_t rank = 0; rank < row_; ++rank)
    arenas_.push_back(mapping_.data() + layout.arenas + rank * arena_bytes());
  if (arena_alignment(arena_bytes()) == huge_page_bytes) mapping_.use_huge_pages(layout.arenas);
}

std::shared_ptr<HostRegion> HostRegion::create(int local_ranks, std::size_t arena_bytes) {
  if (arena_bytes > most_arena_bytes) {
    throw_invalid_argument(fmt::format("an arena of {} bytes is more than any machine has; at most {}",
                                       arena_bytes, most_arena_bytes));
  }
  arena_bytes = round_up(arena_bytes, arena_alignment(arena_bytes));
  const std::size_t total = layout_of(local_ranks, arena_bytes).total;
  UniqueFd fd = make_memfd("lockstep-group", total);
  Mapping mapping = Mapping::of_file(fd.get(), total);
  initialise(mapping, local_ranks, arena_bytes);
  return std::shared_ptr<HostRegion>(new HostRegion(std::move(fd), std::move(mapping)));
}

std::shared_ptr<HostRegion> HostRegion::attach(UniqueFd fd, int local_ranks) {
  require_unshrinkable(fd.get(), "the shared memory that this host's first rank offers");
  Mapping mapping = Mapping::of_file(fd.get(), sizeof(RegionHeader));
  const RegionHeader& found = region_header(mapping);
  if (found.magic != region_magic || found.local_ranks != static_cast<std::uint32_t>(local_ranks) ||
      found.arena_bytes > mapping.size() ||
      mapping.size() < layout_of(local_ranks, found.arena_bytes).total) {
    throw Error(ErrorCode::corrupt_data,
                fmt::format("the shared memory that this host's first rank offers is not a group of {} "
                            "ranks; all ranks must use the same version of Lockstep",
                            local_ranks));
  }
  return std::shared_ptr<HostRegion>(new HostRegion(std::move(fd), std::move(mapping)));
}

std::shared_ptr<HostRegion> HostRegion::in_process(int local_ranks, std::size_t arena_bytes) {
  arena_bytes = round_up(arena_bytes, arena_alignment(arena_bytes));
  Mapping mapping = Mapping::anonymous(layout_of(local_ranks, arena_bytes).total);
  initialise(mapping, local_ranks, arena_bytes);
  return std::shared_ptr<HostRegion>(new HostRegion(UniqueFd(), std::move(mapping)));
}

void HostRegion::borrow_arenas(std::shared_ptr<const HostRegion> lender, const std::vector<int>& places) {
  arenas_.clear();
  for (const int place : places) arenas_.push_back(lender->arena(place));
  lender_ = std::move(lender);
}

int HostRegion::local_ranks() const { return static_cast<int>(region_header(mapping_).local_ranks); }
std::size_t HostRegion::arena_bytes() const {
  return lender_ ? lender_->arena_bytes() : region_header(mapping_).arena_bytes;
}
FirstCause& HostRegion::first_cause() const { return region_header(mapping_).first_cause; }

RankProgress& HostRegion::progress(int local_rank) const {
  return reinterpret_cast<RankProgress*>(mapping_.data() + round_up(sizeof(RegionHeader)))[local_rank];
}

bool HostRegion::all_have_let_go() const {
  for (int rank = 0; rank < local_ranks(); ++rank)
    if (progress(rank).has_let_go.load(std::memory_order_acquire) == 0) return false;
  return true;
}

std::byte* HostRegion::slot(std::uint64_t work, int local_rank) const {
  const std::size_t row = (work % lane_count) * static_cast<std::size_t>(local_ranks());
  return mapping_.data() + slots_ + (row + static_cast<std::size_t>(local_rank)) * slot_bytes;
}

std::byte* HostRegion::staging(int local_rank) const {
  return mapping_.data() + staging_ + static_cast<std::size_t>(local_rank) * staging_bytes;
}

std::byte* HostRegion::ring(Purpose purpose, int from, int to) const {
  const auto ranks = static_cast<std::size_t>(local_ranks());
  const std::size_t plane = static_cast<std::size_t>(purpose) * ranks * ranks;
  return mapping_.data() + rings_ +
         (plane + static_cast<std::size_t>(from) * ranks + static_cast<std::size_t>(to)) * ring_bytes;
}

void HostRegion::reserve_arena(int local_rank, std::size_t offset, std::size_t bytes) const {
  if (!fd_) return;
  const bool may_be_huge = arena_alignment(arena_bytes()) == huge_page_bytes;
  if (may_be_huge && reserve_huge_pages({arena(local_rank) + offset, bytes})) return;
  reserve_pages(fd_.get(), file_offset(arena(local_rank) + offset), bytes);
}

}  // namespace lockstep

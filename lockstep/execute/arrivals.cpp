#include "lockstep/execute/arrivals.h"

#include <algorithm>

#include "lockstep/execute/short_look.h"
#include "lockstep/kernel/own_line.h"

namespace lockstep {
namespace {

// The stage in the lower bits: as many as a work of terabytes has. The work in the others: as many as run in
// a year at a million a second.
constexpr std::uint64_t word_of(std::uint64_t work, std::uint32_t stage) { return (work << 24) + stage; }

}  // namespace

Arrivals::Arrivals(std::shared_ptr<HostRegion> region, int rank, int ranks, Doorbell& doorbell)
    : region_(std::move(region)), rank_(rank), ranks_(ranks), doorbell_(&doorbell) {}

bool Arrivals::lane_is_free(std::uint64_t work) {
  if (work < lane_count || completed_by_all_ > work - lane_count) return true;
  std::uint64_t least = work;
  for (int rank = 0; rank < ranks_; ++rank) {
    least = std::min(least, region_->progress(rank).completed.load(std::memory_order_acquire));
  }
  completed_by_all_ = least;
  return completed_by_all_ > work - lane_count;
}

void Arrivals::announce(std::uint64_t work, const Signature& signature) {
  region_->cell(work, rank_).signature = signature;
}

void Arrivals::announce(std::uint64_t work, const Signature& signature, const BufferOffsets& offsets) {
  announce(work, signature);
  region_->cell(work, rank_).offsets = offsets;
}

void Arrivals::arrive(std::uint64_t work, std::uint32_t stage) {
  region_->cell(work, rank_).word.store(word_of(work, stage), std::memory_order_seq_cst);
  doorbell_->ring();
}

void Arrivals::take_cell(std::uint64_t work) const {
  kernel::own_line(reinterpret_cast<std::byte*>(&region_->cell(work, rank_)));
}

bool Arrivals::has_arrived(std::uint64_t work, std::uint32_t stage, int rank) const {
  return region_->cell(work, rank).word.load(std::memory_order_seq_cst) >= word_of(work, stage);
}

bool Arrivals::have_all_arrived(std::uint64_t work, std::uint32_t stage) const {
  for (int rank = 0; rank < ranks_; ++rank) {
    if (!has_arrived(work, stage, rank)) return false;
  }
  return true;
}

void Arrivals::fetch_cells(std::uint64_t work) const {
  for (int rank = 0; rank < ranks_; ++rank) {
    if (rank != rank_) __builtin_prefetch(&region_->cell(work, rank));
  }
}

bool Arrivals::spin_until_all_arrived(std::uint64_t work, std::uint32_t stage, int looks,
                                      std::uint64_t& last_look_ns) const {
  return look_shortly(looks, last_look_ns, [&] { return have_all_arrived(work, stage); });
}

void Arrivals::complete_through(std::uint64_t work) {
  // Weaker than the doorbell wants: only a rank that is 64 works ahead waits for this, and its nap is short.
  region_->progress(rank_).completed.store(work, std::memory_order_release);
  doorbell_->ring();
}

std::byte* Arrivals::slot(std::uint64_t work, int rank, std::size_t bytes) const {
  return bytes <= inline_slot_bytes ? region_->cell(work, rank).payload : region_->slot(work, rank);
}

}  // namespace lockstep

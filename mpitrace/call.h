// What every function of ours does around MPI's: find out whether the call is the program's own, count it, and time it; and
// write it down where a timeline is wanted.
// MPI calls itself (its Fortran functions the C ones, ROMIO everything): a depth in each thread lets only the outermost
// count.
#pragma once

#include <array>
#include <cstdint>
#include <functional>

#include "lockstep/trace/clock.h"
#include "mpitrace/abi.h"
#include "mpitrace/events.h"
#include "mpitrace/sites.h"
#include "mpitrace/table.h"

namespace lockstep::mpitrace {

/// The sizes of types that a thread used last. A handle's type changes only after a MPI_Type_free.
struct KnownType {
  MPI_Datatype type;
  std::uint64_t frees;
  std::uint64_t bytes;
};

/// The names of communicators likewise.
struct KnownComm {
  MPI_Comm comm;
  std::uint64_t changes;
  std::uint16_t number;  ///< of Events
};

struct Thread {
  Sums* slots;           ///< null: none yet, or nothing is profiled
  ThreadEvents* events;  ///< null: not in a timeline
  int depth;
  std::uint64_t looked_at_costs_ns;
  std::array<KnownType, 8> types;  // see bytes_of()
  std::array<KnownComm, 4> comms;  // see number_of()
};
[[gnu::tls_model("initial-exec")]] extern constinit thread_local Thread thread;

/// From MPI_Init to MPI_Finalize.
struct Period {
  std::atomic<bool> is_on = false;
  Table* table = nullptr;
  Events* events = nullptr;  ///< null: no timeline is wanted
  bool has_sites = false;
  std::array<bool, slot_count> has_barrier = {};  ///< by the wait_slot of a routine
};
extern constinit Period period;
extern constinit std::atomic<std::uint64_t> type_frees, name_changes;

/// After MPI_Init; before MPI_Finalize. Collective over MPI_COMM_WORLD.
void begin_period() noexcept;
void end_period() noexcept;

/// The calling thread's sums, and its events if they are wanted, when it calls MPI for the first time. Null: it is not counted.
Sums* join() noexcept;
/// What the process has taken so far goes into the table.
void note_costs(std::uint64_t now) noexcept;
std::uint64_t look_up_size(MPI_Datatype type, KnownType& known);
std::uint16_t look_up_number(MPI_Comm comm, KnownComm& known) noexcept;
void pmpi_barrier(MPI_Comm comm);

// In line everywhere: most routines of MPI take less time than a few calls.
class Call {
 public:
  [[gnu::always_inline]] Call(int routine, void* site)
      : routine_(routine),
        slot_(routines[routine].slot),
        base_slot_(slot_),
        site_(site),
        is_outermost_(thread.depth++ == 0) {
    if (!is_outermost_ || !period.is_on.load(std::memory_order_acquire)) return;
    slots_ = thread.slots != nullptr ? thread.slots : join();
    if (slots_ != nullptr) events_ = thread.events;
  }
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;
  // Also where the program's error handler throws through MPI.
  [[gnu::always_inline]] ~Call() {
    if (begin_ != 0) count();
    --thread.depth;
  }

  bool is_outermost() const { return is_outermost_; }
  bool counts() const { return slots_ != nullptr; }
  bool draws() const { return events_ != nullptr; }
  /// Of the period, which is over.
  void is_none() {
    slots_ = nullptr;
    events_ = nullptr;
  }
  void is_about(const AboutCall& about) { about_ = about; }
  void moves(std::uint64_t bytes) {
    bytes_ = bytes;
    slot_ += base::size_bin(bytes);
  }
  bool awaits_all(int wait_slot) {
    wait_slot_ = wait_slot;
    return counts() && period.has_barrier[static_cast<std::size_t>(wait_slot)];
  }
  void await_all(MPI_Comm comm) {
    if (draws()) event_ = &events_->begin(routine_, bytes_, about_);
    const std::uint64_t before = trace::now_ns();
    begin_call(slots_, base_slot_, before);
    if (draws()) store(event_->begin_ns, before);
    pmpi_barrier(comm);
    add(slots_[wait_slot_], 0, trace::now_ns() - before);
  }
  void start() {
    if (!counts()) return;
    const bool has_waited = event_ != nullptr;
    if (draws() && !has_waited) event_ = &events_->begin(routine_, bytes_, about_);
    begin_ = trace::now_ns();
    begin_call(slots_, base_slot_, begin_);
    if (draws()) store(has_waited ? event_->arrived_ns : event_->begin_ns, begin_);
  }

 private:
  [[gnu::always_inline]] void count() {
    constexpr std::uint64_t between_looks_ns = 1'000'000'000;
    const std::uint64_t now = trace::now_ns();
    add(slots_[slot_], bytes_, now - begin_);
    end_call(slots_, now);
    if (draws()) events_->end(*event_, now);
    if (now - thread.looked_at_costs_ns > between_looks_ns) note_costs(now);
    if (period.has_sites) count_at_site(*period.table, site_, base_slot_, bytes_, now - begin_);
  }

  Sums* slots_ = nullptr;
  ThreadEvents* events_ = nullptr;
  Event* event_ = nullptr;
  AboutCall about_;
  int routine_;
  int slot_;
  int base_slot_;
  int wait_slot_ = -1;
  void* site_;
  std::uint64_t bytes_ = 0;
  std::uint64_t begin_ = 0;
  bool is_outermost_;
};

/// count x the size of the type, in C's terms.
[[gnu::always_inline]] inline std::uint64_t bytes_of(MPI_Count count, MPI_Datatype type) {
  if (count <= 0) return 0;  // then the type need not be one
  const std::uint64_t mixed = std::hash<MPI_Datatype>()(type) * 0x9e37'79b9'7f4a'7c15;
  KnownType& known = thread.types[mixed >> 61U];
  const bool is_known = known.type == type && known.frees == type_frees.load(std::memory_order_relaxed) + 1;
  return static_cast<std::uint64_t>(count) * (is_known ? known.bytes : look_up_size(type, known));
}
inline void type_was_freed() { type_frees.fetch_add(1, std::memory_order_relaxed); }

/// The communicator's name, as a number of Events.
[[gnu::always_inline]] inline std::uint16_t number_of(MPI_Comm comm) {
  const std::uint64_t mixed = std::hash<MPI_Comm>()(comm) * 0x9e37'79b9'7f4a'7c15;
  KnownComm& known = thread.comms[mixed >> 62U];
  const bool is_known =
      known.comm == comm && known.changes == name_changes.load(std::memory_order_relaxed) + 1;
  return is_known ? known.number : look_up_number(comm, known);
}
inline void names_may_change() { name_changes.fetch_add(1, std::memory_order_relaxed); }

/// As view::MpiCall has it.
inline std::int32_t peer_of(int rank) {
  if (rank >= 0) return rank;
  if (rank == mpi_any_source) return view::mpi_any_rank;
  return rank == mpi_root ? view::mpi_root_here : view::mpi_no_rank;
}

inline bool is_in_place(const void* buffer) {
  return reinterpret_cast<std::uintptr_t>(buffer) == mpi_in_place;
}

}  // namespace lockstep::mpitrace

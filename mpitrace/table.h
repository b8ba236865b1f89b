// A rank's numbers, in a file that is mapped while they grow: whatever ends the rank, the file has them. Each thread has
// sums of its own, which nobody else writes, so that counting takes no lock and no locked instruction.
//
//   Header | Module x 64 | Site x 4096 | slots of thread 0 | slots of thread 1 | ...
//
// A thread's part begins on a page, and has a slot more than routines.h names: see begin_call(). Sites are there if call
// sites are asked for; else the file has a hole in their place.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "mpitrace/rank_file.h"
#include "mpitrace/routines.h"

namespace lockstep::mpitrace {

struct Sums {
  std::uint64_t calls;
  std::uint64_t bytes;
  std::uint64_t ns;
};

struct Header {
  std::uint64_t magic;
  std::uint32_t version;
  std::uint32_t slots;  ///< of the library that writes
  std::int32_t rank, ranks;
  std::int32_t pid;
  std::uint32_t has_sites;
  std::uint32_t threads;     ///< whose parts are in the file
  std::uint32_t modules;     ///< that are in use
  std::uint64_t lost_calls;  ///< at call sites for which there was no room
  std::uint64_t begin_ns;
  // What the process had taken at the beginning, and had a second ago.
  std::uint64_t user_ns_before, system_ns_before;
  std::uint64_t user_ns, system_ns, most_resident_bytes;
  char job[64];
  char run[64];  ///< of `lockstep profile`, to find its own
};

struct Module {
  std::uint64_t base;
  char path[248];
};

struct Site {
  std::uint64_t key;  ///< return address << 16 | the routine's slot; 0: free
  std::uint64_t offset;
  std::uint32_t module;
  std::uint32_t is_complete;  ///< offset and module are there
  Sums sums;
};

inline constexpr std::uint64_t table_magic = 0x3145'4341'5254'504d;  // "MPTRACE1"
inline constexpr std::uint32_t table_version = 1;
inline constexpr std::uint32_t module_count = 64;
inline constexpr std::uint32_t site_count = 4096;
inline constexpr std::uint32_t most_threads = 1024;
inline constexpr std::size_t page_bytes = 4096;
constexpr std::size_t in_pages(std::size_t bytes) {
  return (bytes + page_bytes - 1) / page_bytes * page_bytes;
}
inline constexpr std::size_t modules_at = page_bytes;
inline constexpr std::size_t sites_at = modules_at + in_pages(module_count * sizeof(Module));
inline constexpr std::size_t threads_at = sites_at + in_pages(site_count * sizeof(Site));
inline constexpr std::size_t thread_bytes = in_pages((slot_count + 1) * sizeof(Sums));
static_assert(sizeof(Header) <= page_bytes && sizeof(Module) == 256 && sizeof(Site) == 48);

/// Each word may be read by another thread, or by another process after this one's end.
inline std::uint64_t load(const std::uint64_t& word) {
  return std::atomic_ref(const_cast<std::uint64_t&>(word)).load(std::memory_order_relaxed);
}
inline void store(std::uint64_t& word, std::uint64_t value) {
  std::atomic_ref(word).store(value, std::memory_order_relaxed);
}

/// A call more. Only one thread adds to the same sums.
inline void add(Sums& sums, std::uint64_t bytes, std::uint64_t ns) {
  store(sums.calls, load(sums.calls) + 1);
  store(sums.bytes, load(sums.bytes) + bytes);
  store(sums.ns, load(sums.ns) + ns);
}

/// The last slot of a thread's has the end of its last call, and, while it is in one, that one's slot + 1 and beginning: of a
/// rank that is killed it is said where it was.
inline void begin_call(Sums* slots, int slot, std::uint64_t now) {
  store(slots[slot_count].bytes, now);
  store(slots[slot_count].calls, static_cast<std::uint64_t>(slot) + 1);
}
inline void end_call(Sums* slots, std::uint64_t now) {
  store(slots[slot_count].calls, 0);
  store(slots[slot_count].ns, now);
}

/// The writer's side. Never freed: a thread may be in a call.
class Table {
 public:
  /// `wanted` "" or a file that cannot be made: memory alone, and `problem` says why.
  static Table* create(const std::string& wanted, bool has_sites, std::string& problem);

  Header& header() const { return *reinterpret_cast<Header*>(file_.data()); }
  Module* modules() const { return reinterpret_cast<Module*>(file_.data() + modules_at); }
  Site* sites() const { return reinterpret_cast<Site*>(file_.data() + sites_at); }
  const std::byte* data() const { return file_.data(); }
  std::size_t size() const { return threads_at + header().threads * thread_bytes; }
  const std::string& path() const { return file_.path(); }  ///< "": memory alone

  /// Sums for a thread that has none: new ones, or those of a thread that has left(). Null: no room.
  Sums* join();
  void leave(Sums* sums);

  void remove_file() { file_.remove_file(); }
  void forget() { file_.forget(); }

 private:
  explicit Table(RankFile file) : file_(std::move(file)) {}

  RankFile file_;
  std::mutex mutex_;
  std::vector<Sums*> free_;
  bool is_full_ = false;
};

}  // namespace lockstep::mpitrace

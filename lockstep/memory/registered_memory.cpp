#include "lockstep/memory/registered_memory.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <functional>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/log.h"
#include "lockstep/base/overlap.h"
#include "lockstep/base/pages.h"
#include "lockstep/memory/arena.h"
#include "lockstep/memory/page_swap.h"

namespace lockstep {
namespace {

using base::offset_in_page;
using base::overlap;
using base::page_bytes;
using base::round_up;

using Bytes = std::span<const std::byte>;

/// The whole pages in these bytes; others have something else in them.
std::span<std::byte> pages_within(std::span<std::byte> bytes) {
  const std::size_t before = round_up(offset_in_page(bytes.data())) - offset_in_page(bytes.data());
  if (before >= bytes.size()) return {};
  return bytes.subspan(before, (bytes.size() - before) / page_bytes * page_bytes);
}

struct Registration {
  std::span<std::byte> bytes;
  std::span<std::byte> pages;  // of these, which are the arena's
  const Arena* arena = nullptr;
  std::byte* place = nullptr;        // in the arena, of the first byte
  FilePages file = {};               // of the pages
  const std::byte* block = nullptr;  // which says whose registration it is
  bool is_gone = false;  // the program has freed or moved the memory: nothing may be done there any more

  bool is_there(Bytes part) const {
    return !is_gone && is_mapped_from(part, file.from(static_cast<std::size_t>(part.data() - pages.data())));
  }
};

/// Of the process, by their addresses: memory is registered once, with one group.
class Registrations {
 public:
  static Registrations& all() {
    static auto* const one = new Registrations;  // memory may be registered until the very end
    return *one;
  }

  std::mutex mutex;
  std::map<const std::byte*, Registration, std::less<>> by_begin;
  /// Pages of arenas that may still be mapped where the program has moved them: they are nobody else's for ever. There is room for
  /// those of all RegisteredMemory that there is.
  std::vector<ArenaBlock> lost;
  std::size_t handles = 0;

  /// The one in which `bytes` lie as a whole, or nullptr.
  Registration* around(std::span<const std::byte> bytes) {
    auto next = by_begin.upper_bound(bytes.data());
    if (next == by_begin.begin()) return nullptr;
    Registration& found = std::prev(next)->second;
    return bytes.data() + bytes.size() <= found.bytes.data() + found.bytes.size() ? &found : nullptr;
  }

  /// Of what was registered before in a part of these: whether it is still there. What is not is forgotten.
  bool has_some_in(Bytes bytes) {
    std::erase_if(by_begin, [&](const auto& entry) {
      const Registration& one = entry.second;
      return overlap(one.bytes, bytes) && !one.is_there(one.pages);
    });
    return std::ranges::any_of(by_begin,
                               [&](const auto& entry) { return overlap(entry.second.bytes, bytes); });
  }

 private:
  Registrations() {
    ::pthread_atfork([] { all().begin_fork(); }, [] { all().await_child(); }, [] { all().begin_child(); });
  }

  // The child of a fork would share memory with its parent, and write into the parent's. It gets a copy while fork() returns to neither:
  // nobody is just changing the table, and whoever forks sees in the child what there was.
  void begin_fork() {
    mutex.lock();
    if (by_begin.empty() || ::pipe2(until_copied_.data(), O_CLOEXEC) != 0) until_copied_ = {-1, -1};
  }
  /// Until the child has closed its end of the pipe, or has died.
  void await_child() {
    if (until_copied_[1] >= 0) {
      (void)::close(until_copied_[1]);
      char nothing = 0;
      while (::read(until_copied_[0], &nothing, 1) < 0 && errno == EINTR) continue;
      (void)::close(until_copied_[0]);
    }
    mutex.unlock();
  }
  void begin_child() {
    if (!by_begin.empty()) {
      look_at_own_mappings();
      for (auto& [begin, one] : by_begin) {
        if (!one.is_there(one.pages) || take_pages_back(one.pages)) continue;
        // No room for a copy: rather no memory than the parent's.
        (void)::mprotect(one.pages.data(), one.pages.size(), PROT_NONE);
      }
      by_begin.clear();
    }
    for (const int end : until_copied_) {
      if (end >= 0) (void)::close(end);
    }
    mutex.unlock();
  }

  std::array<int, 2> until_copied_{-1, -1};
};

/// The first whole page of what was allocated with a page to spare.
std::byte* pages_in(const ArenaBlock& block) {
  std::byte* const begin = block.bytes().data();
  const std::size_t before = offset_in_page(begin);
  return before == 0 ? begin : begin + (page_bytes - before);
}

}  // namespace

RegisteredMemory Arena::register_memory(std::span<std::byte> bytes) {
  if (bytes.empty()) throw_invalid_argument("register_memory: there are no bytes to register");
  if (region_->fd() < 0) return RegisteredMemory(bytes);
  Registrations& all = Registrations::all();
  const std::lock_guard lock(all.mutex);
  require_private(bytes);
  if (all.has_some_in(bytes)) {
    throw_invalid_argument(fmt::format(
        "register_memory: some of the {} bytes at {} are registered already; end that RegisteredMemory first",
        bytes.size(), static_cast<const void*>(bytes.data())));
  }
  const std::span<std::byte> pages = pages_within(bytes);
  if (pages.empty()) return RegisteredMemory(bytes);
  all.lost.reserve(all.lost.size() + all.handles + 1);
  const std::size_t before = offset_in_page(bytes.data());
  ArenaBlock block = allocate(round_up(before + bytes.size()) + page_bytes);
  std::byte* const place = pages_in(block) + before;
  const std::span<std::byte> shared(place + (pages.data() - bytes.data()), pages.size());
  const Registration made{.bytes = bytes,
                          .pages = pages,
                          .arena = this,
                          .place = place,
                          .file = FilePages::of(region_->fd(), region_->file_offset(shared.data())),
                          .block = block.bytes().data()};
  share_pages(pages, made.file, shared);
  ++all.handles;
  all.by_begin.emplace(bytes.data(), made);
  ++registrations_;
  return RegisteredMemory(bytes, std::move(block));
}

std::optional<Reach> Arena::reach_registered(std::span<const std::byte> bytes) const {
  Registrations& all = Registrations::all();
  const std::lock_guard lock(all.mutex);
  Registration* const found = bytes.empty() ? nullptr : all.around(bytes);
  if (found == nullptr || found->arena != this || found->is_gone) return std::nullopt;
  const std::byte* const begin = std::max<const std::byte*>(bytes.data(), found->pages.data());
  const std::byte* const end =
      std::min<const std::byte*>(bytes.data() + bytes.size(), found->pages.data() + found->pages.size());
  if (begin >= end) return std::nullopt;
  if (found->is_there({begin, end})) {
    std::byte* const place = found->place + (bytes.data() - found->bytes.data());
    return Reach{.place = place,
                 .offset = static_cast<std::size_t>(place - base_),
                 .head = static_cast<std::size_t>(begin - bytes.data()),
                 .tail = static_cast<std::size_t>(bytes.data() + bytes.size() - end)};
  }
  found->is_gone = true;
  log::warning(fmt::format(
      "memory at {} was freed or moved while it was registered with a group; what is there now is "
      "taken as memory that is not registered. End its RegisteredMemory first",
      static_cast<const void*>(found->bytes.data())));
  return std::nullopt;
}

void Arena::end_registration(std::span<std::byte> bytes, ArenaBlock block) {
  Registrations& all = Registrations::all();
  const std::lock_guard lock(all.mutex);
  --registrations_;
  --all.handles;
  const auto found = all.by_begin.find(bytes.data());
  bool is_back = false;
  // In a child of a fork there is none, and where other memory was registered at the same place it is another one.
  if (found != all.by_begin.end() && found->second.block == block.bytes().data()) {
    const Registration one = found->second;
    all.by_begin.erase(found);
    is_back = one.is_there(one.pages) && take_pages_back(one.pages);
  }
  if (!is_back) all.lost.push_back(std::move(block));
}

RegisteredMemory::RegisteredMemory(RegisteredMemory&& other) noexcept
    : bytes_(std::exchange(other.bytes_, {})), block_(std::move(other.block_)) {}

RegisteredMemory& RegisteredMemory::operator=(RegisteredMemory&& other) noexcept {
  std::swap(bytes_, other.bytes_);
  std::swap(block_, other.block_);
  return *this;
}

RegisteredMemory::~RegisteredMemory() {
  if (is_shared()) block_.arena()->end_registration(bytes_, std::move(block_));
}

}  // namespace lockstep

#include "lockstep/memory/registered_memory.h"

#include <fmt/core.h>
#include <pthread.h>

#include <functional>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/log.h"
#include "lockstep/base/pages.h"
#include "lockstep/memory/arena.h"
#include "lockstep/memory/page_swap.h"

namespace lockstep {
namespace {

using base::offset_in_page;
using base::page_bytes;
using base::round_up;

struct Registration {
  std::span<std::byte> bytes;
  const Arena* arena = nullptr;
  std::size_t offset = 0;       // of the first byte in the arena
  FilePages file = {};          // from the page of the first byte on
  std::span<std::byte> shared;  // the same pages, in the arena
  bool is_gone = false;  // the program has freed or moved the memory: nothing may be done there any more

  FilePages file_from(std::size_t byte) const { return file.from(offset_in_page(bytes.data()) + byte); }
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

  /// Where there is private memory, what was registered before is gone.
  void forget_those_in(std::span<const std::byte> bytes) {
    std::erase_if(by_begin, [&](const auto& entry) {
      const std::span<std::byte> old = entry.second.bytes;
      return old.data() < bytes.data() + bytes.size() && bytes.data() < old.data() + old.size();
    });
  }

 private:
  // The child of a fork would share memory with its parent, and write into the parent's. It has one thread, and a table that nobody
  // is just changing.
  Registrations() {
    ::pthread_atfork([] { all().mutex.lock(); }, [] { all().mutex.unlock(); },
                     [] {
                       for (auto& [begin, one] : all().by_begin) {
                         // /proc/self was opened by the parent, whose memory is the same here at this moment.
                         if (!one.is_gone && is_mapped_from(one.bytes, one.file_from(0)))
                           (void)take_pages_back(one.bytes, {});
                       }
                       all().by_begin.clear();
                       all().mutex.unlock();
                     });
  }
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
  all.lost.reserve(all.lost.size() + all.handles + 1);
  const std::size_t before = offset_in_page(bytes.data());
  const std::size_t whole = round_up(before + bytes.size());
  ArenaBlock block = allocate(whole + page_bytes);
  std::byte* const pages = pages_in(block);
  const Registration made{.bytes = bytes,
                          .arena = this,
                          .offset = static_cast<std::size_t>(pages - base_) + before,
                          .file = FilePages::of(region_->fd(), region_->file_offset(pages)),
                          .shared = {pages, whole}};
  share_pages(bytes, made.file, made.shared);
  all.forget_those_in(bytes);
  ++all.handles;
  all.by_begin.emplace(bytes.data(), made);
  ++registrations_;
  return RegisteredMemory(bytes, std::move(block));
}

std::optional<std::size_t> Arena::registered_offset_of(std::span<const std::byte> bytes) const {
  Registrations& all = Registrations::all();
  const std::lock_guard lock(all.mutex);
  Registration* const found = bytes.empty() ? nullptr : all.around(bytes);
  if (found == nullptr || found->arena != this || found->is_gone) return std::nullopt;
  const auto from_begin = static_cast<std::size_t>(bytes.data() - found->bytes.data());
  if (is_mapped_from(bytes, found->file_from(from_begin))) return found->offset + from_begin;
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
  if (found != all.by_begin.end() && found->second.shared.data() == pages_in(block)) {
    const Registration one = found->second;
    all.by_begin.erase(found);
    is_back =
        !one.is_gone && is_mapped_from(one.bytes, one.file_from(0)) && take_pages_back(one.bytes, one.shared);
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

#include "mpitrace/sites.h"

#include <link.h>
#include <unistd.h>

#include <array>
#include <cstring>

namespace lockstep::mpitrace {
namespace {

struct CodePlace {
  std::uint64_t address;
  std::uint64_t base;
  std::array<char, sizeof(Module::path)> path;
};

int look_into(dl_phdr_info* object, std::size_t, void* asked) {
  auto& place = *static_cast<CodePlace*>(asked);
  for (int i = 0; i < object->dlpi_phnum; ++i) {
    const ElfW(Phdr)& part = object->dlpi_phdr[i];
    const std::uint64_t offset = place.address - object->dlpi_addr - part.p_vaddr;
    if (part.p_type != PT_LOAD || offset >= part.p_memsz) continue;
    place.base = object->dlpi_addr;
    const char* const name = object->dlpi_name == nullptr ? "" : object->dlpi_name;
    if (*name != '\0') {
      std::strncpy(place.path.data(), name, place.path.size() - 1);
    } else {  // the program itself
      [[maybe_unused]] const auto length =
          ::readlink("/proc/self/exe", place.path.data(), place.path.size() - 1);
    }
    return 1;
  }
  return 0;
}

/// Which entry the file has, one of module_count; makes one if need be.
std::uint32_t module_of(Table& table, const CodePlace& place) {
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  std::uint32_t& used = table.header().modules;
  for (std::uint32_t i = 0; i < used; ++i) {
    if (std::strcmp(table.modules()[i].path, place.path.data()) == 0) return i;
  }
  if (used == module_count) return module_count - 1;
  Module& module = table.modules()[used];
  module.base = place.base;
  std::memcpy(module.path, place.path.data(), sizeof(module.path));
  return used++;
}

void describe(Table& table, Site& site, std::uint64_t address) {
  CodePlace place{.address = address, .base = 0, .path = {}};
  ::dl_iterate_phdr(&look_into, &place);
  site.offset = address - place.base;
  site.module = module_of(table, place);
  std::atomic_ref(site.is_complete).store(1, std::memory_order_release);
}

}  // namespace

void count_at_site(Table& table, void* from, int slot, std::uint64_t bytes, std::uint64_t ns) noexcept {
  constexpr std::uint32_t most_looked_at = 64;
  const auto address = reinterpret_cast<std::uint64_t>(from);
  const std::uint64_t key = address << 16U | static_cast<std::uint64_t>(slot);
  const std::uint64_t hash = key * 0x9e37'79b9'7f4a'7c15 >> 32U;
  for (std::uint32_t i = 0; i < most_looked_at; ++i) {
    Site& site = table.sites()[(hash + i) % site_count];
    std::uint64_t there = load(site.key);
    if (there == 0 && std::atomic_ref(site.key).compare_exchange_strong(there, key)) {
      describe(table, site, address);
      there = key;
    }
    if (there != key) continue;
    std::atomic_ref(site.sums.calls).fetch_add(1, std::memory_order_relaxed);
    std::atomic_ref(site.sums.bytes).fetch_add(bytes, std::memory_order_relaxed);
    std::atomic_ref(site.sums.ns).fetch_add(ns, std::memory_order_relaxed);
    return;
  }
  std::atomic_ref(table.header().lost_calls).fetch_add(1, std::memory_order_relaxed);
}

}  // namespace lockstep::mpitrace

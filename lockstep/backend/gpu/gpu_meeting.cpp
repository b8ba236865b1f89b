#include "lockstep/backend/gpu/gpu_meeting.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <optional>
#include <vector>

#include "lockstep/base/quote.h"
#include "lockstep/base/words.h"

namespace lockstep {
namespace {

constexpr std::string_view declined = "cannot: ";

// Under which each rank tells: who it is; whether it has connected with those of its host.
constexpr const char *identity = "who/", *host = "host/";

std::string key_of(const std::string& word, int rank) { return word + std::to_string(rank); }

std::string line_of(std::string text) {
  std::ranges::replace(text, '\n', ' ');
  return text + "\n";
}

std::string text_of(const GpuOffer& offer) {
  return line_of(offer.gpu) + line_of(offer.nccl) + line_of(offer.no_nccl) + line_of(offer.no_arena) +
         line_of(std::to_string(offer.sliced_from)) + line_of(std::to_string(offer.piece_bytes));
}

GpuOffer offer_of(const std::string& text) {
  std::size_t begin = 0;
  const auto line = [&] {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    std::string found = text.substr(begin, end - begin);
    begin = std::min(end + 1, text.size());
    return found;
  };
  GpuOffer offer;
  for (std::string* const field : {&offer.gpu, &offer.nccl, &offer.no_nccl, &offer.no_arena}) *field = line();
  for (std::size_t* const field : {&offer.sliced_from, &offer.piece_bytes}) {
    const std::string number = line();
    const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), *field);
    if (error != std::errc())
      throw Error(ErrorCode::corrupt_data,
                  "a rank's offer for calls on GPUs has no number: " + base::quote(text));
  }
  return offer;
}

/// Until all have told.
void await_all(Store& store, const Members& members, const std::string& word, Deadline deadline) {
  std::vector<std::string> keys;
  for (int rank = 0; rank < members.size(); ++rank) keys.push_back(key_of(word, rank));
  try {
    store.wait(keys, deadline);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::timeout) throw;
    std::vector<int> missing;
    for (int rank = 0; rank < members.size(); ++rank) {
      if (!store.try_get(keys[static_cast<std::size_t>(rank)])) missing.push_back(members[rank].world);
    }
    throw Error(ErrorCode::timeout,
                base::name_ranks(missing) +
                    " did not come to a first call on GPUs: see what they are doing; all ranks of a group "
                    "make it, with "
                    "buffers on their GPUs",
                missing.size() == 1 ? std::optional(missing.front()) : std::nullopt);
  }
}

/// What all have told under `word`, of which the last one to read it erases it.
std::vector<std::string> tell_all(Store& store, const Members& members, const std::string& word,
                                  const std::string& own, Deadline deadline) {
  store.set(key_of(word, members.rank()), own);
  await_all(store, members, word, deadline);
  std::vector<std::string> told;
  for (int rank = 0; rank < members.size(); ++rank) {
    told.push_back(store.get(key_of(word, rank), Deadline::after(std::chrono::seconds(10))));
    if (told.back().starts_with(declined)) break;
  }
  if (store.add(word + "through", 1) == members.size()) store.erase_all(word);
  return told;
}

/// Two ranks of which the second has the first one's GPU.
std::optional<std::pair<int, int>> sharing_ranks(const std::vector<GpuOffer>& offers) {
  std::map<std::string, int> owners;
  for (int rank = 0; rank < std::ssize(offers); ++rank) {
    const auto [owner, is_new] = owners.emplace(offers[static_cast<std::size_t>(rank)].gpu, rank);
    if (!is_new) return std::pair(owner->second, rank);
  }
  return std::nullopt;
}

GpuChoice choose_nccl(const std::vector<GpuOffer>& offers, const Members& members) {
  const GpuOffer& own = offers[static_cast<std::size_t>(members.rank())];
  if (own.nccl.empty()) throw Error(ErrorCode::unsupported, own.no_nccl);
  for (int rank = 0; rank < std::ssize(offers); ++rank) {
    const GpuOffer& offer = offers[static_cast<std::size_t>(rank)];
    const int world = members[rank].world;
    if (offer.nccl.empty())
      throw Error(ErrorCode::unsupported, fmt::format("rank {}: {}", world, offer.no_nccl), world);
    if (offer.nccl != offers.front().nccl) {
      throw Error(ErrorCode::unsupported,
                  fmt::format("rank {} has NCCL {}, rank {} has {}: all need the same", world, offer.nccl,
                              members[0].world, offers.front().nccl));
    }
  }
  return {GpuEngineKind::nccl};
}

/// Whether those of each host have one GPU.
bool share_host_by_host(const std::vector<GpuOffer>& offers, const std::vector<int>& hosts) {
  std::map<int, std::string> gpus;
  for (std::size_t rank = 0; rank < offers.size(); ++rank) {
    if (gpus.emplace(hosts[rank], offers[rank].gpu).first->second != offers[rank].gpu) return false;
  }
  return true;
}

GpuChoice choose_without_nccl(const std::vector<GpuOffer>& offers, const Members& members) {
  if (members.are_on_one_host()) return {GpuEngineKind::device_arena};
  return {GpuEngineKind::gpu_hosts, offers.front().sliced_from, offers.front().piece_bytes};
}

/// All ranks have the same offers, and so choose, or refuse, alike.
GpuChoice choose(const std::vector<GpuOffer>& offers, const Members& members) {
  const auto sharing = sharing_ranks(offers);
  const bool is_one_host = members.are_on_one_host();
  const bool is_one_each = !is_one_host && share_host_by_host(offers, members.hosts());
  if (!sharing) {
    const bool does_without =
        is_one_each &&
        std::ranges::any_of(offers, [](const GpuOffer& offer) { return offer.nccl.empty(); }) &&
        std::ranges::all_of(offers, [](const GpuOffer& offer) { return offer.no_arena.empty(); });
    return does_without ? choose_without_nccl(offers, members) : choose_nccl(offers, members);
  }
  const std::string same = fmt::format("ranks {} and {} have the same GPU ({}), which NCCL does not allow",
                                       members[sharing->first].world, members[sharing->second].world,
                                       offers[static_cast<std::size_t>(sharing->first)].gpu);
  const bool is_one =
      std::ranges::all_of(offers, [&](const GpuOffer& offer) { return offer.gpu == offers.front().gpu; });
  if (!(is_one_host ? is_one : is_one_each)) {
    throw Error(ErrorCode::unsupported, same + ": give each rank its own (device_for), or all" +
                                            (is_one_host ? "" : " of a host") +
                                            " the same, or copy to main memory");
  }
  for (int rank = 0; rank < std::ssize(offers); ++rank) {
    const std::string& why = offers[static_cast<std::size_t>(rank)].no_arena;
    if (!why.empty()) {
      throw Error(ErrorCode::unsupported,
                  fmt::format("{}, and rank {} cannot share one without: {}; give each rank its own "
                              "(device_for), or copy to main memory",
                              same, members[rank].world, why));
    }
  }
  return choose_without_nccl(offers, members);
}

}  // namespace

GpuChoice choose_engine(const GpuOffer& alone) {
  if (!alone.nccl.empty()) return {GpuEngineKind::nccl};
  if (alone.no_arena.empty()) return {GpuEngineKind::device_arena};
  throw Error(ErrorCode::unsupported, alone.no_nccl);
}

void decline_gpus(Store& store, const Members& members, const Error& why) {
  store.set(key_of(identity, members.rank()), std::string(declined) + why.what());
}

GpuChoice meet_on_gpus(Store& store, const Members& members, const GpuOffer& offer, Deadline deadline) {
  std::vector<GpuOffer> offers;
  for (const std::string& told : tell_all(store, members, identity, text_of(offer), deadline)) {
    const int world = members[static_cast<int>(offers.size())].world;
    if (told.starts_with(declined))
      throw Error(ErrorCode::unsupported,
                  "rank " + std::to_string(world) + ": " + told.substr(declined.size()), world);
    offers.push_back(offer_of(told));
  }
  return choose(offers, members);
}

void agree_on_hosts(Store& store, const Members& members, const std::string& refusal, Deadline deadline) {
  const auto told = tell_all(store, members, host, refusal, deadline);
  for (int rank = 0; rank < members.size(); ++rank) {
    const std::string& why = told[static_cast<std::size_t>(rank)];
    if (!why.empty()) throw Error(ErrorCode::unsupported, why, members[rank].world);
  }
}

}  // namespace lockstep

#include "lockstep/backend/nccl/nccl_meeting.h"

#include <fmt/core.h>

#include <cstring>
#include <map>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/words.h"

namespace lockstep::nccl {
namespace {

constexpr std::string_view declined = "cannot: ";

std::string key_of(int rank) { return "who/" + std::to_string(rank); }

/// Until all have said who they are.
void await_all(Store& store, const Members& members, Deadline deadline) {
  std::vector<std::string> keys;
  for (int rank = 0; rank < members.size(); ++rank) keys.push_back(key_of(rank));
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

/// All ranks read the same, and so refuse alike.
void require_fitting(Store& store, const Members& members, const std::string& version) {
  std::map<std::string, int> owners;
  for (int rank = 0; rank < members.size(); ++rank) {
    const std::string told = store.get(key_of(rank), Deadline::after(std::chrono::seconds(10)));
    const std::size_t end = told.find(' ');
    const int world = members[rank].world;
    if (told.starts_with(declined))
      throw Error(ErrorCode::unsupported,
                  "rank " + std::to_string(world) + ": " + told.substr(declined.size()), world);
    const std::string its_version = told.substr(0, end), gpu = told.substr(end + 1);
    if (its_version != version) {
      throw Error(ErrorCode::unsupported, fmt::format("rank {} has NCCL {}, this one {}: all need the same",
                                                      world, its_version, version));
    }
    if (const auto [other, is_new] = owners.emplace(gpu, world); !is_new) {
      throw Error(
          ErrorCode::unsupported,
          fmt::format(
              "ranks {} and {} have the same GPU ({}), which NCCL does not allow: give each rank its own "
              "(device_for), or copy to main memory",
              other->second, world, gpu));
    }
  }
}

}  // namespace

void decline(Store& store, const Members& members, const Error& why) {
  store.set(key_of(members.rank()), std::string(declined) + why.what());
}

UniqueId meet(Store& store, const Members& members, const std::string& gpu, const Library& library,
              Deadline deadline) {
  UniqueId id{};
  if (members.rank() == 0) {
    if (const Result result = library.get_unique_id(&id); result != success)
      throw Error(ErrorCode::system, "NCCL cannot begin: " + library.text_of(result, nullptr));
    store.set("id", std::string(id.bytes.data(), id.bytes.size()));
  }
  store.set(key_of(members.rank()), library.version_text() + " " + gpu);
  await_all(store, members, deadline);
  require_fitting(store, members, library.version_text());
  const std::string bytes = store.get("id", deadline);
  if (bytes.size() != id.bytes.size())
    throw Error(ErrorCode::corrupt_data,
                fmt::format("rank 0's NCCL has an id of {} bytes, not {}", bytes.size(), id.bytes.size()));
  std::memcpy(id.bytes.data(), bytes.data(), id.bytes.size());
  if (store.add("through", 1) == members.size()) {
    for (const char* const key : {"who/", "id", "through"}) store.erase_all(key);
  }
  return id;
}

}  // namespace lockstep::nccl

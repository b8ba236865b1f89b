#include "lockstep/group/place_in_job.h"

#include <cstdlib>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/rendezvous/prefix_store.h"

namespace lockstep {
namespace {

constexpr const char* begun_key = "worlds";

std::string prefix_of(int number) { return "world" + std::to_string(number + 1); }

/// A world's part, and what serves it, which ends after the last call of this rank.
class WorldStore final : public PrefixStore {
 public:
  WorldStore(std::shared_ptr<StoreServer> server, std::shared_ptr<Store> whole, int number)
      : PrefixStore(std::move(whole), prefix_of(number)), server_(std::move(server)) {}

 private:
  std::shared_ptr<StoreServer> server_;
};

}  // namespace

PlaceInJob& PlaceInJob::of_process() {
  static auto& place = *new PlaceInJob();  // what it serves is needed until the very end
  return place;
}

JobStore JobStore::open(std::shared_ptr<StoreServer> server, std::shared_ptr<Store> whole, int number) {
  return {.whole = whole, .of_world = std::make_shared<WorldStore>(std::move(server), whole, number)};
}

void JobStore::require_not_later(const Identity& identity, int number) const {
  const std::string begun = whole->try_get(begun_key).value_or("0");
  if (std::strtol(begun.c_str(), nullptr, 10) <= number + 1) return;
  throw Error(
      ErrorCode::mismatch,
      "rank " + std::to_string(identity.rank) + " comes to world " + std::to_string(number + 1) +
          " of the job at " + identity.store.to_string() + ", whose ranks are in world " + begun +
          ": all have to call init() and shutdown() equally often; was this process started again, and the "
          "others were not?");
}

void JobStore::note_begun(int number) const {
  whole->set(begun_key, std::to_string(number + 1));
  if (number > 0) (void)whole->erase_all(prefix_of(number - 1) + "/");
}

std::string suffix_of_world(int number) { return number == 0 ? "" : "#" + std::to_string(number + 1); }

}  // namespace lockstep

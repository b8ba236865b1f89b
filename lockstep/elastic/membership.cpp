#include "lockstep/elastic/membership.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/log.h"
#include "lockstep/group/identity.h"
#include "lockstep/group/impl.h"
#include "lockstep/group/place_in_job.h"
#include "lockstep/group/view_world.h"
#include "lockstep/rendezvous/prefix_store.h"
#include "lockstep/rendezvous/view_board.h"

namespace lockstep {
namespace {

constexpr const char* tuning_key = "tuning";

std::string text_of(std::span<const Life> lives) {
  std::string text;
  for (const Life& life : lives) text += (text.empty() ? "" : ",") + to_text(life);
  return text;
}

}  // namespace

class Membership::Impl {
 public:
  explicit Impl(const InitOptions& options) {
    const Identity identity = find_identity(options);
    if (!identity.incarnation) {
      throw_invalid_argument(
          "Membership: the ranks of this job are there from its beginning to its end; `lockstep run` with "
          "--tolerate, "
          "--restart or --min-np starts those that may die and come back");
    }
    log::set_rank(identity.rank);
    PlaceInJob& place = PlaceInJob::of_process();
    const std::lock_guard lock(place.mutex);
    (void)views_of(place, identity, options);
    views = place.views;
    root = std::make_shared<Group::Impl>();
    root->name = "job";
    root->context = joined_context(place, identity, options);
    // The first rank that comes decides for all of the job.
    const std::string tuning = Tuning::from_environment().to_text();
    root->tuning =
        Tuning::parse(root->context->store->compare_set(tuning_key, "", tuning), "the job's tuning table");
    timeout = arrival_timeout(options);
    views->note_working();
  }

  /// Counts the groups of the same lives and name.
  std::string name_of(std::span<const Life> lives, const std::string& name) {
    const std::lock_guard lock(mutex_);
    return next_of(made_, lives, name);
  }
  /// As name_of(), of a view's groups, which are counted until there are some of a newer one. Empty where there are already.
  std::string name_of(const View& view, const std::string& name) {
    const std::lock_guard lock(mutex_);
    if (view.number < last_view_) return "";
    if (view.number > last_view_) made_of_view_.clear();
    last_view_ = view.number;
    return next_of(made_of_view_, view.members, name + std::to_string(view.number));
  }

  std::shared_ptr<JobViews> views;
  std::shared_ptr<Group::Impl> root;  // of all groups
  std::chrono::nanoseconds timeout{};

 private:
  using Counts = std::map<std::string, int>;

  static std::string next_of(Counts& made, std::span<const Life> lives, const std::string& name) {
    const std::string whole = name + "/" + text_of(lives);
    const int count = ++made[whole];
    return whole + (count > 1 ? "#" + std::to_string(count) : "");
  }

  std::mutex mutex_;
  Counts made_, made_of_view_;
  std::uint64_t last_view_ = 0;
};

Membership::Membership(const InitOptions& options) : impl_(std::make_shared<Impl>(options)) {}

const Life& Membership::self() const { return impl_->views->self(); }

View Membership::view() const { return impl_->views->await_own(Deadline::after(impl_->timeout)); }

std::uint64_t Membership::newest() const { return impl_->views->newest(); }

bool Membership::await_after(std::uint64_t number, std::chrono::nanoseconds timeout) const {
  return impl_->views->await_after(number, Deadline::after(timeout));
}

Group Membership::group(std::span<const Life> lives, const std::string& name) const {
  std::vector<Life> all(lives.begin(), lives.end());
  if (std::ranges::find(all, self()) == all.end()) {
    throw_invalid_argument("Membership::group of " + text_of(lives) + ": this rank, " + to_text(self()) +
                           ", is not among them; only members call it");
  }
  std::vector<int> ranks;
  for (const Life& life : all) ranks.push_back(life.rank);
  std::ranges::sort(ranks);
  if (const auto twice = std::ranges::adjacent_find(ranks); twice != ranks.end()) {
    throw_invalid_argument("Membership::group of " + text_of(lives) + ": rank " + std::to_string(*twice) +
                           " is listed twice");
  }
  return group_of_lives(impl_->root, impl_->views, all, impl_->name_of(lives, name));
}

std::optional<Group> Membership::group(const View& view, const std::string& name) const {
  if (!view.has(self())) {
    throw_invalid_argument("Membership::group of view " + std::to_string(view.number) + ": this rank, " +
                           to_text(self()) + ", is not in it");
  }
  const std::string whole = impl_->name_of(view, name);
  if (whole.empty()) return std::nullopt;
  PrefixStore store(impl_->views->store(), ViewBoard::place_of(view.number) + "/" + whole);
  if (!impl_->views->meet(store, view, Deadline::after(impl_->timeout))) return std::nullopt;
  return group_of_lives(impl_->root, impl_->views, view.members, whole);
}

void Membership::put_out(int rank, const std::string& why) const { impl_->views->report(rank, why); }

}  // namespace lockstep

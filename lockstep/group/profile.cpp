#include "lockstep/group/profile.h"

#include <algorithm>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/per_rank.h"
#include "lockstep/base/process_costs.h"
#include "lockstep/group/collectives.h"
#include "lockstep/group/impl.h"
#include "lockstep/trace/clock.h"
#include "lockstep/view/profile/page_record.h"
#include "lockstep/view/profile/run_profile.h"

namespace lockstep {
namespace {

/// This rank's, of what its host's ranks have done so far.
trace::FlightRank own_rank(const Context& context, trace::FlightRecord& record) {
  trace::FlightRank rank = record.ranks.at(static_cast<std::size_t>(context.rank_in_page));
  rank.costs.process = base::own_costs();
  rank.costs.left_at_ns = trace::now_ns();
  return rank;
}

}  // namespace

void write_profile(const Group& world, const std::string& folder, bool all_ranks) {
  const Group::Impl& impl = world.impl();
  if (impl.parent) {
    throw_invalid_argument("write_profile: group \"" + world.name() +
                           "\" is not the world, whose ranks' calls a profile is of");
  }
  if (world.size() == 1) return;
  trace::FlightRecord record = view::read_record(*impl.context->page);
  trace::FlightRank rank = own_rank(*impl.context, record);
  rank.rank = world.rank();
  const view::RankCosts mine = view::costs_of(rank);
  PerRank<view::RankCosts> all(world.size());
  all_gather(world, std::span(&mine, 1), all).wait();
  const view::RunExtremes run = view::extremes_of({all.begin(), all.end()});
  const auto wanted = view::ranks_to_write(run, all_ranks);
  if (!std::ranges::binary_search(wanted, rank.rank)) return;
  record.job = impl.context->job;
  view::write_profile_of(folder, record, rank, run);
}

}  // namespace lockstep

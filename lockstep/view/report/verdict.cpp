#include "lockstep/view/report/verdict.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <optional>

#include "lockstep/base/words.h"
#include "lockstep/view/report/thresholds.h"

namespace lockstep::view {
namespace {

struct Cause {
  std::string text = {};
  std::string remedy = {};
};

/// Of what one thing is: of a step, or of the whole run where there are none.
double whole_of(const Analysis& analysis) {
  return analysis.steps ? analysis.steps->mean_ns : analysis.elapsed_ns;
}

std::size_t place_of_rank(const Analysis& analysis, int rank) {
  const auto found = std::ranges::find(analysis.ranks, rank, &RankFacts::rank);
  return static_cast<std::size_t>(found - analysis.ranks.begin());
}

/// Over the other ranks.
template <class Value>
double median_of_others(const Analysis& analysis, std::size_t place, Value value) {
  std::vector<double> values;
  for (std::size_t i = 0; i < analysis.ranks.size(); ++i) {
    if (i != place) values.push_back(value(i));
  }
  return median_of(std::move(values));
}

/// Whether most of `excess` is what the rank had to wait for a core, which others did not. Nothing where that is not known.
std::optional<double> share_of_busy_core(const Analysis& analysis, std::size_t place, Phase phase,
                                         double excess) {
  const auto share = analysis.ranks[place].core_share;
  if (!share || *share >= Thresholds::has_its_core || phase == Phase::transfer) return std::nullopt;
  const double others = median_of_others(
      analysis, place, [&](std::size_t i) { return analysis.ranks[i].core_share.value_or(1); });
  const double without =
      (1 - *share / std::max(others, *share)) * time_of(analysis.steps->by_rank[place], phase);
  return without >= Thresholds::busy_core_explains * excess ? share : std::nullopt;
}

Cause cause_of_phase(const Analysis& analysis, std::size_t place, Phase phase, double excess) {
  const double own = time_of(analysis.steps->by_rank[place], phase);
  const std::string more =
      fmt::format("{} a step, {} on the others", time_text(own), time_text(own - excess));
  if (const auto share = share_of_busy_core(analysis, place, phase, excess))
    return {fmt::format("because its core is shared: it had one for {} of the time it was ready to run ({})",
                        percent_text(*share), more),
            "end what else runs on its cores, or give the rank others"};
  switch (phase) {
    case Phase::data:
      return {"because its loader is slow (" + more + ")",
              "give its loader more workers, or its data a place as fast as the others'"};
    case Phase::compute:
      return {"because its forward and backward take longer (" + more + ")",
              "look for more or longer samples on it, a slower core, fewer threads or a lower clock"};
    case Phase::optimizer:
      return {"because its optimizer takes longer (" + more + ")", "look at what its optimizer does besides"};
    case Phase::transfer:
      return {
          "because the transfer to it is slow (" + more + ")",
          std::string(analysis.host_count > 1 ? "look at its host's network card and cable, and at its cores"
                                              : "look at its cores") +
              "; `lockstep doctor` says what it has"};
    case Phase::checkpoint:
      return {"because it saves checkpoints (" + more + ")",
              "save behind training (AsyncCheckpoint), or less often"};
    default:
      return {"because of what it does between steps (" + more + ")",
              "look at what only it does: logging, evaluation, saving; TracedRange gives parts of it names"};
  }
}

/// What takes the late rank longer than the others; "" where nothing explains it.
Cause cause_of_lateness(const Analysis& analysis, int rank, double late_ns) {
  const std::size_t place = place_of_rank(analysis, rank);
  if (!analysis.steps || place >= analysis.ranks.size()) return {};
  Phase worst = Phase::compute;
  double most = 0;
  for (const Phase phase :
       {Phase::data, Phase::compute, Phase::transfer, Phase::optimizer, Phase::checkpoint, Phase::rest}) {
    const double excess = time_of(analysis.steps->by_rank[place], phase) -
                          median_of_others(analysis, place, [&](std::size_t i) {
                            return time_of(analysis.steps->by_rank[i], phase);
                          });
    if (excess <= most) continue;
    most = excess;
    worst = phase;
  }
  if (most < Thresholds::explains * late_ns) return {};
  return cause_of_phase(analysis, place, worst, most);
}

/// For whom the others wait so long in all, and so often, that it is no chance.
const Lateness* stands_out(const Analysis& analysis, const Meetings& meetings) {
  if (meetings.count < Thresholds::fewest || meetings.ranks.empty()) return nullptr;
  const Lateness& worst = *std::ranges::max_element(meetings.ranks, {}, &Lateness::gain_ns);
  double of_all = 0;
  for (const Lateness& rank : meetings.ranks) of_all += rank.gain_ns;
  const double needed = analysis.ranks.size() <= 2 ? Thresholds::late_of_two : Thresholds::late_of_many;
  const double often = static_cast<double>(worst.last) / static_cast<double>(meetings.count);
  const double least =
      std::max(static_cast<double>(Thresholds::late_ns), static_cast<double>(analysis.clock_error_ns));
  const bool is_late = worst.gain_ns >= needed * of_all && often >= Thresholds::last_at_least;
  return is_late && worst.median_late_ns > least ? &worst : nullptr;
}

/// How often there is such a meeting in what `whole_of` is.
double times_in_whole(const Analysis& analysis, const Meetings& meetings) {
  if (!analysis.steps || meetings.kind == Meetings::of_steps)
    return analysis.steps ? 1.0 : static_cast<double>(meetings.count);
  const auto of_steps =
      std::ranges::find(analysis.meetings, std::string(Meetings::of_steps), &Meetings::kind);
  const std::size_t steps = of_steps == analysis.meetings.end() ? analysis.steps->steps : of_steps->count;
  return static_cast<double>(meetings.count) / static_cast<double>(std::max<std::size_t>(steps, 1));
}

using Found = std::optional<Finding>;

Finding found(const Analysis& analysis, Problem problem, double gain_ns, std::string text,
              std::string remedy) {
  const double whole = whole_of(analysis);
  return {problem, std::move(text), std::move(remedy), gain_ns, whole > 0 ? gain_ns / whole : 0};
}

/// In a step like most, of the rank that waits longest: no more can be won.
double longest_wait_for_others(const StepFacts& steps) {
  double longest = 0;
  for (const PhaseTimes& times : steps.by_rank) longest = std::max(longest, time_of(times, Phase::others));
  return longest;
}

Found late_rank(const Analysis& analysis) {
  for (const Meetings& meetings : analysis.meetings) {
    const Lateness* const late = stands_out(analysis, meetings);
    if (late == nullptr) continue;
    const Cause cause = cause_of_lateness(analysis, late->rank, late->median_late_ns);
    const std::string what = meetings.kind == Meetings::of_steps ? "steps" : meetings.kind + " calls";
    double gain = late->gain_ns * times_in_whole(analysis, meetings);
    if (analysis.steps) gain = std::min(gain, longest_wait_for_others(*analysis.steps));
    return found(
        analysis, Problem::late_rank, gain,
        fmt::format("rank {} arrives last in {} of {}, median {} late{}", late->rank,
                    percent_text(static_cast<double>(late->last) / static_cast<double>(meetings.count)), what,
                    time_text(late->median_late_ns), cause.text.empty() ? "" : ", " + cause.text),
        cause.remedy.empty()
            ? fmt::format("Look at what rank {} does before it comes; {}", late->rank,
                          analysis.mpi.empty()
                              ? "TracedRange gives parts of it names"
                              : "`lockstep profile --sites` says from which lines of it MPI is called")
            : fmt::format("Rank {}: {}", late->rank, cause.remedy));
  }
  return std::nullopt;
}

Found uneven(const Analysis& analysis) {
  if (late_rank(analysis) || analysis.meetings.empty()) return std::nullopt;
  const double wait = analysis.steps ? time_of(analysis.steps->mean, Phase::others)
                                     : analysis.meetings.front().wait_ns *
                                           static_cast<double>(analysis.meetings.front().count);
  return found(analysis, Problem::uneven, wait,
               fmt::format("ranks wait {} of {} for others, but no one rank is late: they take turns",
                           percent_text(wait / std::max(whole_of(analysis), 1.0)),
                           analysis.steps ? "each step" : "the run"),
               analysis.mpi.empty()
                   ? "Give all ranks as much in each step (samples of one length, equal batches), and cores "
                     "of their own"
                   : "Give all ranks as much to do between their collectives, and cores of their own");
}

Found slow_data(const Analysis& analysis) {
  std::vector<double> of_ranks;  // one rank's slow loader makes that one late
  if (analysis.steps) {
    for (const PhaseTimes& times : analysis.steps->by_rank) of_ranks.push_back(time_of(times, Phase::data));
    std::ranges::sort(of_ranks);
  }
  const double data = analysis.steps ? of_ranks[(of_ranks.size() - 1) / 2] : analysis.data_ns;
  return found(analysis, Problem::data, data,
               fmt::format("all ranks wait {} of {} for their data",
                           percent_text(data / std::max(whole_of(analysis), 1.0)),
                           analysis.steps ? "each step" : "the run"),
               "Give the loader more workers, or prepare samples once and keep them");
}

/// "rank 4 (host c)".
std::string rank_text(const Analysis& analysis, int rank) {
  const std::size_t place = place_of_rank(analysis, rank);
  const bool has_host =
      analysis.host_count > 1 && place < analysis.ranks.size() && !analysis.ranks[place].host.empty();
  return fmt::format("rank {}", rank) + (has_host ? " (host " + analysis.ranks[place].host + ")" : "");
}

/// What the others carry: those that have nothing to do with the rank at one end of it or with the one at the other, of
/// which either may have a slow host, whose connections are all slow, also by late acknowledgements. Where there are
/// none, as between two ranks, all others.
double rate_beside(const std::vector<LinkFacts>& links, const LinkFacts& slowest) {
  double rate = 0;
  for (const int end : {slowest.from, slowest.to}) {
    std::vector<double> apart;
    for (const LinkFacts& link : links) {
      if (link.from != end && link.to != end) apart.push_back(link.bytes_per_second());
    }
    if (!apart.empty()) rate = std::max(rate, median_of(std::move(apart)));
  }
  if (rate > 0) return rate;
  std::vector<double> others;
  for (const LinkFacts& link : links) {
    if (link.from != slowest.from || link.to != slowest.to) others.push_back(link.bytes_per_second());
  }
  return median_of(std::move(others));
}

Found slow_connection(const Analysis& analysis) {
  std::vector<LinkFacts> links = analysis.links;
  std::erase_if(links, [](const LinkFacts& link) {
    return link.bytes < Thresholds::least_carried_bytes || link.busy_ns <= 0;
  });
  if (links.size() < 2) return std::nullopt;
  const auto slowest = std::ranges::min_element(links, {}, &LinkFacts::bytes_per_second);
  const double others = rate_beside(links, *slowest), own = slowest->bytes_per_second();
  if (own * Thresholds::slow_connection > others) return std::nullopt;
  const double exposed =
      analysis.steps ? time_of(analysis.steps->mean, Phase::transfer) : analysis.communication_ns;
  return found(
      analysis, Problem::slow_link, exposed * (1 - own / others),
      fmt::format("the connection from {} to {} is slow: it carries {} while it is busy, the others {}",
                  rank_text(analysis, slowest->from), rank_text(analysis, slowest->to), rate_text(own),
                  rate_text(others)),
      "Look at the network cards, the cable and the switch between them; `lockstep doctor` says what a host "
      "has");
}

Found small_step(const Analysis& analysis) {
  if (!analysis.steps || slow_connection(analysis)) return std::nullopt;
  const double exposed = time_of(analysis.steps->mean, Phase::transfer);
  const double compute = time_of(analysis.steps->mean, Phase::compute);
  if (compute >= Thresholds::small_step * exposed) return std::nullopt;
  return found(
      analysis, Problem::small_step, exposed / 2,
      fmt::format("steps are small: {} of computing for {} of communication that nothing covers",
                  time_text(compute), time_text(exposed)),
      "Take larger batches, or add gradients up over several (no_sync): twice the batch halves what each "
      "sample pays");
}

Found exposed_transfer(const Analysis& analysis) {
  if (!analysis.steps || small_step(analysis) || slow_connection(analysis)) return std::nullopt;
  const StepFacts& steps = *analysis.steps;
  const double exposed = time_of(steps.mean, Phase::transfer);
  if (steps.buckets >= 2 && steps.buckets_complete <= Thresholds::buckets_late * (steps.buckets - 1)) {
    // The last bucket can never be covered.
    return found(
        analysis, Problem::late_buckets, exposed * (1 - 1 / steps.buckets),
        fmt::format("only {:.1f} of {:.0f} buckets are complete at the last gradient: the order of "
                    "gradients and of buckets do not agree",
                    steps.buckets_complete, steps.buckets),
        "Let the wrapper sort buckets after the first backward (static graph, no unused parameters), or "
        "register modules in the order of forward");
  }
  return found(
      analysis, Problem::transfer, exposed,
      fmt::format("{} a step are copied, reduced and moved with nothing to cover it", time_text(exposed)),
      analysis.host_count > 1
          ? "Send less (half precision or PowerSGD as communication hook), or use a faster network"
          : "Use ShardedOptimizer, which reduces and updates in one pass, or larger batches");
}

Found slow_link(const Analysis& analysis) {
  if (analysis.ranks.size() < 2 || late_rank(analysis) || slow_connection(analysis)) return std::nullopt;
  const auto slowest = std::ranges::max_element(analysis.ranks, {}, &RankFacts::transfer_ns);
  const auto place = static_cast<std::size_t>(slowest - analysis.ranks.begin());
  const double others =
      median_of_others(analysis, place, [&](std::size_t i) { return analysis.ranks[i].transfer_ns; });
  if (slowest->transfer_ns < Thresholds::slow_link * others) return std::nullopt;
  const double exposed =
      analysis.steps ? time_of(analysis.steps->by_rank[place], Phase::transfer) : analysis.communication_ns;
  const double calls = analysis.steps ? static_cast<double>(analysis.steps->calls.size())
                                      : static_cast<double>(slowest->transfers);
  return found(
      analysis, Problem::slow_link, std::min((slowest->transfer_ns - others) * calls, exposed),
      fmt::format("the transfer to {} is slow: median {} a call, {} on the others",
                  rank_text(analysis, slowest->rank), time_text(slowest->transfer_ns), time_text(others)),
      fmt::format(
          "Look at the network card, cable and cores of rank {}'s host; `lockstep doctor` says what it has",
          slowest->rank));
}

Found busy_cores(const Analysis& analysis) {
  std::vector<double> shares;
  for (const RankFacts& rank : analysis.ranks) {
    if (rank.core_share) shares.push_back(*rank.core_share);
  }
  if (shares.empty()) return std::nullopt;
  std::ranges::sort(shares);  // one rank's busy core makes that one late
  const double share = shares[shares.size() / 2];
  if (share >= Thresholds::has_its_core) return std::nullopt;
  // Ranks that take turns wait for each other, too, and move data in each other's way.
  const double busy = whole_of(analysis) - (analysis.steps ? time_of(analysis.steps->mean, Phase::data) : 0);
  return found(
      analysis, Problem::busy_cores, busy * (1 - share),
      fmt::format(
          "ranks had a core for {} of the time they were ready to run: they are more than the cores, or "
          "something else runs there",
          percent_text(share)),
      "End other programs, start fewer ranks, or leave threads to OMP_NUM_THREADS");
}

/// "38 % of the step is exposed communication".
std::string what_is_exposed(const Analysis& analysis) {
  if (analysis.steps) {
    const StepFacts& steps = *analysis.steps;
    const double exposed = time_of(steps.mean, Phase::others) + time_of(steps.mean, Phase::transfer);
    return fmt::format("{} of the step is exposed communication",
                       percent_text(exposed / std::max(steps.mean_ns, 1.0)));
  }
  if (analysis.elapsed_ns <= 0) return "How long the run took is not known";
  return fmt::format("{} of the run is communication ({} of it waiting for others)",
                     percent_text(analysis.communication_ns / analysis.elapsed_ns),
                     percent_text(analysis.waited_ns / std::max(analysis.communication_ns, 1.0)));
}

bool has_enough(const Analysis& analysis) {
  if (analysis.steps) return analysis.steps->steps >= Thresholds::fewest;
  return analysis.elapsed_ns > 0 && std::ranges::any_of(analysis.meetings, [](const Meetings& meetings) {
           return meetings.count >= Thresholds::fewest;
         });
}

std::string upper(std::string text) {
  if (!text.empty() && text.front() >= 'a' && text.front() <= 'z')
    text.front() = static_cast<char>(text.front() - 32);
  return text;
}

}  // namespace

std::string time_text(double ns) {
  if (ns < 500) return "0 us";
  if (ns >= 9.95e6) return base::duration(static_cast<std::uint64_t>(ns));
  return ns >= 999.5e3 ? fmt::format("{:.1f} ms", ns / 1e6) : fmt::format("{:.0f} us", ns / 1e3);
}

std::string percent_text(double share) {
  const double percent = 100 * share;
  return std::abs(percent) < 9.95 && percent != 0 ? fmt::format("{:.1f} %", percent)
                                                  : fmt::format("{:.0f} %", percent);
}

std::string rate_text(double bytes_per_second) {
  return bytes_per_second < 0.1e9 ? fmt::format("{:.2f} MB/s", bytes_per_second * 1e-6)
                                  : fmt::format("{:.2f} GB/s", bytes_per_second * 1e-9);
}

Verdict judge(const Analysis& analysis) {
  Verdict verdict;
  if (has_enough(analysis)) {
    for (const auto& look : {late_rank, uneven, slow_data, slow_connection, small_step, exposed_transfer,
                             slow_link, busy_cores}) {
      Found one = look(analysis);
      if (one && one->share >= Thresholds::matters) verdict.findings.push_back(std::move(*one));
    }
    std::ranges::stable_sort(verdict.findings, std::greater<>(), &Finding::gain_ns);
  }
  const std::string exposed = what_is_exposed(analysis);
  if (analysis.failure) {
    const std::string cause = analysis.failure->cause;
    verdict.findings.insert(
        verdict.findings.begin(),
        {.problem = Problem::failure,
         .text = cause,
         .remedy = "See what each rank did last; docs/errors.md says what the errors mean"});
    verdict.sentence = "The run failed: " + cause;
  } else if (!has_enough(analysis)) {
    verdict.sentence =
        fmt::format("{}; of fewer than {} {} nothing more can be said", exposed, Thresholds::fewest,
                    analysis.steps || analysis.meetings.empty() ? "steps" : "calls of a kind");
  } else if (verdict.findings.empty()) {
    verdict.sentence = fmt::format("Nothing stands out: {}{}, and no rank is late more than by chance",
                                   exposed.substr(0, 1), exposed.substr(1));
  } else {
    verdict.sentence = exposed + "; " + verdict.findings.front().text;
  }
  verdict.sentence = upper(verdict.sentence) + ".";
  return verdict;
}

}  // namespace lockstep::view

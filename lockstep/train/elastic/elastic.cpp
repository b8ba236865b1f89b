#include "lockstep/train/elastic/elastic.h"

#include <c10/util/StringUtil.h>

#include <algorithm>
#include <array>
#include <exception>
#include <thread>

#include "lockstep/base/deadline.h"
#include "lockstep/base/error.h"
#include "lockstep/base/log.h"
#include "lockstep/base/words.h"
#include "lockstep/group/collectives.h"
#include "lockstep/train/elastic/part_gradients.h"
#include "lockstep/train/elastic/spread_state.h"
#include "lockstep/train/optimizer/optimizer_state.h"
#include "lockstep/train/replicas/broadcast_state.h"
#include "lockstep/train/replicas/broadcast_tensors.h"
#include "lockstep/train/replicas/model_tensors.h"
#include "lockstep/train/replicas/same_facts.h"
#include "lockstep/train/replicas/told_where.h"
#include "lockstep/train/tensor/random_numbers.h"
#include "lockstep/train/tensor/shared_heap.h"

namespace lockstep {
namespace {

/// That the launcher sends soon after others notice.
constexpr auto news = std::chrono::seconds(5);
constexpr const char* remedy = "Start the same program with the same arguments on every rank";

/// What all ranks have alike, newcomers too.
std::vector<Fact> facts_of_job(const torch::nn::Module& module, const torch::optim::Optimizer& optimizer,
                               const ElasticOptions& options) {
  auto facts = facts_of(tensors_of(module), "Elastic");
  facts.push_back({"optimizer", optimizer_kind(optimizer)});
  facts.push_back({"number of parts", std::to_string(options.parts)});
  facts.push_back({"seed", std::to_string(options.seed)});
  facts.push_back(
      {"rule for gradients that are no numbers", std::to_string(static_cast<int>(options.non_finite))});
  facts.push_back({"spread_state", options.spread_state ? "on" : "off"});
  facts.push_back({"save_every", std::to_string(options.save_every)});
  std::string sizes;
  for (const auto& group : optimizer.param_groups()) sizes += " " + std::to_string(group.params().size());
  facts.push_back(
      {"number of parameters in the optimizer's groups", sizes.empty() ? "none" : sizes.substr(1)});
  for (const ElasticValue& value : options.values) facts.push_back({"value " + value.name, "kept"});
  return facts;
}

/// Whether this job goes on after it.
bool may_go_on(const Error& error) { return ranks_may_change() && is_loss_of_others(error); }

/// Until the launcher says that somebody has come or gone. False: not by the deadline.
bool await_change(Deadline deadline) {
  while (!world_has_changed()) {
    if (deadline.expired()) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));  // nothing tells of it but the launcher's page
  }
  return true;
}

/// The program's own failure, which is no loss of others whatever it is.
struct PassFailed {
  std::exception_ptr why;
};

std::vector<int> only_in(const std::vector<int>& these, const std::vector<int>& others) {
  std::vector<int> found;
  std::ranges::copy_if(these, std::back_inserter(found),
                       [&](int rank) { return std::ranges::find(others, rank) == others.end(); });
  std::ranges::sort(found);
  return found;
}

}  // namespace

/// What ranks have to have alike, as they begin: one that comes later has not frozen yet what the others have since.
struct Elastic::Program {
  std::vector<Fact> facts;
};

/// What a rank comes with.
struct Elastic::Standing {
  std::uint64_t facts = 0, steps = 0, is_whole = 0, is_complete = 0, is_spoiled = 0, has_half_taken = 0;
};

Elastic::Elastic(const torch::nn::Module& module, torch::optim::Optimizer& optimizer,
                 const ElasticOptions& options)
    : module_(module), optimizer_(optimizer), options_(options), steps_(options.steps) {
  require_sense();
  const auto parameters = distinct_parameters(tensors_of(module), true);
  frozen_ = distinct_parameters(tensors_of(module), false);
  gradients_ =
      std::make_unique<PartGradients>(parameters, options.parts, options.non_finite != NonFinite::ignore);
  if (options.spread_state) spread_ = std::make_unique<SpreadState>(parameters, optimizer);
  program_ = std::make_unique<Program>(Program{facts_of_job(module, optimizer, options)});
  join();
}

Elastic::~Elastic() = default;

void Elastic::require_sense() const {
  if (options_.parts < 1)
    throw_invalid_argument(c10::str("Elastic: parts is ", options_.parts, "; a batch has 1 or more"));
  if (options_.least < 1)
    throw_invalid_argument(c10::str("Elastic: least is ", options_.least, "; 1 rank or more can train"));
  for (const NamedTensor& item : tensors_of(module_)) require_averageable(item);
  std::vector<std::string> names;
  for (const ElasticValue& value : options_.values) names.push_back(value.name);
  std::ranges::sort(names);
  if (const auto twice = std::ranges::adjacent_find(names); twice != names.end())
    throw_invalid_argument("Elastic: two values are called '" + *twice + "'");
}

const Group& Elastic::world() const {
  if (!world_) throw Error(ErrorCode::aborted, "Elastic: the last step() has failed, and there is no world");
  return *world_;
}

double Elastic::step(const Pass& pass) {
  require_frozen(frozen_, "Elastic");
  for (;;) {
    if (has_changed_) leave();
    if (!world_) join();
    if (taken_) {
      ++steps_;
      return *std::exchange(taken_, std::nullopt);
    }
    double loss = 0;
    try {
      compute(pass);
      gradients_->finish();
      is_complete_ = true;
      agree();
      loss = take();
    } catch (const PassFailed& failed) {
      std::rethrow_exception(failed.why);
    } catch (const Error& error) {
      if (!may_go_on(error)) throw;
      log::info(c10::str("step ", steps_, " is settled in the next world: ", error.what()));
      ++repeated_;
      leave();
      continue;
    }
    save();
    return loss;
  }
}

void Elastic::compute(const Pass& pass) {
  const auto [first, last] = gradients_->begin(*world_);
  try {
    for (int part = first; part < last; ++part) {
      const KeepsGenerator keeps;
      torch::manual_seed(mixed(mixed(options_.seed, steps_), static_cast<std::uint64_t>(part)));
      const torch::Tensor loss = pass({.step = steps_, .number = part, .parts = options_.parts});
      gradients_->add(loss.item<double>());
    }
  } catch (const std::exception& error) {
    const auto* ours = dynamic_cast<const Error*>(&error);
    if (ours != nullptr && may_go_on(*ours) && await_change(Deadline::after(news)))
      throw;                      // of what it does with the world
    world_->abort(error.what());  // to the others it is this rank that leaves
    throw PassFailed{std::current_exception()};
  }
}

/// Nobody updates its model before all are here. Who comes back from this knows that all have the gradients; who does not, may be
/// the only one.
void Elastic::agree() {
  std::array<std::uint64_t, 1> changed{world_has_changed() ? std::uint64_t{1} : 0};
  all_reduce(*world_, changed, ReduceOp::max).wait();
  has_changed_ = changed[0] != 0;
}

double Elastic::take() {
  half_taken_ = update();
  if (spread_) spread_->gather(*world_);
  ++steps_;
  return *std::exchange(half_taken_, std::nullopt);
}

/// Of what this rank's optimizer steps. Returns the loss.
double Elastic::update() {
  is_complete_ = false;
  const auto bad = gradients_->non_finite();
  if (bad && options_.non_finite == NonFinite::stop) {
    gradients_->drop();
    throw Error(ErrorCode::invalid_argument,
                c10::str("Elastic, step ", steps_, ", part ", bad->part, " (on rank ", bad->rank,
                         "): the gradient of parameter ", bad->parameter,
                         " is infinite or no number; no rank has taken the step"),
                bad->rank);
  }
  const double loss = gradients_->take();
  if (spread_) spread_->leave_others();
  if (!bad) optimizer_.step();
  gradients_->drop();
  return loss;
}

/// Of the step that has just been taken; of one that was settled in another world it is left out.
void Elastic::save() {
  if (options_.save_every == 0 || steps_ % options_.save_every != 0) return;
  try {
    if (spread_) spread_->gather_state(*world_, 0);
  } catch (const Error& error) {
    if (!may_go_on(error)) throw;
    log::info(c10::str("step ", steps_, " is not saved: ", error.what()));
    has_changed_ = true;  // the next step looks who lives
    return;
  }
  if (world_->rank() != 0 || !options_.save) return;
  try {
    options_.save();
  } catch (const std::exception& error) {
    world_->abort(error.what());
    throw;
  }
}

void Elastic::leave() {
  gradients_->release();
  has_changed_ = false;
  shutdown();
  world_.reset();
}

void Elastic::join() {
  for (;;) {
    await_enough();
    try {
      if (meet()) return;
    } catch (const Error& error) {
      // Ranks that are whole go on without one that has come with another program.
      const bool is_anothers = ranks_may_change() && is_whole_ && error.code() == ErrorCode::mismatch;
      if (!is_anothers && !may_go_on(error)) throw;
      if (is_anothers) log::warning(c10::str("a rank that has come does not fit: ", error.what()));
    }
    leave();
  }
}

/// Into a world of at least so many.
void Elastic::await_enough() {
  const Deadline deadline = Deadline::after(options_.wait);
  for (;;) {
    for (bool is_there = false; !is_there;) {
      try {
        world_ = init(options_.init);
        is_there = true;
      } catch (const Error& error) {  // one of them has died meanwhile
        if (!ranks_may_change() || error.code() != ErrorCode::peer_lost) throw;
      }
    }
    if (world_->size() >= options_.least) return;
    const auto too_few = c10::str("Elastic: ranks that live: ", world_->size(), ", of at least ",
                                  options_.least, " that train");
    if (!ranks_may_change())
      throw_invalid_argument(too_few + "; this job's ranks are those that it began with");
    if (!await_change(deadline))
      throw Error(ErrorCode::timeout,
                  c10::str(too_few, "; none has come for ", base::exact_duration(options_.wait)));
    leave();
  }
}

/// Collective: all have the same state afterwards. False: one does not fit, and the others are to meet without it.
bool Elastic::meet() {
  if (options_.shared_heap && world_->size() > 1) {
    if (heap_) {
      heap_->move_to(*world_);
    } else {
      heap_ = SharedHeap::unless_there_is_one(*world_);
    }
  } else {
    heap_.reset();
  }
  const std::vector<Fact>& facts = program_->facts;
  const std::array mine{Standing{digest_of(facts), taken_steps(), is_whole_ ? 1U : 0U, is_complete_ ? 1U : 0U,
                                 is_spoiled_ ? 1U : 0U, half_taken_ ? 1U : 0U}};
  std::vector<Standing> all(static_cast<std::size_t>(world_->size()));
  all_gather(*world_, mine, all).wait();
  const auto whole = std::ranges::find(all, 1U, &Standing::is_whole);
  const int first = whole == all.end() ? 0 : static_cast<int>(whole - all.begin());
  if (whole == all.end()) {
    require_same_facts(*world_, facts, remedy);
  } else if (const auto odd =
                 std::ranges::find_if(all, [&](const Standing& one) { return one.facts != whole->facts; });
             odd != all.end()) {
    const int other = static_cast<int>(odd - all.begin());
    if (world_->rank() == first || world_->rank() == other)
      require_same_facts(world_->subgroup(std::array{first, other}), facts, remedy);
    return false;
  }
  if (whole == all.end() &&
      std::ranges::any_of(all, [](const Standing& one) { return one.is_spoiled != 0; })) {
    // Of the rank that had the state these have got some, and nobody has all of it.
    if (is_spoiled_)
      throw Error(
          ErrorCode::corrupt_data,
          "Elastic: the rank that handed its state over to this one has died; this one has to begin anew");
    return false;
  }
  settle(all);
  hand_over(all, first);
  tell_change();
  return true;
}

/// The step that some may have taken, and others have the gradients of.
void Elastic::settle(const std::vector<Standing>& standings) {
  if (half_taken_) taken_ = std::exchange(half_taken_, std::nullopt);  // so do the others
  if (!is_complete_) return;
  // Who has not got the gradients has not voted, so nobody has taken the step.
  const bool have_all = std::ranges::all_of(standings, [&](const Standing& one) {
    return one.is_whole == 0 || one.steps > taken_steps() || one.is_complete != 0 || one.has_half_taken != 0;
  });
  // Computed again where it stops all of them: so those who have just come are told as well.
  const bool stops = options_.non_finite == NonFinite::stop && gradients_->non_finite();
  if (have_all && !stops) {
    taken_ = update();
  } else {
    is_complete_ = false;
    gradients_->drop();
  }
}

/// What newcomers need, from one that has it; and where state is spread, what others held who are gone.
void Elastic::hand_over(const std::vector<Standing>& standings, int first) {
  const bool all_begin = standings[static_cast<std::size_t>(first)].is_whole == 0;
  std::vector<int> ranks{first};
  for (int rank = 0; rank < world_->size(); ++rank) {
    if (rank != first && standings[static_cast<std::size_t>(rank)].is_whole == 0) ranks.push_back(rank);
  }
  if (ranks.size() > 1 && std::ranges::find(ranks, world_->rank()) != ranks.end()) {
    const Group group = world_->subgroup(ranks);
    is_spoiled_ = group.rank() != 0;
    broadcast_tensors(group, tensors_of(module_), 0);
    if (spread_ && !all_begin) {  // its share of the state comes when shares are dealt
      if (group.rank() != 0) spread_->forget();
      const auto options = broadcast_text(group, group.rank() == 0 ? optimizer_options(optimizer_) : "", 0);
      if (group.rank() != 0) restore_options(optimizer_, options);
    } else {
      broadcast_optimizer_state(group, optimizer_, 0);
    }
    c10::impl::GenericList values(c10::AnyType::get());
    values.push_back(static_cast<std::int64_t>(steps_));
    values.push_back(taken_);  // it is of what the values do not know yet
    for (const ElasticValue& value : options_.values) values.push_back(value.get());
    const auto theirs = broadcast_object(group, values, 0).toList();
    if (group.rank() != 0) {
      steps_ = static_cast<std::uint64_t>(theirs.get(0).toInt());
      taken_ = theirs.get(1).isNone() ? std::nullopt : std::optional(theirs.get(1).toDouble());
      for (std::size_t i = 0; i < options_.values.size(); ++i) options_.values[i].set(theirs.get(i + 2));
    }
  }
  is_whole_ = true;
  is_spoiled_ = false;
  if (spread_) spread_->deal(*world_);
}

void Elastic::tell_change() {
  std::vector<int> members;
  for (int rank = 0; rank < world_->size(); ++rank) members.push_back(world_->world_rank(rank));
  const std::vector<int> before = std::exchange(members_, members);
  if (before.empty() || before == members || !on_change_) return;
  on_change_({.steps = taken_steps(),
              .size = world_->size(),
              .came = only_in(members, before),
              .went = only_in(before, members)});
}

}  // namespace lockstep

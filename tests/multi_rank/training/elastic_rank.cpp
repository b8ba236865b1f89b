// A rank of an elastic training, which does what tests tell it to:
//
//   elastic_rank [steps=N] [parts=N] [least=N] [wait_ms=N] [non_finite=stop|skip] [spread=1] [save_every=N] [thaw=STEP] [freeze=STEP]
//               [DEED@STEP:RANK ...]
//
// thaw: a parameter that was frozen is trained from that step on; freeze: one is no longer trained from that step on. spread=1: with ElasticOptions::spread_state, and says of how many parameters it has the optimizer's state at the end.
// DEED, in that step and by that rank in its first life, or by all ("*"): die, die_agreeing (when all gradients are there),
// die_stepping (when its optimizer has stepped), throw, nan, stop (SIGSTOP), await (somebody who comes or goes, unless all are here again), tell (a line). In its second life: die_joining@*:RANK, other_model@*:RANK, other_program@*:RANK. In its first,
// when it hands its state over: die_giving@*:RANK; when it saves: die_saving@*:RANK.
#include <dlfcn.h>
#include <lockstep/lockstep.h>
#include <lockstep/train.h>
#include <signal.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <iostream>
#include <limits>
#include <map>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "lockstep/base/deadline.h"
#include "lockstep/base/hash.h"

namespace {

using torch::Tensor;

struct Deed {
  std::string what;
  std::string step, rank;
};

std::map<std::string, std::string> settings;
std::vector<Deed> deeds;
int me = 0;
std::uint64_t current_step = 0;
int most_ranks = 0;  // that lived in some step

int number(const std::string& name, int otherwise) {
  const auto found = settings.find(name);
  return found == settings.end() ? otherwise : std::stoi(found->second);
}

bool is_to(const std::string& what, std::uint64_t step) {
  for (const Deed& deed : deeds) {
    if (deed.what == what && (deed.step == "*" || deed.step == std::to_string(step)) &&
        (deed.rank == "*" || deed.rank == std::to_string(me)))
      return true;
  }
  return false;
}

void say(const std::string& text) {
  std::cout << "rank " + std::to_string(me) + " " + text + "\n" << std::flush;
}

void await_change() {
  const auto deadline = lockstep::Deadline::after(std::chrono::seconds(120));
  while (!lockstep::world_has_changed()) {
    if (deadline.expired()) throw std::runtime_error("nobody comes or goes");
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

/// `ranks`: that live. Who is waited for may be back already, since a start can be quicker than two steps.
void act(std::uint64_t step, int ranks) {
  current_step = step;
  most_ranks = std::max(most_ranks, ranks);
  if (is_to("await", step) && ranks < most_ranks) await_change();
  if (lockstep::incarnation() > 0) return;
  if (is_to("tell", step)) say("is at step " + std::to_string(step));
  if (is_to("die", step)) (void)raise(SIGKILL);
  if (is_to("stop", step)) (void)raise(SIGSTOP);
  if (is_to("throw", step)) throw std::runtime_error("told to throw");
}

/// Some ranks have its new values then, and others do not.
struct DyingSgd : torch::optim::SGD {
  using SGD::SGD;
  Tensor step(LossClosure closure = nullptr) override {
    const Tensor loss = SGD::step(closure);
    if (lockstep::incarnation() == 0 && is_to("die_stepping", steps++)) (void)raise(SIGKILL);
    return loss;
  }
  std::uint64_t steps = 0;
};

int train() {
  torch::set_num_threads(1);
  torch::manual_seed(3);
  const bool is_second = lockstep::incarnation() == 1;
  if (is_second && is_to("other_program", 0)) {
    const lockstep::Group world = lockstep::init();
    lockstep::barrier(world).wait();
  }
  torch::nn::Sequential net(
      torch::nn::Linear(8, is_second && is_to("other_model", 0) ? 12 : 10), torch::nn::Dropout(0.2),
      torch::nn::Tanh(), torch::nn::BatchNorm1d(torch::nn::BatchNormOptions(10).track_running_stats(false)),
      torch::nn::Linear(10, 1));
  if (is_second && is_to("other_model", 0)) net = torch::nn::Sequential(torch::nn::Linear(8, 1));
  net->to(torch::kFloat64);
  if (number("thaw", -1) >= 0) net->parameters()[0].set_requires_grad(false);
  DyingSgd sgd(net->parameters(), torch::optim::SGDOptions(0.05).momentum(0.9));
  std::int64_t seen = 0;  // steps, by what is handed over
  const auto policy = settings.count("non_finite") == 0     ? lockstep::NonFinite::ignore
                      : settings.at("non_finite") == "stop" ? lockstep::NonFinite::stop
                                                            : lockstep::NonFinite::skip;
  lockstep::Elastic job(net, sgd,
                        {.parts = number("parts", 6),
                         .least = number("least", 1),
                         .wait = std::chrono::milliseconds(number("wait_ms", 60'000)),
                         .non_finite = policy,
                         .values = {{"seen",
                                     [&] {
                                       if (is_second && is_to("die_joining", 0)) (void)raise(SIGKILL);
                                       if (!is_second && seen > 0 && is_to("die_giving", 0))
                                         (void)raise(SIGKILL);
                                       return c10::IValue(seen);
                                     },
                                     [&](const c10::IValue& value) { seen = value.toInt(); }}},
                         .spread_state = number("spread", 0) != 0,
                         .save_every = static_cast<std::uint64_t>(number("save_every", 0)),
                         .save = [&] {
                           say("saves the state of " + std::to_string(sgd.state().size()));
                           if (is_to("die_saving", 0) && lockstep::incarnation() == 0) (void)raise(SIGKILL);
                         }});
  job.on_change([&](const lockstep::ElasticChange& change) {
    say("of " + std::to_string(change.size) + " from step " + std::to_string(change.steps));
  });
  if (job.steps() > 0) say("comes at step " + std::to_string(job.steps()));
  const auto x = torch::randn({96, 8}, at::detail::createCPUGenerator(5), torch::kFloat64);
  const auto y = x.sum(1, true).sin();
  lockstep::PartSampler sampler(96, 24);
  const auto steps = static_cast<std::uint64_t>(number("steps", 40));
  while (job.steps() < steps) {
    const std::uint64_t step = job.steps();
    bool has_acted = false;
    if (number("thaw", -1) == static_cast<int>(step)) net->parameters()[0].set_requires_grad(true);
    if (number("freeze", -1) >= 0 && number("freeze", -1) <= static_cast<int>(step))
      net->parameters()[0].set_requires_grad(false);
    job.step([&](const lockstep::ElasticPart& part) {
      if (!std::exchange(has_acted, true)) act(step, job.world().size());
      const auto chosen = sampler.indices(part);
      const auto index = torch::tensor(std::vector<std::int64_t>(chosen.begin(), chosen.end()));
      auto loss = torch::mse_loss(net->forward(x.index_select(0, index)), y.index_select(0, index));
      if (part.number == 3 && is_to("nan", step)) loss = loss * std::numeric_limits<double>::quiet_NaN();
      loss.backward();
      return loss;
    });
    if (job.steps() != step + 1) throw std::runtime_error("a call of step() was more than one step");
    ++seen;
  }
  if (seen != static_cast<std::int64_t>(steps))
    throw std::runtime_error("steps are missing: " + std::to_string(seen));
  if (number("spread", 0) != 0)
    say("has the state of " + std::to_string(sgd.state().size()) + " of " +
        std::to_string(net->parameters().size()));
  std::string bits;
  for (const auto& parameter : net->parameters()) {
    const auto values = parameter.detach().contiguous();
    bits.append(static_cast<const char*>(values.data_ptr()), values.nbytes());
  }
  say("of " + std::to_string(job.world().size()) + " is done, bits " +
      std::to_string(lockstep::fnv1a_64(bits)));
  return 0;
}

}  // namespace

/// In place of the library's, which Elastic asks when it has a step's gradients, and the program when it waits.
bool lockstep::world_has_changed() {
  if (incarnation() == 0 && is_to("die_agreeing", current_step)) (void)raise(SIGKILL);
  return reinterpret_cast<bool (*)()>(dlsym(RTLD_NEXT, "_ZN8lockstep17world_has_changedEv"))();
}

int main(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (const auto equals = word.find('='); equals != std::string::npos) {
      settings[word.substr(0, equals)] = word.substr(equals + 1);
    } else {
      const auto at = word.find('@'), colon = word.find(':');
      deeds.push_back({word.substr(0, at), word.substr(at + 1, colon - at - 1), word.substr(colon + 1)});
    }
  }
  const char* const rank = std::getenv("RANK");
  me = rank != nullptr ? std::stoi(rank) : 0;
  try {
    return train();
  } catch (const std::exception& error) {
    std::cerr << "rank " + std::to_string(me) + " failed: " + error.what() + "\n";
    return 1;
  }
}

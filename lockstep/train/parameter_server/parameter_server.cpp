#include "lockstep/train/parameter_server/parameter_server.h"

#include <c10/util/StringUtil.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/hash.h"
#include "lockstep/group/init.h"
#include "lockstep/train/optimizer/optimizer_state.h"
#include "lockstep/train/parameter_server/client.h"
#include "lockstep/train/parameter_server/coordinator.h"
#include "lockstep/train/parameter_server/saved_part.h"
#include "lockstep/train/parameter_server/server.h"
#include "lockstep/train/replicas/broadcast_tensors.h"
#include "lockstep/train/replicas/finite_gradients.h"
#include "lockstep/train/replicas/model_tensors.h"
#include "lockstep/train/replicas/same_facts.h"
#include "lockstep/train/replicas/same_options.h"
#include "lockstep/train/replicas/told_where.h"
#include "lockstep/train/tensor/tensor_bytes.h"

namespace lockstep {
namespace {

using torch::Tensor;

std::string to_bytes(const c10::IValue& value) {
  const auto bytes = torch::pickle_save(value);
  return {bytes.begin(), bytes.end()};
}
void require_to_travel(std::size_t bytes, const std::string& what) {
  if (bytes > ps::most_text_bytes / 2)
    throw_invalid_argument(c10::str("ParameterServer: ", what, " of a task has ", bytes, " bytes; at most ",
                                    ps::most_text_bytes / 2,
                                    " travel: variables and gradients are for more"));
}
c10::IValue to_value(const std::string& bytes) {
  return bytes.empty() ? c10::IValue() : torch::pickle_load({bytes.begin(), bytes.end()});
}

std::vector<NamedTensor> averageable_parameters(const torch::nn::Module& module) {
  auto parameters = distinct_parameters(tensors_of(module), true);
  for (const NamedTensor& item : parameters) require_averageable(item);
  return parameters;
}

/// What an optimizer cannot do it says at its first step; better now than in a job.
void require_steps(const ps::OptimizerFactory& make_optimizer, const std::vector<NamedTensor>& parameters) {
  for (const NamedTensor& item : parameters) {
    torch::Tensor probe = torch::zeros({1}, item.tensor.scalar_type()).set_requires_grad(true);
    probe.mutable_grad() = torch::zeros({1}, item.tensor.scalar_type());
    make_optimizer({probe})->step();
  }
}

ParameterServerOptions checked(const ParameterServerOptions& options) {
  const auto require = [](bool holds, const std::string& text) {
    if (!holds) throw_invalid_argument("ParameterServer: " + text);
  };
  require(options.servers >= 1, c10::str("servers is ", options.servers, "; there is 1 or more"));
  require(!options.staleness || *options.staleness >= 0,
          c10::str("staleness is ", options.staleness.value_or(0),
                   "; it is 0 (synchronous) or more, or nullopt (unbounded)"));
  require(options.most_attempts >= 1,
          c10::str("most_attempts is ", options.most_attempts, "; a task has 1 or more"));
  return options;
}

std::uint64_t digest(const std::vector<NamedTensor>& parameters, const std::vector<NamedTensor>& frozen,
                     const torch::optim::Optimizer& optimizer, const ParameterServerOptions& options) {
  auto described = parameters;  // as if all were in main memory: servers are, workers are where they compute
  for (NamedTensor& item : described) {
    if (!item.tensor.is_cpu())
      item.tensor = torch::empty(item.tensor.sizes(), item.tensor.scalar_type()).set_requires_grad(true);
  }
  auto facts = facts_of(described, "ParameterServer");
  for (const NamedTensor& item : frozen) {  // no server has them
    const Tensor values = item.tensor.detach().cpu().contiguous();
    const auto bytes = elements_of(values);
    facts.push_back({item.label() + " (frozen)",
                     std::to_string(fnv1a_64({reinterpret_cast<const char*>(bytes.data()), bytes.size()}))});
  }
  for (const Fact& fact : option_facts(optimizer.param_groups())) facts.push_back(fact);
  facts.push_back({"optimizer", optimizer_kind(optimizer)});
  facts.push_back({"servers", std::to_string(options.servers)});
  facts.push_back({"staleness", options.staleness ? std::to_string(*options.staleness) : "unbounded"});
  for (const std::string& table : options.tables) facts.push_back({"table " + table, "by rows"});
  return digest_of(facts);
}

}  // namespace

class ParameterServer::Impl {
 public:
  Impl(const torch::nn::Module& module, const OptimizerFactory& make_optimizer,
       const ParameterServerOptions& options)
      : options_(checked(options)),
        parameters_(averageable_parameters(module)),
        frozen_(distinct_parameters(tensors_of(module), false)),
        placement_(ps::variables_of(parameters_, options.tables), options.servers),
        crew_(options.servers, options.coordinator) {
    std::vector<Tensor> some;  // an optimizer of nothing has no options
    for (const NamedTensor& item : parameters_) some.push_back(item.tensor);
    const std::uint64_t facts = digest(parameters_, frozen_, *make_optimizer(some), options_);
    require_steps(make_optimizer, parameters_);
    if (crew_.task() == ps::Task::server) {
      begin_server(make_optimizer, facts);
      return;
    }
    if (crew_.task() == ps::Task::coordinator)
      coordinator_.emplace(crew_, options_.most_attempts, options_.wait);
    try {
      connect(facts);
    } catch (const Error& error) {
      is_over_ = came_too_late(error);
      if (!is_over_) throw;
    }
  }

  bool is_over() const { return is_over_; }

  const ps::Crew& crew() const { return crew_; }

  ps::Server& server() {
    if (!server_) throw_misuse("this is no server");
    return *server_;
  }
  ps::Client& client() {
    if (is_over_) throw Error(ErrorCode::aborted, "ParameterServer: this worker came when all was done");
    if (!client_) throw_misuse("this is a server, which only serves");
    return *client_;
  }
  ps::Coordinator& coordinator() {
    if (!coordinator_) throw_misuse("this is not the coordinator");
    return *coordinator_;
  }

  std::size_t table(const std::string& name) const {
    const auto& variables = placement_.variables();
    const auto found = std::ranges::find(variables, name, &ps::Variable::name);
    if (found == variables.end() || !found->is_table)
      throw_invalid_argument("ParameterServer: '" + name + "' is none of the tables");
    return static_cast<std::size_t>(found - variables.begin());
  }

  void push() {
    require_frozen(frozen_, "ParameterServer");
    look_at_gradients();
    client().push({.task = task_, .number = pushes_of_task_++, .settled_below = settled_below_});
  }

  void leave() {
    if (is_over_) return;
    if (crew_.task() != ps::Task::worker) throw_misuse("only a worker leaves");
    client_->tell(ps::Kind::leave);
  }

  void save() {
    if (options_.checkpoint.empty()) throw_misuse("save() writes to options.checkpoint, which is empty");
    client().save([&](int server) { return path_of(server); });
  }

  void on(const std::string& name, Function function) { functions_[name] = std::move(function); }

  /// A worker's tasks.
  void work() {
    if (is_over_) return;
    if (!to_coordinator_)
      throw_misuse("run() does what a coordinator schedules, and options.coordinator is false");
    ps::Header ask{.kind = ps::Kind::next};
    std::string result;
    bool rests = false;
    for (bool is_first = true;; is_first = false) {
      std::string text;
      ps::Header answer;
      try {
        to_coordinator_->send(ask, result);
        answer = to_coordinator_->receive(&text);
      } catch (const Error& error) {
        is_over_ = is_first && came_too_late(error);
        if (is_over_) return;
        throw;
      }
      ask = {.kind = ps::Kind::next};
      result.clear();
      if (answer.kind == ps::Kind::end) break;
      if (answer.kind == ps::Kind::none) {
        rests = true;
        client().tell(ps::Kind::rest);
        ask.number = 1;  // there is time to wait
        continue;
      }
      if (std::exchange(rests, false)) client().tell(ps::Kind::work);
      ask.task = answer.task;
      try {
        result = perform(answer, text);
      } catch (const std::exception& error) {
        const auto* ours = dynamic_cast<const Error*>(&error);
        if (ours != nullptr && is_loss_of_others(*ours)) throw;  // what all tasks need is gone
        ask.kind = ps::Kind::failed;
        result = error.what();
        drop_gradients();
      }
      task_ = 0;
    }
    leave();
    (void)to_coordinator_->ask({.kind = ps::Kind::leave});
  }

 private:
  /// Of a worker that was started again: the others were done before it had a task.
  bool came_too_late(const Error& error) {
    const bool may_be = error.code() == ErrorCode::aborted || error.code() == ErrorCode::peer_lost;
    return may_be && crew_.task() == ps::Task::worker && crew_.have_hosts_ended();
  }

  void drop_gradients() const {
    for (const NamedTensor& item : parameters_) item.tensor.mutable_grad().reset();
  }

  void look_at_gradients() const {
    if (options_.non_finite == NonFinite::ignore) return;
    const auto bad = std::ranges::find_if(parameters_, [](const NamedTensor& item) {
      const Tensor& gradient = item.tensor.grad();
      return gradient.defined() && !is_finite(gradient.is_sparse() ? gradient._values() : gradient);
    });
    if (bad == parameters_.end()) return;
    drop_gradients();
    if (options_.non_finite == NonFinite::stop)
      throw Error(
          ErrorCode::invalid_argument,
          c10::str("ParameterServer: the gradient of parameter ", bad->name, " on rank ", crew_.self().rank,
                   " is infinite or no number; nothing was pushed. Lower the learning rate, clip "
                   "gradients, or skip such pushes (NonFinite::skip)"),
          crew_.self().rank);
  }

  void connect(std::uint64_t facts) {
    client_.emplace(crew_, placement_, parameters_, facts);
    if (const auto coordinator = crew_.coordinator(); coordinator && crew_.task() == ps::Task::worker)
      to_coordinator_.emplace(crew_.pair(crew_.life_of(*coordinator), crew_.self()));
  }

  [[noreturn]] static void throw_misuse(const std::string& what) {
    throw_invalid_argument("ParameterServer: " + what);
  }

  void begin_server(const OptimizerFactory& make_optimizer, std::uint64_t facts) {
    const Group servers = crew_.all_servers();
    broadcast_tensors(servers, parameters_);
    std::vector<Tensor> values;
    for (const NamedTensor& item : parameters_) values.push_back(item.tensor);
    const int number = crew_.self().rank;
    variables_.emplace(placement_, number, values, make_optimizer);
    server_.emplace(crew_, placement_, *variables_, options_.staleness, facts, crew_.timeout(),
                    options_.wait);
    if (options_.checkpoint.empty()) return;
    const ps::SavedPart part(path_of(number));
    if (part.settle(servers, [&](int server) { return path_of(server); }) != 0) {
      variables_->load(path_of(number));
    } else {
      require_no_other_checkpoint();
    }
  }

  /// One that as many servers have saved cannot be dealt out to others.
  void require_no_other_checkpoint() const {
    const std::filesystem::path path = options_.checkpoint;
    const std::string beginning = path.filename().string() + ".0-of-";
    std::error_code problem;
    for (const auto& entry : std::filesystem::directory_iterator(
             path.has_parent_path() ? path.parent_path() : std::filesystem::path("."), problem)) {
      const std::string name = entry.path().filename().string();
      const bool is_one = name.starts_with(beginning) && name.size() > beginning.size() &&
                          name.find_first_not_of("0123456789", beginning.size()) == std::string::npos;
      if (is_one)
        throw_invalid_argument(c10::str("ParameterServer: '", entry.path().string(),
                                        "' was saved by another number of "
                                        "servers than ",
                                        options_.servers, ": start as many, or remove it"));
    }
  }

  std::string path_of(int server) const {
    return c10::str(options_.checkpoint, ".", server, "-of-", options_.servers);
  }

  std::string perform(const ps::Header& header, const std::string& text) {
    task_ = header.task;
    settled_below_ = header.settled_below;
    pushes_of_task_ = 0;
    const auto end_of_name = text.find('\0');
    ParameterTask task{.number = header.task, .name = text.substr(0, end_of_name), .argument = {}};
    const auto function = functions_.find(task.name);
    if (function == functions_.end())
      throw std::runtime_error("nothing is done with tasks called '" + task.name + "': on() names what is");
    if (end_of_name != std::string::npos) task.argument = to_value(text.substr(end_of_name + 1));
    std::string result = to_bytes(function->second(task));
    require_to_travel(result.size(), "the result");
    return result;
  }

  ParameterServerOptions options_;
  std::vector<NamedTensor> parameters_, frozen_;
  ps::Placement placement_;
  ps::Crew crew_;
  std::optional<ps::Variables> variables_;
  std::optional<ps::Server> server_;
  std::optional<ps::Client> client_;
  std::optional<ps::Coordinator> coordinator_;
  std::optional<ps::Line> to_coordinator_;
  std::map<std::string, Function> functions_;
  bool is_over_ = false;
  std::uint64_t task_ = 0, pushes_of_task_ = 0, settled_below_ = 0;
};

ParameterServer::ParameterServer(const torch::nn::Module& module, const OptimizerFactory& make_optimizer,
                                 const ParameterServerOptions& options)
    : impl_(std::make_unique<Impl>(module, make_optimizer, options)) {}
ParameterServer::~ParameterServer() = default;

bool ParameterServer::is_server() const { return impl_->crew().task() == ps::Task::server; }
bool ParameterServer::is_coordinator() const { return impl_->crew().task() == ps::Task::coordinator; }
bool ParameterServer::is_worker() const { return impl_->crew().task() == ps::Task::worker; }

bool ParameterServer::is_over() const { return impl_->is_over(); }

void ParameterServer::serve() { impl_->server().serve(); }
void ParameterServer::pull() { impl_->client().pull(); }
void ParameterServer::pull_rows(const std::string& table, const Tensor& rows) {
  impl_->client().pull_rows(impl_->table(table), rows);
}
void ParameterServer::push() { impl_->push(); }
void ParameterServer::leave() { impl_->leave(); }
void ParameterServer::save() { impl_->save(); }
void ParameterServer::on(const std::string& name, Function function) { impl_->on(name, std::move(function)); }

std::uint64_t ParameterServer::schedule(const std::string& name, const c10::IValue& argument) {
  std::string bytes = to_bytes(argument);
  require_to_travel(name.size() + bytes.size(), "the argument");
  return impl_->coordinator().schedule(name, std::move(bytes));
}

std::size_t ParameterServer::open_tasks() { return impl_->coordinator().open_tasks(); }

std::vector<ParameterTaskResult> ParameterServer::join() {
  std::vector<ParameterTaskResult> results;
  for (ps::Outcome& outcome : impl_->coordinator().join())
    results.push_back({.number = outcome.task,
                       .name = std::move(outcome.name),
                       .value = to_value(outcome.result),
                       .error = std::move(outcome.error),
                       .attempts = outcome.attempts});
  return results;
}

std::vector<ParameterTaskResult> ParameterServer::run() {
  if (is_server()) {
    serve();
    return {};
  }
  if (is_worker()) {
    impl_->work();
    return {};
  }
  auto results = join();
  impl_->coordinator().end();
  impl_->client().tell(ps::Kind::end);
  return results;
}

ParameterServerStatistics ParameterServer::statistics() const {
  const auto found = impl_->server().statistics();
  return {.pulls = found.pulls, .pushes = found.pushes, .repeated_pushes = found.repeated_pushes};
}

}  // namespace lockstep

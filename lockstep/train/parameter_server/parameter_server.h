// A model whose variables lie on servers: workers fetch them, compute, and send gradients back, each at its own pace. For workers that
// are slow now and then, or not to be relied on; where all are equal and stay, DistributedDataParallel is quicker.
//
//   lockstep run --role server:1 --role worker:3 --restart worker ./train
//
//        server        variables, optimizer         a push is one update (or, synchronous, a part of one)
//       /   |   \                                                                                                        .
//   pull  pull  pull
//   push  push  push
//     |     |     |
//   worker worker worker                            one that dies is not missed; when it is back it pulls and goes on
//
// Source: Li et al. 2014, "Scaling Distributed Machine Learning with the Parameter Server"; Ho et al. 2013 (bounded staleness);
// TensorFlow's ParameterServerStrategy (coordinator and tasks).
#pragma once

#include <torch/torch.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "lockstep/train/optimizer/fused_optimizer.h"
#include "lockstep/train/replicas/non_finite.h"
#include "lockstep/train/tensor/module_of.h"

namespace lockstep {

/// Alike on all ranks.
struct ParameterServerOptions {
  /// The first ranks. Variables are shared out between them by bytes, and large ones cut between rows.
  int servers = 1;
  /// The rank after them gives out tasks.
  bool coordinator = false;
  /// 0: synchronous, all workers' gradients are averaged and make one update, as in data-parallel training. More: each push is an
  /// update, and who is that many pushes ahead of the slowest worker waits for it. nullopt: nobody waits for anybody.
  std::optional<int> staleness = 0;
  /// Parameters of which workers pull and push some rows at a time (embeddings), by name.
  std::vector<std::string> tables = {};
  /// A task that fails, or whose worker dies, is given to the next one, so often in all.
  int most_attempts = 3;
  /// Of a worker's gradients, looked at before they are pushed. stop: push() throws, naming the parameter, and nothing of them reaches a
  /// server; a task fails by it. skip: the push counts, but brings no gradients (synchronous: zeros in the average). Costs one more
  /// look at each gradient.
  NonFinite non_finite = NonFinite::ignore;
  /// How long tasks may wait, or servers without a coordinator, while no worker is in the job.
  std::chrono::nanoseconds wait = std::chrono::minutes(5);
  /// Where servers begin, if it is there, and save() writes: a file for each server, PATH.0-of-2 and so on, which count only together: after
  /// a save that was cut short all servers have the one before. Refused where it is there for some servers only, or for another number of them.
  std::string checkpoint = {};
};

/// What a worker is to do.
struct ParameterTask {
  std::uint64_t number = 0;  ///< from 1
  std::string name;
  c10::IValue argument;
};

/// What has become of it.
struct ParameterTaskResult {
  std::uint64_t number = 0;
  std::string name;
  c10::IValue value;  ///< what its function has returned
  std::string error;  ///< "": it is done. Otherwise what its last attempt failed with, and where
  int attempts = 0;
};

struct ParameterServerStatistics {
  std::uint64_t pulls = 0, pushes = 0;
  std::uint64_t repeated_pushes =
      0;  ///< of tasks that were begun anew after such a push, which has no effect again
};

template <class Options>
struct OptimizerOfOptions;
template <>
struct OptimizerOfOptions<torch::optim::SGDOptions> {
  using type = FusedSGD;
};
template <>
struct OptimizerOfOptions<torch::optim::AdamOptions> {
  using type = FusedAdam;
};
template <>
struct OptimizerOfOptions<torch::optim::AdamWOptions> {
  using type = FusedAdamW;
};

/// One for a process; every rank makes one, with its own module.
///
///   lockstep::ParameterServer server(*net, torch::optim::SGDOptions(0.1), {.staleness = std::nullopt});
///   if (server.is_server()) return server.serve();
///   for (const auto& batch : loader) {
///     server.pull();
///     loss_of(*net, batch).backward();
///     server.push();
///   }
///   server.leave();
///
/// Or with tasks, of which each has its effect exactly once, whoever dies:
///
///   server.on("train", [&](const lockstep::ParameterTask& task) { server.pull(); ...; server.push(); return c10::IValue(loss); });
///   if (server.is_coordinator()) for (...) server.schedule("train", argument);
///   const auto results = server.run();   // workers: until the coordinator ends it; servers: serve()
///
/// - A push counts when all of it is there: a worker may die at any instruction. What a worker that was put out (it did not answer
///   until LOCKSTEP_TIMEOUT) does after that reaches nobody.
/// - Synchronous: a worker pulls before each push. The average is over the workers in the job that have not left; gradients of one that died after its push count.
/// - A task's pushes are known by its number: where it is begun anew they have no effect twice. With several servers each of them
///   sees to its own part.
/// - The death of a server or of the coordinator ends the job.
/// - Buffers (batch norm's statistics) are each worker's own. Initial values are the first server's, or the checkpoint's; of
///   frozen parameters, which no server has, all have to have the same.
/// - A worker's model may be on a GPU: what it pulls and pushes goes there and comes back through main memory. Servers' variables are
///   in main memory.
///
/// Cost of pull and push: the model's bytes once each, in a host a copy each and one on the server; between hosts messages. Memory of
/// a server: its variables, the optimizer's state, and for each worker twice its variables. Thread safety: none.
class ParameterServer {
 public:
  /// Throws Error: unsupported (parameters or options that the optimizer cannot step); invalid_argument (no worker left, roles in another order, staleness below 0, tables that are none, a parameter
  /// of a type without an average); mismatch (a worker with another model or options than the server's); as init() and Membership.
  template <class Model, class Options>
  requires requires { typename OptimizerOfOptions<Options>::type; }
  ParameterServer(const Model& model, const Options& optimizer, const ParameterServerOptions& options = {})
      : ParameterServer(
            module_of(model),
            [optimizer](std::vector<torch::Tensor> parameters) -> std::unique_ptr<torch::optim::Optimizer> {
              return std::make_unique<typename OptimizerOfOptions<Options>::type>(std::move(parameters),
                                                                                  optimizer);
            },
            options) {}
  ParameterServer(const ParameterServer&) = delete;
  ParameterServer& operator=(const ParameterServer&) = delete;
  /// A worker that has not left is gone then.
  ~ParameterServer();

  bool is_server() const;
  bool is_coordinator() const;
  bool is_worker() const;
  /// A worker that was started again when all was done: run() returns at once, pull() and push() throw Error{aborted}.
  bool is_over() const;

  /// A server's: does what workers ask, until the coordinator has ended the job or the last worker that is there has left (without a
  /// coordinator one that is being started again just then is too late). Throws what fails on
  /// this server.
  void serve();

  /// A worker's, and the coordinator's: the servers' variables, as they are now, into the module's parameters. Waits where
  /// `staleness` says so. Tables stay as they are.
  void pull();
  /// Some rows of a table, by their numbers, which may be there several times. Waits as pull() does. Throws Error{invalid_argument} for rows
  /// that it does not have.
  void pull_rows(const std::string& table, const torch::Tensor& rows);
  /// The parameters' gradients to the servers; afterwards there are none. Those of tables may be sparse. Throws Error:
  /// invalid_argument (NonFinite::stop).
  void push();
  /// A worker's: it has nothing more to do.
  void leave();
  /// A worker's or the coordinator's: every server writes its file, and when all have, the files take their names. Synchronous, a
  /// worker's save() is of one step on all servers; the coordinator's where no task is under way. Throws Error{mismatch} with what went wrong
  /// there; then the files are those of the save before.
  void save();

  /// What workers do with tasks of this name, and what the coordinator gets for it.
  using Function = std::function<c10::IValue(const ParameterTask&)>;
  void on(const std::string& name, Function function);
  /// The coordinator's: the number of a new task, whose argument has at most 32 MiB, which the next worker that is free gets.
  std::uint64_t schedule(const std::string& name, const c10::IValue& argument = {});
  /// The coordinator's: how many tasks are not over yet.
  std::size_t open_tasks();
  /// The coordinator's: waits until all tasks are over. Throws Error{timeout} where there is no worker for so long.
  std::vector<ParameterTaskResult> join();
  /// A worker: does tasks until there will be no more. The coordinator: join(), and ends the job. A server: serve().
  std::vector<ParameterTaskResult> run();

  /// A server's.
  ParameterServerStatistics statistics() const;

 private:
  using OptimizerFactory =
      std::function<std::unique_ptr<torch::optim::Optimizer>(std::vector<torch::Tensor>)>;
  ParameterServer(const torch::nn::Module& module, const OptimizerFactory& make_optimizer,
                  const ParameterServerOptions& options);

  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lockstep

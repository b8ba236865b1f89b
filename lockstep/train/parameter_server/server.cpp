#include "lockstep/train/parameter_server/server.h"

#include <c10/util/StringUtil.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/log.h"
#include "lockstep/base/words.h"
#include "lockstep/group/outcome.h"
#include "lockstep/trace/traced_range.h"
#include "lockstep/train/parameter_server/saved_part.h"
#include "lockstep/train/tensor/arena_tensor.h"

namespace lockstep::ps {
using torch::Tensor;

Server::Server(Crew& crew, const Placement& placement, Variables& variables, std::optional<int> staleness,
               std::uint64_t facts, std::chrono::nanoseconds lost_after, std::chrono::nanoseconds wait)
    : crew_(crew),
      placement_(placement),
      variables_(variables),
      facts_(facts),
      is_synchronous_(staleness == 0),
      clocks_(staleness),
      lost_after_(lost_after),
      wait_(wait),
      sessions_(
          crew, [this](const Life& life, const Line& line) { talk(life, line); },
          [this](const Life& life, const std::string& why) { lose(life, why); }) {}

Server::~Server() {
  const std::lock_guard lock(mutex_);
  is_closing_ = true;
  changed_.notify_all();
}

void Server::serve() {
  if (const auto coordinator = crew_.coordinator()) sessions_.admit(crew_.life_of(*coordinator));
  for (bool is_done = false; !is_done;) {
    if (const auto workers = sessions_.look()) take_living(*workers);
    sessions_.rethrow_failure();
    std::unique_lock lock(mutex_);
    if (!lost_coordinator_.empty() && !is_ended_)
      throw Error(ErrorCode::peer_lost,
                  "ParameterServer: the coordinator has gone without ending the job, as its run() does: " +
                      lost_coordinator_,
                  crew_.coordinator());
    put_out_the_silent();
    tell_counters();
    require_workers();
    is_done = is_over();
    if (!is_done) changed_.wait_for(lock, looks_every);
  }
  {
    const std::lock_guard lock(mutex_);
    told_at_ = {};
    tell_counters();  // the last ones
  }
  sessions_.end("the server has ended");
}

void Server::take_living(const std::vector<Life>& workers) {
  const std::lock_guard lock(mutex_);
  clocks_.set_living(workers);
  std::erase_if(heard_,
                [&](const auto& item) { return std::ranges::find(workers, item.first) == workers.end(); });
  for (const Life& life : workers) heard_.try_emplace(life, std::chrono::steady_clock::now());
  end_round_if_over();
  changed_.notify_all();
}

void Server::lose(const Life& life, const std::string& why) {
  log::info(c10::str("parameter server: rank ", to_text(life), " is gone: ", why));
  const std::lock_guard lock(mutex_);
  if (crew_.task_of(life.rank) == Task::coordinator) lost_coordinator_ = why;
  clocks_.drop(life);
  if (saving_ == life) saving_.reset();
  end_round_if_over();
  changed_.notify_all();
}

/// One that is stopped, say, in the middle of a push too. REQUIRES: the mutex.
void Server::put_out_the_silent() {
  const auto now = std::chrono::steady_clock::now();
  for (auto& [life, when] : heard_) {
    // Who waits for others asks nothing of this server either: it may wait at another one.
    if (now - when < lost_after_ || !clocks_.is_working(life) || !clocks_.may_read(life)) continue;
    crew_.put_out(life.rank, "rank " + std::to_string(life.rank) +
                                 " has asked its parameter server for nothing for " +
                                 base::exact_duration(lost_after_));
    when = now - lost_after_ +
           std::min<std::chrono::nanoseconds>(lost_after_, std::chrono::seconds(1));  // if it is still there
  }
}

/// For the launcher's metrics and for timelines. REQUIRES: the mutex.
void Server::tell_counters() {
  const auto now = std::chrono::steady_clock::now();
  if (now - told_at_ < std::chrono::milliseconds(100)) return;
  told_at_ = now;
  const std::map<std::string, double> counters = {
      {"parameter server pulls", static_cast<double>(statistics_.pulls)},
      {"parameter server pushes", static_cast<double>(statistics_.pushes)},
      {"parameter server workers", static_cast<double>(clocks_.working())},
      {"parameter server lead", static_cast<double>(clocks_.lead())}};
  for (const auto& [name, value] : counters) {
    const auto told = told_.find(name);
    if (told == told_.end() || told->second != value) traced_counter(name, value);
  }
  told_ = counters;
}

/// REQUIRES: the mutex.
void Server::require_workers() {
  const auto now = std::chrono::steady_clock::now();
  if (clocks_.has_workers() || crew_.coordinator() || clocks_.had_leavers()) had_workers_ = now;
  if (now - had_workers_ < wait_) return;
  throw Error(ErrorCode::timeout,
              "ParameterServer: no worker is in the job for " + base::exact_duration(wait_));
}

void Server::talk(const Life& life, const Line& line) {
  Memory memory;
  for (;;) {
    std::string text;
    const Header header = line.receive(&text);
    {
      const std::lock_guard lock(mutex_);
      if (const auto heard = heard_.find(life); heard != heard_.end())
        heard->second = std::chrono::steady_clock::now();
    }
    switch (header.kind) {
      case Kind::hello: greet(life, line, header, memory); break;
      case Kind::pull: answer_pull(life, line, memory); break;
      case Kind::pull_rows: answer_rows(life, line, header); break;
      case Kind::push: take_push(life, line, header, memory); break;
      case Kind::save: answer_save(life, line, header, text); break;
      case Kind::keep:
      case Kind::drop: finish_save(life, line, header.kind == Kind::keep, text); break;
      case Kind::rest:
      case Kind::work:
      case Kind::leave:
      case Kind::end: {
        {
          const std::lock_guard lock(mutex_);
          if (header.kind == Kind::rest) clocks_.rest(life);
          if (header.kind == Kind::work) clocks_.work(life);
          if (header.kind == Kind::leave) clocks_.leave(life);
          is_ended_ = is_ended_ || header.kind == Kind::end;
          end_round_if_over();
          changed_.notify_all();
        }
        line.send({.kind = Kind::ok});
        if (header.kind == Kind::leave || header.kind == Kind::end) return;
        break;
      }
      default:
        throw Error(ErrorCode::corrupt_data,
                    c10::str("parameter server: rank ", life.rank, " asks for what a server does not do (",
                             static_cast<std::uint32_t>(header.kind), ")"),
                    life.rank);
    }
  }
}

void Server::greet(const Life& life, const Line& line, const Header& header, Memory& memory) {
  const auto stretches = placement_.stretches(crew_.self().rank);
  const bool is_same = header.number == facts_ && header.count == stretches.size();
  std::vector<std::uint64_t> words(is_same ? header.count : std::min<std::uint64_t>(header.count, 1 << 20));
  if (!words.empty()) line.receive_bytes(std::as_writable_bytes(std::span(words)));
  if (!is_same) {
    return line.send(
        {.kind = Kind::refused},
        c10::str("ParameterServer: rank ", life.rank,
                 " has another model (or frozen values), other tables, or another optimizer or staleness "
                 "than the server, rank ",
                 crew_.self().rank, "; start the same program with the same arguments on every rank"));
  }
  memory = {};
  for (std::size_t i = 0; i < stretches.size(); ++i) {
    memory.values.push_back(tensor_at(line.group(), words[i], stretches[i].type, {stretches[i].elements}));
    memory.messages.push_back(memory.values.back().defined()
                                  ? Tensor()
                                  : arena_tensor(line.group(), {stretches[i].elements}, stretches[i].type));
  }
  line.send({.kind = Kind::ok});
}

bool Server::await_read(const Life& life) {
  std::unique_lock lock(mutex_);
  const bool may = changed_.wait_for(lock, patience_of(lost_after_),
                                     [&] { return is_closing_ || clocks_.may_read(life); });
  return may && !is_closing_;
}

void Server::answer_pull(const Life& life, const Line& line, const Memory& memory) {
  if (!await_read(life)) return line.send({.kind = Kind::not_yet});
  {
    const std::lock_guard lock(mutex_);
    ++statistics_.pulls;
  }
  // Into the client's own memory where that can be reached: it waits for the answer.
  std::vector<Tensor> into;
  for (std::size_t i = 0; i < memory.values.size(); ++i)
    into.push_back(memory.values[i].defined() ? memory.values[i] : memory.messages[i]);
  variables_.read(into);
  line.send({.kind = Kind::ok});
  for (const Tensor& array : memory.messages) {
    if (array.defined()) line.send_tensor(array);
  }
}

void Server::answer_rows(const Life& life, const Line& line, const Header& header) {
  const auto& variables = placement_.variables();
  if (header.number >= variables.size() || !variables[header.number].is_table ||
      header.count > static_cast<std::uint64_t>(variables[header.number].rows()))
    throw Error(ErrorCode::corrupt_data, "parameter server: a client asks for rows of no table");
  const Tensor indices = torch::empty({static_cast<std::int64_t>(header.count)}, torch::kInt64);
  line.receive_tensor(indices);
  if (!await_read(life)) return line.send({.kind = Kind::not_yet});
  Tensor rows;
  try {
    rows = variables_.read_rows(header.number, indices).contiguous();
  } catch (const Error& error) {
    return line.send({.kind = Kind::refused}, error.what());
  }
  line.send({.kind = Kind::ok, .count = header.count});
  line.send_tensor(rows);
}

/// Nothing has an effect before all of it is here.
void Server::take_push(const Life& life, const Line& line, const Header& header, Memory& memory) {
  const auto& pieces = placement_.pieces(crew_.self().rank);
  std::vector<std::uint64_t> words(pieces.size());
  if (!words.empty()) line.receive_bytes(std::as_writable_bytes(std::span(words)));
  // A client waits for the answer, so that its memory can be read where it is; not so by a round, which may end after the client.
  const bool keeps = is_synchronous_ || std::ranges::find(words, by_message) != words.end();
  if (!keeps) {
    memory.own = std::make_shared<Gradients>();
  } else if (!memory.own || memory.own.use_count() > 1 ||
             memory.memory.empty()) {  // the last one still waits for others
    memory.own = std::make_shared<Gradients>();
    memory.memory = placement_.views(crew_.self().rank, variables_.arrays());
  }
  const auto gradients = memory.own;
  gradients->rows.clear();
  gradients->pieces.assign(pieces.size(), {});
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    const Variable& variable = placement_.variables()[pieces[i].variable];
    if (variable.is_table || words[i] == 0) continue;
    Tensor& piece = gradients->pieces[i];
    if (words[i] != by_message)
      piece = tensor_at(line.group(), words[i], variable.type, variable.sizes_of(pieces[i]));
    if (!keeps) continue;
    const Tensor kept = memory.memory[i];
    if (words[i] == by_message)
      line.receive_tensor(kept);
    else
      kept.copy_(piece);
    piece = kept;
  }
  for (std::uint64_t i = 0; i < header.count; ++i) {
    const Header table = line.receive();
    if (table.number >= placement_.variables().size() || !placement_.variables()[table.number].is_table ||
        table.count > static_cast<std::uint64_t>(placement_.variables()[table.number].rows()))
      throw Error(ErrorCode::corrupt_data,
                  c10::str("parameter server: rank ", life.rank, " pushes rows of no table"), life.rank);
    const Variable& variable = placement_.variables()[table.number];
    auto sizes = variable.sizes;
    sizes[0] = static_cast<std::int64_t>(table.count);
    const Tensor indices = torch::empty({sizes[0]}, torch::kInt64),
                 values = torch::empty(sizes, variable.type);
    line.receive_tensor(indices);
    line.receive_tensor(values);
    gradients->rows.push_back({table.number, indices, values});
  }
  {
    const std::lock_guard lock(mutex_);
    if (is_synchronous_ && !clocks_.may_read(life))
      return line.send(
          {.kind = Kind::refused},
          "ParameterServer: synchronous, a worker pulls before each push, and this one has pushed already");
    // A task that was begun anew, because its worker died after this push: it has had its effect.
    if (header.settled_below > settled_below_) {
      settled_below_ = header.settled_below;
      applied_.erase(applied_.begin(), applied_.lower_bound({settled_below_, 0}));
    }
    const bool is_new = header.task == 0 || (header.task >= settled_below_ &&
                                             applied_.insert({header.task, header.number}).second);
    ++(is_new ? statistics_.pushes : statistics_.repeated_pushes);
    if (is_new && is_synchronous_) round_[life] = gradients;
    if (is_new && !is_synchronous_) variables_.apply(*gradients);
    clocks_.push(life);
    end_round_if_over();
    changed_.notify_all();
  }
  line.send({.kind = Kind::ok});
}

// One save at a time: a client asks the first server first to save, and last to keep what was saved.
void Server::answer_save(const Life& life, const Line& line, const Header& header, const std::string& path) {
  if (!await_read(life) || !await_save(life)) return line.send({.kind = Kind::not_yet});
  const auto failure = failure_in([&] {
    const std::string bytes = variables_.saved(header.number);
    SavedPart(path).write(std::as_bytes(std::span(bytes)));
  });
  if (failure) end_save(life);
  line.send({.kind = failure ? Kind::refused : Kind::ok}, failure ? failure->what() : "");
}

void Server::finish_save(const Life& life, const Line& line, bool is_kept, const std::string& path) {
  const auto failure = failure_in([&] {
    const SavedPart part(path);
    is_kept ? part.keep() : part.drop();
  });
  end_save(life);
  line.send({.kind = failure ? Kind::refused : Kind::ok}, failure ? failure->what() : "");
}

bool Server::await_save(const Life& life) {
  std::unique_lock lock(mutex_);
  const bool may = changed_.wait_for(lock, patience_of(lost_after_),
                                     [&] { return is_closing_ || saving_.value_or(life) == life; });
  if (!may || is_closing_) return false;
  saving_ = life;
  return true;
}

void Server::end_save(const Life& life) {
  const std::lock_guard lock(mutex_);
  if (saving_ == life) saving_.reset();
  changed_.notify_all();
}

/// REQUIRES: the mutex.
void Server::end_round_if_over() {
  if (!is_synchronous_ || !clocks_.is_round_over()) return;
  std::vector<Gradients*> all;  // by rank, so that the sum does not depend on who came first
  for (const auto& [life, gradients] : round_) all.push_back(gradients.get());
  variables_.apply_average(all);
  round_.clear();
  clocks_.update();
  for (auto& [life, when] : heard_)
    when = std::chrono::steady_clock::now();  // they have waited for each other
}

/// REQUIRES: the mutex.
bool Server::is_over() {
  const bool have_all_left = clocks_.had_leavers() && !clocks_.has_workers();
  return (crew_.coordinator() ? is_ended_ : have_all_left) && sessions_.are_over();
}

Server::Statistics Server::statistics() const {
  const std::lock_guard lock(mutex_);
  return statistics_;
}

}  // namespace lockstep::ps

#include "lockstep/train/parameter_server/coordinator.h"

#include <c10/util/StringUtil.h>

#include <utility>

#include "lockstep/base/deadline.h"
#include "lockstep/base/error.h"
#include "lockstep/base/log.h"
#include "lockstep/base/start_thread.h"
#include "lockstep/base/words.h"

namespace lockstep::ps {
Coordinator::Coordinator(Crew& crew, int most_attempts, std::chrono::nanoseconds wait)
    : crew_(crew),
      wait_(wait),
      tasks_(most_attempts),
      sessions_(
          crew, [this](const Life& life, const Line& line) { talk(life, line); },
          [this](const Life& life, const std::string& why) { lose(life, why); }),
      looks_(start_thread("ps coordinator", [this] { look(); })) {}

Coordinator::~Coordinator() {
  {
    const std::lock_guard lock(mutex_);
    is_ended_ = is_closing_ = true;
    changed_.notify_all();
  }
  looks_.join();
}

void Coordinator::look() {
  try {
    for (std::unique_lock lock(mutex_); !is_closing_; changed_.wait_for(lock, looks_every)) {
      lock.unlock();
      (void)sessions_.look();
      lock.lock();
    }
  } catch (...) {
    const std::lock_guard lock(mutex_);
    failure_ = std::current_exception();
  }
}

void Coordinator::rethrow_failure() {
  sessions_.rethrow_failure();
  const std::lock_guard lock(mutex_);
  if (failure_) std::rethrow_exception(failure_);
}

std::uint64_t Coordinator::schedule(std::string name, std::string argument) {
  const std::lock_guard lock(mutex_);
  const std::uint64_t task = tasks_.add(std::move(name), std::move(argument));
  changed_.notify_all();
  return task;
}

std::size_t Coordinator::open_tasks() {
  rethrow_failure();
  const std::lock_guard lock(mutex_);
  return tasks_.open();
}

std::vector<Outcome> Coordinator::join() {
  Deadline deadline = Deadline::after(wait_);
  for (;;) {
    rethrow_failure();
    std::unique_lock lock(mutex_);
    if (tasks_.is_over()) return tasks_.take_outcomes();
    if (!crew_.workers().empty()) deadline = Deadline::after(wait_);
    if (deadline.expired())
      throw Error(ErrorCode::timeout,
                  c10::str("ParameterServer: tasks wait, and no worker is in the job for ",
                           base::exact_duration(wait_)));
    changed_.wait_for(lock, looks_every);
  }
}

void Coordinator::end() {
  {
    const std::lock_guard lock(mutex_);
    is_ended_ = true;
    changed_.notify_all();
  }
  while (!sessions_.are_over()) {
    rethrow_failure();
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, looks_every);
  }
  sessions_.rethrow_failure();
}

void Coordinator::talk(const Life& life, const Line& line) {
  for (;;) {
    std::string text;
    const Header header = line.receive(&text);
    if (header.kind == Kind::leave) {
      line.send({.kind = Kind::ok});
      return;
    }
    if (header.kind != Kind::next && header.kind != Kind::failed)
      throw Error(ErrorCode::corrupt_data,
                  c10::str("parameter server: rank ", life.rank, " asks for what a coordinator does not do"),
                  life.rank);
    if (header.task != 0) {
      const std::lock_guard lock(mutex_);
      assigned_.erase(life);
      if (header.kind == Kind::next) {
        tasks_.note_done(header.task, std::move(text));
      } else {
        log::warning(c10::str("task ", header.task, " failed on rank ", to_text(life), ": ", text));
        tasks_.note_failure(header.task, c10::str("on rank ", life.rank, ": ", text));
      }
      changed_.notify_all();
    }
    answer(life, line, header.number != 0);
  }
}

void Coordinator::answer(const Life& life, const Line& line, bool has_time) {
  std::unique_lock lock(mutex_);
  if (has_time)
    changed_.wait_for(lock, patience_of(crew_.timeout()), [&] { return is_ended_ || tasks_.has_waiting(); });
  const auto assignment = tasks_.take();
  if (assignment) assigned_[life] = assignment->task;
  const bool is_ended = is_ended_;
  lock.unlock();
  if (assignment) {
    line.send({.kind = Kind::task, .task = assignment->task, .settled_below = assignment->settled_below},
              assignment->name + '\0' + assignment->argument);
  } else {
    line.send({.kind = is_ended ? Kind::end : Kind::none});
  }
}

void Coordinator::lose(const Life& life, const std::string& why) {
  const std::lock_guard lock(mutex_);
  const auto found = assigned_.find(life);
  if (found == assigned_.end()) return;
  log::warning(c10::str("task ", found->second, " was with rank ", to_text(life), ", which is gone: ", why));
  tasks_.note_failure(found->second, c10::str("rank ", life.rank, " was lost: ", why));
  assigned_.erase(found);
  changed_.notify_all();
}

}  // namespace lockstep::ps

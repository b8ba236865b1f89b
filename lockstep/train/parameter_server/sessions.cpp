#include "lockstep/train/parameter_server/sessions.h"

#include <algorithm>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/start_thread.h"
#include "lockstep/group/init.h"
#include "lockstep/train/replicas/told_where.h"

namespace lockstep::ps {
namespace {

/// Whether it is the client that is lost, and not this process that cannot go on.
bool is_clients_loss(const Error& error) {
  return ranks_may_change() && (is_loss_of_others(error) || error.code() == ErrorCode::corrupt_data);
}

}  // namespace

Sessions::Sessions(Crew& crew, std::function<void(const Life&, const Line&)> talk,
                   std::function<void(const Life&, const std::string&)> gone)
    : crew_(crew), talk_(std::move(talk)), gone_(std::move(gone)) {}

Sessions::~Sessions() { end("it has ended"); }

std::optional<std::vector<Life>> Sessions::look() {
  const std::uint64_t newest = crew_.newest();
  if (newest == view_) return std::nullopt;
  view_ = newest;
  auto workers = crew_.workers();
  for (const Life& life : workers) admit(life);
  // Of one that was put out, and whose process is still there.
  const std::lock_guard lock(mutex_);
  for (const Session& session : sessions_) {
    const bool is_out = crew_.task_of(session.life.rank) == Task::worker &&
                        std::ranges::find(workers, session.life) == workers.end();
    if (is_out && session.group) session.group->abort("rank " + to_text(session.life) + " is out of the job");
  }
  return workers;
}

void Sessions::admit(const Life& life) {
  if (!admitted_.insert(life).second) return;
  const std::lock_guard lock(mutex_);
  Session& session = sessions_.emplace_back(Session{.life = life});
  session.thread = start_thread("ps client", [this, &session] { run(session); });
}

void Sessions::run(Session& session) {
  std::exception_ptr failure;
  try {
    const Line line(crew_.pair(crew_.self(), session.life));
    {
      const std::lock_guard lock(mutex_);
      session.group = line.group();
      if (is_ending_) line.group().abort("it has ended");  // meanwhile
    }
    talk_(session.life, line);
  } catch (const Error& error) {
    if (is_clients_loss(error)) {
      gone_(session.life, error.what());
    } else {
      failure = std::current_exception();
    }
  } catch (...) {
    failure = std::current_exception();
  }
  const std::lock_guard lock(mutex_);
  if (!failure_) failure_ = failure;
  session.group.reset();
  session.is_over = true;
}

void Sessions::rethrow_failure() {
  const std::lock_guard lock(mutex_);
  if (failure_) std::rethrow_exception(failure_);
}

bool Sessions::are_over() const {
  const std::lock_guard lock(mutex_);
  return std::ranges::all_of(sessions_, &Session::is_over);
}

void Sessions::end(const std::string& why) {
  {
    const std::lock_guard lock(mutex_);
    is_ending_ = true;
    for (const Session& session : sessions_) {
      if (session.group) session.group->abort(why);
    }
  }
  for (Session& session : sessions_) {
    if (session.thread.joinable()) session.thread.join();
  }
}

}  // namespace lockstep::ps

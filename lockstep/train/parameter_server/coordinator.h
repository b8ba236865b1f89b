// The coordinator gives tasks to workers: a thread for each worker, which asks for the next one when it is done with the last.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "lockstep/train/parameter_server/crew.h"
#include "lockstep/train/parameter_server/messages.h"
#include "lockstep/train/parameter_server/sessions.h"
#include "lockstep/train/parameter_server/task_list.h"

namespace lockstep::ps {

class Coordinator {
 public:
  /// Borrows the crew. `wait`: how long tasks may be there and no worker.
  Coordinator(Crew& crew, int most_attempts, std::chrono::nanoseconds wait);
  ~Coordinator();

  std::uint64_t schedule(std::string name, std::string argument);
  /// That are not over.
  std::size_t open_tasks();
  /// When all tasks are over. Throws Error{timeout} where there has been no worker for too long.
  std::vector<Outcome> join();
  /// Every worker is told that there will be no more.
  void end();

 private:
  void talk(const Life& life, const Line& line);
  void answer(const Life& life, const Line& line, bool has_time);
  void lose(const Life& life, const std::string& why);
  void look();
  void rethrow_failure();

  Crew& crew_;
  std::chrono::nanoseconds wait_;
  std::mutex mutex_;
  std::condition_variable changed_;
  TaskList tasks_;
  std::map<Life, std::uint64_t> assigned_;
  std::exception_ptr failure_;
  bool is_ended_ = false, is_closing_ = false;
  Sessions sessions_;  // its threads use all of this
  std::thread looks_;  // who is there, whatever the program does meanwhile
};

}  // namespace lockstep::ps

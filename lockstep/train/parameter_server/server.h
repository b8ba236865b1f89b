// A server: a thread for each client, which does what it asks.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/train/parameter_server/clocks.h"
#include "lockstep/train/parameter_server/crew.h"
#include "lockstep/train/parameter_server/messages.h"
#include "lockstep/train/parameter_server/placement.h"
#include "lockstep/train/parameter_server/sessions.h"
#include "lockstep/train/parameter_server/variables.h"

namespace lockstep::ps {

class Server {
 public:
  /// `facts`: a digest of what clients have to have alike. `wait`: how long there may be no worker, without a coordinator. A worker that works and asks for nothing for `lost_after` is put out.
  /// Borrows crew, placement and variables.
  Server(Crew& crew, const Placement& placement, Variables& variables, std::optional<int> staleness,
         std::uint64_t facts, std::chrono::nanoseconds lost_after, std::chrono::nanoseconds wait);

  ~Server();

  /// Until the coordinator has ended the job, or, without one, the last worker has left. Throws what a client's request fails
  /// with, if it is this server's fault; the loss of a worker where ranks are there from beginning to end.
  void serve();

  struct Statistics {
    std::uint64_t pulls = 0, pushes = 0, repeated_pushes = 0;
  };
  Statistics statistics() const;

 private:
  using Push = std::pair<std::uint64_t, std::uint64_t>;  // a task, and which push of it

  void take_living(const std::vector<Life>& workers);
  void talk(const Life& life, const Line& line);
  /// What a client has told of its memory, and what there is for what it has not.
  struct Memory {
    std::vector<torch::Tensor> values;       // of each stretch; undefined: it goes by messages
    std::vector<torch::Tensor> messages;     // for these
    std::shared_ptr<Gradients> own = {};     // the last push
    std::vector<torch::Tensor> memory = {};  // its pieces, where they could not be taken as they lay
  };
  void greet(const Life& life, const Line& line, const Header& header, Memory& memory);
  void answer_pull(const Life& life, const Line& line, const Memory& memory);
  void answer_rows(const Life& life, const Line& line, const Header& header);
  void take_push(const Life& life, const Line& line, const Header& header, Memory& memory);
  void answer_save(const Life& life, const Line& line, const Header& header, const std::string& path);
  void finish_save(const Life& life, const Line& line, bool is_kept, const std::string& path);
  /// Until it may; false: not for a while.
  bool await_read(const Life& life);
  bool await_save(const Life& life);
  void end_save(const Life& life);
  void lose(const Life& life, const std::string& why);
  void require_workers();
  void end_round_if_over();
  bool is_over();
  void put_out_the_silent();
  void tell_counters();

  Crew& crew_;
  const Placement& placement_;
  Variables& variables_;
  std::uint64_t facts_;
  bool is_synchronous_;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  Clocks clocks_;
  std::map<Life, std::shared_ptr<Gradients>> round_;  // synchronous: pushes that wait for the others
  std::set<Push> applied_;                            // of tasks that are not settled yet
  std::uint64_t settled_below_ = 0;
  Statistics statistics_;
  std::chrono::nanoseconds lost_after_, wait_;
  std::chrono::steady_clock::time_point had_workers_ = std::chrono::steady_clock::now();
  std::optional<Life> saving_;                                   // whose save is under way
  std::string lost_coordinator_;                                 // and how
  std::map<Life, std::chrono::steady_clock::time_point> heard_;  // the last time
  bool is_ended_ = false, is_closing_ = false;
  std::map<std::string, double> told_;
  std::chrono::steady_clock::time_point told_at_;
  Sessions sessions_;  // the last: its threads use all of this
};

}  // namespace lockstep::ps

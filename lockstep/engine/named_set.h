// One rank's side of the named operations of one group: what it has submitted, what has been decided, what is
// under way. The group's first rank also decides; see negotiation.h.
//
//   rank r   submit  --- note: numbers, requests --->  rank 0   Negotiation
//            start   <-- note: decisions ------------           the same on all ranks, in the same order
//            the group's collectives, in that order
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <future>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "lockstep/base/in_order_thread.h"
#include "lockstep/engine/named_call.h"
#include "lockstep/engine/named_options.h"
#include "lockstep/engine/named_wire.h"
#include "lockstep/execute/message.h"
#include "lockstep/group/group.h"

namespace lockstep {

/// Thread safety: none; NamedEngine has the lock.
class NamedSet {
 public:
  using Clock = Negotiation::Clock;

  /// `group` is for named operations alone.
  NamedSet(Group group, const NamedOptions& options);
  NamedSet(const NamedSet&) = delete;
  NamedSet& operator=(const NamedSet&) = delete;
  /// Waits until the others are told what they have to know, for a twentieth of the group's time-out at most.
  ~NamedSet();

  const Group& group() const { return group_; }
  const NamedStatistics& statistics() const { return statistics_; }

  /// Throws Error: invalid_argument (the request is unsound; the name is under way), or the set's failure.
  std::shared_ptr<NamedOperation> submit(NamedRequest request, NamedBuffers buffers);
  /// Takes part in the others' operations with nothing, until all have joined; the operation is over then.
  std::shared_ptr<NamedOperation> join();
  /// The rank that joined last, when all ranks had joined for the last time.
  int last_joined() const { return last_joined_; }

  /// Takes all steps that can be taken, and returns whether there were any. Others learn now what was
  /// submitted. A failure ends every operation of the set.
  bool advance() noexcept;
  /// Whether nothing is under way.
  bool is_idle() const;
  /// Waits for what may come next, for at most so long.
  void sleep(std::chrono::nanoseconds at_most) noexcept;
  /// Warns of operations that some ranks have not submitted; refuses those after the group's time-out.
  void look();
  /// Fails at once, on all ranks, in this rank's name.
  void abandon() noexcept;

 private:
  struct Outgoing {
    NamedNote note;
    std::string body;
    Work note_work, body_work;
  };
  struct Incoming {
    bool is_posted = false, has_note = false;
    NamedNote note;
    Received from;
    std::string body;
    Work work;
  };
  using Operations = std::vector<std::shared_ptr<NamedOperation>>;
  struct Delayed {
    std::vector<Decision> decisions;
    Operations operations;
  };
  struct Known {
    NamedRequest request;
    std::vector<std::vector<std::int64_t>> rows;
  };

  bool decides() const { return group_.rank() == 0; }
  bool expects_note() const;
  bool receive();
  void take_note();
  void take_submission(int rank);
  void take_decisions();
  bool decide();
  void send(int rank, const NamedNote& note, const std::string& body);
  void flush();
  void tell_all(const std::vector<Decision>& decisions);
  void carry_out(std::vector<Decision> decisions);
  void refuse(const Decision& decision);
  void require_possible(const NamedRequest& request) const;
  void put_on_gpu(NamedOperation& operation);
  void start(std::span<const Decision> decisions);
  bool is_on_gpu(std::span<const Decision> decisions) const;
  void begin(std::span<const Decision> decisions, Operations operations);
  bool begin_delayed();
  bool knows_gpu();
  bool is_over(RunningCall& call);
  bool finish();
  std::exception_ptr with_open_operations(const std::exception_ptr& why) const noexcept;
  void await_beginnings() noexcept;
  void fail(const std::exception_ptr& told) noexcept;
  void deliver() noexcept;
  std::shared_ptr<NamedOperation> take_waiting(const std::string& name);

  Group group_;
  std::optional<Negotiation> negotiation_;                                       // of rank 0
  std::map<std::string, std::shared_ptr<NamedOperation>, std::less<>> waiting_;  // not decided yet
  std::map<std::string, std::shared_ptr<NamedOperation>, std::less<>> started_;
  std::unordered_map<std::string, std::uint32_t> numbers_;
  std::vector<std::optional<Known>> known_;  // by number
  std::shared_ptr<NamedOperation> joining_;
  NamedNote unsent_;  // what rank 0 has not been told yet
  std::string unsent_body_;
  std::deque<RunningCall> running_;
  std::deque<Outgoing> outgoing_;
  Incoming incoming_;
  std::exception_ptr closed_;                      // why nothing can be submitted any more
  std::exception_ptr failure_;                     // why nothing goes on
  std::map<int, std::shared_ptr<NamedGpu>> gpus_;  // of this rank, as far as something was there
  std::shared_ptr<NamedGpu> gpu_;       // of calls: the first one; what is on others goes through main memory
  std::optional<bool> takes_gpu_;       // whether the ranks' GPUs reach each other, once that is known
  std::future<std::string> connected_;  // why they do not; empty: they do
  std::deque<Delayed> delayed_;         // what begins when it is known, in its order
  NamedStatistics statistics_;
  int last_joined_ = 0;
  std::unique_ptr<InOrderThread> beginner_;  // of calls on GPUs
};

}  // namespace lockstep

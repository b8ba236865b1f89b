// One call of a group under way: it announces itself, learns what the others called and where their buffers
// are, gets its plan and runs it.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <vector>

#include "lockstep/backend/backend.h"
#include "lockstep/backend/native/bind.h"
#include "lockstep/backend/native/group_parts.h"
#include "lockstep/execute/execution.h"
#include "lockstep/execute/mailbox.h"
#include "lockstep/execute/plan.h"
#include "lockstep/memory/arena.h"
#include "lockstep/trace/clock.h"
#include "lockstep/trace/event.h"
#include "lockstep/trace/open_calls.h"

namespace lockstep {

class NativeTask final : public Surroundings {
 public:
  enum class State {
    queued,     ///< its lane is still in use
    announced,  ///< waits for everybody's announcement
    planned,    ///< uses channels or staging memory: waits for earlier works that do
    running,
    complete,
    failed,
  };

  /// Borrows `parts`.
  explicit NativeTask(GroupParts& parts) : parts_(parts) {}

  void begin(const Request& request, const Signature& called, const BufferOffsets& offsets,
             std::uint64_t its_number);
  /// After begin(): its input, or its output, is memory of the program's own whose edges others do not reach where they are.
  void take_input_at(const Reach& reach);
  void take_output_at(const Reach& reach);
  /// Goes on with a small call that was begun at once (small_call.h) and whose others have not come.
  void go_on(const Request& request, const std::shared_ptr<const Plan>& its_plan, std::uint64_t its_number,
             std::size_t next_step, std::uint64_t its_begin_ns);
  /// Takes what steps it can; true if there were any. `is_alone`: no earlier exclusive work is in the way.
  /// Throws Error.
  bool advance(bool is_alone, std::uint64_t& own_work_ns);
  void set_failed() {
    state = State::failed;
    if (begin_ns == 0) begin_ns = trace::record_now_ns();  // it could not even be tried
  }

  /// What was called, and where the buffers lie.
  const Signature& signature() const { return request_.signature; }
  bool is_over() const { return state == State::complete || state == State::failed; }
  bool is_message() const { return lockstep::is_message(signature().operation); }
  /// Whether later works that use channels or staging memory have to wait for this one.
  bool is_exclusive() const {
    return !is_message() && !is_over() && (!plan || plan->schedule.is_exclusive());
  }
  /// Ranks without which it cannot go on now.
  std::vector<int> missing() const;
  /// Whether it cannot tell for which of missing() it waits.
  bool waits_for_some() const;

  std::size_t element_bytes() const { return request_.element_bytes; }
  std::span<const std::byte> input() const { return request_.input; }
  std::span<const std::byte> output() const { return request_.output; }

  /// For the record. The event of a call that is over, as of now.
  trace::CompletedCollective make_event() const;
  trace::OpenCall describe() const;
  /// A look at a long wait found these `missing`.
  void note_waiting(const std::vector<int>& missing) const;

  Link& link(int peer) override;
  void arrive(std::uint32_t stage) override;
  bool await(std::uint32_t stage) override;
  Exchange& exchange() override { return *parts_.exchange; }

  State state = State::queued;
  std::uint64_t number = 0;
  std::shared_ptr<const Plan> plan;
  std::uint64_t begin_ns = 0, arrived_ns = 0;
  std::uint64_t waiting_since_ns = 0;  ///< first look after the last progress; 0: none yet
  bool warned = false;
  std::atomic<bool> is_awaited = false;     ///< a thread stays in its wait until it is over
  std::atomic<bool> is_waited_for = false;  ///< a thread is in its wait
  std::vector<int> told;                    ///< ranks that know of this call
  std::uint64_t blocked_ns = 0;             ///< that the program has stayed in the call and waited for it
  /// Its place among the open calls of the record; nowhere if it completed at once.
  int open_call = trace::OpenCalls::nowhere;

 private:
  void begin_message();
  bool advance_message();
  void complete();
  bool leave_queue();
  bool meets_inside() const;
  bool begin_work();
  bool learn_plan();
  void choose_early();
  bool shares_buffers(int rank) const;
  bool all_share_buffers() const;
  void run(std::size_t first_step = 0);
  void bind();
  void prescale();
  void compare_signatures() const;

  GroupParts& parts_;
  Request request_;
  BufferOffsets offsets_;  // of our buffers
  Execution execution_;
  std::byte* own_output_ = nullptr;  // where the program has it, if it lies in request_ as others reach it:
  Reach output_reach_;
  WorkMemory prescaled_;  // our input, where it cannot be scaled on its way
  Outgoing outgoing_;
  Incoming incoming_;
  std::uint64_t last_look_ns_ = 0;  // that did not find all others
  bool compared_ = false;
};

}  // namespace lockstep

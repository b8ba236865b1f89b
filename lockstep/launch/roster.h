// Who is in a job whose ranks may die and come back, and what a death means for it: decisions alone, without processes.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "lockstep/rendezvous/view.h"

namespace lockstep::launch {

class Roster {
 public:
  struct Rule {
    bool is_tolerated = false;  ///< the job goes on without it
    int restarts = 0;           ///< how often it is started again
  };
  /// `least`: how many ranks have to be left, of those that have not ended well. `begins`: which ranks begin with the job; the others
  /// wait for begin(). Empty: all.
  Roster(const std::vector<Rule>& rules, int least, const std::vector<bool>& begins = {});

  /// From the first one on, with all ranks that begin.
  const View& view() const { return view_; }
  /// Whether there is a newer view than at the last call; at first there is.
  bool take_change();
  /// Lives that have left since the last call, and why.
  std::vector<std::pair<Life, std::string>> take_out();

  enum class Answer {
    ends_job,
    goes_on,       ///< without it
    starts_again,  ///< it, as its next incarnation
  };
  /// Its process has failed. `how`: in words, "was killed by signal 9 (SIGKILL)". `can_start`: a process can be had there.
  Answer note_failure(int rank, const std::string& how, bool can_start = true);
  /// One that waits is started, as its next incarnation. False: it does not wait, or nobody is started any more.
  bool begin(int rank);
  /// There is no place for it any more: the job goes on without it, and it waits once its process has ended. False: it may not be done
  /// without, is not there, or too few would be left.
  bool retire(int rank, const std::string& why);
  /// It has ended well.
  void note_end(int rank);
  /// From now on nobody is started again.
  void start_nobody() { starts_nobody_ = true; }
  /// The process of its present incarnation is ready. False: it was not waited for.
  bool note_arrival(int rank);

  enum class Fenced {
    no,          ///< it may not be done without, or is out already
    out,         ///< the job goes on without it, though its process is there
    to_be_ended  ///< and has to end: it is started again, or the job cannot go on
  };
  /// It does not answer.
  Fenced fence(int rank, const std::string& why);

  Life life(int rank) const { return {.rank = rank, .incarnation = at(rank).incarnation}; }
  int restarts_of(int rank) const { return at(rank).restarts; }
  const Rule& rule(int rank) const { return at(rank).rule; }
  bool is_in(int rank) const { return at(rank).state == State::in; }
  /// It has no process, and may be given one.
  bool is_waiting(int rank) const { return at(rank).state == State::waiting; }
  /// It was put out, and its process has not ended.
  bool is_fenced(int rank) const { return at(rank).state == State::fenced; }
  /// How many ranks are in the job, or are being started again, or have ended well.
  int left() const;
  int least() const { return least_; }

 private:
  enum class State { waiting, in, starting, fenced, retired, ended, lost };
  struct Rank {
    Rule rule;
    State state = State::in;
    int incarnation = 0;
    int restarts = 0;  ///< after failures
  };
  Rank& at(int rank) { return ranks_[static_cast<std::size_t>(rank)]; }
  const Rank& at(int rank) const { return ranks_[static_cast<std::size_t>(rank)]; }
  bool may_start(const Rank& rank) const { return !starts_nobody_ && rank.restarts < rank.rule.restarts; }
  void leave_view(int rank, const std::string& why);
  void change_view();

  std::vector<Rank> ranks_;
  int least_;
  View view_;
  bool starts_nobody_ = false;
  bool is_changed_ = true;
  std::vector<std::pair<Life, std::string>> out_;
};

}  // namespace lockstep::launch

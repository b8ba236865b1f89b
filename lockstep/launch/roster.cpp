#include "lockstep/launch/roster.h"

#include <algorithm>
#include <utility>

namespace lockstep::launch {

Roster::Roster(const std::vector<Rule>& rules, int least, const std::vector<bool>& begins)
    : least_(least), view_{.number = 1} {
  for (const Rule& rule : rules) {
    const bool is_in = begins.empty() || begins[ranks_.size()];
    if (is_in) view_.members.push_back({.rank = static_cast<int>(ranks_.size())});
    ranks_.push_back({.rule = rule, .state = is_in ? State::in : State::waiting});
  }
}

bool Roster::begin(int rank) {
  Rank& one = at(rank);
  if (one.state != State::waiting || starts_nobody_) return false;
  one.state = State::starting;
  ++one.incarnation;
  return true;
}

bool Roster::retire(int rank, const std::string& why) {
  Rank& one = at(rank);
  const bool is_there = one.state == State::in || one.state == State::starting;
  if (!is_there || !one.rule.is_tolerated || left() <= least_) return false;
  leave_view(rank, why);
  one.state = State::retired;
  return true;
}

bool Roster::take_change() { return std::exchange(is_changed_, false); }

std::vector<std::pair<Life, std::string>> Roster::take_out() { return std::exchange(out_, {}); }

void Roster::change_view() {
  if (!is_changed_) ++view_.number;  // nobody has seen the present one otherwise
  is_changed_ = true;
}

void Roster::leave_view(int rank, const std::string& why) {
  if (std::erase(view_.members, life(rank)) == 0) return;
  out_.emplace_back(life(rank), why);
  change_view();
}

int Roster::left() const {
  const auto counts = [](const Rank& rank) {
    return rank.state == State::in || rank.state == State::starting || rank.state == State::ended;
  };
  return static_cast<int>(std::ranges::count_if(ranks_, counts));
}

Roster::Answer Roster::note_failure(int rank, const std::string& how, bool can_start) {
  leave_view(rank, "it " + how);
  Rank& one = at(rank);
  if (one.state == State::retired) {
    one.state = State::waiting;
    return Answer::goes_on;
  }
  if (can_start && may_start(one)) {
    one.state = State::starting;
    ++one.incarnation;
    ++one.restarts;
    return Answer::starts_again;
  }
  one.state = State::lost;
  return one.rule.is_tolerated && left() >= least_ ? Answer::goes_on : Answer::ends_job;
}

void Roster::note_end(int rank) {
  leave_view(rank, "it ended with exit code 0");
  at(rank).state = State::ended;
}

bool Roster::note_arrival(int rank) {
  if (at(rank).state != State::starting) return false;
  at(rank).state = State::in;
  view_.members.push_back(life(rank));
  change_view();
  return true;
}

Roster::Fenced Roster::fence(int rank, const std::string& why) {
  Rank& one = at(rank);
  if (one.state != State::in || (!one.rule.is_tolerated && !may_start(one))) return Fenced::no;
  leave_view(rank, why);
  one.state = State::fenced;
  return may_start(one) || left() < least_ ? Fenced::to_be_ended : Fenced::out;
}

}  // namespace lockstep::launch

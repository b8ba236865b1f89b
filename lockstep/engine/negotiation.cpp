#include "lockstep/engine/negotiation.h"

#include <algorithm>
#include <utility>

#include "lockstep/base/words.h"

namespace lockstep {
namespace {

// Names beyond this are described anew each time.
constexpr std::size_t most_numbers = std::size_t{1} << 16;

[[noreturn]] void throw_impossible(int rank, const std::string& what) {
  throw Error(ErrorCode::corrupt_data,
              std::string("named operations: rank ").append(std::to_string(rank)).append(" ").append(what));
}

/// Whether two decisions can be one call.
bool are_alike(const NamedRequest& a, const NamedRequest& b) {
  return a.operation == Operation::all_reduce && b.operation == Operation::all_reduce && a.dtype == b.dtype &&
         a.is_on_gpu == b.is_on_gpu && a.reduce_op == b.reduce_op && !(a.prescale < b.prescale) &&
         !(b.prescale < a.prescale);
}

/// Why ranks that have joined, and so have no data, cannot take part; empty if they can.
std::string why_not_with_nothing(const NamedRequest& request) {
  switch (request.operation) {
    case Operation::barrier:
    case Operation::all_gather: return {};
    case Operation::all_reduce:
      if (request.reduce_op == ReduceOp::sum || request.reduce_op == ReduceOp::average) return {};
      return std::string("a ").append(to_string(request.reduce_op)).append(" with nothing is not defined");
    default: return "only all_reduce (sum or average), all_gather and barrier go on without them";
  }
}

}  // namespace

Negotiation::Negotiation(std::vector<int> world_ranks, std::size_t fusion_bytes)
    : world_ranks_(std::move(world_ranks)),
      fusion_bytes_(fusion_bytes),
      open_of_(world_ranks_.size()),
      joined_(world_ranks_.size()) {}

std::uint32_t Negotiation::index_of(const std::string& name) {
  const auto [place, is_new] = numbers_.try_emplace(name, 0);
  if (!is_new) return place->second;
  if (spare_.empty()) {
    place->second = static_cast<std::uint32_t>(entries_.size());
    entries_.emplace_back();
  } else {
    place->second = spare_.back();
    spare_.pop_back();
  }
  return place->second;
}

Negotiation::Entry& Negotiation::enter(int rank, std::uint32_t index, Clock::time_point now) {
  Entry& entry = entries_[index];
  const auto place = static_cast<std::size_t>(rank);
  if (joined_[place] != 0) throw_impossible(rank, "submits after it has joined");
  if (entry.count == 0) {
    entry.submitted.assign(world_ranks_.size(), 0);
    entry.is_as_known = entry.known.has_value();
    entry.rows.clear();
    entry.conflict.clear();
    entry.first = rank;
    entry.since = now;
    entry.was_told = entry.has_timed_out = false;
  }
  if (std::exchange(entry.submitted[place], char{1}) != 0) throw_impossible(rank, "submits one name twice");
  ++entry.count;
  ++open_of_[place];
  return entry;
}

void Negotiation::submit(int rank, const NamedRequest& request, Clock::time_point now) {
  const auto index = index_of(request.name);
  Entry& entry = enter(rank, index, now);
  if (entry.count == 1) {
    entry.is_as_known = false;
    entry.request = request;
  } else if (const NamedRequest& first = request_of(entry); !request.fits(first) && entry.conflict.empty()) {
    const auto world = [this](int member) {
      return std::to_string(world_ranks_[static_cast<std::size_t>(member)]);
    };
    entry.conflict.append("ranks mean different things by one name: ").append(to_string(first));
    entry.conflict.append(" on rank ").append(world(entry.first)).append(", ").append(to_string(request));
    entry.conflict.append(" on rank ").append(world(rank)).append("; submit the same on all ranks");
  }
  if (entry.is_as_known) {  // no longer: this rank's rows are others
    entry.request = *entry.known;
    entry.is_as_known = false;
    entry.rows = entry.known_rows;
  }
  entry.request.is_on_gpu &= request.is_on_gpu;
  if (!request.rows.empty()) {
    entry.rows.resize(world_ranks_.size());
    entry.rows[static_cast<std::size_t>(rank)] = request.rows;
  }
  look_whether_ready(index);
}

void Negotiation::submit_known(int rank, std::uint32_t number, Clock::time_point now) {
  if (number >= entries_.size() || !entries_[number].known)
    throw_impossible(rank, "submits number " + std::to_string(number) + ", which nobody knows");
  Entry& entry = enter(rank, number, now);
  if (entry.is_as_known) return look_whether_ready(number);
  if (!entry.known->fits(entry.request) && entry.conflict.empty()) {
    entry.count -= 1;
    entry.submitted[static_cast<std::size_t>(rank)] = 0;
    --open_of_[static_cast<std::size_t>(rank)];
    NamedRequest mine = *entry.known;
    if (!entry.known_rows.empty()) mine.rows = entry.known_rows[static_cast<std::size_t>(rank)];
    return submit(rank, mine, now);
  }
  entry.request.is_on_gpu &= entry.known->is_on_gpu;
  if (!entry.known_rows.empty()) {
    entry.rows.resize(world_ranks_.size());
    entry.rows[static_cast<std::size_t>(rank)] = entry.known_rows[static_cast<std::size_t>(rank)];
  }
  look_whether_ready(number);
}

void Negotiation::join(int rank) {
  if (std::exchange(joined_[static_cast<std::size_t>(rank)], char{1}) != 0)
    throw_impossible(rank, "joins twice");
  ++joined_count_;
  last_joined_ = rank;
  for (std::uint32_t i = 0; i < entries_.size(); ++i) {
    if (entries_[i].count > 0) look_whether_ready(i);
  }
}

void Negotiation::look_whether_ready(std::uint32_t index) {
  const Entry& entry = entries_[index];
  auto present = static_cast<std::size_t>(entry.count);
  if (joined_count_ > 0) {
    present = 0;
    for (std::size_t rank = 0; rank < joined_.size(); ++rank)
      present += (entry.submitted[rank] != 0 || joined_[rank] != 0) ? 1 : 0;
  }
  if (present < world_ranks_.size()) return;
  if (joined_count_ == 0 || std::ranges::find(ready_, index) == ready_.end()) make_ready(index);
}

void Negotiation::make_ready(std::uint32_t index) {
  ready_.push_back(index);
  const Entry& entry = entries_[index];
  for (std::size_t rank = 0; rank < entry.submitted.size(); ++rank) {
    if (entry.submitted[rank] != 0) --open_of_[rank];
  }
}

Decision Negotiation::decide(std::uint32_t index) {
  Entry& entry = entries_[index];
  Decision decision;
  decision.number = index;
  const NamedRequest& request = request_of(entry);
  const bool some_have_nothing = static_cast<std::size_t>(entry.count) < world_ranks_.size();
  if (entry.conflict.empty() && some_have_nothing) {
    if (const auto why = why_not_with_nothing(request); !why.empty()) {
      entry.conflict = to_string(request) + " comes when some ranks have joined already, rank " +
                       std::to_string(world_ranks_[static_cast<std::size_t>(last_joined_)]) +
                       " among them: " + why;
    }
  }
  if (!entry.conflict.empty()) {
    decision.kind = Decision::Kind::refuse;
    decision.request.name = request.name;
    decision.why = entry.conflict;
    if (!entry.has_timed_out) return decision;
    decision.code = ErrorCode::timeout;
    if (const auto missing = missing_in(entry); missing.size() == 1) decision.peer = missing.front();
    return decision;
  }
  if (entry.is_as_known && !(some_have_nothing && (!entry.known_rows.empty() || entry.known->is_on_gpu))) {
    decision.is_known = true;
    decision.request = *entry.known;
    decision.rows = entry.known_rows;
    return decision;
  }
  if (entry.is_as_known) entry.rows = entry.known_rows;
  decision.request = request;
  decision.request.is_on_gpu = request.is_on_gpu && !some_have_nothing;  // whose GPU is not known
  const std::size_t width = request.rows.size();
  decision.request.rows.clear();
  if (width > 0) {
    entry.rows.resize(world_ranks_.size());
    for (std::size_t rank = 0; rank < entry.rows.size(); ++rank) {
      if (entry.submitted[rank] == 0) entry.rows[rank].assign(width, 0);
    }
  } else {
    entry.rows.clear();
  }
  decision.rows = entry.rows;
  entry.known = request;
  entry.known->is_on_gpu = decision.request.is_on_gpu;
  entry.known_rows = entry.rows;
  return decision;
}

std::vector<Decision> Negotiation::take_decisions() {
  std::vector<Decision> decisions;
  for (const auto index : std::exchange(ready_, {})) {
    decisions.push_back(decide(index));
    entries_[index].count = 0;  // ranks may submit the name again
    // This place will be another name's: ranks must not keep its number for this one.
    if (index < most_numbers) continue;
    Entry& entry = entries_[index];
    numbers_.erase(entry.is_as_known || entry.known ? entry.known->name : entry.request.name);
    entry = {};
    spare_.push_back(index);
    decisions.back().number = Decision::no_number;
  }
  fuse(decisions);
  if (joined_count_ == static_cast<int>(world_ranks_.size())) {
    Decision all;
    all.kind = Decision::Kind::all_joined;
    all.last_joined = last_joined_;
    decisions.push_back(std::move(all));
    joined_.assign(joined_.size(), 0);
    joined_count_ = 0;
  }
  return decisions;
}

/// Puts decisions that can be one call next to each other, else in their order; a call becomes as large as is
/// allowed.
void Negotiation::fuse(std::vector<Decision>& decisions) const {
  std::vector<Decision> fused;
  std::vector<char> is_taken(decisions.size());
  for (std::size_t i = 0; i < decisions.size(); ++i) {
    if (is_taken[i] != 0) continue;
    const Decision& first = decisions[i];
    std::size_t bytes = bytes_of(first.request);
    std::vector<std::size_t> members = {i};
    for (std::size_t j = i + 1; first.kind == Decision::Kind::start && j < decisions.size(); ++j) {
      const Decision& other = decisions[j];
      if (is_taken[j] != 0 || other.kind != Decision::Kind::start || !are_alike(first.request, other.request))
        continue;
      const std::size_t more = bytes_of(other.request);
      if (bytes + more > fusion_bytes_) break;
      bytes += more;
      members.push_back(j);
    }
    for (const auto member : members) {
      is_taken[member] = 1;
      decisions[member].with_previous = member != i;
    }
    for (const auto member : members) fused.push_back(std::move(decisions[member]));
  }
  decisions = std::move(fused);
}

/// World ranks that have neither submitted it nor joined.
std::vector<int> Negotiation::missing_in(const Entry& entry) const {
  std::vector<int> ranks;
  for (std::size_t rank = 0; rank < world_ranks_.size(); ++rank) {
    if (entry.submitted[rank] == 0 && joined_[rank] == 0) ranks.push_back(world_ranks_[rank]);
  }
  return ranks;
}

std::string Negotiation::line_about(const Entry& entry) const {
  std::vector<int> present;
  for (std::size_t rank = 0; rank < world_ranks_.size(); ++rank) {
    if (entry.submitted[rank] != 0) present.push_back(world_ranks_[rank]);
  }
  return to_string(request_of(entry)) + " was submitted by " + base::name_ranks(present) + ", but not by " +
         base::name_ranks(missing_in(entry));
}

std::vector<std::string> Negotiation::stalled_since(Clock::time_point when) {
  std::vector<std::string> lines;
  for (Entry& entry : entries_) {
    if (entry.count == 0 || entry.since > when || std::exchange(entry.was_told, true)) continue;
    lines.push_back(line_about(entry));
  }
  return lines;
}

std::vector<std::string> Negotiation::open() const {
  std::vector<std::string> lines;
  for (const Entry& entry : entries_) {
    if (entry.count != 0 && entry.conflict.empty()) lines.push_back(line_about(entry));
  }
  return lines;
}

void Negotiation::refuse_stalled_since(Clock::time_point when, std::chrono::nanoseconds waited) {
  for (std::uint32_t i = 0; i < entries_.size(); ++i) {
    Entry& entry = entries_[i];
    if (entry.count == 0 || entry.since > when || !entry.conflict.empty()) continue;
    const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(waited).count();
    entry.conflict = line_about(entry).append(", for ");
    entry.conflict.append(ms < 10'000 ? std::to_string(ms) + " ms" : std::to_string(ms / 1000) + " s");
    entry.has_timed_out = true;
    make_ready(i);
  }
}

}  // namespace lockstep

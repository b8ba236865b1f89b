#include "lockstep/backend/mpi/mpi_exchange.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "lockstep/backend/forked.h"
#include "lockstep/backend/mismatch.h"
#include "lockstep/base/hash.h"
#include "lockstep/base/keep_for_ever.h"
#include "lockstep/schedule/hosts.h"

namespace lockstep {
namespace {

// MPI promises tags up to here.
constexpr std::uint32_t tags = 32767;

std::size_t all_of(const ExchangeCall& call, int ranks) {
  return call.counts.empty() ? static_cast<std::size_t>(ranks) * call.elements
                             : std::accumulate(call.counts.begin(), call.counts.end(), std::size_t{0});
}

}  // namespace

MpiExchange::MpiExchange(std::shared_ptr<MpiLibrary> library, const Members& members,
                         const std::string& group, Deadline deadline)
    : library_(std::move(library)), world_(members.self().world) {
  const auto make_comm = [&](const std::vector<int>& ranks, int tag) {
    std::vector<int> worlds;
    for (const int rank : ranks) worlds.push_back(members[rank].world);
    return Comm{.handle = library_->make_comm(worlds, tag, deadline),
                .rank = static_cast<int>(std::ranges::find(ranks, members.rank()) - ranks.begin()),
                .ranks = static_cast<int>(ranks.size()),
                .other = worlds.front() == world_ ? worlds.back() : worlds.front()};
  };
  const int tag = static_cast<int>(fnv1a_32(group) % (tags / 2));
  std::vector<int> everybody(static_cast<std::size_t>(members.size()));
  std::iota(everybody.begin(), everybody.end(), 0);
  all_ = make_comm(everybody, tag);
  const schedule::Hosts hosts({.rank = members.rank(), .ranks = members.size(), .host_of = members.hosts()});
  if (!hosts.owns_one() || hosts.slices == 1) return;
  std::vector<int> owners;
  for (int host = 0; host < hosts.count(); ++host) owners.push_back(hosts.owner(host, hosts.local));
  slice_ = make_comm(owners, static_cast<int>(tags / 2) + tag);
}

MpiExchange::~MpiExchange() {
  if (is_forked_child()) return;  // it has copies of the parent's connections
  if (!under_way_.empty()) {
    base::keep_for_ever(std::move(under_way_));  // given up: MPI may still use it
    return;
  }
  for (Comm* comm : {&slice_, &all_}) {
    if (comm->handle != nullptr) library_->functions().free_comm(comm->handle);
  }
}

std::uint64_t MpiExchange::start(const ExchangeCall& call) {
  library_->require_not_finalized();
  const Comm& comm = call.among == Among::all ? all_ : slice_;
  UnderWay& mine = under_way_[started_];
  mine.operation = call.operation;
  mine.signature = mine.others_signature = call.signature;
  mine.number = call.number;
  mine.other = comm.other;
  MpiCollective collective{
      .operation = static_cast<int>(call.operation),
      .dtype = static_cast<int>(call.dtype),
      .reduce_op = static_cast<int>(call.reduce_op),
      .root = call.root,
      .rank = comm.rank,
      .ranks = comm.ranks,
      .in_place = call.in_place ? 1 : 0,
      .input = call.input,
      .output = call.output,
      .elements = call.elements,
      .element_bytes = call.element_bytes,
      .counts = call.counts.empty() ? nullptr : call.counts.data(),
      .receive_counts = call.receive_counts.empty() ? nullptr : call.receive_counts.data(),
      .signature = &mine.signature,
      .others_signature = &mine.others_signature};
  if (call.in_place && call.operation == Operation::all_to_all) {
    mine.memory.assign(call.input, call.input + all_of(call, comm.ranks) * call.element_bytes);
    collective.input = mine.memory.data();
    collective.in_place = 0;
  } else if (call.in_place && call.operation == Operation::reduce_scatter) {
    const std::size_t block =
        call.counts.empty() ? call.elements : call.counts[static_cast<std::size_t>(comm.rank)];
    mine.memory.resize(block * call.element_bytes);
    mine.result = call.output;
    collective.output = mine.memory.data();
    collective.in_place = 0;
  }
  try {
    check(library_->functions().start(comm.handle, &collective, &mine.request), call.operation);
  } catch (...) {
    under_way_.erase(started_);
    throw;
  }
  return started_++;
}

bool MpiExchange::is_over(std::uint64_t number) {
  const auto found = under_way_.find(number);
  if (found == under_way_.end()) return true;
  UnderWay& mine = found->second;
  library_->require_not_finalized();
  int is_over = 0;
  check(library_->functions().test(mine.request, &is_over), mine.operation);
  if (is_over == 0) return false;
  require_same_call(mine);
  if (mine.result != nullptr) std::memcpy(mine.result, mine.memory.data(), mine.memory.size());
  under_way_.erase(found);
  return true;
}

void MpiExchange::require_same_call(const UnderWay& mine) const {
  if (mine.signature.matches(mine.others_signature)) return;
  const Caller me{world_, mine.signature, mine.number};
  const Caller other{mine.other, mine.others_signature, mine.number};
  throw world_ < mine.other ? mismatch(me, other) : mismatch(other, me);
}

void MpiExchange::check(int error, Operation operation) const {
  if (error != 0) library_->check(error, "MPI's " + std::string(to_string(operation)));
}

void MpiExchange::give_up() noexcept { library_->note_failure(); }

}  // namespace lockstep

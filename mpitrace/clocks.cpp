#include "mpitrace/clocks.h"

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "lockstep/trace/clock.h"
#include "mpitrace/tell_all.h"

namespace lockstep::mpitrace {
namespace {

constexpr int exchanges = 8;
using Exchanges = std::array<ClockExchange, exchanges>;
static_assert(2 * exchanges == EventsHeader::most_exchanges);

/// What a program receives from any rank must not be ours: a communicator of our own.
MPI_Comm our_comm;
bool has_comm = false;

void send(const void* data, int bytes, int to) {
  using Send = int(const void*, int, MPI_Datatype, int, int, MPI_Comm);
  static const auto send = pmpi<Send>("PMPI_Send");
  send(data, bytes, byte_type(), to, 1, our_comm);
}

void receive(void* data, int bytes, int from) {
  using Receive = int(void*, int, MPI_Datatype, int, int, MPI_Comm, void*);
  static const auto receive = pmpi<Receive>("PMPI_Recv");
  alignas(16) std::array<std::byte, 512> status;  // none of the MPIs needs so much
  receive(data, bytes, byte_type(), from, 1, our_comm, status.data());
}

Exchanges ask(int other) {
  Exchanges all = {};
  for (ClockExchange& one : all) {
    one.asked_ns = trace::now_ns();
    send("", 1, other);
    receive(&one.told_ns, sizeof(one.told_ns), other);
    one.heard_ns = trace::now_ns();
  }
  send(&all, sizeof(all), other);
  return all;
}

Exchanges answer() {
  Exchanges all = {};
  for (int i = 0; i < exchanges; ++i) {
    char question = 0;
    receive(&question, 1, 0);
    const std::uint64_t now = trace::now_ns();
    send(&now, sizeof(now), 0);
  }
  receive(&all, sizeof(all), 0);
  return all;
}

std::int64_t ahead_by(const Exchanges& all) {
  const auto length = [](const ClockExchange& one) { return one.heard_ns - one.asked_ns; };
  const ClockExchange& best = *std::ranges::min_element(all, {}, length);
  return static_cast<std::int64_t>(best.told_ns - (best.asked_ns + length(best) / 2));
}

void note(Events* events, const Exchanges& all) {
  if (events == nullptr) return;
  EventsHeader& header = events->header();
  const std::size_t place = header.exchanges == 0 ? 0 : exchanges;
  std::ranges::copy(all, header.exchanged + place);
  header.exchanges = static_cast<std::uint32_t>(place + exchanges);
}

}  // namespace

Clocks compare_clocks(Events* events, std::uint64_t clock, int rank, int ranks, bool begins) {
  const std::vector<std::uint64_t> clocks = tell_all(clock, ranks);
  if (std::ranges::all_of(clocks, [&](std::uint64_t other) { return other == clocks.front(); })) return {};
  if (begins) {
    pmpi<int(MPI_Comm, MPI_Comm*)>("PMPI_Comm_dup")(comm_world(), &our_comm);
    has_comm = true;
  }
  std::vector<std::int64_t> ahead(clocks.size());
  for (std::size_t other = 1; has_comm && other < clocks.size(); ++other) {
    const auto first = static_cast<std::size_t>(std::ranges::find(clocks, clocks[other]) - clocks.begin());
    if (first != other) {
      ahead[other] = ahead[first];
    } else if (rank == 0) {
      ahead[other] = ahead_by(ask(static_cast<int>(other)));
    } else if (rank == static_cast<int>(other)) {
      note(events, answer());
    }
  }
  std::int64_t mine = 0;
  using Scatter = int(const void*, int, MPI_Datatype, void*, int, MPI_Datatype, int, MPI_Comm);
  pmpi<Scatter>("PMPI_Scatter")(ahead.data(), sizeof(mine), byte_type(), &mine, sizeof(mine), byte_type(), 0,
                                comm_world());
  if (!begins) {
    pmpi<int(MPI_Comm*)>("PMPI_Comm_free")(&our_comm);
    has_comm = false;
  }
  return {.are_several = true, .ahead_ns = mine};
}

}  // namespace lockstep::mpitrace

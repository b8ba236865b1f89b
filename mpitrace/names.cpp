// Names of communicators: the program's; of one that has none its ranks in MPI_COMM_WORLD, which all of them say alike.
#include <algorithm>
#include <array>
#include <exception>
#include <numeric>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/base/words.h"
#include "mpitrace/call.h"

namespace lockstep::mpitrace {
namespace {

constexpr int most_ranks_named = 4096;

std::vector<int> ranks_in_world(MPI_Comm comm) {
  static const auto group_of = pmpi<int(MPI_Comm, MPI_Group*)>("PMPI_Comm_group");
  static const auto size_of = pmpi<int(MPI_Group, int*)>("PMPI_Group_size");
  static const auto translate =
      pmpi<int(MPI_Group, int, const int*, MPI_Group, int*)>("PMPI_Group_translate_ranks");
  static const auto free_group = pmpi<int(MPI_Group*)>("PMPI_Group_free");
  MPI_Group group{}, world{};
  group_of(comm, &group);
  group_of(comm_world(), &world);
  int size = 0;
  size_of(group, &size);
  std::vector<int> ranks(static_cast<std::size_t>(std::clamp(size, 0, most_ranks_named)));
  std::vector<int> own(ranks.size());
  std::iota(own.begin(), own.end(), 0);
  translate(group, static_cast<int>(own.size()), own.data(), world, ranks.data());
  free_group(&group);
  free_group(&world);
  std::erase_if(ranks, [](int rank) { return rank < 0; });  // of another world
  std::ranges::sort(ranks);
  return ranks;
}

std::string name_of(MPI_Comm comm) {
  static const auto get_name = pmpi<int(MPI_Comm, char*, int*)>("PMPI_Comm_get_name");
  std::array<char, 512> text = {};  // MPI_MAX_OBJECT_NAME is 128 at most
  int length = 0;
  get_name(comm, text.data(), &length);
  const std::string_view name = text.data();
  if (!name.empty() && !name.starts_with("MPI COMMUNICATOR ")) return std::string(name);  // Open MPI's own
  static const auto is_between = pmpi<int(MPI_Comm, int*)>("PMPI_Comm_test_inter");
  int between = 0;
  is_between(comm, &between);
  return "of " + base::name_rank_ranges(ranks_in_world(comm)) + (between != 0 ? " and others" : "");
}

}  // namespace

std::uint16_t look_up_number(MPI_Comm comm, KnownComm& known) noexcept {
  if (comm == comm_null()) return 0;
  try {
    known.changes = name_changes.load(std::memory_order_relaxed) + 1;
    known.comm = comm;
    return known.number = period.events->number_of(name_of(comm));
  } catch (const std::exception&) {
    return known.number = 0;
  }
}

}  // namespace lockstep::mpitrace

// The measuring program of every MPI: the peer's own mpicxx compiles it (program.py), and it is timed as
// Lockstep is (collectives/measure.h). bf16 is summed as MPI's users do it, by an operation of their own,
// unless BENCH_BF16 names a datatype of this MPI's that is better at it.
#include <mpi.h>

#include <cstdio>
#include <exception>

#include "collectives/measure.h"

namespace {

using bench::Case;
using bench::Operation;

float to_float(std::uint16_t half) {
  const std::uint32_t bits = static_cast<std::uint32_t>(half) << 16U;
  float value = 0;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

std::uint16_t round_to_bf16(float value) {  // to nearest even
  std::uint32_t bits = 0;
  std::memcpy(&bits, &value, sizeof(bits));
  return static_cast<std::uint16_t>((bits + 0x7fffU + ((bits >> 16U) & 1U)) >> 16U);
}

void add_bf16(void* in, void* in_out, int* count, MPI_Datatype*) {
  const auto* source = static_cast<const std::uint16_t*>(in);
  auto* sum = static_cast<std::uint16_t*>(in_out);
  for (int i = 0; i < *count; ++i) sum[i] = round_to_bf16(to_float(sum[i]) + to_float(source[i]));
}

#ifdef BENCH_BF16
const MPI_Datatype bf16 = BENCH_BF16;
constexpr bool knows_bf16 = true;
#else
const MPI_Datatype bf16 = MPI_UINT16_T;
constexpr bool knows_bf16 = false;
#endif

class Mpi final : public bench::Contestant {
 public:
  explicit Mpi(std::size_t bytes) : input_(bytes), output_(bytes) { MPI_Op_create(add_bf16, 1, &add_bf16_); }
  ~Mpi() override { MPI_Op_free(&add_bf16_); }
  std::byte* input() override { return input_.span().data(); }
  std::byte* output(const Case& what) override {
    return (in_place(what.op) ? input_ : output_).span().data();
  }
  void barrier() override { MPI_Barrier(MPI_COMM_WORLD); }

  std::function<void()> prepare(const Case& what) override {
    const bool floats = what.dtype == "f32";
    const MPI_Datatype type = floats ? MPI_FLOAT : bf16;
    const MPI_Op sum = floats || knows_bf16 ? MPI_SUM : add_bf16_;
    const int count = static_cast<int>(what.elements);
    const int part = static_cast<int>(what.part());
    const MPI_Comm world = MPI_COMM_WORLD;
    void* in = input();
    void* out = output(what);
    switch (what.op) {
      case Operation::all_reduce: return [=] { MPI_Allreduce(MPI_IN_PLACE, in, count, type, sum, world); };
      case Operation::reduce_scatter:
        return [=] { MPI_Reduce_scatter_block(in, out, part, type, sum, world); };
      case Operation::all_gather: return [=] { MPI_Allgather(in, part, type, out, part, type, world); };
      case Operation::broadcast: return [=] { MPI_Bcast(in, count, type, 0, world); };
      case Operation::reduce: return [=] { MPI_Reduce(in, out, count, type, sum, 0, world); };
      case Operation::all_to_all: return [=] { MPI_Alltoall(in, part, type, out, part, type, world); };
      case Operation::send_recv: break;
    }
    if (what.partner() == what.ranks) return [] {};
    return [=, partner = what.partner(), first = what.rank < what.partner()] {
      if (first) MPI_Send(in, count, type, partner, 0, world);
      MPI_Recv(out, count, type, partner, 0, world, MPI_STATUS_IGNORE);
      if (!first) MPI_Send(in, count, type, partner, 0, world);
    };
  }

 private:
  bench::Memory input_;
  bench::Memory output_;
  MPI_Op add_bf16_ = MPI_OP_NULL;
};

void run(const bench::Options& options) {
  int rank = 0;
  int ranks = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  if (ranks != options.ranks) throw std::runtime_error("this job does not have --ranks ranks");
  bench::Session session(options.session, rank, ranks, options.crowded(), 2 * options.second_buffer());
  Mpi mpi(options.most_bytes());
  bench::for_each_case(options, rank,
                       [&](const Case& what) { bench::measure(options, session, mpi, what, "private"); });
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const bench::Options options = bench::parse(argc, argv);
    bench::pin(options, bench::rank_from_environment());
    MPI_Init(&argc, &argv);
    run(options);
    MPI_Finalize();
  } catch (const std::exception& error) {
    (void)std::fprintf(stderr, "mpi_collectives: %s\n", error.what());
    return 1;  // the launcher ends the other ranks
  }
  return 0;
}

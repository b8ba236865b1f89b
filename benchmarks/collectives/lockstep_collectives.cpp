// Lockstep's measuring program: private and arena buffers, and beside them what memory takes without any
// waiting, by our kernel and by a triad; on several hosts, what plain sockets make of the same bytes.
// benchmarks/collectives/run starts it under `lockstep run`; with --list it says which operations it has.
#include <cstdio>
#include <exception>
#include <map>
#include <optional>
#include <span>
#include <string_view>

#include "collectives/kernel_alone.h"
#include "collectives/measure.h"
#include "collectives/pages.h"
#include "collectives/socket_exchange.h"
#include "collectives/triad.h"
#include "lockstep/base/pages.h"
#include "lockstep/lockstep.h"

namespace {

using bench::Case;
using bench::Operation;

// One call's arguments. The spans are as long as operation.h says; `output` is empty for what works in place.
struct Arguments {
  const lockstep::Group& world;
  std::span<std::byte> input;
  std::span<std::byte> output;
  lockstep::Dtype dtype;
  int partner;
};

void ping_pong(const Arguments& on) {
  if (on.partner == on.world.size()) return;
  const bool first = on.world.rank() < on.partner;
  if (first) lockstep::send_bytes(on.world, on.input, on.partner).wait();
  lockstep::recv_bytes(on.world, on.output, on.partner).wait();
  if (!first) lockstep::send_bytes(on.world, on.input, on.partner).wait();
}

// What Lockstep can do. An operation that it learns becomes a line here.
const std::map<Operation, void (*)(const Arguments&)> calls{
    {Operation::all_reduce,
     [](const Arguments& on) {
       lockstep::all_reduce_bytes(on.world, on.input, on.input, {.dtype = on.dtype}).wait();
     }},
    {Operation::reduce_scatter,
     [](const Arguments& on) {
       lockstep::reduce_scatter_bytes(on.world, on.input, on.output, {.dtype = on.dtype}).wait();
     }},
    {Operation::all_gather,
     [](const Arguments& on) { lockstep::all_gather_bytes(on.world, on.input, on.output).wait(); }},
    {Operation::broadcast,
     [](const Arguments& on) { lockstep::broadcast_bytes(on.world, on.input, 0).wait(); }},
    {Operation::reduce,
     [](const Arguments& on) {
       lockstep::reduce_bytes(on.world, on.input, on.output, 0, {.dtype = on.dtype}).wait();
     }},
    {Operation::all_to_all,
     [](const Arguments& on) { lockstep::all_to_all_bytes(on.world, on.input, on.output).wait(); }},
    {Operation::send_recv, ping_pong}};

class OnBuffers final : public bench::Contestant {
 public:
  OnBuffers(lockstep::Group world, std::span<std::byte> input, std::span<std::byte> output)
      : world_(std::move(world)), input_(input), output_(output) {}
  std::byte* input() override { return input_.data(); }
  std::byte* output(const Case& what) override { return (in_place(what.op) ? input_ : output_).data(); }
  void barrier() override { lockstep::barrier(world_).wait(); }
  std::function<void()> prepare(const Case& what) override {
    const auto call = calls.find(what.op);
    if (call == calls.end()) {
      throw std::invalid_argument(std::string("lockstep cannot do ") + name_of(what.op) + " yet");
    }
    const std::size_t size = bench::size_of(what.dtype);
    const Arguments on{world_, input_.first(input_elements(what) * size),
                       output_.first(in_place(what.op) ? 0 : output_elements(what) * size),
                       what.dtype == "f32" ? lockstep::Dtype::f32 : lockstep::Dtype::bf16, what.partner()};
    return [on, run = call->second] { run(on); };
  }

 private:
  lockstep::Group world_;
  std::span<std::byte> input_;
  std::span<std::byte> output_;
};

/// Memory of the program's own, in pages that have nothing else, and that other ranks reach.
class Registered {
 public:
  Registered(const lockstep::Group& world, std::size_t bytes)
      : memory_(bytes + 2 * lockstep::base::page_bytes),
        registered_(world.register_memory(pages_of(memory_.span(), bytes))) {}
  std::span<std::byte> span() const { return registered_.bytes(); }

 private:
  static std::span<std::byte> pages_of(std::span<std::byte> memory, std::size_t bytes) {
    return memory.subspan(lockstep::base::page_bytes - lockstep::base::offset_in_page(memory.data()), bytes);
  }

  bench::Memory memory_;
  lockstep::RegisteredMemory registered_;
};

void run(const bench::Options& options) {
  const lockstep::Group world = lockstep::init();
  if (world.size() != options.ranks) throw std::runtime_error("this job does not have --ranks ranks");
  const std::size_t bytes = options.most_bytes();
  bench::Session session(options.session, world.rank(), world.size(), options.crowded(),
                         2 * options.second_buffer());
  const auto arena_input = world.allocate<std::byte>(bytes);
  const auto arena_output = world.allocate<std::byte>(bytes);
  const bench::Memory input(bytes);
  const bench::Memory output(bytes);
  const Registered registered_input(world, bytes);
  const Registered registered_output(world, bytes);
  OnBuffers on_arena(world, arena_input.span(), arena_output.span());
  OnBuffers on_private(world, input.span(), output.span());
  OnBuffers on_registered(world, registered_input.span(), registered_output.span());
  bench::KernelAlone kernel(session, options.second_buffer());
  bench::Triad triad(session, bench::Triad::Stores::ordinary);
  bench::Triad streamed_triad(session, bench::Triad::Stores::streamed);
  std::optional<bench::SocketExchange> exchange;
  if (!options.addresses.empty()) {
    exchange.emplace(options, session, [&](int port) {
      std::vector<int> ports(static_cast<std::size_t>(world.size()));
      lockstep::all_gather(world, std::span<const int>(&port, 1), ports).wait();
      return ports;
    });
  }
  std::map<std::string, bench::Contestant*> contestants{
      {"private", &on_private}, {"arena", &on_arena}, {"registered", &on_registered},
      {"kernel", &kernel},      {"triad", &triad},    {"streamed_triad", &streamed_triad}};
  if (exchange) contestants["exchange"] = &*exchange;
  bench::for_each_case(options, world.rank(), [&](const Case& what) {
    for (const std::string& buffer : options.buffers) {
      const auto contestant = contestants.find(buffer);
      if (contestant == contestants.end()) throw std::invalid_argument("unknown buffer '" + buffer + "'");
      bench::measure(options, session, *contestant->second, what, buffer);
    }
  });
  if (world.rank() != 0) return;
  std::printf(
      "{\"huge_pages\": {\"private\": %.2f, \"arena\": %.2f, \"registered\": %.2f, \"kernel\": %.2f}}\n",
      bench::huge_share(input.span().data()), bench::huge_share(arena_input.span().data()),
      bench::huge_share(registered_input.span().data()), bench::huge_share(session.buffer(0)));
}

}  // namespace

int main(int argc, char** argv) {
  try {
    if (argc == 2 && std::string_view(argv[1]) == "--list") {
      for (const auto& [operation, call] : calls) std::printf("%s\n", bench::name_of(operation));
      return 0;
    }
    const bench::Options options = bench::parse(argc, argv);
    bench::pin(options, bench::rank_from_environment());
    run(options);
  } catch (const std::exception& error) {
    (void)std::fprintf(stderr, "lockstep_collectives: %s\n", error.what());
    return 1;
  }
  return 0;
}

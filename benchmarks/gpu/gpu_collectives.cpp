// How long collectives on GPUs' memory take, by Lockstep or by NCCL alone, and a copy on the GPU; benchmarks/gpu/run starts it under
// `lockstep run`. Rank 0 prints a line of JSON for each operation and size: microseconds of one call that the host waits for, and of
// one of many that are under way at once.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <functional>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/backend/device_arena/kernel_image.h"
#include "lockstep/backend/nccl/nccl_library.h"
#include "lockstep/group/gpu_calls.h"
#include "lockstep/lockstep.h"
#include "lockstep/memory/cuda_sharing.h"
#include "lockstep/memory/gpu.h"

namespace {

namespace cuda = lockstep::cuda;
namespace nccl = lockstep::nccl;
using lockstep::Group;
using Clock = std::chrono::steady_clock;

struct Options {
  int device = -1;  // the rank's own
  std::string by = "lockstep";
  std::vector<std::string> operations = {"all_reduce", "all_gather", "reduce_scatter", "broadcast"};
  std::vector<std::size_t> sizes = {4, 1024, 65536, 1U << 20U, 16U << 20U, 64U << 20U, 256U << 20U};
  int calls = 20, rounds = 11;
};

cuda::Address address_of(const void* memory) {
  return static_cast<cuda::Address>(reinterpret_cast<std::uintptr_t>(memory));
}

/// Of this rank's GPU: where all ranks reach it if they share one, else anywhere.
class Memory {
 public:
  Memory(const Group& world, const cuda::Driver& driver, int device, std::size_t bytes) : driver_(driver) {
    void* memory = nullptr;
    shared_ = lockstep::allocate_on_gpu(world, device, bytes, &memory);
    if (!shared_) driver_.check(driver_.allocate(&own_, bytes), "allocating memory on the GPU");
    begin_ = shared_ ? static_cast<std::byte*>(memory)
                     : reinterpret_cast<std::byte*>(static_cast<std::uintptr_t>(own_));
  }
  ~Memory() {
    if (!shared_) (void)driver_.free(own_);
  }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  std::byte* begin() const { return begin_; }

 private:
  const cuda::Driver& driver_;
  std::shared_ptr<void> shared_;
  cuda::Address own_ = 0;
  std::byte* begin_ = nullptr;
};

/// A call that is put on the stream. `bytes`: of the larger of a rank's buffers.
using Call = std::function<void(const std::string& operation, std::size_t bytes)>;

Call by_lockstep(const Group& world, const Memory& in, const Memory& out,
                 const lockstep::MemoryPlace& place) {
  return [=, &in, &out](const std::string& operation, std::size_t bytes) {
    const auto ranks = static_cast<std::size_t>(world.size());
    const std::span all_in(reinterpret_cast<float*>(in.begin()),
                           std::max<std::size_t>(bytes / sizeof(float), ranks));
    const std::span all_out(reinterpret_cast<float*>(out.begin()), all_in.size());
    const std::size_t part = all_in.size() / ranks;
    lockstep::Work work;
    if (operation == "all_reduce") {
      work = all_reduce(world, all_out, lockstep::ReduceOp::sum, {.place = place});
    } else if (operation == "all_gather") {
      work = all_gather(world, all_in.first(part), all_out.first(part * ranks), place);
    } else if (operation == "reduce_scatter") {
      work = reduce_scatter(world, all_in.first(part * ranks), all_out.first(part), lockstep::ReduceOp::sum,
                            {.place = place});
    } else {
      work = broadcast(world, all_out, 0, place);
    }
    work.wait();
  };
}

/// A communicator of the benchmark's own, without anything of Lockstep's between.
class Nccl {
 public:
  explicit Nccl(const Group& world) : library_(nccl::Library::get()), ranks_(world.size()) {
    nccl::UniqueId id{};
    if (world.rank() == 0) require(library_.get_unique_id(&id));
    lockstep::broadcast(world, std::span(id.bytes), 0).wait();
    nccl::Config config;
    config.blocking = 0;
    require(library_.init_rank(&comm_, ranks_, id, world.rank(), &config));
  }
  ~Nccl() { (void)library_.abort(comm_); }
  Nccl(const Nccl&) = delete;
  Nccl& operator=(const Nccl&) = delete;

  void call(const std::string& operation, std::size_t bytes, const Memory& in, const Memory& out,
            cuda::Stream stream) const {
    const auto ranks = static_cast<std::size_t>(ranks_);
    const std::size_t all = std::max<std::size_t>(bytes / sizeof(float), ranks), part = all / ranks;
    void *const from = in.begin(), *const to = out.begin();
    if (operation == "all_reduce") {
      require(library_.all_reduce(to, to, all, nccl::float32, nccl::sum, comm_, stream));
    } else if (operation == "all_gather") {
      require(library_.all_gather(from, to, part, nccl::float32, comm_, stream));
    } else if (operation == "reduce_scatter") {
      require(library_.reduce_scatter(from, to, part, nccl::float32, nccl::sum, comm_, stream));
    } else {
      require(library_.broadcast(to, to, all, nccl::float32, 0, comm_, stream));
    }
  }

 private:
  /// Waits until what was begun is settled.
  void require(nccl::Result result) const {
    while (result == nccl::in_progress) {
      nccl::Result state = nccl::success;
      result = library_.async_error(comm_, &state);
      if (result == nccl::success) result = state;
    }
    if (result != nccl::success) throw std::runtime_error("NCCL: " + library_.text_of(result, comm_));
  }

  const nccl::Library& library_;
  int ranks_;
  nccl::Comm comm_ = nullptr;
};

double median(std::vector<double> values) {
  std::ranges::nth_element(values, values.begin() + std::ssize(values) / 2);
  return values[values.size() / 2];
}

/// Microseconds of each of so many calls, until the GPU is through with them.
double us_of(const Group& world, const cuda::Driver& driver, cuda::Stream stream, int rounds, int calls,
             const std::function<void()>& call) {
  std::vector<double> times;
  for (int round = 0; round <= rounds; ++round) {
    barrier(world).wait();
    const auto begin = Clock::now();
    for (int i = 0; i < calls; ++i) call();
    driver.check(driver.synchronize(stream), "waiting for the GPU");
    const std::chrono::duration<double, std::micro> took = Clock::now() - begin;
    if (round > 0) times.push_back(took.count() / calls);
  }
  return median(std::move(times));
}

void run(Options options) {
  const Group world = lockstep::init();
  if (options.device < 0) options.device = world.local_rank();
  if (std::getenv("STANDIN_KERNELS") != nullptr) lockstep::device_arena::take_kernels_of_the_driver();
  const cuda::Driver& driver = cuda::Driver::get();
  const auto gpu = lockstep::Gpu::open(options.device);
  const lockstep::Gpu::Current current(*gpu);
  cuda::Stream stream = nullptr;
  driver.check(driver.make_stream(&stream, cuda::stream_non_blocking, 0), "making a stream");
  const std::size_t most = std::max(*std::ranges::max_element(options.sizes),
                                    sizeof(float) * static_cast<std::size_t>(world.size()));
  const Memory in(world, driver, options.device, most), out(world, driver, options.device, most);
  std::unique_ptr<Nccl> nccl;
  Call call;
  if (options.by == "nccl") {
    nccl = std::make_unique<Nccl>(world);
    call = [&](const std::string& operation, std::size_t bytes) {
      nccl->call(operation, bytes, in, out, stream);
    };
  } else if (options.by ==
             "copy") {  // of all that a call of these bytes reads and writes at least, by one rank
    const auto& sharing = cuda::SharingDriver::get();
    call = [&](const std::string&, std::size_t bytes) {
      driver.check(sharing.copy(address_of(out.begin()), address_of(in.begin()), bytes, stream), "copying");
    };
  } else {
    call = by_lockstep(world, in, out, {.device = options.device, .stream = stream});
  }
  for (const std::string& operation : options.operations) {
    for (const std::size_t bytes : options.sizes) {
      const auto once = [&] { call(operation, bytes); };
      const double one = us_of(world, driver, stream, options.rounds, 1, once);
      const double at_once = us_of(world, driver, stream, options.rounds, options.calls, once);
      if (world.rank() != 0) continue;
      std::printf(
          "{\"op\": \"%s\", \"bytes\": %zu, \"one_us\": %.3f, \"at_once_us\": %.3f, \"gpu\": \"%s\"}\n",
          operation.c_str(), bytes, one, at_once, gpu->name().c_str());
    }
  }
  nccl = nullptr;
  (void)driver.destroy_stream(stream);
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app("Times collectives on GPUs.");
  app.add_option("--device", options.device, "of all ranks; else each has its own");
  app.add_option("--by", options.by)->check(CLI::IsMember({"lockstep", "nccl", "copy"}));
  app.add_option("--op", options.operations)
      ->delimiter(',')
      ->check(CLI::IsMember({"all_reduce", "all_gather", "reduce_scatter", "broadcast"}));
  app.add_option("--sizes", options.sizes)->delimiter(',');
  app.add_option("--calls", options.calls, "under way at once");
  app.add_option("--rounds", options.rounds);
  CLI11_PARSE(app, argc, argv);
  try {
    run(options);
  } catch (const std::exception& error) {
    (void)std::fprintf(stderr, "gpu_collectives: %s\n", error.what());
    return 1;
  }
  return 0;
}

// What has to be seen of NCCL on a real GPU (docs/gpu.md), by one rank or, under `lockstep run`, by one for each GPU. Prints a line
// for each check, and exits with 1 where one fails. Over the stand-in it checks itself.
//
//   check_gpu [--device N]
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

#include "lockstep/backend/nccl/nccl_library.h"
#include "lockstep/base/error.h"
#include "lockstep/lockstep.h"
#include "lockstep/memory/gpu.h"
#include "tests/conformance/conformance.h"

namespace {

namespace cuda = lockstep::cuda;
namespace nccl = lockstep::nccl;
using lockstep::Group;
using lockstep::MemoryPlace;
using Clock = std::chrono::steady_clock;

/// What the checks need of the driver beyond what Lockstep does.
struct Driver {
  lockstep::LoadedLibrary library{"libcuda.so.1", "this is for a machine with a GPU"};
  cuda::Result (*allocate_managed)(cuda::Address*, std::size_t, unsigned) =
      library.function<decltype(allocate_managed)>("cuMemAllocManaged");
  cuda::Result (*fill)(cuda::Address, unsigned, std::size_t,
                       cuda::Stream) = library.function<decltype(fill)>("cuMemsetD32Async");
  cuda::Result (*copy_out)(void*, cuda::Address,
                           std::size_t) = library.function<decltype(copy_out)>("cuMemcpyDtoH_v2");
  cuda::Result (*synchronize)(cuda::Stream) = library.function<decltype(synchronize)>("cuStreamSynchronize");
};

void require(bool is_so, const std::string& what) {
  if (!is_so) throw std::runtime_error(what);
}

double median(std::vector<double> values) {
  std::ranges::nth_element(values, values.begin() + std::ssize(values) / 2);
  return values[values.size() / 2];
}

void conform(const Group& world, int device, const Driver& driver) {
  const lockstep::testing::GpuMemory gpu{
      .place = {.device = device},
      .allocate =
          [&](std::size_t bytes) {
            constexpr unsigned seen_by_all = 1;
            cuda::Address address = 0;
            require(driver.allocate_managed(&address, std::max<std::size_t>(bytes, 1), seen_by_all) == 0,
                    "cuMemAllocManaged");
            return reinterpret_cast<std::byte*>(static_cast<std::uintptr_t>(address));
          },
      .release =
          [](std::byte* memory) {
            (void)cuda::Driver::get().free(
                static_cast<cuda::Address>(reinterpret_cast<std::uintptr_t>(memory)));
          },
      .supports = lockstep::testing::nccl_reduces};
  constexpr std::size_t counts[] = {0, 1, 33, 3001};
  const lockstep::testing::ConformanceOptions options{.counts = counts, .gpu = &gpu};
  lockstep::testing::check_reductions(world, options);
  lockstep::testing::check_movements(world, options);
}

/// A kernel of the program's fills, NCCL adds, and the next kernel's copy sees the sum: a thousand times, without a wait of the host.
void keep_the_order_of_streams(const Group& world, int device, const Driver& driver) {
  const cuda::Driver& ours = cuda::Driver::get();
  constexpr std::size_t elements = std::size_t{1} << 20;
  cuda::Stream stream = nullptr;
  cuda::Address memory = 0;
  ours.check(ours.make_stream(&stream, cuda::stream_non_blocking, 0), "making a stream");
  ours.check(ours.allocate(&memory, elements * sizeof(int)), "allocating");
  const std::span<int> values(reinterpret_cast<int*>(static_cast<std::uintptr_t>(memory)), elements);
  for (int step = 1; step <= 1000; ++step) {
    require(driver.fill(memory, static_cast<unsigned>(step), elements, stream) == 0, "cuMemsetD32Async");
    lockstep::all_reduce(world, values, lockstep::ReduceOp::sum,
                         {.place = {.device = device, .stream = stream}})
        .wait();
    if (step % 100 != 0) continue;
    require(driver.synchronize(stream) == 0, "cuStreamSynchronize");
    std::vector<int> seen(elements);
    require(driver.copy_out(seen.data(), memory, elements * sizeof(int)) == 0, "cuMemcpyDtoH");
    require(std::ranges::count(seen, step * world.size()) == std::ssize(seen),
            "a sum is not what the stream was given");
  }
  (void)ours.free(memory);
  (void)ours.destroy_stream(stream);
}

/// Of what this rank's program waits for in a call, beside NCCL's alone.
void time_calls(int device, const Driver& driver) {
  const cuda::Driver& ours = cuda::Driver::get();
  const nccl::Library& library = nccl::Library::get();
  cuda::Stream stream = nullptr;
  cuda::Address memory = 0;
  ours.check(ours.make_stream(&stream, cuda::stream_non_blocking, 0), "making a stream");
  ours.check(ours.allocate(&memory, 4), "allocating");
  void* const address = reinterpret_cast<void*>(static_cast<std::uintptr_t>(memory));
  nccl::UniqueId id{};
  nccl::Comm comm = nullptr;
  nccl::Config config;
  config.blocking = 0;
  require(library.get_unique_id(&id) == nccl::success, "ncclGetUniqueId");
  nccl::Result state = library.init_rank(&comm, 1, id, 0, &config);
  while (state == nccl::in_progress) (void)library.async_error(comm, &state);
  require(state == nccl::success, "ncclCommInitRank");
  const Group alone;
  const MemoryPlace place{.device = device, .stream = stream};
  const auto us_of = [&](auto call) {
    std::vector<double> us;
    for (int window = 0; window < 50; ++window) {
      constexpr int calls = 100;
      const auto begin = Clock::now();
      for (int i = 0; i < calls; ++i) call();
      us.push_back(std::chrono::duration<double, std::micro>(Clock::now() - begin).count() / calls);
      (void)driver.synchronize(stream);
    }
    return median(us);
  };
  const std::span<float> one(static_cast<float*>(address), 1);
  const auto by_lockstep = [&] {
    lockstep::all_reduce(alone, one, lockstep::ReduceOp::sum, {.place = place}).wait();
  };
  const auto by_nccl = [&] {
    (void)library.all_reduce(address, address, 1, nccl::float32, nccl::sum, comm, stream);
    nccl::Result settled = nccl::in_progress;
    while (settled == nccl::in_progress) (void)library.async_error(comm, &settled);
  };
  by_lockstep();
  by_nccl();
  const double here = us_of(by_lockstep), there = us_of(by_nccl);
  std::printf("a call of 4 bytes: %.2f us, ncclAllReduce alone %.2f us, %.2f us more (target: 2)\n", here,
              there, here - there);
  (void)library.destroy(comm);
  (void)ours.free(memory);
  (void)ours.destroy_stream(stream);
}

int device_of(int argc, char** argv, const Group& world) {
  if (argc == 3 && std::strcmp(argv[1], "--device") == 0) return std::atoi(argv[2]);
  return world.local_rank();
}

}  // namespace

int main(int argc, char** argv) try {
  const Group world = lockstep::init();
  const int device = device_of(argc, argv, world);
  const Driver driver;
  const auto gpu = lockstep::Gpu::open(device);
  const lockstep::Gpu::Current current(*gpu);
  std::printf("rank %d of %d on GPU %d, %s, NCCL %s\n", world.rank(), world.size(), device,
              gpu->name().c_str(), nccl::Library::get().version_text().c_str());
  conform(world, device, driver);
  std::printf("collectives: right, of all types that NCCL has\n");
  keep_the_order_of_streams(world, device, driver);
  std::printf("streams: in order\n");
  time_calls(device, driver);
} catch (const std::exception& error) {
  std::printf("failed: %s\n", error.what());
  return 1;
}

// What has to be seen on a real GPU (docs/gpu.md): of NCCL by one rank or, under `lockstep run`, by one for each GPU; of device arenas
// by several ranks with one --device. Prints a line for each check, and exits with 1 where one fails. Over the stand-in it checks
// itself.
//
//   check_gpu [--device N] [--times N] [--largest BYTES]       --times 0: only how long calls in the arena take
//   check_gpu --signal N         rank 1 gets the signal within calls; the others say whom they have lost
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "lockstep/backend/device_arena/kernel_image.h"
#include "lockstep/backend/nccl/nccl_library.h"
#include "lockstep/base/error.h"
#include "lockstep/group/gpu_calls.h"
#include "lockstep/group/gpu_update.h"
#include "lockstep/lockstep.h"
#include "lockstep/memory/cuda_sharing.h"
#include "lockstep/memory/gpu.h"
#include "tests/conformance/conformance.h"
#include "tests/gpu/check_updates.h"

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

struct Arguments {
  int device = -1;  // the rank's own
  int times = 1000;
  std::size_t largest = std::size_t{256} << 20;
  int signal = 0;
};

void conform(const Group& world, int device, const Driver& driver, bool is_shared) {
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
      .supports =
          [is_shared](lockstep::Dtype dtype, lockstep::ReduceOp op) {
            return is_shared ? op != lockstep::ReduceOp::custom : lockstep::testing::nccl_reduces(dtype, op);
          }};
  constexpr std::size_t counts[] = {0, 1, 33, 3001};
  const lockstep::testing::ConformanceOptions options{.counts = counts, .gpu = &gpu};
  lockstep::testing::check_reductions(world, options);
  lockstep::testing::check_movements(world, options);
}

/// A kernel of the program's fills, NCCL adds, and the next kernel's copy sees the sum: again and again, without a wait of the host.
void keep_the_order_of_streams(const Group& world, int device, const Driver& driver, int times) {
  const cuda::Driver& ours = cuda::Driver::get();
  constexpr std::size_t elements = std::size_t{1} << 20;
  cuda::Stream stream = nullptr;
  cuda::Address memory = 0;
  ours.check(ours.make_stream(&stream, cuda::stream_non_blocking, 0), "making a stream");
  ours.check(ours.allocate(&memory, elements * sizeof(int)), "allocating");
  const std::span<int> values(reinterpret_cast<int*>(static_cast<std::uintptr_t>(memory)), elements);
  for (int step = 1; step <= times; ++step) {
    require(driver.fill(memory, static_cast<unsigned>(step), elements, stream) == 0, "cuMemsetD32Async");
    lockstep::all_reduce(world, values, lockstep::ReduceOp::sum,
                         {.place = {.device = device, .stream = stream}})
        .wait();
    if (step % 100 != 0 && step != times) continue;
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

/// Memory that all ranks of one GPU reach.
class ArenaMemory {
 public:
  ArenaMemory(const Group& world, int device, std::size_t bytes)
      : block_(lockstep::allocate_on_gpu(world, device, bytes, &memory_)) {}
  template <class T>
  std::span<T> at(std::size_t first, std::size_t count) const {
    return {static_cast<T*>(memory_) + first, count};
  }

 private:
  void* memory_ = nullptr;
  std::shared_ptr<void> block_;
};

cuda::Address address_of(const void* memory) {
  return static_cast<cuda::Address>(reinterpret_cast<std::uintptr_t>(memory));
}

/// Optimizers' steps: of this rank's tensors, and of all ranks that share the GPU together.
void try_updates(const Group& world, const Driver& driver, int device) {
  if (!lockstep::can_update_on_gpu(device)) {
    std::printf("optimizers: not in this Lockstep, which was built without nvcc\n");
    return;
  }
  const cuda::Driver& ours = cuda::Driver::get();
  lockstep::testing::GpuAccess access{
      .place = {.device = device},
      .allocate =
          [&](std::size_t bytes, void** on_gpu) {
            cuda::Address address = 0;
            ours.check(ours.allocate(&address, bytes), "allocating");
            *on_gpu = reinterpret_cast<void*>(static_cast<std::uintptr_t>(address));
            return std::shared_ptr<void>(*on_gpu,
                                         [&ours](void* memory) { (void)ours.free(address_of(memory)); });
          },
      .write =
          [&](void* on_gpu, const void* from, std::size_t bytes) {
            if (bytes == 0) return;
            require(cuda::SharingDriver::get().copy_in(address_of(on_gpu), from, bytes, nullptr) == 0,
                    "cuMemcpyHtoDAsync");
            require(driver.synchronize(nullptr) == 0, "cuStreamSynchronize");
          },
      .read =
          [&](void* to, const void* on_gpu, std::size_t bytes) {
            require(driver.synchronize(nullptr) == 0, "cuStreamSynchronize");
            if (bytes > 0) require(driver.copy_out(to, address_of(on_gpu), bytes) == 0, "cuMemcpyDtoH");
          }};
  lockstep::testing::check_updates(Group(), access);
  if (lockstep::shares_gpu(world, device)) {
    access.allocate = [&](std::size_t bytes, void** on_gpu) {
      return lockstep::allocate_on_gpu(world, device, bytes, on_gpu);
    };
    lockstep::testing::check_updates(world, access);
  }
  std::printf("optimizers: right, of all types\n");
}

/// Sums, and blocks that move, of random sizes and alignments, in the arena.
void try_random_sizes(const Group& world, const Driver& driver, const Arguments& arguments) {
  constexpr std::size_t most = std::size_t{1} << 20;
  const auto ranks = static_cast<std::size_t>(world.size());
  const auto own = static_cast<std::size_t>(world.rank());
  const MemoryPlace place{.device = arguments.device};
  const ArenaMemory in(world, arguments.device, (most + 16) * sizeof(int) * ranks),
      out(world, arguments.device, (most + 16) * sizeof(int) * ranks);
  const auto& sharing = cuda::SharingDriver::get();
  std::mt19937_64 random(7);  // the same on all ranks
  const auto value = [](std::size_t rank, std::size_t i) {
    return static_cast<int>((rank + 1) * 1000 + i % 1009);
  };
  std::vector<int> here(most * ranks);
  for (int time = 0; time < arguments.times; ++time) {
    const std::size_t count = random() % (std::size_t{1} << (random() % 21)), first = random() % 5,
                      to = random() % 5;
    const int root = static_cast<int>(random() % ranks);
    const std::size_t all = count * ranks;
    for (std::size_t i = 0; i < all; ++i) here[i] = value(own, i);
    const std::span<int> input = in.at<int>(first, all), output = out.at<int>(to, all);
    require(sharing.copy_in(address_of(input.data()), here.data(), all * sizeof(int), nullptr) == 0,
            "cuMemcpyHtoDAsync");
    const auto expect = [&](std::span<int> found, const char* what, auto expected) {
      std::vector<int> seen(found.size());
      require(driver.copy_out(seen.data(), address_of(found.data()), seen.size() * sizeof(int)) == 0,
              "cuMemcpyDtoH");
      for (std::size_t i = 0; i < seen.size(); ++i) {
        if (seen[i] == expected(i)) continue;
        throw std::runtime_error(std::string(what) + " of " + std::to_string(count) + " elements: element " +
                                 std::to_string(i) + " is " + std::to_string(seen[i]) + ", not " +
                                 std::to_string(expected(i)));
      }
    };
    const auto sum = [&](std::size_t i) {
      int result = 0;
      for (std::size_t rank = 0; rank < ranks; ++rank) result += value(rank, i);
      return result;
    };
    lockstep::all_reduce(world, input, output, lockstep::ReduceOp::sum, {.place = place}).synchronize();
    expect(output, "all_reduce", sum);
    lockstep::reduce_scatter(world, input, output.first(count), lockstep::ReduceOp::sum, {.place = place})
        .synchronize();
    expect(output.first(count), "reduce_scatter", [&](std::size_t i) { return sum(own * count + i); });
    lockstep::all_to_all(world, input, output, place).synchronize();
    expect(output, "all_to_all", [&](std::size_t i) { return value(i / count, own * count + i % count); });
    lockstep::all_gather(world, input.first(count), output, place).synchronize();
    expect(output, "all_gather", [&](std::size_t i) { return value(i / count, i % count); });
    lockstep::broadcast(world, input, root, place).synchronize();
    expect(input, "broadcast", [&](std::size_t i) { return value(static_cast<std::size_t>(root), i); });
  }
}

/// How long all_reduce takes in the arena: one alone, some after each other, and some at once; and what share that is of what a copy on
/// the GPU moves in the time.
void time_arena(const Group& world, const Driver& driver, const Arguments& arguments) {
  const cuda::Driver& ours = cuda::Driver::get();
  const auto& sharing = cuda::SharingDriver::get();
  const ArenaMemory memory(world, arguments.device, arguments.largest);
  cuda::Stream stream = nullptr;
  ours.check(ours.make_stream(&stream, cuda::stream_non_blocking, 0), "making a stream");
  const MemoryPlace place{.device = arguments.device, .stream = stream};
  const auto us_of = [&](int calls, auto call) {
    lockstep::barrier(world).wait();
    const auto begin = Clock::now();
    for (int i = 0; i < calls; ++i) call();
    (void)driver.synchronize(stream);
    return std::chrono::duration<double, std::micro>(Clock::now() - begin).count() / calls;
  };
  double copied = 0;  // bytes in a microsecond, read and written
  const auto copy = [&] {
    const std::size_t half = arguments.largest / 2;
    (void)sharing.copy(address_of(memory.at<std::byte>(0, 1).data()),
                       address_of(memory.at<std::byte>(half, 1).data()), half, stream);
  };
  for (int time = 0; time < 5; ++time) {
    const double us = world.rank() == 0 ? us_of(20, copy) : us_of(0, copy);
    if (world.rank() == 0) copied = std::max(copied, static_cast<double>(arguments.largest) / us);
    lockstep::barrier(world).wait();
  }
  if (world.rank() == 0) std::printf("a copy on the GPU alone: %.0f GB/s\n", copied / 1e3);
  for (std::size_t bytes = 4; bytes <= arguments.largest; bytes *= bytes < 4096 ? 32 : 4) {
    const auto add = [&] {
      return lockstep::all_reduce(world, memory.at<float>(0, bytes / sizeof(float)), lockstep::ReduceOp::sum,
                                  {.place = place});
    };
    std::vector<lockstep::Work> works;
    std::vector<double> one, in_a_row, at_once;
    for (int time = 0; time < 21; ++time) one.push_back(us_of(1, [&] { add().wait(); }));
    for (int time = 0; time < 5; ++time) in_a_row.push_back(us_of(20, [&] { add().wait(); }));
    for (int time = 0; time < 5; ++time) {
      at_once.push_back(us_of(20, [&] {
        works.push_back(add());
        if (works.size() < 20) return;
        for (lockstep::Work& work : works) work.wait();
        works.clear();
      }));
    }
    const double moved = 2.0 * world.size() * static_cast<double>(bytes);
    if (world.rank() == 0) {
      std::printf(
          "all_reduce of %zu B: %.1f us, share %.2f; 20 that wait for each other %.1f us each; 20 at once "
          "%.1f us "
          "each, share %.2f\n",
          bytes, median(one), moved / median(one) / copied, median(in_a_row), median(at_once),
          moved / median(at_once) / copied);
    }
  }
  (void)ours.destroy_stream(stream);
}

/// Calls without end, until rank 1 gets the signal.
void call_until(const Group& world, const Arguments& arguments) try {
  const ArenaMemory memory(world, arguments.device, std::size_t{4} << 20);
  lockstep::barrier(world).wait();
  if (world.rank() == 1) {
    std::thread([signal = arguments.signal] {
      std::this_thread::sleep_for(std::chrono::microseconds(std::random_device()() % 300'000));
      (void)::kill(::getpid(), signal);
    }).detach();
  }
  for (;;) {
    lockstep::all_reduce(world, memory.at<float>(0, std::size_t{1} << 20), lockstep::ReduceOp::sum,
                         {.place = {.device = arguments.device}})
        .synchronize();
  }
} catch (const lockstep::Error& error) {
  std::printf("lost rank %d: %s\n", error.peer().value_or(-1), error.what());
}

Arguments read(int argc, char** argv, const Group& world) {
  Arguments arguments;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string name = argv[i];
    if (name == "--device") arguments.device = std::atoi(argv[i + 1]);
    if (name == "--signal") arguments.signal = std::atoi(argv[i + 1]);
    if (name == "--times") arguments.times = std::atoi(argv[i + 1]);
    if (name == "--largest") arguments.largest = std::strtoull(argv[i + 1], nullptr, 10);
  }
  if (arguments.device < 0) arguments.device = world.local_rank();
  return arguments;
}

}  // namespace

int main(int argc, char** argv) try {
  (void)::setvbuf(stdout, nullptr, _IOLBF, 0);
  const Group world = lockstep::init();
  const Arguments arguments = read(argc, argv, world);
  const int device = arguments.device;
  if (std::getenv("STANDIN_KERNELS") != nullptr) lockstep::device_arena::take_kernels_of_the_driver();
  const Driver driver;
  const auto gpu = lockstep::Gpu::open(device);
  const lockstep::Gpu::Current current(*gpu);
  if (arguments.signal != 0) {
    call_until(world, arguments);
    return 0;
  }
  void* memory = nullptr;
  const bool is_shared = lockstep::allocate_on_gpu(world, device, 1, &memory) != nullptr;
  std::printf("rank %d of %d on GPU %d, %s, %s\n", world.rank(), world.size(), device, gpu->name().c_str(),
              is_shared ? "which ranks share" : ("NCCL " + nccl::Library::get().version_text()).c_str());
  if (arguments.times == 0) return time_arena(world, driver, arguments), 0;
  conform(world, device, driver, is_shared);
  try_updates(world, driver, device);
  if (is_shared) {
    std::printf("collectives: right, of all types\n");
    try_random_sizes(world, driver, arguments);
    std::printf("collectives: right, also in the arena, of %d random sizes\n", arguments.times);
  } else {
    std::printf("collectives: right, of all types that NCCL has\n");
  }
  keep_the_order_of_streams(world, device, driver, arguments.times);
  std::printf("streams: in order\n");
  is_shared ? time_arena(world, driver, arguments) : time_calls(device, driver);
} catch (const std::exception& error) {
  std::printf("failed: %s\n", error.what());
  return 1;
}

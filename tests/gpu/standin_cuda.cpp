// libcuda.so.1 for tests: see standin.h.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <utility>

#include "lockstep/backend/device_arena/kernel.h"
#include "lockstep/backend/device_arena/update.h"
#include "lockstep/memory/cuda_sharing.h"
#include "standin.h"

using lockstep::cuda::Address;
using lockstep::cuda::Result;
using Clock = std::chrono::steady_clock;

namespace {

constexpr std::size_t memory_bytes = std::size_t{256} << 20;
constexpr std::size_t alignment = 256;
constexpr Result invalid_device = 101;

std::atomic<std::size_t> left = 0;
std::atomic<int> captures = 0;
std::atomic<int> copies_made = 0;
thread_local int capture_mode = 0;  // global: a query spoils what another thread captures

class Stream {
 public:
  explicit Stream(int device) : device(device), state_(std::make_shared<State>()) {
    {
      const std::lock_guard lock(of_all().mutex);
      std::erase_if(of_all().states, [](const auto& other) { return other.second.expired(); });
      of_all().states.emplace_back(device, state_);
    }
    std::thread([state = state_] { run(*state); }).detach();
  }
  ~Stream() { push(nullptr); }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  /// Null: the end.
  void push(std::function<void()> work) {
    {
      const std::lock_guard lock(state_->mutex);
      state_->queue.push_back(std::move(work));
      ++state_->pushed;
    }
    state_->changed.notify_all();
  }
  void synchronize() {
    auto is_through = std::make_shared<std::atomic<bool>>(false);
    push([is_through] {
      *is_through = true;
      is_through->notify_all();
    });
    is_through->wait(false);
  }

  /// Until all is through that was put on any stream of `device` so far, also on those that are gone.
  static void synchronize_all(int device) {
    std::vector<std::shared_ptr<State>> states;
    {
      const std::lock_guard lock(of_all().mutex);
      for (const auto& [number, state] : of_all().states)
        if (auto kept = number == device ? state.lock() : nullptr) states.push_back(std::move(kept));
    }
    for (const auto& state : states) {
      std::unique_lock lock(state->mutex);
      state->changed.wait(lock, [&, before = state->pushed] { return state->done >= before; });
    }
  }

  const int device;
  std::atomic<bool> is_captured = false;

 private:
  struct State {
    std::mutex mutex;
    std::condition_variable changed;
    std::deque<std::function<void()>> queue;
    std::uint64_t pushed = 0, done = 0;
  };
  struct All {
    std::mutex mutex;
    std::vector<std::pair<int, std::weak_ptr<State>>> states;
  };
  /// Never destroyed: see devices().
  static All& of_all() {
    static auto* const all = new All;
    return *all;
  }
  static void run(State& state) {
    for (;;) {
      std::unique_lock lock(state.mutex);
      state.changed.wait(lock, [&] { return !state.queue.empty(); });
      const auto work = std::move(state.queue.front());
      state.queue.pop_front();
      lock.unlock();
      if (work) work();
      lock.lock();
      ++state.done;
      state.changed.notify_all();
      if (!work) return;
    }
  }

  std::shared_ptr<State> state_;
};

/// Records are counted, so that a wait is for the last one before it.
struct Event {
  std::mutex mutex;
  std::condition_variable changed;
  std::uint64_t recorded = 0, completed = 0;
  Clock::time_point when;
};

/// A GPU's memory, of this process or of another.
struct Memory {
  explicit Memory(int fd) : fd(fd) {
    seen = static_cast<std::byte*>(::mmap(nullptr, memory_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
    at = static_cast<std::byte*>(::mmap(nullptr, memory_bytes, PROT_NONE, MAP_SHARED, fd, 0));
    if (seen == MAP_FAILED || at == MAP_FAILED) std::abort();
  }
  bool has(const std::byte* address) const { return address >= at && address < at + memory_bytes; }

  const int fd;
  std::byte* at = nullptr;    // its addresses
  std::byte* seen = nullptr;  // where this process sees the same memory
};

int make_memory() {
  const int memory = ::memfd_create("standin-gpu", MFD_CLOEXEC);
  if (memory < 0 || ::ftruncate(memory, memory_bytes) != 0) std::abort();
  return memory;
}

/// Other processes' memory, which this one has opened; never closed.
struct Foreign {
  std::mutex mutex;
  std::map<std::pair<int, int>, std::unique_ptr<Memory>> all;  // by process and its file
  static Foreign& get() {
    static auto* const foreign = new Foreign;
    return *foreign;
  }
};

struct Device : Memory {
  explicit Device(int number) : Memory(make_memory()), number(number) {}

  const int number;
  std::mutex mutex;
  std::map<std::size_t, std::size_t> used;  // begin and bytes
  std::atomic<Result> broken = 0;
  std::unique_ptr<Stream> default_stream = std::make_unique<Stream>(number);
};

Device* devices(int number) {
  static const int count = standin::number_from("STANDIN_GPUS", 4);
  // Never destroyed: threads of streams use them until the process ends.
  static auto* const all = [] {
    auto* const made = new std::vector<std::unique_ptr<Device>>;
    for (int i = 0; i < count; ++i) made->push_back(std::make_unique<Device>(i));
    return made;
  }();
  return number < 0 || number >= count ? nullptr : (*all)[static_cast<std::size_t>(number)].get();
}

Device* owner_of(const void* on_gpu) {
  const auto* const address = static_cast<const std::byte*>(on_gpu);
  for (int i = 0; Device* const device = devices(i); ++i) {
    if (address >= device->at && address < device->at + memory_bytes) return device;
    if (address >= device->seen && address < device->seen + memory_bytes) return device;  // managed
  }
  return nullptr;
}

std::size_t offset_in(const Device& device, const void* on_gpu) {
  const auto* const address = static_cast<const std::byte*>(on_gpu);
  const bool is_managed = address >= device.seen && address < device.seen + memory_bytes;
  return static_cast<std::size_t>(address - (is_managed ? device.seen : device.at));
}

}  // namespace

struct CUctx_st {
  int device;
};
struct CUstream_st : Stream {
  using Stream::Stream;
};
struct CUevent_st {
  std::shared_ptr<Event> event = std::make_shared<Event>();
};
struct CUmod_st {};
struct CUfunc_st {
  std::size_t bytes;  // of its argument
  std::function<void(const std::byte* argument, unsigned blocks)> run;
  std::string name = {};
};

namespace {

thread_local std::vector<CUctx_st*> contexts;

Device* current() { return contexts.empty() ? nullptr : devices(contexts.back()->device); }

Stream& stream_of(CUstream_st* stream, Device& device) {
  return stream != nullptr ? *stream : *device.default_stream;
}

/// What a function of the current GPU says where nothing is wrong with it.
Result with_current(const std::function<Result(Device&)>& call) {
  Device* const device = current();
  if (device == nullptr) return 201;  // CUDA_ERROR_INVALID_CONTEXT
  const Result broken = device->broken;
  return broken != 0 ? broken : call(*device);
}

namespace arena = lockstep::device_arena;

/// A block of one thread, at whose addresses this process sees the GPU's memory.
class OnCpu {
 public:
  OnCpu(unsigned block, unsigned blocks) : block_(block), blocks_(blocks) {}
  template <class T>
  T* at(std::uint64_t address) const {
    auto* const on_gpu = reinterpret_cast<std::byte*>(static_cast<std::uintptr_t>(address));
    std::byte* const seen = standin::host(on_gpu);
    return reinterpret_cast<T*>(seen != nullptr ? seen : on_gpu);  // flags are in main memory
  }
  std::uint64_t block() const { return block_; }
  std::uint64_t blocks() const { return blocks_; }
  std::uint64_t thread() const { return 0; }
  std::uint64_t threads() const { return 1; }
  std::uint64_t now_ns() const {
    return static_cast<std::uint64_t>(Clock::now().time_since_epoch() / std::chrono::nanoseconds(1));
  }
  void sync() const {}
  void fence() const {}
  std::uint32_t add_one(std::uint32_t& counter) const {
    return __atomic_fetch_add(&counter, 1U, __ATOMIC_ACQ_REL);
  }
  template <class T>
  T load(const T& value) const {
    return __atomic_load_n(&value, __ATOMIC_ACQUIRE);
  }
  template <class T>
  void store(T& place, T value) const {
    __atomic_store_n(&place, value, __ATOMIC_RELEASE);
  }
  arena::Pack read_once(const arena::Pack* from) const { return *from; }
  void write_once(arena::Pack* to, const arena::Pack& pack) const { *to = pack; }

 private:
  unsigned block_, blocks_;
};

/// Of one that takes an `Argument`; `run` is a block of it.
template <class Argument, class Run>
CUfunc_st kernel_of(Run run) {
  return {sizeof(Argument), [run](const std::byte* bytes, unsigned blocks) {
            Argument argument;
            std::memcpy(static_cast<void*>(&argument), bytes, sizeof(argument));
            for (unsigned block = 0; block < blocks; ++block) run(argument, OnCpu(block, blocks));
          }};
}

template <class Task, class Argument = arena::KernelCall>
CUfunc_st kernel(std::uint64_t element_bytes) {
  return kernel_of<Argument>([element_bytes](const Argument& call, const OnCpu& on) {
    arena::BlockState state{};
    arena::run<Task>(call, state, element_bytes, on);
  });
}

template <class T, template <class> class Move>
CUfunc_st update_kernel() {
  return kernel<arena::UpdateTogether<T, Move>, arena::UpdateCall>(sizeof(T));
}

template <class T, template <class> class Move>
CUfunc_st list_kernel() {
  return kernel_of<arena::UpdateList>(
      [](const arena::UpdateList& list, const OnCpu& on) { arena::update_list<T, Move>(list, on); });
}

std::map<std::string, CUfunc_st>& kernels() {
  using namespace lockstep;
  using namespace lockstep::device_arena;
  static auto* const all = [] {
    auto* const made = new std::map<std::string, CUfunc_st>{
#define STANDIN_REDUCTION(name, type, op) {"lockstep_" #name, kernel<Reduce<type, op>>(sizeof(type))},
        LOCKSTEP_DEVICE_REDUCTIONS(STANDIN_REDUCTION){"lockstep_move", kernel<Move>(1)},
        {"lockstep_barrier", kernel<Nothing>(1)},
#define STANDIN_UPDATE(name, type)                                \
  {"lockstep_sgd_" #name, update_kernel<type, SgdMove>()},        \
      {"lockstep_adam_" #name, update_kernel<type, AdamMove>()},  \
      {"lockstep_sgd_list_" #name, list_kernel<type, SgdMove>()}, \
      {"lockstep_adam_list_" #name, list_kernel<type, AdamMove>()},
        LOCKSTEP_DEVICE_UPDATES(STANDIN_UPDATE)};
    for (auto& [name, function] : *made) function.name = name;
    return made;
  }();
  return *all;
}

std::mutex launched_mutex;
std::vector<std::string> launched;

std::mutex registered_mutex;
std::set<void*>& registered() {
  static auto* const all = new std::set<void*>;
  return *all;
}

std::byte* seen_at(Address address) {
  return standin::host(reinterpret_cast<const void*>(static_cast<std::uintptr_t>(address)));
}

/// What cuIpcGetMemHandle's 64 bytes are here.
struct Handle {
  int pid, fd;
  std::uint64_t offset;
};

}  // namespace

#pragma GCC visibility push(default)

namespace standin {

std::byte* host(const void* on_gpu) {
  if (const Device* const device = owner_of(on_gpu)) return device->seen + offset_in(*device, on_gpu);
  const auto* const address = static_cast<const std::byte*>(on_gpu);
  const std::lock_guard lock(Foreign::get().mutex);
  for (const auto& [of, memory] : Foreign::get().all) {
    if (memory->has(address)) return memory->seen + (address - memory->at);
  }
  return nullptr;
}

int device_of(const void* on_gpu) { return owner_of(on_gpu)->number; }

void* allocate(int number, std::size_t bytes) {
  Device& device = *devices(number);
  const std::lock_guard lock(device.mutex);
  std::size_t begin = 0;
  const std::size_t size = (bytes + alignment - 1) / alignment * alignment + alignment;
  for (const auto& [other, length] : device.used) {
    if (other - begin >= size) break;
    begin = other + length;
  }
  if (begin + size > memory_bytes) return nullptr;
  device.used.emplace(begin, size);
  ++left;
  return device.at + begin;
}

void release(void* on_gpu) {
  Device* const device = owner_of(on_gpu);
  Stream::synchronize_all(device->number);
  const std::lock_guard lock(device->mutex);
  left -= device->used.erase(offset_in(*device, on_gpu));
}

std::size_t things_left() { return left; }
std::vector<std::string> take_kernels() {
  const std::lock_guard lock(launched_mutex);
  return std::exchange(launched, {});
}
int copies() { return copies_made; }

void launch(lockstep::cuda::Stream stream, std::function<void()> work, int device) {
  stream_of(stream, *devices(device)).push(std::move(work));
}
void synchronize(lockstep::cuda::Stream stream, int device) {
  stream_of(stream, *devices(device)).synchronize();
}
lockstep::cuda::Stream make_stream(int device) {
  ++left;
  return new CUstream_st(device);
}
void destroy_stream(lockstep::cuda::Stream stream) {
  --left;
  delete stream;
}
void break_gpu(int device, Result result) { devices(device)->broken = result; }
void capture(lockstep::cuda::Stream stream, bool does) {
  stream->is_captured = does;
  captures += does ? 1 : -1;
}

}  // namespace standin

extern "C" {

Result cuInit(unsigned) { return devices(0) == nullptr ? 100 : 0; }  // CUDA_ERROR_NO_DEVICE
Result cuGetErrorName(Result result, const char** name) {
  switch (result) {
    case 2: *name = "CUDA_ERROR_OUT_OF_MEMORY"; break;
    case 100: *name = "CUDA_ERROR_NO_DEVICE"; break;
    case 700: *name = "CUDA_ERROR_ILLEGAL_ADDRESS"; break;
    default: *name = nullptr; return 1;
  }
  return 0;
}
Result cuGetErrorString(Result result, const char** text) {
  switch (result) {
    case 2: *text = "out of memory"; break;
    case 100: *text = "no CUDA-capable device is detected"; break;
    case 700: *text = "an illegal memory access was encountered"; break;
    default: *text = nullptr; return 1;
  }
  return 0;
}
Result cuDeviceGetCount(int* count) {
  for (*count = 0; devices(*count) != nullptr; ++*count) continue;
  return 0;
}
Result cuDeviceGetName(char* name, int length, int) {
  std::strncpy(name, "Stand-in", static_cast<std::size_t>(length));
  return 0;
}
Result cuDeviceGetUuid_v2(lockstep::cuda::Uuid* uuid, int device) {
  std::memset(uuid, 0, sizeof(*uuid));
  uuid->bytes[15] = static_cast<unsigned char>(device);
  const pid_t pid = ::getpid();
  if (standin::number_from("STANDIN_ONE_GPU", 0) == 0) std::memcpy(uuid->bytes, &pid, sizeof(pid));
  return 0;
}
Result cuDevicePrimaryCtxRetain(CUctx_st** context, int device) {
  static std::mutex mutex;
  static std::map<int, CUctx_st> all;
  if (devices(device) == nullptr) return invalid_device;
  const std::lock_guard lock(mutex);
  *context = &all.emplace(device, CUctx_st{device}).first->second;
  return 0;
}
Result cuDevicePrimaryCtxRelease_v2(int) { return 0; }
Result cuCtxPushCurrent_v2(CUctx_st* context) {
  contexts.push_back(context);
  return 0;
}
Result cuCtxPopCurrent_v2(CUctx_st** context) {
  *context = contexts.back();
  contexts.pop_back();
  return 0;
}
Result cuCtxGetStreamPriorityRange(int* least, int* greatest) {
  *least = 0;
  *greatest = -5;
  return 0;
}
Result cuStreamCreateWithPriority(CUstream_st** stream, unsigned, int) {
  return with_current([&](Device& device) {
    *stream = standin::make_stream(device.number);
    return 0;
  });
}
Result cuStreamDestroy_v2(CUstream_st* stream) {
  standin::destroy_stream(stream);
  return 0;
}
Result cuStreamWaitEvent(CUstream_st* stream, CUevent_st* event, unsigned) {
  return with_current([&](Device& device) {
    const auto state = event->event;
    std::uint64_t record = 0;
    {
      const std::lock_guard lock(state->mutex);
      record = state->recorded;
    }
    stream_of(stream, device).push([state, record] {
      std::unique_lock lock(state->mutex);
      state->changed.wait(lock, [&] { return state->completed >= record; });
    });
    return 0;
  });
}
Result cuStreamIsCapturing(CUstream_st* stream, int* status) {
  return with_current([&](Device& device) {
    *status = stream_of(stream, device).is_captured ? 1 : 0;
    return 0;
  });
}
Result cuEventCreate(CUevent_st** event, unsigned) {
  return with_current([&](Device&) {
    *event = new CUevent_st;
    ++left;
    return 0;
  });
}
Result cuEventDestroy_v2(CUevent_st* event) {
  delete event;
  --left;
  return 0;
}
Result cuEventRecord(CUevent_st* event, CUstream_st* stream) {
  return with_current([&](Device& device) {
    if (stream_of(stream, device).device != device.number) return lockstep::cuda::invalid_handle;
    const auto state = event->event;
    std::uint64_t record = 0;
    {
      const std::lock_guard lock(state->mutex);
      record = ++state->recorded;
    }
    stream_of(stream, device).push([state, record] {
      {
        const std::lock_guard lock(state->mutex);
        state->completed = std::max(state->completed, record);  // an earlier one may be on a slower stream
        state->when = Clock::now();
      }
      state->changed.notify_all();
    });
    return 0;
  });
}
Result cuThreadExchangeStreamCaptureMode(int* mode) {
  std::swap(*mode, capture_mode);
  return 0;
}
Result cuEventQuery(CUevent_st* event) {
  return with_current([&](Device&) {
    if (captures > 0 && capture_mode == 0) return 900;  // CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED
    const std::lock_guard lock(event->event->mutex);
    return event->event->completed < event->event->recorded ? lockstep::cuda::not_ready : 0;
  });
}
Result cuEventElapsedTime(float* milliseconds, CUevent_st* begin, CUevent_st* end) {
  const auto when = [](const CUevent_st& event) {
    const std::lock_guard lock(event.event->mutex);
    return event.event->when;
  };
  *milliseconds = std::chrono::duration<float, std::milli>(when(*end) - when(*begin)).count();
  return 0;
}
Result cuMemAlloc_v2(Address* address, std::size_t bytes) {
  return with_current([&](Device& device) {
    void* const memory = standin::allocate(device.number, bytes);
    *address = static_cast<Address>(reinterpret_cast<std::uintptr_t>(memory));
    return memory == nullptr ? lockstep::cuda::out_of_memory : 0;
  });
}
Result cuMemFree_v2(Address address) {
  standin::release(reinterpret_cast<void*>(static_cast<std::uintptr_t>(address)));
  return 0;
}
Result cuMemAllocManaged(Address* address, std::size_t bytes, unsigned) {
  const Result result = cuMemAlloc_v2(address, bytes);
  const std::byte* const seen = standin::host(*address);
  *address = static_cast<Address>(reinterpret_cast<std::uintptr_t>(seen));
  return result;
}
Result cuMemsetD32Async(Address address, unsigned value, std::size_t count, CUstream_st* stream) {
  return with_current([&](Device& device) {
    stream_of(stream, device).push([to = reinterpret_cast<unsigned*>(standin::host(address)), value, count] {
      std::fill_n(to, count, value);
    });
    return 0;
  });
}
Result cuMemcpyDtoH_v2(void* to, Address from, std::size_t bytes) {
  if (bytes > 0) std::memcpy(to, standin::host(from), bytes);
  return 0;
}
Result cuStreamSynchronize(CUstream_st* stream) {
  return with_current([&](Device& device) {
    stream_of(stream, device).synchronize();
    return 0;
  });
}
Result cuModuleLoadData(CUmod_st** module, const void*) {
  *module = new CUmod_st;
  ++left;
  return 0;
}
Result cuModuleUnload(CUmod_st* module) {
  delete module;
  --left;
  return 0;
}
Result cuModuleGetFunction(CUfunc_st** function, CUmod_st*, const char* name) {
  const auto found = kernels().find(name);
  if (found == kernels().end()) return 500;  // CUDA_ERROR_NOT_FOUND
  *function = &found->second;
  return 0;
}
Result cuLaunchKernel(CUfunc_st* function, unsigned blocks, unsigned, unsigned, unsigned, unsigned, unsigned,
                      unsigned, CUstream_st* stream, void** arguments, void**) {
  return with_current([&](Device& device) {
    {
      const std::lock_guard lock(launched_mutex);
      launched.push_back(function->name);
    }
    stream_of(stream, device)
        .push([function, blocks,
               argument = std::vector(static_cast<const std::byte*>(arguments[0]),
                                      static_cast<const std::byte*>(arguments[0]) + function->bytes)] {
          function->run(argument.data(), blocks);
        });
    return 0;
  });
}
Result cuIpcGetMemHandle(lockstep::cuda::IpcMemory* memory, Address address) {
  const auto* const on_gpu = reinterpret_cast<const void*>(static_cast<std::uintptr_t>(address));
  const Device* const device = owner_of(on_gpu);
  if (device == nullptr) return lockstep::cuda::invalid_value;
  const Handle handle{::getpid(), device->fd, offset_in(*device, on_gpu)};
  std::memcpy(memory->bytes.data(), &handle, sizeof(handle));
  return 0;
}
Result cuIpcOpenMemHandle_v2(Address* address, lockstep::cuda::IpcMemory memory, unsigned) {
  Handle handle{};
  std::memcpy(&handle, memory.bytes.data(), sizeof(handle));
  if (standin::number_from("STANDIN_NO_IPC", 0) != 0) return 801;  // CUDA_ERROR_NOT_SUPPORTED
  if (handle.pid == ::getpid()) return 201;                        // CUDA_ERROR_INVALID_CONTEXT, as CUDA says
  Foreign& foreign = Foreign::get();
  const std::lock_guard lock(foreign.mutex);
  auto& known = foreign.all[{handle.pid, handle.fd}];
  if (!known) {
    const std::string path = "/proc/" + std::to_string(handle.pid) + "/fd/" + std::to_string(handle.fd);
    const int fd = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
    if (fd < 0) return lockstep::cuda::invalid_value;
    known = std::make_unique<Memory>(fd);
  }
  *address = static_cast<Address>(reinterpret_cast<std::uintptr_t>(known->at + handle.offset));
  ++left;
  return 0;
}
Result cuIpcCloseMemHandle(Address) {
  --left;
  return 0;
}
Result cuMemHostRegister_v2(void* memory, std::size_t, unsigned) {
  const std::lock_guard lock(registered_mutex);
  if (!registered().insert(memory).second) return lockstep::cuda::already_registered;
  ++left;
  return 0;
}
Result cuMemHostUnregister(void* memory) {
  const std::lock_guard lock(registered_mutex);
  left -= registered().erase(memory);
  return 0;
}
Result cuMemHostGetDevicePointer_v2(Address* address, void* memory, unsigned) {
  *address = static_cast<Address>(reinterpret_cast<std::uintptr_t>(memory));
  return 0;
}
Result cuStreamWaitValue32_v2(CUstream_st* stream, Address address, std::uint32_t value, unsigned) {
  return with_current([&](Device& device) {
    stream_of(stream, device).push([address, value] {
      const auto* const flag = reinterpret_cast<const std::uint32_t*>(static_cast<std::uintptr_t>(address));
      while (static_cast<std::int32_t>(__atomic_load_n(flag, __ATOMIC_ACQUIRE) - value) < 0)
        std::this_thread::sleep_for(std::chrono::microseconds(20));
    });
    return 0;
  });
}
Result cuMemcpyDtoDAsync_v2(Address to, Address from, std::size_t bytes, CUstream_st* stream) {
  return with_current([&](Device& device) {
    ++copies_made;
    stream_of(stream, device).push([to, from, bytes] { std::memmove(seen_at(to), seen_at(from), bytes); });
    return 0;
  });
}
Result cuMemcpyHtoDAsync_v2(Address to, const void* from, std::size_t bytes, CUstream_st* stream) {
  return with_current([&](Device& device) {
    const auto* const begin = static_cast<const std::byte*>(from);
    stream_of(stream, device).push([to, kept = std::vector<std::byte>(begin, begin + bytes)] {
      std::ranges::copy(kept, seen_at(to));
    });
    return 0;
  });
}
Result cuMemcpyDtoHAsync_v2(void* to, Address from, std::size_t bytes, CUstream_st* stream) {
  return with_current([&](Device& device) {
    stream_of(stream, device).push([to, from, bytes] { std::memcpy(to, seen_at(from), bytes); });
    return 0;
  });
}
Result cuMemsetD8Async(Address to, unsigned char value, std::size_t bytes, CUstream_st* stream) {
  return with_current([&](Device& device) {
    stream_of(stream, device).push([to, value, bytes] { std::memset(seen_at(to), value, bytes); });
    return 0;
  });
}
Result cuDeviceGetAttribute(int* value, int attribute, int) {
  *value = attribute == lockstep::cuda::attribute_processors ? 4 : 0;
  return 0;
}
Result cuPointerGetAttribute(void* value, int, Address address) {
  const auto* const on_gpu = reinterpret_cast<const void*>(static_cast<std::uintptr_t>(address));
  const Device* const owner = owner_of(on_gpu);
  if (owner == nullptr) return lockstep::cuda::invalid_value;
  *static_cast<int*>(value) = owner->number;
  return 0;
}

}  // extern "C"

#pragma GCC visibility pop

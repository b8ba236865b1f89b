// libnccl.so.2 for tests: see standin.h. The ranks of a communicator meet in a file that all of them map, and pass data in files
// beside it. A call runs on its stream's thread, and waits there for the others, for ever if they do not come, as a kernel of
// NCCL does: until the communicator is aborted. Ranks that call different things wait for ever, too.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <thread>
#include <utility>

#include "lockstep/base/half.h"
#include "standin.h"

using namespace lockstep::nccl;
using lockstep::cuda::Stream;

namespace {

constexpr int most_ranks = 8;
constexpr Result system_error = 2, invalid_argument = 4;

std::mutex global;
std::vector<std::string> calls_made;
std::size_t largest_group = 0;
std::atomic<Result> broken = 0;
std::atomic<int> left = 0, aborted_count = 0;

std::string folder() {
  for (const char* const name : {"STANDIN_NCCL_DIR", "TMPDIR"}) {
    if (const char* const text = std::getenv(name)) return text;
  }
  return "/tmp";
}

/// What ranks have to agree in.
struct Called {
  int kind, type, op, root;
  std::uint64_t count;
  friend bool operator==(const Called&, const Called&) = default;
};

/// In the file that all ranks map; zeroed.
struct Shared {
  std::atomic<int> joined, left, first_calls;
  Called called[most_ranks];
  std::atomic<std::uint64_t> phase[most_ranks];
  std::atomic<std::uint64_t> sent[most_ranks][most_ranks], taken[most_ranks][most_ranks];
  std::atomic<std::uint64_t> bytes[most_ranks][most_ranks];
};

class Abort {};

std::size_t size_of(DataType type) {
  constexpr std::size_t sizes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2};
  return sizes[type];
}
const char* name_of(DataType type) {
  constexpr const char* names[] = {"int8",   "uint8",   "int32",   "uint32",  "int64",
                                   "uint64", "float16", "float32", "float64", "bfloat16"};
  return names[type];
}

struct Op {
  RedOp kind = sum;
  double scale = 1;
};

template <class T>
double as_double(T value) {
  if constexpr (requires { lockstep::to_float(value); }) {
    return static_cast<double>(lockstep::to_float(value));
  } else {
    return static_cast<double>(value);
  }
}
template <class T>
T from_double(double value) {
  if constexpr (std::is_same_v<T, lockstep::float16>) {
    return lockstep::to_float16(static_cast<float>(value));
  } else if constexpr (std::is_same_v<T, lockstep::bfloat16>) {
    return lockstep::to_bfloat16(static_cast<float>(value));
  } else {
    return static_cast<T>(value);
  }
}

/// Element by element in doubles; integers in themselves, so that they wrap.
template <class T>
void combine_as(std::vector<std::vector<std::byte>>& inputs, Op op, std::byte* output, std::size_t count) {
  using Wide = std::conditional_t<std::is_integral_v<T>, T, double>;
  const auto ranks = static_cast<double>(inputs.size());
  for (std::size_t i = 0; i < count; ++i) {
    Wide all{};
    for (std::size_t rank = 0; rank < inputs.size(); ++rank) {
      T element;
      std::memcpy(&element, inputs[rank].data() + i * sizeof(T), sizeof(T));
      Wide value;
      if constexpr (std::is_integral_v<T>) {
        value = element;
      } else {
        value = as_double(element) * op.scale;
      }
      if (rank == 0) {
        all = value;
      } else if (op.kind == product) {
        all = static_cast<Wide>(all * value);
      } else if (op.kind == max) {
        all = std::max(all, value);
      } else if (op.kind == min) {
        all = std::min(all, value);
      } else {
        all = static_cast<Wide>(all + value);
      }
    }
    if constexpr (std::is_same_v<T, double>) {
      if (op.kind == average) all *= 1.0 / ranks;
    } else if constexpr (!std::is_integral_v<T>) {  // in floats, as the CPU's
      if (op.kind == average) all = static_cast<float>(all) * static_cast<float>(1.0 / ranks);
    }
    T result;
    if constexpr (std::is_integral_v<T>) {
      result = all;
    } else {
      result = from_double<T>(all);
    }
    std::memcpy(output + i * sizeof(T), &result, sizeof(T));
  }
}

void combine(DataType type, std::vector<std::vector<std::byte>>& inputs, Op op, std::byte* output,
             std::size_t count) {
  switch (type) {
    case int8: return combine_as<std::int8_t>(inputs, op, output, count);
    case uint8: return combine_as<std::uint8_t>(inputs, op, output, count);
    case int32: return combine_as<std::int32_t>(inputs, op, output, count);
    case uint32: return combine_as<std::uint32_t>(inputs, op, output, count);
    case int64: return combine_as<std::int64_t>(inputs, op, output, count);
    case uint64: return combine_as<std::uint64_t>(inputs, op, output, count);
    case float16: return combine_as<lockstep::float16>(inputs, op, output, count);
    case bfloat16: return combine_as<lockstep::bfloat16>(inputs, op, output, count);
    case float32: return combine_as<float>(inputs, op, output, count);
    default: return combine_as<double>(inputs, op, output, count);
  }
}

}  // namespace

struct ncclComm {
  ncclComm(const UniqueId& id, int rank, int ranks)
      : path(folder() + "/" + std::string(id.bytes.data())), rank(rank), ranks(ranks) {
    const int file = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (file < 0 || ::ftruncate(file, sizeof(Shared)) != 0) std::abort();
    shared =
        static_cast<Shared*>(::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0));
    ::close(file);
    ++left;
  }
  ~ncclComm() {
    --left;
    ::unlink(file_of(rank).c_str());
    for (int other = 0; other < ranks; ++other) ::unlink(file_between(rank, other).c_str());
    if (++shared->left == ranks) ::unlink(path.c_str());
    ::munmap(shared, sizeof(Shared));
  }
  ncclComm(const ncclComm&) = delete;
  ncclComm& operator=(const ncclComm&) = delete;

  std::string file_of(int of) const { return path + "-" + std::to_string(of); }
  std::string file_between(int from, int to) const { return file_of(from) + "-" + std::to_string(to); }

  template <class Ready>
  void await(const Ready& is_ready) const {
    while (!is_ready()) {
      if (is_aborted) throw Abort();
      std::this_thread::sleep_for(std::chrono::microseconds(20));
    }
  }
  void meet() {
    const std::uint64_t mine = ++shared->phase[rank];
    await([&] {
      return std::all_of(shared->phase, shared->phase + ranks,
                         [&](const auto& other) { return other >= mine; });
    });
  }

  const std::string path;
  const int rank, ranks;
  Shared* shared = nullptr;
  std::atomic<bool> is_aborted = false;
  std::atomic<Result> state = success;
  bool has_called = false;
  std::map<RedOp, double> scaled;  // of operations that were made
  RedOp next_op = 100;
  std::shared_ptr<ncclComm> self;  // until it is destroyed; calls under way have it, too
};

namespace {

void write_file(const std::string& path, const std::byte* from, std::size_t bytes) {
  const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
  if (file < 0 || ::pwrite(file, from, bytes, 0) != static_cast<ssize_t>(bytes)) std::abort();
  ::close(file);
}

/// Of a rank that has aborted there is none: for ever.
std::vector<std::byte> read_file(const ncclComm& comm, const std::string& path, std::size_t bytes) {
  std::vector<std::byte> all(bytes);
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  const bool is_whole = file >= 0 && ::pread(file, all.data(), bytes, 0) == static_cast<ssize_t>(bytes);
  if (file >= 0) ::close(file);
  if (!is_whole) comm.await([] { return false; });
  return all;
}

enum Kind { k_all_reduce, k_reduce, k_broadcast, k_all_gather, k_reduce_scatter, k_send, k_recv };

struct Step {
  Kind kind;
  const void* input = nullptr;
  void* output = nullptr;
  std::size_t count = 0;
  DataType type = uint8;
  Op op = {};
  int root = 0;  // of messages the peer
  std::shared_ptr<ncclComm> comm;
  Stream stream = nullptr;

  std::size_t bytes() const { return count * size_of(type); }
  bool is_message() const { return kind == k_send || kind == k_recv; }
};

void run_collective(const Step& step) {
  ncclComm& comm = *step.comm;
  Shared& shared = *comm.shared;
  const auto ranks = static_cast<std::size_t>(comm.ranks);
  const bool has_parts = step.kind == k_reduce_scatter;
  const std::size_t in_bytes = has_parts ? step.bytes() * ranks : step.bytes();
  const bool is_source = step.kind != k_broadcast || comm.rank == step.root;
  if (is_source) write_file(comm.file_of(comm.rank), standin::host(step.input), in_bytes);
  const Called mine{step.kind, step.type, step.op.kind, step.root, step.count};
  shared.called[comm.rank] = mine;
  comm.meet();
  if (!std::all_of(shared.called, shared.called + comm.ranks,
                   [&](const Called& other) { return other == mine; }))
    comm.await([] { return false; });
  std::byte* const output = step.output == nullptr ? nullptr : standin::host(step.output);
  if (step.kind == k_broadcast) {
    const auto data = read_file(comm, comm.file_of(step.root), step.bytes());
    std::memcpy(output, data.data(), data.size());
  } else {
    std::vector<std::vector<std::byte>> inputs;
    for (int other = 0; other < comm.ranks; ++other)
      inputs.push_back(read_file(comm, comm.file_of(other), in_bytes));
    if (step.kind == k_all_gather) {
      for (std::size_t other = 0; other < ranks; ++other)
        std::memcpy(output + other * step.bytes(), inputs[other].data(), step.bytes());
    } else if (step.kind != k_reduce || comm.rank == step.root) {
      if (has_parts) {
        for (auto& input : inputs) {
          const auto begin = input.begin() + static_cast<std::ptrdiff_t>(step.bytes()) * comm.rank;
          input = std::vector<std::byte>(begin, begin + static_cast<std::ptrdiff_t>(step.bytes()));
        }
      }
      combine(step.type, inputs, step.op, output, step.count);
    }
  }
  comm.meet();  // the files may be written again
}

/// All of a group go on beside each other.
void run_messages(std::vector<Step> steps) {
  std::vector<char> is_written(steps.size(), 0);
  while (!steps.empty()) {
    if (steps.front().comm->is_aborted) throw Abort();
    for (std::size_t i = 0; i < steps.size();) {
      const Step& step = steps[i];
      ncclComm& comm = *step.comm;
      Shared& shared = *comm.shared;
      const int from = step.kind == k_send ? comm.rank : step.root,
                to = step.kind == k_send ? step.root : comm.rank;
      std::atomic<std::uint64_t>& sent = shared.sent[from][to];
      std::atomic<std::uint64_t>& taken = shared.taken[from][to];
      bool is_over = false;
      if (step.kind == k_send && is_written[i] == 0) {
        const bool is_first =
            std::none_of(steps.begin(), steps.begin() + static_cast<std::ptrdiff_t>(i),
                         [&](const Step& other) { return other.kind == k_send && other.root == step.root; });
        if (is_first && sent == taken) {
          write_file(comm.file_between(from, to), standin::host(step.input), step.bytes());
          shared.bytes[from][to] = step.bytes();
          ++sent;
          is_written[i] = 1;
        }
      } else if (step.kind == k_send) {
        is_over = sent == taken;
      } else if (sent > taken && shared.bytes[from][to] == step.bytes()) {
        const auto data = read_file(comm, comm.file_between(from, to), step.bytes());
        std::memcpy(standin::host(step.output), data.data(), data.size());
        ++taken;
        is_over = true;
      }
      if (is_over) {
        steps.erase(steps.begin() + static_cast<std::ptrdiff_t>(i));
        is_written.erase(is_written.begin() + static_cast<std::ptrdiff_t>(i));
      } else {
        ++i;
      }
    }
    std::this_thread::sleep_for(std::chrono::microseconds(20));
  }
}

void run(const std::vector<Step>& steps) try {
  std::vector<Step> messages;
  for (const Step& step : steps) {
    if (step.is_message()) {
      messages.push_back(step);
    } else {
      run_collective(step);
    }
  }
  run_messages(std::move(messages));
} catch (const Abort&) {  // its stream goes on
}

thread_local int depth = 0;
thread_local std::vector<Step> gathered;

/// As connections are made in the first call: NCCL goes on with it by itself until all have called.
void begin_first_call(const std::shared_ptr<ncclComm>& comm, const std::vector<Step>& steps) {
  comm->has_called = true;
  comm->state = in_progress;
  ++comm->shared->first_calls;
  std::thread([comm, steps] {
    try {
      comm->await([&] { return comm->shared->first_calls >= comm->ranks; });
      standin::launch(steps.front().stream, [steps] { run(steps); });
      comm->state = success;
    } catch (const Abort&) {
    }
  }).detach();
}

Result end_group() {
  if (--depth > 0 || gathered.empty()) return success;
  const std::vector<Step> steps = std::move(gathered);
  gathered.clear();
  {
    const std::lock_guard lock(global);
    largest_group = std::max(largest_group, steps.size());
  }
  const auto comm = steps.front().comm;
  const bool is_first = !comm->has_called;
  if (is_first) {
    begin_first_call(comm, steps);
    return in_progress;
  }
  standin::launch(steps.front().stream, [steps] { run(steps); });
  return success;
}

Result begin_step(Comm comm, Step step, const std::string& text) {
  if (broken != 0) return broken;
  const bool needs_input = step.kind != k_recv && (step.kind != k_broadcast || comm->rank == step.root);
  const bool needs_output = step.kind != k_send && (step.kind != k_reduce || comm->rank == step.root);
  if ((needs_input && standin::host(step.input) == nullptr) ||
      (needs_output && standin::host(step.output) == nullptr))
    return invalid_argument;
  {
    const std::lock_guard lock(global);
    calls_made.push_back(text);
  }
  step.comm = comm->self;
  ++depth;
  gathered.push_back(std::move(step));
  return end_group();
}

/// REQUIRES: an operation of NCCL's own, or one that make_scaled_sum() made.
Op op_of(Comm comm, RedOp op) {
  const auto found = comm->scaled.find(op);
  return found == comm->scaled.end() ? Op{.kind = op} : Op{.kind = sum, .scale = found->second};
}

std::string text_of(const char* what, std::size_t count, DataType type, const std::string& more = {}) {
  return std::string(what) + " " + std::to_string(count) + " x " + name_of(type) + more;
}

std::string text_of(Comm comm, RedOp op) {
  constexpr const char* names[] = {"sum", "product", "max", "min", "average"};
  char text[64];
  const auto found = comm->scaled.find(op);
  if (found == comm->scaled.end()) return std::string(" ") + names[op];
  std::snprintf(text, sizeof(text), " sum scaled by %g", found->second);
  return text;
}

std::string text_of_root(int root) { return " root " + std::to_string(root); }

}  // namespace

#pragma GCC visibility push(default)

namespace standin {

std::vector<std::string> take_nccl_calls() {
  const std::lock_guard lock(global);
  return std::exchange(calls_made, {});
}
std::size_t take_largest_nccl_group() {
  const std::lock_guard lock(global);
  return std::exchange(largest_group, 0);
}
void break_nccl(Result result) { broken = result; }
int nccl_left() { return left; }
int nccl_aborted() { return aborted_count; }

}  // namespace standin

extern "C" {

Result ncclGetVersion(int* version) {
  *version = standin::number_from("STANDIN_NCCL_VERSION", 22703);
  return success;
}
const char* ncclGetErrorString(Result result) {
  return result == remote_error ? "remote process exited or there was a network error"
                                : "unhandled system error";
}
const char* ncclGetLastError(Comm) { return "no socket"; }
Result ncclGetUniqueId(UniqueId* id) {
  static std::atomic<int> next = 0;
  std::snprintf(id->bytes.data(), id->bytes.size(), "standin-%d-%d-%u", static_cast<int>(::getpid()), next++,
                std::random_device()());
  return success;
}
Result ncclCommInitRankConfig(Comm* comm, int ranks, UniqueId id, int rank, Config* config) {
  if (config->magic != 0xcafebeef || config->blocking != 0 || ranks > most_ranks) return invalid_argument;
  const auto made = std::make_shared<ncclComm>(id, rank, ranks);
  made->self = made;
  *comm = made.get();
  made->state = in_progress;
  ++made->shared->joined;
  std::thread([made] {
    try {
      made->await([&] { return made->shared->joined >= made->ranks; });
      made->state = success;
    } catch (const Abort&) {
    }
  }).detach();
  return in_progress;
}
Result ncclCommFinalize(Comm) { return success; }
Result ncclCommDestroy(Comm comm) {
  const auto last = std::exchange(comm->self, nullptr);
  return success;
}
Result ncclCommAbort(Comm comm) {
  comm->is_aborted = true;
  ++aborted_count;
  return ncclCommDestroy(comm);
}
Result ncclCommGetAsyncError(Comm comm, Result* error) {
  *error = broken != 0 ? broken.load() : comm->state.load();
  return success;
}
Result ncclAllReduce(const void* input, void* output, std::size_t count, DataType type, RedOp op, Comm comm,
                     Stream stream) {
  return begin_step(comm, {k_all_reduce, input, output, count, type, op_of(comm, op), 0, nullptr, stream},
                    text_of("all_reduce", count, type, text_of(comm, op)));
}
Result ncclReduce(const void* input, void* output, std::size_t count, DataType type, RedOp op, int root,
                  Comm comm, Stream stream) {
  return begin_step(comm, {k_reduce, input, output, count, type, op_of(comm, op), root, nullptr, stream},
                    text_of("reduce", count, type, text_of(comm, op) + text_of_root(root)));
}
Result ncclBroadcast(const void* input, void* output, std::size_t count, DataType type, int root, Comm comm,
                     Stream stream) {
  return begin_step(comm, {k_broadcast, input, output, count, type, {}, root, nullptr, stream},
                    text_of("broadcast", count, type, text_of_root(root)));
}
Result ncclAllGather(const void* input, void* output, std::size_t count, DataType type, Comm comm,
                     Stream stream) {
  return begin_step(comm, {k_all_gather, input, output, count, type, {}, 0, nullptr, stream},
                    text_of("all_gather", count, type));
}
Result ncclReduceScatter(const void* input, void* output, std::size_t count, DataType type, RedOp op,
                         Comm comm, Stream stream) {
  return begin_step(comm, {k_reduce_scatter, input, output, count, type, op_of(comm, op), 0, nullptr, stream},
                    text_of("reduce_scatter", count, type, text_of(comm, op)));
}
Result ncclSend(const void* buffer, std::size_t count, DataType type, int peer, Comm comm, Stream stream) {
  return begin_step(comm, {k_send, buffer, nullptr, count, type, {}, peer, nullptr, stream},
                    text_of("send", count, type, " to " + std::to_string(peer)));
}
Result ncclRecv(void* buffer, std::size_t count, DataType type, int peer, Comm comm, Stream stream) {
  return begin_step(comm, {k_recv, nullptr, buffer, count, type, {}, peer, nullptr, stream},
                    text_of("recv", count, type, " from " + std::to_string(peer)));
}
Result ncclGroupStart() {
  ++depth;
  return success;
}
Result ncclGroupEnd() { return end_group(); }
Result ncclRedOpCreatePreMulSum(RedOp* op, void* scalar, DataType type, int residence, Comm comm) {
  if (residence != scalar_on_host) return invalid_argument;
  double value = 0;
  switch (type) {
    case float16: value = as_double(*static_cast<lockstep::float16*>(scalar)); break;
    case bfloat16: value = as_double(*static_cast<lockstep::bfloat16*>(scalar)); break;
    case float64: value = *static_cast<double*>(scalar); break;
    default: value = static_cast<double>(*static_cast<float*>(scalar));
  }
  *op = comm->next_op++;
  comm->scaled.emplace(*op, value);
  return success;
}
Result ncclRedOpDestroy(RedOp op, Comm comm) { return comm->scaled.erase(op) == 1 ? success : system_error; }

}  // extern "C"

#pragma GCC visibility pop

// The plug-in by which Lockstep's engine uses an MPI: liblockstep_mpi_FAMILY.so, one for each ABI. It is built without an
// MPI, and finds the functions of the one that the process has when it is loaded (backend/mpi/mpi_library.h).
#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/backend/mpi/mpi_functions.h"
#include "lockstep/base/operation.h"
#include "mpi/reductions.h"

namespace lockstep::mpitrace {

// As abi.h needs them. The core has seen to it that this family's MPI is in the process, before it loads this.
void* find(const char* name) { return ::dlsym(RTLD_DEFAULT, name); }
void* require(const char* name) {
  if (void* found = find(name)) return found;
  (void)std::fprintf(stderr, "lockstep: the MPI of this process has no %s; is it older than MPI 3?\n", name);
  std::abort();
}
void* require_variable(const char* name) { return require(name); }

}  // namespace lockstep::mpitrace

namespace lockstep::mpi {
namespace {

MpiFunctions::Reduce reduce_by_core = nullptr;
constexpr std::size_t longest_text = 8192;  // of a library's version

/// One of MPI's, by its own name, so that who counts calls of MPI sees it.
template <class Function>
Function* mpi(const char* name) {
  return reinterpret_cast<Function*>(require(name));
}
#define LOCKSTEP_MPI(name, ...)                                     \
  (*[] {                                                            \
    static auto* const found = mpi<int(__VA_ARGS__)>("MPI_" #name); \
    return found;                                                   \
  }())

MPI_Status* no_status() { return reinterpret_cast<MPI_Status*>(status_ignore); }
void* in_place() { return reinterpret_cast<void*>(mpi_in_place); }

struct Comm {
  MPI_Comm handle;
};

/// Of a reduction's elements.
std::size_t bytes_of(const MpiCollective& call) {
  return call.elements * size_of(static_cast<Dtype>(call.dtype));
}
/// What adds up for an average, which is scaled afterwards.
constexpr ReduceOp combining(ReduceOp reduce_op) {
  return reduce_op == ReduceOp::average ? ReduceOp::sum : reduce_op;
}

/// An all_reduce of two ranks that is two messages, and an addition: MPIs take their schedules of non-blocking collectives for more.
class Swap {
 public:
  static bool serves(const MpiCollective& call) {
    return call.ranks == 2 && static_cast<Operation>(call.operation) == Operation::all_reduce &&
           call.elements > 0 && bytes_of(call) <= std::size_t{most_bytes};
  }
  explicit Swap(const MpiCollective& call)
      : call_(call),
        bytes_(bytes_of(call)),
        mine_(std::make_unique_for_overwrite<std::byte[]>(front_bytes + bytes_)),
        theirs_(std::make_unique_for_overwrite<std::byte[]>(front_bytes + most_bytes)) {
    std::memcpy(mine_.get(), call.signature, sizeof(Signature));
    std::memcpy(&mine_[front_bytes], call.in_place != 0 ? call.output : call.input, bytes_);
  }
  int start(MPI_Comm comm) {
    const int other = 1 - call_.rank;
    const int error = LOCKSTEP_MPI(Irecv, void*, int, MPI_Datatype, int, int, MPI_Comm, MPI_Request*)(
        theirs_.get(), front_bytes + most_bytes, byte_type(), other, tag, comm, &receipt_);
    return error != 0 ? error
                      : LOCKSTEP_MPI(Isend, const void*, int, MPI_Datatype, int, int, MPI_Comm, MPI_Request*)(
                            mine_.get(), front_bytes + static_cast<int>(bytes_), byte_type(), other, tag,
                            comm, &message_);
  }
  int test(int* is_over) {
    for (auto [handle, is_here] : {std::pair{&receipt_, &is_received_}, {&message_, &is_sent_}}) {
      if (*is_here != 0) continue;
      const int error = LOCKSTEP_MPI(Test, MPI_Request*, int*, MPI_Status*)(handle, is_here, no_status());
      if (error != 0) return error;
    }
    *is_over = is_received_ != 0 && is_sent_ != 0 ? 1 : 0;
    if (*is_over == 0) return 0;
    std::memcpy(call_.others_signature, theirs_.get(), sizeof(Signature));
    if (call_.signature->matches(*call_.others_signature)) combine();
    return 0;
  }

 private:
  static constexpr int most_bytes = 32 << 10;
  static constexpr int front_bytes = 64;  // for the signature, and so that elements lie well
  static_assert(sizeof(Signature) <= front_bytes);
  static constexpr int tag = 0;  // messages of one communicator arrive in their order

  /// The first rank's on the left, by both ranks, so that both have the same bits.
  void combine() {
    const int reduce_op = static_cast<int>(combining(static_cast<ReduceOp>(call_.reduce_op)));
    std::byte *first = &mine_[front_bytes], *second = &theirs_[front_bytes];
    if (call_.rank != 0) std::swap(first, second);
    reduce_by_core(call_.dtype, reduce_op, first, second, call_.elements);
    std::memcpy(call_.output, second, bytes_);
  }

  const MpiCollective call_;
  const std::size_t bytes_;
  const std::unique_ptr<std::byte[]> mine_, theirs_;  // a signature, and then elements
  MPI_Request receipt_{}, message_{};
  int is_received_ = 0, is_sent_ = 0;
};

/// With what MPI reads until it is over.
struct Request {
  MPI_Request handle{};
  std::array<std::vector<int>, 4> counts;
  std::unique_ptr<Swap> swap;
};

/// Elements of so many bytes.
std::map<std::size_t, MPI_Datatype> types_of_bytes;
MPI_Datatype type_of_bytes(std::size_t bytes) {
  auto& made = types_of_bytes;
  if (bytes == 1) return byte_type();
  const auto found = made.find(bytes);
  if (found != made.end()) return found->second;
  MPI_Datatype type{};
  LOCKSTEP_MPI(Type_contiguous, int, MPI_Datatype, MPI_Datatype*)
  (static_cast<int>(bytes), byte_type(), &type);
  LOCKSTEP_MPI(Type_commit, MPI_Datatype*)(&type);
  return made.emplace(bytes, type).first->second;
}

// Our own reductions: MPI tells them the type, so each Dtype has one of its own.
std::array<MPI_Datatype, std::size(all_dtypes)> own_types;

template <ReduceOp reduce_op>
void combine(void* left, void* right, int* elements, MPI_Datatype* type) {
  const auto place = std::find(own_types.begin(), own_types.end(), *type) - own_types.begin();
  reduce_by_core(static_cast<int>(place), static_cast<int>(reduce_op), left, right,
                 static_cast<std::size_t>(*elements));
}

using Combine = void (*)(void*, void*, int*, MPI_Datatype*);
constexpr std::pair<ReduceOp, Combine> combines[] = {
    {ReduceOp::sum, combine<ReduceOp::sum>},   {ReduceOp::product, combine<ReduceOp::product>},
    {ReduceOp::min, combine<ReduceOp::min>},   {ReduceOp::max, combine<ReduceOp::max>},
    {ReduceOp::band, combine<ReduceOp::band>}, {ReduceOp::bor, combine<ReduceOp::bor>},
    {ReduceOp::bxor, combine<ReduceOp::bxor>}};
std::array<MPI_Op, std::size(combines)> own_ops;

void make_own_reductions() {
  for (const Dtype dtype : all_dtypes) {
    MPI_Datatype& type = own_types[static_cast<std::size_t>(dtype)];
    LOCKSTEP_MPI(Type_contiguous, int, MPI_Datatype, MPI_Datatype*)
    (static_cast<int>(size_of(dtype)), byte_type(), &type);
    LOCKSTEP_MPI(Type_commit, MPI_Datatype*)(&type);
  }
  for (std::size_t place = 0; place < std::size(combines); ++place)
    LOCKSTEP_MPI(Op_create, Combine, int, MPI_Op*)(combines[place].second, 1, &own_ops[place]);
}

Predefined reduction_of(Dtype dtype, ReduceOp reduce_op) {
  if (const auto known = predefined_reduction(dtype, reduce_op)) return *known;
  const ReduceOp own = combining(reduce_op);
  const auto* const found = std::find_if(std::begin(combines), std::end(combines),
                                         [&](const auto& one) { return one.first == own; });
  return {own_types[static_cast<std::size_t>(dtype)], own_ops[static_cast<std::size_t>(found - combines)]};
}

int is_initialized() {
  int flag = 0;
  LOCKSTEP_MPI(Initialized, int*)(&flag);
  return flag;
}
int is_finalized() {
  int flag = 0;
  LOCKSTEP_MPI(Finalized, int*)(&flag);
  return flag;
}

#if defined(LOCKSTEP_MPITRACE_OPENMPI)
/// How MPI_Iallreduce goes about it. On two and three ranks Open MPI takes a tree by itself, whatever the size: all of it goes one way,
/// and then back. The setting is the process's, so it is left alone where the program uses MPI, too, or has chosen.
class AllReduceAlgorithm {
 public:
  void find() {
    constexpr const char* setting = "coll_libnbc_iallreduce_algorithm";
    if (std::getenv("OMPI_MCA_coll_libnbc_iallreduce_algorithm") != nullptr) return;
    int level = 0, index = 0, values = 0;
    void* made = nullptr;
    const bool is_there =
        LOCKSTEP_MPI(T_init_thread, int, int*)(0, &level) == 0 &&
        LOCKSTEP_MPI(T_cvar_get_index, const char*, int*)(setting, &index) == 0 &&
        LOCKSTEP_MPI(T_cvar_handle_alloc, int, void*, void**, int*)(index, nullptr, &made, &values) == 0;
    if (is_there && values == 1) handle_ = made;
  }
  /// Before a call of so many bytes, by all ranks alike.
  void choose(std::size_t bytes, int ranks) {
    constexpr std::size_t most_small_bytes = 16 * 1024;
    const int wanted = ranks > most_ranks          ? own_choice
                       : bytes <= most_small_bytes ? recursive_doubling
                                                   : ring;
    if (handle_ == nullptr || wanted == now_) return;
    if (LOCKSTEP_MPI(T_cvar_write, void*, const void*)(handle_, &wanted) == 0) now_ = wanted;
  }

 private:
  static constexpr int own_choice = 0, ring = 1, recursive_doubling = 4;  // as Open MPI 4 and 5 number them
  static constexpr int most_ranks = 3;
  void* handle_ = nullptr;
  int now_ = own_choice;
};
#else
struct AllReduceAlgorithm {
  void find() {}
  void choose(std::size_t, int) {}
};
#endif
AllReduceAlgorithm all_reduce_algorithm;

int begin(MpiFunctions::Reduce reduce, int* thread_level) {
  constexpr int multiple = 3;
  reduce_by_core = reduce;
  int error = 0;
  if (is_initialized() != 0) {
    error = LOCKSTEP_MPI(Query_thread, int*)(thread_level);
  } else {
    error = LOCKSTEP_MPI(Init_thread, int*, char***, int, int*)(nullptr, nullptr, multiple, thread_level);
    if (error == 0) all_reduce_algorithm.find();
  }
  if (error == 0) make_own_reductions();
  return error;
}

int finalize() {
  for (MPI_Datatype& type : own_types) LOCKSTEP_MPI(Type_free, MPI_Datatype*)(&type);
  for (auto& [bytes, type] : types_of_bytes) LOCKSTEP_MPI(Type_free, MPI_Datatype*)(&type);
  for (MPI_Op& op : own_ops) LOCKSTEP_MPI(Op_free, MPI_Op*)(&op);
  return LOCKSTEP_MPI(Finalize)();
}

int place(int* rank, int* ranks) {
  const int error = LOCKSTEP_MPI(Comm_rank, MPI_Comm, int*)(comm_world(), rank);
  return error != 0 ? error : LOCKSTEP_MPI(Comm_size, MPI_Comm, int*)(comm_world(), ranks);
}

void put(const char* text, char* into, std::size_t bytes) {
  (void)std::snprintf(into, bytes, "%.*s", static_cast<int>(std::strcspn(text, "\n")), text);
}

void library_version(char* text, std::size_t bytes) {
  std::array<char, longest_text + 1> all{};
  int length = 0;
  LOCKSTEP_MPI(Get_library_version, char*, int*)(all.data(), &length);
  put(all.data(), text, bytes);
}

void describe(int error, char* text, std::size_t bytes) {
  std::array<char, longest_text + 1> all{};
  int length = 0;
  LOCKSTEP_MPI(Error_string, int, char*, int*)(error, all.data(), &length);
  put(all.data(), text, bytes);
}

int make_comm(const int* ranks, int count, int tag, void** comm) {
  MPI_Group world{}, group{};
  auto made = std::make_unique<Comm>();
  int error = LOCKSTEP_MPI(Comm_group, MPI_Comm, MPI_Group*)(comm_world(), &world);
  if (error != 0) return error;
  error = LOCKSTEP_MPI(Group_incl, MPI_Group, int, const int*, MPI_Group*)(world, count, ranks, &group);
  if (error == 0) {
    error = LOCKSTEP_MPI(Comm_create_group, MPI_Comm, MPI_Group, int, MPI_Comm*)(comm_world(), group, tag,
                                                                                 &made->handle);
    LOCKSTEP_MPI(Group_free, MPI_Group*)(&group);
  }
  LOCKSTEP_MPI(Group_free, MPI_Group*)(&world);
  if (error != 0) return error;
  // Whatever the program has set for its own: Lockstep says what went wrong.
  error = LOCKSTEP_MPI(Comm_set_errhandler, MPI_Comm, MPI_Errhandler)(made->handle, errors_return());
  *comm = made.release();
  return error;
}

void free_comm(void* comm) {
  const std::unique_ptr<Comm> owned(static_cast<Comm*>(comm));
  if (is_finalized() == 0) LOCKSTEP_MPI(Comm_free, MPI_Comm*)(&owned->handle);
}

/// How many elements each rank has, and where they begin. False if MPI cannot count so far.
bool set_blocks(const MpiCollective& call, const std::size_t* counts, std::vector<int>& sizes,
                std::vector<int>& begins) {
  std::size_t begin = 0;
  for (int rank = 0; rank < call.ranks; ++rank) {
    const std::size_t size = counts != nullptr ? counts[rank] : call.elements;
    if (size > INT_MAX || begin > INT_MAX) return false;
    sizes.push_back(static_cast<int>(size));
    begins.push_back(static_cast<int>(begin));
    begin += size;
  }
  return true;
}

bool is_intels() {
  static const bool is = [] {
    std::array<char, 256> text{};
    library_version(text.data(), text.size());
    return std::strstr(text.data(), "Intel") != nullptr;
  }();
  return is;
}

/// An all_gather with empty blocks, with which Intel MPI 2021's MPI_Iallgatherv never ends on some numbers of ranks: each
/// sends its block to all, but to itself where it is there.
int gather_to_all(MPI_Comm comm, const MpiCollective& call, MPI_Datatype type, Request& request) {
  auto& [sizes, begins, sent, sent_begins] = request.counts;
  const auto own = static_cast<std::size_t>(call.rank);
  std::ranges::fill(sent, sizes[own]);
  std::ranges::fill(sent_begins, 0);
  if (call.in_place != 0) sizes[own] = sent[own] = 0;
  return LOCKSTEP_MPI(Ialltoallv, const void*, const int*, const int*, MPI_Datatype, void*, const int*,
                      const int*, MPI_Datatype, MPI_Comm,
                      MPI_Request*)(call.input, sent.data(), sent_begins.data(), type, call.output,
                                    sizes.data(), begins.data(), type, comm, &request.handle);
}

int start_on(MPI_Comm comm, const MpiCollective& call, Request& request) {
  const auto operation = static_cast<Operation>(call.operation);
  if (operation == Operation::barrier)
    return LOCKSTEP_MPI(Ibarrier, MPI_Comm, MPI_Request*)(comm, &request.handle);
  if (call.elements > INT_MAX) return MpiFunctions::too_many;
  const int count = static_cast<int>(call.elements);
  const bool is_root = call.rank == call.root;
  const auto& [sizes, begins, receive_sizes, receive_begins] = request.counts;
  if (operation != Operation::all_reduce && operation != Operation::reduce &&
      operation != Operation::broadcast) {
    const std::size_t* const received =
        operation == Operation::all_to_all ? call.receive_counts : call.counts;
    if (!set_blocks(call, call.counts, request.counts[0], request.counts[1]) ||
        !set_blocks(call, received, request.counts[2], request.counts[3]))
      return MpiFunctions::too_many;
  }
  const int mine = sizes.empty() ? count : sizes[static_cast<std::size_t>(call.rank)];
  if (reduces(operation)) {
    const auto [type, op] =
        reduction_of(static_cast<Dtype>(call.dtype), static_cast<ReduceOp>(call.reduce_op));
    const void* const from = call.in_place != 0 ? in_place() : call.input;
    if (operation == Operation::all_reduce) {
      all_reduce_algorithm.choose(bytes_of(call), call.ranks);
      return LOCKSTEP_MPI(Iallreduce, const void*, void*, int, MPI_Datatype, MPI_Op, MPI_Comm, MPI_Request*)(
          from, call.output, count, type, op, comm, &request.handle);
    }
    if (operation == Operation::reduce) {
      return LOCKSTEP_MPI(Ireduce, const void*, void*, int, MPI_Datatype, MPI_Op, int, MPI_Comm,
                          MPI_Request*)(is_root ? from : call.input, call.output, count, type, op, call.root,
                                        comm, &request.handle);
    }
    // In place MPI takes all blocks from where the result begins, but ours is this rank's block of them: what is to be
    // read is not what is written.
    return LOCKSTEP_MPI(Ireduce_scatter, const void*, void*, const int*, MPI_Datatype, MPI_Op, MPI_Comm,
                        MPI_Request*)(call.input, call.output, sizes.data(), type, op, comm, &request.handle);
  }
  const MPI_Datatype type = type_of_bytes(call.element_bytes);
  switch (operation) {
    case Operation::broadcast:
      return LOCKSTEP_MPI(Ibcast, void*, int, MPI_Datatype, int, MPI_Comm, MPI_Request*)(
          call.output, count, type, call.root, comm, &request.handle);
    case Operation::all_gather:
      if (std::ranges::find(sizes, 0) != sizes.end() && is_intels())
        return gather_to_all(comm, call, type, request);
      return LOCKSTEP_MPI(Iallgatherv, const void*, int, MPI_Datatype, void*, const int*, const int*,
                          MPI_Datatype, MPI_Comm, MPI_Request*)(call.in_place != 0 ? in_place() : call.input,
                                                                mine, type, call.output, sizes.data(),
                                                                begins.data(), type, comm, &request.handle);
    case Operation::gather:
      return LOCKSTEP_MPI(Igatherv, const void*, int, MPI_Datatype, void*, const int*, const int*,
                          MPI_Datatype, int, MPI_Comm, MPI_Request*)(
          call.in_place != 0 && is_root ? in_place() : call.input, mine, type, call.output, sizes.data(),
          begins.data(), type, call.root, comm, &request.handle);
    case Operation::scatter:
      return LOCKSTEP_MPI(Iscatterv, const void*, const int*, const int*, MPI_Datatype, void*, int,
                          MPI_Datatype, int, MPI_Comm,
                          MPI_Request*)(call.input, sizes.data(), begins.data(), type,
                                        call.in_place != 0 && is_root ? in_place() : call.output, mine, type,
                                        call.root, comm, &request.handle);
    default:
      return LOCKSTEP_MPI(Ialltoallv, const void*, const int*, const int*, MPI_Datatype, void*, const int*,
                          const int*, MPI_Datatype, MPI_Comm, MPI_Request*)(
          call.in_place != 0 ? in_place() : call.input, sizes.data(), begins.data(), type, call.output,
          receive_sizes.data(), receive_begins.data(), type, comm, &request.handle);
  }
}

int start(void* comm, const MpiCollective* call, void** request) {
  auto made = std::make_unique<Request>();
  const MPI_Comm handle = static_cast<Comm*>(comm)->handle;
  if (Swap::serves(*call)) made->swap = std::make_unique<Swap>(*call);
  const int error = made->swap ? made->swap->start(handle) : start_on(handle, *call, *made);
  if (error == 0) *request = made.release();
  return error;
}

int test(void* request, int* is_over) {
  auto* const asked = static_cast<Request*>(request);
  const int error =
      asked->swap ? asked->swap->test(is_over)
                  : LOCKSTEP_MPI(Test, MPI_Request*, int*, MPI_Status*)(&asked->handle, is_over, no_status());
  if (error == 0 && *is_over != 0) delete asked;
  return error;
}

}  // namespace
}  // namespace lockstep::mpi

extern "C" __attribute__((visibility("default")))
const lockstep::MpiFunctions lockstep_mpi_functions = {.version = lockstep::MpiFunctions::current_version,
                                                       .is_initialized = lockstep::mpi::is_initialized,
                                                       .is_finalized = lockstep::mpi::is_finalized,
                                                       .begin = lockstep::mpi::begin,
                                                       .finalize = lockstep::mpi::finalize,
                                                       .place = lockstep::mpi::place,
                                                       .library_version = lockstep::mpi::library_version,
                                                       .describe = lockstep::mpi::describe,
                                                       .make_comm = lockstep::mpi::make_comm,
                                                       .free_comm = lockstep::mpi::free_comm,
                                                       .start = lockstep::mpi::start,
                                                       .test = lockstep::mpi::test};

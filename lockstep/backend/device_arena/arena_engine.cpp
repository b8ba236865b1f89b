#include "lockstep/backend/device_arena/arena_engine.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <numeric>
#include <thread>
#include <utility>

#include "lockstep/backend/device_arena/update_rule.h"
#include "lockstep/backend/gpu/gpu_update.h"
#include "lockstep/backend/mismatch.h"
#include "lockstep/base/keep_for_ever.h"
#include "lockstep/base/log.h"
#include "lockstep/base/words.h"
#include "lockstep/kernel/form.h"

namespace lockstep::device_arena {
namespace {

using schedule::block_of;

// At what the GPU and other processes write: they wake nobody.
constexpr auto between_device_looks = std::chrono::microseconds(50);
// For the streams of a group that was aborted to go through what they have.
constexpr auto draining_takes = std::chrono::seconds(2);
// A call's own parts wait for none of each other's slots, for which nothing looks at the clock.
static_assert(GpuEngine::most_at_once <= collective_slots);
// What lets a stream that waits for a flag go on: beyond all that are awaited, but not so far that it were before them.
constexpr std::uint32_t beyond = std::uint32_t{1} << 30;

// Places in lanes_.
constexpr std::size_t behind_others = 1, first_pair = 2;

bool has_come(std::uint32_t flag, std::uint32_t awaited) {
  return static_cast<std::int32_t>(flag - awaited) >= 0;
}

std::uint32_t flag_of(std::uint64_t number) { return static_cast<std::uint32_t>(number + 1); }

/// Where the page begins, so that it has whole pages for itself.
std::byte* aligned(std::byte* memory) {
  const auto address = reinterpret_cast<std::uintptr_t>(memory);
  return memory + (base::round_up(address) - address);
}

}  // namespace

std::string why_not(int ranks, bool share_memory) try {
  (void)cuda::SharingDriver::get();
  if (kernel_image().empty())
    return "this Lockstep has no kernels for GPUs: it was built where there is no nvcc of CUDA's";
  if (ranks > most_ranks)
    return fmt::format("{} ranks are more than the {} that can share a GPU", ranks, most_ranks);
  if (ranks > 1 && !share_memory) return "its host's ranks share no memory";
  return "";
} catch (const Error& error) {
  return error.what();
}

/// Of a call: where its buffers lie in the arena, and what is copied there and back.
struct Engine::Buffers {
  Place input, output;
  Owned owned;                                         ///< of an update
  std::shared_ptr<Block> staged_input, staged_output;  ///< null: they lie in the arena themselves
};

Engine::Engine(Options options, Deadline deadline)
    : options_(std::move(options)), sharing_(cuda::SharingDriver::get()), page_({}, options_.members.size()) {
  page_ = SharedPage(find_page(deadline), options_.members.size());
  try {
    connect(deadline);
  } catch (...) {
    release(false);
    throw;
  }
}

Engine::~Engine() {
  const bool is_page_free = !is_aborted_ && arena_->have_all_left();
  abort();
  release(is_page_free);
}

void Engine::connect(Deadline deadline) {
  const Members& members = options_.members;
  const cuda::Driver& driver = options_.gpu->driver();
  const Gpu::Current current(*options_.gpu);
  const cuda::Result registered = sharing_.register_host(page_.memory().data(), page_.memory().size(),
                                                         cuda::portable | cuda::mapped_for_gpus);
  has_registered_ = registered == cuda::success;  // ranks that are threads have one page
  if (registered != cuda::already_registered)
    driver.check(registered, "page-locking what ranks tell each other");
  driver.check(sharing_.host_address(&page_address_, page_.memory().data(), 0),
               "showing main memory to the GPU");
  kernels_ = Kernels::on(options_.gpu);
  end_stream_ = options_.gpu->make_urgent_stream();
  events_ = std::make_shared<GpuEvents>(options_.gpu);
  health_ = events_->take();
  arena_ = std::make_shared<DeviceArena>(options_.gpu, page_, members);
  std::vector<int> all(static_cast<std::size_t>(members.size()));
  std::iota(all.begin(), all.end(), 0);
  lanes_.push_back({.slots = collective_slots, .ranks = all});
  lanes_.push_back({.first_slot = collective_slots, .slots = collective_slots, .ranks = all});
  for (const int from : all) {
    for (const int to : all) {
      const std::size_t pair = lanes_.size() - first_pair;
      const std::uint64_t slots = message_slots_of(members.size());
      lanes_.push_back(
          {.first_slot = 2 * collective_slots + pair * slots, .slots = slots, .ranks = {from, to}});
    }
  }
  meet(deadline);
}

/// The first rank of the group makes it in its part of the memory that they share.
std::span<std::byte> Engine::find_page(Deadline deadline) {
  const std::size_t bytes = SharedPage::bytes_of(options_.members.size());
  const std::size_t with_room = bytes + base::page_bytes;
  if (options_.backend == nullptr) {
    own_page_.resize(with_room);
    return {aligned(own_page_.data()), bytes};
  }
  const auto region = options_.backend->shared_region();
  if (options_.members.rank() == 0) {
    page_block_ = options_.backend->allocate(with_room);
    std::ranges::fill(page_block_.bytes(), std::byte{0});
    std::byte* const page = aligned(page_block_.bytes().data());
    options_.store->set("page", std::to_string(page - region->arena(options_.members.self().local)));
    return {page, bytes};
  }
  const std::string told = options_.store->get("page", deadline);
  std::size_t offset = 0;
  const auto [end, error] = std::from_chars(told.data(), told.data() + told.size(), offset);
  if (error != std::errc() || offset > region->arena_bytes() || region->arena_bytes() - offset < bytes)
    throw Error(ErrorCode::corrupt_data,
                "rank 0's page for calls on GPUs lies outside of its memory: " + told);
  return {region->arena(options_.members[0].local) + offset, bytes};
}

void Engine::meet(Deadline deadline) {
  const Members& members = options_.members;
  await([this](int rank) { return page_.cell(rank).process != 0; }, "come", deadline);
  const std::size_t bytes = SharedPage::slots_of(members.size()) * sizeof(Board);
  const auto block = arena_->allocate(members.rank() == 0 ? bytes : 1, deadline, options_.check);
  if (members.rank() == 0) {
    arena_->clear(*block);
    boards_block_ = block;
    page_.cell(0).boards = block->place().packed;
  }
  // All have mapped all first segments, and the first rank's boards are clear.
  const auto are_mapped = [this](int rank) {
    for (int other = 0; other < options_.members.size(); ++other) {
      if (page_.cell(rank).mapped[other] == 0) return false;
    }
    return true;
  };
  await(are_mapped, "map the others' memory", deadline);
  page_.cell(members.rank()).is_ready = 1;
  await([this](int rank) { return page_.cell(rank).is_ready != 0; }, "get ready", deadline);
  boards_ = arena_->address_of(0, Place{page_.cell(0).boards});
}

void Engine::await(const std::function<bool(int rank)>& has_come, const std::string& what,
                   Deadline deadline) const {
  for (;;) {
    arena_->map_new();
    std::vector<int> missing;
    for (int rank = 0; rank < options_.members.size(); ++rank) {
      if (!has_come(rank)) missing.push_back(options_.members[rank].world);
    }
    if (missing.empty()) return;
    arena_->require_open();
    options_.check();
    if (deadline.expired()) {
      throw Error(
          ErrorCode::timeout,
          fmt::format("{} did not {} for calls on the GPU that ranks share", base::name_ranks(missing), what),
          missing.size() == 1 ? std::optional(missing.front()) : std::nullopt);
    }
    std::this_thread::sleep_for(between_device_looks);
  }
}

void Engine::release(bool is_page_free) noexcept {
  // Others, and their kernels, may still come to it.
  if (!is_page_free && options_.members.rank() == 0) base::keep_for_ever(std::move(page_block_));
  try {
    const Gpu::Current current(*options_.gpu);
    boards_block_ = nullptr;
    arena_ = nullptr;
    const cuda::Driver& driver = options_.gpu->driver();
    if (end_stream_ != nullptr) (void)driver.destroy_stream(std::exchange(end_stream_, nullptr));
    if (health_ != nullptr) events_->put_back(std::exchange(health_, nullptr));
    events_ = nullptr;
    if (std::exchange(has_registered_, false)) (void)sharing_.unregister_host(page_.memory().data());
    kernels_ = nullptr;
  } catch (const Error& error) {  // the driver has ended, and all that it had
    log::debug(error.what());
  }
}

std::shared_ptr<Block> Engine::allocate(std::size_t bytes) {
  const Gpu::Current current(*options_.gpu);
  return arena_->allocate(bytes, Deadline::after(options_.timeout), options_.check);
}

void Engine::require_possible(const Request& request) const {
  const Signature& called = request.signature;
  if (reduces(called.operation) && !kernel::is_defined(kernel::kind_of(called.dtype), called.reduce_op)) {
    throw Error(ErrorCode::unsupported, to_string(called) + ": this operation is not defined for this type");
  }
}

Engine::Lane& Engine::lane_of(const Request& request) {
  const Operation operation = request.signature.operation;
  if (!is_message(operation)) return lanes_.front();
  const int own = options_.members.rank();
  const int from = operation == Operation::send ? own : request.peer;
  const int to = operation == Operation::send ? request.peer : own;
  return lanes_[first_pair + static_cast<std::size_t>(from * options_.members.size() + to)];
}

int Engine::party_of(const Request& request) const {
  const Operation operation = request.signature.operation;
  if (!is_message(operation)) return options_.members.rank();
  return operation == Operation::send ? 0 : 1;
}

/// The calls that were put as one.
class Engine::ArenaCall final : public GpuCall {
 public:
  ArenaCall(const Engine& engine, cuda::Stream stream)
      : stream(stream), engine_(engine), events_(engine.events_) {}
  ~ArenaCall() override {
    if (end_ != nullptr) events_->put_back(end_);
  }
  ArenaCall(const ArenaCall&) = delete;
  ArenaCall& operator=(const ArenaCall&) = delete;

  /// Is over when this is. `is_before_end`: the end stream waits for it.
  void add(Progress& progress, cuda::Address at_gpu, std::uint32_t flag, bool is_before_end) {
    parts_.push_back({&progress, at_gpu, flag, is_before_end});
  }
  /// The end stream goes on after what the program's has now: also where nothing else is awaited any more, after abort().
  void let_end_follow() {
    if (end_ == nullptr) end_ = events_->take();
    const cuda::Driver& driver = engine_.options_.gpu->driver();
    driver.check(driver.record_event(end_, stream), "marking a stream");
    driver.check(driver.make_wait(engine_.end_stream_, end_, 0), "making a stream wait");
  }
  /// Nor is it over before the end stream comes to this. REQUIRES: let_end_follow().
  void mark_end() {
    const cuda::Driver& driver = engine_.options_.gpu->driver();
    driver.check(driver.record_event(end_, engine_.end_stream_), "marking a stream");
  }

  bool has_begun() override {
    return std::ranges::all_of(parts_, [](const PartOfIt& part) {
      return has_come(std::atomic_ref(part.progress->arrived), part.flag);
    });
  }
  bool is_over() override {
    const cuda::Driver& driver = engine_.options_.gpu->driver();
    if (end_ != nullptr) {
      const cuda::Result result = driver.query_event(end_);
      if (result == cuda::not_ready) return false;
      driver.check(result, "waiting for a call on the GPU");
    }
    return std::ranges::all_of(parts_, [](const PartOfIt& part) { return is_done(part); });
  }
  void make_wait(cuda::Stream stream) override {
    const cuda::Driver& driver = engine_.options_.gpu->driver();
    if (end_ != nullptr) driver.check(driver.make_wait(stream, end_, 0), "making a stream wait");
    for (const PartOfIt& part : parts_) {
      if (part.is_before_end || is_done(part)) continue;
      driver.check(engine_.sharing_.wait_for_value(stream, part.done, part.flag, cuda::wait_for_at_least),
                   "making a stream wait for other ranks");
    }
  }
  std::uint64_t ns_on_gpu() override {
    if (parts_.empty()) return 0;
    const std::uint64_t begin = std::atomic_ref(parts_.front().progress->begin_ns),
                        end = std::atomic_ref(parts_.back().progress->end_ns);
    return end > begin ? end - begin : 0;
  }

  const cuda::Stream stream;
  std::vector<std::shared_ptr<Block>> staged;

 private:
  struct PartOfIt {
    Progress* progress;
    cuda::Address done;  // for the GPU
    std::uint32_t flag;
    bool is_before_end;
  };
  static bool is_done(const PartOfIt& part) {
    return has_come(std::atomic_ref(part.progress->done), part.flag);
  }

  const Engine& engine_;
  const std::shared_ptr<GpuEvents> events_;
  std::vector<PartOfIt> parts_;
  cuda::Event end_ = nullptr;
};

GpuEngine::Placed Engine::put(std::span<const Request> requests, cuda::Stream stream, bool) {
  require_own_stream(requests.front().signature, stream);
  auto call = std::make_unique<ArenaCall>(*this, stream);
  for (const Request& request : requests) put_one(request, lane_of(request), *call);
  return {std::move(call)};
}

std::unique_ptr<GpuCall> Engine::put_behind(const Request& request, cuda::Stream stream) {
  auto call = std::make_unique<ArenaCall>(*this, stream);
  put_one(request, lanes_[behind_others], *call);
  return call;
}

/// Before the others are told of the call.
void Engine::require_own_stream(const Signature& called, cuda::Stream stream) {
  if (own_stream_ == stream) return;
  const cuda::Event mark = events_->take();
  try {
    mark_stream_of_program(*options_.gpu, mark, stream, called);
  } catch (const Error&) {
    events_->put_back(mark);
    throw;
  }
  events_->put_back(mark);
  own_stream_ = stream;
}

void Engine::put_one(const Request& request, Lane& lane, ArenaCall& call) {
  const int party = party_of(request);
  std::uint64_t& next = lane.next[static_cast<std::size_t>(party)];
  await_slot(lane, party, next);
  Buffers buffers = place_buffers(request);
  tell(request, lane, party, next);
  const std::lock_guard lock(mutex_);
  if (is_aborted_) return;  // the group has failed, which says more
  launch(request, lane, party, next, std::move(buffers), call);
  ++next;
}

/// Until the call is over that had this one's slot before.
void Engine::await_slot(const Lane& lane, int party, std::uint64_t number) {
  if (number < lane.slots) return;
  const std::atomic_ref flag(page_.progress(lane.slot_of(number), party).done);
  const std::uint32_t awaited = flag_of(number - lane.slots);
  // The group sees to that call's deadline, and ends it then: abort().
  while (!has_come(flag, awaited)) {
    options_.check();
    std::this_thread::sleep_for(between_device_looks);
  }
}

/// Of two ranks that call different things, one sees what the other has told, and does not launch: so the call never is complete.
void Engine::tell(const Request& request, const Lane& lane, int party, std::uint64_t number) {
  const std::size_t slot = lane.slot_of(number);
  Notice& own = page_.notice(slot, party);
  own.called = request.signature;
  own.number.store(number + 1, std::memory_order_seq_cst);
  for (int other = 0; other < std::ssize(lane.ranks); ++other) {
    const Notice& notice = page_.notice(slot, other);
    if (other == party || notice.number.load(std::memory_order_seq_cst) != number + 1) continue;
    require_same(notice, lane.ranks[static_cast<std::size_t>(other)], request.signature, number);
  }
}

void Engine::require_same(const Notice& other, int other_rank, const Signature& called,
                          std::uint64_t number) const {
  Signature expected = called;
  if (is_message(called.operation)) {
    expected.operation = called.operation == Operation::send ? Operation::receive : Operation::send;
    expected.root = other.called.root;
  }
  if (expected.matches(other.called)) return;
  const Members& members = options_.members;
  const Caller mine{members.self().world, called, number};
  const Caller its{members[other_rank].world, other.called, number};
  throw mine.rank < its.rank ? mismatch(mine, its) : mismatch(its, mine);
}

/// All of an update lies in the arena.
Engine::Buffers Engine::place_update(const Request& request) const {
  const auto place_of = [&](const void* memory, std::size_t bytes, const char* what) {
    if (const auto place = arena_->find(memory, bytes)) return *place;
    throw_invalid_argument(
        fmt::format("{}: {} do not lie in memory for calls on the GPU", to_string(request.signature), what));
  };
  const GpuUpdate& update = *request.update;
  const std::size_t bytes = update.own.count * std::max(request.element_bytes, sizeof(float));
  const auto state = [&](const void* memory) {
    return memory == nullptr || bytes == 0 ? Place{} : place_of(memory, bytes, "the optimizer's states");
  };
  return {.input = place_of(request.input.data(), request.input.size(), "gradients"),
          .output = place_of(request.output.data(), request.output.size(), "parameters"),
          .owned = {.begin = update.own.begin,
                    .end = update.own.begin + update.own.count,
                    .first = state(update.first),
                    .second = state(update.second),
                    .master = state(update.master)},
          .staged_input = nullptr,
          .staged_output = nullptr};
}

Engine::Buffers Engine::place_buffers(const Request& request) {
  if (request.update != nullptr) return place_update(request);
  Buffers buffers;
  const auto stage = [&](std::size_t bytes) {
    return arena_->allocate(bytes, Deadline::after(options_.timeout), options_.check);
  };
  const std::span<const std::byte> input = request.input;
  const std::span<std::byte> output = request.output;
  const bool is_one = input.data() == output.data() && input.size() == output.size();
  // In place blocks are exchanged, which the kernel does one after the other.
  const bool keeps_input = request.signature.operation == Operation::all_to_all && request.call.in_place;
  if (!output.empty()) {
    if (const auto place = arena_->find(output.data(), output.size())) {
      buffers.output = *place;
    } else {
      buffers.staged_output = stage(output.size());
      buffers.output = buffers.staged_output->place();
    }
  }
  if (input.empty()) return buffers;
  if (is_one && buffers.staged_output && !keeps_input) {
    buffers.staged_input = buffers.staged_output;
    buffers.input = buffers.output;
  } else if (const auto place = keeps_input ? std::nullopt : arena_->find(input.data(), input.size())) {
    buffers.input = *place;
  } else {
    buffers.staged_input = stage(input.size());
    buffers.input = buffers.staged_input->place();
  }
  return buffers;
}

namespace {

/// What goes where, of a rank that is party `own` of a call that moves.
void fill_moves(Part& part, const Request& request, int own) {
  const Call& call = request.call;
  const std::size_t each = request.element_bytes;
  const auto receive = [&](int from, Range block) {
    part.received_begin[from] = block.begin * each;
    part.received_bytes[from] = block.count * each;
  };
  const auto send = [&](int to, Range block) { part.sent_begin[to] = block.begin * each; };
  switch (request.signature.operation) {
    case Operation::broadcast:
      if (own != call.root) receive(call.root, {0, call.elements});
      break;
    case Operation::send: break;
    case Operation::receive: receive(0, {0, request.output.size() / each}); break;
    case Operation::scatter:
      for (int to = 0; own == call.root && to < call.ranks; ++to) send(to, block_of(call, to));
      receive(call.root, {0, block_of(call, own).count});
      break;
    case Operation::gather:
      for (int from = 0; own == call.root && from < call.ranks; ++from) receive(from, block_of(call, from));
      break;
    case Operation::all_gather:
      for (int from = 0; from < call.ranks; ++from) receive(from, block_of(call, from));
      break;
    case Operation::all_to_all:
      for (int peer = 0; peer < call.ranks; ++peer) {
        send(peer, schedule::sent_block(call, peer));
        receive(peer, schedule::received_block(call, peer));
      }
      break;
    default: break;
  }
}

/// Elements of the result that this rank wants.
Range wanted(const Request& request, int own) {
  const Call& call = request.call;
  switch (call.operation) {
    case Operation::reduce: return own == call.root ? Range{0, call.elements} : Range{};
    case Operation::reduce_scatter: return block_of(call, own);
    default: return {0, call.elements};
  }
}

std::size_t reduced_elements(const Call& call) {
  return call.operation == Operation::reduce_scatter ? schedule::input_elements(call) : call.elements;
}

}  // namespace

/// All ranks of a call come to the same.
unsigned Engine::blocks_for(const Request& request) const {
  const Signature& called = request.signature;
  const Call& call = request.call;
  const auto most = static_cast<std::size_t>(std::min(most_blocks, 4 * kernels_->processors()));
  std::size_t bytes = 0;
  if (is_message(called.operation)) {
    bytes = called.elements;
  } else if (reduces(called.operation)) {
    bytes = reduced_elements(call) * request.element_bytes;
  } else if (called.has_counts_of_its_own()) {
    return static_cast<unsigned>(most);
  } else if (call.operation != Operation::barrier) {
    const Range last = block_of(call, call.ranks - 1);
    const std::size_t elements =
        call.operation == Operation::broadcast ? call.elements : last.begin + last.count;
    bytes = elements * request.element_bytes * static_cast<std::size_t>(call.ranks);
  }
  constexpr std::size_t bytes_of_a_block = pack_bytes * packs_at_once * threads_of_a_block;
  return static_cast<unsigned>(
      std::clamp<std::size_t>((bytes + bytes_of_a_block - 1) / bytes_of_a_block, 1, most));
}

void Engine::launch(const Request& request, const Lane& lane, int party, std::uint64_t number,
                    Buffers buffers, ArenaCall& arena_call) {
  const cuda::Driver& driver = options_.gpu->driver();
  const Signature& called = request.signature;
  const std::size_t slot = lane.slot_of(number);
  UpdateCall call{{.board = boards_ + slot * sizeof(Board),
                   .progress = page_address_ + page_.progress_offset(slot),
                   .bases = arena_->bases(),
                   .flag = flag_of(number),
                   .party = party,
                   .parties = static_cast<std::int32_t>(lane.ranks.size())},
                  {}};
  std::ranges::transform(lane.ranks, std::begin(call.ranks),
                         [](int rank) { return static_cast<std::uint8_t>(rank); });
  call.part.input =
      request.input.empty() ? buffers.output : buffers.input;  // broadcast: the root's is its output
  call.part.output = buffers.output;
  if (request.update != nullptr) {
    call.part.owned = buffers.owned;
    call.rule = rule_of(request.update->step, request.update->gradient_scale);
  }
  if (reduces(called.operation)) {
    const std::size_t parts = kernel::find_form(called.dtype, called.reduce_op).elements;
    const Range range = wanted(request, party);
    call.elements = reduced_elements(request.call) * parts;
    call.part.wanted_begin = range.begin * parts;
    call.part.wanted_end = (range.begin + range.count) * parts;
    call.prescale = called.prescale;
    call.scale = 1.0 / divisor_of(request, static_cast<int>(lane.ranks.size()));
  } else {
    fill_moves(call.part, request, party);
  }
  const auto address_of = [](const std::byte* memory) {
    return static_cast<cuda::Address>(reinterpret_cast<std::uintptr_t>(memory));
  };
  const auto copy = [&](cuda::Address to, cuda::Address from, std::size_t bytes, cuda::Stream stream) {
    driver.check(sharing_.copy(to, from, bytes, stream), "copying on the GPU");
  };
  const bool is_of_root = called.operation == Operation::broadcast && party == request.call.root;
  if (buffers.staged_input) {
    copy(buffers.staged_input->address(), address_of(request.input.data()), request.input.size(),
         arena_call.stream);
  } else if (is_of_root && buffers.staged_output) {
    copy(buffers.staged_output->address(), address_of(request.output.data()), request.output.size(),
         arena_call.stream);
  }
  // Of an update the whole; other kernels take what it begins with.
  void* arguments[] = {static_cast<KernelCall*>(&call)};
  const cuda::Result launched =
      sharing_.launch(kernels_->of(request), blocks_for(request), 1, 1, threads_of_a_block, 1, 1, 0,
                      arena_call.stream, arguments, nullptr);
  driver.check(launched, "starting a kernel of Lockstep's");
  const cuda::Address done =
      call.progress + static_cast<std::size_t>(party) * sizeof(Progress) + offsetof(Progress, done);
  const bool is_copied_out = buffers.staged_output && !is_of_root;
  arena_call.add(page_.progress(slot, party), done, call.flag, is_copied_out);
  if (is_copied_out) {
    arena_call.let_end_follow();
    driver.check(sharing_.wait_for_value(end_stream_, done, call.flag, cuda::wait_for_at_least),
                 "making a stream wait for other ranks");
    copy(address_of(request.output.data()), buffers.staged_output->address(), request.output.size(),
         end_stream_);
    arena_call.mark_end();
  }
  for (auto* const block : {&buffers.staged_input, &buffers.staged_output}) {
    if (*block) arena_call.staged.push_back(std::move(*block));
  }
}

GpuEngine::State Engine::look() {
  const Gpu::Current current(*options_.gpu);
  const Gpu::BesideCaptures beside(*options_.gpu);
  arena_->map_new();
  options_.gpu->driver().check(options_.gpu->driver().query_event(health_), "looking after calls on the GPU");
  return State::settled;
}

void Engine::abort() noexcept {
  const std::lock_guard lock(mutex_);
  if (std::exchange(is_aborted_, true)) return;
  if (!arena_) return;
  arena_->quarantine();
  const int own = options_.members.rank();
  const auto release = [&](const Lane& lane, int party) {
    const std::uint64_t next = lane.next[static_cast<std::size_t>(party)];
    for (std::uint64_t number = next - std::min(next, lane.slots); number < next; ++number) {
      const std::atomic_ref flag(page_.progress(lane.slot_of(number), party).done);
      const std::uint32_t awaited = flag_of(number);
      for (std::uint32_t seen = flag; !has_come(seen, awaited);) {
        if (flag.compare_exchange_weak(seen, awaited + beyond)) break;
      }
    }
  };
  for (std::size_t lane = 0; lane < lanes_.size(); ++lane) {
    const auto& ranks = lanes_[lane].ranks;
    for (int party = 0; party < std::ssize(ranks); ++party) {
      if (ranks[static_cast<std::size_t>(party)] == own) release(lanes_[lane], party);
    }
  }
  drain();
}

/// So that nothing is written to outputs any more when calls are over for the program.
void Engine::drain() noexcept try {
  const Gpu::Current current(*options_.gpu);
  const Gpu::BesideCaptures beside(*options_.gpu);
  const cuda::Driver& driver = options_.gpu->driver();
  const cuda::Event end = events_->take();
  driver.check(driver.record_event(end, end_stream_), "marking a stream");
  const Deadline deadline = Deadline::after(draining_takes);
  while (driver.query_event(end) == cuda::not_ready && !deadline.expired())
    std::this_thread::sleep_for(between_device_looks);
  events_->put_back(end);
} catch (const Error& error) {  // the GPU has failed
  log::debug(error.what());
}

void Engine::end(Deadline deadline, const std::function<bool()>& gives_up) {
  arena_->leave(deadline, gives_up);
}

std::vector<int> Engine::missing_in(std::uint64_t, const Signature&) {
  const Lane& lane = lanes_.front();
  const std::lock_guard lock(mutex_);
  const std::uint64_t next = lane.next[static_cast<std::size_t>(options_.members.rank())];
  for (std::uint64_t number = next - std::min(next, lane.slots); number < next; ++number) {
    const std::size_t slot = lane.slot_of(number);
    if (has_come(std::atomic_ref(page_.progress(slot, options_.members.rank()).done), flag_of(number)))
      continue;
    const Notice& own = page_.notice(slot, options_.members.rank());
    std::vector<int> missing, not_on_gpu;
    for (const int rank : lane.ranks) {
      const Notice& notice = page_.notice(slot, rank);
      const std::uint64_t told = notice.number;
      const int world = options_.members[rank].world;
      if (told < number + 1) missing.push_back(world);
      if (told != number + 1) continue;
      if (rank != options_.members.rank()) require_same(notice, rank, own.called, number);
      if (!has_come(std::atomic_ref(page_.progress(slot, rank).arrived), flag_of(number)))
        not_on_gpu.push_back(world);
    }
    // It was stopped between its word and its kernel, or a kernel of its program's does not end.
    if (missing.empty()) return not_on_gpu;
    return missing;
  }
  return {};
}

}  // namespace lockstep::device_arena

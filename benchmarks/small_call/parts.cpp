#include "small_call/parts.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>

#include "collectives/session.h"
#include "lockstep/execute/execution.h"
#include "lockstep/execute/plan.h"
#include "lockstep/execute/progress.h"
#include "lockstep/group/collectives.h"
#include "lockstep/group/in_process.h"
#include "lockstep/kernel/reduce.h"
#include "lockstep/memory/arena.h"
#include "lockstep/trace/recorder.h"

namespace bench {
namespace {

using namespace lockstep;

constexpr int batches = 51;
constexpr int calls_per_batch = 2000;

template <class Call>
Part timed(std::string name, Call call) {
  std::array<double, batches> times;
  for (double& time : times) {
    const std::uint64_t begin = now_ns();
    for (int i = 0; i < calls_per_batch; ++i) {
      call();
      asm volatile("" ::: "memory");
    }
    time = static_cast<double>(now_ns() - begin) / calls_per_batch;
  }
  std::nth_element(times.begin(), times.begin() + batches / 2, times.end());
  return {std::move(name), times[batches / 2]};
}

template <class T>
void keep(const T& value) {
  asm volatile("" : : "r,m"(value) : "memory");
}

const Call one_element{.elements = 1, .ranks = 2};
const Signature four_bytes{
    .elements = 1, .operation = Operation::all_reduce, .dtype = Dtype::f32, .reduce_op = ReduceOp::sum};

// Two ranks of which this thread plays both, so that whoever is awaited has always been there.
class Neighbours final : public Surroundings {
 public:
  Neighbours() : region_(HostRegion::in_process(2, 1 << 20)), page_(ControlPage::in_process(2)) {
    for (int rank = 0; rank < 2; ++rank) ranks_.emplace_back(region_, rank, 2, page_.doorbell());
  }
  /// Rank 1 does its part of the work.
  void play_other(std::uint64_t work) {
    ranks_[1].announce(work, four_bytes);
    region_->cell(work, 1).word.store(work * 256 + 1, std::memory_order_release);
    region_->progress(1).completed.store(work + 1, std::memory_order_release);
    number_ = work;
  }
  Arrivals& mine() { return ranks_[0]; }
  HostRegion& region() { return *region_; }
  const std::shared_ptr<HostRegion>& region_pointer() const { return region_; }
  ControlPage& page() { return page_; }

  Link& link(int) override { throw std::logic_error("no links here"); }
  void arrive(std::uint32_t stage) override { mine().arrive(number_, stage); }
  bool await(std::uint32_t stage) override { return mine().have_all_arrived(number_, stage); }
  Exchange& exchange() override { throw std::logic_error("no engine here"); }

 private:
  std::shared_ptr<HostRegion> region_;
  ControlPage page_;
  std::vector<Arrivals> ranks_;
  std::uint64_t number_ = 0;
};

class IdleEngine final : public Engine {
 public:
  bool advance() override { return false; }
  bool is_idle() const override { return true; }
  void look() override {}
  void add_wait_descriptors(std::vector<pollfd>&) override {}
};

void measure_call(std::vector<Part>& parts, Neighbours& neighbours) {
  const auto arena = std::make_shared<Arena>(neighbours.region_pointer(), 0);
  const auto block = arena->allocate(64);
  parts.push_back(
      timed("is the buffer in the arena", [&] { keep(arena->offset_of(block.bytes()).has_value()); }));

  PlanCache plans({.slot_bytes = slot_bytes}, Tuning::standard(), staging_bytes);
  parts.push_back(timed("lookup: the plan, seen before",
                        [&] { keep(plans.find_one_shot(one_element, four_bytes, 4).get()); }));

  std::uint64_t work = 0;
  parts.push_back(timed("signature: announce and arrive, with the doorbell", [&] {
    neighbours.mine().announce(work, four_bytes);
    neighbours.mine().arrive(work++, 1);
  }));
  parts.push_back(timed("of that, the doorbell", [&] { neighbours.page().doorbell().ring(); }));
  neighbours.play_other(work);
  neighbours.mine().arrive(work, 1);
  parts.push_back(
      timed("look whether all have arrived", [&] { keep(neighbours.mine().have_all_arrived(work, 1)); }));
  parts.push_back(timed("signature: compare with the others'", [&] {
    for (int rank = 0; rank < 2; ++rank) keep(four_bytes.matches(neighbours.mine().signature(work, rank)));
  }));
}

void measure_execution(std::vector<Part>& parts, Neighbours& neighbours) {
  PlanCache plans({.slot_bytes = slot_bytes}, Tuning::standard(), staging_bytes);
  const auto plan = plans.find_one_shot(one_element, four_bytes, 4);
  float value = 1;
  float other = 1;
  const std::array<const std::byte*, 2> sources{reinterpret_cast<std::byte*>(&value),
                                                reinterpret_cast<std::byte*>(&other)};
  const std::array<std::byte*, 1> destinations{reinterpret_cast<std::byte*>(&value)};
  parts.push_back(timed("the kernel: one float of two ranks", [&] {
    value = 1;
    kernel::reduce(Dtype::f32, ReduceOp::sum, 1, sources, destinations);
  }));

  const std::uint64_t work = 1000;
  neighbours.play_other(work);
  Execution execution;
  execution.bindings() = {.inputs = {sources[0], nullptr},
                          .outputs = {destinations[0], nullptr},
                          .slots = {neighbours.mine().slot(work, 0, 4), neighbours.mine().slot(work, 1, 4)},
                          .element_bytes = 4,
                          .dtype = Dtype::f32};
  std::memset(execution.bindings().slots[1], 0, 4);
  std::uint64_t own_work_ns = 0;
  parts.push_back(timed("the schedule's steps: copy, arrive, await, reduce", [&] {
    execution.begin(plan->schedule, neighbours, 0, work, four_bytes);
    keep(execution.advance(own_work_ns));
  }));
  parts.push_back(timed("tell that it is complete, with the doorbell",
                        [&] { neighbours.mine().complete_through(work); }));
}

void measure_record_and_waits(std::vector<Part>& parts) {
  parts.push_back(timed("the clock, read once", [] { keep(trace::now_ns()); }));
  const auto ring = std::make_unique<trace::RecordRings>();
  trace::Recorder recorder(ring.get());
  trace::CompletedCollective call{};
  parts.push_back(timed("the record, without clocks", [&] {
    ++call.sequence;
    recorder.record(call, 1);
  }));
  const auto table = std::make_unique<trace::TotalsTable>();
  trace::Totals totals(table.get());
  const trace::CallClass of{.group = 7, .operation = Operation::all_reduce, .size_bin = 1};
  parts.push_back(timed("the totals, without clocks", [&] { totals.add(of, call, 4, 10); }));

  const auto page = std::make_shared<ControlPage>(ControlPage::in_process(2));
  Progress progress(page, WaitPolicy());
  IdleEngine engine;
  progress.attach(engine);
  parts.push_back(timed("the progress lock", [&] { keep(progress.lock().owns_lock()); }));
  parts.push_back(timed("lock and advance, nothing under way", [&] { progress.poll(); }));
  parts.push_back(timed("deadline: a wait for what is over, with its lock",
                        [&] { keep(progress.wait([] { return true; }, std::chrono::nanoseconds::max())); }));
  progress.detach(engine);
  const auto shared = std::make_shared<int>(0);
  parts.push_back(timed("a Work's memory: new, shared owner, delete", [&] {
    keep(std::make_unique<std::pair<std::shared_ptr<int>, void*>>(shared, nullptr).get());
  }));
}

// Two ranks in this thread, so neither waits nor moves a cache line: what the instructions cost.
Part whole_call() {
  const std::vector<Group> ranks = in_process_world(2);
  float values[2] = {1, 1};
  Part both = timed("all of the call, waiting for nobody", [&] {
    Work first = all_reduce(ranks[0], std::span(&values[0], 1), ReduceOp::max);
    all_reduce(ranks[1], std::span(&values[1], 1), ReduceOp::max).wait();
    first.wait();
  });
  both.ns /= 2;
  return both;
}

}  // namespace

std::vector<Part> measure_parts() {
  std::vector<Part> parts{whole_call()};
  Neighbours neighbours;
  measure_call(parts, neighbours);
  measure_execution(parts, neighbours);
  measure_record_and_waits(parts);
  return parts;
}

}  // namespace bench

#include "lockstep/engine/named_collectives.h"

#include <numeric>

#include "lockstep/engine/named_engine.h"
#include "lockstep/group/impl.h"
#include "lockstep/trace/group_names.h"

namespace lockstep {
namespace {

/// A group of the same ranks, whose calls nobody else makes.
Group twin_of(const Group& group) {
  if (group.size() == 1) return group;
  std::vector<int> ranks(static_cast<std::size_t>(group.size()));
  std::iota(ranks.begin(), ranks.end(), 0);
  const auto& impl = group.shared_impl();
  return make_subgroup(impl, ranks, impl->tuning, {.purpose = std::string(trace::named_purpose)});
}

class NamedWork final : public PendingWork {
 public:
  NamedWork(std::shared_ptr<NamedEngine> engine, NamedSet& set, std::shared_ptr<NamedOperation> operation)
      : engine_(std::move(engine)), set_(set), operation_(std::move(operation)) {}

  bool poll() override { return engine_->poll(*operation_); }
  void wait() override {
    (void)engine_->wait(set_, *operation_, std::chrono::nanoseconds::max());
    if (operation_->failure) std::rethrow_exception(operation_->failure);
  }
  bool wait_for(std::chrono::nanoseconds duration) override {
    return engine_->wait(set_, *operation_, duration);
  }
  void abandon() noexcept override { engine_->abandon(set_, *operation_); }

 private:
  std::shared_ptr<NamedEngine> engine_;
  NamedSet& set_;
  std::shared_ptr<NamedOperation> operation_;
};

}  // namespace

NamedCollectives::NamedCollectives(const Group& group, const NamedOptions& options)
    : engine_(std::make_shared<NamedEngine>(options)), set_(&engine_->add(twin_of(group))) {}

NamedCollectives::NamedCollectives(std::shared_ptr<NamedEngine> engine, NamedSet& set)
    : engine_(std::move(engine)), set_(&set) {}

const Group& NamedCollectives::group() const { return set_->group(); }

NamedStatistics NamedCollectives::statistics() const { return engine_->statistics(*set_); }

NamedCollectives NamedCollectives::process_set(std::span<const int> ranks) const {
  return {engine_, engine_->add(group().subgroup(ranks))};
}

Work NamedCollectives::submit(NamedRequest request, NamedBuffers buffers) const {
  auto operation = engine_->begin([&] { return set_->submit(std::move(request), std::move(buffers)); });
  return Work(std::make_unique<NamedWork>(engine_, *set_, std::move(operation)));
}

int NamedCollectives::join() const {
  auto operation = engine_->begin([&] { return set_->join(); });
  Work(std::make_unique<NamedWork>(engine_, *set_, std::move(operation))).wait();
  return set_->last_joined();
}

}  // namespace lockstep

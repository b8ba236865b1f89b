#include "lockstep/train/replicas/parameter_claim.h"

#include <map>
#include <memory>
#include <mutex>
#include <set>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

struct Owner {
  std::string name;
  std::function<void()> require_whole;
};

struct Owners {
  std::mutex mutex;
  std::map<const void*, std::shared_ptr<const Owner>> of;  // by TensorImpl
};

Owners& owners() {
  static Owners all;
  return all;
}

}  // namespace

ParameterClaim::ParameterClaim(std::span<const NamedTensor> parameters, const std::string& owner,
                               std::function<void()> require_whole) {
  const std::lock_guard lock(owners().mutex);
  for (const auto& item : parameters) {
    const auto found = owners().of.find(item.tensor.unsafeGetTensorImpl());
    if (found == owners().of.end()) continue;
    throw_invalid_argument("parameter " + item.name + " is in a " + found->second->name +
                           " already, which averages its gradients; let that one end before a " + owner +
                           " takes it");
  }
  const auto shared = std::make_shared<const Owner>(owner, std::move(require_whole));
  for (const auto& item : parameters) {
    owners().of[item.tensor.unsafeGetTensorImpl()] = shared;
    claimed_.push_back(item.tensor);
  }
}

ParameterClaim::~ParameterClaim() {
  const std::lock_guard lock(owners().mutex);
  for (const auto& tensor : claimed_) owners().of.erase(tensor.unsafeGetTensorImpl());
}

void require_whole(std::span<const NamedTensor> parameters) {
  std::set<std::shared_ptr<const Owner>> found;
  {
    const std::lock_guard lock(owners().mutex);
    for (const auto& item : parameters) {
      const auto owner = owners().of.find(item.tensor.unsafeGetTensorImpl());
      if (owner != owners().of.end() && owner->second->require_whole) found.insert(owner->second);
    }
  }
  for (const auto& owner : found) owner->require_whole();
}

}  // namespace lockstep

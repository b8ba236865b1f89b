#include "lockstep/train/parameter_claim.h"

#include <map>
#include <mutex>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

struct Owners {
  std::mutex mutex;
  std::map<const void*, std::string> of;  // by TensorImpl
};

Owners& owners() {
  static Owners all;
  return all;
}

}  // namespace

ParameterClaim::ParameterClaim(std::span<const NamedTensor> parameters, const std::string& owner) {
  const std::lock_guard lock(owners().mutex);
  for (const auto& item : parameters) {
    const auto found = owners().of.find(item.tensor.unsafeGetTensorImpl());
    if (found == owners().of.end()) continue;
    throw_invalid_argument("parameter " + item.name + " is in a " + found->second +
                           " already, which averages its gradients; let that one end before a " + owner +
                           " takes it");
  }
  for (const auto& item : parameters) {
    owners().of[item.tensor.unsafeGetTensorImpl()] = owner;
    claimed_.push_back(item.tensor);
  }
}

ParameterClaim::~ParameterClaim() {
  const std::lock_guard lock(owners().mutex);
  for (const auto& tensor : claimed_) owners().of.erase(tensor.unsafeGetTensorImpl());
}

}  // namespace lockstep

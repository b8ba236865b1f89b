#include "lockstep/train/replicas/sliced_module.h"

namespace lockstep {

std::map<std::string, SlicedParameter> sliced_in(const torch::nn::Module& module) {
  std::map<std::string, SlicedParameter> found;
  module.apply([&](const std::string& path, const torch::nn::Module& part) {
    const auto* const sliced = dynamic_cast<const SlicedModule*>(&part);
    if (sliced == nullptr || sliced->group().size() == 1) return;
    for (const SlicedParameter& each : sliced->sliced())
      found.emplace(path.empty() ? each.name : path + "." + each.name, each);
  });
  return found;
}

}  // namespace lockstep

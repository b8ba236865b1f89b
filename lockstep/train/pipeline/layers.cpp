#include "lockstep/train/pipeline/layers.h"

#include <algorithm>

#include "lockstep/base/error.h"

namespace lockstep {

Layers& Layers::put(const std::string& name, std::function<BuiltLayer()> build) {
  if (name.empty() || name.find('.') != std::string::npos)
    throw_invalid_argument("Layers: \"" + name + "\" is no name of a layer: it is empty or has a dot");
  if (std::ranges::find(layers_, name, &Layer::name) != layers_.end())
    throw_invalid_argument("Layers: there are two layers with the name \"" + name + "\"");
  layers_.push_back({name, std::move(build)});
  return *this;
}

void Layers::refuse_count(std::size_t count) {
  throw_invalid_argument("it takes another number of tensors than the " + std::to_string(count) +
                         " that the layer before returns");
}

}  // namespace lockstep

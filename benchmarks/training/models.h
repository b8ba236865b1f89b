// The models of models.json, and what each rank trains them with; models.py has the same ones for the peers.
// A model is the same on all ranks, a batch is the rank's own.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <fstream>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <vector>

#include "examples/support/resnet.h"

namespace bench {

struct Model {
  torch::nn::Sequential net;
  std::vector<std::int64_t> input;  ///< the shape of a rank's batch
  std::int64_t classes = 10;
};

struct Batch {
  torch::Tensor input;
  torch::Tensor target;
};

inline const nlohmann::json& all_models() {
  static const nlohmann::json models = [] {
    std::ifstream file(LOCKSTEP_BENCH_MODELS);
    if (!file) throw std::runtime_error("cannot read " LOCKSTEP_BENCH_MODELS);
    return nlohmann::json::parse(file);
  }();
  return models;
}

inline std::vector<std::string> model_names() {
  std::vector<std::string> names;
  for (const auto& [name, model] : all_models().items()) names.push_back(name);
  return names;
}

/// `layer`: its kind, and the numbers that torch's constructor takes.
inline void append_layer(torch::nn::Sequential& net, const nlohmann::json& layer) {
  using namespace torch::nn;
  const auto kind = layer.at(0).get<std::string>();
  const auto number = [&](std::size_t i) { return layer.at(i).get<std::int64_t>(); };
  if (kind == "Conv2d") {
    net->push_back(Conv2d(number(1), number(2), number(3)));
  } else if (kind == "Flatten") {
    net->push_back(Flatten());
  } else if (kind == "Linear") {
    net->push_back(Linear(number(1), number(2)));
  } else if (kind == "MaxPool2d") {
    net->push_back(MaxPool2d(number(1)));
  } else if (kind == "ReLU") {
    net->push_back(ReLU());
  } else if (kind == "ResNet18") {
    net->push_back(examples::ResNet18(number(1)));
  } else {
    throw std::invalid_argument("models.json has a layer '" + kind + "', which models.h does not know");
  }
}

/// The same parameters each time.
inline Model model_named(const std::string& name) {
  const auto found = all_models().find(name);
  if (found == all_models().end()) throw std::invalid_argument("there is no model '" + name + "'");
  torch::manual_seed(1);
  Model model;
  model.input = found->at("input").get<std::vector<std::int64_t>>();
  model.classes = found->at("classes").get<std::int64_t>();
  for (const auto& layer : found->at("layers")) append_layer(model.net, layer);
  return model;
}

/// What `rank` trains with, the same each time.
inline Batch batch_of(const Model& model, int rank) {
  constexpr std::uint64_t first_seed = 1000;
  torch::manual_seed(first_seed + static_cast<std::uint64_t>(rank));
  return {torch::randn(model.input), torch::randint(model.classes, {model.input.front()})};
}

}  // namespace bench

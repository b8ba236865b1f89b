// A model's trainable parameters, moved into few long arrays (flat_layout.h, flat_array.h): one copy for all ranks where
// they share memory, or else one each. To the model nothing changes but where its parameters lie.
#pragma once

#include <torch/torch.h>

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "lockstep/train/replicas/named_tensor.h"
#include "lockstep/train/sharded/flat_array.h"
#include "lockstep/train/sharded/flat_layout.h"

namespace lockstep {

class FlatModel {
 public:
  /// The parameters of one element type.
  struct Family {
    FlatLayout layout;  ///< its parameters are numbers in parameters()
    Dtype dtype = Dtype::f32;
    torch::ScalarType type = torch::kFloat32;  ///< the same, as libtorch has it
    std::shared_ptr<FlatArray> memory;
    Range slice;  ///< of this rank
    std::vector<Segment> segments;
  };
  struct Parameter {
    NamedTensor item;
    std::size_t family = 0;
    std::size_t position = 0;  ///< in the family's array
    const void* data = nullptr;
  };

  /// Collective. `trainable`: alike on all ranks, in values too, of types that have an average, all on one device. Throws what
  /// FlatArray does.
  FlatModel(const Group& group, std::vector<NamedTensor> trainable);
  FlatModel(const FlatModel&) = delete;
  FlatModel& operator=(const FlatModel&) = delete;
  /// Not collective: parameters become this rank's own again, unless they were replaced.
  ~FlatModel();

  const std::vector<Family>& families() const { return families_; }
  const std::vector<Parameter>& parameters() const { return parameters_; }

  torch::Device device() const { return device_; }
  /// Whether all ranks have one copy.
  bool is_shared() const { return is_shared_; }

  /// Throws invalid_argument if a parameter lies elsewhere by now: converted, or replaced.
  void require_in_place() const;
  /// Tells autograd that all of them have changed.
  void note_changes() const;

 private:
  torch::Device device_ = torch::kCPU;
  bool is_shared_ = false;
  std::vector<Parameter> parameters_;
  std::vector<Family> families_;
};

}  // namespace lockstep

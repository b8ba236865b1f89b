// What DataParallel is whatever the type of its module: replicas of a model on the devices of one process, the parts of a
// batch that each gets, and one backward through all of them.
#pragma once

#include <c10/core/Stream.h>
#include <torch/torch.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <numeric>
#include <vector>

namespace lockstep {

class SlotThreads;

/// Where the variables are that replicas read.
enum class Variables {
  central,  ///< the model's, where it is: devices there read it in place, others a copy that every forward makes
  mirrored,  ///< each replica has its own copy, which every forward brings up to date; the first one's, on its device, are the model's
};

struct ReplicaOptions {
  Variables variables = Variables::central;
};

/// A module with the model's parameters, buffers and children, under the model's names.
class ReplicatedModule : public torch::nn::Module {
 public:
  const std::vector<torch::Device>& devices() const { return devices_; }
  Variables variables() const { return options_.variables; }
  /// The model's mode, too.
  void train(bool on = true) override;

  /// How many of `samples` each replica gets, in their order: as even as can be, the first ones one more. Replicas that
  /// would get none are left out.
  std::vector<std::int64_t> deal(std::int64_t samples) const;

 protected:
  using Tensors = std::vector<torch::Tensor>;
  using Modules = std::vector<std::shared_ptr<torch::nn::Module>>;
  using Streams = std::vector<c10::Stream>;

  /// What the replicas are given in one forward.
  struct Pass {
    std::vector<std::int64_t> samples = {};  ///< of each replica
    Tensors inputs = {};                     ///< those that want gradients
    std::vector<Tensors> pieces = {};        ///< of each such input, its parts
    /// The caller's, of all GPUs: what a pass gives these comes after what the caller gave them, and before what it will.
    Streams streams = {};

    std::int64_t all_samples() const {
      return std::accumulate(samples.begin(), samples.end(), std::int64_t{0});
    }
  };

  /// `replicas`: one for each device.
  ReplicatedModule(std::shared_ptr<torch::nn::Module> model, Modules replicas,
                   std::vector<torch::Device> devices, const ReplicaOptions& options);
  ~ReplicatedModule() override;

  /// Brings the replicas up to date.
  Pass begin(std::int64_t samples);
  /// The first dimension of an input is its samples. Its parts are leaves of their own where gradients are wanted.
  Tensors split(Pass& pass, const torch::Tensor& input) const;
  /// On the thread of each replica that has samples.
  void each(const Pass& pass, const std::function<void(std::size_t)>& work);
  /// `outputs[slot]`: the tensors that a replica returned. Each joined to one, on the first device, whose backward goes through
  /// all replicas at once.
  Tensors join(Pass pass, std::vector<Tensors> outputs);
  /// Adds what backwards have left in the replicas' grad() to the model's, each by its share of the samples.
  void gather_gradients(const Pass& pass);
  void drop_gradients();

 private:
  struct JoinedPass;
  class Join;

  void require_alike(std::size_t slot) const;
  Streams caller_streams() const;
  /// On the first so many threads.
  void on_slots(std::size_t slots, const Streams& streams, const std::function<void(std::size_t)>& work);
  /// What a forward has left in the first replica's.
  void take_buffers();
  void refresh(const Streams& streams);
  /// Calls `work` with each of the model's parameters that has gradients in some of `found` (by slot), and their sum.
  void add_up(const Pass& pass, std::vector<Tensors>& found,
              const std::function<void(std::size_t, torch::Tensor)>& work);

  std::shared_ptr<torch::nn::Module> model_;
  Modules replicas_;
  std::vector<torch::Device> devices_;
  ReplicaOptions options_;
  Tensors model_parameters_, model_buffers_;
  std::vector<Tensors> parameters_, buffers_;  // of each replica
  std::unique_ptr<SlotThreads> threads_;
};

}  // namespace lockstep

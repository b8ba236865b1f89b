#include "lockstep/train/replicas/sync_batch_norm.h"

#include <torch/library.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/group/collectives.h"
#include "lockstep/train/replicas/told_where.h"
#include "lockstep/train/tensor/gpu_place.h"
#include "lockstep/train/tensor/tensor_collectives.h"

namespace lockstep {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::tensor_list;

/// Where the ranks' statistics of a batch norm meet: on their GPUs where each has its input on one, else in main memory.
class MeetingPlace {
 public:
  /// Of an input on `device`. Collective at the first time for a device, which all ranks change together.
  torch::Device of(const Group& group, torch::Device device) {
    if (device_ != device) {
      std::array<std::uint8_t, 1> are_on_gpus{device.type() == gpu_kind ? std::uint8_t{1} : std::uint8_t{0}};
      all_reduce(group, are_on_gpus, ReduceOp::min).wait();
      if (are_on_gpus[0] == 0)
        say_leaves_gpu(group, device, "statistics of batch norms meet those of a rank there");
      is_gpu_ = are_on_gpus[0] != 0 && stays_on_gpu(group, device);
      device_ = device;
    }
    return is_gpu_ ? device : torch::Device(torch::kCPU);
  }

 private:
  std::optional<torch::Device> device_;
  bool is_gpu_ = false;
};

/// Over which ranks a batch norm is synchronised, and where.
struct Synchronised {
  Group group;
  std::shared_ptr<MeetingPlace> place;
};

/// Which batch norms are synchronised. A module is known by its weight or its running mean, tensors that are
/// the same objects as long as it lives.
class Registry {
 public:
  static Registry& instance() {
    static auto* const immortal = new Registry;
    return *immortal;
  }

  void add(const torch::Tensor& tensor, const Group& group) {
    const std::lock_guard lock(mutex_);
    std::erase_if(entries_, [](const auto& entry) { return entry.second.tensor.expired(); });
    entries_.insert_or_assign(tensor.unsafeGetTensorImpl(),
                              Entry{c10::weak_intrusive_ptr(tensor.getIntrusivePtr()), group.shared_impl(),
                                    std::make_shared<MeetingPlace>()});
  }

  /// How it is synchronised; nullopt for an ordinary one.
  std::optional<Synchronised> find(const std::optional<torch::Tensor>& tensor) {
    if (!tensor || !tensor->defined()) return std::nullopt;
    const std::lock_guard lock(mutex_);
    const auto found = entries_.find(tensor->unsafeGetTensorImpl());
    if (found == entries_.end() || found->second.tensor.expired()) return std::nullopt;
    auto group = found->second.group.lock();
    if (!group) throw_invalid_argument("the group of a synchronised batch norm has ended");
    return Synchronised{Group(std::move(group)), found->second.place};
  }

 private:
  // Neither keeps what it refers to: a group ends with its last user.
  struct Entry {
    c10::weak_intrusive_ptr<c10::TensorImpl> tensor;
    std::weak_ptr<Group::Impl> group;
    std::shared_ptr<MeetingPlace> place;
  };
  std::mutex mutex_;
  std::map<const void*, Entry> entries_;
};

/// Of one number for each channel, a view that goes with all dimensions of `like`.
torch::Tensor by_channel(const torch::Tensor& channels, const torch::Tensor& like) {
  std::vector<std::int64_t> shape(static_cast<std::size_t>(like.dim()), 1);
  shape[1] = -1;
  return channels.to(like.device(), like.scalar_type()).view(shape);
}

std::vector<std::int64_t> all_but_channels(const torch::Tensor& tensor) {
  std::vector<std::int64_t> dimensions = {0};
  for (std::int64_t i = 2; i < tensor.dim(); ++i) dimensions.push_back(i);
  return dimensions;
}

/// Halves are computed in f32.
torch::Tensor widened(const torch::Tensor& tensor) {
  return tensor.to(tensor.scalar_type() == torch::kFloat64 ? torch::kFloat64 : torch::kFloat32);
}

/// f64, where the ranks' statistics meet.
struct Moments {
  torch::Tensor mean, variance;  // of each channel; the variance not corrected
  torch::Tensor count;           // a number
};

/// Collective.
Moments moments_of_all(const Group& group, const torch::Tensor& input, torch::Device place) {
  const std::int64_t channels = input.size(1);
  const std::int64_t count = channels == 0 ? 0 : input.numel() / channels;
  const auto options = torch::dtype(torch::kFloat64).device(place);
  const auto mine = torch::zeros({2 * channels + 1}, options);
  if (count > 0) {
    const auto [variance, mean] = torch::var_mean(input, all_but_channels(input), /*unbiased=*/false);
    mine.narrow(0, 0, 2 * channels).copy_(torch::cat({mean, variance}));
    mine.narrow(0, 2 * channels, 1).fill_(static_cast<double>(count));
  }
  const auto all = torch::empty({group.size(), 2 * channels + 1}, options);
  telling_where("the forward of a synchronised batch norm", [&] { all_gather(group, mine, all).wait(); });
  const auto means = all.narrow(1, 0, channels), variances = all.narrow(1, channels, channels);
  const auto counts = all.narrow(1, 2 * channels, 1);
  Moments moments;
  moments.count = counts.sum();
  // What this rank has says it, mostly, without a wait for the device.
  if (const double together = count >= 2 ? 2 : moments.count.item<double>(); together < 2) {
    throw_invalid_argument("batch norm needs two values for a channel in training; all " +
                           std::to_string(group.size()) + " ranks together have " +
                           std::to_string(static_cast<std::int64_t>(together)));
  }
  moments.mean = (means * counts).sum(0) / moments.count;
  moments.variance = ((variances + (means - moments.mean).square()) * counts).sum(0) / moments.count;
  return moments;
}

/// dx = weight / sigma (dy - mean(dy) - xhat mean(dy xhat)), with means over all ranks.
class Normalise : public torch::autograd::Function<Normalise> {
 public:
  static torch::Tensor forward(AutogradContext* context, const torch::Tensor& input,
                               const torch::Tensor& weight, const torch::Tensor& bias, const Moments& moments,
                               double epsilon, const Group& group) {
    const auto x = widened(input);
    const auto inverse = (moments.variance + epsilon).rsqrt();
    const auto normal = (x - by_channel(moments.mean, x)) * by_channel(inverse, x);
    auto output = normal;
    if (weight.defined()) output = output * by_channel(weight, x);
    if (bias.defined()) output = output + by_channel(bias, x);
    context->save_for_backward({normal, inverse, weight, bias, moments.count});
    context->saved_data["type"] = input.scalar_type();
    context->saved_data["group"] = c10::IValue::make_capsule(c10::make_intrusive<Held>(group));
    return output.to(input.scalar_type());
  }

  static tensor_list backward(AutogradContext* context, tensor_list gradients) {
    const auto saved = context->get_saved_variables();
    const auto &normal = saved[0], &inverse = saved[1], &weight = saved[2], &bias = saved[3],
               &count = saved[4];
    const auto held = c10::static_intrusive_pointer_cast<Held>(context->saved_data["group"].toCapsule());
    const Group& group = held->group;
    const auto type = context->saved_data["type"].toScalarType();
    const auto dy = gradients[0].to(normal.scalar_type());
    const auto own_dy = dy.sum(all_but_channels(dy)), own_dy_normal = (dy * normal).sum(all_but_channels(dy));
    const auto sums = torch::cat({own_dy, own_dy_normal}).to(inverse.device()).to(torch::kFloat64);
    telling_where("the backward of a synchronised batch norm",
                  [&] { all_reduce(group, sums, ReduceOp::sum).wait(); });
    const auto halves = (sums / count).chunk(2);
    auto factor = inverse;
    if (weight.defined()) factor = factor * weight.to(inverse.device()).to(torch::kFloat64);
    const auto dx =
        (dy - by_channel(halves[0], dy) - normal * by_channel(halves[1], dy)) * by_channel(factor, dy);
    return {dx.to(type),
            weight.defined() ? own_dy_normal.to(weight.scalar_type()) : torch::Tensor(),
            bias.defined() ? own_dy.to(bias.scalar_type()) : torch::Tensor(),
            torch::Tensor(),
            torch::Tensor(),
            torch::Tensor()};
  }

 private:
  struct Held : torch::CustomClassHolder {
    explicit Held(Group held) : group(std::move(held)) {}
    Group group;
  };
};

torch::Tensor synchronised(const Synchronised& how, const torch::Tensor& input, const torch::Tensor& weight,
                           const torch::Tensor& bias, const torch::Tensor& running_mean,
                           const torch::Tensor& running_variance, double momentum, double epsilon) {
  Moments moments;
  {
    const torch::NoGradGuard no_grad;
    moments = moments_of_all(how.group, widened(input.detach()), how.place->of(how.group, input.device()));
    const auto move_towards = [momentum](const torch::Tensor& running, const torch::Tensor& value) {
      if (!running.defined()) return;
      running.mul_(1 - momentum).add_(value.to(running.device(), running.scalar_type()), momentum);
    };
    move_towards(running_mean, moments.mean);
    move_towards(running_variance, moments.variance * (moments.count / (moments.count - 1)));
  }
  return Normalise::apply(input, weight, bias, moments, epsilon, how.group);
}

/// What torch::batch_norm() is from now on.
torch::Tensor batch_norm(const torch::Tensor& input, const std::optional<torch::Tensor>& weight,
                         const std::optional<torch::Tensor>& bias,
                         const std::optional<torch::Tensor>& running_mean,
                         const std::optional<torch::Tensor>& running_variance, bool training, double momentum,
                         double epsilon, bool cudnn_enabled) {
  if (training) {
    auto how = Registry::instance().find(weight);
    if (!how) how = Registry::instance().find(running_mean);
    if (how && how->group.size() > 1) {
      const auto or_none = [](const std::optional<torch::Tensor>& tensor) {
        return tensor.value_or(torch::Tensor());
      };
      return synchronised(*how, input, or_none(weight), or_none(bias), or_none(running_mean),
                          or_none(running_variance), momentum, epsilon);
    }
  }
  return std::get<0>(at::_batch_norm_impl_index(input, weight, bias, running_mean, running_variance, training,
                                                momentum, epsilon, cudnn_enabled));
}

/// libtorch's modules call no virtual function of theirs, so that replacing them would not reach the members
/// by which programs call them; the operation below is what they have in common.
void take_over_batch_norm() {
  using c10::DispatchKey;
  [[gnu::used]] static auto* const libraries = [] {
    std::vector<std::unique_ptr<torch::Library>> made;
    for (const auto device :
         {DispatchKey::AutogradCPU, DispatchKey::AutogradCUDA, DispatchKey::AutogradXPU,
          DispatchKey::AutogradMPS, DispatchKey::AutogradHPU, DispatchKey::AutogradPrivateUse1}) {
      made.push_back(
          std::make_unique<torch::Library>(torch::Library::IMPL, "aten", device, __FILE__, __LINE__));
      made.back()->impl("batch_norm", batch_norm);
    }
    return new std::vector(std::move(made));  // immortal
  }();
}

/// The tensor by which the module is known; undefined if it has none, nothing if it is no batch norm.
template <class... BatchNorm>
std::optional<torch::Tensor> sign_of(const torch::nn::Module& module) {
  std::optional<torch::Tensor> sign;
  const auto look_at = [&](const auto* norm) {
    if (norm != nullptr) sign = norm->weight.defined() ? norm->weight : norm->running_mean;
  };
  (look_at(dynamic_cast<const BatchNorm*>(&module)), ...);
  return sign;
}

/// Of all batch norms in `module`, with their names.
std::vector<std::pair<std::string, torch::Tensor>> signs_in(const torch::nn::Module& module) {
  std::vector<std::pair<std::string, torch::Tensor>> signs;
  module.apply([&](const std::string& name, const torch::nn::Module& one) {
    const auto sign =
        sign_of<torch::nn::BatchNorm1dImpl, torch::nn::BatchNorm2dImpl, torch::nn::BatchNorm3dImpl>(one);
    if (sign) signs.emplace_back(name, *sign);
  });
  return signs;
}

}  // namespace

std::size_t convert_sync_batch_norm(torch::nn::Module& module, const Group& group) {
  const auto signs = signs_in(module);
  for (const auto& [name, sign] : signs) {
    if (sign.defined()) continue;
    throw Error(ErrorCode::unsupported, "module " + (name.empty() ? "itself" : name) +
                                            " is a batch norm with neither affine parameters nor running "
                                            "statistics, and cannot be synchronised; give it one of them");
  }
  take_over_batch_norm();
  for (const auto& [name, sign] : signs) Registry::instance().add(sign, group);
  return signs.size();
}

bool has_sync_batch_norm(const torch::nn::Module& module) {
  return std::ranges::any_of(signs_in(module), [](const auto& item) {
    return item.second.defined() && Registry::instance().find(item.second).has_value();
  });
}

}  // namespace lockstep

#include "lockstep/train/devices/replicated_module.h"

#include <c10/core/DeviceGuard.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/graph_task.h>

#include <algorithm>
#include <numeric>
#include <optional>
#include <set>
#include <sstream>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/train/devices/slot_threads.h"
#include "lockstep/train/tensor/device.h"

namespace lockstep {
namespace {

using torch::Tensor;
using Tensors = std::vector<Tensor>;

std::string shape_text(const Tensor& tensor) {
  std::ostringstream text;
  text << tensor.scalar_type() << " " << tensor.sizes();
  return text.str();
}

void require_sense(const std::vector<torch::Device>& devices) {
  if (devices.empty()) throw Error(ErrorCode::invalid_argument, "DataParallel: no devices");
  for (std::size_t i = 0; i < devices.size(); ++i) {
    const torch::Device& device = devices[i];
    if (device.type() != devices[0].type())
      throw Error(ErrorCode::invalid_argument, "DataParallel: replicas on " + devices[0].str() + " and on " +
                                                   device.str() +
                                                   "; take slots of the CPU alone, or GPUs alone");
    if (device.is_cpu()) continue;
    if (!c10::impl::hasDeviceGuardImpl(device.type()))
      throw Error(ErrorCode::unsupported,
                  "DataParallel: a replica on " + device.str() + ", of which this libtorch knows none");
    if (!device.has_index())
      throw Error(ErrorCode::invalid_argument,
                  "DataParallel: a replica on " + device.str() + "; say which, " + device.str() + ":0");
    if (std::ranges::count(devices, device) > 1)
      throw Error(ErrorCode::invalid_argument,
                  "DataParallel: device " + device.str() + " is named twice: a GPU computes for one replica");
  }
}

bool share_memory(const Tensor& a, const Tensor& b) {
  return a.device() == b.device() && a.const_data_ptr() == b.const_data_ptr();
}

/// The tensors on one device, joined by their first dimension; numbers become a tensor of them.
Tensor joined_on(torch::Device device, const Tensors& parts) {
  Tensors there;
  for (const Tensor& part : parts) there.push_back(part.to(device));
  return there[0].dim() == 0 ? torch::stack(there) : torch::cat(there);
}

/// A module's and its children's modes, which are no tensors.
void copy_modes(const torch::nn::Module& from, torch::nn::Module& to) {
  const auto wanted = from.modules(), present = to.modules();
  for (std::size_t i = 0; i < std::min(wanted.size(), present.size()); ++i) {
    if (wanted[i]->is_training() != present[i]->is_training()) present[i]->train(wanted[i]->is_training());
  }
}

/// `more` added to `sum`, in place where nobody else can see that.
Tensor added(Tensor sum, const Tensor& more) {
  if (!sum.defined()) return more;
  if (!more.defined()) return sum;
  const bool is_ours = !sum.is_sparse() && sum.use_count() == 1 && sum.storage().use_count() == 1 &&
                       sum.is_non_overlapping_and_dense() && sum.layout() == more.layout();
  return is_ours ? sum.add_(more) : sum.add(more);
}

}  // namespace

/// What a backward through all replicas needs.
struct ReplicatedModule::JoinedPass : torch::CustomClassHolder {
  ReplicatedModule* replicated = nullptr;
  std::shared_ptr<torch::nn::Module> alive;  // the replicated module
  Pass pass;
  std::vector<Tensors> outputs;  // of each replica, with its graph

  /// Of these replicas' backwards: their parameters' and then their inputs' gradients, of each.
  std::vector<Tensors> gradients_of(const std::vector<std::size_t>& slots, const Tensors& given,
                                    bool keep_graph) const;
};

/// From the model's parameters (and the inputs that want gradients) to the outputs of all replicas.
class ReplicatedModule::Join : public torch::autograd::Function<Join> {
 public:
  static torch::autograd::variable_list forward(torch::autograd::AutogradContext* context,
                                                const c10::intrusive_ptr<JoinedPass>& joined,
                                                at::TensorList /*sources*/) {
    context->saved_data["joined"] = c10::IValue::make_capsule(joined);
    Tensors whole;
    for (std::size_t i = 0; i < joined->outputs[0].size(); ++i) {
      Tensors parts;
      for (const Tensors& outputs : joined->outputs) parts.push_back(outputs[i].detach());
      whole.push_back(joined_on(joined->replicated->devices_[0], parts));
    }
    return whole;
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& given) {
    if (torch::GradMode::is_enabled())
      throw Error(ErrorCode::unsupported,
                  "DataParallel: gradients of gradients (create_graph) are not supported");
    const auto capsule = context->saved_data["joined"].toCapsule();
    auto& joined = static_cast<JoinedPass&>(*capsule);
    ReplicatedModule& replicated = *joined.replicated;
    const c10::MultiStreamGuard in_streams(joined.pass.streams);
    const std::size_t parameters = replicated.model_parameters_.size(), slots = joined.pass.samples.size();
    const bool keep_graph = torch::autograd::get_current_graph_task_keep_graph();

    std::vector<Tensors> found(slots);
    if (replicated.devices_[0].is_cpu()) {
      replicated.each(joined.pass, [&](std::size_t slot) {
        found[slot] = std::move(joined.gradients_of({slot}, given, keep_graph)[0]);
      });
    } else {
      // Libtorch computes on a thread for each GPU, of which this is one: it serves its replica from within the call.
      std::vector<std::size_t> all(slots);
      std::iota(all.begin(), all.end(), std::size_t{0});
      found = joined.gradients_of(all, given, keep_graph);
    }
    // The first is of the pass, which is no tensor.
    torch::autograd::variable_list gradients(1 + parameters + joined.pass.inputs.size());
    for (std::size_t i = 0; i < joined.pass.inputs.size(); ++i) {
      Tensors parts;
      for (std::size_t slot = 0; slot < slots; ++slot) {
        Tensor& part = found[slot][parameters + i];
        parts.push_back(part.defined() ? std::move(part) : torch::zeros_like(joined.pass.pieces[i][slot]));
      }
      gradients[1 + parameters + i] = joined_on(joined.pass.inputs[i].device(), parts);
    }
    replicated.add_up(joined.pass, found,
                      [&](std::size_t i, Tensor sum) { gradients[1 + i] = std::move(sum); });
    // Who takes them knows of the stream of this node alone, which is its output's.
    for (const c10::Stream& stream : joined.pass.streams) {
      if (stream.device() != replicated.devices_[0])
        let_follow(stream, current_stream(replicated.devices_[0]));
    }
    return gradients;
  }
};

std::vector<Tensors> ReplicatedModule::JoinedPass::gradients_of(const std::vector<std::size_t>& slots,
                                                                const Tensors& given, bool keep_graph) const {
  Tensors roots, their_gradients, wanted;
  std::vector<Tensors> gradients;
  std::vector<std::pair<std::size_t, std::size_t>> places;  // of what is wanted, in `gradients`
  for (const std::size_t slot : slots) {
    for (std::size_t i = 0; i < outputs[slot].size(); ++i) {
      const Tensor& output = outputs[slot][i];
      if (!given[i].defined() || !output.requires_grad()) continue;
      roots.push_back(output);
      if (output.dim() == 0) {
        their_gradients.push_back(given[i][static_cast<std::int64_t>(slot)].to(output.device()));
        continue;
      }
      // Replicas may return another number of rows than they were given.
      std::int64_t begin = 0;
      for (std::size_t before = 0; before < slot; ++before) begin += outputs[before][i].size(0);
      their_gradients.push_back(given[i].narrow(0, begin, output.size(0)).to(output.device()));
    }
    const Tensors& parameters = replicated->parameters_[slot];
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      if (!parameters[i].requires_grad()) continue;
      wanted.push_back(parameters[i]);
      places.emplace_back(gradients.size(), i);
    }
    for (std::size_t i = 0; i < pass.inputs.size(); ++i) {
      wanted.push_back(pass.pieces[i][slot]);
      places.emplace_back(gradients.size(), parameters.size() + i);
    }
    gradients.emplace_back(parameters.size() + pass.inputs.size());
  }
  if (roots.empty() || wanted.empty()) return gradients;
  auto made = torch::autograd::grad(roots, wanted, their_gradients, keep_graph, /*create_graph=*/false,
                                    /*allow_unused=*/true);
  for (std::size_t i = 0; i < made.size(); ++i)
    gradients[places[i].first][places[i].second] = std::move(made[i]);
  return gradients;
}

ReplicatedModule::ReplicatedModule(std::shared_ptr<torch::nn::Module> model, Modules replicas,
                                   std::vector<torch::Device> devices, const ReplicaOptions& options)
    : model_(std::move(model)),
      replicas_(std::move(replicas)),
      devices_(std::move(devices)),
      options_(options),
      threads_((require_sense(devices_), std::make_unique<SlotThreads>(devices_.size()))) {
  for (torch::Device& device : devices_) {
    if (device.is_cpu()) device = torch::kCPU;  // "cpu:0" is no other one
  }
  model_parameters_ = model_->parameters();
  model_buffers_ = model_->buffers();
  std::set<const torch::nn::Module*> distinct = {model_.get()};
  for (std::size_t slot = 0; slot < replicas_.size(); ++slot) {
    if (!distinct.insert(replicas_[slot].get()).second)
      throw Error(ErrorCode::invalid_argument,
                  "DataParallel: the factory returned one module twice; each call is to make "
                  "a new one");
    parameters_.push_back(replicas_[slot]->parameters());
    buffers_.push_back(replicas_[slot]->buffers());
    require_alike(slot);
  }
  refresh(caller_streams());
  for (const auto& item : model_->named_parameters(false))
    register_parameter(item.key(), item.value(), item->requires_grad());
  for (const auto& item : model_->named_buffers(false)) register_buffer(item.key(), item.value());
  for (const auto& item : model_->named_children()) register_module(item.key(), item.value());
}

ReplicatedModule::~ReplicatedModule() = default;

void ReplicatedModule::require_alike(std::size_t slot) const {
  const auto compare = [&](const auto& wanted, const auto& present, const std::string& kind) {
    const auto differ = [&](const std::string& how) {
      return Error(ErrorCode::invalid_argument, "DataParallel: the factory made another model for slot " +
                                                    std::to_string(slot) + " than before: " + how);
    };
    if (wanted.size() != present.size())
      throw differ(std::to_string(present.size()) + " " + kind + "s instead of " +
                   std::to_string(wanted.size()));
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      if (wanted[i].key() != present[i].key() ||
          shape_text(wanted[i].value()) != shape_text(present[i].value()))
        throw differ(kind + " " + present[i].key() + " is " + shape_text(present[i].value()) +
                     " where it had " + wanted[i].key() + ", " + shape_text(wanted[i].value()));
    }
  };
  compare(model_->named_parameters(), replicas_[slot]->named_parameters(), "parameter");
  compare(model_->named_buffers(), replicas_[slot]->named_buffers(), "buffer");
}

void ReplicatedModule::train(bool on) {
  torch::nn::Module::train(on);
  model_->train(on);  // its children are this one's, but itself it is none of them
}

std::vector<std::int64_t> ReplicatedModule::deal(std::int64_t samples) const {
  const auto slots = std::min(static_cast<std::int64_t>(replicas_.size()), samples);
  std::vector<std::int64_t> dealt;
  for (std::int64_t slot = 0; slot < slots; ++slot)
    dealt.push_back(samples / slots + (slot < samples % slots ? 1 : 0));
  return dealt;
}

/// The model's values in all replicas: the tensor itself where that can be read in place, a copy otherwise. Copies are written through
/// other handles, so that autograd takes a second forward before the first one's backward for what it is: no change.
void ReplicatedModule::refresh(const Streams& streams) {
  const torch::NoGradGuard no_grad;
  const auto is_elsewhere = [&](const Tensor& own) { return own.device() != devices_[0]; };
  if (options_.variables == Variables::mirrored && !devices_[0].is_cpu() &&
      (std::ranges::any_of(model_parameters_, is_elsewhere) ||
       std::ranges::any_of(model_buffers_, is_elsewhere)))
    model_->to(devices_[0]);  // as it was made, or as torch::load() or a to() has left it
  using Copy = std::pair<Tensor, Tensor>;
  std::vector<std::vector<Copy>> copies(replicas_.size());  // from, to
  const auto follow = [&](const Tensor& own, std::vector<Tensors>& all, std::size_t i, bool only_first) {
    for (std::size_t slot = 0; slot < all.size(); ++slot) {
      Tensor& replica = all[slot][i];
      if (own.device() == devices_[slot] && (slot == 0 || !only_first)) {
        if (!share_memory(replica, own)) replica.set_data(own);
      } else if (replica.device() != devices_[slot] || share_memory(replica, own) ||
                 (slot > 0 && share_memory(replica, all[0][i]))) {
        replica.set_data(own.to(devices_[slot], own.scalar_type(), /*non_blocking=*/false, /*copy=*/true));
      } else {
        copies[slot].emplace_back(own, replica.variable_data());
      }
    }
  };
  for (std::size_t i = 0; i < model_parameters_.size(); ++i) {
    const Tensor& own = model_parameters_[i];
    for (Tensors& parameters : parameters_) {
      if (parameters[i].requires_grad() != own.requires_grad())
        parameters[i].set_requires_grad(own.requires_grad());
    }
    follow(own, parameters_, i, options_.variables == Variables::mirrored);
  }
  for (std::size_t i = 0; i < model_buffers_.size(); ++i) follow(model_buffers_[i], buffers_, i, true);
  if (std::ranges::all_of(copies, [](const auto& of_slot) { return of_slot.empty(); })) return;
  on_slots(copies.size(), streams, [&](std::size_t slot) {
    for (const auto& [from, to] : copies[slot]) to.copy_(from);
  });
}

ReplicatedModule::Streams ReplicatedModule::caller_streams() const {
  std::set<torch::DeviceIndex> seen;
  Streams streams;
  const auto take = [&](torch::Device device) {
    if (!device.is_cpu() && seen.insert(device.index()).second) streams.push_back(current_stream(device));
  };
  for (const torch::Device& device : devices_) take(device);
  for (const Tensor& parameter : model_parameters_) take(parameter.device());
  return streams;
}

ReplicatedModule::Pass ReplicatedModule::begin(std::int64_t samples) {
  if (samples < 1) throw Error(ErrorCode::invalid_argument, "DataParallel: a batch without samples");
  Pass pass{.samples = deal(samples), .streams = caller_streams()};
  refresh(pass.streams);
  for (const auto& replica : replicas_) copy_modes(*model_, *replica);
  return pass;
}

Tensors ReplicatedModule::split(Pass& pass, const Tensor& input) const {
  const std::int64_t samples = pass.all_samples();
  if (input.dim() == 0 || input.size(0) != samples)
    throw Error(ErrorCode::invalid_argument,
                "DataParallel: inputs have different numbers of samples (their first dimension): one " +
                    shape_text(input) + ", the first " + std::to_string(samples));
  const bool wants_gradient = torch::GradMode::is_enabled() && input.requires_grad();
  Tensors parts = (wants_gradient ? input.detach() : input).split_with_sizes(pass.samples);
  for (std::size_t slot = 0; slot < parts.size(); ++slot) parts[slot] = parts[slot].to(devices_[slot]);
  if (!wants_gradient) return parts;
  for (Tensor& part : parts) part.set_requires_grad(true);
  pass.inputs.push_back(input);
  pass.pieces.push_back(parts);
  return parts;
}

void ReplicatedModule::each(const Pass& pass, const std::function<void(std::size_t)>& work) {
  on_slots(pass.samples.size(), pass.streams, work);
}

void ReplicatedModule::on_slots(std::size_t slots, const Streams& streams,
                                const std::function<void(std::size_t)>& work) {
  if (streams.empty()) {
    threads_->run(slots, work);
    return;
  }
  threads_->run(slots, [&](std::size_t slot) {
    const c10::MultiStreamGuard in_streams(streams);
    const c10::OptionalDeviceGuard on(devices_[slot].is_cpu() ? std::nullopt : std::optional(devices_[slot]));
    work(slot);
  });
}

void ReplicatedModule::take_buffers() {
  const torch::NoGradGuard no_grad;
  for (std::size_t i = 0; i < model_buffers_.size(); ++i) {
    if (!share_memory(model_buffers_[i], buffers_[0][i]))
      model_buffers_[i].variable_data().copy_(buffers_[0][i]);
  }
}

Tensors ReplicatedModule::join(Pass pass, std::vector<Tensors> outputs) {
  for (const Tensors& each : outputs) {
    if (each.size() != outputs[0].size())
      throw Error(ErrorCode::invalid_argument,
                  "DataParallel: replicas returned different numbers of tensors");
  }
  take_buffers();
  auto joined = c10::make_intrusive<JoinedPass>();
  joined->replicated = this;
  joined->alive = shared_from_this();
  joined->outputs = std::move(outputs);
  Tensors sources = model_parameters_;
  sources.insert(sources.end(), pass.inputs.begin(), pass.inputs.end());
  joined->pass = std::move(pass);
  return Join::apply(joined, at::TensorList(sources));
}

void ReplicatedModule::add_up(const Pass& pass, std::vector<Tensors>& found,
                              const std::function<void(std::size_t, Tensor)>& work) {
  // Each thread adds up every so-manieth parameter; the order of slots is always the same.
  std::vector<Tensor> sums(model_parameters_.size());
  const std::size_t threads = threads_->slots();
  on_slots(threads, pass.streams, [&](std::size_t thread) {
    const torch::NoGradGuard no_grad;
    for (std::size_t i = thread; i < sums.size(); i += threads) {
      for (Tensors& of_slot : found) {
        Tensor more = std::exchange(of_slot[i], Tensor());
        if (more.defined()) more = more.to(model_parameters_[i].device());
        sums[i] = added(std::exchange(sums[i], Tensor()), more);
      }
    }
  });
  for (std::size_t i = 0; i < sums.size(); ++i) {
    if (sums[i].defined()) work(i, std::move(sums[i]));
  }
}

void ReplicatedModule::gather_gradients(const Pass& pass) {
  take_buffers();
  const std::int64_t samples = pass.all_samples();
  std::vector<Tensors> found(pass.samples.size());
  each(pass, [&](std::size_t slot) {
    const torch::NoGradGuard no_grad;
    const double share = static_cast<double>(pass.samples[slot]) / static_cast<double>(samples);
    for (Tensor& parameter : parameters_[slot]) {
      found[slot].push_back(parameter.grad().defined() ? parameter.grad() * share : Tensor());
      parameter.mutable_grad().reset();
    }
  });
  const torch::NoGradGuard no_grad;
  add_up(pass, found, [&](std::size_t i, Tensor sum) {
    Tensor& gradient = model_parameters_[i].mutable_grad();
    if (!gradient.defined()) {
      gradient = std::move(sum);
    } else if (gradient.is_sparse()) {
      gradient = gradient + sum;
    } else {
      gradient.add_(sum);  // also for who holds it
    }
  });
}

void ReplicatedModule::drop_gradients() {
  for (Tensors& parameters : parameters_) {
    for (Tensor& parameter : parameters) parameter.mutable_grad().reset();
  }
}

}  // namespace lockstep

#include "lockstep/train/devices/replicated_module.h"

#include <c10/core/DeviceGuard.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
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
    if (!device.has_index())
      throw Error(ErrorCode::invalid_argument,
                  "DataParallel: a replica on " + device.str() + "; say which, " + device.str() + ":0");
    if (std::ranges::count(devices, device) > 1)
      throw Error(ErrorCode::invalid_argument,
                  "DataParallel: device " + device.str() + " is named twice: a GPU computes for one replica");
  }
}

torch::Device home_of(const torch::nn::Module& module) {
  for (const Tensors& tensors : {module.parameters(), module.buffers()}) {
    if (!tensors.empty()) return tensors[0].device();
  }
  return torch::kCPU;
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
    replicated.add_up(found, [&](std::size_t i, Tensor sum) { gradients[1 + i] = std::move(sum); });
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
  if (options_.variables == Variables::mirrored && !devices_[0].is_cpu()) model_->to(devices_[0]);
  home_ = home_of(*model_);
  model_parameters_ = model_->parameters();
  model_buffers_ = model_->buffers();
  std::set<const torch::nn::Module*> distinct = {model_.get()};
  for (std::size_t slot = 0; slot < replicas_.size(); ++slot) {
    if (!distinct.insert(replicas_[slot].get()).second)
      throw Error(ErrorCode::invalid_argument,
                  "DataParallel: the factory returned one module twice; each call is to make "
                  "a new one");
    if (home_of(*replicas_[slot]) != devices_[slot]) replicas_[slot]->to(devices_[slot]);
    parameters_.push_back(replicas_[slot]->parameters());
    buffers_.push_back(replicas_[slot]->buffers());
    require_alike(slot);
  }
  for (std::size_t i = 0; is_home(0) && i < buffers_[0].size(); ++i)
    buffers_[0][i].set_data(model_buffers_[i]);
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

void ReplicatedModule::refresh_variables() {
  for (std::size_t i = 0; i < model_parameters_.size(); ++i) {
    const Tensor& own = model_parameters_[i];
    const bool has_moved = parameters_[0][i].const_data_ptr() != own.const_data_ptr();
    for (std::size_t slot = 0; slot < parameters_.size(); ++slot) {
      Tensor& parameter = parameters_[slot][i];
      if (parameter.requires_grad() != own.requires_grad()) parameter.set_requires_grad(own.requires_grad());
      if (has_moved && !has_copies(slot)) parameter.set_data(own);
    }
  }
  if (!has_copies(parameters_.size() - 1)) return;
  on_slots(parameters_.size(), [&](std::size_t slot) {
    for (std::size_t i = 0; has_copies(slot) && i < model_parameters_.size(); ++i)
      parameters_[slot][i].copy_(model_parameters_[i]);
  });
}

ReplicatedModule::Pass ReplicatedModule::begin(std::int64_t samples) {
  if (samples < 1) throw Error(ErrorCode::invalid_argument, "DataParallel: a batch without samples");
  const torch::NoGradGuard no_grad;
  refresh_variables();
  const Pass pass{.samples = deal(samples)};
  for (std::size_t slot = 0; slot < replicas_.size(); ++slot) {
    copy_modes(*model_, *replicas_[slot]);
    for (std::size_t i = 0; i < model_buffers_.size(); ++i) {
      Tensor& own = buffers_[slot][i];
      if (slot > 0 || !is_home(0)) {
        own.copy_(model_buffers_[i]);
      } else if (own.const_data_ptr() != model_buffers_[i].const_data_ptr()) {  // the model's have moved
        own.set_data(model_buffers_[i]);
      }
    }
  }
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
  on_slots(pass.samples.size(), work);
}

void ReplicatedModule::on_slots(std::size_t slots, const std::function<void(std::size_t)>& work) {
  if (devices_[0].is_cpu() && home_.is_cpu()) {
    threads_->run(slots, work);
    return;
  }
  // The caller's streams: what the threads give the GPUs comes after what it gave them, and before what it will.
  std::vector<c10::Stream> streams;
  std::vector<torch::Device> all = devices_;
  if (!is_home(0)) all.push_back(home_);
  for (const torch::Device& device : all) {
    if (!device.is_cpu()) streams.push_back(c10::impl::VirtualGuardImpl(device.type()).getStream(device));
  }
  threads_->run(slots, [&](std::size_t slot) {
    const c10::MultiStreamGuard in_streams(streams);
    const c10::OptionalDeviceGuard on(devices_[slot].is_cpu() ? std::nullopt : std::optional(devices_[slot]));
    work(slot);
  });
}

void ReplicatedModule::take_buffers() {
  if (is_home(0)) return;  // they are the model's
  const torch::NoGradGuard no_grad;
  for (std::size_t i = 0; i < model_buffers_.size(); ++i) model_buffers_[i].copy_(buffers_[0][i]);
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

void ReplicatedModule::add_up(std::vector<Tensors>& found,
                              const std::function<void(std::size_t, Tensor)>& work) {
  // Each thread adds up every so-manieth parameter; the order of slots is always the same.
  std::vector<Tensor> sums(model_parameters_.size());
  const std::size_t threads = threads_->slots();
  on_slots(threads, [&](std::size_t thread) {
    const torch::NoGradGuard no_grad;
    for (std::size_t i = thread; i < sums.size(); i += threads) {
      for (Tensors& of_slot : found) {
        Tensor more = std::exchange(of_slot[i], Tensor());
        if (more.defined() && more.device() != home_) more = more.to(home_);
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
  add_up(found, [&](std::size_t i, Tensor sum) {
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

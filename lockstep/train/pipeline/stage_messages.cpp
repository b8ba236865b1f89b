#include "lockstep/train/pipeline/stage_messages.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <exception>
#include <iterator>
#include <span>
#include <thread>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/train/tensor/gpu_place.h"
#include "lockstep/train/tensor/host_array.h"
#include "lockstep/train/tensor/tensor_bytes.h"
#include "lockstep/train/tensor/tensor_collectives.h"

namespace lockstep {
namespace {

using pipeline::Payload;
using torch::Tensor;

constexpr auto between_looks = std::chrono::microseconds(100);

constexpr int tag_of(Payload payload) { return payload == Payload::activation ? 0 : 1; }
constexpr std::int64_t most_tensors = 16, most_dimensions = 8;

/// What comes before the tensors: the samples, how many tensors, and of each its type, whether it wants a gradient, whether it
/// is in main memory of a stage that is not, and its sizes.
constexpr std::int64_t words_of_each = 4 + most_dimensions;
constexpr std::int64_t words_before = 2;
constexpr std::int64_t words_of_header = words_before + most_tensors * words_of_each;

Tensor header_of(const StageMessages::Activation& activation, torch::Device device) {
  const std::vector<Tensor>& tensors = activation.tensors;
  if (static_cast<std::int64_t>(tensors.size()) > most_tensors)
    throw_invalid_argument("a stage hands on " + std::to_string(tensors.size()) + " tensors; at most " +
                           std::to_string(most_tensors) + " are supported");
  const auto header = torch::zeros({words_of_header}, torch::kInt64);
  auto* word = header.mutable_data_ptr<std::int64_t>();
  *word++ = activation.samples;
  *word++ = static_cast<std::int64_t>(tensors.size());
  for (const Tensor& tensor : tensors) {
    if (!tensor.defined()) throw_invalid_argument("a stage hands on an undefined tensor");
    require_array(tensor, "what a stage hands on");
    if (tensor.dim() > most_dimensions)
      throw_invalid_argument("a stage hands on a tensor of " + std::to_string(tensor.dim()) +
                             " dimensions; at most " + std::to_string(most_dimensions) + " are supported");
    word[0] = static_cast<std::int64_t>(tensor.scalar_type());
    word[1] = tensor.requires_grad() ? 1 : 0;
    word[2] = tensor.is_cpu() && !device.is_cpu() ? 1 : 0;
    word[3] = tensor.dim();
    std::ranges::copy(tensor.sizes(), word + 4);
    word += words_of_each;
  }
  return header;
}

[[noreturn]] void refuse_header() {
  throw Error(ErrorCode::corrupt_data,
              "what a stage was sent does not begin with types and sizes of tensors");
}

Tensor made_for(std::span<const std::int64_t> words, torch::Device device) {
  const auto type = words[0], dimensions = words[3];
  if (type < 0 || type >= static_cast<std::int64_t>(torch::ScalarType::NumOptions) || dimensions < 0 ||
      dimensions > most_dimensions)
    refuse_header();
  const auto sizes = words.subspan(4, static_cast<std::size_t>(dimensions));
  std::int64_t elements = 1;
  for (const std::int64_t size : sizes) {
    if (size < 0 || (size > 0 && elements > (std::int64_t{1} << 48) / size)) refuse_header();
    elements *= size;
  }
  return torch::empty(torch::IntArrayRef(sizes.data(), sizes.size()),
                      torch::dtype(static_cast<torch::ScalarType>(type))
                          .device(words[2] != 0 ? torch::Device(torch::kCPU) : device));
}

/// Where several tensors lie in one array of bytes.
class Packing {
 public:
  explicit Packing(const std::vector<Tensor>& tensors) : is_needed_(tensors.size() > 1) {
    for (const Tensor& tensor : tensors) {
      begins_.push_back(bytes_);
      bytes_ += (static_cast<std::int64_t>(tensor.nbytes()) + alignment - 1) / alignment * alignment;
    }
  }

  bool is_needed() const { return is_needed_; }
  Tensor room(torch::Device device) const {
    return torch::empty({bytes_}, torch::dtype(torch::kUInt8).device(device));
  }
  Tensor packed(const std::vector<Tensor>& tensors) const {
    const Tensor all = room(tensors.front().device());
    for (std::size_t i = 0; i < tensors.size(); ++i) view(all, i, tensors[i]).copy_(tensors[i]);
    return all;
  }
  /// Autograd takes it for a tensor of its own: what is written to one is not written to the others.
  Tensor unpacked(const Tensor& all, std::size_t i, const Tensor& alike) const {
    return view(all, i, alike).variable_data();
  }

 private:
  static constexpr std::int64_t alignment = 64;  // of any type, and of what kernels like

  Tensor view(const Tensor& all, std::size_t i, const Tensor& alike) const {
    return all.narrow(0, begins_[i], static_cast<std::int64_t>(alike.nbytes()))
        .view(alike.scalar_type())
        .view(alike.sizes());
  }

  bool is_needed_;
  std::int64_t bytes_ = 0;
  std::vector<std::int64_t> begins_;
};

/// Throws Error where one has failed.
template <class Messages>
void drop_what_is_over(Messages& messages) {
  while (!messages.empty() && messages.front().work.test()) messages.pop_front();
}

}  // namespace

void StageMessages::send(Message message, int rank, Payload payload) {
  const auto line = lines_.try_emplace({rank, payload}, links_.between(group_.rank(), rank, payload)).first;
  line->second.waiting.push_back(std::move(message));
  (void)begin_waiting();
}

/// Returns whether some wait on.
bool StageMessages::begin_waiting() {
  drop_what_is_over(under_way_);
  bool some_wait = false;
  for (auto& [to, line] : lines_) {
    drop_what_is_over(line.on_gpu);
    while (!line.waiting.empty() && (line.link == nullptr || line.on_gpu.size() < line.link->room)) {
      const Message message = std::move(line.waiting.front());
      line.waiting.pop_front();
      begin(message, line, to.first, to.second);
    }
    some_wait |= !line.waiting.empty();
  }
  return some_wait;
}

void StageMessages::begin(const Message& message, Line& line, int rank, Payload payload) {
  send_in_main_memory(message.header, rank, payload);
  std::vector<Tensor> on_gpu;
  for (const Tensor& tensor : message.tensors) {
    if (tensor.numel() == 0) continue;
    const Tensor plain = tensor.detach().resolve_conj().resolve_neg().contiguous();
    if (line.link != nullptr && !plain.is_cpu()) {
      on_gpu.push_back(plain.to(links_.device()));
    } else {
      send_in_main_memory(plain, rank, payload);
    }
  }
  if (on_gpu.empty()) return;
  const Packing packing(on_gpu);
  const Tensor sent = packing.is_needed() ? packing.packed(on_gpu) : on_gpu.front();
  const MemoryPlace place = place_on(links_.device());
  const HostArray array(sent, "what a stage hands on", HostArray::Use::read, place);
  line.on_gpu.push_back({sent, send_bytes(line.link->group, array.bytes(), 1, 0, place)});
}

void StageMessages::send_in_main_memory(Tensor tensor, int rank, Payload payload) {
  Work work = lockstep::send(group_, tensor, rank, tag_of(payload));
  if (!tensor.is_cpu()) tensor.reset();  // what is sent is a copy
  under_way_.push_back({std::move(tensor), std::move(work)});
}

Tensor StageMessages::receive_header(Tensor header, int rank, Payload payload) {
  Work work = lockstep::recv(group_, header, rank, tag_of(payload));
  try {
    while (begin_waiting() && !work.wait_for(between_looks)) {
    }
  } catch (const std::exception& error) {
    group_.abort(error);  // before the receive says that this rank gave it up
    throw;
  }
  work.wait();
  return header;
}

/// The tensors have types and sizes; those that come together become views of what comes.
void StageMessages::receive_into(const std::vector<Tensor*>& tensors, int rank, Payload payload) {
  const auto* const link = links_.between(rank, group_.rank(), payload);
  std::vector<Tensor*> on_gpu;
  std::vector<Tensor> arriving;
  for (Tensor* const tensor : tensors) {
    if (tensor->numel() == 0) continue;
    if (link == nullptr || tensor->is_cpu()) {
      lockstep::recv(group_, *tensor, rank, tag_of(payload)).wait();
      continue;
    }
    on_gpu.push_back(tensor);
    arriving.push_back(tensor->device() == links_.device()
                           ? *tensor
                           : torch::empty(tensor->sizes(), tensor->options().device(links_.device())));
  }
  if (on_gpu.empty()) return;
  const Packing packing(arriving);
  const Tensor received = packing.is_needed() ? packing.room(links_.device()) : arriving.front();
  const MemoryPlace place = place_on(links_.device());
  const HostArray array(received, "what a stage is handed", HostArray::Use::write, place);
  Work work = recv_bytes(link->group, array.bytes(), 0, 0, nullptr, place);
  work.follow();
  under_way_.push_back({received, std::move(work)});
  for (std::size_t i = 0; i < on_gpu.size(); ++i) {
    const Tensor own = packing.is_needed() ? packing.unpacked(received, i, arriving[i]) : arriving[i];
    *on_gpu[i] = own.to(on_gpu[i]->device());
  }
}

void StageMessages::send_activation(const Activation& activation, int rank) {
  const torch::NoGradGuard no_grad;
  send({header_of(activation, links_.device()), activation.tensors}, rank, Payload::activation);
}

StageMessages::Activation StageMessages::receive_activation(int rank) {
  const torch::NoGradGuard no_grad;
  const Tensor header =
      receive_header(torch::empty({words_of_header}, torch::kInt64), rank, Payload::activation);
  const std::span words(header.const_data_ptr<std::int64_t>(), static_cast<std::size_t>(words_of_header));
  if (words[1] < 0 || words[1] > most_tensors) refuse_header();
  Activation activation{.samples = words[0]};
  const auto of = [&](std::int64_t i) {
    return words.subspan(static_cast<std::size_t>(words_before + i * words_of_each), words_of_each);
  };
  for (std::int64_t i = 0; i < words[1]; ++i) activation.tensors.push_back(made_for(of(i), links_.device()));
  std::vector<Tensor*> all;
  for (Tensor& tensor : activation.tensors) all.push_back(&tensor);
  receive_into(all, rank, Payload::activation);
  for (std::int64_t i = 0; i < words[1]; ++i) {
    if (of(i)[1] != 0) activation.tensors[static_cast<std::size_t>(i)].set_requires_grad(true);
  }
  return activation;
}

void StageMessages::send_gradient(const std::vector<Tensor>& gradients, const std::vector<Tensor>& alike,
                                  int rank) {
  const torch::NoGradGuard no_grad;
  const auto there = torch::zeros({most_tensors}, torch::kUInt8);  // which of them have a gradient
  auto* const is_there = there.mutable_data_ptr<std::uint8_t>();
  std::vector<Tensor> sent;
  for (std::size_t i = 0; i < alike.size(); ++i) {
    if (!alike[i].requires_grad() || !gradients[i].defined()) continue;
    is_there[i] = 1;
    sent.push_back(gradients[i]);
  }
  send({there, std::move(sent)}, rank, Payload::gradient);
}

std::vector<Tensor> StageMessages::receive_gradient(const std::vector<Tensor>& alike, int rank) {
  const torch::NoGradGuard no_grad;
  std::vector<Tensor> gradients(alike.size());
  const Tensor there = receive_header(torch::empty({most_tensors}, torch::kUInt8), rank, Payload::gradient);
  std::vector<Tensor*> all;
  for (std::size_t i = 0; i < alike.size(); ++i) {
    if (there.const_data_ptr<std::uint8_t>()[i] == 0) continue;
    gradients[i] = torch::empty_like(alike[i], torch::MemoryFormat::Contiguous);
    all.push_back(&gradients[i]);
  }
  receive_into(all, rank, Payload::gradient);
  return gradients;
}

void StageMessages::finish() {
  while (begin_waiting()) std::this_thread::sleep_for(between_looks);
  for (auto& [to, line] : lines_) std::ranges::move(line.on_gpu, std::back_inserter(under_way_));
  lines_.clear();
  for (UnderWay& each : under_way_) each.work.synchronize();
  under_way_.clear();
}

}  // namespace lockstep

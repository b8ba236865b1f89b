#include "lockstep/train/pipeline/stage_messages.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/train/tensor/tensor_bytes.h"
#include "lockstep/train/tensor/tensor_collectives.h"

namespace lockstep {
namespace {

constexpr int activation_tag = 0, gradient_tag = 1;
constexpr std::int64_t most_tensors = 16, most_dimensions = 8;

/// What comes before the tensors: the samples, how many tensors, and of each its type, whether it wants a gradient, whether it
/// is in main memory of a stage that is not, and its sizes.
constexpr std::int64_t words_of_each = 4 + most_dimensions;
constexpr std::int64_t words_before = 2;
constexpr std::int64_t words_of_header = words_before + most_tensors * words_of_each;

torch::Tensor header_of(const StageMessages::Activation& activation, torch::Device device) {
  const std::vector<torch::Tensor>& tensors = activation.tensors;
  if (static_cast<std::int64_t>(tensors.size()) > most_tensors)
    throw_invalid_argument("a stage hands on " + std::to_string(tensors.size()) + " tensors; at most " +
                           std::to_string(most_tensors) + " are supported");
  const auto header = torch::zeros({words_of_header}, torch::kInt64);
  auto* word = header.mutable_data_ptr<std::int64_t>();
  *word++ = activation.samples;
  *word++ = static_cast<std::int64_t>(tensors.size());
  for (const torch::Tensor& tensor : tensors) {
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

torch::Tensor made_for(std::span<const std::int64_t> words, torch::Device device) {
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

}  // namespace

void StageMessages::send(torch::Tensor tensor, int rank, int tag) {
  while (!sent_.empty() && sent_.front().work.test()) sent_.pop_front();
  Work work = lockstep::send(group_, tensor, rank, tag);
  if (!tensor.is_cpu()) tensor.reset();  // what is sent is a copy
  sent_.push_back({std::move(tensor), std::move(work)});
}

void StageMessages::send_activation(const Activation& activation, int rank) {
  const torch::NoGradGuard no_grad;
  send(header_of(activation, device_), rank, activation_tag);
  for (const torch::Tensor& tensor : activation.tensors) {
    if (tensor.numel() > 0) send(tensor.detach().contiguous(), rank, activation_tag);
  }
}

StageMessages::Activation StageMessages::receive_activation(int rank) {
  const auto header = torch::empty({words_of_header}, torch::kInt64);
  lockstep::recv(group_, header, rank, activation_tag).wait();
  const std::span words(header.const_data_ptr<std::int64_t>(), static_cast<std::size_t>(words_of_header));
  if (words[1] < 0 || words[1] > most_tensors) refuse_header();
  Activation activation{.samples = words[0]};
  for (std::int64_t i = 0; i < words[1]; ++i) {
    const auto of_this =
        words.subspan(static_cast<std::size_t>(words_before + i * words_of_each), words_of_each);
    torch::Tensor tensor = made_for(of_this, device_);
    if (tensor.numel() > 0) lockstep::recv(group_, tensor, rank, activation_tag).wait();
    if (of_this[1] != 0) tensor.set_requires_grad(true);
    activation.tensors.push_back(std::move(tensor));
  }
  return activation;
}

void StageMessages::send_gradient(const std::vector<torch::Tensor>& gradients,
                                  const std::vector<torch::Tensor>& alike, int rank) {
  const torch::NoGradGuard no_grad;
  const auto there = torch::zeros({most_tensors}, torch::kUInt8);  // which of them have a gradient
  auto* const is_there = there.mutable_data_ptr<std::uint8_t>();
  for (std::size_t i = 0; i < alike.size(); ++i)
    is_there[i] = alike[i].requires_grad() && gradients[i].defined() ? 1 : 0;
  send(there, rank, gradient_tag);
  for (std::size_t i = 0; i < alike.size(); ++i) {
    if (is_there[i] != 0 && alike[i].numel() > 0) send(gradients[i].contiguous(), rank, gradient_tag);
  }
}

std::vector<torch::Tensor> StageMessages::receive_gradient(const std::vector<torch::Tensor>& alike,
                                                           int rank) {
  const torch::NoGradGuard no_grad;
  std::vector<torch::Tensor> gradients(alike.size());
  const auto there = torch::empty({most_tensors}, torch::kUInt8);
  lockstep::recv(group_, there, rank, gradient_tag).wait();
  for (std::size_t i = 0; i < alike.size(); ++i) {
    if (there.const_data_ptr<std::uint8_t>()[i] == 0) continue;
    gradients[i] = torch::empty_like(alike[i], torch::MemoryFormat::Contiguous);
    if (alike[i].numel() > 0) lockstep::recv(group_, gradients[i], rank, gradient_tag).wait();
  }
  return gradients;
}

void StageMessages::finish() {
  for (Sent& each : sent_) each.work.wait();
  sent_.clear();
}

}  // namespace lockstep

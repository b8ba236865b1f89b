#include "lockstep/train/optimizer/optimizer_state.h"

#include <cxxabi.h>

#include <cstdlib>
#include <memory>
#include <sstream>
#include <typeinfo>
#include <utility>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

/// Its tensors come to `device`, wherever they were when they were saved.
torch::serialize::InputArchive open_archive(const std::string& state, torch::Device device) {
  torch::serialize::InputArchive archive;
  archive.load_from(state.data(), state.size(), device);
  return archive;
}

/// Where the optimizer's parameters are; of several devices one.
torch::Device home_of(const torch::optim::Optimizer& optimizer) {
  for (const auto& group : optimizer.param_groups()) {
    if (!group.params().empty()) return group.params().front().device();
  }
  return torch::kCPU;
}

std::size_t read_size(torch::serialize::InputArchive& archive, const char* key) {
  torch::Tensor size;
  archive.read(key, size);
  return static_cast<std::size_t>(size.item<std::int64_t>());
}

/// Number of parameters in each group.
std::vector<std::size_t> group_sizes(const std::string& state) {
  auto archive = open_archive(state, torch::kCPU);
  torch::serialize::InputArchive groups;
  archive.read("param_groups", groups);
  std::vector<std::size_t> sizes;
  const std::size_t count = read_size(groups, "param_groups/size");
  for (std::size_t i = 0; i < count; ++i) {
    torch::serialize::InputArchive group;
    groups.read("param_groups/" + std::to_string(i), group);
    sizes.push_back(read_size(group, "params/size"));
  }
  return sizes;
}

std::string archive_bytes(torch::serialize::OutputArchive& archive) {
  std::ostringstream out;
  archive.save_to(out);
  return std::move(out).str();
}

std::string sizes_text(const std::vector<std::size_t>& sizes) {
  std::string text;
  for (const auto size : sizes) text += (text.empty() ? "" : " + ") + std::to_string(size);
  return text.empty() ? "no" : text;
}

}  // namespace

std::string optimizer_kind(const torch::optim::Optimizer& optimizer) {
  if (dynamic_cast<const torch::optim::SGD*>(&optimizer) != nullptr) return "SGD";
  if (dynamic_cast<const torch::optim::Adam*>(&optimizer) != nullptr) return "Adam";
  if (dynamic_cast<const torch::optim::AdamW*>(&optimizer) != nullptr) return "AdamW";
  const char* const mangled = typeid(optimizer).name();
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> name(
      abi::__cxa_demangle(mangled, nullptr, nullptr, &status), &std::free);
  const std::string text = name ? name.get() : mangled;
  const auto colon = text.rfind("::");
  return colon == std::string::npos ? text : text.substr(colon + 2);
}

std::string optimizer_state(const torch::optim::Optimizer& optimizer) {
  torch::serialize::OutputArchive archive;
  optimizer.save(archive);
  return archive_bytes(archive);
}

/// As libtorch's Optimizer::save() writes them.
std::string optimizer_options(const torch::optim::Optimizer& optimizer) {
  const auto number = [](std::size_t value) { return torch::tensor(static_cast<std::int64_t>(value)); };
  torch::serialize::OutputArchive archive;
  torch::serialize::OutputArchive groups(archive.compilation_unit());
  groups.write("param_groups/size", number(optimizer.param_groups().size()));
  for (std::size_t i = 0; i < optimizer.param_groups().size(); ++i) {
    const auto& of_optimizer = optimizer.param_groups()[i];
    torch::serialize::OutputArchive group(archive.compilation_unit());
    torch::serialize::OutputArchive options(archive.compilation_unit());
    group.write("params/size", number(of_optimizer.params().size()));
    of_optimizer.options().serialize(options);
    group.write("options", options);
    groups.write("param_groups/" + std::to_string(i), group);
  }
  archive.write("param_groups", groups);
  return archive_bytes(archive);
}

void require_fitting_state(const std::string& state, const torch::optim::Optimizer& optimizer,
                           const std::string& where) {
  std::vector<std::size_t> saved, here;
  try {
    saved = group_sizes(state);
  } catch (const std::exception& error) {
    const std::string text = error.what();
    throw Error(ErrorCode::corrupt_data,
                where + ": libtorch cannot read the optimizer's state: " + text.substr(0, text.find('\n')));
  }
  for (const auto& group : optimizer.param_groups()) here.push_back(group.params().size());
  if (saved == here) return;
  throw_invalid_argument(where + " holds the state of an optimizer of " + sizes_text(saved) +
                         " parameters, here it has " + sizes_text(here) +
                         "; make it for the same parameters, in the same groups");
}

void restore_optimizer(torch::optim::Optimizer& optimizer, const std::string& state) {
  auto archive = open_archive(state, home_of(optimizer));
  // libtorch leaves what the archive has no state for as it is.
  auto before = std::exchange(optimizer.state(), {});
  try {
    optimizer.load(archive);
  } catch (...) {
    optimizer.state().swap(before);
    throw;
  }
}

void restore_options(torch::optim::Optimizer& optimizer, const std::string& options) {
  auto archive = open_archive(options, torch::kCPU);
  torch::serialize::InputArchive groups;
  archive.read("param_groups", groups);
  for (std::size_t i = 0; i < optimizer.param_groups().size(); ++i) {
    torch::serialize::InputArchive group, of_group;
    groups.read("param_groups/" + std::to_string(i), group);
    group.read("options", of_group);
    optimizer.param_groups()[i].options().serialize(of_group);
  }
}

}  // namespace lockstep

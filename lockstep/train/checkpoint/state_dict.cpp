#include "lockstep/train/checkpoint/state_dict.h"

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/quote.h"
#include "lockstep/data/pth_file.h"
#include "lockstep/group/outcome.h"
#include "lockstep/train/replicas/broadcast_tensors.h"
#include "lockstep/train/replicas/named_tensor.h"
#include "lockstep/train/replicas/parameter_claim.h"
#include "lockstep/train/replicas/same_facts.h"
#include "lockstep/train/tensor/host_array.h"
#include "lockstep/train/tensor/tensor_bytes.h"

namespace lockstep {
namespace {

constexpr std::array types = {torch::kUInt8,   torch::kInt8,    torch::kInt16,        torch::kInt32,
                              torch::kInt64,   torch::kFloat16, torch::kBFloat16,     torch::kFloat32,
                              torch::kFloat64, torch::kBool,    torch::kComplexFloat, torch::kComplexDouble,
                              torch::kUInt16,  torch::kUInt32,  torch::kUInt64};

torch::ScalarType scalar_type(Dtype dtype) {
  return *std::ranges::find(types, std::optional(dtype), reducible_dtype);
}

std::vector<std::int64_t> row_major(torch::IntArrayRef shape) {
  std::vector<std::int64_t> strides(shape.size());
  std::int64_t stride = 1;
  for (std::size_t i = shape.size(); i-- > 0; stride *= std::max<std::int64_t>(shape[i], 1))
    strides[i] = stride;
  return strides;
}

/// Two tensors that have the same are the same elements.
auto place_of(const torch::Tensor& tensor) {
  return std::tuple(tensor.const_data_ptr(), tensor.device().str(), tensor.scalar_type(),
                    tensor.sizes().vec(), tensor.strides().vec());
}

/// Parameters and buffers as Python's state_dict() has them: module by module, in each parameters first.
std::vector<NamedTensor> state_of(const torch::nn::Module& module) {
  std::vector<NamedTensor> state;
  module.apply([&](const std::string& path, const torch::nn::Module& part) {
    const std::string prefix = path.empty() ? path : path + ".";
    for (const auto& item : part.named_parameters(/*recurse=*/false))
      state.push_back({prefix + item.key(), item.value(), true});
    for (const auto& item : part.named_buffers(/*recurse=*/false))
      state.push_back({prefix + item.key(), item.value(), false});
  });
  return state;
}

/// Python's DistributedDataParallel has "module." before the names of the model in it.
StateDict without_prefix(const StateDict& read, const std::vector<NamedTensor>& tensors) {
  constexpr std::string_view prefix = "module.";
  const auto has_prefix = [&](const std::string& name) { return name.starts_with(prefix); };
  if (!std::ranges::all_of(read, has_prefix, [](const auto& item) { return item.key(); }) ||
      std::ranges::any_of(tensors, has_prefix, &NamedTensor::name))
    return read;
  StateDict plain;
  for (const auto& item : read) plain.insert(item.key().substr(prefix.size()), item.value());
  return plain;
}

/// "; 5 missing ("a", "b", "c", ...)", or nothing.
std::string list(const char* what, const std::vector<std::string>& names) {
  constexpr std::size_t shown = 3;
  if (names.empty()) return "";
  std::string text = "; ";
  text.append(std::to_string(names.size())).append(" ").append(what).append(" (");
  for (std::size_t i = 0; i < std::min(names.size(), shown); ++i)
    text.append(i > 0 ? ", " : "").append(names[i]);
  return text.append(names.size() > shown ? ", ...)" : ")");
}

void require_fitting(const StateDict& read, const std::vector<NamedTensor>& tensors,
                     const std::string& file) {
  std::vector<std::string> missing, unexpected, different;
  StateDict here;
  for (const auto& item : tensors) {
    here.insert(item.name, item.tensor);
    const torch::Tensor* const found = read.find(item.name);
    if (found == nullptr) {
      missing.push_back(base::quote(item.name));
    } else if (found->sizes() != item.tensor.sizes() || found->scalar_type() != item.tensor.scalar_type()) {
      different.push_back(base::quote(item.name) + " is " + describe(*found) + " there and " +
                          describe(item.tensor) + " here");
    }
  }
  for (const auto& item : read) {
    if (!here.contains(item.key())) unexpected.push_back(base::quote(item.key()));
  }
  const std::string differences =
      list("missing", missing) + list("unexpected", unexpected) + list("different", different);
  if (differences.empty()) return;
  throw_invalid_argument("the state dict " + file + " is of another model" + differences +
                         "; build the model that it was saved from");
}

void put(const torch::Tensor& from, const NamedTensor& to) {
  const HostArray array(to.tensor, to.label(), HostArray::Use::write);
  const torch::Tensor source = from.contiguous();
  std::ranges::copy(readable_bytes(source, to.label()), array.bytes().begin());
  array.put_back();
}

}  // namespace

StateDict read_pth(const std::filesystem::path& path, const std::string& key) {
  const PthFile file(path, key);
  std::vector<c10::Storage> storages;
  for (std::size_t i = 0; i < file.index().storages.size(); ++i) {
    const auto bytes = static_cast<std::int64_t>(file.index().storages[i].bytes);  // at most the file's
    const torch::Tensor content = torch::empty({bytes}, torch::kUInt8);
    file.read(i, writable_bytes(content, "the content of a storage"));
    storages.push_back(content.storage());
  }
  StateDict tensors;
  for (const PthTensor& item : file.index().tensors) {
    torch::Tensor tensor = torch::empty({0}, scalar_type(item.dtype));
    tensor.set_(storages[item.storage], item.offset, item.shape, item.strides);
    tensors.insert(item.name, std::move(tensor));
  }
  return tensors;
}

void write_pth(const std::filesystem::path& path, const StateDict& tensors) {
  PthIndex index;
  std::vector<torch::Tensor> sources;  // one for each storage
  std::map<decltype(place_of(torch::Tensor())), std::size_t> numbers;
  for (const auto& item : tensors) {
    const std::string label = "tensor " + item.key();
    if (!item.value().defined()) throw_invalid_argument(label + " is undefined; leave it out");
    require_array(item.value(), label);
    const auto dtype = reducible_dtype(item.value().scalar_type());
    if (!dtype) {
      throw Error(ErrorCode::unsupported,
                  label + " is " + describe(item.value()) +
                      "; a state dict cannot hold that type here: convert it, or leave it "
                      "out");
    }
    const torch::Tensor tensor = item.value().detach().resolve_conj().resolve_neg();
    const auto [number, is_new] = numbers.try_emplace(place_of(tensor), sources.size());
    if (is_new) {
      index.storages.push_back({.key = std::to_string(sources.size()), .bytes = tensor.nbytes()});
      sources.push_back(tensor);
    }
    index.tensors.push_back({.name = item.key(),
                             .dtype = *dtype,
                             .shape = tensor.sizes().vec(),
                             .strides = row_major(tensor.sizes()),
                             .storage = number->second});
  }
  torch::Tensor content;  // of one storage at a time
  write_pth_file(path, index, [&](std::size_t number) {
    content = sources[number].to(torch::kCPU).contiguous();
    return readable_bytes(content, "the content of a storage");
  });
}

StateDict state_dict(const torch::nn::Module& module) {
  StateDict tensors;
  const auto state = state_of(module);
  require_whole(state);
  for (const auto& item : state) tensors.insert(item.name, item.tensor);
  return tensors;
}

void save_state_dict(const std::filesystem::path& path, const Group& group, const torch::nn::Module& module) {
  on_rank_0(group, [&] { write_pth(path, state_dict(module)); });
}

void load_state_dict(const std::filesystem::path& path, const Group& group, const torch::nn::Module& module,
                     const std::string& key) {
  const auto tensors = state_of(module);
  require_same_facts(group, facts_of(tensors),
                     "Build the same model on every rank before a state dict is loaded");
  for (const auto& item : tensors) require_array(item.tensor, item.label());
  on_rank_0(group, [&] {
    const StateDict read = without_prefix(read_pth(path, key), tensors);
    require_fitting(read, tensors, path.string());
    for (const auto& item : tensors) put(read[item.name], item);
  });
  broadcast_tensors(group, tensors);
}

}  // namespace lockstep

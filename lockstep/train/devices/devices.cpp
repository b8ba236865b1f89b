#include "lockstep/train/devices/devices.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <string_view>

#include "lockstep/base/error.h"
#include "lockstep/train/tensor/device.h"

namespace lockstep {
namespace {

// More threads than any host has cores are a mistake.
constexpr int most_slots = 1024;

Error no_devices(const std::string& names, std::string_view name) {
  return {ErrorCode::invalid_argument,
          "devices \"" + names + "\": \"" + std::string(name) +
              "\" names none; known are cpu, cpu:N for N slots of the CPU (1 to " +
              std::to_string(most_slots) + "), cuda for all GPUs, cuda:N for the one of that number"};
}

/// What stands after "kind:".
std::optional<int> number_after(std::string_view name, std::string_view kind) {
  name.remove_prefix(kind.size());
  if (!name.starts_with(':')) return std::nullopt;
  int number = 0;
  const auto [end, error] = std::from_chars(name.data() + 1, name.data() + name.size(), number);
  return error == std::errc() && end == name.data() + name.size() ? std::optional(number) : std::nullopt;
}

void add_cpu_slots(std::vector<torch::Device>& found, const std::string& names, std::string_view name) {
  const int slots = name == "cpu" ? 1 : number_after(name, "cpu").value_or(0);
  if (slots < 1 || slots > most_slots) throw no_devices(names, name);
  found.insert(found.end(), static_cast<std::size_t>(slots), torch::Device(torch::kCPU));
}

void add_gpus(std::vector<torch::Device>& found, const std::string& name) {
  const VisibleGpus gpus = VisibleGpus::of_this_process();
  std::vector<torch::Device> added;
  if (name != "cuda") {
    added.push_back(choose_device(name, 0, 1, gpus));
  } else {
    const int count = std::max(gpus.count.value_or(0), 1);  // of none choose_device() says why
    for (int i = 0; i < count; ++i) added.push_back(choose_device("cuda", i, count, gpus));
  }
  for (const torch::Device& device : added) {
    if (std::ranges::find(found, device) != found.end())
      throw Error(ErrorCode::invalid_argument,
                  "device " + device.str() + " is named twice: a GPU computes for one replica");
    found.push_back(device);
  }
}

}  // namespace

std::vector<torch::Device> devices(const std::string& names) {
  std::vector<torch::Device> found;
  std::string_view rest = names;
  while (true) {
    const std::size_t comma = rest.find(',');
    const std::string_view name = rest.substr(0, comma);
    if (name.starts_with("cpu")) {
      add_cpu_slots(found, names, name);
    } else if (name == "cuda" || (name.starts_with("cuda") && number_after(name, "cuda"))) {
      add_gpus(found, std::string(name));
    } else {
      throw no_devices(names, name);
    }
    if (comma == std::string_view::npos) return found;
    rest.remove_prefix(comma + 1);
  }
}

}  // namespace lockstep

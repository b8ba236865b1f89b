#include "lockstep/view/profile/machine_limits.h"

#include <fmt/core.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "lockstep/base/env.h"
#include "lockstep/base/error.h"
#include "lockstep/base/file.h"
#include "lockstep/base/operation.h"
#include "lockstep/base/quote.h"

namespace lockstep::view {
namespace {

using nlohmann::json;

constexpr const char* machine_format = "lockstep-machine-1";
constexpr std::uint64_t most_machine_bytes = 1 << 20;
constexpr int most_machine_ranks = 1 << 20;
constexpr std::size_t most_cores = 1 << 16;

double positive_in(const json& value, const std::string& name) {
  if (!value.is_number() || !(value.get<double>() >= 1e-12 && value.get<double>() <= 1e15))
    throw_invalid_argument(name + " must be a number from 1e-12 to 1e15");
  return value.get<double>();
}

const json& part_of(const json& object, const char* name) {
  const auto found = object.find(name);
  if (found == object.end()) throw_invalid_argument("lacks " + base::quote(name));
  return *found;
}

int count_in(const json& object, const char* name) {
  const double count = positive_in(part_of(object, name), base::quote(name));
  if (count != std::floor(count) || count > most_machine_ranks)
    throw_invalid_argument(
        fmt::format("{} must be a whole number up to {}", base::quote(name), most_machine_ranks));
  return static_cast<int>(count);
}

MachineLimits limits_of(const json& value) {
  if (!value.is_object()) throw_invalid_argument("is no JSON object; `lockstep bench --machine` writes one");
  if (const auto found = value.find("format"); found == value.end() || *found != machine_format)
    throw_invalid_argument("is not of \"format\" " + base::quote(machine_format) +
                           "; `lockstep bench --machine` writes one");
  MachineLimits limits{.ranks = count_in(value, "ranks"), .hosts = count_in(value, "hosts")};
  const json& memory = part_of(value, "memory_bytes_per_s");
  if (!memory.is_array() || memory.empty() || memory.size() > most_cores)
    throw_invalid_argument("\"memory_bytes_per_s\" must be a list of numbers");
  for (const json& rate : memory)
    limits.memory_bytes_per_s.push_back(positive_in(rate, "each of \"memory_bytes_per_s\""));
  if (value.contains("push_bytes_per_s"))  // there is none between ranks that are alone on their hosts
    limits.push_bytes_per_s = positive_in(value["push_bytes_per_s"], "\"push_bytes_per_s\"");
  limits.link_bytes_per_s = positive_in(part_of(value, "link_bytes_per_s"), "\"link_bytes_per_s\"");
  limits.link_seconds = positive_in(part_of(value, "link_seconds"), "\"link_seconds\"");
  return limits;
}

/// How many bytes all of a host's ranks together read and write for each byte of a rank's buffer or block, where each input is
/// read and each output written once.
double memory_traffic(Operation operation, double ranks) {
  switch (operation) {
    case Operation::all_reduce: return 2 * ranks;
    case Operation::reduce: return ranks + 1;
    case Operation::reduce_scatter: return ranks * (ranks + 1);
    case Operation::all_gather:
    case Operation::all_to_all: return 2 * ranks * ranks;
    case Operation::gather:
    case Operation::scatter: return 2 * ranks;
    case Operation::broadcast: return 2 * (ranks - 1);
    default: return 2;
  }
}

}  // namespace

double bus_bytes(Operation operation, bool has_counts, int ranks, double bytes) {
  if (ranks < 2 && !is_message(operation)) return 0;
  const double others = ranks - 1.0;
  switch (operation) {
    case Operation::barrier: return 0;
    case Operation::all_reduce: return 2 * others / ranks * bytes;
    case Operation::broadcast:
    case Operation::reduce:
    case Operation::send:
    case Operation::receive: return bytes;
    case Operation::all_gather:
    case Operation::reduce_scatter:
    case Operation::scatter:
    case Operation::gather:
    case Operation::all_to_all: return has_counts ? others / ranks * bytes : others * bytes;
  }
  return 0;
}

double MachineLimits::bus_bandwidth(Operation operation, int group) const {
  if (group < 2) return 0;
  if (hosts > 1) return link_bytes_per_s;
  const auto cores = std::min(memory_bytes_per_s.size(), static_cast<std::size_t>(group));
  return memory_bytes_per_s[cores - 1] / memory_traffic(operation, group) *
         bus_bytes(operation, false, group, 1);
}

MachineLimits MachineLimits::parse(const std::string& text, const std::string& name) try {
  if (text.size() > most_machine_bytes) throw_invalid_argument("is too long for what a machine can do");
  return limits_of(json::parse(text, nullptr, false));
} catch (const Error& error) {
  throw_invalid_argument(name + ": " + error.what());
}

std::optional<MachineLimits> MachineLimits::from_environment() {
  const auto path = env::text("LOCKSTEP_MACHINE_FILE");
  if (!path) return std::nullopt;
  const std::string text = InputFile(*path, "machine file").text(most_machine_bytes + 1);
  return parse(text, "LOCKSTEP_MACHINE_FILE: " + *path);
}

std::string MachineLimits::to_text() const {
  json value = {{"format", machine_format},
                {"ranks", ranks},
                {"hosts", hosts},
                {"memory_bytes_per_s", memory_bytes_per_s},
                {"link_bytes_per_s", link_bytes_per_s},
                {"link_seconds", link_seconds}};
  if (push_bytes_per_s > 0) value["push_bytes_per_s"] = push_bytes_per_s;
  return value.dump(1) + "\n";
}

}  // namespace lockstep::view

#include "lockstep/launch/environment.h"

#include <unistd.h>

#include <set>

namespace lockstep::launch {

Variables rank_variables(int rank, const JobFacts& facts) {
  const std::string number = std::to_string(rank);
  const std::string size = std::to_string(facts.ranks);
  Variables variables = {
      {"RANK", number},
      {"WORLD_SIZE", size},
      {"LOCAL_RANK", number},
      {"LOCAL_WORLD_SIZE", size},
      {"GROUP_RANK", "0"},
      {"MASTER_ADDR", "127.0.0.1"},
      {"MASTER_PORT", std::to_string(facts.master_port)},
      {"HOROVOD_RANK", number},
      {"HOROVOD_SIZE", size},
      {"HOROVOD_LOCAL_RANK", number},
      {"HOROVOD_LOCAL_SIZE", size},
      {"HOROVOD_CROSS_RANK", "0"},
      {"HOROVOD_CROSS_SIZE", "1"},
      {"LOCKSTEP_JOB", facts.job},
      {"LOCKSTEP_STORE", facts.store},
      {"LOCKSTEP_CONTROL_FD", std::to_string(facts.control_fd)},
      {"LOCKSTEP_SECRET_FD", std::to_string(facts.secret_fd)},
      {"LOCKSTEP_CORES", std::to_string(facts.cores)},
  };
  if (facts.threads > 0) variables.emplace_back("OMP_NUM_THREADS", std::to_string(facts.threads));
  return variables;
}

std::vector<std::string> merge_environment(const std::vector<std::string>& inherited,
                                           const Variables& variables) {
  std::set<std::string> replaced;
  for (const auto& [name, value] : variables) replaced.insert(name);
  std::vector<std::string> merged;
  for (const std::string& entry : inherited) {
    if (!replaced.contains(entry.substr(0, entry.find('=')))) merged.push_back(entry);
  }
  for (const auto& [name, value] : variables) merged.push_back(name + "=" + value);
  return merged;
}

std::vector<std::string> this_environment() {
  std::vector<std::string> entries;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) entries.emplace_back(*entry);
  return entries;
}

}  // namespace lockstep::launch

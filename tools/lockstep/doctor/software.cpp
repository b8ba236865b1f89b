#include <fmt/core.h>

#include <array>
#include <string>

#include "check_build.h"
#include "examine.h"
#include "lockstep/launch/program.h"

namespace doctor {
namespace {

constexpr std::array launchers = {"mpirun", "mpiexec", "srun", "sbatch", "torchrun", "horovodrun",
                                  "jsrun",  "flux",    "qsub", "aprun",  "ssh"};

std::string path_of(const std::string& name) {
  return lockstep::launch::find_program(name, lockstep::launch::search_path()).path;
}

}  // namespace

void examine_software(Report& report) {
  report.section("Software", "software");
  report.fact("Lockstep", LOCKSTEP_VERSION, "lockstep", LOCKSTEP_VERSION);
  const std::string torch = torch_version();
  if (torch.empty()) {
    report.fact("libtorch", "none: this build has the collectives alone", "libtorch", nullptr);
  } else {
    report.fact("libtorch", torch + ", which this build was made with", "libtorch", torch);
  }
  std::string found;
  nlohmann::ordered_json paths = nlohmann::ordered_json::object();
  for (const char* name : launchers) {
    const std::string path = path_of(name);
    if (path.empty()) continue;
    found += (found.empty() ? "" : ", ") + path;
    paths[name] = path;
  }
  report.fact("launchers", found.empty() ? "none besides lockstep run" : found, "launchers", paths);
  if (!paths.contains("ssh")) {
    report.problem({.weight = 5,
                    .what = "there is no ssh, by which `lockstep run -H` gets to other hosts",
                    .remedy = "install openssh-client, or start on each host by --nnodes"});
  }
}

}  // namespace doctor

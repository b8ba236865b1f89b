#include "check_build.h"

#include <array>
#include <string_view>

namespace {

struct Part {
  const char* name;
  bool is_there;
};

template <std::size_t count>
std::string list(std::string_view title, const std::array<Part, count>& parts) {
  std::string text = "\n" + std::string(title) + ":\n";
  for (const Part& part : parts)
    text += std::string(part.is_there ? "    [X] " : "    [ ] ") + part.name + "\n";
  return text;
}

}  // namespace

std::string torch_version() {
#ifdef LOCKSTEP_TORCH_VERSION
  return LOCKSTEP_TORCH_VERSION;
#else
  return "";
#endif
}

std::string describe_build() {
  const bool has_torch = !torch_version().empty();
  const std::string torch = has_torch ? "libtorch " + torch_version() + " (C++)" : "libtorch (C++)";
  return "Lockstep v" LOCKSTEP_VERSION ":\n" +
         list("Available Frameworks",
              std::array{Part{"plain C++", true}, Part{torch.c_str(), has_torch},
                         Part{"TensorFlow (Python)", true}, Part{"PyTorch (Python)", true}}) +
         list("Available Controllers",
              std::array{Part{"Lockstep's own, also under mpirun, srun and torchrun", true},
                         Part{"MPI, to meet: PMI-1, PMI-2, PMIx", true}}) +
         list("Available Tensor Operations", std::array{Part{"shared memory", true}, Part{"TCP", true},
                                                        Part{"NCCL, where it is installed", true},
                                                        Part{"MPI, where it is installed", true}});
}

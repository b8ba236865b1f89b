#include "check_build.h"

#include <array>
#include <string_view>

namespace {

struct Part {
  const char* name;
  bool is_there;
};

#ifdef LOCKSTEP_TORCH_VERSION
constexpr bool has_torch = true;
constexpr const char* torch = "libtorch " LOCKSTEP_TORCH_VERSION " (C++)";
#else
constexpr bool has_torch = false;
constexpr const char* torch = "libtorch (C++)";
#endif

template <std::size_t count>
std::string list(std::string_view title, const std::array<Part, count>& parts) {
  std::string text = "\n" + std::string(title) + ":\n";
  for (const Part& part : parts)
    text += std::string(part.is_there ? "    [X] " : "    [ ] ") + part.name + "\n";
  return text;
}

}  // namespace

std::string describe_build() {
  return "Lockstep v" LOCKSTEP_VERSION ":\n" +
         list("Available Frameworks",
              std::array{Part{"plain C++", true}, Part{torch, has_torch}, Part{"TensorFlow", false},
                         Part{"PyTorch (Python)", false}}) +
         list("Available Controllers",
              std::array{Part{"Lockstep's own, also under mpirun, srun and torchrun", true},
                         Part{"MPI", false}}) +
         list("Available Tensor Operations", std::array{Part{"shared memory", true}, Part{"TCP", true},
                                                        Part{"NCCL", false}, Part{"MPI", false}});
}

#include "lockstep/train/tensor/openmp_runtimes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

namespace lockstep {
namespace {

using testing::Contains;
using testing::HasSubstr;

TEST(OpenMpRuntimes, AreNamedWhereThereAreTwo) {
  const std::vector<std::string> files = {"/usr/lib/libc.so.6", "/opt/torch/lib/libgomp.so.1",
                                          "/opt/mkl/libiomp5.so", "/opt/torch/lib/libgomp.so.1"};
  const auto text = find_two_openmp_runtimes(files);
  ASSERT_TRUE(text);
  EXPECT_THAT(*text, HasSubstr("this process has loaded 2 OpenMP runtimes, /opt/torch/lib/libgomp.so.1 and "
                               "/opt/mkl/libiomp5.so; each has threads of its own"));
  EXPECT_THAT(*text, HasSubstr("or set OMP_NUM_THREADS=1"));
}

TEST(OpenMpRuntimes, AreNoMatterWhereThereIsOne) {
  const std::vector<std::string> files = {"/a/libgomp-a34b3233.so.1", "/a/libompx_helper.so",
                                          "/a/libcomp.so"};
  EXPECT_FALSE(find_two_openmp_runtimes(files));
}

TEST(OpenMpRuntimes, IsOneInThisProcess) {
  ASSERT_GT(torch::get_num_threads(), 0);  // libtorch is here
  const auto files = loaded_files();
  EXPECT_THAT(files, Contains(HasSubstr("libtorch_cpu")));
  EXPECT_FALSE(find_two_openmp_runtimes(files));
}

}  // namespace
}  // namespace lockstep

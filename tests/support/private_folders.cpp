// Whether a job leaves anything in /dev/shm can only be told where nobody else works: for a root's tests it
// is a folder of their own.
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>

namespace {

class PrivateFolders : public ::testing::Environment {
  void SetUp() override {
    if (::unshare(CLONE_NEWNS) != 0) return;
    if (::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) return;
    (void)!::mount("tmpfs", "/dev/shm", "tmpfs", 0, "mode=1777");
  }
};

const auto* const registered = ::testing::AddGlobalTestEnvironment(new PrivateFolders);

}  // namespace

// A GPU for Python's torch where there is none: torch.ops.load_library() of this gives it libtorch's made-up device, "privateuseone", whose memory is
// on the stand-in's GPUs. REQUIRES: the version of libtorch that this was built with.
#include "tests/gpu/fake_device_on_standin.h"

namespace {

[[maybe_unused]] const bool is_set_up = [] {
  lockstep::test::put_fake_devices_on_standin();
  return true;
}();

}  // namespace

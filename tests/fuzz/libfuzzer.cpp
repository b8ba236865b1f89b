// What libFuzzer calls: the target that CMakeLists.txt names.
#include <cstdint>
#include <cstdlib>

#include "tests/fuzz/targets.h"

extern "C" int LLVMFuzzerInitialize(int*, char***) {
  return ::setenv("LOCKSTEP_LOG", "off", 1);  // most inputs would be complained about
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  return lockstep::fuzz::LOCKSTEP_FUZZ_TARGET::run_one(std::as_bytes(std::span(data, size)));
}

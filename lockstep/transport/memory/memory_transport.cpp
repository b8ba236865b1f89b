#include "lockstep/transport/memory/memory_transport.h"

namespace lockstep {

SharedByThreads SharedByThreads::make(int ranks, std::size_t arena_bytes) {
  return {HostRegion::in_process(ranks, arena_bytes),
          std::make_shared<ControlPage>(ControlPage::in_process(ranks))};
}

}  // namespace lockstep

#include "lockstep/pipeline/plan.h"

#include <fmt/core.h>

namespace lockstep::pipeline {

std::string to_string(const Action& action) {
  const bool is_message = action.kind == ActionKind::send || action.kind == ActionKind::receive;
  const std::string where = fmt::format("stage {} with micro-batch {}", action.stage, action.micro_batch);
  if (!is_message)
    return fmt::format("{} of {}", action.kind == ActionKind::forward ? "forward" : "backward", where);
  return fmt::format("{} of the {} of {} {} rank {}", action.kind == ActionKind::send ? "send" : "receive",
                     action.payload == Payload::activation ? "activation" : "gradient", where,
                     action.kind == ActionKind::send ? "to" : "from", action.peer);
}

}  // namespace lockstep::pipeline

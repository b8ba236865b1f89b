// Gradients that are infinite or not numbers: what to do with them.
#pragma once

namespace lockstep {

/// What a step does with gradients that are infinite or not numbers.
enum class NonFinite {
  ignore,  ///< it takes them as they are
  skip,    ///< no rank takes this step
  stop,    ///< every rank throws, and none takes the step
};

}  // namespace lockstep

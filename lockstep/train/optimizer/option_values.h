// What an optimizer's options say, number by number: so that ranks can compare what they step with, and a
// message can say in what they differ.
#pragma once

#include <string>
#include <vector>

#include "lockstep/train/optimizer/parameter_state.h"

namespace lockstep {

struct OptionValue {
  const char* name;  ///< as in messages: "learning rate"
  double value;      ///< of a switch 0 or 1
};

/// All of libtorch's SGD, Adam, AdamW, Adagrad, RMSprop and LBFGS; of any other optimizer the learning rate,
/// if its options have one.
std::vector<OptionValue> option_values(const ParameterOptions& options);

/// "SGD", "Adam", ...: the optimizer of libtorch's that has such options; "other" for one that it has not.
std::string kind_of_options(const ParameterOptions& options);

}  // namespace lockstep

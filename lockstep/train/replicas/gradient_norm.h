// Clipping by the norm of a model that is in parts on several ranks: who has a part adds its squares to the others'.
#pragma once

#include <torch/torch.h>

#include <vector>

namespace lockstep {

/// The sum of a gradient's squares; 0 where there is none.
double gradient_squares(const torch::Tensor& parameter);

/// Scales the parameters' gradients as torch.nn.utils.clip_grad_norm_ does where `norm` is theirs.
void clip_gradients(const std::vector<torch::Tensor>& parameters, double norm, double max_norm);

}  // namespace lockstep

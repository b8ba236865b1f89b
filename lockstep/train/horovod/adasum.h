// A sum of gradients overshoots where they point the same way, and an average is too timid where they do not.
// Adasum lies in between: of two vectors it takes from each what the other has in common with it,
//
//   adasum(a, b) = (1 - a·b / 2|a|²) a + (1 - a·b / 2|b|²) b
//
// so that orthogonal ones add up and equal ones are averaged; of more, it does so in a tree.
// Source: Maleki et al. 2020, "Scaling Distributed Training with Adaptive Summation".
//
//   ranks 0 1 2 3 4      4 gives its vector to 0;   {0,4}+1, 2+3;   {0,4,1}+{2,3};   0 gives the result to 4
#pragma once

#include <torch/torch.h>

#include <vector>

#include "lockstep/group/group.h"

namespace lockstep {

/// Collective. Each tensor becomes the Adasum of all ranks' tensors of that place, by itself; the same bits
/// on all ranks. Tensors are dense and f16, bf16, f32 or f64, in main memory, alike on all ranks; products
/// are taken in f64, halves are rounded once for each level of the tree. Cost: log2 p exchanges of all
/// tensors with one other rank, two more where p is no power of two; as much memory again. Throws Error:
/// unsupported for other tensors, and what a message fails with.
void adasum(const Group& group, const std::vector<torch::Tensor>& tensors);

/// Of two, as above: `a` becomes it. For tests, and for whoever brings vectors together otherwise.
void adasum_of_two(const torch::Tensor& a, const torch::Tensor& b);

}  // namespace lockstep

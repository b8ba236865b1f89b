#include "lockstep/train/horovod/adasum.h"

#include <map>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/group/collectives.h"
#include "lockstep/train/tensor/tensor_bytes.h"

namespace lockstep {
namespace {

/// How much of each is taken.
std::pair<double, double> weights(const torch::Tensor& a, const torch::Tensor& b) {
  const auto x = a.to(torch::kDouble), y = b.to(torch::kDouble);
  const double product = torch::dot(x, y).item<double>();
  const double of_a = torch::dot(x, x).item<double>(), of_b = torch::dot(y, y).item<double>();
  return {of_a > 0 ? 1 - product / (2 * of_a) : 1, of_b > 0 ? 1 - product / (2 * of_b) : 1};
}

/// `into` becomes the Adasum of `lower` and `upper`, one of which it is: two ranks that combine the same two
/// vectors in this order get the same bits.
void combine(const torch::Tensor& lower, const torch::Tensor& upper, const torch::Tensor& into) {
  const auto [first, second] = weights(lower, upper);
  into.copy_(lower.to(torch::kDouble).mul_(first).add_(upper.to(torch::kDouble).mul_(second)));
}

/// The tensors of one type, one after the other.
struct Flat {
  std::vector<torch::Tensor> tensors;
  torch::Tensor all, other;
};

/// Part by part, since each tensor is weighted by itself.
void combine_parts(const Flat& flat, bool all_is_lower) {
  std::int64_t begin = 0;
  for (const auto& tensor : flat.tensors) {
    const auto mine = flat.all.narrow(0, begin, tensor.numel());
    const auto theirs = flat.other.narrow(0, begin, tensor.numel());
    combine(all_is_lower ? mine : theirs, all_is_lower ? theirs : mine, mine);
    begin += tensor.numel();
  }
}

void reduce(const Group& group, const Flat& flat) {
  const auto mine = writable_bytes(flat.all, "adasum");
  const auto theirs = writable_bytes(flat.other, "adasum");
  const int rank = group.rank(), ranks = group.size();
  int paired = 1;  // ranks in the tree: a power of two
  while (2 * paired <= ranks) paired *= 2;
  if (rank >= paired) {
    send(group, mine, rank - paired).wait();
    recv(group, mine, rank - paired).wait();
    return;
  }
  const bool has_guest = rank + paired < ranks;
  if (has_guest) {
    recv(group, theirs, rank + paired).wait();
    combine_parts(flat, true);
  }
  for (int distance = 1; distance < paired; distance *= 2) {
    const int other = rank ^ distance;
    sendrecv(group, mine, other, theirs, other).wait();
    combine_parts(flat, rank < other);
  }
  if (has_guest) send(group, mine, rank + paired).wait();
}

}  // namespace

void adasum(const Group& group, const std::vector<torch::Tensor>& tensors) {
  const torch::NoGradGuard no_grad;
  std::map<torch::ScalarType, Flat> flats;
  for (const auto& tensor : tensors) {
    require_host_array(tensor, "adasum: a tensor");
    if (!at::isFloatingType(tensor.scalar_type())) {
      throw Error(ErrorCode::unsupported,
                  "adasum: a tensor is " + describe(tensor) + "; only floating-point numbers have an Adasum");
    }
    flats[tensor.scalar_type()].tensors.push_back(tensor);
  }
  if (group.size() == 1) return;
  for (auto& [type, flat] : flats) {
    std::vector<torch::Tensor> parts;
    for (const auto& tensor : flat.tensors) parts.push_back(tensor.reshape({-1}));
    flat.all = torch::cat(parts);
    flat.other = torch::empty_like(flat.all);
    reduce(group, flat);
    std::int64_t begin = 0;
    for (const auto& tensor : flat.tensors) {
      tensor.copy_(flat.all.narrow(0, begin, tensor.numel()).view(tensor.sizes()));
      begin += tensor.numel();
    }
  }
}

void adasum_of_two(const torch::Tensor& a, const torch::Tensor& b) {
  const torch::NoGradGuard no_grad;
  const auto x = a.reshape({-1});
  combine(x, b.reshape({-1}), x);
  if (!x.is_alias_of(a)) a.copy_(x.view(a.sizes()));
}

}  // namespace lockstep

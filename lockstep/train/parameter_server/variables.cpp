#include "lockstep/train/parameter_server/variables.h"

#include <c10/util/StringUtil.h>

#include <algorithm>
#include <sstream>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/kernel/reduce.h"
#include "lockstep/train/parameter_server/saved_part.h"
#include "lockstep/train/tensor/tensor_bytes.h"

namespace lockstep::ps {

using torch::Tensor;

Variables::Variables(const Placement& placement, int server, const std::vector<Tensor>& values,
                     const OptimizerFactory& make_optimizer)
    : placement_(placement),
      pieces_(placement.pieces(server)),
      stretches_(placement.stretches(server)),
      arrays_(arrays()) {
  const torch::NoGradGuard no_grad;
  parameters_ = placement_.views(server, arrays_);
  for (std::size_t i = 0; i < pieces_.size(); ++i) {
    const Tensor value = pieces_[i].of(values[pieces_[i].variable].detach());
    if (!parameters_[i].defined()) parameters_[i] = torch::empty(value.sizes(), value.scalar_type());
    parameters_[i].copy_(value);
    parameters_[i].set_requires_grad(true);
  }
  optimizer_ = make_optimizer(parameters_);
}

std::vector<Tensor> Variables::arrays() const {
  std::vector<Tensor> made;
  for (const Placement::Stretch& stretch : stretches_)
    made.push_back(torch::empty({stretch.elements}, stretch.type));
  return made;
}

void Variables::read(std::span<const Tensor> into) const {
  const torch::NoGradGuard no_grad;
  const std::lock_guard lock(mutex_);
  for (std::size_t i = 0; i < arrays_.size(); ++i) Tensor(into[i]).copy_(arrays_[i]);
}

Tensor Variables::read_rows(std::size_t variable, const Tensor& indices) const {
  const torch::NoGradGuard no_grad;
  const auto piece = std::ranges::find(pieces_, variable, &Piece::variable);
  if (piece == pieces_.end() || (indices < piece->first_row).any().item<bool>() ||
      (indices >= piece->first_row + piece->rows).any().item<bool>())
    throw_invalid_argument(c10::str("parameter server: rows of '", placement_.variables().at(variable).name,
                                    "' that are not here"));
  const std::lock_guard lock(mutex_);
  return parameters_[static_cast<std::size_t>(piece - pieces_.begin())].detach().index_select(
      0, indices - piece->first_row);
}

void Variables::apply(Gradients& gradients) {
  const std::lock_guard lock(mutex_);
  step(gradients);
}

void Variables::apply_average(std::span<Gradients* const> all) {
  if (all.empty()) return;
  Gradients& sum = *all[0];
  const double scale = 1.0 / static_cast<double>(all.size());
  for (std::size_t piece = 0; piece < pieces_.size(); ++piece) {
    std::vector<const std::byte*> sources;
    Tensor into;
    for (const Gradients* one : all) {
      if (!one->pieces[piece].defined()) continue;
      sources.push_back(elements_of(one->pieces[piece]).data());
      if (!into.defined()) into = one->pieces[piece];
    }
    sum.pieces[piece] = into;
    if (sources.empty()) continue;
    auto* destination = reinterpret_cast<std::byte*>(into.data_ptr());
    kernel::reduce(*reducible_dtype(into.scalar_type()), ReduceOp::sum,
                   static_cast<std::size_t>(into.numel()), sources, std::span(&destination, 1), scale);
  }
  std::vector<Gradients::Rows> rows;
  for (Gradients* const one : all) {
    for (Gradients::Rows& some : one->rows)
      rows.push_back({some.variable, some.indices, some.values * scale});
  }
  sum.rows = std::move(rows);
  const std::lock_guard lock(mutex_);
  step(sum);
}

/// REQUIRES: the mutex.
void Variables::step(Gradients& gradients) {
  const torch::NoGradGuard no_grad;
  for (std::size_t i = 0; i < pieces_.size(); ++i) {
    const Piece& piece = pieces_[i];
    Tensor& gradient = parameters_[i].mutable_grad();
    gradient.reset();
    if (!placement_.variables()[piece.variable].is_table) {
      gradient = gradients.pieces[i];
      continue;
    }
    std::vector<Tensor> indices, values;
    for (const Gradients::Rows& some : gradients.rows) {
      if (some.variable != piece.variable) continue;
      indices.push_back(some.indices - piece.first_row);
      values.push_back(some.values);
    }
    if (indices.empty()) continue;
    gradient =
        torch::sparse_coo_tensor(torch::cat(indices).unsqueeze(0), torch::cat(values), parameters_[i].sizes())
            .coalesce();
  }
  optimizer_->step();
  for (const Tensor& parameter : parameters_) parameter.mutable_grad().reset();
}

std::string Variables::saved(std::uint64_t number) const {
  std::ostringstream bytes;
  const std::lock_guard lock(mutex_);
  torch::serialize::OutputArchive archive, optimizer;
  for (std::size_t i = 0; i < pieces_.size(); ++i)
    archive.write(c10::str("piece", i), parameters_[i].detach(), /*is_buffer=*/true);
  optimizer_->save(optimizer);
  archive.write("optimizer", optimizer);
  archive.write("save", c10::IValue(static_cast<std::int64_t>(number)));
  archive.save_to(bytes);
  return bytes.str();
}

void Variables::load(const std::string& path) {
  const torch::NoGradGuard no_grad;
  const std::lock_guard lock(mutex_);
  torch::serialize::InputArchive archive = opened(path), optimizer;
  try {
    for (std::size_t i = 0; i < pieces_.size(); ++i) {
      Tensor value;
      archive.read(c10::str("piece", i), value, /*is_buffer=*/true);
      if (value.sizes() != parameters_[i].sizes() || value.scalar_type() != parameters_[i].scalar_type())
        throw_invalid_argument(c10::str("'", path,
                                        "' is of another model, or another number of servers: its piece ", i,
                                        " is ", describe(value), ", not ", describe(parameters_[i])));
      parameters_[i].detach().copy_(value);
    }
    archive.read("optimizer", optimizer);
    optimizer_->load(optimizer);
  } catch (const c10::Error& error) {
    throw_no_part(path, error);
  }
}

}  // namespace lockstep::ps

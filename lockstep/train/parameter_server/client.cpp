#include "lockstep/train/parameter_server/client.h"

#include <c10/util/StringUtil.h>

#include <algorithm>
#include <utility>

#include "lockstep/base/error.h"

namespace lockstep::ps {
namespace {

using torch::Tensor;

std::vector<Tensor> untabled(const Placement& placement, const std::vector<NamedTensor>& parameters) {
  std::vector<Tensor> found;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    if (!placement.variables()[i].is_table) found.push_back(parameters[i].tensor);
  }
  return found;
}

}  // namespace

Client::Client(Crew& crew, const Placement& placement, std::vector<NamedTensor> parameters,
               std::uint64_t facts)
    : placement_(placement),
      parameters_(std::move(parameters)),
      values_(FlatPlan(untabled(placement, parameters_))) {
  const torch::NoGradGuard no_grad;
  for (int server = 0; server < placement.servers(); ++server) {
    lines_.emplace_back(crew.pair(crew.life_of(server), crew.self()));
    (void)lines_.back().ask({.kind = Kind::hello, .number = facts});
    gradients_.emplace_back(lines_.back().group(), placement.stretches(server));
  }
  const auto tensors = untabled(placement, parameters_);
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    values_.views[i].copy_(tensors[i].detach());
    tensors[i].set_data(values_.views[i]);
  }
}

void Client::pull() {
  for (std::size_t server = 0; server < lines_.size(); ++server) {
    (void)lines_[server].ask({.kind = Kind::pull});
    for (const Placement::Stretch& stretch : placement_.stretches(static_cast<int>(server))) {
      const auto array = std::ranges::find(values_.arrays, stretch.type,
                                           [](const Tensor& one) { return one.scalar_type(); });
      lines_[server].receive_tensor(array->narrow(0, stretch.begin, stretch.elements));
    }
  }
}

void Client::pull_rows(std::size_t table, const Tensor& indices) {
  const torch::NoGradGuard no_grad;
  const auto unique = std::get<0>(at::_unique(indices.to(torch::kInt64).flatten().cpu()));
  Tensor value = parameters_[table].tensor.detach();
  for (std::size_t server = 0; server < lines_.size(); ++server) {
    for (const Piece& piece : placement_.pieces(static_cast<int>(server))) {
      if (piece.variable != table) continue;
      const Tensor mine =
          unique.masked_select((unique >= piece.first_row) & (unique < piece.first_row + piece.rows))
              .contiguous();
      if (mine.numel() == 0) continue;
      const Line& line = lines_[server];
      line.send(
          {.kind = Kind::pull_rows, .number = table, .count = static_cast<std::uint64_t>(mine.numel())});
      line.send_tensor(mine);
      std::string text;
      if (line.receive(&text).kind != Kind::ok) throw Error(ErrorCode::mismatch, text);
      auto sizes = value.sizes().vec();
      sizes[0] = mine.numel();
      const Tensor rows = torch::empty(sizes, value.scalar_type());
      line.receive_tensor(rows);
      value.index_copy_(0, mine, rows);
    }
  }
}

/// Of tables: a dense gradient has all rows.
std::vector<Client::Rows> Client::rows_of_gradients() const {
  std::vector<Rows> found;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const Tensor& gradient = parameters_[i].tensor.grad();
    if (!placement_.variables()[i].is_table || !gradient.defined()) continue;
    if (gradient.is_sparse()) {
      const Tensor whole = gradient.coalesce();
      found.push_back({i, whole.indices()[0].contiguous(), whole.values().contiguous()});
    } else {
      found.push_back({i, torch::arange(gradient.size(0), torch::kInt64), gradient.contiguous()});
    }
  }
  return found;
}

void Client::push(const Origin& origin) {
  const torch::NoGradGuard no_grad;
  std::vector<std::uint8_t> has;
  for (const NamedTensor& item : parameters_) has.push_back(item.tensor.grad().defined() ? 1 : 0);
  const auto rows = rows_of_gradients();
  for (std::size_t server = 0; server < lines_.size(); ++server) {
    const Line& line = lines_[server];
    const auto& pieces = placement_.pieces(static_cast<int>(server));
    const auto views = placement_.views(static_cast<int>(server), gradients_[server].tensors);
    for (std::size_t i = 0; i < pieces.size(); ++i) {
      if (!views[i].defined()) continue;
      const Tensor& gradient = parameters_[pieces[i].variable].tensor.grad();
      if (gradient.defined()) {
        Tensor(views[i]).copy_(pieces[i].of(gradient.is_sparse() ? gradient.to_dense() : gradient));
      } else {
        Tensor(views[i]).zero_();
      }
    }
    std::vector<Rows> mine;
    for (const Rows& some : rows) {
      const auto piece = std::ranges::find(pieces, some.table, &Piece::variable);
      if (piece == pieces.end()) continue;
      const Tensor here =
          ((some.indices >= piece->first_row) & (some.indices < piece->first_row + piece->rows))
              .nonzero()
              .flatten();
      if (here.numel() > 0)
        mine.push_back({some.table, some.indices.index_select(0, here), some.values.index_select(0, here)});
    }
    line.send({.kind = Kind::push,
               .task = origin.task,
               .number = origin.number,
               .settled_below = origin.settled_below,
               .count = mine.size()});
    line.send_bytes(std::as_bytes(std::span(has)));
    for (const Tensor& array : gradients_[server].tensors) line.send_tensor(array);
    for (const Rows& some : mine) {
      line.send({.number = some.table, .count = static_cast<std::uint64_t>(some.indices.numel())});
      line.send_tensor(some.indices);
      line.send_tensor(some.values);
    }
    (void)line.receive();
  }
  for (const NamedTensor& item : parameters_) item.tensor.mutable_grad().reset();
}

void Client::tell(Kind kind) {
  for (const Line& line : lines_) (void)line.ask({.kind = kind});
}

}  // namespace lockstep::ps

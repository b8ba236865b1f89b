#include "lockstep/train/parameter_server/placement.h"

#include <algorithm>
#include <map>
#include <utility>

#include "lockstep/base/error.h"

namespace lockstep::ps {
namespace {

/// How many of the first `total` elements' rows lie before the border of `server`.
std::int64_t rows_before(std::int64_t border, std::int64_t begin, const Variable& variable) {
  const std::int64_t each = variable.row_elements();
  if (each == 0) return border > begin ? variable.rows() : 0;
  // The nearest border between rows.
  return std::clamp((border - begin + each / 2) / each, std::int64_t{0}, variable.rows());
}

}  // namespace

std::int64_t Variable::row_elements() const {
  std::int64_t elements = 1;
  for (std::size_t i = 1; i < sizes.size(); ++i) elements *= sizes[i];
  return elements;
}

std::vector<std::int64_t> Variable::sizes_of(const Piece& piece) const {
  std::vector<std::int64_t> of_piece = sizes;
  if (!of_piece.empty()) of_piece[0] = piece.rows;
  return of_piece;
}

torch::Tensor Piece::of(const torch::Tensor& whole) const {
  return whole.dim() == 0 ? whole : whole.narrow(0, first_row, rows);
}

Placement::Placement(std::vector<Variable> variables, int servers)
    : variables_(std::move(variables)), pieces_(static_cast<std::size_t>(servers)) {
  // Tables each, and the others of a type together.
  std::map<torch::ScalarType, std::int64_t> totals, begins;
  for (const Variable& variable : variables_) {
    if (!variable.is_table) totals[variable.type] += variable.rows() * variable.row_elements();
  }
  for (std::size_t i = 0; i < variables_.size(); ++i) {
    const Variable& variable = variables_[i];
    const std::int64_t elements = variable.rows() * variable.row_elements();
    const std::int64_t total = variable.is_table ? elements : totals[variable.type];
    const std::int64_t begin = variable.is_table ? 0 : begins[variable.type];
    std::int64_t first = 0;
    for (int server = 0; server < servers; ++server) {
      const std::int64_t last = server + 1 == servers
                                    ? variable.rows()
                                    : rows_before(total * (server + 1) / servers, begin, variable);
      if (last > first) pieces_[static_cast<std::size_t>(server)].push_back({i, first, last - first});
      first = std::max(first, last);
    }
    if (!variable.is_table) begins[variable.type] += elements;
  }
}

std::uint64_t Placement::bytes(int server) const {
  std::uint64_t sum = 0;
  for (const Piece& piece : pieces(server)) {
    const Variable& variable = variables_[piece.variable];
    sum += static_cast<std::uint64_t>(piece.rows * variable.row_elements()) * c10::elementSize(variable.type);
  }
  return sum;
}

std::vector<Placement::Stretch> Placement::stretches(int server) const {
  std::vector<Stretch> found;
  std::vector<std::pair<torch::ScalarType, std::int64_t>> before;  // elements of earlier variables
  const auto& mine = pieces(server);
  for (std::size_t i = 0; i < variables_.size(); ++i) {
    const Variable& variable = variables_[i];
    if (variable.is_table) continue;
    auto array = std::ranges::find(before, variable.type, &std::pair<torch::ScalarType, std::int64_t>::first);
    if (array == before.end()) array = before.insert(before.end(), {variable.type, 0});
    if (const auto piece = std::ranges::find(mine, i, &Piece::variable); piece != mine.end()) {
      const std::int64_t elements = piece->rows * variable.row_elements();
      auto stretch = std::ranges::find(found, variable.type, &Stretch::type);
      if (stretch == found.end()) {
        stretch = found.insert(
            found.end(), {variable.type, array->second + piece->first_row * variable.row_elements(), 0});
      }
      stretch->elements += elements;
    }
    array->second += variable.rows() * variable.row_elements();
  }
  return found;
}

std::vector<torch::Tensor> Placement::views(int server, std::span<const torch::Tensor> arrays) const {
  const auto of_arrays = stretches(server);
  std::vector<torch::Tensor> views;
  std::vector<std::int64_t> ends(of_arrays.size());
  for (const Piece& piece : pieces(server)) {
    const Variable& variable = variables_[piece.variable];
    if (variable.is_table) {
      views.emplace_back();
      continue;
    }
    const auto array = static_cast<std::size_t>(std::ranges::find(of_arrays, variable.type, &Stretch::type) -
                                                of_arrays.begin());
    const std::int64_t elements = piece.rows * variable.row_elements();
    views.push_back(arrays[array].narrow(0, ends[array], elements).view(variable.sizes_of(piece)));
    ends[array] += elements;
  }
  return views;
}

std::vector<Variable> variables_of(std::span<const NamedTensor> parameters,
                                   std::span<const std::string> tables) {
  std::vector<Variable> variables;
  for (const NamedTensor& item : parameters)
    variables.push_back(
        {.name = item.name, .type = item.tensor.scalar_type(), .sizes = item.tensor.sizes().vec()});
  for (const std::string& table : tables) {
    const auto found = std::ranges::find(variables, table, &Variable::name);
    if (found == variables.end())
      throw_invalid_argument("ParameterServer: tables names '" + table +
                             "', which is no trainable parameter of the model");
    if (found->sizes.empty())
      throw_invalid_argument("ParameterServer: the table '" + table + "' has no rows");
    found->is_table = true;
  }
  return variables;
}

}  // namespace lockstep::ps

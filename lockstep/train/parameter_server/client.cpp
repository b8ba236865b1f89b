#include "lockstep/train/parameter_server/client.h"

#include <c10/util/StringUtil.h>

#include <algorithm>
#include <random>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/log.h"
#include "lockstep/group/outcome.h"
#include "lockstep/group/shared_memory.h"
#include "lockstep/train/parameter_server/saved_part.h"
#include "lockstep/train/tensor/arena_tensor.h"
#include "lockstep/train/tensor/gpu_place.h"
#include "lockstep/train/tensor/shared_heap.h"

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
    : placement_(placement), parameters_(std::move(parameters)) {
  for (int server = 0; server < placement.servers(); ++server)
    lines_.emplace_back(crew.pair(crew.life_of(server), crew.self()));
  lay_out();
  for (std::size_t server = 0; server < lines_.size(); ++server) greet(server, facts);
}

/// Each array lies where the first server that has some of it writes to; what others have of it comes by messages.
void Client::lay_out() {
  const torch::NoGradGuard no_grad;
  const auto tensors = untabled(placement_, parameters_);
  const FlatPlan plan(tensors);
  std::vector<Tensor> arrays;
  for (const FlatPlan::Array& array : plan.arrays()) {
    const auto has_some = [&](int server) {
      const auto stretches = placement_.stretches(server);
      return std::ranges::any_of(stretches, [&](const auto& one) { return one.type == array.type; });
    };
    int server = 0;
    while (!has_some(server) && server + 1 < placement_.servers()) ++server;
    arrays.push_back(
        arena_tensor(lines_[static_cast<std::size_t>(server)].group(), {array.elements}, array.type));
  }
  const auto views = plan.views(arrays);
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    Tensor(views[i]).copy_(tensors[i].detach());
    if (tensors[i].is_cpu()) {
      tensors[i].set_data(views[i]);
    } else {
      if (elsewhere_.empty() && tensors[i].device().type() == gpu_kind)
        log::info("tensors on GPUs go through main memory: a parameter server's variables are there");
      elsewhere_.push_back({tensors[i], views[i]});
    }
  }
  for (int server = 0; server < placement_.servers(); ++server) {
    auto& mine = stretches_.emplace_back();
    for (const Placement::Stretch& stretch : placement_.stretches(server)) {
      const auto array =
          std::ranges::find(arrays, stretch.type, [](const Tensor& one) { return one.scalar_type(); });
      mine.push_back({array->narrow(0, stretch.begin, stretch.elements), false});
    }
    auto& gradients = gradients_.emplace_back();
    for (const Piece& piece : placement_.pieces(server)) {
      const Variable& variable = placement_.variables()[piece.variable];
      gradients.push_back(variable.is_table ? Tensor()
                                            : arena_tensor(lines_[static_cast<std::size_t>(server)].group(),
                                                           variable.sizes_of(piece), variable.type));
    }
  }
  heap_ = SharedHeap::unless_there_is_one(lines_[0].group());
}

Client::~Client() = default;

void Client::greet(std::size_t server, std::uint64_t facts) {
  const Line& line = lines_[server];
  std::vector<std::uint64_t> words;
  for (Stretch& stretch : stretches_[server]) {
    words.push_back(word_of(line.group(), stretch.value));
    stretch.is_shared = words.back() != 0;
  }
  line.send({.kind = Kind::hello, .number = facts, .count = words.size()});
  if (!words.empty()) line.send_bytes(std::as_bytes(std::span(words)));
  line.take_answer();
}

void Client::pull() {
  for (std::size_t server = 0; server < lines_.size(); ++server) {
    (void)lines_[server].ask({.kind = Kind::pull});
    for (const Stretch& stretch : stretches_[server]) {
      if (!stretch.is_shared) lines_[server].receive_tensor(stretch.value);
    }
  }
  for (const auto& [parameter, pulled] : elsewhere_) parameter.detach().copy_(pulled);
}

void Client::pull_rows(std::size_t table, const Tensor& indices) {
  const torch::NoGradGuard no_grad;
  const auto unique = std::get<0>(at::_unique(indices.to(torch::kInt64).flatten().cpu()));
  Tensor value = parameters_[table].tensor.detach();
  if (unique.numel() > 0) {
    const auto least = unique.min().item<std::int64_t>(), most = unique.max().item<std::int64_t>();
    if (least < 0 || most >= value.size(0))
      throw_invalid_argument(c10::str("ParameterServer: there is no row ", least < 0 ? least : most, " in '",
                                      placement_.variables()[table].name, "', which has ", value.size(0)));
  }
  for (std::size_t server = 0; server < lines_.size(); ++server) {
    for (const Piece& piece : placement_.pieces(static_cast<int>(server))) {
      if (piece.variable != table) continue;
      const Tensor mine =
          unique.masked_select((unique >= piece.first_row) & (unique < piece.first_row + piece.rows))
              .contiguous();
      if (mine.numel() == 0) continue;
      const Line& line = lines_[server];
      Kind answer = Kind::not_yet;
      for (std::string text; answer == Kind::not_yet;) {
        line.send(
            {.kind = Kind::pull_rows, .number = table, .count = static_cast<std::uint64_t>(mine.numel())});
        line.send_tensor(mine);
        answer = line.receive(&text).kind;
        if (answer == Kind::refused) throw Error(ErrorCode::mismatch, text);
      }
      auto sizes = value.sizes().vec();
      sizes[0] = mine.numel();
      const Tensor rows = torch::empty(sizes, value.scalar_type());
      line.receive_tensor(rows);
      value.index_copy_(0, mine.to(value.device()), rows.to(value.device()));
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
      found.push_back({i, whole.indices()[0].cpu().contiguous(), whole.values().cpu().contiguous()});
    } else {
      found.push_back({i, torch::arange(gradient.size(0), torch::kInt64), gradient.cpu().contiguous()});
    }
  }
  return found;
}

std::uint64_t Client::place_gradient(std::size_t server, std::size_t piece) {
  const Piece& mine = placement_.pieces(static_cast<int>(server))[piece];
  const Tensor& gradient = parameters_[mine.variable].tensor.grad();
  Tensor own = gradients_[server][piece];
  if (!gradient.defined() || !own.defined()) return 0;
  const Group& group = lines_[server].group();
  if (!gradient.is_sparse() && gradient.is_cpu() && gradient.is_contiguous() &&
      gradient.scalar_type() == own.scalar_type()) {
    if (const std::uint64_t word = word_of(group, mine.of(gradient))) return word;
  }
  own.copy_(mine.of(gradient.is_sparse() ? gradient.to_dense() : gradient));
  const std::uint64_t word = word_of(group, own);
  return word != 0 ? word : by_message;
}

void Client::push(const Origin& origin) {
  const torch::NoGradGuard no_grad;
  const auto rows = rows_of_gradients();
  for (std::size_t server = 0; server < lines_.size(); ++server) {
    const Line& line = lines_[server];
    const auto& pieces = placement_.pieces(static_cast<int>(server));
    std::vector<std::uint64_t> words;
    for (std::size_t piece = 0; piece < pieces.size(); ++piece)
      words.push_back(place_gradient(server, piece));
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
    if (!words.empty()) line.send_bytes(std::as_bytes(std::span(words)));
    for (std::size_t piece = 0; piece < pieces.size(); ++piece) {
      if (words[piece] == by_message) line.send_tensor(gradients_[server][piece]);
    }
    for (const Rows& some : mine) {
      line.send({.number = some.table, .count = static_cast<std::uint64_t>(some.indices.numel())});
      line.send_tensor(some.indices);
      line.send_tensor(some.values);
    }
    line.take_answer();
  }
  for (const NamedTensor& item : parameters_) item.tensor.mutable_grad().reset();
}

void Client::save(const std::function<std::string(int)>& path_of) {
  std::random_device entropy;
  const std::uint64_t number = SavedPart::no_number + 1 + entropy();
  const auto ask = [&](Kind kind, std::size_t server) {
    (void)lines_[server].ask({.kind = kind, .number = number}, nullptr, path_of(static_cast<int>(server)));
  };
  std::size_t saved = 0;
  try {
    for (; saved < lines_.size(); ++saved) ask(Kind::save, saved);
  } catch (const Error&) {
    while (saved > 0)
      (void)failure_in([&] { ask(Kind::drop, --saved); });  // which stays if that server is gone
    throw;
  }
  while (saved > 0) ask(Kind::keep, --saved);
}

void Client::tell(Kind kind) {
  for (const Line& line : lines_) (void)line.ask({.kind = kind});
}

}  // namespace lockstep::ps

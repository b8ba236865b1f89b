// Collectives that are found by a name instead of by their order: each rank submits them as its program comes
// to them, and those that several ranks have named alike become one operation as soon as the last rank has
// submitted it. For programs whose ranks come to things in different orders, as Horovod's API has it.
//
//   NamedCollectives named(world);
//   Work loss = named.all_reduce("loss", losses);                        // average, unless told otherwise
//   Work norm = named.all_reduce("norm", norms, ReduceOp::max);          // the other way round elsewhere
//   loss.wait(); norm.wait();
//
// Small ones that are ready together travel as one call. A name may be used again when its operation is over
// on this rank; then, while nothing else changes, a rank sends four bytes to say so.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/engine/named_options.h"
#include "lockstep/engine/named_request.h"
#include "lockstep/group/collectives.h"

namespace lockstep {

class NamedEngine;
class NamedSet;

/// A value: copies are the same. Thread safety: all of it, but each operation's Work belongs to one thread at
/// a time.
///
/// All functions throw Error{invalid_argument} at once for arguments that can never work, and for a name that
/// is under way on this rank. The Work's wait() throws mismatch if ranks have submitted different things
/// under one name (saying which, on which ranks; other operations are not affected), timeout if some rank
/// has not submitted it within the group's time-out (saying who), peer_lost and aborted. Buffers are borrowed
/// until then.
class NamedCollectives {
 public:
  /// Collective over `group`, of which it makes a group of its own: calls of `group` itself may go on beside.
  /// `options`: alike on all ranks.
  explicit NamedCollectives(const Group& group, const NamedOptions& options = {});

  int rank() const { return group().rank(); }
  int size() const { return group().size(); }
  const Group& group() const;

  /// The same for some ranks of these only (a process set). Collective over the ranks listed, as
  /// Group::subgroup() is. Names in it are its own.
  NamedCollectives process_set(std::span<const int> ranks) const;

  /// Reduces `buffer` element by element over all ranks, in place. Shapes, not only sizes, are compared if
  /// they are given.
  template <OutputRange R>
  Work all_reduce(const std::string& name, R&& buffer, ReduceOp op = ReduceOp::average,
                  CollectiveOptions options = {}) const {
    const auto bytes = detail::output_bytes(buffer);
    return submit(
        reduction<ValueOf<R>>(name, Operation::all_reduce, {rows_of(bytes, sizeof(ValueOf<R>))}, op, options),
        {.in_place = {bytes}});
  }
  /// The same for several buffers, none of which begins before all are there.
  template <OutputRange R>
  Work all_reduce_grouped(const std::string& name, std::vector<R>& buffers, ReduceOp op = ReduceOp::average,
                          CollectiveOptions options = {}) const {
    NamedBuffers all;
    std::vector<Shape> shapes;
    for (R& buffer : buffers) {
      all.in_place.push_back(detail::output_bytes(buffer));
      shapes.push_back(rows_of(all.in_place.back(), sizeof(ValueOf<R>)));
    }
    return submit(reduction<ValueOf<R>>(name, Operation::all_reduce, shapes, op, options), std::move(all));
  }
  /// Copies the root's `buffer` into everybody's.
  template <OutputRange R>
  Work broadcast(const std::string& name, R&& buffer, int root) const {
    const auto bytes = detail::output_bytes(buffer);
    return submit(
        {.name = name, .operation = Operation::broadcast, .root = root, .shapes = {rows_of(bytes, 1)}},
        {.in_place = {bytes}});
  }
  /// On every rank `output` becomes the inputs of all ranks, in rank order; inputs may be of different sizes.
  template <InputRange In, Movable T>
  requires std::same_as<ValueOf<In>, T> Work all_gather(const std::string& name, In&& input,
                                                        std::vector<T>& output)
  const {
    const auto bytes = detail::input_bytes(input);
    return submit({.name = name,
                   .operation = Operation::all_gather,
                   .shapes = {{static_cast<std::int64_t>(sizeof(T))}},
                   .rows = rows_of(bytes, sizeof(T))},
                  {.input = bytes, .make_output = resize(output)});
  }
  /// Sends the first sent[0] elements of `input` to rank 0, the next sent[1] to rank 1, …; `output` becomes
  /// what the ranks send to this one, in their order.
  template <InputRange In, Movable T>
  requires std::same_as<ValueOf<In>, T> Work all_to_all(const std::string& name, In&& input,
                                                        std::span<const std::int64_t> sent,
                                                        std::vector<T>& output)
  const {
    return submit({.name = name,
                   .operation = Operation::all_to_all,
                   .shapes = {{static_cast<std::int64_t>(sizeof(T))}},
                   .rows = {sent.begin(), sent.end()}},
                  {.input = detail::input_bytes(input), .make_output = resize(output)});
  }
  /// `output` becomes this rank's share of the sum of all inputs. Shares are equally long; where elements are
  /// left over, the first ranks have one more each.
  template <InputRange In, Movable T>
  requires std::same_as<ValueOf<In>, T> Work reduce_scatter(const std::string& name, In&& input,
                                                            std::vector<T>& output,
                                                            ReduceOp op = ReduceOp::average,
                                                            CollectiveOptions options = {})
  const {
    const auto bytes = detail::input_bytes(input);
    return submit(reduction<T>(name, Operation::reduce_scatter, {rows_of(bytes, sizeof(T))}, op, options),
                  {.input = bytes, .make_output = resize(output)});
  }
  /// Is over when every rank has submitted it.
  Work barrier(const std::string& name) const {
    return submit({.name = name, .operation = Operation::barrier}, {});
  }

  /// This rank has nothing more to submit: until all ranks have joined, it takes part in the others'
  /// all_reduce (sum and average, as if with zeros), all_gather and barrier. Returns the rank that joined
  /// last, the same on all. Throws as wait() does.
  int join() const;

  /// What the functions above call. `buffers` fit the request.
  Work submit(NamedRequest request, NamedBuffers buffers) const;
  NamedStatistics statistics() const;

 private:
  NamedCollectives(std::shared_ptr<NamedEngine> engine, NamedSet& set);

  static Shape rows_of(std::span<const std::byte> bytes, std::size_t element_bytes) {
    return {static_cast<std::int64_t>(bytes.size() / element_bytes)};
  }
  template <class T>
  static NamedRequest reduction(const std::string& name, Operation operation,
                                const std::vector<Shape>& shapes, ReduceOp op,
                                const CollectiveOptions& options) {
    return {.name = name,
            .operation = operation,
            .dtype = dtype_of<T>,
            .reduce_op = op,
            .prescale = options.prescale,
            .shapes = shapes};
  }
  template <class T>
  static std::function<std::span<std::byte>(std::span<const std::int64_t>)> resize(std::vector<T>& output) {
    return [&output](std::span<const std::int64_t> rows) {
      std::size_t all = 0;
      for (const auto each : rows) all += static_cast<std::size_t>(each);
      output.resize(all);
      return std::as_writable_bytes(std::span(output));
    };
  }

  std::shared_ptr<NamedEngine> engine_;
  NamedSet* set_;  // the engine's
};

}  // namespace lockstep

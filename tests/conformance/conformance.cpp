#include "tests/conformance/conformance.h"

#include <algorithm>
#include <cmath>
#include <complex>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <random>
#include <stdexcept>
#include <vector>

#include "lockstep/base/pages.h"
#include "lockstep/kernel/reduce.h"

namespace lockstep::testing {
namespace {

template <class T>
constexpr bool is_half = std::same_as<T, float16> || std::same_as<T, bfloat16>;
template <class T>
constexpr bool is_complex = std::same_as<T, std::complex<float>> || std::same_as<T, std::complex<double>>;

/// In what the reference computes.
template <class T>
struct WideOf {
  using Type = T;
};
template <>
struct WideOf<float16> {
  using Type = float;
};
template <>
struct WideOf<bfloat16> {
  using Type = float;
};
template <class T>
using Wide = typename WideOf<T>::Type;

Wide<float16> widen(float16 value) { return to_float(value); }
Wide<bfloat16> widen(bfloat16 value) { return to_float(value); }
template <class T>
T widen(T value) {
  return value;
}
template <class T>
T narrow(Wide<T> value) {
  if constexpr (std::same_as<T, float16>) {
    return to_float16(value);
  } else if constexpr (std::same_as<T, bfloat16>) {
    return to_bfloat16(value);
  } else {
    return value;
  }
}

/// What `rank` contributes at `index`: so small that sums and products of eight ranks are exact in a half.
template <class T>
T value_of(int rank, std::size_t index, ReduceOp op = ReduceOp::sum) {
  const int mixed = static_cast<int>((index * 7 + static_cast<std::size_t>(rank) * 5) % 11);
  if constexpr (std::same_as<T, bool>) {
    return mixed % 3 == 0;
  } else if constexpr (std::is_integral_v<T>) {
    // All bits take part.
    return op == ReduceOp::product ? static_cast<T>(mixed + 1) : static_cast<T>(mixed * 0x1d35 - 40);
  } else {
    const auto small = op == ReduceOp::product ? static_cast<float>(mixed % 3 == 0   ? 2
                                                                    : mixed % 3 == 1 ? 1
                                                                                     : -1)
                                               : static_cast<float>(mixed - 3);
    if constexpr (is_complex<T>) {
      return T(static_cast<typename T::value_type>(small), static_cast<typename T::value_type>(mixed));
    } else {
      return narrow<T>(static_cast<Wide<T>>(small));
    }
  }
}

template <class T>
T combine(ReduceOp op, T a, T b) {
  if constexpr (std::same_as<T, bool>) {
    switch (op) {
      case ReduceOp::product:
      case ReduceOp::min:
      case ReduceOp::band: return a && b;
      case ReduceOp::bxor: return a != b;
      default: return a || b;
    }
  } else if constexpr (std::is_integral_v<T>) {
    const auto x = static_cast<std::uint64_t>(a), y = static_cast<std::uint64_t>(b);
    switch (op) {
      case ReduceOp::product: return static_cast<T>(x * y);
      case ReduceOp::min: return std::min(a, b);
      case ReduceOp::max: return std::max(a, b);
      case ReduceOp::band: return static_cast<T>(x & y);
      case ReduceOp::bor: return static_cast<T>(x | y);
      case ReduceOp::bxor: return static_cast<T>(x ^ y);
      default: return static_cast<T>(x + y);
    }
  } else if constexpr (is_complex<T>) {
    return a + b;
  } else {
    switch (op) {
      case ReduceOp::product: return a * b;
      case ReduceOp::min: return std::min(a, b);
      case ReduceOp::max: return std::max(a, b);
      default: return a + b;
    }
  }
}

/// What a reduction over all ranks gives at `index`.
template <class T>
T reduced(int ranks, std::size_t index, ReduceOp op) {
  Wide<T> result = widen(value_of<T>(0, index, op));
  for (int rank = 1; rank < ranks; ++rank) result = combine(op, result, widen(value_of<T>(rank, index, op)));
  if (op == ReduceOp::average) {
    if constexpr (is_complex<T>) {
      result *= static_cast<typename T::value_type>(1.0 / ranks);
    } else if constexpr (std::is_floating_point_v<Wide<T>>) {
      result *= static_cast<Wide<T>>(1.0 / ranks);
    }
  }
  return narrow<T>(result);
}

/// A buffer in the arena, in memory that is registered, on a GPU or neither.
template <class T>
class Buffer {
 public:
  Buffer(const Group& caller, std::size_t elements, const ConformanceOptions& options) {
    const Group& group = options.memory_of != nullptr ? *options.memory_of : caller;
    if (options.gpu != nullptr) {
      const GpuMemory& gpu = *options.gpu;
      on_gpu_ = {gpu.allocate(elements * sizeof(T)), gpu.release};
      span_ = {reinterpret_cast<T*>(on_gpu_.get()), elements};
    } else if (options.in_arena) {
      shared_ = group.allocate<T>(elements);
      span_ = shared_.span();
    } else if (options.registered && elements > 0) {
      constexpr std::size_t beside = 64;  // something else in the first page
      const std::size_t whole = base::round_up(beside + elements * sizeof(T));
      pages_.reset(static_cast<std::byte*>(std::aligned_alloc(base::page_bytes, whole)));
      span_ = {reinterpret_cast<T*>(pages_.get() + beside), elements};
      registered_ = group.register_memory(span_);
    } else {
      own_ = std::make_unique<T[]>(elements);  // a vector<bool> has no elements
      span_ = {own_.get(), elements};
    }
    std::memset(static_cast<void*>(span_.data()), 0x3c, span_.size_bytes());
  }
  std::span<T> span() const { return span_; }
  T& operator[](std::size_t index) const { return span_[index]; }
  std::size_t size() const { return span_.size(); }

 private:
  std::unique_ptr<T[]> own_;
  ArenaBuffer<T> shared_;
  std::unique_ptr<std::byte, decltype(&std::free)> pages_{nullptr, &std::free};
  RegisteredMemory registered_;  // ends before its pages do
  std::unique_ptr<std::byte, std::function<void(std::byte*)>> on_gpu_{nullptr, [](std::byte*) {}};
  std::span<T> span_;
};

template <class T>
bool same(const T& a, const T& b) {
  if constexpr (is_complex<T> || std::is_floating_point_v<T>) return a == b;  // -0 is 0
  if constexpr (is_half<T>) return to_float(a) == to_float(b);
  return std::memcmp(&a, &b, sizeof(T)) == 0;
}

template <class T>
std::string text_of(const T& value) {
  if constexpr (is_half<T>)
    return std::to_string(to_float(value));
  else if constexpr (std::is_arithmetic_v<T>)
    return std::to_string(value);
  else
    return "another";
}

[[noreturn]] void fail(const Group& group, const std::string& what, std::size_t index,
                       const std::string& found, const std::string& expected) {
  throw std::runtime_error("rank " + std::to_string(group.rank()) + " of " + std::to_string(group.size()) +
                           ": " + what + ": element " + std::to_string(index) + " is " + found + ", not " +
                           expected);
}

template <class T, class Expected>
void expect(const Group& group, const std::string& what, std::span<const T> found, Expected expected) {
  for (std::size_t index = 0; index < found.size(); ++index) {
    const T wanted = expected(index);
    if (!same<T>(found[index], wanted)) fail(group, what, index, text_of(found[index]), text_of(wanted));
  }
}

template <class T, class Value>
void fill(std::span<T> buffer, Value value) {
  for (std::size_t index = 0; index < buffer.size(); ++index) buffer[index] = value(index);
}

/// Blocks of different sizes, some empty.
std::vector<std::size_t> uneven(int ranks, std::size_t count) {
  std::vector<std::size_t> counts;
  for (int rank = 0; rank < ranks; ++rank) {
    counts.push_back(rank % 4 == 3 ? 0 : count - std::min(count, static_cast<std::size_t>(rank) * 3));
  }
  return counts;
}

std::size_t sum_of(std::span<const std::size_t> counts) {
  std::size_t sum = 0;
  for (const std::size_t count : counts) sum += count;
  return sum;
}

std::string name(const char* operation, Dtype dtype, ReduceOp op, std::size_t count, const char* how) {
  return std::string(operation) + " (" + std::string(to_string(op)) + " of " + std::string(to_string(dtype)) +
         " x " + std::to_string(count) + ", " + how + ")";
}

template <class T>
struct Reducing {
  const Group& group;
  const ConformanceOptions& options;
  ReduceOp op;
  std::size_t count;
  float prescale = 1.0F;  // of floating-point types alone
  int ranks = group.size();

  T mine(std::size_t index) const { return value_of<T>(group.rank(), index, op); }
  T result(std::size_t index) const {
    const T whole = reduced<T>(ranks, index, op);
    if constexpr (std::is_floating_point_v<T>) return whole * static_cast<T>(prescale);
    return whole;
  }
  CollectiveOptions call_options() const { return {.prescale = prescale, .place = options.place()}; }
  std::string named(const char* operation, const char* how) const {
    return name(operation, dtype_of<T>, op, count, how);
  }
  Buffer<T> filled(std::size_t elements) const {
    Buffer<T> buffer(group, elements, options);
    fill(buffer.span(), [&](std::size_t index) { return mine(index); });
    return buffer;
  }
  void expect_untouched(const Buffer<T>& input, const char* operation) const {
    expect<T>(group, named(operation, "input"), input.span(), [&](std::size_t i) { return mine(i); });
  }

  void all_reduces() const {
    const auto in_place = filled(count);
    all_reduce(group, options.at(in_place.span()), op, call_options()).synchronize();
    expect<T>(group, named("all_reduce", "in place"), in_place.span(), [&](auto i) { return result(i); });
    const auto input = filled(count);
    const Buffer<T> output(group, count, options);
    all_reduce(group, options.at(input.span()), options.at(output.span()), op, call_options()).synchronize();
    expect<T>(group, named("all_reduce", "out of place"), output.span(), [&](auto i) { return result(i); });
    expect_untouched(input, "all_reduce");
  }

  void reduces() const {
    for (const int root : {0, ranks - 1}) {
      const bool is_root = group.rank() == root;
      const auto input = filled(count);
      const Buffer<T> output(group, is_root ? count : 0, options);
      reduce(group, options.at(input.span()), options.at(output.span()), root, op, call_options())
          .synchronize();
      expect<T>(group, named("reduce", "out of place"), output.span(), [&](auto i) { return result(i); });
      expect_untouched(input, "reduce");
      reduce(group, options.at(input.span()), options.at(input.span()), root, op, call_options())
          .synchronize();
      if (is_root) {
        expect<T>(group, named("reduce", "in place"), input.span(), [&](auto i) { return result(i); });
      } else {
        expect_untouched(input, "reduce");
      }
    }
  }

  void reduce_scatters() const {
    const std::size_t before = static_cast<std::size_t>(group.rank()) * count;
    const auto input = filled(count * static_cast<std::size_t>(ranks));
    const Buffer<T> output(group, count, options);
    reduce_scatter(group, options.at(input.span()), options.at(output.span()), op, call_options())
        .synchronize();
    expect<T>(group, named("reduce_scatter", "out of place"), output.span(),
              [&](auto i) { return result(before + i); });
    expect_untouched(input, "reduce_scatter");
    const auto own = input.span().subspan(before, count);
    reduce_scatter(group, options.at(input.span()), options.at(own), op, call_options()).synchronize();
    expect<T>(group, named("reduce_scatter", "in place"), own, [&](auto i) { return result(before + i); });
  }

  void reduce_scatters_v() const {
    const auto counts = uneven(ranks, count);
    const std::size_t before = sum_of(std::span(counts).first(static_cast<std::size_t>(group.rank())));
    const auto input = filled(sum_of(counts));
    const Buffer<T> output(group, counts[static_cast<std::size_t>(group.rank())], options);
    reduce_scatter_v(group, options.at(input.span()), counts, options.at(output.span()), op, call_options())
        .synchronize();
    expect<T>(group, named("reduce_scatter_v", "out of place"), output.span(),
              [&](auto i) { return result(before + i); });
  }
};

template <class T>
void check_type(const Group& group, const ConformanceOptions& options) {
  for (const ReduceOp op : all_reduce_ops) {
    if (!kernel::supports(dtype_of<T>, op)) continue;
    if (options.gpu != nullptr && !options.gpu->supports(dtype_of<T>, op)) continue;
    for (const std::size_t count : options.counts) {
      const Reducing<T> reducing{group, options, op, count};
      reducing.all_reduces();
      reducing.reduces();
      reducing.reduce_scatters();
      reducing.reduce_scatters_v();
    }
  }
}

struct Moving {
  using T = std::uint32_t;
  const Group& group;
  const ConformanceOptions& options;
  std::vector<std::size_t> counts;  ///< of each rank's block
  bool has_counts;                  ///< the v forms
  int ranks = group.size();
  int me = group.rank();

  std::size_t count(int rank) const { return counts[static_cast<std::size_t>(rank)]; }
  std::size_t before(int rank) const {
    return sum_of(std::span(counts).first(static_cast<std::size_t>(rank)));
  }
  std::size_t total() const { return sum_of(counts); }
  /// Element `index` of what `from` sends to `to` (-1: to all).
  static T value(int from, int to, std::size_t index) {
    return static_cast<T>(from) * 1'000'003 + static_cast<T>(to + 1) * 10'007 + static_cast<T>(index);
  }
  std::string named(const char* operation, const char* how) const {
    return std::string(operation) + (has_counts ? "_v" : "") + " (" + std::to_string(total()) +
           " elements in all, " + how + ")";
  }
  Buffer<T> fresh(std::size_t elements) const { return Buffer<T>(group, elements, options); }
  void expect_blocks(const std::string& what, std::span<const T> found) const {
    for (int rank = 0; rank < ranks; ++rank) {
      expect<T>(group, what, found.subspan(before(rank), count(rank)),
                [&](std::size_t i) { return value(rank, -1, i); });
    }
  }
  void fill_own(std::span<T> block) const {
    fill(block, [&](std::size_t i) { return value(me, -1, i); });
  }
  std::span<T> own_block(std::span<T> buffer) const { return buffer.subspan(before(me), count(me)); }

  void broadcasts() const {
    for (const int root : {0, ranks - 1}) {
      const auto buffer = fresh(count(0));
      if (me == root) fill_own(buffer.span());
      broadcast(group, options.at(buffer.span()), root, options.place()).synchronize();
      expect<T>(group, named("broadcast", "in place"), buffer.span(),
                [&](auto i) { return value(root, -1, i); });
    }
  }

  void scatters() const {
    for (const int root : {0, ranks - 1}) {
      const auto input = fresh(me == root ? total() : 0);
      for (int rank = 0; rank < ranks && me == root; ++rank) {
        fill(input.span().subspan(before(rank), count(rank)), [&](auto i) { return value(root, rank, i); });
      }
      const auto output = fresh(count(me));
      const auto own = me == root ? own_block(input.span()) : output.span();
      for (const std::span<T> into : {output.span(), own}) {
        if (has_counts) {
          scatter_v(group, options.at(input.span()), counts, options.at(into), root, options.place())
              .synchronize();
        } else {
          scatter(group, options.at(input.span()), options.at(into), root, options.place()).synchronize();
        }
        expect<T>(group, named("scatter", into.data() == own.data() ? "in place" : "out of place"), into,
                  [&](auto i) { return value(root, me, i); });
      }
    }
  }

  void gathers() const {
    for (const int root : {0, ranks - 1}) {
      for (const bool in_place : {false, true}) {
        const auto output = fresh(me == root ? total() : 0);
        const auto separate = fresh(count(me));
        const auto input = in_place && me == root ? own_block(output.span()) : separate.span();
        fill_own(input);
        if (has_counts) {
          gather_v(group, options.at(input), options.at(output.span()), counts, root, options.place())
              .synchronize();
        } else {
          gather(group, options.at(input), options.at(output.span()), root, options.place()).synchronize();
        }
        if (me == root) expect_blocks(named("gather", in_place ? "in place" : "out of place"), output.span());
      }
    }
  }

  void all_gathers() const {
    for (const bool in_place : {false, true}) {
      const auto output = fresh(total());
      const auto separate = fresh(count(me));
      const auto input = in_place ? own_block(output.span()) : separate.span();
      fill_own(input);
      if (has_counts) {
        all_gather_v(group, options.at(input), options.at(output.span()), counts, options.place())
            .synchronize();
      } else {
        all_gather(group, options.at(input), options.at(output.span()), options.place()).synchronize();
      }
      expect_blocks(named("all_gather", in_place ? "in place" : "out of place"), output.span());
    }
  }

  /// Blocks of as many elements as `size(from, to)` says.
  template <class Size>
  void all_to_alls(Size size, bool in_place) const {
    std::vector<std::size_t> sent, received;
    for (int rank = 0; rank < ranks; ++rank) {
      sent.push_back(size(me, rank));
      received.push_back(size(rank, me));
    }
    const auto input = fresh(sum_of(sent));
    std::size_t position = 0;
    for (int rank = 0; rank < ranks; ++rank) {
      for (std::size_t i = 0; i < size(me, rank); ++i) input[position++] = value(me, rank, i);
    }
    const auto separate = fresh(sum_of(received));
    const auto output = in_place ? input.span() : separate.span();
    if (has_counts) {
      all_to_all_v(group, options.at(input.span()), sent, options.at(output), received, options.place())
          .synchronize();
    } else {
      all_to_all(group, options.at(input.span()), options.at(output), options.place()).synchronize();
    }
    position = 0;
    for (int rank = 0; rank < ranks; ++rank) {
      expect<T>(group, named("all_to_all", in_place ? "in place" : "out of place"),
                output.subspan(position, size(rank, me)), [&](auto i) { return value(rank, me, i); });
      position += size(rank, me);
    }
  }
};

/// A linear function x -> factor * x + shift; composing two of them does not commute.
struct Linear {
  std::int32_t factor, shift;
  std::int8_t odd_size;  // 12 bytes with its padding
  friend bool operator==(const Linear&, const Linear&) = default;
};

Linear compose(const Linear& a, const Linear& b) {
  const auto wrap = [](std::int64_t value) { return static_cast<std::int32_t>(value % 1'000'003); };
  return {wrap(std::int64_t{a.factor} * b.factor), wrap(std::int64_t{a.factor} * b.shift + a.shift), 0};
}

Linear linear_of(int rank, std::size_t index) {
  return {rank + 2, static_cast<std::int32_t>(index % 97) - rank, 0};
}

void expect_same(const Group& group, const std::string& what, bool is_same) {
  if (!is_same) throw std::runtime_error("rank " + std::to_string(group.rank()) + ": " + what + " is wrong");
}

}  // namespace

void check_reductions(const Group& group, const ConformanceOptions& options) {
  check_type<std::uint8_t>(group, options);
  check_type<std::int8_t>(group, options);
  check_type<std::uint16_t>(group, options);
  check_type<std::int16_t>(group, options);
  check_type<std::uint32_t>(group, options);
  check_type<std::int32_t>(group, options);
  check_type<std::uint64_t>(group, options);
  check_type<std::int64_t>(group, options);
  check_type<float16>(group, options);
  check_type<bfloat16>(group, options);
  check_type<float>(group, options);
  check_type<double>(group, options);
  check_type<bool>(group, options);
  check_type<std::complex<float>>(group, options);
  check_type<std::complex<double>>(group, options);
}

void check_sums(const Group& group, const ConformanceOptions& options) {
  for (const std::size_t count : options.counts) {
    for (const float prescale : {1.0F, 0.25F, 0.0F}) {
      const Reducing<float> reducing{group, options, ReduceOp::average, count, prescale};
      reducing.all_reduces();
      reducing.reduces();
      reducing.reduce_scatters();
      reducing.reduce_scatters_v();
    }
  }
}

void check_movements(const Group& group, const ConformanceOptions& options) {
  for (const std::size_t count : options.counts) {
    for (const bool has_counts : {false, true}) {
      const std::vector<std::size_t> alike(static_cast<std::size_t>(group.size()), count);
      const Moving moving{group, options, has_counts ? uneven(group.size(), count) : alike, has_counts};
      moving.scatters();
      moving.gathers();
      moving.all_gathers();
      for (const bool in_place : {false, true}) {
        if (in_place && options.gpu != nullptr) continue;
        moving.all_to_alls(
            [&](int from, int to) {
              if (!has_counts) return count;
              return in_place ? (count + static_cast<std::size_t>(from * to)) % 7
                              : (count + static_cast<std::size_t>(2 * from + to)) % 7;
            },
            in_place);
      }
      if (!has_counts) moving.broadcasts();
    }
  }
}

void check_custom_op(const Group& group, const ConformanceOptions& options) {
  const auto composing = custom_op<Linear>("compose", compose);
  for (const std::size_t count : options.counts) {
    const Buffer<Linear> input(group, count, options), output(group, count, options);
    fill(input.span(), [&](std::size_t i) { return linear_of(group.rank(), i); });
    const auto expect_composed = [&](const char* operation) {
      for (std::size_t i = 0; i < count; ++i) {
        Linear expected = linear_of(0, i);
        for (int rank = 1; rank < group.size(); ++rank) expected = compose(expected, linear_of(rank, i));
        if (!(output[i] == expected))
          fail(group, std::string(operation) + " of a custom operation", i, "wrong", "what it has to be");
      }
    };
    all_reduce(group, input.span(), output.span(), composing).wait();
    expect_composed("all_reduce");
    const int root = group.size() - 1;
    reduce(group, input.span(), output.span(), root, composing).wait();
    if (group.rank() == root) expect_composed("reduce");
  }
}

namespace {

/// From -1 to a little over 1.
float random_value(int rank, std::size_t index) {
  std::minstd_rand generator(static_cast<unsigned>(index * 131 + static_cast<std::size_t>(rank) * 17 + 1));
  generator.discard(3);
  return static_cast<float>(generator()) / 1e9F - 1.0F;
}

struct Exact {
  double sum = 0, magnitude = 0;
};
Exact exact_sum(const Group& group, std::size_t index) {
  Exact exact;
  for (int rank = 0; rank < group.size(); ++rank) {
    const auto part = static_cast<double>(random_value(rank, index));
    exact.sum += part;
    exact.magnitude += std::abs(part);
  }
  return exact;
}

/// Of `first` on; at least one of the sums has to be further off than f32's are, where halves crossed.
void expect_narrow(const Group& group, const std::string& what, std::span<const float> found,
                   std::size_t first, double unit, double scale = 1.0) {
  bool is_rounded = false;
  for (std::size_t i = 0; i < found.size(); ++i) {
    const Exact exact = exact_sum(group, first + i);
    const double error = std::abs(static_cast<double>(found[i]) / scale - exact.sum);
    const double of_f32 = (group.size() + 1) * 0x1p-24 * exact.magnitude;
    // Each host's sum is rounded, and the result.
    const double of_wire = unit * (exact.magnitude + std::abs(exact.sum)) * (1 + 2 * unit);
    is_rounded = is_rounded || error > of_f32;
    if (error > of_f32 + of_wire)
      fail(group, what, first + i, text_of(found[i]), std::to_string(exact.sum * scale) + " or near it");
  }
  if (is_rounded != (unit > 0))
    throw std::runtime_error(what + (is_rounded ? " was rounded" : " crossed in full width"));
}

}  // namespace

void check_narrow_wire(const Group& group, const ConformanceOptions& options, double unit) {
  const auto ranks = static_cast<std::size_t>(group.size());
  for (const std::size_t count : options.counts) {
    const bool is_long = count * sizeof(float) >= std::size_t{16} << 10;
    const double here = is_long ? unit : 0;
    const Buffer<float> buffer(group, count, options), result(group, count, options);
    const auto fill_in = [&] {
      fill(buffer.span(), [&](std::size_t i) { return random_value(group.rank(), i); });
    };
    const auto expect_same_bits = [&](std::span<const float> found) {
      std::vector<float> all(found.size() * ranks);
      all_gather(group, found, std::span(all)).wait();
      for (std::size_t first = 0; first < all.size(); first += found.size()) {
        if (std::memcmp(&all[first], found.data(), found.size_bytes()) != 0)
          throw std::runtime_error("ranks have different bits");
      }
    };
    fill_in();
    all_reduce(group, std::span<const float>(buffer.span()), result.span()).wait();
    expect_narrow(group, "all_reduce", result.span(), 0, here);
    expect_same_bits(result.span());
    all_reduce(group, buffer.span(), ReduceOp::average).wait();
    expect_narrow(group, "all_reduce in place", buffer.span(), 0, here, 1.0 / group.size());
    expect_same_bits(buffer.span());
    fill_in();
    const int root = group.size() - 1;
    reduce(group, std::span<const float>(buffer.span()), result.span(), root).wait();
    // A growing sum is rounded on each host that it passes.
    if (group.rank() == root) expect_narrow(group, "reduce", result.span(), 0, here * (group.size() - 1));
    const std::size_t each = count / ranks;
    const auto blocks = std::span<const float>(buffer.span()).first(each * ranks);
    reduce_scatter(group, blocks, result.span().first(each)).wait();
    const double of_blocks = blocks.size_bytes() >= std::size_t{16} << 10 ? unit : 0;
    expect_narrow(group, "reduce_scatter", result.span().first(each),
                  static_cast<std::size_t>(group.rank()) * each, of_blocks);
  }
}

void check_rounding(const Group& group, const ConformanceOptions& options, int roundings) {
  const auto check = [&]<class T>(T, double half_step) {
    for (const std::size_t count : options.counts) {
      const Buffer<T> buffer(group, count, options);
      fill(buffer.span(), [&](std::size_t i) { return narrow<T>(random_value(group.rank(), i)); });
      all_reduce(group, buffer.span()).wait();
      for (std::size_t i = 0; i < count; ++i) {
        double exact = 0, magnitude = 0;
        for (int rank = 0; rank < group.size(); ++rank) {
          const auto part = static_cast<double>(widen(narrow<T>(random_value(rank, i))));
          exact += part;
          magnitude += std::abs(part);
        }
        // Sums of f32 on the way are off by less than p half steps of their own.
        const double bound = half_step * roundings * magnitude + group.size() * 0x1p-24 * magnitude;
        if (std::abs(static_cast<double>(widen(buffer[i])) - exact) > bound)
          fail(group, "a rounded sum", i, text_of(buffer[i]), std::to_string(exact) + " or near it");
      }
      std::vector<T> all(count * static_cast<std::size_t>(group.size()));
      all_gather(group, buffer.span(), all).wait();
      for (std::size_t first = 0; first < all.size(); first += count) {
        const bool equal = std::memcmp(all.data() + first, buffer.span().data(), count * sizeof(T)) == 0;
        expect_same(group, "a sum's bits: they differ between ranks; one of them", equal);
        if (count == 0) break;
      }
    }
  };
  check(float{}, 0x1p-24);
  check(bfloat16{}, 0x1p-8);
  check(float16{}, 0x1p-11);
}

void check_messages(const Group& group, const ConformanceOptions& options) {
  const int me = group.rank(), ranks = group.size();
  const int next = (me + 1) % ranks, previous = (me + ranks - 1) % ranks;
  for (const std::size_t count : {0UL, 1UL, 9UL, 100'000UL, 600'000UL}) {  // the last are lent between arenas
    const auto element = [](int from, int tag, std::size_t i) {
      return from * 1000 + tag * 100 + static_cast<int>(i % 100);
    };
    const auto message = [&](int from, int tag) {
      Buffer<int> values(group, count, options);
      for (std::size_t i = 0; i < count; ++i) values[i] = element(from, tag, i);
      return values;
    };
    const auto is_message = [&](std::span<const int> got, int from, int tag) {
      for (std::size_t i = 0; i < count; ++i) {
        if (got[i] != element(from, tag, i)) return false;
      }
      return true;
    };
    // Tags taken in another order than they were sent, around a circle; in a group of one to itself.
    const auto one = message(me, 1), two = message(me, 2);
    const Buffer<int> got_one(group, count, options), got_two(group, count, options);
    Received from;
    std::vector<Work> works;
    works.push_back(send(group, one.span(), next, 1));
    works.push_back(send(group, two.span(), next, 2));
    recv(group, got_two.span(), previous, 2).wait();
    recv(group, got_one.span(), any_source, any_tag, &from).wait();
    Work::all(std::move(works)).wait();
    expect_same(group, "a message by tag",
                is_message(got_two.span(), previous, 2) && is_message(got_one.span(), previous, 1));
    expect_same(group, "what was received", from.source == previous && from.tag == 1);

    const Buffer<int> swapped(group, count, options);
    sendrecv(group, one.span(), next, swapped.span(), previous).wait();
    expect_same(group, "sendrecv", is_message(swapped.span(), previous, 1));
    barrier(group).wait();

    // Everybody to rank 0, which takes them as they come; one message of each is of another size.
    if (me != 0) {
      const auto three = message(me, 3);
      send(group, three.span(), 0, 3).wait();
    } else {
      std::vector<int> seen;
      for (int other = 1; other < ranks; ++other) {
        std::vector<int> got(count);  // lent ones may be received anywhere
        recv(group, got, any_source, 3, &from).wait();
        expect_same(group, "a message from anybody", is_message(got, from.source, 3));
        seen.push_back(from.source);
      }
      std::sort(seen.begin(), seen.end());
      expect_same(group, "the list of senders", std::unique(seen.begin(), seen.end()) == seen.end());
    }
    barrier(group).wait();
  }
}

}  // namespace lockstep::testing

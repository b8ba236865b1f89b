// What ranks that share a GPU run there: one kernel for each call and rank, and none of them waits. Its blocks arrive in the call's
// board; of each block the rank that arrives last does the work for all, while the others' are over:
//
//   rank 0   [kernel: block 0 arrives][block 1 arrives]
//   rank 1                             [kernel: block 0 arrives last: adds, writes both outputs][block 1: likewise] -> flags
//
// So it does not matter in which order, and how often, the GPU turns from one process to the other, and a rank that never comes
// leaves nothing running. Streams wait for the flags (Progress), which lie in main memory: there a rank that gives up lets its own go
// on.
//
// Compiled by nvcc (kernel.cu), and for the CPU by the tests' stand-in for CUDA's driver, which brings its own Platform.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "lockstep/base/half.h"

#ifdef __CUDACC__
#include <cuda_fp16.h>
#define LOCKSTEP_ON_GPU __device__ __forceinline__
#define LOCKSTEP_UNROLL _Pragma("unroll")
#else
#define LOCKSTEP_ON_GPU inline
#define LOCKSTEP_UNROLL
#endif

namespace lockstep::device_arena {

inline constexpr int most_ranks = 16;
/// Pieces of a rank's arena.
inline constexpr int most_segments = 64;
inline constexpr int most_blocks = 1024;
inline constexpr int threads_of_a_block = 512;

/// A place in a rank's arena: its segment, and the offset there.
struct Place {
  static constexpr int offset_bits = 56;
  std::uint64_t packed = 0;

  static constexpr Place at(std::uint64_t segment, std::uint64_t offset) {
    return {segment << offset_bits | offset};
  }
  LOCKSTEP_ON_GPU std::uint64_t segment() const { return packed >> offset_bits; }
  LOCKSTEP_ON_GPU std::uint64_t offset() const { return packed & ((std::uint64_t{1} << offset_bits) - 1); }
};

/// What a rank keeps of the state by which a sum of gradients moves parameters (update.h): arrays for its elements of all.
struct Owned {
  std::uint64_t begin = 0, end = 0;
  Place first = {}, second = {}, master = {};  ///< of element `begin`
};

/// What a rank brings to a call. Parties are the ranks that take part, counted from 0; moves are counted in bytes.
struct Part {
  Place input = {}, output = {};
  Owned owned = {};
  std::uint64_t wanted_begin = 0, wanted_end = 0;  ///< elements of a reduction's result that its output gets
  std::uint64_t sent_begin[most_ranks] = {};       ///< where what goes to a party begins in the input
  std::uint64_t received_begin[most_ranks] = {};   ///< where what comes from a party begins in the output
  std::uint64_t received_bytes[most_ranks] = {};
};

/// Where the ranks of a call meet, in memory of the group's first rank. Zero before the first call; each call leaves the counters zero.
struct Board {
  Part parts[most_ranks];
  std::uint32_t blocks_through;
  std::uint32_t arrived[most_blocks];
};

/// How far a call is, of one party, in main memory. Beside a number in 32 bits, which goes around, is when it became that.
struct Progress {
  std::uint32_t arrived, done;  ///< what KernelCall::flag was: the party's kernel has begun; all is through
  std::uint64_t begin_ns, end_ns;  ///< by the GPU's clock
  std::uint64_t unused;
};

/// A kernel's argument. Addresses are as this process's GPU sees them.
struct KernelCall {
  std::uint64_t board = 0;     ///< a Board
  std::uint64_t progress = 0;  ///< a Progress of each party
  std::uint64_t bases = 0;     ///< u64[most_ranks][most_segments]: where each rank's segments lie
  std::uint64_t elements = 0;
  double scale = 1;        ///< of a reduction's result
  float prescale = 1;      ///< of what goes into it
  std::uint32_t flag = 0;  ///< the call's number, as in Progress
  std::int32_t party = 0, parties = 1;
  std::uint8_t ranks[most_ranks] = {};  ///< of the parties
  Part part = {};
};

/// One `T` has `wide` in registers.
template <class T>
struct Wide {
  using type = T;
};
template <>
struct Wide<float16> {
  using type = float;
};
template <>
struct Wide<bfloat16> {
  using type = float;
};

template <class T>
LOCKSTEP_ON_GPU typename Wide<T>::type widened(T value) {
#ifdef __CUDA_ARCH__
  if constexpr (std::is_same_v<T, float16>) return __half2float(__ushort_as_half(value.bits));
  if constexpr (std::is_same_v<T, bfloat16>) return __uint_as_float(std::uint32_t{value.bits} << 16);
#else
  if constexpr (std::is_same_v<T, float16> || std::is_same_v<T, bfloat16>) return to_float(value);
#endif
  if constexpr (std::is_same_v<typename Wide<T>::type, T>) return value;
}

template <class T>
LOCKSTEP_ON_GPU T narrowed(typename Wide<T>::type value) {
#ifdef __CUDA_ARCH__
  if constexpr (std::is_same_v<T, float16>) return {__half_as_ushort(__float2half_rn(value))};
  if constexpr (std::is_same_v<T, bfloat16>) {
    const std::uint32_t bits = __float_as_uint(value);
    if ((bits & 0x7fffffffU) > 0x7f800000U) return {static_cast<std::uint16_t>((bits >> 16) | 0x0040U)};
    return {static_cast<std::uint16_t>((bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16)};
  }
#else
  if constexpr (std::is_same_v<T, float16>) return to_float16(value);
  if constexpr (std::is_same_v<T, bfloat16>) return to_bfloat16(value);
#endif
  if constexpr (std::is_same_v<typename Wide<T>::type, T>) return value;
}

template <class W>
LOCKSTEP_ON_GPU bool is_nan(W value) {
  return value != value;  // NOLINT(misc-redundant-expression): what it is
}

// As kernel/reduce.cpp has them, so that results have the same bits as in main memory.
struct Sum {
  template <class W>
  LOCKSTEP_ON_GPU static W apply(W a, W b) {
    return static_cast<W>(a + b);
  }
};
struct Product {
  template <class W>
  LOCKSTEP_ON_GPU static W apply(W a, W b) {
    if constexpr (std::is_integral_v<W>) return static_cast<W>(std::uint64_t{a} * std::uint64_t{b});
    return static_cast<W>(a * b);
  }
};
struct Min {
  template <class W>
  LOCKSTEP_ON_GPU static W apply(W a, W b) {
    return a < b || is_nan(a) ? a : b;
  }
};
struct Max {
  template <class W>
  LOCKSTEP_ON_GPU static W apply(W a, W b) {
    return b < a || is_nan(a) ? a : b;
  }
};
struct And {
  template <class W>
  LOCKSTEP_ON_GPU static W apply(W a, W b) {
    return a & b;
  }
};
struct Or {
  template <class W>
  LOCKSTEP_ON_GPU static W apply(W a, W b) {
    return a | b;
  }
};
struct Xor {
  template <class W>
  LOCKSTEP_ON_GPU static W apply(W a, W b) {
    return a ^ b;
  }
};

/// The reductions there are, of the forms of kernel/form.h: X(name, type, operation).
#define LOCKSTEP_DEVICE_REDUCTIONS(X)    \
  X(sum_u8, std::uint8_t, Sum)           \
  X(sum_u16, std::uint16_t, Sum)         \
  X(sum_u32, std::uint32_t, Sum)         \
  X(sum_u64, std::uint64_t, Sum)         \
  X(sum_f16, float16, Sum)               \
  X(sum_bf16, bfloat16, Sum)             \
  X(sum_f32, float, Sum)                 \
  X(sum_f64, double, Sum)                \
  X(product_u8, std::uint8_t, Product)   \
  X(product_u16, std::uint16_t, Product) \
  X(product_u32, std::uint32_t, Product) \
  X(product_u64, std::uint64_t, Product) \
  X(product_f16, float16, Product)       \
  X(product_bf16, bfloat16, Product)     \
  X(product_f32, float, Product)         \
  X(product_f64, double, Product)        \
  X(min_u8, std::uint8_t, Min)           \
  X(min_u16, std::uint16_t, Min)         \
  X(min_u32, std::uint32_t, Min)         \
  X(min_u64, std::uint64_t, Min)         \
  X(min_i8, std::int8_t, Min)            \
  X(min_i16, std::int16_t, Min)          \
  X(min_i32, std::int32_t, Min)          \
  X(min_i64, std::int64_t, Min)          \
  X(min_f16, float16, Min)               \
  X(min_bf16, bfloat16, Min)             \
  X(min_f32, float, Min)                 \
  X(min_f64, double, Min)                \
  X(max_u8, std::uint8_t, Max)           \
  X(max_u16, std::uint16_t, Max)         \
  X(max_u32, std::uint32_t, Max)         \
  X(max_u64, std::uint64_t, Max)         \
  X(max_i8, std::int8_t, Max)            \
  X(max_i16, std::int16_t, Max)          \
  X(max_i32, std::int32_t, Max)          \
  X(max_i64, std::int64_t, Max)          \
  X(max_f16, float16, Max)               \
  X(max_bf16, bfloat16, Max)             \
  X(max_f32, float, Max)                 \
  X(max_f64, double, Max)                \
  X(band_u8, std::uint8_t, And)          \
  X(bor_u8, std::uint8_t, Or)            \
  X(bxor_u8, std::uint8_t, Xor)

struct alignas(16) Pack {
  std::uint32_t words[4];
};
inline constexpr std::uint64_t pack_bytes = sizeof(Pack);
/// Packs that a thread has under way at once: as many reads as hide the memory's latency, where their elements have room in registers.
inline constexpr int packs_at_once = 4;
template <class T>
inline constexpr int packs_of = sizeof(T) >= 4 ? packs_at_once : static_cast<int>(sizeof(T));

/// What the threads of a block share.
struct BlockState {
  bool is_last;
  std::uint64_t inputs[most_ranks], outputs[most_ranks];  ///< addresses
  std::uint64_t wanted_begin[most_ranks], wanted_end[most_ranks];
};

template <class T>
union Elements {
  LOCKSTEP_ON_GPU Elements() {}  // NOLINT(modernize-use-equals-default): halves have initial values
  Pack pack;
  T values[pack_bytes / sizeof(T)];
};

/// Of the whole call, as the last rank of a block sees it.
template <class T, class Op, class Platform>
class Reduction {
 public:
  LOCKSTEP_ON_GPU Reduction(const KernelCall& call, const BlockState& state, const Platform& on)
      : call_(call), state_(state), on_(on) {}

  /// This block's share.
  LOCKSTEP_ON_GPU void run() const {
    const std::uint64_t blocks = on_.blocks(), threads = on_.threads();
    std::uint64_t done = 0;
    if (are_aligned()) {
      const std::uint64_t packs = call_.elements / each;
      const std::uint64_t stride = blocks * threads * at_once;
      std::uint64_t first = on_.block() * threads * at_once + on_.thread();
      for (; first + (at_once - 1) * threads < packs; first += stride) reduce_packs<at_once>(first, threads);
      for (; first < packs; first += threads) reduce_packs<1>(first, threads);
      done = packs * each;
    }
    for (std::uint64_t i = done + on_.block() * threads + on_.thread(); i < call_.elements;
         i += blocks * threads)
      reduce_one(i);
  }

 private:
  using W = typename Wide<T>::type;
  static constexpr std::uint64_t each = pack_bytes / sizeof(T);
  static constexpr int at_once = packs_of<T>;

  LOCKSTEP_ON_GPU bool are_aligned() const {
    std::uint64_t bits = 0;
    for (int party = 0; party < call_.parties; ++party) {
      bits |= state_.inputs[party];
      if (state_.wanted_begin[party] < state_.wanted_end[party]) bits |= state_.outputs[party];
    }
    return bits % pack_bytes == 0;
  }
  LOCKSTEP_ON_GPU W taken(T value) const {
    if constexpr (std::is_floating_point_v<W>) {
      return widened(value) * static_cast<W>(call_.prescale);
    } else {
      return widened(value);
    }
  }
  LOCKSTEP_ON_GPU T given(W value) const {
    if constexpr (std::is_floating_point_v<W>) {
      return narrowed<T>(value * static_cast<W>(call_.scale));
    } else {
      return narrowed<T>(value);
    }
  }
  /// `count` packs of one thread: `threads` are between one and the next.
  template <int count>
  LOCKSTEP_ON_GPU void reduce_packs(std::uint64_t first, std::uint64_t threads) const {
    W sums[count][each];
    const auto add = [&](int party, auto combined) {
      const Pack* const input = on_.template at<Pack>(state_.inputs[party]);
      Elements<T> read[count];
      LOCKSTEP_UNROLL for (int i = 0; i < count; ++i) read[i].pack =
          on_.read_once(input + first + i * threads);
      LOCKSTEP_UNROLL for (int i = 0; i < count; ++i) {
        LOCKSTEP_UNROLL for (std::uint64_t k = 0; k < each; ++k) sums[i][k] =
            combined(sums[i][k], taken(read[i].values[k]));
      }
    };
    add(0, [](W&, W value) { return value; });
    for (int party = 1; party < call_.parties; ++party)
      add(party, [](W sum, W value) { return Op::apply(sum, value); });
    LOCKSTEP_UNROLL for (int i = 0; i < count; ++i) {
      Elements<T> result;
      LOCKSTEP_UNROLL for (std::uint64_t k = 0; k < each; ++k) result.values[k] = given(sums[i][k]);
      for (int party = 0; party < call_.parties; ++party) give(party, first + i * threads, result);
    }
  }
  LOCKSTEP_ON_GPU void give(int party, std::uint64_t pack, const Elements<T>& result) const {
    const std::uint64_t begin = state_.wanted_begin[party], end = state_.wanted_end[party];
    if (pack * each >= begin && (pack + 1) * each <= end) {
      on_.write_once(on_.template at<Pack>(state_.outputs[party] + pack * pack_bytes), result.pack);
      return;
    }
    for (std::uint64_t k = 0; k < each; ++k) {
      const std::uint64_t i = pack * each + k;
      if (i >= begin && i < end)
        *on_.template at<T>(state_.outputs[party] + i * sizeof(T)) = result.values[k];
    }
  }
  LOCKSTEP_ON_GPU void reduce_one(std::uint64_t i) const {
    W sum = taken(on_.template at<T>(state_.inputs[0])[i]);
    for (int party = 1; party < call_.parties; ++party)
      sum = Op::apply(sum, taken(on_.template at<T>(state_.inputs[party])[i]));
    const T result = given(sum);
    for (int party = 0; party < call_.parties; ++party) {
      if (i >= state_.wanted_begin[party] && i < state_.wanted_end[party])
        *on_.template at<T>(state_.outputs[party] + i * sizeof(T)) = result;
    }
  }

  const KernelCall& call_;
  const BlockState& state_;
  const Platform& on_;
};

/// Elements of type Unit from `begin` to `end`, this block's share of them.
template <class Unit, class Platform>
LOCKSTEP_ON_GPU void move_units(const Platform& on, std::uint64_t from, std::uint64_t to, std::uint64_t begin,
                                std::uint64_t end) {
  const Unit* const source = on.template at<Unit>(from);
  Unit* const target = on.template at<Unit>(to);
  const std::uint64_t threads = on.threads();
  std::uint64_t i = begin + on.block() * threads * packs_at_once + on.thread();
  for (; i + (packs_at_once - 1) * threads < end; i += on.blocks() * threads * packs_at_once) {
    Unit units[packs_at_once];
    LOCKSTEP_UNROLL for (int k = 0; k < packs_at_once; ++k) units[k] = source[i + k * threads];
    LOCKSTEP_UNROLL for (int k = 0; k < packs_at_once; ++k) target[i + k * threads] = units[k];
  }
  for (; i < end; i += threads) target[i] = source[i];
}

template <class Platform>
LOCKSTEP_ON_GPU void move_bytes(const Platform& on, std::uint64_t from, std::uint64_t to,
                                std::uint64_t bytes) {
  const std::uint64_t alignment = (from | to) % pack_bytes;
  std::uint64_t done = 0;
  if (alignment == 0) {
    move_units<Pack>(on, from, to, 0, bytes / pack_bytes);
    done = bytes / pack_bytes * pack_bytes;
  } else if (alignment % sizeof(std::uint32_t) == 0) {
    move_units<std::uint32_t>(on, from, to, 0, bytes / sizeof(std::uint32_t));
    done = bytes / sizeof(std::uint32_t) * sizeof(std::uint32_t);
  }
  move_units<std::uint8_t>(on, from, to, done, bytes);
}

/// What work the last rank of a block does: see LOCKSTEP_DEVICE_REDUCTIONS.
template <class T, class Op>
struct Reduce {
  template <class Platform>
  LOCKSTEP_ON_GPU static void run(const KernelCall& call, const Board&, const BlockState& state,
                                  const Platform& on) {
    Reduction<T, Op, Platform>(call, state, on).run();
  }
};

struct Move {
  template <class Platform>
  LOCKSTEP_ON_GPU static void run(const KernelCall& call, const Board& board, const BlockState& state,
                                  const Platform& on) {
    for (int to = 0; to < call.parties; ++to) {
      for (int from = 0; from < call.parties; ++from) {
        const std::uint64_t bytes = on.load(board.parts[to].received_bytes[from]);
        if (bytes == 0) continue;
        move_bytes(on, state.inputs[from] + on.load(board.parts[from].sent_begin[to]),
                   state.outputs[to] + on.load(board.parts[to].received_begin[from]), bytes);
      }
    }
  }
};

/// A barrier's.
struct Nothing {
  template <class Platform>
  LOCKSTEP_ON_GPU static void run(const KernelCall&, const Board&, const BlockState&, const Platform&) {}
};

/// Where `place`, which a party has told, lies for this process.
template <class Platform>
LOCKSTEP_ON_GPU std::uint64_t address_of(const KernelCall& call, std::uint64_t party, const Place& told,
                                         const Platform& on) {
  const Place place{on.load(told.packed)};
  const std::uint64_t* const segments =
      on.template at<const std::uint64_t>(call.bases) + std::uint64_t{call.ranks[party]} * most_segments;
  return on.load(segments[place.segment()]) + place.offset();
}

/// Where the parties' buffers lie for this process. REQUIRES: all have arrived. `element_bytes`: of a reduction.
template <class Platform>
LOCKSTEP_ON_GPU void find_buffers(const KernelCall& call, const Board& board, BlockState& state,
                                  std::uint64_t element_bytes, const Platform& on) {
  for (std::uint64_t party = on.thread(); party < static_cast<std::uint64_t>(call.parties);
       party += on.threads()) {
    const Part& part = board.parts[party];
    state.wanted_begin[party] = on.load(part.wanted_begin);
    state.wanted_end[party] = on.load(part.wanted_end);
    state.inputs[party] = address_of(call, party, part.input, on);
    // So that element i of the result is at i.
    state.outputs[party] =
        address_of(call, party, part.output, on) - state.wanted_begin[party] * element_bytes;
  }
}

/// `Call`: KernelCall, or one with more that is its task's.
template <class Task, class Call, class Platform>
LOCKSTEP_ON_GPU void run(const Call& call, BlockState& state, std::uint64_t element_bytes,
                         const Platform& on) {
  Board& board = *on.template at<Board>(call.board);
  auto* const progress = on.template at<Progress>(call.progress);
  if (on.block() == 0 && on.thread() == 0) {
    on.store(progress[call.party].begin_ns, on.now_ns());
    on.store(progress[call.party].arrived, call.flag);
  }
  // Every block tells it, the same: who arrives last in it finds it there.
  auto* const told = reinterpret_cast<std::uint64_t*>(&board.parts[call.party]);
  const auto* const part = reinterpret_cast<const std::uint64_t*>(&call.part);
  for (std::uint64_t i = on.thread(); i < sizeof(Part) / sizeof(std::uint64_t); i += on.threads())
    on.store(told[i], part[i]);
  on.fence();
  on.sync();
  if (on.thread() == 0) {
    const auto parties = static_cast<std::uint32_t>(call.parties);
    state.is_last = on.add_one(board.arrived[on.block()]) == parties - 1;
    if (state.is_last) on.store(board.arrived[on.block()], std::uint32_t{0});
    on.fence();
  }
  on.sync();
  if (!state.is_last) return;
  find_buffers(call, board, state, element_bytes, on);
  on.sync();
  Task::run(call, board, state, on);
  on.fence();
  on.sync();
  if (on.thread() != 0) return;
  if (on.add_one(board.blocks_through) != on.blocks() - 1) return;
  on.store(board.blocks_through, std::uint32_t{0});
  const std::uint64_t now = on.now_ns();
  for (int party = 0; party < call.parties; ++party) on.store(progress[party].end_ns, now);
  on.fence();
  for (int party = 0; party < call.parties; ++party) on.store(progress[party].done, call.flag);
}

}  // namespace lockstep::device_arena

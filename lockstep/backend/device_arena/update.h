// The last step of training on a GPU in one kernel: the gradients of all ranks are added, and the sum moves the parameters and the
// optimizer's state, as kernel/update.cpp does it in main memory, with the same bits. Either of ranks that share the GPU, whose
// parameters all move together, or of any number of tensors of one rank.
#pragma once

#include "lockstep/backend/device_arena/kernel.h"

#ifdef __CUDACC__
#define LOCKSTEP_ROOT_F32 __fsqrt_rn
#define LOCKSTEP_ROOT_F64 __dsqrt_rn
#else
#include <cmath>
#define LOCKSTEP_ROOT_F32 std::sqrt
#define LOCKSTEP_ROOT_F64 std::sqrt
#endif

namespace lockstep::device_arena {

/// kernel::SgdStep or kernel::AdamStep, and what follows from them.
struct UpdateRule {
  double gradient_scale = 1;
  double learning_rate = 0;  ///< Adam: corrected for its first steps
  double weight_decay = 0;
  double momentum = 0, fresh = 0;                                    // SGD
  double beta1 = 0, fresh1 = 0, beta2 = 0, fresh2 = 0, epsilon = 0;  // Adam
  double kept = 1, root_correction = 1;                              // Adam
  std::uint32_t nesterov = 0, is_first = 0, has_velocity = 0;        // SGD
  std::uint32_t is_decoupled = 0;                                    // Adam
};

/// An argument as KernelCall is: each party's input are its gradients, and its output its parameters.
struct UpdateCall : KernelCall {
  UpdateRule rule;
};

/// Tensors of this rank alone.
inline constexpr int most_tensors = 64;
struct UpdateList {
  struct Tensor {
    std::uint64_t gradient = 0, parameters = 0, first = 0, second = 0, master = 0;
    std::uint64_t elements = 0;
  };
  UpdateRule rule;
  std::int32_t tensors = 0;
  std::uint32_t pieces_through[most_tensors] = {};  ///< of the tensors up to this one
  Tensor tensor[most_tensors] = {};
};
static_assert(sizeof(UpdateCall) <= 4096 && sizeof(UpdateList) <= 4096, "what a kernel may take");
/// Elements that a block moves at once.
inline constexpr std::uint64_t piece_elements = std::uint64_t{threads_of_a_block} * 16;

template <class W>
class SgdMove {
 public:
  LOCKSTEP_ON_GPU explicit SgdMove(const UpdateRule& rule)
      : learning_rate_(static_cast<W>(rule.learning_rate)),
        momentum_(static_cast<W>(rule.momentum)),
        fresh_(static_cast<W>(rule.fresh)),
        weight_decay_(static_cast<W>(rule.weight_decay)),
        nesterov_(rule.nesterov != 0),
        is_first_(rule.is_first != 0),
        has_velocity_(rule.has_velocity != 0) {}

  LOCKSTEP_ON_GPU bool has_first() const { return has_velocity_; }
  LOCKSTEP_ON_GPU bool has_second() const { return false; }
  LOCKSTEP_ON_GPU W moved(W parameter, W gradient, W& velocity, W&) const {
    W direction = gradient;
    if (weight_decay_ != 0) direction = direction + weight_decay_ * parameter;
    if (has_velocity_) {
      velocity = is_first_ ? direction : momentum_ * velocity + fresh_ * direction;
      direction = nesterov_ ? direction + momentum_ * velocity : velocity;
    }
    return parameter - learning_rate_ * direction;
  }

 private:
  W learning_rate_, momentum_, fresh_, weight_decay_;
  bool nesterov_, is_first_, has_velocity_;
};

LOCKSTEP_ON_GPU float root(float value) { return LOCKSTEP_ROOT_F32(value); }
LOCKSTEP_ON_GPU double root(double value) { return LOCKSTEP_ROOT_F64(value); }

template <class W>
class AdamMove {
 public:
  LOCKSTEP_ON_GPU explicit AdamMove(const UpdateRule& rule)
      : beta1_(static_cast<W>(rule.beta1)),
        fresh1_(static_cast<W>(rule.fresh1)),
        beta2_(static_cast<W>(rule.beta2)),
        fresh2_(static_cast<W>(rule.fresh2)),
        epsilon_(static_cast<W>(rule.epsilon)),
        weight_decay_(static_cast<W>(rule.weight_decay)),
        kept_(static_cast<W>(rule.kept)),
        rate_(static_cast<W>(rule.learning_rate)),
        root_correction_(static_cast<W>(rule.root_correction)),
        is_decoupled_(rule.is_decoupled != 0) {}

  LOCKSTEP_ON_GPU bool has_first() const { return true; }
  LOCKSTEP_ON_GPU bool has_second() const { return true; }
  LOCKSTEP_ON_GPU W moved(W parameter, W gradient, W& first, W& second) const {
    if (weight_decay_ != 0) {
      if (is_decoupled_) {
        parameter = parameter * kept_;
      } else {
        gradient = gradient + weight_decay_ * parameter;
      }
    }
    first = beta1_ * first + fresh1_ * gradient;
    second = beta2_ * second + fresh2_ * (gradient * gradient);
    const W denominator = root(second) / root_correction_ + epsilon_;
    return parameter - rate_ * (first / denominator);
  }

 private:
  W beta1_, fresh1_, beta2_, fresh2_, epsilon_, weight_decay_, kept_, rate_, root_correction_;
  bool is_decoupled_;
};

/// Elements that are read and written at once.
template <class T, int count>
struct alignas(sizeof(T) * count) Lanes {
  LOCKSTEP_ON_GPU Lanes() {}  // NOLINT(modernize-use-equals-default): halves have initial values
  T values[count];
};

/// Where parameters lie with what belongs to them: addresses of element 0 of each array.
struct UpdateArrays {
  const std::uint64_t* gradients;  ///< of each party
  const std::uint64_t* copies;     ///< of the parameters: each party's
  int parties;
  std::uint64_t parameters, first, second, master;
};

template <class T, template <class> class Move, class Platform>
class Update {
 public:
  LOCKSTEP_ON_GPU Update(const UpdateRule& rule, const UpdateArrays& arrays, const Platform& on)
      : move_(rule), scale_(static_cast<W>(rule.gradient_scale)), arrays_(arrays), on_(on) {}

  /// Of elements `begin` to `end`: the share of block `block` of `blocks`.
  LOCKSTEP_ON_GPU void run(std::uint64_t begin, std::uint64_t end, std::uint64_t block,
                           std::uint64_t blocks) const {
    const std::uint64_t stride = blocks * on_.threads();
    const std::uint64_t own = block * on_.threads() + on_.thread();
    std::uint64_t done = begin;
    if (are_aligned(begin)) {
      const std::uint64_t lanes = (end - begin) / each;
      for (std::uint64_t i = own; i < lanes; i += stride) move<each>(begin + i * each);
      done += lanes * each;
    }
    for (std::uint64_t i = done + own; i < end; i += stride) move<1>(i);
  }

 private:
  using W = typename Wide<T>::type;
  static constexpr int each = static_cast<int>(pack_bytes / sizeof(W));
  static constexpr bool has_master = !std::is_same_v<T, W>;

  LOCKSTEP_ON_GPU bool are_aligned(std::uint64_t begin) const {
    std::uint64_t narrow = arrays_.parameters, wide = 0;
    for (int party = 0; party < arrays_.parties; ++party)
      narrow |= arrays_.gradients[party] | arrays_.copies[party];
    if (move_.has_first()) wide |= arrays_.first;
    if (move_.has_second()) wide |= arrays_.second;
    if constexpr (has_master) wide |= arrays_.master;
    return begin % each == 0 && narrow % (sizeof(T) * each) == 0 && wide % (sizeof(W) * each) == 0;
  }
  template <int count, class Value>
  LOCKSTEP_ON_GPU Lanes<Value, count>& lanes_at(std::uint64_t array, std::uint64_t i) const {
    return *on_.template at<Lanes<Value, count>>(array + i * sizeof(Value));
  }
  template <int count>
  LOCKSTEP_ON_GPU void move(std::uint64_t i) const {
    W gradients[count];
    const Lanes<T, count> own = lanes_at<count, T>(arrays_.gradients[0], i);
    LOCKSTEP_UNROLL for (int k = 0; k < count; ++k) gradients[k] = widened(own.values[k]);
    for (int party = 1; party < arrays_.parties; ++party) {
      const Lanes<T, count> other = lanes_at<count, T>(arrays_.gradients[party], i);
      LOCKSTEP_UNROLL for (int k = 0; k < count; ++k) gradients[k] =
          Sum::apply(gradients[k], widened(other.values[k]));
    }
    Lanes<W, count> parameters, first, second;
    if constexpr (has_master) {
      parameters = lanes_at<count, W>(arrays_.master, i);
    } else {
      parameters = lanes_at<count, W>(arrays_.parameters, i);
    }
    if (move_.has_first()) first = lanes_at<count, W>(arrays_.first, i);
    if (move_.has_second()) second = lanes_at<count, W>(arrays_.second, i);
    Lanes<T, count> given;
    LOCKSTEP_UNROLL for (int k = 0; k < count; ++k) {
      parameters.values[k] =
          move_.moved(parameters.values[k], gradients[k] * scale_, first.values[k], second.values[k]);
      given.values[k] = narrowed<T>(parameters.values[k]);
    }
    if (move_.has_first()) lanes_at<count, W>(arrays_.first, i) = first;
    if (move_.has_second()) lanes_at<count, W>(arrays_.second, i) = second;
    if constexpr (has_master) lanes_at<count, W>(arrays_.master, i) = parameters;
    for (int party = 0; party < arrays_.parties; ++party)
      lanes_at<count, T>(arrays_.copies[party], i) = given;
  }

  const Move<W> move_;
  const W scale_;
  const UpdateArrays& arrays_;
  const Platform& on_;
};

/// Each owner's elements, by all blocks. REQUIRES: what the parties own is all of the parameters, and nothing twice.
template <class T, template <class> class Move>
struct UpdateTogether {
  template <class Platform>
  LOCKSTEP_ON_GPU static void run(const UpdateCall& call, const Board& board, const BlockState& state,
                                  const Platform& on) {
    using W = typename Wide<T>::type;
    for (int owner = 0; owner < call.parties; ++owner) {
      const Owned& owned = board.parts[owner].owned;
      const std::uint64_t begin = on.load(owned.begin), end = on.load(owned.end);
      if (begin >= end) continue;
      const auto from = [&](const Place& place) {  // so that element i is at i
        return address_of(call, static_cast<std::uint64_t>(owner), place, on) - begin * sizeof(W);
      };
      const UpdateArrays arrays{.gradients = state.inputs,
                                .copies = state.outputs,
                                .parties = call.parties,
                                .parameters = state.outputs[owner],
                                .first = from(owned.first),
                                .second = from(owned.second),
                                .master = from(owned.master)};
      Update<T, Move, Platform>(call.rule, arrays, on).run(begin, end, on.block(), on.blocks());
    }
  }
};

/// The kernel of a list: blocks take its pieces in turns.
template <class T, template <class> class Move, class Platform>
LOCKSTEP_ON_GPU void update_list(const UpdateList& list, const Platform& on) {
  const std::uint32_t pieces = list.pieces_through[list.tensors - 1];
  int tensor = 0;
  for (std::uint64_t piece = on.block(); piece < pieces; piece += on.blocks()) {
    while (piece >= list.pieces_through[tensor]) ++tensor;
    const UpdateList::Tensor& of = list.tensor[tensor];
    const std::uint64_t before = tensor == 0 ? 0 : list.pieces_through[tensor - 1];
    const std::uint64_t begin = (piece - before) * piece_elements;
    const std::uint64_t end = begin + piece_elements < of.elements ? begin + piece_elements : of.elements;
    const UpdateArrays arrays{.gradients = &of.gradient,
                              .copies = &of.parameters,
                              .parties = 1,
                              .parameters = of.parameters,
                              .first = of.first,
                              .second = of.second,
                              .master = of.master};
    Update<T, Move, Platform>(list.rule, arrays, on).run(begin, end, 0, 1);
  }
}

/// The types of parameters there are: X(name, type).
#define LOCKSTEP_DEVICE_UPDATES(X) X(f16, float16) X(bf16, bfloat16) X(f32, float) X(f64, double)

}  // namespace lockstep::device_arena

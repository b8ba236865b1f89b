// Compiled once for each kind of vector unit, with the same bits on all of them: see reduce.cpp.
#include "lockstep/kernel/update.h"

#include <cmath>
#include <string>

#include "lockstep/base/error.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lockstep/kernel/update.cpp"
#include "hwy/foreach_target.h"  // includes this file again, once for each target
#include "hwy/highway.h"
#include "lockstep/kernel/codecs_inl.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::kernel::HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

/// Parameters, and their gradients' sum, in lanes.
template <class Codec>
class Slice {
 public:
  using Lane = typename Codec::Lane;
  static constexpr bool has_master = sizeof(Lane) != Codec::bytes;

  explicit Slice(const UpdateSlice& slice) : slice_(slice), scale_(static_cast<Lane>(slice.gradient_scale)) {}

  std::size_t elements() const { return slice_.elements; }
  template <class D>
  HWY_INLINE hn::Vec<D> gradient(D d, std::size_t first) const {
    const std::size_t offset = first * Codec::bytes;
    auto sum = Codec::load(d, slice_.gradients[0] + offset);
    for (const std::byte* other : slice_.gradients.subspan(1))
      sum = hn::Add(sum, Codec::load(d, other + offset));
    return hn::Mul(sum, hn::Set(d, scale_));
  }
  template <class D>
  HWY_INLINE hn::Vec<D> parameter(D d, std::size_t first) const {
    if constexpr (has_master) {
      return hn::LoadU(d, slice_.master + first);
    } else {
      return Codec::load(d, slice_.parameters + first * Codec::bytes);
    }
  }
  template <class D>
  HWY_INLINE void set_parameter(D d, std::size_t first, hn::Vec<D> value) const {
    if constexpr (has_master) hn::StoreU(value, d, slice_.master + first);
    Codec::store(d, value, slice_.parameters + first * Codec::bytes);
  }

 private:
  UpdateSlice slice_;
  Lane scale_;
};

template <class Lane>
struct Sgd {
  explicit Sgd(const SgdStep& step, void* state)
      : velocity(static_cast<Lane*>(state)),
        learning_rate(static_cast<Lane>(step.learning_rate)),
        momentum(static_cast<Lane>(step.momentum)),
        fresh(static_cast<Lane>(1.0 - step.dampening)),
        weight_decay(static_cast<Lane>(step.weight_decay)),
        nesterov(step.nesterov),
        is_first(step.is_first) {}

  template <class D, class V>
  HWY_INLINE V moved(D d, std::size_t first, V parameter, V gradient) const {
    V direction = gradient;
    if (weight_decay != 0) direction = hn::Add(direction, hn::Mul(hn::Set(d, weight_decay), parameter));
    if (velocity != nullptr) {
      V v = direction;
      if (!is_first) {
        v = hn::Add(hn::Mul(hn::Set(d, momentum), hn::LoadU(d, velocity + first)),
                    hn::Mul(hn::Set(d, fresh), direction));
      }
      hn::StoreU(v, d, velocity + first);
      direction = nesterov ? hn::Add(direction, hn::Mul(hn::Set(d, momentum), v)) : v;
    }
    return hn::Sub(parameter, hn::Mul(hn::Set(d, learning_rate), direction));
  }

  Lane* velocity;
  Lane learning_rate, momentum, fresh, weight_decay;
  bool nesterov, is_first;
};

template <class Lane>
struct Adam {
  Adam(const AdamStep& step, void* first_state, void* second_state)
      : first(static_cast<Lane*>(first_state)),
        second(static_cast<Lane*>(second_state)),
        beta1(static_cast<Lane>(step.beta1)),
        beta2(static_cast<Lane>(step.beta2)),
        fresh1(static_cast<Lane>(1.0 - step.beta1)),
        fresh2(static_cast<Lane>(1.0 - step.beta2)),
        epsilon(static_cast<Lane>(step.epsilon)),
        weight_decay(static_cast<Lane>(step.weight_decay)),
        kept(static_cast<Lane>(1.0 - step.learning_rate * step.weight_decay)),
        is_decoupled(step.is_decoupled) {
    const auto t = static_cast<double>(step.t);
    rate = static_cast<Lane>(step.learning_rate / (1.0 - std::pow(step.beta1, t)));
    root_correction = static_cast<Lane>(std::sqrt(1.0 - std::pow(step.beta2, t)));
  }

  template <class D, class V>
  HWY_INLINE V moved(D d, std::size_t index, V parameter, V gradient) const {
    if (weight_decay != 0) {
      if (is_decoupled) {
        parameter = hn::Mul(parameter, hn::Set(d, kept));
      } else {
        gradient = hn::Add(gradient, hn::Mul(hn::Set(d, weight_decay), parameter));
      }
    }
    const V m = hn::Add(hn::Mul(hn::Set(d, beta1), hn::LoadU(d, first + index)),
                        hn::Mul(hn::Set(d, fresh1), gradient));
    const V v = hn::Add(hn::Mul(hn::Set(d, beta2), hn::LoadU(d, second + index)),
                        hn::Mul(hn::Set(d, fresh2), hn::Mul(gradient, gradient)));
    hn::StoreU(m, d, first + index);
    hn::StoreU(v, d, second + index);
    const V denominator = hn::Add(hn::Div(hn::Sqrt(v), hn::Set(d, root_correction)), hn::Set(d, epsilon));
    return hn::Sub(parameter, hn::Mul(hn::Set(d, rate), hn::Div(m, denominator)));
  }

  Lane *first, *second;
  Lane beta1, beta2, fresh1, fresh2, epsilon, weight_decay, kept, rate, root_correction;
  bool is_decoupled;
};

template <class D, class Codec, class Rule>
HWY_INLINE void move(D d, std::size_t first, const Slice<Codec>& slice, const Rule& rule) {
  slice.set_parameter(d, first, rule.moved(d, first, slice.parameter(d, first), slice.gradient(d, first)));
}

template <class Codec, class Rule>
void update_by(const UpdateSlice& callers, const Rule& callers_rule) {
  const Slice<Codec> slice(callers);  // our own: a store to an array cannot change them
  const Rule rule = callers_rule;
  const hn::ScalableTag<typename Codec::Lane> d;
  const hn::CappedTag<typename Codec::Lane, 1> one;
  const std::size_t lanes = hn::Lanes(d);
  std::size_t i = 0;
  for (; slice.elements() - i >= lanes; i += lanes) move(d, i, slice, rule);
  for (; i < slice.elements(); ++i) move(one, i, slice, rule);
}

template <template <class> class Rule, class... Arguments>
void update_any(const UpdateSlice& slice, const Arguments&... arguments) {
  switch (slice.dtype) {
    case Dtype::f64: return update_by<Plain<double>>(slice, Rule<double>(arguments...));
    case Dtype::f16: return update_by<Half<Float16>>(slice, Rule<float>(arguments...));
    case Dtype::bf16: return update_by<Half<BFloat16>>(slice, Rule<float>(arguments...));
    default: return update_by<Plain<float>>(slice, Rule<float>(arguments...));
  }
}

void sgd_on_target(const UpdateSlice& slice, void* velocity, const SgdStep& step) {
  update_any<Sgd>(slice, step, velocity);
}

void adam_on_target(const UpdateSlice& slice, void* first, void* second, const AdamStep& step) {
  update_any<Adam>(slice, step, first, second);
}

}  // namespace
}  // namespace lockstep::kernel::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep::kernel {
namespace {

HWY_EXPORT(sgd_on_target);
HWY_EXPORT(adam_on_target);

void require_possible(const UpdateSlice& slice, const std::string& what) {
  if (!is_half(slice.dtype) && slice.dtype != Dtype::f32 && slice.dtype != Dtype::f64)
    throw_invalid_argument(what + ": parameters of type " + std::string(to_string(slice.dtype)) +
                           " have no gradient");
  if (slice.gradients.empty()) throw_invalid_argument(what + ": needs a gradient");
  if (is_half(slice.dtype) && slice.master == nullptr)
    throw_invalid_argument(what + ": parameters of type " + std::string(to_string(slice.dtype)) +
                           " need a master copy in f32");
}

}  // namespace

void update_sgd(const UpdateSlice& slice, void* velocity, const SgdStep& step) {
  require_possible(slice, "update_sgd");
  HWY_DYNAMIC_DISPATCH(sgd_on_target)(slice, velocity, step);
}

void update_adam(const UpdateSlice& slice, void* first, void* second, const AdamStep& step) {
  require_possible(slice, "update_adam");
  HWY_DYNAMIC_DISPATCH(adam_on_target)(slice, first, second, step);
}

}  // namespace lockstep::kernel
#endif

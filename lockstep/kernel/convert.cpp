// Compiled once for each kind of vector unit, with the same bits on all of them: see reduce.cpp.
#include "lockstep/kernel/convert.h"

#include <string>

#include "lockstep/base/error.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lockstep/kernel/convert.cpp"
#include "hwy/foreach_target.h"  // includes this file again, once for each target
#include "hwy/highway.h"
#include "lockstep/kernel/codecs_inl.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::kernel::HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

template <class From, class To>
void convert(std::size_t elements, const std::byte* from, std::byte* to) {
  const hn::ScalableTag<float> d;
  const hn::CappedTag<float, 1> one;
  const std::size_t lanes = hn::Lanes(d);
  std::size_t i = 0;
  for (; elements - i >= lanes; i += lanes)
    To::store(d, From::load(d, from + i * From::bytes), to + i * To::bytes);
  for (; i < elements; ++i) To::store(one, From::load(one, from + i * From::bytes), to + i * To::bytes);
}

void narrow_on_target(Dtype half, std::size_t elements, const std::byte* f32, std::byte* halves) {
  if (half == Dtype::bf16) return convert<Plain<float>, Half<BFloat16>>(elements, f32, halves);
  convert<Plain<float>, Half<Float16>>(elements, f32, halves);
}

void widen_on_target(Dtype half, std::size_t elements, const std::byte* halves, std::byte* f32) {
  if (half == Dtype::bf16) return convert<Half<BFloat16>, Plain<float>>(elements, halves, f32);
  convert<Half<Float16>, Plain<float>>(elements, halves, f32);
}

}  // namespace
}  // namespace lockstep::kernel::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep::kernel {
namespace {

HWY_EXPORT(narrow_on_target);
HWY_EXPORT(widen_on_target);

void require_half(Dtype half) {
  if (!is_half(half)) throw_invalid_argument(std::string(to_string(half)) + " is neither bf16 nor f16");
}

}  // namespace

void narrow(Dtype half, std::size_t elements, const std::byte* f32, std::byte* halves) {
  require_half(half);
  HWY_DYNAMIC_DISPATCH(narrow_on_target)(half, elements, f32, halves);
}

void widen(Dtype half, std::size_t elements, const std::byte* halves, std::byte* f32) {
  require_half(half);
  HWY_DYNAMIC_DISPATCH(widen_on_target)(half, elements, halves, f32);
}

}  // namespace lockstep::kernel
#endif

#include "lockstep/train/tensor/traced_operators.h"

#include <ATen/record_function.h>

#include <memory>

#include "lockstep/base/env.h"
#include "lockstep/trace/traced_range.h"

namespace lockstep {
namespace {

struct OperatorRange : at::ObserverContext {
  explicit OperatorRange(const char* name) : range(name) {}
  TracedRange range;  // libtorch keeps it until the operator's end
};

std::unique_ptr<at::ObserverContext> begin_operator(const at::RecordFunction& called) {
  return std::make_unique<OperatorRange>(called.name());
}

}  // namespace

void trace_operators_if_asked() {
  static const bool is_asked = [] {
    const bool asked = env::flag("LOCKSTEP_TIMELINE_OPERATORS").value_or(false);
    if (asked)
      at::addGlobalCallback(at::RecordFunctionCallback(begin_operator)
                                .scopes({at::RecordScope::FUNCTION, at::RecordScope::BACKWARD_FUNCTION}));
    return asked;
  }();
  static_cast<void>(is_asked);
}

}  // namespace lockstep

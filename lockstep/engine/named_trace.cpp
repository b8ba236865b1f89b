#include "lockstep/engine/named_trace.h"

#include <numeric>

#include "lockstep/trace/clock.h"
#include "lockstep/trace/spans.h"

namespace lockstep {

void trace_operation(const NamedOperation& operation) noexcept try {
  const auto recorder = trace::current_spans();
  if (recorder == nullptr) return;
  const NamedRequest& request = operation.request;
  const auto rows = std::accumulate(request.rows.begin(), request.rows.end(), std::int64_t{0});
  const std::size_t of_shapes = bytes_of(request) / size_of(request.dtype);
  const auto elements =
      static_cast<double>(of_shapes) * (request.rows.empty() ? 1.0 : static_cast<double>(rows));
  const std::uint32_t name = recorder->number_of(request.name);
  const auto record = [&](trace::NamedSpan::Part part, std::uint64_t end_ns) {
    recorder->record({.begin_ns = operation.submitted_ns,
                      .end_ns = end_ns,
                      .value = elements,
                      .name = name,
                      .thread = trace::named_thread({part, request.operation, request.dtype})});
  };
  record(trace::NamedSpan::Part::negotiation, operation.started_ns);
  record(trace::NamedSpan::Part::whole, trace::now_ns());
} catch (...) {  // no memory: then it is not in the timeline
}

}  // namespace lockstep

// The C interface: collectives found by name. What is not a call of the core's is how integers are scaled, as Horovod has it.
#include <algorithm>

#include "c/handles.h"
#include "c/scale.h"
#include "lockstep/group/gpu_calls.h"
#include "lockstep/kernel/form.h"

namespace lockstep::c {
namespace {

/// REQUIRES: none is negative.
std::size_t sum_of(std::span<const std::int64_t> rows) {
  std::size_t sum = 0;
  for (const std::int64_t each : rows) sum += static_cast<std::size_t>(each);
  return sum;
}

Operation operation_of(int number) {
  switch (number) {
    case LOCKSTEP_NAMED_ALL_REDUCE: return Operation::all_reduce;
    case LOCKSTEP_NAMED_BROADCAST: return Operation::broadcast;
    case LOCKSTEP_NAMED_ALL_GATHER: return Operation::all_gather;
    case LOCKSTEP_NAMED_ALL_TO_ALL: return Operation::all_to_all;
    case LOCKSTEP_NAMED_REDUCE_SCATTER: return Operation::reduce_scatter;
    case LOCKSTEP_NAMED_BARRIER: return Operation::barrier;
    default: throw_invalid_argument("operation " + std::to_string(number) + " is none");
  }
}

bool is_in_place(Operation operation) {
  return operation == Operation::all_reduce || operation == Operation::broadcast;
}

bool combines(Operation operation) {
  return operation == Operation::all_reduce || operation == Operation::reduce_scatter;
}

/// An Adasum gathers what all ranks have, of all buffers as one row, and is computed where it arrives.
void make_adasum(lockstep_request& made) {
  NamedRequest& request = made.request;
  require(request.operation == Operation::all_reduce, "LOCKSTEP_ADASUM is for all_reduce alone");
  require(request.dtype == Dtype::f32 || request.dtype == Dtype::f64 || is_half(request.dtype),
          "only floating-point numbers have an Adasum; these are " + std::string(to_string(request.dtype)));
  std::size_t all = 0;
  for (const Shape& shape : request.shapes) all += made.adasums.emplace_back(elements_of(shape));
  request.operation = Operation::all_gather;
  request.shapes = {{static_cast<std::int64_t>(all)}};
}

/// The buffers' contents one after the other, times `prescale`, as the work's copy.
std::span<std::byte> contribution_of(lockstep_work& work, const lockstep_request& request,
                                     void* const* buffers) {
  const std::size_t each = size_of(request.request.dtype);
  for (std::size_t i = 0; i < request.adasums.size(); ++i)
    work.adasums.push_back(output_of(buffers[i], bytes_of(request.adasums[i], each, "elements")));
  std::size_t all = 0;
  for (const auto buffer : work.adasums) all += buffer.size();
  work.copies.push_back({std::unique_ptr<std::byte[]>(new std::byte[std::max<std::size_t>(all, 1)]), {}});
  std::byte* to = work.copies.back().bytes.get();
  for (const auto buffer : work.adasums) to = std::ranges::copy(buffer, to).out;
  const std::span<std::byte> whole(work.copies.back().bytes.get(), all);
  if (request.prescale != 1) scale(request.request.dtype, whole, request.prescale);
  if (request.postscale != 1) work.scaled = work.adasums;
  return whole;
}

/// Who scales: the engine, on the way, where that is as exact; else passes of our own.
void share_scales(lockstep_request& made) {
  NamedRequest& request = made.request;
  const bool is_linear = request.reduce_op == ReduceOp::sum || request.reduce_op == ReduceOp::average;
  if (kernel::kind_of(request.dtype) == kernel::Kind::integer && request.reduce_op == ReduceOp::average) {
    request.reduce_op = ReduceOp::sum;
    made.postscale /= made.set->group.size();
  }
  if (!is_linear || !scales_in_f32(request.dtype)) return;
  request.prescale = static_cast<float>(made.prescale * made.postscale);
  made.prescale = made.postscale = 1;
}

/// Memory for a result: the program's, or the work's own.
std::span<std::byte> make_output(lockstep_work& work, std::size_t bytes, lockstep_make_output make,
                                 void* context) {
  if (make == nullptr) {
    work.own_output.reset(new std::byte[std::max<std::size_t>(bytes, 1)]);
    return {work.own_output.get(), bytes};
  }
  void* const made = make(context, bytes);
  if (made == nullptr && bytes > 0)
    throw Error(ErrorCode::system,
                "the program has no memory for a result of " + std::to_string(bytes) + " bytes");
  return {static_cast<std::byte*>(made), bytes};
}

}  // namespace
}  // namespace lockstep::c

using namespace lockstep::c;  // NOLINT(google-build-using-namespace): the functions below are of no namespace

using lockstep::NamedBuffers;
using lockstep::NamedRequest;

int lockstep_request_new(int set, const char* name, int operation, int dtype, int reduce_op, int root,
                         double prescale, double postscale, int buffers, const int32_t* dimensions,
                         const int64_t* shapes, lockstep_request** request) {
  return guarded([&] {
    require(name != nullptr && request != nullptr, "the name, or the place for the request, is NULL");
    require(buffers >= 0 && static_cast<std::size_t>(buffers) <= lockstep::named_limits.buffers,
            std::to_string(buffers) + " buffers are none, or too many");
    auto made = std::make_unique<lockstep_request>();
    made->set = set_of(set);
    made->prescale = prescale;
    made->postscale = postscale;
    NamedRequest& named = made->request;
    named = {.name = name, .operation = operation_of(operation), .root = root};
    if (named.operation != lockstep::Operation::barrier) {
      require(buffers == 1 || (buffers > 1 && named.operation == lockstep::Operation::all_reduce),
              std::string(to_string(named.operation)) + " has one buffer");
      require(dimensions != nullptr, "the dimensions are NULL");
      named.dtype = dtype_of_number(dtype);
      for (int i = 0; i < buffers; ++i) {
        const auto count = static_cast<std::size_t>(std::max(dimensions[i], 0));
        require(dimensions[i] >= 0 && count <= lockstep::named_limits.dimensions &&
                    (shapes != nullptr || count == 0),
                std::to_string(dimensions[i]) + " dimensions are too many, or the shapes are NULL");
        named.shapes.emplace_back(shapes, shapes + count);
        shapes += count;
      }
    }
    if (combines(named.operation) && reduce_op == LOCKSTEP_ADASUM) {
      make_adasum(*made);
    } else if (combines(named.operation)) {
      named.reduce_op = op_of_number(reduce_op);
      share_scales(*made);
    }
    lockstep::require_sound(named);
    if (named.shapes.size() == 1) {
      lockstep::Shape row = named.shapes[0];
      if (named.operation == lockstep::Operation::reduce_scatter && !row.empty()) row.erase(row.begin());
      made->row_bytes = lockstep::elements_of(row) * size_of(named.dtype);
    }
    *request = made.release();
    return LOCKSTEP_OK;
  });
}

void lockstep_request_free(lockstep_request* request) { delete request; }

int lockstep_submit(lockstep_request* request, void* const* buffers, const int64_t* rows,
                    lockstep_work** work) {
  return lockstep_submit_with_output(request, buffers, rows, nullptr, nullptr, work);
}

int lockstep_submit_with_output(lockstep_request* request, void* const* buffers, const int64_t* rows,
                                lockstep_make_output make, void* context, lockstep_work** work) {
  return guarded([&] {
    require(request != nullptr && work != nullptr, "the request, or the place for the work, is NULL");
    using enum lockstep::Operation;
    auto made = std::make_unique<lockstep_work>();
    lockstep_work& its = *made;
    its.set = request->set;
    its.dtype = request->request.dtype;
    its.scale = request->postscale;
    NamedRequest named = request->request;
    NamedBuffers all;
    const bool is_adasum = !request->adasums.empty();
    all.place = place_of_calls();
    const bool has_output = !is_in_place(named.operation) && named.operation != barrier;
    if (all.place.is_on_gpu() && !lockstep_request_takes_gpu(request))
      throw lockstep::Error(lockstep::ErrorCode::unsupported,
                            to_string(named) + " is not taken on a GPU: see lockstep_request_takes_gpu()");
    if (all.place.is_on_gpu() && has_output && make == nullptr)
      throw lockstep::Error(
          lockstep::ErrorCode::unsupported,
          to_string(named) + " on a GPU needs memory for its result: lockstep_submit_with_output()");
    if (is_adasum) {
      named.rows = {1};
      all.input = contribution_of(its, *request, buffers);
    }
    for (std::size_t i = 0; !is_adasum && i < named.shapes.size(); ++i) {
      std::size_t elements = lockstep::elements_of(named.shapes[i]);
      if (named.operation == all_gather || named.operation == all_to_all) {
        require(rows != nullptr, "the numbers of rows are NULL");
        const std::size_t count =
            named.operation == all_gather ? 1 : static_cast<std::size_t>(its.set->group.size());
        named.rows.assign(rows, rows + count);
        for (const std::int64_t each : named.rows)
          require(each >= 0, std::to_string(each) + " rows are none");
        elements = bytes_of(elements, sum_of(named.rows), "rows");
      }
      auto buffer = output_of(buffers[i], bytes_of(elements, lockstep::size_of(named.dtype), "elements"));
      if (named.operation == all_reduce && its.scale != 1) its.scaled.push_back(buffer);
      if (request->prescale != 1 && combines(named.operation)) {
        // A copy: what is refused has changed nothing.
        its.copies.push_back(
            {std::unique_ptr<std::byte[]>(new std::byte[std::max<std::size_t>(buffer.size(), 1)]),
             is_in_place(named.operation) ? buffer : std::span<std::byte>()});
        std::ranges::copy(buffer, its.copies.back().bytes.get());
        buffer = {its.copies.back().bytes.get(), buffer.size()};
        scale(named.dtype, buffer, request->prescale);
      }
      if (is_in_place(named.operation)) {
        all.in_place.push_back(buffer);
      } else {
        all.input = buffer;
      }
    }
    if (has_output) {
      all.make_output = [&its, row_bytes = request->row_bytes, make,
                         context](std::span<const std::int64_t> made_rows) {
        its.rows.assign(made_rows.begin(), made_rows.end());
        its.output = make_output(its, sum_of(made_rows) * row_bytes, make, context);
        if (its.scale != 1 && its.adasums.empty()) its.scaled.push_back(its.output);
        return its.output;
      };
    }
    its.work = its.set->named.submit(std::move(named), std::move(all));
    *work = made.release();
    return LOCKSTEP_OK;
  });
}

int lockstep_request_takes_gpu(const lockstep_request* request) {
  const bool scales = request->prescale != 1 || request->postscale != 1;
  const bool has_buffers =
      request->request.operation != lockstep::Operation::barrier && request->adasums.empty();
  return has_buffers && !scales && lockstep::has_gpu_driver() ? 1 : 0;
}

int lockstep_join(int set, int* last) {
  return guarded([&] {
    const auto of = set_of(set);
    *last = of->named.join();
    return LOCKSTEP_OK;
  });
}

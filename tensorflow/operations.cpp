// Collectives as operations of TensorFlow, found by their names, in any order: asynchronous, so that an operation which waits for
// other ranks takes no thread of TensorFlow's. `tf.load_op_library()` on this library gives them to Python.
#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <initializer_list>
#include <memory>
#include <mutex>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "completions.h"
#include "lockstep_c.h"
#include "tensorflow_api.h"

namespace lockstep_tensorflow {
namespace {

// As TensorFlow numbers them (tf_status.h).
constexpr int ok = 0, unknown = 2, invalid_argument = 3, failed_precondition = 9;

template <auto release>
struct ReleasedBy {
  void operator()(auto* handle) const { release(handle); }
};
using Status = std::unique_ptr<TF_Status, ReleasedBy<&TF_DeleteStatus>>;
using Tensor = std::unique_ptr<TF_Tensor, ReleasedBy<&TF_DeleteTensor>>;
using Request = std::unique_ptr<lockstep_request, ReleasedBy<&lockstep_request_free>>;
using Work = std::unique_ptr<lockstep_work, ReleasedBy<&lockstep_work_free>>;

struct Dtype {
  int tensorflow = 0, lockstep = 0;
};
constexpr std::array dtypes = {
    Dtype{1, LOCKSTEP_F32},       Dtype{2, LOCKSTEP_F64},         Dtype{3, LOCKSTEP_I32},
    Dtype{4, LOCKSTEP_U8},        Dtype{5, LOCKSTEP_I16},         Dtype{6, LOCKSTEP_I8},
    Dtype{9, LOCKSTEP_I64},       Dtype{10, LOCKSTEP_BOOL},       Dtype{14, LOCKSTEP_BF16},
    Dtype{17, LOCKSTEP_U16},      Dtype{19, LOCKSTEP_F16},        Dtype{22, LOCKSTEP_U32},
    Dtype{8, LOCKSTEP_COMPLEX64}, Dtype{18, LOCKSTEP_COMPLEX128}, Dtype{23, LOCKSTEP_U64}};
constexpr const char* types =
    "T: {float, double, half, bfloat16, int8, uint8, int16, uint16, int32, uint32, int64, uint64, bool, "
    "complex64, complex128}";

int dtype_of(const TF_Tensor* tensor) {
  const auto found = std::ranges::find(dtypes, TF_TensorType(tensor), &Dtype::tensorflow);
  return found == dtypes.end() ? 0 : found->lockstep;
}

/// Why an operation cannot be done, for TensorFlow.
struct Failure {
  int code = unknown;
  std::string text = {};
};

/// `what`: the operation's name, or "".
Failure failure_of(int status, const std::string& why, const std::string& what = "") {
  const int code = status == LOCKSTEP_INVALID_ARGUMENT ? invalid_argument
                   : status == LOCKSTEP_MISMATCH       ? failed_precondition
                                                       : unknown;
  return {code, "Lockstep: " + (what.empty() ? "" : what + ": ") + why};
}

Status status_of(const Failure& failure) {
  Status status(TF_NewStatus());
  TF_SetStatus(status.get(), failure.code, failure.text.c_str());
  return status;
}

void require(int status) {
  if (status > 0) throw failure_of(status, lockstep_last_error());
}
void require(const Status& status) {
  if (TF_GetCode(status.get()) != ok) throw Failure{TF_GetCode(status.get()), TF_Message(status.get())};
}

std::vector<std::int64_t> shape_of(const TF_Tensor* tensor) {
  std::vector<std::int64_t> shape;
  for (int i = 0; i < TF_NumDims(tensor); ++i) shape.push_back(TF_Dim(tensor, i));
  return shape;
}

/// What a node of the graph says of an operation.
struct Settings {
  std::string name = {};
  int operation = 0;
  int set = 0, reduce_op = 0, root = 0;
  double prescale = 1, postscale = 1;
  bool waits = false;  ///< in the thread that makes it, which has nothing else to do
};

std::string text_attribute(TF_OpKernelConstruction* context, const char* name, const Status& status) {
  std::int32_t list = 0, bytes = 0;
  TF_OpKernelConstruction_GetAttrSize(context, name, &list, &bytes, status.get());
  require(status);
  std::string value(static_cast<std::size_t>(std::max(bytes, 0)), '\0');
  TF_OpKernelConstruction_GetAttrString(context, name, value.data(), value.size(), status.get());
  require(status);
  return value;
}

int number_attribute(TF_OpKernelConstruction* context, const char* name, const Status& status) {
  std::int32_t value = 0;
  TF_OpKernelConstruction_GetAttrInt32(context, name, &value, status.get());
  require(status);
  return value;
}

bool flag_attribute(TF_OpKernelConstruction* context, const char* name, const Status& status) {
  unsigned char value = 0;
  TF_OpKernelConstruction_GetAttrBool(context, name, &value, status.get());
  require(status);
  return value != 0;
}

/// An operation that is under way, and what it holds until it is over. Outputs are TensorFlow's own buffers.
struct Call {
  TF_OpKernelContext* context = nullptr;
  std::string name = {};
  std::function<void()> done = {};
  Work work = {};
  std::vector<Tensor> inputs = {}, outputs = {};
  std::vector<std::int64_t> row_shape = {};  ///< of what the core makes: all but the first dimension
  int type = 0;
  bool tells_rows = false;  ///< a second output
};

void fail(TF_OpKernelContext* context, const Failure& failure) {
  TF_OpKernelContext_Failure(context, status_of(failure).get());
}

/// What the core has made becomes an output.
void take_output(Call& call) {
  const Status status(TF_NewStatus());
  void* data = nullptr;
  std::size_t bytes = 0;
  const std::int64_t* rows = nullptr;
  int count = 0;
  require(lockstep_work_output(call.work.get(), &data, &bytes, &rows, &count));
  std::vector<std::int64_t> shape{0};
  for (int i = 0; i < count; ++i) shape[0] += rows[i];
  shape.insert(shape.end(), call.row_shape.begin(), call.row_shape.end());
  const Tensor output(TF_AllocateOutput(call.context, 0, call.type, shape.data(),
                                        static_cast<int>(shape.size()), bytes, status.get()));
  require(status);
  if (bytes > 0) std::memcpy(TF_TensorData(output.get()), data, bytes);
  if (!call.tells_rows) return;
  constexpr int int32 = 3;
  const std::int64_t ranks = count;
  const Tensor told(TF_AllocateOutput(call.context, 1, int32, &ranks, 1,
                                      static_cast<std::size_t>(count) * sizeof(std::int32_t), status.get()));
  require(status);
  std::transform(rows, rows + count, static_cast<std::int32_t*>(TF_TensorData(told.get())),
                 [](std::int64_t one) { return static_cast<std::int32_t>(one); });
}

void finish(const std::shared_ptr<Call>& call, int status, const std::string& why) {
  try {
    if (status > 0) throw failure_of(status, why, call->name);
    if (call->outputs.empty() && call->type != 0) take_output(*call);
  } catch (const Failure& failure) {
    fail(call->context, failure);
  }
  call->outputs.clear();
  call->inputs.clear();
  call->work.reset();
  call->done();
}

/// One node of a graph, or one kind of calls that are made at once.
class Kernel {
 public:
  explicit Kernel(Settings settings) : settings_(std::move(settings)) {}

  void begin(TF_OpKernelContext* context, std::function<void()> done) {
    auto call = std::make_shared<Call>();
    call->context = context;
    call->name = settings_.name;
    call->done = std::move(done);
    try {
      submit(*call);
    } catch (const Failure& failure) {
      fail(context, failure);
      return call->done();
    }
    lockstep_work* const work = call->work.get();
    auto over = [call](int status, const std::string& why) { finish(call, status, why); };
    if (settings_.waits) {
      const int status = lockstep_wait(work, -1);
      return over(status, why_of(status));
    }
    Completions::of_process().add(work, std::move(over));
  }

 private:
  /// Of shapes that have been submitted before there is a request already.
  struct Shapes {
    int world = 0, dtype = 0;
    std::vector<std::int32_t> dimensions = {};
    std::vector<std::int64_t> sizes = {};
    bool operator==(const Shapes&) const = default;
  };

  void submit(Call& call) {
    const bool is_in_place =
        settings_.operation == LOCKSTEP_NAMED_ALL_REDUCE || settings_.operation == LOCKSTEP_NAMED_BROADCAST;
    const bool has_splits = settings_.operation == LOCKSTEP_NAMED_ALL_TO_ALL;
    const int inputs = has_splits ? 1 : TF_NumInputs(call.context);
    Shapes shapes{.world = lockstep_worlds()};
    std::vector<void*> buffers;
    std::vector<std::int64_t> rows;
    for (int i = 0; i < inputs; ++i) {
      const TF_Tensor* const input = take_input(call, i);
      shapes.dtype = dtype_of(input);
      std::vector<std::int64_t> shape = shape_of(input);
      if (is_in_place) {
        buffers.push_back(take_in_place(call, i, shape, input));
      } else {
        if (shape.empty()) shape = {1};
        buffers.push_back(TF_TensorData(input));
        call.type = TF_TensorType(input);
        call.row_shape.assign(shape.begin() + 1, shape.end());
        if (settings_.operation == LOCKSTEP_NAMED_ALL_GATHER) rows = {shape.front()};
        if (has_splits) rows = splits_of(call, shape.front());
        if (settings_.operation != LOCKSTEP_NAMED_REDUCE_SCATTER) shape.erase(shape.begin());
      }
      shapes.dimensions.push_back(static_cast<std::int32_t>(shape.size()));
      shapes.sizes.insert(shapes.sizes.end(), shape.begin(), shape.end());
    }
    call.tells_rows = has_splits;
    lockstep_work* work = nullptr;
    require(lockstep_submit(request_for(std::move(shapes)), buffers.data(), rows.data(), &work));
    call.work.reset(work);
  }

  static const TF_Tensor* take_input(Call& call, int index) {
    const Status status(TF_NewStatus());
    TF_Tensor* input = nullptr;
    TF_GetInput(call.context, index, &input, status.get());
    require(status);
    call.inputs.emplace_back(input);
    return input;
  }

  /// The input's own memory where nobody else needs it, or a copy.
  static void* take_in_place(Call& call, int index, const std::vector<std::int64_t>& shape,
                             const TF_Tensor* input) {
    const Status status(TF_NewStatus());
    int forwarded = -1;
    call.outputs.emplace_back(TF_ForwardInputOrAllocateOutput(call.context, &index, 1, index, shape.data(),
                                                              static_cast<int>(shape.size()), &forwarded,
                                                              status.get()));
    require(status);
    void* const data = TF_TensorData(call.outputs.back().get());
    const std::size_t bytes = TF_TensorByteSize(input);
    if (bytes > 0 && data != TF_TensorData(input)) std::memcpy(data, TF_TensorData(input), bytes);
    return data;
  }

  /// Without any: the same number of rows to each rank.
  std::vector<std::int64_t> splits_of(Call& call, std::int64_t rows) const {
    const TF_Tensor* const splits = take_input(call, 1);
    const auto* const numbers = static_cast<const std::int32_t*>(TF_TensorData(splits));
    const auto shape = shape_of(splits);
    lockstep_place place{};
    require(lockstep_set_place(settings_.set, &place));
    if (!shape.empty() && shape.front() > 0) {
      if (shape.front() != place.size)
        throw Failure{invalid_argument, settings_.name + ": " + std::to_string(shape.front()) +
                                            " splits, but there are " + std::to_string(place.size) +
                                            " ranks"};
      std::vector<std::int64_t> given(numbers, numbers + shape.front());
      const bool is_negative = std::ranges::any_of(given, [](std::int64_t split) { return split < 0; });
      const std::int64_t sum = std::accumulate(given.begin(), given.end(), std::int64_t{0});
      if (is_negative || sum > rows)
        throw Failure{invalid_argument, settings_.name + ": splits of " + std::to_string(sum) +
                                            " rows in all" + (is_negative ? ", some below 0" : "") +
                                            ", but the tensor has " + std::to_string(rows)};
      return given;
    }
    if (rows % place.size != 0)
      throw Failure{invalid_argument, settings_.name + ": a first dimension of " + std::to_string(rows) +
                                          " cannot be split evenly among " + std::to_string(place.size) +
                                          " ranks; pass splits"};
    return std::vector<std::int64_t>(static_cast<std::size_t>(place.size), rows / place.size);
  }

  lockstep_request* request_for(Shapes shapes) {
    const std::lock_guard lock(mutex_);
    const auto found = std::ranges::find(requests_, shapes, &std::pair<Shapes, Request>::first);
    if (found != requests_.end()) return found->second.get();
    if (requests_.size() >= most_requests) requests_.clear();
    lockstep_request* request = nullptr;
    require(lockstep_request_new(settings_.set, settings_.name.c_str(), settings_.operation, shapes.dtype,
                                 settings_.reduce_op, settings_.root, settings_.prescale, settings_.postscale,
                                 static_cast<int>(shapes.dimensions.size()), shapes.dimensions.data(),
                                 shapes.sizes.data(), &request));
    requests_.emplace_back(std::move(shapes), Request(request));
    return request;
  }

  static constexpr std::size_t most_requests = 64;
  const Settings settings_;
  std::mutex mutex_;
  std::vector<std::pair<Shapes, Request>> requests_;
};

/// What `make(context, status)` returns; nullptr, and TensorFlow knows why, where it throws Failure.
void* made_by(TF_OpKernelConstruction* context, auto make) {
  try {
    const Status status(TF_NewStatus());
    return make(context, status);
  } catch (const Failure& failure) {
    TF_OpKernelConstruction_Failure(context, status_of(failure).get());
    return nullptr;
  }
}

/// `operation`: LOCKSTEP_NAMED_...
template <int operation>
void* create(TF_OpKernelConstruction* construction) {
  return made_by(construction, [](TF_OpKernelConstruction* context, const Status& status) {
    Settings settings{.name = text_attribute(context, "tensor_name", status), .operation = operation};
    settings.set = number_attribute(context, "process_set", status);
    settings.reduce_op = number_attribute(context, "reduce_op", status);
    settings.root = number_attribute(context, "root", status);
    settings.waits = flag_attribute(context, "waits", status);
    const std::string scales = text_attribute(context, "scales", status);
    char* end = nullptr;
    settings.prescale = std::strtod(scales.c_str(), &end);
    settings.postscale = std::strtod(end, nullptr);
    return new Kernel(std::move(settings));
  });
}

// TensorFlow hands over its std::function<void()> by its address, and destroys it when this returns.
void compute(void* kernel, TF_OpKernelContext* context, TF_AsyncOpKernelDoneCallback* done) {
  auto kept = std::move(*reinterpret_cast<std::function<void()>*>(done));
  static_cast<Kernel*>(kernel)->begin(context, std::move(kept));
}

void remove(void* kernel) { delete static_cast<Kernel*>(kernel); }

/// Each output has the shape of the input with its number.
void same_shapes(TF_ShapeInferenceContext* context, TF_Status* status) {
  TF_ShapeHandle* const handle = TF_NewShapeHandle();
  for (std::int64_t i = 0; i < TF_ShapeInferenceContextNumInputs(context) && TF_GetCode(status) == ok; ++i) {
    TF_ShapeInferenceContextGetInput(context, static_cast<int>(i), handle, status);
    if (TF_GetCode(status) == ok)
      TF_ShapeInferenceContextSetOutput(context, static_cast<int>(i), handle, status);
  }
  TF_DeleteShapeHandle(handle);
}

void unknown_shapes(TF_ShapeInferenceContext* context, TF_Status* status) {
  TF_ShapeInferenceContextSetUnknownShape(context, status);
}

void scalar(TF_ShapeInferenceContext* context, TF_Status* status) {
  TF_ShapeHandle* const handle = TF_ShapeInferenceContextScalar(context);
  TF_ShapeInferenceContextSetOutput(context, 0, handle, status);
  TF_DeleteShapeHandle(handle);
}

struct Definition {
  const char* name;
  std::initializer_list<const char*> inputs, outputs;
  std::vector<const char*> attributes;
  void (*shapes)(TF_ShapeInferenceContext*, TF_Status*);
  TF_KernelBuilder* kernel;
};

void define(const Definition& definition) {
  const Status status(TF_NewStatus());
  TF_OpDefinitionBuilder* const builder = TF_NewOpDefinitionBuilder(definition.name);
  for (const char* const attribute : definition.attributes) TF_OpDefinitionBuilderAddAttr(builder, attribute);
  for (const char* const input : definition.inputs) TF_OpDefinitionBuilderAddInput(builder, input);
  for (const char* const output : definition.outputs) TF_OpDefinitionBuilderAddOutput(builder, output);
  TF_OpDefinitionBuilderSetIsStateful(builder, true);  // not to be left out, or done once for two
  TF_OpDefinitionBuilderSetShapeInferenceFunction(builder, definition.shapes);
  TF_RegisterOpDefinition(builder, status.get());
  TF_RegisterKernelBuilder(definition.name, definition.kernel, status.get());
}

template <int operation>
void define_collective(const char* name, std::initializer_list<const char*> inputs,
                       std::initializer_list<const char*> outputs,
                       void (*shapes)(TF_ShapeInferenceContext*, TF_Status*), bool has_several = false) {
  std::vector<const char*> attributes = {
      types,           "tensor_name: string",    "process_set: int = 0", "reduce_op: int = 0",
      "root: int = 0", "scales: string = '1 1'", "waits: bool = false"};
  if (has_several) attributes.push_back("N: int >= 1");
  define({.name = name,
          .inputs = inputs,
          .outputs = outputs,
          .attributes = std::move(attributes),
          .shapes = shapes,
          .kernel = TF_NewAsyncKernelBuilder(name, "CPU", &create<operation>, &compute, &remove)});
}

/// Of a number that is asked for when it is needed, since it may change from one world to the next.
struct Place {
  std::int32_t lockstep_place::*number = nullptr;
  int set = 0;
};

void* create_place(TF_OpKernelConstruction* construction) {
  return made_by(construction, [](TF_OpKernelConstruction* context, const Status& status) {
    constexpr std::array numbers = {&lockstep_place::rank,       &lockstep_place::size,
                                    &lockstep_place::local_rank, &lockstep_place::local_size,
                                    &lockstep_place::cross_rank, &lockstep_place::cross_size};
    const auto which = static_cast<std::size_t>(number_attribute(context, "which", status));
    return new Place{.number = numbers[std::min(which, numbers.size() - 1)],
                     .set = number_attribute(context, "process_set", status)};
  });
}

void compute_place(void* kernel, TF_OpKernelContext* context) {
  try {
    const auto& place = *static_cast<const Place*>(kernel);
    lockstep_place found{};
    require(lockstep_set_place(place.set, &found));
    const Status status(TF_NewStatus());
    constexpr int int32 = 3;
    const Tensor output(TF_AllocateOutput(context, 0, int32, nullptr, 0, sizeof(std::int32_t), status.get()));
    require(status);
    *static_cast<std::int32_t*>(TF_TensorData(output.get())) = found.*place.number;
  } catch (const Failure& failure) {
    fail(context, failure);
  }
}

/// TensorFlow takes what is registered while it loads this library.
[[maybe_unused]] const bool is_registered = [] {
  define_collective<LOCKSTEP_NAMED_ALL_REDUCE>("LockstepAllreduce", {"tensor: T"}, {"sum: T"}, &same_shapes);
  define_collective<LOCKSTEP_NAMED_ALL_REDUCE>("LockstepGroupedAllreduce", {"tensors: N * T"},
                                               {"sums: N * T"}, &same_shapes, true);
  define_collective<LOCKSTEP_NAMED_BROADCAST>("LockstepBroadcast", {"tensor: T"}, {"output: T"},
                                              &same_shapes);
  define_collective<LOCKSTEP_NAMED_ALL_GATHER>("LockstepAllgather", {"tensor: T"}, {"output: T"},
                                               &unknown_shapes);
  define_collective<LOCKSTEP_NAMED_REDUCE_SCATTER>("LockstepReducescatter", {"tensor: T"}, {"output: T"},
                                                   &unknown_shapes);
  define_collective<LOCKSTEP_NAMED_ALL_TO_ALL>("LockstepAlltoall", {"tensor: T", "splits: int32"},
                                               {"output: T", "received_splits: int32"}, &unknown_shapes);
  define({.name = "LockstepPlace",
          .inputs = {},
          .outputs = {"number: int32"},
          .attributes = {"which: int", "process_set: int = 0"},
          .shapes = &scalar,
          .kernel = TF_NewKernelBuilder("LockstepPlace", "CPU", &create_place, &compute_place,
                                        [](void* place) { delete static_cast<Place*>(place); })});
  return true;
}();

}  // namespace
}  // namespace lockstep_tensorflow

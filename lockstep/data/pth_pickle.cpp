#include "lockstep/data/pth_pickle.h"

#include <fmt/core.h>

#include <algorithm>
#include <limits>
#include <map>
#include <set>
#include <utility>

#include "lockstep/base/byte_codec.h"
#include "lockstep/base/error.h"
#include "lockstep/base/quote.h"
#include "lockstep/data/pickle.h"

namespace lockstep {
namespace {

constexpr std::string_view rebuild_tensor = "torch._utils._rebuild_tensor_v2";
constexpr std::string_view rebuild_typed_tensor = "torch._utils._rebuild_tensor_v3";
constexpr std::string_view rebuild_parameter = "torch._utils._rebuild_parameter";
constexpr std::string_view storage_of_bytes = "torch.storage.UntypedStorage";

/// A type of elements is told by the class of the storage, or, where there is none for it, beside a storage
/// of bytes (_rebuild_tensor_v3).
struct Type {
  Dtype dtype;
  std::string_view name;
  bool has_storage_class = true;
};

constexpr Type types[] = {
    {Dtype::u8, "torch.ByteStorage"},
    {Dtype::i8, "torch.CharStorage"},
    {Dtype::i16, "torch.ShortStorage"},
    {Dtype::i32, "torch.IntStorage"},
    {Dtype::i64, "torch.LongStorage"},
    {Dtype::f16, "torch.HalfStorage"},
    {Dtype::bf16, "torch.BFloat16Storage"},
    {Dtype::f32, "torch.FloatStorage"},
    {Dtype::f64, "torch.DoubleStorage"},
    {Dtype::boolean, "torch.BoolStorage"},
    {Dtype::complex64, "torch.ComplexFloatStorage"},
    {Dtype::complex128, "torch.ComplexDoubleStorage"},
    {Dtype::u16, "torch.uint16", false},
    {Dtype::u32, "torch.uint32", false},
    {Dtype::u64, "torch.uint64", false},
};

std::vector<PickleGlobal> known_globals() {
  std::vector<PickleGlobal> known = {
      {rebuild_tensor, true}, {rebuild_typed_tensor, true}, {rebuild_parameter, true}, {storage_of_bytes}};
  for (const Type& type : types) known.push_back({type.name});
  return known;
}

class Decoder {
 public:
  Decoder(const Pickle& pickle, std::string_view file) : pickle_(pickle), file_(file) {}

  PthIndex run(const std::string& key) {
    const PickleValue& dict = dict_under(key);
    require_tensors(dict, key);
    std::set<std::string_view> names;
    for (std::size_t i = 0; i < dict.items.size(); i += 2) {
      const std::string& name = pickle_.at(dict.items[i]).text;
      tensor_ = name;
      if (!names.insert(name).second) refuse("each name once", "it twice");
      index_.tensors.push_back(tensor(pickle_.at(dict.items[i + 1])));
    }
    return std::move(index_);
  }

 private:
  using Number = std::uint32_t;
  using Numbers = std::vector<Number>;

  [[noreturn]] void invalid(const std::string& what) const {
    throw Error(ErrorCode::invalid_argument, fmt::format("{}: {}", file_, what));
  }
  [[noreturn]] void fail(ErrorCode code, const std::string& what) const {
    throw Error(code, fmt::format("{}: tensor {}: {}", file_, base::quote(tensor_), what));
  }
  [[noreturn]] void refuse(const std::string& expected, const std::string& found) const {
    fail(ErrorCode::corrupt_data, fmt::format("expected {}, found {}", expected, found));
  }

  // The dict.

  std::string describe_entry(const PickleValue& dict, std::size_t at) const {
    const PickleValue& key = pickle_.at(dict.items[at]);
    const PickleValue& value = pickle_.at(dict.items[at + 1]);
    return fmt::format("{} ({})", key.kind == PickleKind::text ? base::quote(key.text) : describe(key),
                       value.kind == PickleKind::call ? "a tensor" : describe(value));
  }
  /// Entries that are no tensors come first: they are why the file cannot be read.
  std::string top_level() const {
    constexpr std::size_t shown = 8;
    const PickleValue& root = pickle_.at(pickle_.root);
    if (root.items.empty()) return "at the top level it has nothing";
    std::vector<std::size_t> places;
    for (const bool are_tensors : {false, true}) {
      for (std::size_t i = 0; i < root.items.size(); i += 2) {
        if ((pickle_.at(root.items[i + 1]).kind == PickleKind::call) == are_tensors) places.push_back(i);
      }
    }
    std::string text = "at the top level it has " + describe_entry(root, places.front());
    for (std::size_t i = 1; i < std::min(places.size(), shown); ++i)
      text += ", " + describe_entry(root, places[i]);
    if (places.size() > shown) text += fmt::format(" and {} more", places.size() - shown);
    return text;
  }
  const PickleValue& dict_under(const std::string& key) const {
    const PickleValue& root = pickle_.at(pickle_.root);
    if (root.kind != PickleKind::dict) {
      invalid(fmt::format("it holds {} and no dict of tensors; save model.state_dict()",
                          root.kind == PickleKind::call ? "a tensor" : describe(root)));
    }
    if (key.empty()) return root;
    for (std::size_t i = 0; i < root.items.size(); i += 2) {
      const PickleValue& found = pickle_.at(root.items[i]);
      if (found.kind != PickleKind::text || found.text != key) continue;
      const PickleValue& value = pickle_.at(root.items[i + 1]);
      if (value.kind == PickleKind::dict) return value;
      invalid(fmt::format("under the key {} is no dict of tensors; {}", base::quote(key), top_level()));
    }
    invalid(fmt::format("it has nothing under the key {}; {}", base::quote(key), top_level()));
  }
  bool is_tensor(const PickleValue& dict, std::size_t at) const {
    return pickle_.at(dict.items[at]).kind == PickleKind::text &&
           pickle_.at(dict.items[at + 1]).kind == PickleKind::call;
  }
  void require_tensors(const PickleValue& dict, const std::string& key) const {
    for (std::size_t i = 0; i < dict.items.size(); i += 2) {
      if (is_tensor(dict, i)) continue;
      if (!key.empty()) {
        invalid(fmt::format("what is under the key {} has {}, which is no tensor under a name",
                            base::quote(key), describe_entry(dict, i)));
      }
      invalid(fmt::format("it is no plain state dict: {}; {}", top_level(), remedy(dict)));
    }
  }
  std::string remedy(const PickleValue& dict) const {
    for (std::size_t i = 0; i < dict.items.size(); i += 2) {
      const PickleValue& key = pickle_.at(dict.items[i]);
      if (key.kind == PickleKind::text && pickle_.at(dict.items[i + 1]).kind == PickleKind::dict)
        return fmt::format("to read a dict in it pass its key, such as {}", base::quote(key.text));
    }
    return "save model.state_dict() alone";
  }

  // A tensor in it.

  const PickleValue& expect(Number number, PickleKind kind, const char* what) const {
    const PickleValue& value = pickle_.at(number);
    if (value.kind != kind) refuse(what, describe(value));
    return value;
  }
  const std::string& function_of(const PickleValue& call) const { return pickle_.at(call.items[0]).text; }
  const Numbers& arguments_of(const PickleValue& call, std::size_t count, std::size_t optional) const {
    const Numbers& arguments = pickle_.at(call.items[1]).items;
    if (arguments.size() < count || arguments.size() > count + optional)
      refuse(fmt::format("{} arguments of {}", count, function_of(call)),
             fmt::format("{}", arguments.size()));
    return arguments;
  }
  std::int64_t count(Number number, const char* what) const {
    const PickleValue& value = expect(number, PickleKind::integer, what);
    if (value.integer < 0) refuse(fmt::format("{} of at least 0", what), fmt::format("{}", value.integer));
    return value.integer;
  }
  std::vector<std::int64_t> counts(Number number, const char* what) const {
    const Numbers& items = expect(number, PickleKind::tuple, what).items;
    if (items.size() > pth_most_dimensions)
      refuse(fmt::format("{} of at most {} dimensions", what, pth_most_dimensions),
             fmt::format("{}", items.size()));
    std::vector<std::int64_t> found;
    for (const Number item : items) found.push_back(count(item, what));
    return found;
  }

  PthTensor tensor(const PickleValue& value) {
    const PickleValue* call = &value;
    if (function_of(*call) == rebuild_parameter)
      call = &expect(arguments_of(*call, 3, 0)[0], PickleKind::call, "a tensor in a parameter");
    if (function_of(*call) == rebuild_parameter) refuse("a tensor in a parameter", "a parameter");
    const bool has_type = function_of(*call) == rebuild_typed_tensor;
    const std::size_t required = has_type ? 7 : 6;
    const Numbers& arguments = arguments_of(*call, required, 1);
    PthTensor tensor{.name = tensor_};
    tensor.offset = count(arguments[1], "an offset");
    tensor.shape = counts(arguments[2], "a shape");
    tensor.strides = counts(arguments[3], "strides");
    if (tensor.strides.size() != tensor.shape.size())
      refuse(fmt::format("{} strides", tensor.shape.size()), fmt::format("{}", tensor.strides.size()));
    (void)expect(arguments[4], PickleKind::boolean, "whether it wants a gradient");
    if (!expect(arguments[5], PickleKind::dict, "a dict of hooks").items.empty())
      fail(ErrorCode::unsupported, "it has hooks; save it without");
    if (arguments.size() > required && pickle_.at(arguments[required]).kind != PickleKind::none &&
        !expect(arguments[required], PickleKind::dict, "a dict of flags").items.empty()) {
      fail(ErrorCode::unsupported,
           "it is conjugated or negated only when it is read; save what .resolve_conj() "
           "and .resolve_neg() return");
    }
    const PickleValue& id = expect(arguments[0], PickleKind::persistent, "a storage");
    const Numbers& place = expect(id.items[0], PickleKind::tuple, "the place of a storage").items;
    if (place.size() != 5 || pickle_.at(place[0]).text != "storage")
      refuse("the place of a storage in five parts", fmt::format("{}", place.size()));
    tensor.dtype = dtype(place[1], has_type ? &arguments[6] : nullptr);
    tensor.storage = storage(place, has_type ? 1 : size_of(tensor.dtype));
    PthStorage& storage = index_.storages[tensor.storage];
    storage.has_bools = storage.has_bools || tensor.dtype == Dtype::boolean;
    require_inside(tensor, storage);
    return tensor;
  }
  Dtype dtype(Number storage_class, const Number* beside) const {
    const PickleValue& storage = expect(storage_class, PickleKind::global, "the class of a storage");
    if (beside != nullptr && storage.text != storage_of_bytes)
      refuse(std::string(storage_of_bytes), storage.text);
    const PickleValue& type =
        beside != nullptr ? expect(*beside, PickleKind::global, "a type of elements") : storage;
    for (const Type& known : types) {
      if (known.name == type.text && known.has_storage_class == (beside == nullptr)) return known.dtype;
    }
    refuse("a type of elements", type.text);
  }
  std::size_t storage(const Numbers& place, std::size_t element_bytes) {
    const std::string& key = expect(place[2], PickleKind::text, "the key of a storage").text;
    const std::int64_t elements = count(place[4], "a number of elements");
    std::uint64_t bytes = 0;
    if (__builtin_mul_overflow(static_cast<std::uint64_t>(elements), element_bytes, &bytes))
      refuse("a storage of less than 2^64 bytes", fmt::format("{} elements", elements));
    const auto [found, is_new] = numbers_.try_emplace(key, index_.storages.size());
    if (is_new) index_.storages.push_back({.key = key, .bytes = bytes});
    if (const auto before = index_.storages[found->second].bytes; before != bytes)
      refuse(fmt::format("storage {} of {} bytes as before", base::quote(key), before),
             fmt::format("{}", bytes));
    return found->second;
  }
  void require_inside(const PthTensor& tensor, const PthStorage& storage) const {
    const auto element = static_cast<std::int64_t>(size_of(tensor.dtype));
    std::int64_t bytes = element, last = tensor.offset;
    bool is_empty = false, overflow = false;
    for (std::size_t i = 0; i < tensor.shape.size(); ++i) {
      const std::int64_t size = std::max<std::int64_t>(tensor.shape[i], 1);
      std::int64_t reach = 0;
      is_empty = is_empty || tensor.shape[i] == 0;
      overflow = __builtin_mul_overflow(bytes, size, &bytes) || overflow;
      overflow = __builtin_mul_overflow(size - 1, tensor.strides[i], &reach) || overflow;
      overflow = __builtin_add_overflow(last, reach, &last) || overflow;
    }
    std::int64_t end = is_empty ? tensor.offset : last;
    overflow = __builtin_add_overflow(end, is_empty ? 0 : 1, &end) || overflow;
    overflow = __builtin_mul_overflow(end, element, &end) || overflow;
    if (overflow || static_cast<std::uint64_t>(end) > storage.bytes) {
      refuse(
          fmt::format("its elements in the {} bytes of storage {}", storage.bytes, base::quote(storage.key)),
          overflow ? "one beyond 2^63" : fmt::format("one that ends at byte {}", end));
    }
    if (static_cast<std::uint64_t>(bytes) > std::max(storage.bytes, pth_most_expanded_bytes)) {
      fail(ErrorCode::unsupported,
           fmt::format("it repeats the {} bytes of its storage until they are {}; up to {} are read",
                       storage.bytes, bytes, pth_most_expanded_bytes));
    }
  }

  const Pickle& pickle_;
  std::string_view file_;
  std::string tensor_;  ///< the name of the one that is being read
  PthIndex index_;
  std::map<std::string, std::size_t> numbers_;  ///< of storages, by key
};

class Encoder {
 public:
  std::vector<std::byte> run(const PthIndex& index) {
    op('\x80');
    op('\x02');
    empty_ordered_dict();
    op('(');
    for (const PthTensor& tensor : index.tensors) {
      text(tensor.name);
      put(tensor, index.storages[tensor.storage]);
    }
    op('u');
    op('.');
    return std::move(bytes_);
  }

 private:
  void op(char opcode) { bytes_.push_back(static_cast<std::byte>(opcode)); }
  void text(std::string_view content) {
    op('X');
    base::append_with_length(bytes_, content);
  }
  void global(std::string_view name) {
    const auto dot = name.rfind('.');
    op('c');
    base::append_text(bytes_, name.substr(0, dot));
    op('\n');
    base::append_text(bytes_, name.substr(dot + 1));
    op('\n');
  }
  void empty_ordered_dict() {
    global(pickle_ordered_dict);
    op(')');
    op('R');
  }
  void integer(std::int64_t value) {
    if (value <= std::numeric_limits<std::uint8_t>::max()) {
      op('K');
      base::append_number(bytes_, static_cast<std::uint8_t>(value));
    } else if (value <= std::numeric_limits<std::int32_t>::max()) {
      op('J');
      base::append_number(bytes_, static_cast<std::int32_t>(value));
    } else {
      op('\x8a');
      base::append_number(bytes_, std::uint8_t{8});
      base::append_number(bytes_, value);
    }
  }
  void tuple(std::span<const std::int64_t> values) {
    op('(');
    for (const auto value : values) integer(value);
    op('t');
  }
  void put(const PthTensor& tensor, const PthStorage& storage) {
    const Type& type = *std::ranges::find(types, tensor.dtype, &Type::dtype);
    global(type.has_storage_class ? rebuild_tensor : rebuild_typed_tensor);
    op('(');
    op('(');
    text("storage");
    global(type.has_storage_class ? type.name : storage_of_bytes);
    text(storage.key);
    text("cpu");
    integer(static_cast<std::int64_t>(storage.bytes / (type.has_storage_class ? size_of(tensor.dtype) : 1)));
    op('t');
    op('Q');
    integer(tensor.offset);
    tuple(tensor.shape);
    tuple(tensor.strides);
    op('\x89');            // no gradient
    empty_ordered_dict();  // no hooks
    if (!type.has_storage_class) global(type.name);
    op('t');
    op('R');
  }

  std::vector<std::byte> bytes_;
};

}  // namespace

PthIndex decode_pth_pickle(std::span<const std::byte> bytes, std::string_view name, const std::string& key) {
  static const std::vector<PickleGlobal> known = known_globals();
  const Pickle pickle = parse_pickle(bytes, fmt::format("{}: data.pkl", name), known);
  return Decoder(pickle, name).run(key);
}

std::vector<std::byte> encode_pth_pickle(const PthIndex& index) { return Encoder().run(index); }

}  // namespace lockstep

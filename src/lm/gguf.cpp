// GgufFile: values of the metadata, and tensors, which are parts of the mapped file or decoded.
#include "firn/lm/gguf.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <string_view>
#include <utility>

#include "base/check.h"
#include "firn/ops/ops.h"
#include "io/file/file_tensor.h"
#include "io/json.h"
#include "kernels/lm.h"
#include "lm/gguf_header.h"
#include "tensor/impl.h"

namespace firn::lm {
namespace {
constexpr const char* kOp = "GgufFile";
}  // namespace

namespace detail {

using io::quoted_for_message;

/// Returns the positions of `all`, sorted by their names in the header.
template <class T>
std::vector<std::uint32_t> order_of_names(const GgufHeader& header, const std::vector<T>& all,
                                          HeaderPiece T::*name) {
  std::vector<std::uint32_t> order(all.size());
  std::iota(order.begin(), order.end(), 0u);
  std::sort(order.begin(), order.end(), [&](std::uint32_t a, std::uint32_t b) {
    return header.text(all[a].*name) < header.text(all[b].*name);
  });
  return order;
}

/// The file with its header, and the names of keys and tensors in order.
class GgufContents {
 public:
  GgufContents(const std::string& path, bool map)
      : file_(kOp, path),
        header_(read_gguf_header(file_)),
        fields_by_name_(order_of_names(header_, header_.fields, &GgufField::key)),
        tensors_by_name_(order_of_names(header_, header_.tensors, &GgufTensor::name)) {
    if (map) map_ = file_.map();
  }

  const GgufHeader& header() const noexcept { return header_; }
  const std::string& path() const noexcept { return file_.path(); }

  const GgufField* find_field(std::string_view key) const noexcept {
    return find(header_.fields, fields_by_name_, &GgufField::key, key);
  }
  const GgufTensor* find_tensor(std::string_view name) const noexcept {
    return find(header_.tensors, tensors_by_name_, &GgufTensor::name, name);
  }
  const GgufField& field(const std::string& key) const {
    const GgufField* const found = find_field(key);
    if (!found)
      file_.fail(fmt::format("has no key {}", quoted_for_message(key)), "entries() lists its keys");
    return *found;
  }
  const GgufTensor& tensor(const std::string& name) const {
    const GgufTensor* const found = find_tensor(name);
    if (!found)
      file_.fail(fmt::format("has no tensor {}", quoted_for_message(name)),
                 "names() lists its tensors");
    return *found;
  }
  /// Returns the tensor, or throws if firn does not read its type.
  const GgufTensor& readable(const std::string& name) const {
    const GgufTensor& found = tensor(name);
    if (block_elements(found.type) == 0)
      file_.fail(fmt::format("{} is {}, which firn does not read", quoted_for_message(name),
                             to_string(found.type)),
                 "quantise the model to Q8_0, Q4_0, Q4_1, or to Q4_K or Q6_K alone");
    return found;
  }

  Tensor elements(const GgufTensor& tensor, const Shape& shape, DType dtype) const {
    return io::file_tensor(kOp, file_, map_, tensor.begin, shape, dtype);
  }

  template <class T>
  T number_at(std::size_t byte) const noexcept {
    T value;
    std::memcpy(&value, header_.bytes.data() + byte, sizeof value);
    return value;
  }
  std::int64_t integer_at(const GgufField& field, std::size_t byte) const;
  double real_at(const GgufField& field, std::size_t byte) const noexcept {
    return field.element_type == GgufValueType::f64 ? number_at<double>(byte)
                                                    : number_at<float>(byte);
  }
  /// Returns the text at a byte, and passes it.
  std::string_view pass_text(std::size_t& byte) const noexcept {
    const HeaderPiece piece{byte + 8, number_at<std::uint64_t>(byte)};
    byte = piece.begin + piece.bytes;
    return header_.text(piece);
  }

  /// Throws that `key` has a value of another type.
  [[noreturn]] void wrong_type(const std::string& key, const char* expected) const;
  [[noreturn]] void wrong_value(const std::string& key, const std::string& value,
                                const std::string& expected) const {
    file_.fail(fmt::format("{} is {}; expected {}", quoted_for_message(key), value, expected));
  }

  /// Returns the elements of an array, of which `read` makes one from its byte in the header.
  template <class T, class Is, class Read>
  std::vector<T> numbers(const std::string& key, const char* expected, Is is, Read read) const {
    const GgufField& f = field(key);
    if (f.type != GgufValueType::array || !is(f.element_type)) wrong_type(key, expected);
    std::vector<T> all(f.count);
    for (std::size_t i = 0; i < all.size(); ++i)
      all[i] = read(f, f.begin + i * size_of(f.element_type));
    return all;
  }

 private:
  template <class T>
  const T* find(const std::vector<T>& all, const std::vector<std::uint32_t>& order,
                HeaderPiece T::*name, std::string_view wanted) const noexcept {
    const auto found = std::lower_bound(
        order.begin(), order.end(), wanted,
        [&](std::uint32_t i, std::string_view text) { return header_.text(all[i].*name) < text; });
    if (found == order.end() || header_.text(all[*found].*name) != wanted) return nullptr;
    return &all[*found];
  }

  io::InputFile file_;
  GgufHeader header_;
  std::vector<std::uint32_t> fields_by_name_, tensors_by_name_;
  Ref<Storage> map_;  ///< mapped file; null: the file is read
};

namespace {

bool is_text(GgufValueType t) { return t == GgufValueType::string; }
bool is_flag(GgufValueType t) { return t == GgufValueType::boolean; }
bool is_real(GgufValueType t) { return t == GgufValueType::f32 || t == GgufValueType::f64; }
bool is_integer(GgufValueType t) { return size_of(t) != 0 && !is_flag(t) && !is_real(t); }

std::string describe(const GgufField& f) {
  return f.type == GgufValueType::array
             ? fmt::format("an array of {} {}", f.count, to_string(f.element_type))
             : to_string(f.type);
}

GgufEntry entry_of(const GgufHeader& header, const GgufField& f) {
  return {std::string(header.text(f.key)), f.type, f.element_type, f.count};
}

}  // namespace

std::int64_t GgufContents::integer_at(const GgufField& field, std::size_t byte) const {
  switch (field.element_type) {
    case GgufValueType::u8:
      return number_at<std::uint8_t>(byte);
    case GgufValueType::i8:
      return number_at<std::int8_t>(byte);
    case GgufValueType::u16:
      return number_at<std::uint16_t>(byte);
    case GgufValueType::i16:
      return number_at<std::int16_t>(byte);
    case GgufValueType::u32:
      return number_at<std::uint32_t>(byte);
    case GgufValueType::i32:
      return number_at<std::int32_t>(byte);
    case GgufValueType::i64:
      return number_at<std::int64_t>(byte);
    default: {
      const auto value = number_at<std::uint64_t>(byte);
      if (value > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()))
        wrong_value(std::string(header_.text(field.key)), std::to_string(value),
                    "a number below 2^63");
      return static_cast<std::int64_t>(value);
    }
  }
}

void GgufContents::wrong_type(const std::string& key, const char* expected) const {
  wrong_value(key, describe(field(key)), expected);
}

}  // namespace detail

using detail::GgufField;
using detail::GgufTensor;

GgufFile::GgufFile(const std::string& path, const io::ReadOptions& options) try
    : contents_(std::make_shared<const detail::GgufContents>(path, options.map)) {}
FIRN_OUT_OF_MEMORY(kOp)

const std::string& GgufFile::path() const noexcept { return contents_->path(); }
std::uint32_t GgufFile::version() const noexcept { return contents_->header().version; }

std::vector<GgufEntry> GgufFile::entries() const try {
  std::vector<GgufEntry> all;
  for (const GgufField& f : contents_->header().fields)
    all.push_back(detail::entry_of(contents_->header(), f));
  return all;
}
FIRN_OUT_OF_MEMORY(kOp)

GgufEntry GgufFile::entry(const std::string& key) const try {
  return detail::entry_of(contents_->header(), contents_->field(key));
}
FIRN_OUT_OF_MEMORY(kOp)

bool GgufFile::has(const std::string& key) const noexcept {
  return contents_->find_field(key) != nullptr;
}

std::string GgufFile::text(const std::string& key) const try {
  const GgufField& f = contents_->field(key);
  if (!detail::is_text(f.type)) contents_->wrong_type(key, "STRING");
  std::size_t at = f.begin;
  return std::string(contents_->pass_text(at));
}
FIRN_OUT_OF_MEMORY(kOp)

bool GgufFile::flag(const std::string& key) const try {
  const GgufField& f = contents_->field(key);
  if (!detail::is_flag(f.type)) contents_->wrong_type(key, "BOOL");
  return contents_->number_at<bool>(f.begin);
}
FIRN_OUT_OF_MEMORY(kOp)

std::int64_t GgufFile::integer(const std::string& key, std::int64_t least, std::int64_t most) const
    try {
  const GgufField& f = contents_->field(key);
  if (!detail::is_integer(f.type)) contents_->wrong_type(key, "a whole number");
  const std::int64_t value = contents_->integer_at(f, f.begin);
  if (value < least || value > most)
    contents_->wrong_value(key, std::to_string(value), fmt::format("{} to {}", least, most));
  return value;
}
FIRN_OUT_OF_MEMORY(kOp)

double GgufFile::real(const std::string& key) const try {
  const GgufField& f = contents_->field(key);
  if (!detail::is_real(f.type)) contents_->wrong_type(key, "FLOAT32 or FLOAT64");
  return contents_->real_at(f, f.begin);
}
FIRN_OUT_OF_MEMORY(kOp)

std::vector<std::string> GgufFile::texts(const std::string& key) const try {
  std::size_t at = contents_->field(key).begin;
  return contents_->numbers<std::string>(
      key, "an array of STRING", detail::is_text,
      [&](const GgufField&, std::size_t) { return std::string(contents_->pass_text(at)); });
}
FIRN_OUT_OF_MEMORY(kOp)

std::vector<bool> GgufFile::flags(const std::string& key) const try {
  return contents_->numbers<bool>(
      key, "an array of BOOL", detail::is_flag,
      [&](const GgufField&, std::size_t at) { return contents_->number_at<bool>(at); });
}
FIRN_OUT_OF_MEMORY(kOp)

std::vector<std::int64_t> GgufFile::integers(const std::string& key) const try {
  return contents_->numbers<std::int64_t>(
      key, "an array of whole numbers", detail::is_integer,
      [&](const GgufField& f, std::size_t at) { return contents_->integer_at(f, at); });
}
FIRN_OUT_OF_MEMORY(kOp)

std::vector<double> GgufFile::reals(const std::string& key) const try {
  return contents_->numbers<double>(
      key, "an array of FLOAT32 or FLOAT64", detail::is_real,
      [&](const GgufField& f, std::size_t at) { return contents_->real_at(f, at); });
}
FIRN_OUT_OF_MEMORY(kOp)

std::vector<std::string> GgufFile::names() const try {
  std::vector<std::string> all;
  for (const GgufTensor& t : contents_->header().tensors)
    all.emplace_back(contents_->header().text(t.name));
  return all;
}
FIRN_OUT_OF_MEMORY(kOp)

bool GgufFile::contains(const std::string& name) const noexcept {
  return contents_->find_tensor(name) != nullptr;
}

const Shape& GgufFile::shape(const std::string& name) const {
  return contents_->tensor(name).shape;
}

GgufType GgufFile::type(const std::string& name) const { return contents_->tensor(name).type; }

Tensor GgufFile::read(const std::string& name) const {
  const GgufType type = contents_->readable(name).type;
  return read(name, type == GgufType::f16 ? f16 : type == GgufType::bf16 ? bf16 : f32);
}

Tensor GgufFile::read(const std::string& name, DType dtype) const try {
  FIRN_CHECK(is_floating(dtype), kOp, "read it as f32, and cast that", "{} as {}",
             io::quoted_for_message(name), dtype);
  const GgufTensor& t = contents_->readable(name);
  if (block_elements(t.type) == 1) {
    const DType own = t.type == GgufType::f32 ? f32 : t.type == GgufType::f16 ? f16 : bf16;
    return contents_->elements(t, t.shape, own).to(dtype);
  }
  const Tensor y = empty(t.shape, dtype, Device::cpu());
  kernels::dequantize(blocks(name).view(), t.type, y.mutable_view(), current_stream(Device::cpu()));
  return y;
}
FIRN_OUT_OF_MEMORY(kOp)

Tensor GgufFile::blocks(const std::string& name) const try {
  const GgufTensor& t = contents_->readable(name);
  Shape shape = t.shape;
  if (shape.empty()) shape.push_back(1);
  std::int64_t& row = shape.back();
  row = row / block_elements(t.type) * block_bytes(t.type);
  return contents_->elements(t, shape, u8);
}
FIRN_OUT_OF_MEMORY(kOp)

}  // namespace firn::lm

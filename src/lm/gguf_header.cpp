// Each count and length is compared with the rest of the file before memory is allocated for it.
#include "lm/gguf_header.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <utility>

#include "base/check.h"
#include "io/json.h"

namespace firn::lm {
namespace {

struct ValueType {
  const char* name;
  std::uint64_t bytes;
};
constexpr ValueType kValueTypes[] = {{"UINT8", 1},  {"INT8", 1},  {"UINT16", 2},  {"INT16", 2},
                                     {"UINT32", 4}, {"INT32", 4}, {"FLOAT32", 4}, {"BOOL", 1},
                                     {"STRING", 0}, {"ARRAY", 0}, {"UINT64", 8},  {"INT64", 8},
                                     {"FLOAT64", 8}};

}  // namespace

const char* to_string(GgufValueType type) noexcept {
  const auto number = static_cast<std::uint32_t>(type);
  return number < std::size(kValueTypes) ? kValueTypes[number].name : "unknown type";
}

namespace detail {

std::uint64_t size_of(GgufValueType type) noexcept {
  const auto number = static_cast<std::uint32_t>(type);
  return number < std::size(kValueTypes) ? kValueTypes[number].bytes : 0;
}

namespace {

using io::quoted_for_message;

/// Arrays of arrays that are this deep are refused: each level is a call of its own.
constexpr int kDeepest = 8;
/// The header is read in pieces of at least so many bytes.
constexpr std::uint64_t kPiece = 1 << 16;
constexpr std::uint64_t kDefaultAlignment = 32;
/// An element has at most 4 bytes, which are elements of GgufFile::blocks().
constexpr auto kMostElements = static_cast<std::uint64_t>(kMaxElements) / 4;

class HeaderReader {
 public:
  explicit HeaderReader(io::InputFile& file) : file_(file) {}

  GgufHeader header() {
    read_magic();
    const auto tensors = count("tensors");
    const auto keys = count("keys");
    for (std::uint64_t i = 0; i < keys; ++i) read_field();
    check_distinct("keys", header_.fields, &GgufField::key);
    const std::uint64_t alignment = read_alignment();
    for (std::uint64_t i = 0; i < tensors; ++i) read_tensor(alignment);
    check_distinct("tensors", header_.tensors, &GgufTensor::name);
    place_tensors((at_ + alignment - 1) / alignment * alignment);
    return std::move(header_);
  }

 private:
  [[noreturn]] void fail(std::size_t byte, const std::string& what,
                         const char* hint = "the file is damaged, or not GGUF; fetch it again") {
    const std::string subject =
        subject_.bytes == 0 ? "" : quoted_for_message(header_.text(subject_)) + ": ";
    file_.fail(fmt::format("byte {}: {}{}", byte, subject, what), hint);
  }

  /// Makes the next `bytes` bytes present, or throws: `what` has them.
  void need(std::uint64_t bytes, const char* what) {
    if (bytes > file_.bytes() - at_)
      fail(at_,
           fmt::format("{} has {} bytes, and {} are left of the file", what, bytes,
                       file_.bytes() - at_),
           "the file is truncated or damaged; fetch it again");
    if (bytes > kLongestHeader - at_)
      fail(at_, fmt::format("{} has {} bytes, and headers of at most {} are read", what, bytes,
                            kLongestHeader));
    const std::uint64_t end = at_ + bytes, present = header_.bytes.size();
    if (end <= present) return;
    const std::uint64_t more = std::max(end - present, std::min(kPiece, file_.bytes() - present));
    header_.bytes.resize(present + more);
    file_.read_all(header_.bytes.data() + present, more);
  }

  template <class T>
  T number(const char* what) {
    need(sizeof(T), what);
    T value;
    std::memcpy(&value, header_.bytes.data() + at_, sizeof value);
    at_ += sizeof value;
    return value;
  }

  HeaderPiece text(const char* what) {
    const auto bytes = number<std::uint64_t>("a length");
    need(bytes, what);
    const HeaderPiece piece{at_, bytes};
    at_ += bytes;
    return piece;
  }

  void read_magic() {
    const char* const hint = "firn reads GGUF of version 2 and 3, little-endian";
    const auto magic = text_of_magic();
    if (header_.text(magic) != "GGUF")
      fail(0,
           fmt::format("the file begins with {}; expected \"GGUF\"",
                       quoted_for_message(header_.text(magic))),
           hint);
    header_.version = number<std::uint32_t>("a version");
    if ((header_.version & 0xffff) == 0 && header_.version != 0)
      fail(4, "the version has its bytes in big-endian order", hint);
    if (header_.version != 2 && header_.version != 3)
      fail(4, fmt::format("the version is {}", header_.version), hint);
  }
  HeaderPiece text_of_magic() {
    need(4, "the beginning");
    at_ += 4;
    return {0, 4};
  }

  std::uint64_t count(const char* what) {
    const std::size_t at = at_;
    const auto value = number<std::uint64_t>("a count");
    if (value > io::kMostNames)
      fail(at, fmt::format("the file declares {} {}, and at most {} are read", value, what,
                           io::kMostNames));
    return value;
  }

  GgufValueType value_type() {
    const std::size_t at = at_;
    const auto type = number<std::uint32_t>("a type");
    if (type >= std::size(kValueTypes))
      fail(at, fmt::format("the type of the value is {}; the types are 0 to {}", type,
                           std::size(kValueTypes) - 1));
    return static_cast<GgufValueType>(type);
  }

  void read_field() {
    subject_ = {};
    GgufField field;
    field.key = subject_ = text("a key");
    field.type = field.element_type = value_type();
    if (field.type == GgufValueType::array) {
      field.element_type = value_type();
      field.count = number<std::uint64_t>("a count");
    }
    field.begin = at_;
    skip(field.element_type, field.count, 1);
    header_.fields.push_back(field);
    subject_ = {};
  }

  /// Checks and passes values of one type; `depth` is the number of arrays around them.
  void skip(GgufValueType type, std::uint64_t count, int depth) {
    if (type == GgufValueType::string) {
      for (std::uint64_t i = 0; i < count; ++i) text("a text");
    } else if (type == GgufValueType::array) {
      if (depth == kDeepest)
        fail(at_, fmt::format("arrays are in arrays, more than {} deep", depth));
      for (std::uint64_t i = 0; i < count; ++i) {
        const GgufValueType inner = value_type();
        skip(inner, number<std::uint64_t>("a count"), depth + 1);
      }
    } else {
      std::uint64_t bytes = 0;
      if (__builtin_mul_overflow(count, size_of(type), &bytes))
        fail(at_, fmt::format("{} elements are more than a file can hold", count));
      need(bytes, "a value");
      if (type == GgufValueType::boolean) check_booleans(count);
      at_ += bytes;
    }
  }

  void check_booleans(std::uint64_t count) {
    for (std::size_t i = at_; i < at_ + count; ++i)
      if (const auto byte = static_cast<unsigned char>(header_.bytes[i]); byte > 1)
        fail(i, fmt::format("a BOOL is {}, neither 0 nor 1", byte));
  }

  /// Throws, naming the second one, if two keys or tensors have one name.
  template <class T>
  void check_distinct(const char* what, const std::vector<T>& all, HeaderPiece T::*name) {
    std::vector<HeaderPiece> names;
    for (const T& one : all) names.push_back(one.*name);
    std::sort(names.begin(), names.end(), [&](HeaderPiece a, HeaderPiece b) {
      const int order = header_.text(a).compare(header_.text(b));
      return order != 0 ? order < 0 : a.begin < b.begin;
    });
    const auto twice = std::adjacent_find(
        names.begin(), names.end(),
        [&](HeaderPiece a, HeaderPiece b) { return header_.text(a) == header_.text(b); });
    if (twice == names.end()) return;
    subject_ = twice[1];
    fail(twice[1].begin, fmt::format("two {} have this name", what));
  }

  std::uint64_t read_alignment() {
    for (const GgufField& field : header_.fields) {
      if (header_.text(field.key) != "general.alignment") continue;
      subject_ = field.key;
      if (field.type != GgufValueType::u32)
        fail(field.begin, fmt::format("the value is {}; expected UINT32", to_string(field.type)));
      std::uint32_t value = 0;
      std::memcpy(&value, header_.bytes.data() + field.begin, sizeof value);
      if (value < 8 || (value & (value - 1)) != 0)
        fail(field.begin, fmt::format("the value is {}; expected a power of two from 8 on", value));
      subject_ = {};
      return value;
    }
    return kDefaultAlignment;
  }

  void read_tensor(std::uint64_t alignment) {
    subject_ = {};
    GgufTensor tensor;
    tensor.name = subject_ = text("a tensor's name");
    read_shape(tensor.shape);
    tensor.type = static_cast<GgufType>(number<std::uint32_t>("a type"));
    if (const std::int64_t elements = block_elements(tensor.type); elements != 0) {
      const std::int64_t row = tensor.shape.empty() ? 1 : tensor.shape.back();
      if (row % elements != 0)
        fail(at_ - 4, fmt::format("in {} {} rows of {} are no multiple of blocks of {}",
                                  tensor.shape, to_string(tensor.type), row, elements));
      tensor.bytes =
          static_cast<std::uint64_t>(tensor.shape.product() / elements * block_bytes(tensor.type));
    }
    tensor.begin = number<std::uint64_t>("an offset");
    if (tensor.begin % alignment != 0)
      fail(at_ - 8, fmt::format("the offset {} is no multiple of the alignment {}", tensor.begin,
                                alignment));
    header_.tensors.push_back(std::move(tensor));
    subject_ = {};
  }

  void read_shape(Shape& shape) {
    const auto rank = number<std::uint32_t>("a number of axes");
    if (rank > static_cast<std::uint32_t>(kMaxRank))
      fail(at_ - 4,
           fmt::format("the tensor has {} axes; firn has tensors of at most {}", rank, kMaxRank));
    std::int64_t sizes[kMaxRank] = {};
    std::uint64_t bound = 1;
    for (std::uint32_t i = 0; i < rank; ++i) {
      const auto size = number<std::uint64_t>("a size");
      if (__builtin_mul_overflow(bound, size == 0 ? 1u : size, &bound) || bound >= kMostElements)
        fail(at_ - 8, fmt::format("the size {} makes too many elements; fewer than 2^54 are read, "
                                  "with sizes of 0 counted as 1",
                                  size));
      sizes[i] = static_cast<std::int64_t>(size);
    }
    for (std::uint32_t i = rank; i > 0; --i) shape.push_back(sizes[i - 1]);
  }

  /// Turns offsets into bytes of the file. Throws unless tensors are within the file, and apart.
  void place_tensors(std::uint64_t data) {
    const std::uint64_t present = file_.bytes() > data ? file_.bytes() - data : 0;
    std::vector<GgufTensor*> order;
    for (GgufTensor& t : header_.tensors) {
      subject_ = t.name;
      if (t.shape.product() == 0) continue;  // nothing is read of it
      if (t.begin > present || t.bytes > present - t.begin)
        fail(t.name.begin,
             fmt::format("the tensor has the offset {} and {} bytes, and the file has {} bytes of "
                         "data, from byte {} on",
                         t.begin, t.bytes, present, data),
             "the file is truncated or damaged; fetch it again");
      t.begin += data;
      order.push_back(&t);
    }
    std::sort(order.begin(), order.end(), [](const GgufTensor* a, const GgufTensor* b) {
      return a->begin != b->begin ? a->begin < b->begin : a->bytes < b->bytes;
    });
    for (std::size_t i = 1; i < order.size(); ++i) {
      const GgufTensor &before = *order[i - 1], &t = *order[i];
      subject_ = t.name;
      if (before.begin + before.bytes > t.begin)
        fail(t.name.begin,
             fmt::format("the tensor overlaps {}, since it begins at byte {}, and that "
                         "one ends at {}",
                         quoted_for_message(header_.text(before.name)), t.begin,
                         before.begin + before.bytes));
    }
  }

  io::InputFile& file_;
  GgufHeader header_;
  std::size_t at_ = 0;
  HeaderPiece subject_;  ///< key or tensor that errors name; empty: none
};

}  // namespace

GgufHeader read_gguf_header(io::InputFile& file) { return HeaderReader(file).header(); }

}  // namespace detail
}  // namespace firn::lm

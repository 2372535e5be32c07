#include "io/npy_header.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <string_view>
#include <utility>

#include "base/check.h"
#include "io/json.h"

namespace firn::io {
namespace {

constexpr std::pair<std::string_view, DType> kNames[] = {
    {"f2", DType::f16}, {"f4", DType::f32}, {"f8", DType::f64},     {"i4", DType::i32},
    {"i8", DType::i64}, {"u1", DType::u8},  {"b1", DType::boolean}, {"i1", DType::i8},
    {"i2", DType::i16}, {"u2", DType::u16}, {"u4", DType::u32}};

constexpr std::string_view kMagic("\x93NUMPY", 6);
/// NumPy writes a few hundred bytes at most for a dtype that firn has.
constexpr std::uint64_t kLongestNpyHeader = 1 << 20;

void read_part(InputFile& in, void* to, std::size_t bytes, const char* what) {
  const std::uint64_t from = in.offset();
  const std::size_t n = in.read(to, bytes);
  if (n == bytes) return;
  in.fail(fmt::format("ends at byte {}, within {}, which takes bytes {} to {}", from + n, what,
                      from, from + bytes - 1),
          "the file is truncated; fetch it again");
}

/// Reads the values that numpy.lib.format writes: strings, True, False, and a tuple of integers.
class HeaderReader {
 public:
  HeaderReader(const char* op, const std::string& path, const std::string& text,
               std::uint64_t offset)
      : op_(op), path_(path), text_(text), offset_(offset) {}

  NpyHeader header() {
    static constexpr std::string_view kKeys[] = {"descr", "fortran_order", "shape"};
    bool seen[3] = {};
    NpyHeader h;
    expect('{');
    while (!accept('}')) {
      const std::size_t at = place();
      const std::string_view key = string();
      const auto* const known = std::find(std::begin(kKeys), std::end(kKeys), key);
      if (known == std::end(kKeys))
        fail(at, fmt::format("unknown key {}", quoted_for_message(key)));
      if (std::exchange(seen[known - std::begin(kKeys)], true))
        fail(at, fmt::format("the key '{}' is there twice", key));
      expect(':');
      if (key == "descr")
        descr(h);
      else if (key == "shape")
        shape(h.shape);
      else
        h.fortran_order = boolean_word();
      if (accept(',')) continue;
      expect('}');
      break;
    }
    skip_space();
    if (at_ != text_.size()) fail(at_, "something follows the dictionary");
    for (int i = 0; i < 3; ++i)
      if (!seen[i]) fail(at_, fmt::format("the key '{}' is missing", kKeys[i]));
    return h;
  }

 private:
  void descr(NpyHeader& h) {
    const std::size_t at = place();
    if (at_ < text_.size() && text_[at_] == '[')
      fail(at, "the array has named fields, which a tensor cannot have", "save one field of it");
    const std::string_view text = string();
    const std::string shown = quoted_for_message(text);
    if (text.ends_with("V2") || text == "bfloat16")
      fail(at,
           fmt::format("dtype {} is how bfloat16 is saved, which is not a dtype of NumPy", shown),
           "save it as float32, or as safetensors");
    const auto name_of = [](std::string_view type) {
      return std::find_if(std::begin(kNames), std::end(kNames),
                          [&](const auto& name) { return name.first == type; });
    };
    const char* const ordered = "it begins with '<' or '>'";
    if (name_of(text) != std::end(kNames))
      fail(at, fmt::format("dtype {} has no byte order", shown), ordered);
    const std::string_view type = text.empty() ? text : text.substr(1);
    const auto* const known = name_of(type);
    if (known != std::end(kNames))
      h.dtype = known->second;
    else
      fail(at, fmt::format("dtype {}, which firn does not have", shown),
           "firn has float16, float32, float64, int8 to int64, uint8 to uint32 and bool");
    const char order = text.front();
    const bool one_byte = type.back() == '1';
    if (order != '<' && order != '>' && order != '=' && !(order == '|' && one_byte))
      fail(at, fmt::format("dtype {} has no byte order", shown),
           one_byte ? "it begins with '|'" : ordered);
    h.big_endian = order == '>';
  }

  void shape(Shape& shape) {
    expect('(');
    std::uint64_t bound = 1;
    bool comma = false;
    while (!accept(')')) {
      if (!shape.empty() && !comma) fail(at_, "expected ',' or ')'");
      const std::size_t at = place();
      const std::uint64_t size = number();
      if (shape.size() == kMaxRank)
        fail(at, fmt::format("more than {} axes, which a tensor cannot have", kMaxRank),
             "reshape the array before it is saved");
      if (__builtin_mul_overflow(bound, size == 0 ? 1u : size, &bound) ||
          bound >= static_cast<std::uint64_t>(kMaxElements))
        fail(at,
             "the sizes make too many elements; a tensor has fewer than 2^56, with sizes of 0 "
             "counted as 1",
             "save a part of the array");
      shape.push_back(static_cast<std::int64_t>(size));
      comma = accept(',');
    }
    if (shape.size() == 1 && !comma) fail(at_ - 1, "a tuple of one size has a comma: (3,)");
  }

  std::uint64_t number() {
    const std::size_t first = at_;
    std::uint64_t value = 0;
    for (; at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9'; ++at_)
      if (__builtin_mul_overflow(value, 10u, &value) ||
          __builtin_add_overflow(value, static_cast<std::uint64_t>(text_[at_] - '0'), &value))
        fail(at_, "a number does not fit in 64 bits");
    if (at_ == first) fail(at_, "expected a whole number");
    if (at_ < text_.size() && text_[at_] == 'L') ++at_;  // NumPy under Python 2 wrote the L
    return value;
  }

  bool boolean_word() {
    skip_space();
    for (const auto& [word, value] : {std::pair{"True", true}, std::pair{"False", false}}) {
      if (!std::string_view(text_).substr(at_).starts_with(word)) continue;
      at_ += std::string_view(word).size();
      return value;
    }
    fail(at_, "expected True or False");
  }

  /// Reads a string without escapes, which neither a key nor a dtype needs.
  std::string_view string() {
    const char quote = accept('\'') ? '\'' : '"';
    if (quote == '"') expect('"');
    const std::size_t end = text_.find(quote, at_);
    if (end == std::string::npos) fail(at_, "a string that does not end");
    const std::string_view text = std::string_view(text_).substr(at_, end - at_);
    if (text.find('\\') != std::string_view::npos) fail(at_, "an escape in a string");
    at_ = end + 1;
    return text;
  }

  void skip_space() {
    while (at_ < text_.size() &&
           std::string_view(" \t\r\n").find(text_[at_]) != std::string_view::npos)
      ++at_;
  }
  std::size_t place() {
    skip_space();
    return at_;
  }
  bool accept(char c) {
    skip_space();
    if (at_ >= text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  void expect(char c) {
    if (!accept(c)) fail(at_, fmt::format("expected '{}'", c));
  }
  [[noreturn]] void fail(std::size_t at, const std::string& what,
                         const std::string& hint = "this is not a .npy file, or it is damaged") {
    throw IoError(op_, path_, fmt::format("header, byte {}: {}", offset_ + at, what), hint);
  }

  const char* op_;
  const std::string& path_;
  const std::string& text_;
  std::uint64_t offset_;
  std::size_t at_ = 0;
};

}  // namespace

NpyHeader read_npy_header(const char* op, InputFile& in) {
  unsigned char start[8] = {};
  read_part(in, start, sizeof start, "the magic string");
  for (std::size_t i = 0; i < kMagic.size(); ++i)
    if (start[i] != static_cast<unsigned char>(kMagic[i]))
      in.fail(fmt::format("byte {} is {:02x}, where {:02x} of the magic string \"\\x93NUMPY\" was "
                          "expected",
                          i, start[i], static_cast<unsigned char>(kMagic[i])),
              "this is not a .npy file");
  const int version = start[6];
  if (version < 1 || version > 3 || start[7] != 0)
    in.fail(fmt::format("byte 6: format version {}.{}, and 1.0, 2.0 and 3.0 are known", version,
                        start[7]),
            "save it by numpy.save() of an older version");
  unsigned char size[4] = {};
  read_part(in, size, version == 1 ? 2 : 4, "the length of the header");
  std::uint64_t length = 0;
  for (int i = 3; i >= 0; --i) length = length << 8 | size[i];
  const std::uint64_t offset = in.offset();
  if (length > in.bytes() - offset || length > kLongestNpyHeader)
    in.fail(fmt::format("byte 8: a header of {} bytes in a file of {}; at most {} are read", length,
                        in.bytes(), kLongestNpyHeader),
            "the file is damaged; fetch it again");
  std::string text(length, '\0');
  in.read_all(text.data(), length);
  return HeaderReader(op, in.path(), text, offset).header();
}

std::string npy_header(const char* op, DType dtype, const Shape& shape) {
  const auto* const known = std::find_if(std::begin(kNames), std::end(kNames),
                                         [&](const auto& name) { return name.second == dtype; });
  FIRN_CHECK(known != std::end(kNames), op, "cast it to f32, which holds every value of it",
             "{} is not a dtype of NumPy", dtype);
  std::string text = fmt::format("{{'descr': '{}{}', 'fortran_order': False, 'shape': ({}{}), }}",
                                 size_of(dtype) == 1 ? '|' : '<', known->first,
                                 fmt::join(shape, ", "), shape.size() == 1 ? "," : "");
  constexpr std::size_t kBefore = 10, kAligned = 64;  // magic, version and length come before
  text.resize((kBefore + text.size() + 1 + kAligned - 1) / kAligned * kAligned - kBefore - 1, ' ');
  text += '\n';
  std::string all(kMagic);
  all += std::string_view("\x01\x00", 2);
  all += static_cast<char>(text.size() & 0xff);
  all += static_cast<char>(text.size() >> 8);
  return all + text;
}

}  // namespace firn::io

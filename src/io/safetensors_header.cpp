// A recursive reader of the few forms that the header has: objects, strings, whole numbers, lists.
#include "io/safetensors_header.h"

#include <fmt/format.h>

#include <set>
#include <utility>

#include "base/check.h"

namespace firn::io {
namespace {

class Reader {
 public:
  Reader(const std::string& path, std::string_view json) : path_(path), json_(json) {}

  std::vector<Entry> header() {
    std::vector<Entry> entries;
    std::set<std::string> seen;
    object([&](const std::string& name) {
      if (!seen.insert(name).second) fail(fmt::format("the name \"{}\" is used twice", name));
      if (name == "__metadata__") {
        object([&](const std::string&) { string(); });
      } else {
        entries.push_back(entry(name));
      }
    });
    skip_space();
    if (at_ != json_.size()) fail("something follows the header's object");
    return entries;
  }

 private:
  Entry entry(const std::string& name) {
    Entry e;
    e.name = name;
    std::set<std::string> seen;
    object([&](const std::string& field) {
      if (!seen.insert(field).second) fail(fmt::format("\"{}\" has two {}", name, field));
      if (field == "dtype") {
        e.dtype = dtype(name, string());
      } else if (field == "shape") {
        std::uint64_t bound = 8;  // bytes of the widest element
        for (const std::uint64_t size : numbers()) {
          if (e.shape.size() == kMaxRank)
            fail(fmt::format("\"{}\" has more than {} axes", name, kMaxRank));
          if (__builtin_mul_overflow(bound, size == 0 ? 1u : size, &bound) || bound >> 62 != 0)
            fail(fmt::format("the sizes of \"{}\" do not fit in 64 bits", name));
          e.shape.push_back(static_cast<std::int64_t>(size));
        }
      } else if (field == "data_offsets") {
        const auto offsets = numbers();
        if (offsets.size() != 2 || offsets[0] > offsets[1])
          fail(fmt::format("the offsets of \"{}\" are not a begin and an end", name));
        e.begin = offsets[0];
        e.end = offsets[1];
      } else {
        fail(fmt::format("\"{}\" has an unknown field \"{}\"", name, field));
      }
    });
    if (seen.size() != 3) fail(fmt::format("\"{}\" lacks dtype, shape or data_offsets", name));
    return e;
  }

  DType dtype(const std::string& name, const std::string& text) const {
    static constexpr std::pair<std::string_view, DType> kNames[] = {
        {"F16", DType::f16}, {"BF16", DType::bf16}, {"F32", DType::f32}, {"F64", DType::f64},
        {"I32", DType::i32}, {"I64", DType::i64},   {"U8", DType::u8},   {"BOOL", DType::boolean}};
    for (const auto& [known, t] : kNames)
      if (known == text) return t;
    fail(fmt::format("\"{}\" has dtype {}, which firn has not", name, text));
  }

  template <class OnName>
  void object(const OnName& on_name) {
    expect('{');
    if (accept('}')) return;
    do {
      const std::string name = string();
      expect(':');
      on_name(name);
    } while (accept(','));
    expect('}');
  }

  std::vector<std::uint64_t> numbers() {
    std::vector<std::uint64_t> out;
    expect('[');
    if (accept(']')) return out;
    do {
      out.push_back(number());
    } while (accept(','));
    expect(']');
    return out;
  }

  std::uint64_t number() {
    skip_space();
    std::uint64_t value = 0;
    const std::size_t first = at_;
    for (; at_ < json_.size() && json_[at_] >= '0' && json_[at_] <= '9'; ++at_) {
      const auto digit = static_cast<std::uint64_t>(json_[at_] - '0');
      if (__builtin_mul_overflow(value, 10u, &value) ||
          __builtin_add_overflow(value, digit, &value))
        fail("a number does not fit in 64 bits");
    }
    if (at_ == first) fail("expected a whole number");
    return value;
  }

  std::string string() {
    expect('"');
    std::string out;
    for (;;) {
      const char c = next();
      if (c == '"') return out;
      if (static_cast<unsigned char>(c) < 0x20) fail("a control byte in a string");
      if (c == '\\') {
        escape(out);
      } else {
        out += c;
      }
    }
  }

  void escape(std::string& out) {
    static constexpr std::string_view kFrom = "\"\\/bfnrt", kTo = "\"\\/\b\f\n\r\t";
    const char c = next();
    if (const auto i = kFrom.find(c); i != std::string_view::npos) {
      out += kTo[i];
    } else if (c == 'u') {
      std::uint32_t code = hex();
      if (code >= 0xd800 && code < 0xdc00) {  // the first half of a pair
        if (next() != '\\' || next() != 'u') fail("half of a surrogate pair");
        const std::uint32_t low = hex();
        if (low < 0xdc00 || low >= 0xe000) fail("half of a surrogate pair");
        code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
      } else if (code >= 0xdc00 && code < 0xe000) {
        fail("half of a surrogate pair");
      }
      append_utf8(out, code);
    } else {
      fail("an unknown escape in a string");
    }
  }

  std::uint32_t hex() {
    std::uint32_t value = 0;
    for (int i = 0; i < 4; ++i) {
      static constexpr std::string_view kDigits = "0123456789abcdef";
      const char c = next();
      const auto digit = kDigits.find(static_cast<char>(c >= 'A' && c <= 'F' ? c + 32 : c));
      if (digit == std::string_view::npos) fail("\\u is not followed by four hexadecimal digits");
      value = value * 16 + static_cast<std::uint32_t>(digit);
    }
    return value;
  }

  static void append_utf8(std::string& out, std::uint32_t code) {
    const auto tail = [&](int shift) { out += static_cast<char>(0x80 | (code >> shift & 0x3f)); };
    if (code < 0x80) {
      out += static_cast<char>(code);
    } else if (code < 0x800) {
      out += static_cast<char>(0xc0 | code >> 6);
      tail(0);
    } else if (code < 0x10000) {
      out += static_cast<char>(0xe0 | code >> 12);
      tail(6), tail(0);
    } else {
      out += static_cast<char>(0xf0 | code >> 18);
      tail(12), tail(6), tail(0);
    }
  }

  char next() {
    if (at_ >= json_.size()) fail("the header ends too early");
    return json_[at_++];
  }
  void skip_space() {
    while (at_ < json_.size() && std::string_view(" \t\r\n").find(json_[at_]) != json_.npos) ++at_;
  }
  bool accept(char c) {
    skip_space();
    if (at_ >= json_.size() || json_[at_] != c) return false;
    ++at_;
    return true;
  }
  void expect(char c) {
    if (!accept(c)) fail(fmt::format("expected '{}'", c));
  }
  [[noreturn]] void fail(const std::string& what) const {
    throw IoError("load_safetensors", path_, fmt::format("header, byte {}: {}", at_, what),
                  "this is not a safetensors file, or it is damaged");
  }

  const std::string& path_;
  std::string_view json_;
  std::size_t at_ = 0;
};

}  // namespace

std::vector<Entry> parse_header(const std::string& path, std::string_view json) {
  return Reader(path, json).header();
}

}  // namespace firn::io

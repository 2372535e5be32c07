// A recursive parser for the JSON values that a header contains: objects, strings, integers, lists.
#include "io/safetensors_header.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace firn::io {
namespace {

class Reader {
 public:
  Reader(const std::string& path, std::string& json) : path_(path), json_(json) {}

  std::vector<Entry> header() {
    std::vector<Entry> entries;
    std::vector<std::string_view> names;
    if (json_.empty() || json_.front() != '{') fail("expected '{'");
    object([&](std::string_view name) {
      add(names, name);
      if (name == kMetadataKey) {
        std::vector<std::string_view> keys;
        object([&](std::string_view key) {
          add(keys, key);
          string();
        });
        check_distinct(keys, "metadata key");
      } else {
        entries.push_back(entry(name));
      }
    });
    skip_space();
    if (at_ != json_.size()) fail("something follows the header's object");
    check_distinct(names, "name");
    return entries;
  }

 private:
  void add(std::vector<std::string_view>& names, std::string_view name) const {
    if (names.size() == kMostNames) fail(fmt::format("has more than {} names", kMostNames));
    names.push_back(name);
  }
  void check_distinct(std::vector<std::string_view>& names, const char* what) const {
    std::sort(names.begin(), names.end());
    const auto twice = std::adjacent_find(names.begin(), names.end());
    if (twice != names.end())
      fail(fmt::format("the {} {} is used twice", what, quoted_for_message(*twice)));
  }

  Entry entry(std::string_view entry_name) {
    Entry e;
    e.name = entry_name;
    const std::string name = quoted_for_message(entry_name);
    static constexpr std::string_view kFields[] = {"dtype", "shape", "data_offsets"};
    bool seen[3] = {};
    object([&](std::string_view field) {
      const auto known = std::find(std::begin(kFields), std::end(kFields), field);
      if (known == std::end(kFields))
        fail(fmt::format("{} has an unknown field {}", name, quoted_for_message(field)));
      if (std::exchange(seen[known - std::begin(kFields)], true))
        fail(fmt::format("{} has two {}", name, field));
      if (field == "dtype") {
        e.dtype = dtype(name, string());
      } else if (field == "shape") {
        std::uint64_t bound = 1;
        for (const std::uint64_t size : numbers()) {
          if (e.shape.size() == kMaxRank)
            fail(fmt::format("{} has more than {} axes", name, kMaxRank));
          if (__builtin_mul_overflow(bound, size == 0 ? 1u : size, &bound) ||
              bound >= static_cast<std::uint64_t>(kMaxElements))
            fail(
                fmt::format("the sizes of {} make too many elements; a tensor has fewer than 2^56, "
                            "with sizes of 0 counted as 1",
                            name));
          e.shape.push_back(static_cast<std::int64_t>(size));
        }
      } else {
        const auto offsets = numbers();
        if (offsets.size() != 2 || offsets[0] > offsets[1])
          fail(fmt::format("the offsets of {} are not a begin and an end", name));
        e.begin = offsets[0];
        e.end = offsets[1];
      }
    });
    if (!(seen[0] && seen[1] && seen[2]))
      fail(fmt::format("{} lacks dtype, shape or data_offsets", name));
    return e;
  }

  DType dtype(const std::string& name, std::string_view text) const {
    static constexpr std::pair<std::string_view, DType> kNames[] = {
        {"F16", DType::f16}, {"BF16", DType::bf16}, {"F32", DType::f32}, {"F64", DType::f64},
        {"I32", DType::i32}, {"I64", DType::i64},   {"U8", DType::u8},   {"BOOL", DType::boolean}};
    for (const auto& [known, t] : kNames)
      if (known == text) return t;
    fail(fmt::format("{} has dtype {}, which firn does not have", name, quoted_for_message(text)));
  }

  template <class OnName>
  void object(const OnName& on_name) {
    expect('{');
    if (accept('}')) return;
    do {
      const std::string_view name = string();
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
      if (out.size() > kMaxRank) fail(fmt::format("a list of more than {} numbers", kMaxRank));
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

  /// The text of a string. Escapes are decoded in place, since the decoded text is never longer.
  std::string_view string() {
    expect('"');
    const std::size_t first = at_;
    std::size_t end = first;
    for (;;) {
      const char c = next();
      if (c == '"') break;
      if (static_cast<unsigned char>(c) < 0x20) fail("a control byte in a string");
      if (c == '\\') {
        escape(end);
      } else {
        json_[end++] = c;
      }
    }
    const std::string_view text = std::string_view(json_).substr(first, end - first);
    if (!is_utf8(text)) fail("a string that is not UTF-8");
    return text;
  }

  void escape(std::size_t& end) {
    static constexpr std::string_view kFrom = "\"\\/bfnrt", kTo = "\"\\/\b\f\n\r\t";
    const char c = next();
    if (const auto i = kFrom.find(c); i != std::string_view::npos) {
      json_[end++] = kTo[i];
    } else if (c == 'u') {
      std::uint32_t code = hex();
      if (code >= 0xd800 && code < 0xdc00) {  // the first half of a surrogate pair
        if (next() != '\\' || next() != 'u') fail("half of a surrogate pair");
        const std::uint32_t low = hex();
        if (low < 0xdc00 || low >= 0xe000) fail("half of a surrogate pair");
        code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
      } else if (code >= 0xdc00 && code < 0xe000) {
        fail("half of a surrogate pair");
      }
      put_utf8(end, code);
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

  void put_utf8(std::size_t& end, std::uint32_t code) {
    const auto put = [&](std::uint32_t byte) { json_[end++] = static_cast<char>(byte); };
    const auto tail = [&](int shift) { put(0x80 | (code >> shift & 0x3f)); };
    if (code < 0x80) {
      put(code);
    } else if (code < 0x800) {
      put(0xc0 | code >> 6);
      tail(0);
    } else if (code < 0x10000) {
      put(0xe0 | code >> 12);
      tail(6), tail(0);
    } else {
      put(0xf0 | code >> 18);
      tail(12), tail(6), tail(0);
    }
  }

  char next() {
    if (at_ >= json_.size()) fail("the header ends too early");
    return json_[at_++];
  }
  void skip_space() {
    while (at_ < json_.size() &&
           std::string_view(" \t\r\n").find(json_[at_]) != std::string_view::npos)
      ++at_;
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
  std::string& json_;
  std::size_t at_ = 0;
};

}  // namespace

std::vector<Entry> parse_header(const std::string& path, std::string& json) {
  return Reader(path, json).header();
}

bool is_utf8(std::string_view text) noexcept {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  for (std::size_t i = 0; i < text.size();) {
    const unsigned first = byte(i);
    if (first < 0x80) {
      ++i;
      continue;
    }
    const std::size_t length = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
    if (first < 0xc2 || first > 0xf4 || i + length > text.size()) return false;
    for (std::size_t k = 1; k < length; ++k)
      if ((byte(i + k) & 0xc0) != 0x80) return false;
    // An overlong encoding, a surrogate, or a value beyond the last code point.
    const unsigned second = byte(i + 1);
    if ((first == 0xe0 && second < 0xa0) || (first == 0xed && second >= 0xa0) ||
        (first == 0xf0 && second < 0x90) || (first == 0xf4 && second >= 0x90))
      return false;
    i += length;
  }
  return true;
}

std::string quoted_for_message(std::string_view name) {
  constexpr std::size_t kLongest = 100;
  std::string text(name.substr(0, kLongest));
  const bool control =
      std::any_of(text.begin(), text.end(), [](char c) { return c >= 0 && c < 0x20; });
  if (control || !is_utf8(text)) {
    std::string escaped;
    for (const char c : text) {
      const auto byte = static_cast<unsigned char>(c);
      escaped += byte >= 0x20 && byte < 0x7f ? std::string(1, c) : fmt::format("\\x{:02x}", byte);
    }
    text = escaped;
  }
  if (name.size() <= kLongest) return fmt::format("\"{}\"", text);
  return fmt::format("\"{}...\" ({} bytes)", text, name.size());
}

}  // namespace firn::io

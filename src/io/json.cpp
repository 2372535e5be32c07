#include "io/json.h"

#include <fmt/format.h>

#include <algorithm>

#include "firn/error.h"

namespace firn::io {

void JsonReader::add(std::vector<std::string_view>& names, std::string_view name) const {
  if (names.size() == kMostNames) fail(fmt::format("has more than {} names", kMostNames));
  names.push_back(name);
}

void JsonReader::check_distinct(std::vector<std::string_view>& names, const char* what) const {
  std::sort(names.begin(), names.end(), [](std::string_view a, std::string_view b) {
    const int order = a.compare(b);
    return order != 0 ? order < 0 : a.data() < b.data();
  });
  const auto twice = std::adjacent_find(names.begin(), names.end());
  if (twice != names.end())
    fail_at(place_of(twice[1]),
            fmt::format("the {} {} is used twice", what, quoted_for_message(*twice)));
}

std::vector<std::uint64_t> JsonReader::numbers(std::size_t most) {
  std::vector<std::uint64_t> out;
  list([&] {
    if (out.size() == most) fail(fmt::format("a list of more than {} numbers", most - 1));
    out.push_back(number());
  });
  return out;
}

bool JsonReader::null() {
  constexpr std::string_view kNull = "null";
  if (!std::string_view(text_).substr(value_at()).starts_with(kNull)) return false;
  at_ += kNull.size();
  return true;
}

std::uint64_t JsonReader::number() {
  const std::size_t first = value_at();
  whole("a whole number");
  std::uint64_t value = 0;
  for (const char c : std::string_view(text_).substr(first, at_ - first)) {
    const auto digit = static_cast<std::uint64_t>(c - '0');
    if (__builtin_mul_overflow(value, 10u, &value) || __builtin_add_overflow(value, digit, &value))
      fail_at(first, "a number does not fit in 64 bits");
  }
  return value;
}

/// Reads one digit or more.
void JsonReader::digits(const char* expected) {
  const std::size_t first = at_;
  while (at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9') ++at_;
  if (at_ == first) fail(fmt::format("expected {}", expected));
}

/// Reads one digit or more without leading zeros.
void JsonReader::whole(const char* expected) {
  const std::size_t first = at_;
  digits(expected);
  if (at_ - first > 1 && text_[first] == '0') fail_at(first, "a number with a zero in front");
}

bool JsonReader::scalar(std::string_view& value) {
  const char first = peek();
  if (first == '"') {
    value = string();
    return true;
  }
  const std::size_t begin = at_;
  skip_value(0);
  value = std::string_view(text_).substr(begin, at_ - begin);
  return first != '{' && first != '[';
}

void JsonReader::skip_value(int depth) {
  // The limit bounds the recursion; no index is nested as deep.
  if (depth == 32) fail("lists and objects are nested more than 32 deep");
  switch (peek()) {
    case '"':
      string();
      break;
    case '{':
      object([&](std::string_view) { skip_value(depth + 1); });
      break;
    case '[':
      list([&] { skip_value(depth + 1); });
      break;
    default:
      skip_literal();
  }
}

/// Skips a number, true, false or null.
void JsonReader::skip_literal() {
  for (const std::string_view word : {"true", "false", "null"}) {
    if (std::string_view(text_).substr(at_).starts_with(word)) {
      at_ += word.size();
      return;
    }
  }
  const auto skip = [&](std::string_view any_of) {
    const bool found = at_ < text_.size() && any_of.find(text_[at_]) != std::string_view::npos;
    at_ += found ? 1 : 0;
    return found;
  };
  skip("-");
  whole("a value");
  if (skip(".")) digits("a value");
  if (skip("eE")) {
    skip("+-");
    digits("a value");
  }
}

void JsonReader::end(const char* what) {
  skip_space();
  if (at_ != text_.size()) fail(fmt::format("something follows {}", what));
}

void JsonReader::begin_object() const {
  if (text_.empty() || text_.front() != '{') fail("expected '{'");
}

/// Decodes escapes in place, since the decoded text is never longer.
std::string_view JsonReader::string() {
  expect('"');
  const std::size_t first = at_;
  std::size_t end = first;
  // Bytes without an escape: their position now, and before the decoding.
  std::size_t plain = end, plain_at = at_;
  const auto check_plain = [&] {
    const std::size_t bad = not_utf8(std::string_view(text_).substr(plain, end - plain));
    if (bad != std::string_view::npos) fail_at(plain_at + bad, "a string that is not UTF-8");
  };
  for (;;) {
    const char c = next();
    if (c == '"') break;
    if (static_cast<unsigned char>(c) < 0x20) fail_at(at_ - 1, "a control byte in a string");
    if (c == '\\') {
      check_plain();
      escape(end);
      plain = end;
      plain_at = at_;
    } else {
      text_[end++] = c;
    }
  }
  check_plain();
  return std::string_view(text_).substr(first, end - first);
}

/// Decodes the text after a backslash. Errors name the position of the backslash.
void JsonReader::escape(std::size_t& end) {
  const std::size_t begin = at_ - 1;
  static constexpr std::string_view kFrom = "\"\\/bfnrt", kTo = "\"\\/\b\f\n\r\t";
  const char c = next();
  if (const auto i = kFrom.find(c); i != std::string_view::npos) {
    text_[end++] = kTo[i];
  } else if (c == 'u') {
    std::uint32_t code = hex();
    if (code >= 0xd800 && code < 0xdc00) {  // the first half of a surrogate pair
      if (next() != '\\' || next() != 'u') fail_at(begin, "half of a surrogate pair");
      const std::uint32_t low = hex();
      if (low < 0xdc00 || low >= 0xe000) fail_at(begin, "half of a surrogate pair");
      code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
    } else if (code >= 0xdc00 && code < 0xe000) {
      fail_at(begin, "half of a surrogate pair");
    }
    put_utf8(end, code);
  } else {
    fail_at(begin, "an unknown escape in a string");
  }
}

std::uint32_t JsonReader::hex() {
  std::uint32_t value = 0;
  for (int i = 0; i < 4; ++i) {
    static constexpr std::string_view kDigits = "0123456789abcdef";
    const char c = next();
    const auto digit = kDigits.find(static_cast<char>(c >= 'A' && c <= 'F' ? c + 32 : c));
    if (digit == std::string_view::npos)
      fail_at(at_ - 1, "\\u is not followed by four hexadecimal digits");
    value = value * 16 + static_cast<std::uint32_t>(digit);
  }
  return value;
}

void JsonReader::put_utf8(std::size_t& end, std::uint32_t code) {
  const auto put = [&](std::uint32_t byte) { text_[end++] = static_cast<char>(byte); };
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

char JsonReader::next() {
  if (at_ >= text_.size()) fail(fmt::format("the {} ends too early", source_.what));
  return text_[at_++];
}

void JsonReader::skip_space() {
  while (at_ < text_.size() &&
         std::string_view(" \t\r\n").find(text_[at_]) != std::string_view::npos)
    ++at_;
}

/// Returns the next character after white space; NUL at the end.
char JsonReader::peek() {
  skip_space();
  return at_ < text_.size() ? text_[at_] : '\0';
}

bool JsonReader::accept(char c) {
  skip_space();
  if (at_ >= text_.size() || text_[at_] != c) return false;
  ++at_;
  return true;
}

void JsonReader::expect(char c) {
  if (!accept(c)) fail(fmt::format("expected '{}'", c));
}

std::size_t JsonReader::value_at() {
  skip_space();
  return at_;
}

void JsonReader::fail_at(std::size_t byte, const std::string& what) const {
  throw IoError(source_.op, source_.path, fmt::format("{}, byte {}: {}", source_.what, byte, what),
                source_.hint);
}

std::size_t not_utf8(std::string_view text) noexcept {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  for (std::size_t i = 0; i < text.size();) {
    const unsigned first = byte(i);
    if (first < 0x80) {
      ++i;
      continue;
    }
    const std::size_t length = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
    if (first < 0xc2 || first > 0xf4 || i + length > text.size()) return i;
    for (std::size_t k = 1; k < length; ++k)
      if ((byte(i + k) & 0xc0) != 0x80) return i;
    // An overlong encoding, a surrogate, or a value beyond the last code point.
    const unsigned second = byte(i + 1);
    if ((first == 0xe0 && second < 0xa0) || (first == 0xed && second >= 0xa0) ||
        (first == 0xf0 && second < 0x90) || (first == 0xf4 && second >= 0x90))
      return i;
    i += length;
  }
  return std::string_view::npos;
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

std::string name_for_message(std::string_view name) {
  std::string quoted = quoted_for_message(name);
  if (quoted.size() == name.size() + 2 && std::string_view(quoted).substr(1, name.size()) == name)
    return std::string(name);
  return quoted;
}

}  // namespace firn::io

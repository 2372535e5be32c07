// Scanners for the regular expressions of well-known tokenizers. Each function names the
// alternatives of the expression that it follows; tests/lm compares them with PCRE2.
#include "lm/tokenizer/split/splitter.h"
#include "lm/tokenizer/split/unicode.h"

namespace firn::lm::bpe {
namespace {

/// Returns the end of the run of characters that `belongs` accepts by their classes.
template <class Belongs>
std::size_t run(std::string_view text, std::size_t at, const Belongs& belongs) {
  while (at < text.size()) {
    const Character c = character_at(text, at);
    if (!belongs(c.classes)) break;
    at += c.bytes;
  }
  return at;
}

bool is_letter(std::uint8_t c) { return (c & kLetter) != 0; }
bool is_number(std::uint8_t c) { return (c & kNumber) != 0; }
bool is_space(std::uint8_t c) { return (c & kSpace) != 0; }
bool is_newline(std::uint8_t c) { return (c & kNewline) != 0; }
bool is_other(std::uint8_t c) { return (c & (kLetter | kNumber | kSpace)) == 0; }
bool may_lead(std::uint8_t c) { return (c & (kLetter | kNumber | kNewline)) == 0; }

/// Returns the end of 's 't 'm 'd 're 've 'll at `at`, or `at`.
std::size_t contraction(std::string_view text, std::size_t at, bool any_case) {
  if (at + 1 >= text.size() || text[at] != '\'') return at;
  const auto letter = [&](std::size_t i) {
    if (i >= text.size()) return '\0';
    const char c = text[i];
    return static_cast<char>(any_case && c >= 'A' && c <= 'Z' ? c + 32 : c);
  };
  const char first = letter(at + 1), second = letter(at + 2);
  if (first == 's' || first == 't' || first == 'm' || first == 'd') return at + 2;
  if ((first == 'r' && second == 'e') || (first == 'v' && second == 'e') ||
      (first == 'l' && second == 'l'))
    return at + 3;
  // U+017F, which is an s for matches that ignore case.
  if (any_case && text.substr(at + 1).starts_with("\xc5\xbf")) return at + 3;
  return at;
}

/// \s+(?!\S)|\s+ : white space leaves its last character to the text that follows.
std::size_t before_last(std::string_view text, std::size_t at, std::size_t end, std::size_t last) {
  return end == text.size() || last == at ? end : last;
}

struct SpaceRun {
  std::size_t end;
  std::size_t last;     ///< begin of its last character
  std::size_t newline;  ///< end of its last CR or LF; 0: it has none
};
SpaceRun space_run(std::string_view text, std::size_t at) {
  SpaceRun r{at, at, 0};
  while (r.end < text.size()) {
    const Character c = character_at(text, r.end);
    if (!is_space(c.classes)) break;
    r.last = r.end;
    r.end += c.bytes;
    if (is_newline(c.classes)) r.newline = r.end;
  }
  return r;
}

/// 's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
class Gpt2Scanner final : public Splitter {
 public:
  Piece next(std::string_view text, std::size_t at, SplitMemory&) const override {
    if (const std::size_t end = contraction(text, at, false); end != at) return {end};
    const std::size_t first = text[at] == ' ' && at + 1 < text.size() ? at + 1 : at;
    const Character c = character_at(text, first);
    const std::size_t rest = first + c.bytes;
    if (is_letter(c.classes)) return {run(text, rest, is_letter)};
    if (is_number(c.classes)) return {run(text, rest, is_number)};
    if (is_other(c.classes)) return {run(text, rest, is_other)};
    const SpaceRun space = space_run(text, at);
    return {before_last(text, at, space.end, space.last)};
  }
};

/// (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|
/// \s*[\r\n]+|\s+(?!\S)|\s+   with one digit or three, and cl100k has \s+\z before \s*[\r\n]+.
class Cl100kScanner final : public Splitter {
 public:
  Cl100kScanner(int digits, bool joins_end) : digits_(digits), joins_end_(joins_end) {}
  Piece next(std::string_view text, std::size_t at, SplitMemory&) const override {
    if (const std::size_t end = contraction(text, at, true); end != at) return {end};
    const Character c = character_at(text, at);
    const std::size_t rest = at + c.bytes;
    if (is_letter(c.classes)) return {run(text, rest, is_letter)};
    if (is_number(c.classes)) return {digits(text, rest, digits_)};
    const Character d = rest < text.size() ? character_at(text, rest) : Character{kSpace, 0};
    if (may_lead(c.classes) && is_letter(d.classes)) return {run(text, rest + d.bytes, is_letter)};
    if (is_other(c.classes) || (text[at] == ' ' && is_other(d.classes)))
      return {run(text, run(text, rest, is_other), is_newline)};
    const SpaceRun space = space_run(text, at);
    if (joins_end_ && space.end == text.size()) return {space.end};
    if (space.newline != 0) return {space.newline};
    return {before_last(text, at, space.end, space.last)};
  }

  /// Returns the end of at most `most` - 1 further numbers.
  static std::size_t digits(std::string_view text, std::size_t at, int most) {
    for (int i = 1; i < most && at < text.size(); ++i) {
      const Character c = character_at(text, at);
      if (!is_number(c.classes)) break;
      at += c.bytes;
    }
    return at;
  }

 private:
  int digits_;
  bool joins_end_;
};

/// With U = [\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}], L = [\p{Ll}\p{Lm}\p{Lo}\p{M}] and P =
/// [^\r\n\p{L}\p{N}]: P?U*L+(?i:'s|...)?|P?U+L*(?i:'s|...)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|
/// \s*[\r\n]+|\s+(?!\S)|\s+   Tekken has one digit and no contractions.
class O200kScanner final : public Splitter {
 public:
  O200kScanner(int digits, bool contracts) : digits_(digits), contracts_(contracts) {}
  Piece next(std::string_view text, std::size_t at, SplitMemory&) const override {
    const Character c = character_at(text, at);
    const std::size_t rest = at + c.bytes;
    if (is_letter(c.classes)) return {with_suffix(text, word(text, at))};
    if (is_number(c.classes)) return {Cl100kScanner::digits(text, rest, digits_)};
    if (may_lead(c.classes)) {
      if (const std::size_t end = marked_word(text, at, rest); end != 0)
        return {with_suffix(text, end)};
    }
    const Character d = rest < text.size() ? character_at(text, rest) : Character{kSpace, 0};
    if (is_other(c.classes) || (text[at] == ' ' && is_other(d.classes)))
      return {trail(text, run(text, rest, is_other))};
    const SpaceRun space = space_run(text, at);
    if (space.newline != 0) return {space.newline};
    return {before_last(text, at, space.end, space.last)};
  }

 private:
  static bool is_upper(std::uint8_t c) { return (c & (kUpper | kCaseless)) != 0; }
  static bool is_lower(std::uint8_t c) { return (c & (kLower | kCaseless)) != 0; }

  struct Match {
    std::size_t end;     ///< 0: none
    bool is_lower_case;  ///< whether it is U*L+, else U+
  };
  /// Matches U*L+|U+ at `at`. U* takes all that it can, and gives back up to its last caseless
  /// character if nothing is left for L+.
  static Match match(std::string_view text, std::size_t at) {
    std::size_t end = at, caseless = 0;
    while (end < text.size()) {
      const Character c = character_at(text, end);
      if (!is_upper(c.classes)) break;
      end += c.bytes;
      if ((c.classes & kCaseless) != 0) caseless = end;
    }
    const std::size_t lower = run(text, end, is_lower);
    if (lower != end) return {lower, true};
    if (caseless != 0) return {caseless, true};
    return {end == at ? 0 : end, false};
  }
  static std::size_t word(std::string_view text, std::size_t at) { return match(text, at).end; }
  /// At a character that is neither letter nor number nor newline: matches it as P, or, if it is a
  /// mark, as the beginning of U*L+, in the order of the alternatives.
  static std::size_t marked_word(std::string_view text, std::size_t at, std::size_t rest) {
    const Match led = match(text, rest);
    if (led.end != 0 && led.is_lower_case) return led.end;
    const Match alone = match(text, at);
    if (alone.end != 0 && alone.is_lower_case) return alone.end;
    return led.end != 0 ? led.end : alone.end;
  }
  std::size_t with_suffix(std::string_view text, std::size_t end) const {
    return contracts_ ? contraction(text, end, true) : end;
  }
  /// Returns the end of [\r\n/]* at `at`.
  static std::size_t trail(std::string_view text, std::size_t at) {
    const std::size_t end = text.find_first_not_of("\r\n/", at);
    return end == std::string_view::npos ? text.size() : end;
  }

  int digits_;
  bool contracts_;
};

class DigitSplitter final : public Splitter {
 public:
  explicit DigitSplitter(bool one_by_one) : one_by_one_(one_by_one) {}
  Piece next(std::string_view text, std::size_t at, SplitMemory&) const override {
    const Character c = character_at(text, at);
    if (!is_number(c.classes)) return {run(text, at, [](std::uint8_t k) { return !is_number(k); })};
    return {one_by_one_ ? at + c.bytes : run(text, at, is_number)};
  }

 private:
  bool one_by_one_;
};

// NOLINTBEGIN(bugprone-suspicious-missing-comma)
constexpr const char* kGpt2 =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
constexpr const char* kCl100k =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*)"
    R"(|\s+\z|\s*[\r\n]+|\s+(?!\S)|\s+)";
// These two as tiktoken has them. Hugging Face's library reads `$` and `{1,3}+` in another way.
constexpr const char* kTiktokenCl100k =
    R"('(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+)"
    R"(|\s++$|\s*[\r\n]|\s+(?!\S)|\s)";
constexpr const char* kTiktokenGpt2 =
    R"('(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s)";
constexpr const char* kLlama3 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*)"
    R"(|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr const char* kQwen2 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*)"
    R"(|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr const char* kO200k =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+)"
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
    R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*)"
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
    R"(|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr const char* kTekken =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+)"
    R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*)"
    R"(|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
// NOLINTEND(bugprone-suspicious-missing-comma)

}  // namespace

std::unique_ptr<const Splitter> make_digit_splitter(bool one_by_one) {
  return std::make_unique<DigitSplitter>(one_by_one);
}

std::unique_ptr<const Splitter> make_scanner(Pattern::Known known) {
  switch (known) {
    case Pattern::cl100k:
      return std::make_unique<Cl100kScanner>(3, true);
    case Pattern::llama3:
      return std::make_unique<Cl100kScanner>(3, false);
    case Pattern::qwen2:
      return std::make_unique<Cl100kScanner>(1, false);
    case Pattern::o200k:
      return std::make_unique<O200kScanner>(3, true);
    case Pattern::tekken:
      return std::make_unique<O200kScanner>(1, false);
    default:
      return std::make_unique<Gpt2Scanner>();
  }
}

const char* regex_of(Pattern::Known known) noexcept {
  switch (known) {
    case Pattern::cl100k:
      return kCl100k;
    case Pattern::llama3:
      return kLlama3;
    case Pattern::qwen2:
      return kQwen2;
    case Pattern::o200k:
      return kO200k;
    case Pattern::tekken:
      return kTekken;
    default:
      return kGpt2;
  }
}

Pattern of_tiktoken(const Pattern& pattern) {
  if (pattern.regex() == kTiktokenCl100k) return Pattern::cl100k;
  if (pattern.regex() == kTiktokenGpt2) return Pattern::gpt2;
  return pattern;
}

std::unique_ptr<const Splitter> make_splitter(const std::string& regex, Keep keep) {
  // These patterns match every text, so there are no gaps.
  if (keep != Keep::gaps) {
    for (const Pattern::Known known : {Pattern::gpt2, Pattern::cl100k, Pattern::llama3,
                                       Pattern::qwen2, Pattern::o200k, Pattern::tekken})
      if (regex == regex_of(known)) return make_scanner(known);
  }
  return make_regex_splitter(regex, keep);
}

}  // namespace firn::lm::bpe

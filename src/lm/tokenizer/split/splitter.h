// Splits a text into the pieces in which tokens are formed.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "firn/lm/tokenizer.h"

namespace firn::lm::bpe {

/// End of a piece, and whether its bytes are part of the result.
struct Piece {
  std::size_t end;
  bool is_kept = true;
};

/// Memory for matches of regular expressions, which one call of an encoder uses again and again.
/// The first match makes it.
struct SplitMemory {
  std::shared_ptr<void> matcher;
};

/// A rule without state, which several threads may use at once.
class Splitter {
 public:
  virtual ~Splitter() = default;
  /// Returns the piece that begins at `at`, which is < text.size(). The text is valid UTF-8, and
  /// `at` is 0 or the end of the piece before.
  virtual Piece next(std::string_view text, std::size_t at, SplitMemory& memory) const = 0;
};

/// Decides about matches of a pattern and about the text between them.
enum class Keep : std::uint8_t { both, gaps, matches };

/// The hand-made scanners of the well-known patterns (scanners.cpp).
std::unique_ptr<const Splitter> make_scanner(Pattern::Known known);
/// Each character of Unicode's category N is a piece, or each run of them; so is the text between.
std::unique_ptr<const Splitter> make_digit_splitter(bool one_by_one);
/// A regular expression through PCRE2 (regex_splitter.cpp). Throws Error if it cannot be compiled,
/// may match an empty text, or has syntax that PCRE2 reads differently.
std::unique_ptr<const Splitter> make_regex_splitter(const std::string& regex, Keep keep);

/// The regular expression of a well-known pattern. For smollm, that of the part after the digits.
const char* regex_of(Pattern::Known known) noexcept;
/// Returns the pattern that a regular expression of tiktoken's own files is, else `pattern`. A
/// tokenizer.json cannot have these: Hugging Face's library reads parts of them in another way.
Pattern of_tiktoken(const Pattern& pattern);
/// Returns the scanner of a regular expression that has one, else make_regex_splitter().
std::unique_ptr<const Splitter> make_splitter(const std::string& regex, Keep keep);

}  // namespace firn::lm::bpe

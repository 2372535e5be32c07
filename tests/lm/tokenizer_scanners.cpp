// The hand-made scanners of well-known patterns against PCRE2, over random text.
#include <random>
#include <string>
#include <vector>

#include "firn/error.h"
#include "lm/tokenizer/split/splitter.h"
#include "lm/tokenizer/split/unicode.h"
#include "support/catch.h"
#include "support/matchers.h"

using namespace firn::lm;
using namespace firn::lm::bpe;

namespace {

const Pattern::Known kScanned[] = {Pattern::gpt2,  Pattern::cl100k, Pattern::llama3,
                                   Pattern::qwen2, Pattern::o200k,  Pattern::tekken};

std::vector<std::size_t> ends(const Splitter& splitter, std::string_view text) {
  std::vector<std::size_t> all;
  SplitMemory memory;
  for (std::size_t at = 0; at < text.size();)
    all.push_back(at = splitter.next(text, at, memory).end);
  return all;
}

/// Characters on which the patterns decide, one of each kind and its neighbours.
const std::u32string kCharacters =
    U"  \t\n\r\v\u0085\u00a0\u180e\u2028\u3000\u200b'''/.,_-aAzZsStTdDmMrReEvVlL019"
    U"\u00e9\u00c9\u00df\u0130\u01c5\u02b0\u017f\u212a\u05d0\u4f60\u0301\u0903\u20dd\u0661\u2167"
    U"\u00bd\u00b2"
    U"\U0001f642\U0001d7d8\u20ac\u00ad\u2014";

/// True if both libraries know the character: their versions of Unicode may differ.
bool is_known(char32_t code) {
  static const auto unassigned = make_regex_splitter("\\p{Cn}", Keep::gaps);
  if (code >= 0xd800 && code < 0xe000) return false;
  std::string text;
  append_utf8(text, code);
  SplitMemory memory;
  return unassigned->next(text, 0, memory).is_kept && is_assigned(code);
}

std::string random_text(std::mt19937& random, bool any_character) {
  std::string text;
  const std::size_t length = random() % 24;
  for (std::size_t i = 0; i < length; ++i) {
    if (!any_character || random() % 4 != 0) {
      append_utf8(text, kCharacters[random() % kCharacters.size()]);
      continue;
    }
    const char32_t code = random() % (random() % 2 == 0 ? 0x3000 : 0x110000);
    append_utf8(text, is_known(code) ? code : U'x');
  }
  return text;
}

}  // namespace

TEST_CASE("scanners: pieces are those of the regular expression") {
  std::mt19937 random(44);
  for (const Pattern::Known known : kScanned) {
    CAPTURE(static_cast<int>(known));
    const auto scanner = make_scanner(known);
    const auto regex = make_regex_splitter(regex_of(known), Keep::both);
    for (int i = 0; i < 40'000; ++i) {
      const std::string text = random_text(random, i % 2 == 0);
      const auto found = ends(*scanner, text), wanted = ends(*regex, text);
      if (found != wanted) {
        CAPTURE(text, i);
        REQUIRE(found == wanted);
      }
    }
  }
}

TEST_CASE("scanners: every code point between letters, and between spaces") {
  for (const Pattern::Known known : kScanned) {
    CAPTURE(static_cast<int>(known));
    const auto scanner = make_scanner(known);
    const auto regex = make_regex_splitter(regex_of(known), Keep::both);
    for (char32_t code = 1; code < 0x20000; ++code) {
      if (!is_known(code)) continue;
      std::string text = "a";
      append_utf8(text, code);
      text += "B'S ";
      append_utf8(text, code);
      text += " 1";
      append_utf8(text, code);
      const auto found = ends(*scanner, text), wanted = ends(*regex, text);
      if (found != wanted) {
        CAPTURE(static_cast<std::uint32_t>(code));
        CHECK(found == wanted);
      }
    }
  }
}

TEST_CASE("regular expressions: \\s and \\w are those of the files' libraries") {
  const auto pieces = [](const char* regex, std::string_view text) {
    return ends(*make_regex_splitter(regex, Keep::both), text);
  };
  // U+180E is no white space, and U+0085 is.
  CHECK(pieces("\\s+", "a\xe1\xa0\x8e\xc2\x85z") == std::vector<std::size_t>{4, 6, 7});
  CHECK(pieces("[^\\s]+", "a\xe1\xa0\x8e\xc2\x85z") == std::vector<std::size_t>{4, 6, 7});
  CHECK(pieces("\\w+", "a_\xcc\x81 \xe2\x85\xa7") == std::vector<std::size_t>{4, 5, 8});
}

TEST_CASE("regular expressions: what libraries read differently is refused") {
  for (const char* const regex : {"a\\b", "[a&&b]", "[a[b]]", "\\h", "a*", "(", "\\", "(?=a)",
                                  "\\C", "[\\W]", "a$", "^a", "a{1,3}+"}) {
    CAPTURE(regex);
    CHECK_THROWS_AS(make_regex_splitter(regex, Keep::both), firn::Error);
  }
}

TEST_CASE("regular expressions: one that takes too long is an error that names it") {
  const auto regex = make_regex_splitter("(?:a+)+\\z|b", Keep::both);
  SplitMemory memory;
  CHECK_THROWS_WITH(regex->next(std::string(60, 'a') + "!", 0, memory),
                    firn::test::contains("(?:a+)+\\z|b"));
}

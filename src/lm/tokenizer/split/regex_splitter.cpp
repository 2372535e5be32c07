// Any pattern of a tokenizer.json, through PCRE2.
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>
#include <new>

#include "base/check.h"
#include "lm/tokenizer/split/splitter.h"

namespace firn::lm::bpe {
namespace {

constexpr const char* kOp = "Tokenizer";
constexpr std::size_t kLongestRegex = 16384;

struct Free {
  void operator()(pcre2_code* p) const noexcept { pcre2_code_free(p); }
  void operator()(pcre2_match_data* p) const noexcept { pcre2_match_data_free(p); }
  void operator()(pcre2_match_context* p) const noexcept { pcre2_match_context_free(p); }
  void operator()(pcre2_jit_stack* p) const noexcept { pcre2_jit_stack_free(p); }
};
template <class T>
using Owner = std::unique_ptr<T, Free>;

/// Memory for matches, for any pattern.
struct Matcher {
  Owner<pcre2_match_data> data{pcre2_match_data_create(1, nullptr)};
  Owner<pcre2_match_context> context{pcre2_match_context_create(nullptr)};
  Owner<pcre2_jit_stack> stack{pcre2_jit_stack_create(32 * 1024, 4 * 1024 * 1024, nullptr)};
  Matcher() {
    if (!data || !context || !stack) throw std::bad_alloc();
    pcre2_jit_stack_assign(context.get(), nullptr, stack.get());
  }
};

/// Translates the syntax of the files (Oniguruma's, Rust's) to PCRE2's. \s and \w get the meaning
/// that they have there. What the two read differently is refused.
class Translation {
 public:
  explicit Translation(const std::string& regex) : regex_(regex) {}

  std::string run() {
    FIRN_CHECK(regex_.size() <= kLongestRegex, kOp, "a splitter is short",
               "a regular expression of {} bytes; at most {} are read", regex_.size(),
               kLongestRegex);
    while (at_ < regex_.size()) {
      const char c = regex_[at_];
      if (c == '\\') {
        escape();
      } else if (in_class_) {
        in_class(c);
      } else {
        if (c == '$' || c == '^') refuse(std::string(1, c) + ", which is \\z or \\A for some,");
        if (c == '}' && regex_.compare(at_, 2, "}+") == 0)
          refuse("'}+', which is possessive for some,");
        out_ += c;
        ++at_;
        if (c == '[') open_class();
      }
    }
    return std::move(out_);
  }

 private:
  [[noreturn]] void refuse(std::string_view what) const {
    detail::fail(kOp, "regular-expression libraries differ in this; write it another way",
                 "the regular expression '{}' has {} at byte {}", regex_, what, at_);
  }

  void escape() {
    if (at_ + 1 == regex_.size()) refuse("a backslash at its end");
    const char c = regex_[at_ + 1];
    if (std::string_view("hHbBRXKGZQENgkW").find(c) != std::string_view::npos)
      refuse(std::string("\\") + c);
    if (c == 's') {
      out_ += "\\p{wspace}";
    } else if (c == 'S') {
      out_ += "\\P{wspace}";
    } else if (c == 'w') {
      const char* word = "\\p{alpha}\\p{M}\\p{Nd}\\p{Pc}\\p{joinc}";
      out_ += in_class_ ? word : std::string("[") + word + "]";
    } else {
      out_.append(regex_, at_, 2);
    }
    at_ += 2;
    // The braces of \p{L} are no quantifier.
    if ((c != 'p' && c != 'P' && c != 'x') || at_ >= regex_.size() || regex_[at_] != '{') return;
    const std::size_t end = std::min(regex_.find('}', at_), regex_.size() - 1) + 1;
    out_.append(regex_, at_, end - at_);
    at_ = end;
  }

  void open_class() {
    in_class_ = true;
    for (const char first : {'^', ']'}) {  // a bracket that comes first stands for itself
      if (at_ < regex_.size() && regex_[at_] == first) {
        out_ += first;
        ++at_;
      }
    }
  }

  void in_class(char c) {
    if (c == '[') refuse("a class in a class");
    if (c == '&' && regex_.compare(at_, 2, "&&") == 0) refuse("an intersection of classes");
    in_class_ = c != ']';
    out_ += c;
    ++at_;
  }

  const std::string& regex_;
  std::string out_;
  std::size_t at_ = 0;
  bool in_class_ = false;
};

std::string message_of(int error) {
  PCRE2_UCHAR text[256];
  pcre2_get_error_message(error, text, sizeof text);
  return reinterpret_cast<const char*>(text);
}

class RegexSplitter final : public Splitter {
 public:
  RegexSplitter(const std::string& regex, Keep keep) : regex_(regex), keep_(keep) {
    const std::string translated = Translation(regex).run();
    int error = 0;
    PCRE2_SIZE at = 0;
    code_.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(),
                              PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C, &error, &at,
                              nullptr));
    FIRN_CHECK(code_ != nullptr, kOp, "PCRE2's manual, pcre2syntax, has the syntax",
               "the regular expression '{}' (for PCRE2 '{}') cannot be compiled, byte {}: {}",
               regex, translated, at, message_of(error));
    std::uint32_t may_be_empty = 0;
    pcre2_pattern_info(code_.get(), PCRE2_INFO_MATCHEMPTY, &may_be_empty);
    FIRN_CHECK(may_be_empty == 0, kOp, "a piece has at least one character",
               "the regular expression '{}' may match an empty text", regex);
    pcre2_jit_compile(code_.get(), PCRE2_JIT_COMPLETE);  // without it, the match is interpreted
  }

  Piece next(std::string_view text, std::size_t at, SplitMemory& memory) const override {
    if (!memory.matcher) memory.matcher = std::make_shared<Matcher>();
    const Matcher& matcher = *static_cast<const Matcher*>(memory.matcher.get());
    const int found =
        pcre2_match(code_.get(), reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), at,
                    PCRE2_NO_UTF_CHECK, matcher.data.get(), matcher.context.get());
    if (found == PCRE2_ERROR_NOMATCH) return {text.size(), keep_ != Keep::matches};
    FIRN_CHECK(found >= 0, kOp, "another pattern, or a text in smaller parts",
               "the regular expression '{}' gave up at byte {} of {}: {}", regex_, at, text.size(),
               message_of(found));
    const PCRE2_SIZE* const bounds = pcre2_get_ovector_pointer(matcher.data.get());
    FIRN_CHECK(bounds[0] >= at && bounds[1] > bounds[0], kOp, "a piece has at least one character",
               "the regular expression '{}' matched an empty text", regex_);
    if (bounds[0] > at) return {bounds[0], keep_ != Keep::matches};
    return {bounds[1], keep_ != Keep::gaps};
  }

 private:
  std::string regex_;
  Keep keep_;
  Owner<pcre2_code> code_;
};

}  // namespace

std::unique_ptr<const Splitter> make_regex_splitter(const std::string& regex, Keep keep) {
  return std::make_unique<RegexSplitter>(regex, keep);
}

}  // namespace firn::lm::bpe

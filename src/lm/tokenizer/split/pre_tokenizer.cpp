#include "lm/tokenizer/split/pre_tokenizer.h"

namespace firn::lm::bpe {
namespace {

/// The regular expression that matches a text and nothing else.
std::string escaped(std::string_view text) {
  std::string regex;
  for (const char c : text) {
    if (std::string_view("\\^$.|?*+()[]{}#-/&").find(c) != std::string_view::npos) regex += '\\';
    regex += c;
  }
  return regex;
}

std::unique_ptr<const Splitter> splitter_of(const PreStep& step) {
  switch (step.kind) {
    case PreStep::digits:
      return make_digit_splitter(step.one_by_one);
    case PreStep::byte_level:
      return step.use_regex ? make_scanner(Pattern::gpt2) : nullptr;
    case PreStep::regex:
      break;
  }
  return make_splitter(step.is_literal ? escaped(step.pattern) : step.pattern, step.keep);
}

}  // namespace

PreTokenizer::PreTokenizer(const std::vector<PreStep>& steps) {
  for (const PreStep& step : steps) {
    std::unique_ptr<const Splitter> splitter = splitter_of(step);
    if (splitter || step.add_prefix_space)
      steps_.push_back({std::move(splitter), step.add_prefix_space});
  }
}

}  // namespace firn::lm::bpe

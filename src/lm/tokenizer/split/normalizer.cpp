// Normalizers: Unicode's forms, lower case, a prefix, and a text in place of another.
#include "lm/tokenizer/model.h"

namespace firn::lm::bpe {
namespace {

std::string replace(std::string_view text, const std::string& from, const std::string& to) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t at = 0;;) {
    const std::size_t found = text.find(from, at);
    out += text.substr(at, found - at);
    if (found == std::string_view::npos) return out;
    out += to;
    at = found + from.size();
  }
}

std::string apply_one(const Normalizer& n, std::string_view text) {
  switch (n.kind) {
    case Normalizer::form:
      return normalize(text, n.normal_form);
    case Normalizer::lower:
      return lower_case(text);
    case Normalizer::prepend:
      return text.empty() ? std::string() : n.to + std::string(text);
    case Normalizer::replace:
      return replace(text, n.from, n.to);
  }
  return std::string(text);
}

}  // namespace

std::string normalized(const std::vector<Normalizer>& normalizers, std::string_view text) {
  std::string out(text);
  for (const Normalizer& n : normalizers) out = apply_one(n, out);
  return out;
}

}  // namespace firn::lm::bpe

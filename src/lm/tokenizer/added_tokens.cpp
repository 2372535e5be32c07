#include "lm/tokenizer/added_tokens.h"

#include <algorithm>
#include <functional>

namespace firn::lm::bpe {
namespace {

bool is_of_word(std::string_view text, std::size_t begin, std::size_t end) {
  if (begin > 0 && is_word(code_point_before(text, begin))) return true;
  return end < text.size() && is_word(next_code_point(text, end));
}

std::size_t space_before(std::string_view text, std::size_t at, std::size_t from) {
  while (at > from) {
    std::size_t first = at - 1;
    while (first > from && (static_cast<unsigned char>(text[first]) & 0xc0) == 0x80) --first;
    if ((character_at(text, first).classes & kSpace) == 0) break;
    at = first;
  }
  return at;
}

std::size_t space_after(std::string_view text, std::size_t at) {
  while (at < text.size()) {
    const Character c = character_at(text, at);
    if ((c.classes & kSpace) == 0) break;
    at += c.bytes;
  }
  return at;
}

}  // namespace

bool Permitted::permits(Id id) const noexcept {
  return all_ || std::binary_search(ids_.begin(), ids_.end(), id);
}

AddedTokens::AddedTokens(std::vector<AddedToken> tokens, std::vector<std::string> texts)
    : tokens_(std::move(tokens)), texts_(std::move(texts)), table_(tokens_.size()) {
  for (std::size_t i = 0; i < tokens_.size(); ++i) {
    const std::string_view text = texts_[i];
    if (text.empty() || table_.find(text) != kNone) continue;  // the first of two alike counts
    table_.add(text, static_cast<Id>(i));
    all_special_ = all_special_ && tokens_[i].is_special;
    std::vector<std::size_t>& lengths = lengths_[static_cast<unsigned char>(text[0])];
    const auto place =
        std::lower_bound(lengths.begin(), lengths.end(), text.size(), std::greater<>());
    if (place == lengths.end() || *place != text.size()) lengths.insert(place, text.size());
  }
}

const AddedToken* AddedTokens::longest_at(std::string_view text, std::size_t at,
                                          const Permitted& permitted, std::size_t& bytes) const {
  for (const std::size_t length : lengths_[static_cast<unsigned char>(text[at])]) {
    if (length > text.size() - at) continue;
    const Id index = table_.find(text.substr(at, length));
    if (index == kNone) continue;
    const AddedToken& token = tokens_[static_cast<std::size_t>(index)];
    if (token.is_special && !permitted.permits(token.id)) continue;
    bytes = length;
    return &token;
  }
  return nullptr;
}

bool AddedTokens::find(std::string_view text, std::size_t from, const Permitted& permitted,
                       Match& match) const {
  for (std::size_t at = from; at < text.size(); ++at) {
    if (lengths_[static_cast<unsigned char>(text[at])].empty()) continue;
    std::size_t bytes = 0;
    const AddedToken* const token = longest_at(text, at, permitted, bytes);
    if (token == nullptr) continue;
    const std::size_t end = at + bytes;
    if (token->single_word && is_of_word(text, at, end)) {
      at = end - 1;
      continue;
    }
    match.id = token->id;
    match.begin = token->strips_left ? space_before(text, at, from) : at;
    match.end = token->strips_right ? space_after(text, end) : end;
    return true;
  }
  return false;
}

}  // namespace firn::lm::bpe

// The steps that split a text into pieces, one after the other.
#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "io/json.h"
#include "lm/tokenizer/spec.h"

namespace firn::lm::bpe {

class PreTokenizer {
 public:
  /// Throws Error if a regular expression cannot be used.
  explicit PreTokenizer(const std::vector<PreStep>& steps);

  /// Calls on_piece(piece) for each piece of a text that is valid UTF-8 and not empty.
  template <class OnPiece>
  void split(std::string_view text, SplitMemory& memory, const OnPiece& on_piece,
             std::size_t step = 0) const {
    if (step == steps_.size()) return on_piece(text);
    const Step& rule = steps_[step];
    std::string prefixed;
    if (rule.add_prefix_space && text[0] != ' ') {
      prefixed = " ";
      prefixed += text;
      text = prefixed;
    }
    if (!rule.splitter) return split(text, memory, on_piece, step + 1);
    const bool is_last = step + 1 == steps_.size();
    for (std::size_t at = 0; at < text.size();) {
      const Piece piece = rule.splitter->next(text, at, memory);
      const std::string_view part = text.substr(at, piece.end - at);
      at = piece.end;
      if (!piece.is_kept) continue;
      if (is_last) {
        on_piece(part);
      } else {
        split(part, memory, on_piece, step + 1);
      }
    }
  }

 private:
  struct Step {
    std::unique_ptr<const Splitter> splitter;  ///< null: the text stays whole
    bool add_prefix_space;
  };
  std::vector<Step> steps_;
};

/// Calls on_text(part) for each part of a text that is valid UTF-8, and on_byte(part) for each byte
/// between them.
template <class OnText, class OnByte>
void cut_invalid(std::string_view text, const OnText& on_text, const OnByte& on_byte) {
  while (!text.empty()) {
    const std::size_t valid = std::min(io::not_utf8(text), text.size());
    if (valid > 0) on_text(text.substr(0, valid));
    if (valid < text.size()) on_byte(text.substr(valid, 1));
    text.remove_prefix(std::min(valid + 1, text.size()));
  }
}

}  // namespace firn::lm::bpe

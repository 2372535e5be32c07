// Finds added tokens in a text, by Hugging Face's rules.
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "lm/tokenizer/spec.h"
#include "lm/tokenizer/token_table.h"

namespace firn::lm::bpe {

/// The special tokens that a call permits.
class Permitted {
 public:
  Permitted(bool all, std::vector<Id> ids)
      : all_(all), ids_(std::move(ids)) {}  ///< `ids` is sorted.
  bool permits(Id id) const noexcept;
  bool permits_none() const noexcept { return !all_ && ids_.empty(); }

 private:
  bool all_;
  std::vector<Id> ids_;
};

class AddedTokens {
 public:
  /// Takes the tokens that are searched in text as it is, or those that are searched in normalized
  /// text; texts[i] is then the normalized text of tokens[i].
  AddedTokens(std::vector<AddedToken> tokens, std::vector<std::string> texts);

  struct Match {
    std::size_t begin = 0;
    std::size_t end = 0;
    Id id = kNone;
  };
  /// Finds the first token from `from` on, of those that begin there the longest. White space that
  /// it strips belongs to the match. Returns false if there is none. The text is valid UTF-8.
  bool find(std::string_view text, std::size_t from, const Permitted& permitted,
            Match& match) const;
  /// True if find() cannot find anything.
  bool is_empty(const Permitted& permitted) const noexcept {
    return tokens_.empty() || (all_special_ && permitted.permits_none());
  }

 private:
  const AddedToken* longest_at(std::string_view text, std::size_t at, const Permitted& permitted,
                               std::size_t& bytes) const;

  std::vector<AddedToken> tokens_;
  std::vector<std::string> texts_;
  bool all_special_ = true;
  TokenTable table_;                                   ///< indices of tokens by text
  std::array<std::vector<std::size_t>, 256> lengths_;  ///< by first byte, longest first
};

}  // namespace firn::lm::bpe

// A tokenizer ready to encode: a checked Spec and its tables.
#pragma once

#include <array>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "firn/lm/tokenizer.h"
#include "lm/tokenizer/added_tokens.h"
#include "lm/tokenizer/merger.h"
#include "lm/tokenizer/split/pre_tokenizer.h"
#include "lm/tokenizer/spec.h"
#include "lm/tokenizer/token_table.h"

namespace firn::lm::bpe {

/// Throws IoError that names the file of the spec and a key of it; Error if it came from no file.
[[noreturn]] void refuse(const Spec& spec, std::string_view key, const std::string& what,
                         std::string_view hint);

class Model {
 public:
  /// Throws IoError or Error if the spec contradicts itself.
  explicit Model(Spec spec);
  Model(const Model&) = delete;
  Model& operator=(const Model&) = delete;

  void encode(std::string_view text, const EncodeOptions& options,
              std::vector<std::int64_t>& out) const;

  const Spec& spec() const noexcept { return spec_; }
  /// Returns whether a token has this id.
  bool has(std::int64_t id) const noexcept;
  /// Bytes that a token stands for in decoded text.
  const std::string& bytes(std::size_t id) const noexcept { return bytes_[id]; }
  bool is_special(std::size_t id) const noexcept { return special_[id]; }
  Id id_of(std::string_view name) const noexcept { return names_.find(name); }

 private:
  struct Call;  ///< the state of one call of encode()

  void check_tokens();
  void check_added();
  void make_bytes();
  void make_tables();
  void make_symbols();
  void make_pre_tokenizer();
  void make_added();
  void find_direct();
  void find_word_starts();
  bool makes_tokens(std::size_t id) const;

  Permitted permitted(const Special& special) const;
  void encode_valid(Call& call, std::string_view text) const;
  void encode_between(Call& call, std::string_view text) const;
  void encode_normalized(Call& call, std::string_view text) const;
  void encode_piece(Call& call, std::string_view piece) const;
  void encode_words(Call& call, std::string_view piece) const;
  void put_symbols(std::string_view piece, bool skip_unknown, std::vector<Id>& symbols) const;
  void put_character(std::string_view character, bool skip_unknown, std::vector<Id>& symbols) const;

  Spec spec_;
  std::vector<std::string> bytes_;  ///< by id
  std::vector<std::string> keys_;   ///< by id: the text of which encoding makes the token, or ""
  std::vector<char> special_;       ///< by id
  std::vector<char> direct_;        ///< by id: a piece with this text is this token
  TokenTable names_;                ///< all tokens, by name
  TokenTable table_;                ///< those that encoding makes, by key
  MergeTable merges_;
  /// Whether no merge reaches from a character into a space, U+2581, after it: then each word of a
  /// piece can be encoded by itself.
  bool cuts_words_ = false;
  std::array<Id, 256> symbols_{};  ///< tokens of single bytes, or kNone
  std::unique_ptr<const PreTokenizer> pre_tokenizer_;
  std::unique_ptr<const AddedTokens> added_;             ///< found in text as it is
  std::unique_ptr<const AddedTokens> added_normalized_;  ///< found in normalized text
};

/// The character that SentencePiece has in place of a space.
inline constexpr std::string_view kWordStart = "\xe2\x96\x81";
/// Returns the first place after `at` where kWordStart follows another character, or npos.
inline std::size_t next_word(std::string_view text, std::size_t at) noexcept {
  for (;;) {
    at = text.find(kWordStart, at + 1);
    if (at == std::string_view::npos || !text.substr(0, at).ends_with(kWordStart)) return at;
  }
}

/// Applies the normalizers in their order.
std::string normalized(const std::vector<Normalizer>& normalizers, std::string_view text);

}  // namespace firn::lm::bpe

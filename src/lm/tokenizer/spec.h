// A tokenizer as plain data, between the readers of files, the trainer and the writer. Model checks
// it and makes the tables for encoding.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lm/tokenizer/split/splitter.h"
#include "lm/tokenizer/split/unicode.h"

namespace firn::lm::bpe {

using Id = std::int32_t;
inline constexpr Id kNone = -1;

/// A token of the vocabulary. An id without a token has an empty name.
struct Token {
  std::string name;      ///< as tokenizer.json spells it
  bool is_model = true;  ///< whether encoding makes it of text; else it is an added token alone
};

/// Two tokens that become one. Merges of a lower rank come first; those of one rank come from left
/// to right.
struct Merge {
  Id left, right, result;
  std::uint32_t rank;
};

struct AddedToken {
  Id id = kNone;
  std::string text;
  bool is_special = false;
  bool single_word = false;  ///< only between characters that are not of words
  bool strips_left = false;  ///< takes the white space before it
  bool strips_right = false;
  bool normalized = false;  ///< is searched in the normalized text
};

struct Normalizer {
  enum Kind : std::uint8_t { form, lower, prepend, replace } kind;
  NormalForm normal_form = NormalForm::nfc;
  std::string from;  ///< for replace
  std::string to;    ///< for replace, and for prepend
};

/// A step that splits pieces further.
struct PreStep {
  enum Kind : std::uint8_t { regex, digits, byte_level } kind;
  std::string pattern;            ///< for regex
  bool is_literal = false;        ///< for regex: the pattern is a text
  Keep keep = Keep::both;         ///< for regex
  bool one_by_one = false;        ///< for digits
  bool add_prefix_space = false;  ///< for byte_level
  bool use_regex = false;         ///< for byte_level: GPT-2's pattern
};

struct Spec {
  std::string source = "";    ///< the file, for errors; may be empty
  bool is_byte_level = true;  ///< names spell bytes; else characters
  std::vector<Token> tokens;  ///< by id
  std::vector<Merge> merges;
  std::optional<Id> unknown;
  bool fuses_unknown = false;
  bool has_byte_fallback = false;
  bool ignores_merges = false;  ///< a piece that is a token is that token
  std::vector<AddedToken> added;
  std::vector<Normalizer> normalizers;
  std::vector<PreStep> steps;
  std::vector<Normalizer> decoder_replaces;  ///< the decoder applies them to each token
  std::string strip;              ///< a character that the decoder removes at the start of a text
  int strip_count = 0;            ///< how many of them
  std::vector<Id> before, after;  ///< the template's tokens
};

/// Ids are below this many for each token, so that a small file cannot ask for much memory.
inline bool id_is_plausible(std::uint64_t id, std::size_t tokens) {
  return id < 2 * static_cast<std::uint64_t>(tokens) + 1024;
}
inline constexpr std::size_t kMostTokens = 1 << 22;
inline constexpr std::size_t kLongestToken = 1024;

/// Makes all merges of a vocabulary whose tokens are formed by their own rank alone: each way to
/// cut a token into two tokens. `rank_of` holds a rank for each id, and kNoRank for ids that
/// nothing makes.
inline constexpr std::uint32_t kNoRank = 0xffffffff;
std::vector<Merge> merges_of_ranks(const std::vector<std::string>& bytes,
                                   const std::vector<std::uint32_t>& rank_of);

}  // namespace firn::lm::bpe

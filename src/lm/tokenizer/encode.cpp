// Encoding: added tokens are cut out, the text between them is normalized and split into pieces,
// and the symbols of each piece are merged.
#include <algorithm>

#include "base/check.h"
#include "io/json.h"
#include "lm/tokenizer/model.h"

namespace firn::lm::bpe {

struct Model::Call {
  const Permitted& permitted;
  std::vector<std::int64_t>& out;
  bool skip_unknown;
  Scratch scratch = {};
  SplitMemory memory = {};
};

namespace {

/// Calls on_match(id) for each added token of the text, and on_text(part) for what is between them.
template <class OnMatch, class OnText>
void cut(const AddedTokens& added, const Permitted& permitted, std::string_view text,
         const OnMatch& on_match, const OnText& on_text) {
  std::size_t at = 0;
  AddedTokens::Match match;
  if (!added.is_empty(permitted)) {
    while (added.find(text, at, permitted, match)) {
      if (match.begin > at) on_text(text.substr(at, match.begin - at));
      on_match(match.id);
      at = match.end;
    }
  }
  if (at < text.size()) on_text(text.substr(at));
}

}  // namespace

Permitted Model::permitted(const Special& special) const {
  std::vector<Id> ids;
  for (const std::string& name : special.names()) {
    const Id id = names_.find(name);
    FIRN_CHECK(id != kNone && special_[static_cast<std::size_t>(id)] != 0, "Tokenizer::encode",
               "special_tokens() lists those of this tokenizer", "{} is not a special token",
               io::quoted_for_message(name));
    ids.push_back(id);
  }
  std::sort(ids.begin(), ids.end());
  return {special.permits_all(), std::move(ids)};
}

void Model::encode(std::string_view text, const EncodeOptions& options,
                   std::vector<std::int64_t>& out) const {
  const std::size_t before = out.size();
  try {
    const Permitted permits = permitted(options.special);
    Call call{permits, out, options.skip_unknown};
    if (options.add_template) out.insert(out.end(), spec_.before.begin(), spec_.before.end());
    cut_invalid(
        text, [&](std::string_view part) { encode_valid(call, part); },
        [&](std::string_view byte) { encode_piece(call, byte); });
    if (options.add_template) out.insert(out.end(), spec_.after.begin(), spec_.after.end());
  } catch (...) {
    out.resize(before);
    throw;
  }
}

void Model::encode_valid(Call& call, std::string_view text) const {
  cut(
      *added_, call.permitted, text, [&](Id id) { call.out.push_back(id); },
      [&](std::string_view part) { encode_between(call, part); });
}

void Model::encode_between(Call& call, std::string_view text) const {
  if (spec_.normalizers.empty()) return encode_normalized(call, text);
  encode_normalized(call, normalized(spec_.normalizers, text));
}

void Model::encode_normalized(Call& call, std::string_view text) const {
  cut(
      *added_normalized_, call.permitted, text, [&](Id id) { call.out.push_back(id); },
      [&](std::string_view part) {
        pre_tokenizer_->split(part, call.memory, [&](std::string_view piece) {
          cuts_words_ ? encode_words(call, piece) : encode_piece(call, piece);
        });
      });
}

void Model::encode_piece(Call& call, std::string_view piece) const {
  if (const Id id = table_.find(piece); id != kNone && direct_[static_cast<std::size_t>(id)] != 0) {
    call.out.push_back(id);
    return;
  }
  Scratch& scratch = call.scratch;
  scratch.symbols.clear();
  put_symbols(piece, call.skip_unknown, scratch.symbols);
  merge_symbols(merges_, scratch);
  call.out.insert(call.out.end(), scratch.symbols.begin(), scratch.symbols.end());
}

/// Encodes a piece that has many words, which no merge joins.
void Model::encode_words(Call& call, std::string_view piece) const {
  for (std::size_t at = 0; at < piece.size();) {
    const std::size_t end = std::min(next_word(piece, at), piece.size());
    encode_piece(call, piece.substr(at, end - at));
    at = end;
  }
}

/// Appends the tokens of single bytes, or of single characters. A piece is valid UTF-8, or one
/// byte.
void Model::put_symbols(std::string_view piece, bool skip_unknown, std::vector<Id>& symbols) const {
  if (!spec_.is_byte_level) {
    for (std::size_t at = 0; at < piece.size();) {
      const bool is_stray = piece.size() == 1 && static_cast<unsigned char>(piece[0]) >= 0x80;
      const std::size_t bytes = is_stray ? 1 : character_at(piece, at).bytes;
      put_character(piece.substr(at, bytes), skip_unknown, symbols);
      at += bytes;
    }
    return;
  }
  for (const char byte : piece) {
    const Id id = symbols_[static_cast<unsigned char>(byte)];
    if (id != kNone) {
      symbols.push_back(id);
    } else {
      put_character({&byte, 1}, skip_unknown, symbols);
    }
  }
}

/// Appends the token of a character, or those of its bytes, or the unknown token.
void Model::put_character(std::string_view character, bool skip_unknown,
                          std::vector<Id>& symbols) const {
  if (const Id id = table_.find(character); id != kNone) {
    symbols.push_back(id);
    return;
  }
  const auto symbol = [&](char byte) { return symbols_[static_cast<unsigned char>(byte)]; };
  if (std::all_of(character.begin(), character.end(), [&](char c) { return symbol(c) != kNone; })) {
    for (const char byte : character) symbols.push_back(symbol(byte));
    return;
  }
  if (!spec_.unknown && skip_unknown) return;
  FIRN_CHECK(spec_.unknown.has_value(), "Tokenizer::encode",
             "the vocabulary lacks it; skip_unknown leaves it out",
             "neither {} nor an unknown character has a token", io::quoted_for_message(character));
  if (!spec_.fuses_unknown || symbols.empty() || symbols.back() != *spec_.unknown)
    symbols.push_back(*spec_.unknown);
}

}  // namespace firn::lm::bpe

// Checks a Spec, and makes the tables of a model.
#include "lm/tokenizer/model.h"

#include <algorithm>

#include "base/check.h"
#include "io/json.h"
#include "lm/tokenizer/byte_alphabet.h"

namespace firn::lm::bpe {
namespace {

using io::quoted_for_message;

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

/// Returns the byte that a token "<0xE2>" stands for, or -1.
int byte_of_name(std::string_view name) {
  if (name.size() != 6 || !name.starts_with("<0x") || name[5] != '>') return -1;
  const int high = hex_digit(name[3]), low = hex_digit(name[4]);
  return high < 0 || low < 0 ? -1 : high * 16 + low;
}

}  // namespace

void refuse(const Spec& spec, std::string_view key, const std::string& what,
            std::string_view hint) {
  const std::string message = fmt::format("{}: {}", key, what);
  if (spec.source.empty()) throw Error("Tokenizer", message, hint);
  throw IoError("Tokenizer", spec.source, message, hint);
}

Model::Model(Spec spec)
    : spec_(std::move(spec)),
      bytes_(spec_.tokens.size()),
      keys_(spec_.tokens.size()),
      special_(spec_.tokens.size()),
      direct_(spec_.tokens.size()),
      names_(spec_.tokens.size()),
      table_(spec_.tokens.size()),
      merges_(spec_.merges.size()) {
  check_tokens();
  check_added();
  make_bytes();
  make_tables();
  make_symbols();
  make_pre_tokenizer();
  make_added();
  find_direct();
  find_word_starts();
}

void Model::check_tokens() {
  if (spec_.tokens.empty())
    refuse(spec_, "vocabulary", "has no token", "a tokenizer has at least one");
  if (spec_.tokens.size() > kMostTokens)
    refuse(spec_, "vocabulary", fmt::format("has {} ids", spec_.tokens.size()),
           fmt::format("at most {} are read", kMostTokens));
  for (std::size_t id = 0; id < spec_.tokens.size(); ++id) {
    const std::string& name = spec_.tokens[id].name;
    if (name.empty()) continue;
    if (name.size() > 2 * kLongestToken)
      refuse(spec_, "vocabulary", fmt::format("the token of id {} has {} bytes", id, name.size()),
             fmt::format("at most {} are read", 2 * kLongestToken));
    if (const Id other = names_.find(name); other != kNone)
      refuse(spec_, "vocabulary",
             fmt::format("{} has the ids {} and {}", quoted_for_message(name), other, id),
             "a token has one id");
    names_.add(name, static_cast<Id>(id));
  }
}

void Model::check_added() {
  std::vector<char> seen(spec_.tokens.size());
  for (const AddedToken& token : spec_.added) {
    const auto id = static_cast<std::size_t>(token.id);
    if (token.id < 0 || id >= spec_.tokens.size() || spec_.tokens[id].name != token.text)
      refuse(spec_, "added_tokens",
             fmt::format("{} and its id {} contradict the vocabulary",
                         quoted_for_message(token.text), token.id),
             "a token has one id, and an id has one token");
    if (seen[id])
      refuse(spec_, "added_tokens", fmt::format("the id {} occurs twice", token.id),
             "an id has one token");
    seen[id] = 1;
    special_[id] = token.is_special;
  }
  const auto check = [&](const char* key, Id id) {
    if (!has(id))
      refuse(spec_, key, fmt::format("no token has the id {}", id),
             fmt::format("the vocabulary has {} ids", spec_.tokens.size()));
  };
  if (spec_.unknown) check("unk_token", *spec_.unknown);
  for (const Id id : spec_.before) check("post_processor", id);
  for (const Id id : spec_.after) check("post_processor", id);
}

bool Model::has(std::int64_t id) const noexcept {
  return id >= 0 && id < static_cast<std::int64_t>(spec_.tokens.size()) &&
         !spec_.tokens[static_cast<std::size_t>(id)].name.empty();
}

/// Sets the bytes of each token for decoding, and its key for encoding.
void Model::make_bytes() {
  std::vector<char> added(spec_.tokens.size());
  std::vector<std::string> texts(spec_.tokens.size());  // the added ones, as text has them
  for (const AddedToken& token : spec_.added) {
    const auto id = static_cast<std::size_t>(token.id);
    added[id] = 1;
    texts[id] = token.normalized ? normalized(spec_.normalizers, token.text) : token.text;
  }
  for (std::size_t id = 0; id < spec_.tokens.size(); ++id) {
    const Token& token = spec_.tokens[id];
    const bool encodes = token.is_model && special_[id] == 0;
    if (spec_.is_byte_level) {
      const std::optional<std::string> spelled = bytes_of_name(token.name);
      bytes_[id] = added[id] != 0 ? texts[id] : spelled ? *spelled : token.name;
      // The name of an added token is its text. It is a key only if it spells that text.
      if (encodes && spelled && (added[id] == 0 || *spelled == token.name)) keys_[id] = *spelled;
    } else {
      const int byte = spec_.has_byte_fallback ? byte_of_name(token.name) : -1;
      bytes_[id] =
          byte >= 0 ? std::string(1, static_cast<char>(byte))
                    : normalized(spec_.decoder_replaces, added[id] != 0 ? texts[id] : token.name);
      if (encodes && byte < 0) keys_[id] = token.name;
    }
  }
}

bool Model::makes_tokens(std::size_t id) const { return !keys_[id].empty(); }

void Model::make_tables() {
  for (std::size_t id = 0; id < keys_.size(); ++id)
    if (makes_tokens(id)) table_.add(keys_[id], static_cast<Id>(id));
  for (const Merge& merge : spec_.merges) {
    for (const Id id : {merge.left, merge.right, merge.result})
      if (!has(id))
        refuse(spec_, "merges",
               fmt::format("merge {} names the id {}, which no token has", merge.rank, id),
               "a merge is of two tokens");
    // No text becomes a special token, so its merge is left out.
    if (special_[static_cast<std::size_t>(merge.result)] != 0) continue;
    if (!merges_.add(merge))
      refuse(
          spec_, "merges",
          fmt::format("merge {} of {} and {} occurs twice", merge.rank,
                      quoted_for_message(spec_.tokens[static_cast<std::size_t>(merge.left)].name),
                      quoted_for_message(spec_.tokens[static_cast<std::size_t>(merge.right)].name)),
          "two tokens have one merge");
  }
}

/// Finds the tokens of single bytes.
void Model::make_symbols() {
  for (int byte = 0; byte < 256; ++byte) {
    const auto i = static_cast<std::size_t>(byte);
    if (spec_.is_byte_level) {
      const char text = static_cast<char>(byte);
      symbols_[i] = table_.find({&text, 1});
      const Id named = names_.find(name_of_bytes({&text, 1}));
      if (symbols_[i] == kNone && named != kNone && special_[static_cast<std::size_t>(named)] != 0)
        refuse(spec_, "added_tokens",
               fmt::format("the special token {} is also the token of byte {}", named, byte),
               "no text may become a special token");
    } else {
      const Id id = spec_.has_byte_fallback ? names_.find(fmt::format("<0x{:02X}>", byte)) : kNone;
      symbols_[i] = id;
    }
  }
}

void Model::make_pre_tokenizer() {
  try {
    pre_tokenizer_ = std::make_unique<PreTokenizer>(spec_.steps);
  } catch (const Error& error) {
    refuse(spec_, "pre_tokenizer", error.message(), error.hint());
  }
}

void Model::make_added() {
  std::vector<AddedToken> plain, late;
  std::vector<std::string> plain_texts, late_texts;
  for (const AddedToken& token : spec_.added) {
    if (token.normalized) {
      late.push_back(token);
      late_texts.push_back(normalized(spec_.normalizers, token.text));
    } else {
      plain.push_back(token);
      plain_texts.push_back(token.text);
    }
  }
  added_ = std::make_unique<AddedTokens>(std::move(plain), std::move(plain_texts));
  added_normalized_ = std::make_unique<AddedTokens>(std::move(late), std::move(late_texts));
}

void Model::find_word_starts() {
  if (spec_.is_byte_level || table_.find(kWordStart) == kNone) return;
  const auto crosses = [&](const Merge& merge) {
    return next_word(keys_[static_cast<std::size_t>(merge.result)], 0) != std::string_view::npos;
  };
  cuts_words_ = std::none_of(spec_.merges.begin(), spec_.merges.end(), crosses);
}

/// Finds the tokens that their own text becomes. Most words are such a token, and need no merge.
void Model::find_direct() {
  Scratch scratch;
  for (std::size_t id = 0; id < keys_.size(); ++id) {
    if (!makes_tokens(id)) continue;
    if (spec_.ignores_merges) {
      direct_[id] = 1;
      continue;
    }
    scratch.symbols.clear();
    try {
      put_symbols(keys_[id], false, scratch.symbols);
    } catch (const Error&) {
      continue;  // a byte of it has no token, so no text becomes this token
    }
    merge_symbols(merges_, scratch);
    direct_[id] = scratch.symbols.size() == 1 && scratch.symbols[0] == static_cast<Id>(id);
  }
}

}  // namespace firn::lm::bpe

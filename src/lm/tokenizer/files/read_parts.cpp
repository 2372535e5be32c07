// Takes a tokenizer from the metadata of a GGUF file.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "firn/error.h"
#include "io/json.h"
#include "lm/tokenizer/byte_alphabet.h"
#include "lm/tokenizer/files/formats.h"
#include "lm/tokenizer/token_table.h"

namespace firn::lm::bpe {
namespace {

using io::quoted_for_message;

/// Types of tokens in GGUF files.
enum Type : std::int32_t { kNormal = 1, kUnknown, kControl, kUser, kUnused, kByte };

class PartsReader {
 public:
  explicit PartsReader(const TokenizerParts& parts) : parts_(parts) { spec_.source = parts.source; }

  Spec run() {
    read_tokens();
    if (parts_.model == "gpt2") {
      read_pre();
      read_merges();
    } else if (parts_.model == "llama") {
      read_scores();
    } else {
      refuse("model", fmt::format("{} is not supported", quoted_for_message(parts_.model)),
             "gpt2 (byte-level BPE) and llama (SentencePiece's BPE) are");
    }
    if (parts_.unknown) spec_.unknown = id("unknown_token_id", *parts_.unknown);
    read_template("bos_token_id", parts_.add_bos, parts_.bos, spec_.before);
    read_template("eos_token_id", parts_.add_eos, parts_.eos, spec_.after);
    return std::move(spec_);
  }

 private:
  [[noreturn]] void refuse(std::string_view key, const std::string& what,
                           std::string_view hint) const {
    throw IoError("Tokenizer", parts_.source, fmt::format("tokenizer.ggml.{}: {}", key, what),
                  hint);
  }

  Id id(const char* key, std::int64_t value) const {
    if (value < 0 || value >= static_cast<std::int64_t>(parts_.tokens.size()))
      refuse(key, fmt::format("{} is outside of the vocabulary", value),
             fmt::format("there are {} tokens", parts_.tokens.size()));
    return static_cast<Id>(value);
  }

  void read_template(const char* key, bool is_added, std::optional<std::int64_t> token,
                     std::vector<Id>& list) const {
    if (!is_added) return;
    if (!token) refuse(key, "is missing, and a text is to get this token", "name the token");
    list.push_back(id(key, *token));
  }

  void read_tokens() {
    const std::size_t n = parts_.tokens.size();
    if (n > kMostTokens)
      refuse("tokens", fmt::format("has {} entries", n),
             fmt::format("at most {} are read", kMostTokens));
    if (parts_.types.size() != n)
      refuse("token_type", fmt::format("has {} entries for {} tokens", parts_.types.size(), n),
             "each token has a type");
    for (std::size_t i = 0; i < n; ++i) {
      const std::string& name = parts_.tokens[i];
      const std::int32_t type = parts_.types[i];
      if (name.empty() || !io::is_utf8(name))
        refuse("tokens",
               fmt::format("token {}, {}, is empty or not UTF-8", i, quoted_for_message(name)),
               "a token is a text");
      if (type < kNormal || type > kByte)
        refuse("token_type", fmt::format("token {} has the type {}", i, type), "types are 1 to 6");
      spec_.tokens.push_back({name, type == kNormal || type == kByte});
      if (type == kControl || type == kUnknown || type == kUser)
        spec_.added.push_back({static_cast<Id>(i), name, type != kUser});
    }
  }

  /// Sets the pattern that the name of a pre-tokenizer stands for.
  void read_pre() {
    struct Entry {
      const char* name;
      Pattern::Known known;
      bool ignores_merges;
    };
    static constexpr Entry kEntries[] = {
        {"gpt-2", Pattern::gpt2, false},
        {"smollm", Pattern::smollm, false},
        {"llama-bpe", Pattern::llama3, true},
        {"llama3", Pattern::llama3, true},
        {"llama-v3", Pattern::llama3, true},
        {"qwen2", Pattern::qwen2, false},
        {"gpt-4o", Pattern::o200k, false},
        {"tekken", Pattern::tekken, true},
        {"deepseek-r1-qwen", Pattern::qwen2, false},
    };
    const auto* const entry = std::find_if(std::begin(kEntries), std::end(kEntries),
                                           [&](const Entry& e) { return parts_.pre == e.name; });
    if (entry == std::end(kEntries)) {
      std::string names;
      for (const Entry& e : kEntries)
        names += fmt::format("{}{}", names.empty() ? "" : ", ", e.name);
      refuse("pre", fmt::format("{} is not supported", quoted_for_message(parts_.pre)),
             names + " are");
    }
    spec_.steps = steps_of(entry->known);
    spec_.ignores_merges = entry->ignores_merges;
  }

  void read_merges() {
    if (parts_.merges.size() > kMostTokens)
      refuse("merges", fmt::format("has {} entries", parts_.merges.size()),
             fmt::format("at most {} are read", kMostTokens));
    TokenTable names(spec_.tokens.size());
    for (std::size_t i = 0; i < spec_.tokens.size(); ++i)
      names.add(spec_.tokens[i].name, static_cast<Id>(i));
    std::uint32_t rank = 0;
    for (const std::string& merge : parts_.merges) {
      const std::string_view text = merge;
      const std::size_t space = text.find(' ', 1);
      if (space == std::string_view::npos || space + 1 == text.size())
        refuse("merges",
               fmt::format("entry {}, {}, is not two tokens", rank, quoted_for_message(merge)),
               "an entry is \"left right\"");
      const std::string_view left = text.substr(0, space), right = text.substr(space + 1);
      const std::string together = std::string(left) + std::string(right);
      const Id ids[] = {names.find(left), names.find(right), names.find(together)};
      if (*std::min_element(ids, ids + 3) == kNone)
        refuse("merges",
               fmt::format("entry {}, {}, is of tokens that tokenizer.ggml.tokens does not have",
                           rank, quoted_for_message(merge)),
               "both tokens of a merge, and the one they become, are tokens");
      spec_.merges.push_back({ids[0], ids[1], ids[2], rank++});
    }
  }

  /// SentencePiece's BPE: a token is formed in the order of its score.
  void read_scores() {
    const std::size_t n = spec_.tokens.size();
    if (parts_.scores.size() != n)
      refuse("scores", fmt::format("has {} entries for {} tokens", parts_.scores.size(), n),
             "each token has a score");
    std::vector<std::size_t> order;
    std::vector<std::string> texts(n);
    for (std::size_t i = 0; i < n; ++i) {
      if (!std::isfinite(parts_.scores[i]))
        refuse("scores", fmt::format("token {} has the score {}", i, parts_.scores[i]),
               "scores are finite");
      if (parts_.types[i] != kNormal) continue;
      if (parts_.tokens[i].size() > kLongestToken)
        refuse("tokens", fmt::format("token {} has {} bytes", i, parts_.tokens[i].size()),
               fmt::format("at most {} are read", kLongestToken));
      texts[i] = parts_.tokens[i];
      order.push_back(i);
    }
    std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
      return parts_.scores[a] > parts_.scores[b];
    });
    std::vector<std::uint32_t> ranks(n, kNoRank);
    std::uint32_t rank = 0;
    for (std::size_t k = 0; k < order.size(); ++k) {
      if (k > 0 && parts_.scores[order[k]] != parts_.scores[order[k - 1]]) ++rank;
      ranks[order[k]] = rank;
    }
    spec_.merges = merges_of_ranks(texts, ranks);
    set_sentencepiece();
  }

  void set_sentencepiece() {
    static const std::string kSpace = "\xe2\x96\x81";  // U+2581
    spec_.is_byte_level = false;
    spec_.fuses_unknown = true;
    spec_.has_byte_fallback =
        std::find(parts_.types.begin(), parts_.types.end(), kByte) != parts_.types.end();
    if (parts_.add_space_prefix) {
      spec_.normalizers.push_back({Normalizer::prepend, {}, {}, kSpace});
      spec_.strip = " ";
      spec_.strip_count = 1;
    }
    spec_.normalizers.push_back({Normalizer::replace, {}, " ", kSpace});
    spec_.decoder_replaces.push_back({Normalizer::replace, {}, kSpace, " "});
  }

  const TokenizerParts& parts_;
  Spec spec_;
};

}  // namespace

Spec read_parts(const TokenizerParts& parts) { return PartsReader(parts).run(); }

}  // namespace firn::lm::bpe

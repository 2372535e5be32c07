// Makes a tokenizer of texts: byte-pair encoding of bytes (Sennrich, Haddow and Birch 2016).
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "firn/lm/tokenizer.h"

namespace firn::lm {

struct TrainBpeOptions {
  /// Number of tokens: the special ones, 256 bytes, and the rest merges. There are fewer if the
  /// texts have no more pairs of min_frequency.
  std::int64_t vocabulary = 0;
  Pattern pattern = Pattern::gpt2;        ///< splits the texts into pieces; no token crosses two
  std::vector<std::string> special = {};  ///< names of special tokens; they get the first ids
  std::int64_t min_frequency = 2;         ///< a pair that is rarer becomes no token
};

/// Makes the tokenizer of the texts that `next` gives: next(text) sets `text` and returns true, or
/// returns false at the end. The ids are: the special tokens, the bytes in the order of their
/// characters in GPT-2's alphabet, and the merges in the order in which they were found. The most
/// frequent pair of neighbours becomes the next token; of pairs equally frequent, the one with the
/// lowest left id, then the lowest right id. So the result depends on the texts alone, not on
/// their order.
///
/// The result is that of Hugging Face's BpeTrainer with the same pattern, `initial_alphabet` of all
/// bytes, and the same min_frequency, for valid UTF-8. One case differs: if two pairs spell the
/// same token and the texts bring one of them back later, theirs lists its merge twice. And no pair
/// becomes a token that spells a special one, or whose name has more than 2048 bytes.
///
/// Throws Error unless vocabulary is at least the number of special tokens and 256, the special
/// names are distinct and not empty, and min_frequency >= 1.
Tokenizer train_bpe(const std::function<bool(std::string& text)>& next,
                    const TrainBpeOptions& options);
/// Makes the tokenizer of these texts.
Tokenizer train_bpe(std::span<const std::string> texts, const TrainBpeOptions& options);

}  // namespace firn::lm

// Tokenizers from files, and to files.
#pragma once

#include <string>

#include "firn/lm/tokenizer.h"
#include "lm/tokenizer/spec.h"

namespace firn::lm::bpe {

/// Largest file that is read as a tokenizer, in bytes.
inline constexpr std::size_t kLargestFile = std::size_t{1} << 26;

/// Reads a tokenizer.json (read_json.cpp).
Spec read_json(const std::string& path);
/// Reads a file of tiktoken (read_tiktoken.cpp).
Spec read_tiktoken(const std::string& path, const Pattern& pattern,
                   const std::vector<SpecialToken>& special);
/// Takes the metadata of a GGUF file (read_parts.cpp).
Spec read_parts(const TokenizerParts& parts);
/// Returns the text of a tokenizer.json (write_json.cpp).
std::string write_json(const Spec& spec);
/// Returns the steps of a pattern before byte-level BPE.
std::vector<PreStep> steps_of(const Pattern& pattern);

}  // namespace firn::lm::bpe

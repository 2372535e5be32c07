// Tokenizers of language models: text to the ids of its tokens, and back.
//
//   const lm::Tokenizer tokenizer = lm::Tokenizer::from_file("SmolLM2-135M");
//   const std::vector<std::int64_t> ids = tokenizer.encode("Hello world");
//   std::string text = tokenizer.decode(ids);
#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace firn::lm {

/// Special tokens that a text may contain. A text is data: unless its caller permits a special
/// token, the name of one in the text is encoded as the characters that it consists of.
class Special {
 public:
  /// The type of `none`.
  enum None : std::uint8_t {
    none  ///< no special token; the default
  };
  /// The type of `all`.
  enum All : std::uint8_t {
    all  ///< every special token
  };
  Special(None = none) {}       ///< Permits none.
  Special(All) : all_(true) {}  ///< Permits all.
  /// Permits the tokens of these names.
  Special(std::vector<std::string> names) : names_(std::move(names)) {}
  /// Permits the tokens of these names: `{"<|im_start|>", "<|im_end|>"}`.
  Special(std::initializer_list<std::string> names) : names_(names) {}

  bool permits_all() const noexcept { return all_; }  ///< True for Special::all.
  /// The permitted names; empty for Special::none and Special::all.
  const std::vector<std::string>& names() const noexcept { return names_; }

 private:
  bool all_ = false;
  std::vector<std::string> names_;
};

struct EncodeOptions {
  Special special = Special::none;  ///< special tokens that the text may contain
  /// Whether to add the tokens that the tokenizer's template has before and after a text, such as
  /// BOS and EOS.
  bool add_template = false;
  /// Whether to leave out bytes that have no token, as Hugging Face's library does. Else they are
  /// an error. SmolLM, for instance, has no token for some control characters.
  bool skip_unknown = false;
};

struct DecodeOptions {
  bool skip_special = false;  ///< whether to leave out special tokens
  /// Whether to put U+FFFD in place of bytes that are not UTF-8. Else they stay as they are.
  bool replace_invalid = false;
};

/// The rule that splits a text into pieces before tokens are formed: a well-known one, or a regular
/// expression whose matches are pieces, as is the text between two of them.
class Pattern {
 public:
  /// The well-known rules.
  enum Known : std::uint8_t {
    gpt2,    ///< GPT-2, RoBERTa, OPT
    cl100k,  ///< GPT-4, as tiktoken has it
    o200k,   ///< GPT-4o
    llama3,  ///< Llama 3; it differs from cl100k in white space at the end of a text
    smollm,  ///< SmolLM: digits one by one, and the rest as GPT-2
    qwen2,   ///< Qwen 2 to 3: Llama 3's, with digits one by one
    tekken   ///< Mistral's Tekken: o200k without contractions, with digits one by one
  };
  Pattern(Known known = gpt2) : known_(known) {}  ///< One of the well-known rules.
  /// A regular expression of the syntax that tokenizer.json has (Oniguruma's, as far as PCRE2
  /// agrees with it).
  Pattern(std::string regex) : regex_(std::move(regex)) {}

  Known known() const noexcept { return known_; }               ///< Used if regex() is empty.
  const std::string& regex() const noexcept { return regex_; }  ///< Empty: a well-known rule.

 private:
  Known known_ = gpt2;
  std::string regex_;
};

/// A special token and its id.
struct SpecialToken {
  std::string name;     ///< its text
  std::int64_t id = 0;  ///< its id
};

/// A tokenizer as the metadata of a GGUF file have it (the keys tokenizer.ggml.*).
struct TokenizerParts {
  std::string source = {};               ///< the file, for errors
  std::string model = {};                ///< "gpt2" (byte-level BPE) or "llama" (SentencePiece's)
  std::string pre = {};                  ///< for gpt2: "smollm", "llama-bpe", "qwen2", ...
  std::vector<std::string> tokens = {};  ///< in the order of their ids
  /// Types of the tokens: 1 normal, 2 unknown, 3 control, 4 the user's, 5 unused, 6 a byte.
  std::vector<std::int32_t> types = {};
  std::vector<std::string> merges = {};      ///< for gpt2: "left right"
  std::vector<float> scores = {};            ///< for llama: a higher one is merged first
  std::optional<std::int64_t> bos = {};      ///< begins a text, if add_bos
  std::optional<std::int64_t> eos = {};      ///< ends a text, if add_eos
  std::optional<std::int64_t> unknown = {};  ///< stands for a text that no token has
  bool add_bos = false;                      ///< whether the template begins with bos
  bool add_eos = false;                      ///< whether the template ends with eos
  bool add_space_prefix = true;              ///< for llama: a text gets a space before it
};

namespace bpe {
class Model;
}

/// Byte-pair encoding: byte-level as in GPT-2, or of characters with a fallback to bytes as in
/// Llama 2. A tokenizer does not change after it was made; copies share its data, and several
/// threads may use one.
///
/// **Bytes that are not UTF-8** are accepted. Each is a piece of its own, and the text between them
/// is split as if it stood alone. So byte-level BPE gives any bytes back.
class Tokenizer {
 public:
  /// Reads a Hugging Face `tokenizer.json`, or the one in a folder. Throws IoError, which names
  /// file, key and value, if the file is damaged, or has something that this class does not
  /// compute: Unigram, WordPiece, an unknown normalizer, pre-tokenizer, decoder or post-processor.
  /// `truncation` and `padding` are ignored: encode() does neither.
  static Tokenizer from_file(const std::string& path);

  /// Reads a file of tiktoken: a line "BASE64 ID" for each token. A lower id is merged first.
  /// Throws IoError if the file is damaged, and Error if a special token is another token's double.
  static Tokenizer from_tiktoken(const std::string& path, const Pattern& pattern,
                                 const std::vector<SpecialToken>& special = {});

  /// Makes a tokenizer of the metadata of a GGUF file. Control tokens are special, and tokens of
  /// the user are added ones. Throws IoError, which names source, key and value, if they are
  /// inconsistent or unknown.
  static Tokenizer from_parts(const TokenizerParts& parts);

  /// Writes a `tokenizer.json` that Hugging Face's library reads; it replaces `path` atomically.
  /// Throws IoError if it cannot be written.
  void save(const std::string& path) const;

  /// Returns the ids of the text's tokens. Throws Error if a name in options.special is not a
  /// special token, or if a regular expression gives up on the text. Throws Error for a byte that
  /// has no token, unless there is an unknown token or options.skip_unknown.
  std::vector<std::int64_t> encode(std::string_view text, const EncodeOptions& options = {}) const;
  /// Appends them to `ids`.
  void encode_to(std::string_view text, std::vector<std::int64_t>& ids,
                 const EncodeOptions& options = {}) const;

  /// Returns the text of the tokens. Throws Error, which names id and size, for an id that no token
  /// has.
  std::string decode(std::span<const std::int64_t> ids, const DecodeOptions& options = {}) const;

  /// Number of ids: the largest id and one. An embedding needs as many rows. Not every id need have
  /// a token.
  std::int64_t size() const noexcept;
  /// Returns the id of a token of this name, as tokenizer.json spells it, or nullopt.
  std::optional<std::int64_t> id_of(std::string_view name) const;
  /// Returns the bytes that a token stands for. Throws Error for an id that no token has.
  std::string_view bytes_of(std::int64_t id) const;
  /// True if the id is of a special token.
  bool is_special(std::int64_t id) const noexcept;
  /// The special tokens, by ascending id.
  std::vector<SpecialToken> special_tokens() const;

  Tokenizer(const Tokenizer&) = default;  ///< An object that was moved from is a copy.
  Tokenizer& operator=(const Tokenizer&) = default;

  // For the library.
  explicit Tokenizer(std::shared_ptr<const bpe::Model> model) : model_(std::move(model)) {}
  const bpe::Model& model() const noexcept { return *model_; }

 private:
  std::shared_ptr<const bpe::Model> model_;
};

/// Decodes tokens one by one, as a model makes them. The texts of all calls, one after the other,
/// are decode() of all ids with replace_invalid.
class StreamDecoder {
 public:
  /// options.replace_invalid is taken for true.
  explicit StreamDecoder(Tokenizer tokenizer, const DecodeOptions& options = {})
      : tokenizer_(std::move(tokenizer)), options_(options) {}

  /// Adds a token, and returns the text that is complete with it. A character whose bytes are in
  /// several tokens comes with the last of them. Throws as Tokenizer::decode() does, and stays
  /// unchanged then.
  std::string push(std::int64_t id);
  /// Returns U+FFFD for a character that was begun and not completed, else nothing. Afterwards the
  /// decoder is as new.
  std::string finish();

 private:
  Tokenizer tokenizer_;
  DecodeOptions options_;
  std::string pending_;     ///< bytes of an incomplete character
  bool has_begun_ = false;  ///< whether the text's first characters are decided
};

}  // namespace firn::lm

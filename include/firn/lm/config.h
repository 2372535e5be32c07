// Configurations of language models: the numbers of a config.json as Hugging Face writes it, under
// its names.
//
//   const auto config = lm::LlamaConfig::from_file("SmolLM2-135M");
//   lm::Llama model(config);
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace firn::lm {

/// Ids of tokens with a meaning of their own. They change no computation of a model.
struct SpecialIds {
  std::optional<std::int64_t> bos_token_id = {};  ///< begins a text
  std::vector<std::int64_t> eos_token_id = {};    ///< each of them ends a text
  std::optional<std::int64_t> pad_token_id = {};  ///< fills rows of a batch

  bool operator==(const SpecialIds&) const = default;
};

/// GPT-2 (Radford et al. 2019). The defaults are those of its smallest model.
struct Gpt2Config {
  std::int64_t vocab_size = 50257;               ///< number of tokens
  std::int64_t n_positions = 1024;               ///< longest sequence
  std::int64_t n_embd = 768;                     ///< width
  std::int64_t n_layer = 12;                     ///< number of blocks
  std::int64_t n_head = 12;                      ///< heads of attention; they divide n_embd
  std::int64_t n_inner = 0;                      ///< units of the feed-forward part; 0: 4 n_embd
  std::string activation_function = "gelu_new";  ///< gelu_new (the tanh form), gelu, relu or silu
  double resid_pdrop = 0.1;                      ///< dropout of what a block adds
  double embd_pdrop = 0.1;                       ///< dropout of the embeddings
  double attn_pdrop = 0.1;                       ///< dropout of the probabilities
  double layer_norm_epsilon = 1e-5;              ///< added to the variance
  double initializer_range = 0.02;               ///< standard deviation of new weights
  bool scale_attn_weights = true;                ///< divides scores by the root of a head's width
  bool scale_attn_by_inverse_layer_idx =
      false;                        ///< also divides them by the block's number, from 1
  bool tie_word_embeddings = true;  ///< the output layer is the table of tokens
  SpecialIds ids = {};              ///< bos_token_id, eos_token_id, pad_token_id

  /// Reads a config.json, or that of a folder. Throws IoError that names the file, the key and its
  /// value. It refuses text that is not JSON, a missing size, a number outside its limits, and
  /// another model_type or architecture. It also refuses a key that firn does not know and that has
  /// a value, since it could change the computation.
  static Gpt2Config from_file(const std::string& path);
  /// Returns the text of a config.json that from_file() and transformers read.
  std::string to_json() const;
  /// Throws Error that names `op`, the key and its value unless all numbers are within their limits
  /// and fit together.
  void check(const char* op) const;
  bool operator==(const Gpt2Config&) const = default;
};

/// Rotary positions and their scaling: `rope_parameters`, or `rope_theta` and `rope_scaling`. See
/// transformers' modeling_rope_utils.py.
struct RopeParameters {
  /// "default", "linear" (all angles divided by `factor`), "llama3" (low frequencies divided), or
  /// "yarn" (Peng et al. 2023). "dynamic" and "longrope" are refused: their angles depend on the
  /// length of the sequence.
  std::string rope_type = "default";
  double rope_theta = 10000;   ///< base of the wavelengths
  double factor = 1;           ///< the sequence is this many times as long as in pretraining
  double low_freq_factor = 1;  ///< llama3: waves longer than the original length / this are divided
  double high_freq_factor = 4;  ///< llama3: waves shorter than the original length / this stay
  /// llama3, yarn: length of sequences in pretraining; 0: max_position_embeddings.
  std::int64_t original_max_position_embeddings = 0;
  double beta_fast = 32;  ///< yarn: pairs with more turns than this over the original length stay
  double beta_slow = 1;   ///< yarn: pairs with fewer turns than this are divided
  bool truncate = true;   ///< yarn: the range between them is rounded to whole pairs
  /// yarn: queries and keys are multiplied by this number. Unset: it follows from factor, mscale
  /// and mscale_all_dim.
  std::optional<double> attention_factor = {};
  double mscale = 0, mscale_all_dim = 0;  ///< yarn: see attention_factor; 0: unset

  bool operator==(const RopeParameters&) const = default;
};

/// Llama 2 and 3 and models of their kind: SmolLM2, Mistral, Qwen2. The defaults are those of
/// Llama.
struct LlamaConfig {
  std::string model_type = "llama";             ///< "llama", "mistral" or "qwen2"
  std::int64_t vocab_size = 32000;              ///< number of tokens
  std::int64_t hidden_size = 4096;              ///< width
  std::int64_t intermediate_size = 11008;       ///< units of the feed-forward part
  std::int64_t num_hidden_layers = 32;          ///< number of blocks
  std::int64_t num_attention_heads = 32;        ///< heads of queries
  std::int64_t num_key_value_heads = 0;         ///< heads of keys and values; 0: as many
  std::int64_t head_dim = 0;                    ///< 0: hidden_size / num_attention_heads
  std::int64_t max_position_embeddings = 2048;  ///< longest sequence of the training
  double rms_norm_eps = 1e-6;                   ///< added to the mean square
  double attention_dropout = 0;                 ///< dropout of the probabilities
  double initializer_range = 0.02;              ///< standard deviation of new weights
  bool attention_bias =
      false;              ///< all projections of attention have a bias; qwen2: all but the last
  bool mlp_bias = false;  ///< the feed-forward part has biases
  bool tie_word_embeddings = false;                 ///< the output layer is the table of tokens
  RopeParameters rope = {};                         ///< rotary positions
  std::optional<std::int64_t> sliding_window = {};  ///< keys that a token sees, its own included
  /// For each block, true if its attention has the sliding window (`layer_types`). Empty: all have
  /// it if it is set.
  std::vector<bool> sliding_layers = {};
  SpecialIds ids = {};  ///< bos_token_id, eos_token_id, pad_token_id

  /// Works as Gpt2Config::from_file().
  static LlamaConfig from_file(const std::string& path);
  /// Returns the text of a config.json that from_file() and transformers read.
  std::string to_json() const;
  /// Works as Gpt2Config::check().
  void check(const char* op) const;
  bool operator==(const LlamaConfig&) const = default;

  std::int64_t key_value_heads() const noexcept;  ///< heads of keys and values
  std::int64_t head_width() const noexcept;       ///< width of a head
  /// The sliding window of a block, if it has one.
  std::optional<std::int64_t> window(std::int64_t layer) const;
};

}  // namespace firn::lm

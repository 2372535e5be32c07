// Small models for tests.
#pragma once

#include "firn/firn.h"

namespace firn::test {

inline lm::LlamaConfig small_llama() {
  lm::LlamaConfig c;
  c.model_type = "qwen2";
  c.vocab_size = 23;
  c.hidden_size = 16;
  c.intermediate_size = 24;
  c.num_hidden_layers = 3;
  c.num_attention_heads = 4;
  c.num_key_value_heads = 2;
  c.max_position_embeddings = 32;
  c.initializer_range = 0.3;
  c.attention_bias = true;
  c.sliding_window = 5;
  c.sliding_layers = {false, true, true};
  c.rope.rope_type = "llama3";
  c.rope.factor = 4;
  c.rope.original_max_position_embeddings = 16;
  return c;
}

inline lm::Gpt2Config small_gpt2() {
  lm::Gpt2Config c;
  c.vocab_size = 23;
  c.n_positions = 12;
  c.n_embd = 16;
  c.n_layer = 3;
  c.n_head = 4;
  c.n_inner = 24;
  c.initializer_range = 0.3;
  return c;
}

/// The config of a model's type, without dropout.
template <class Model>
auto small_config() {
  if constexpr (requires(Model m) { m.config().n_embd; }) {
    lm::Gpt2Config c = small_gpt2();
    c.attn_pdrop = c.embd_pdrop = c.resid_pdrop = 0;
    return c;
  } else {
    return small_llama();
  }
}

/// Ids [n, t] of a vocabulary, the same for a seed.
inline Tensor random_ids(std::int64_t n, std::int64_t t, std::int64_t vocabulary = 23,
                         std::uint64_t seed = 7) {
  Generator generator(seed);
  return randint(0, vocabulary, {n, t}, {.generator = &generator});
}

}  // namespace firn::test

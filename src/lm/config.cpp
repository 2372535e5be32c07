// Gpt2Config, and parts that both configurations share.
#include "firn/lm/config.h"

#include <fmt/format.h>

#include <algorithm>

#include "lm/config_check.h"
#include "lm/config_json.h"

namespace firn::lm {

SpecialIds read_special_ids(ConfigFile& file) {
  const Range ids{-1, kCounts.most};
  SpecialIds out;
  out.bos_token_id = file.optional_integer("bos_token_id", ids);
  out.eos_token_id = file.integers("eos_token_id", ids);
  out.pad_token_id = file.optional_integer("pad_token_id", ids);
  return out;
}

void check_architectures(ConfigFile& file, std::initializer_list<std::string_view> known) {
  for (const std::string& name : file.texts("architectures"))
    if (std::find(known.begin(), known.end(), name) == known.end())
      file.fail(fmt::format("architectures has \"{}\"; firn has {}", name, fmt::join(known, ", ")),
                "firn has no model with the other layers of this one");
}

void add_ids(io::Record& json, const SpecialIds& ids) {
  if (ids.bos_token_id) json.add("bos_token_id", *ids.bos_token_id);
  if (ids.eos_token_id.size() == 1)
    json.add("eos_token_id", ids.eos_token_id.front());
  else if (!ids.eos_token_id.empty())
    json.add("eos_token_id", ids.eos_token_id);
  if (ids.pad_token_id) json.add("pad_token_id", *ids.pad_token_id);
}

// ---- GPT-2 ----

Gpt2Config Gpt2Config::from_file(const std::string& path) try {
  constexpr const char* kOp = "Gpt2Config::from_file";
  ConfigFile file(kOp, path);
  file.require_one_of("model_type", "", {"gpt2"}, "lm::LlamaConfig reads llama, mistral and qwen2");
  check_architectures(file, {"GPT2LMHeadModel", "GPT2Model"});
  Gpt2Config c;
  c.vocab_size = file.integer("vocab_size", kCounts);
  c.n_positions = file.integer("n_positions", kCounts);
  c.n_embd = file.integer("n_embd", kWidths);
  c.n_layer = file.integer("n_layer", kLayers);
  c.n_head = file.integer("n_head", kHeads);
  c.n_inner = file.optional_integer("n_inner", kWidths).value_or(0);
  c.activation_function = file.text("activation_function", c.activation_function);
  if (c.activation_function == "gelu_pytorch_tanh") c.activation_function = "gelu_new";
  c.resid_pdrop = file.number("resid_pdrop", c.resid_pdrop);
  c.embd_pdrop = file.number("embd_pdrop", c.embd_pdrop);
  c.attn_pdrop = file.number("attn_pdrop", c.attn_pdrop);
  c.layer_norm_epsilon = file.number("layer_norm_epsilon", c.layer_norm_epsilon);
  c.initializer_range = file.number("initializer_range", c.initializer_range);
  c.scale_attn_weights = file.flag("scale_attn_weights", true);
  c.scale_attn_by_inverse_layer_idx = file.flag("scale_attn_by_inverse_layer_idx", false);
  c.tie_word_embeddings = file.flag("tie_word_embeddings", true);
  c.ids = read_special_ids(file);
  // firn computes scores and their softmax in f32 always, which is what this key asks for.
  file.ignore({"reorder_and_upcast_attn"});
  file.refuse_flag("add_cross_attention", "a decoder of two models is no language model");
  file.refuse_flag("is_encoder_decoder", "a decoder of two models is no language model");
  file.finish();
  with_path(file, [&] { c.check(kOp); });
  return c;
}
FIRN_OUT_OF_MEMORY("Gpt2Config::from_file")

void Gpt2Config::check(const char* op) const {
  check_range(op, "vocab_size", vocab_size, kCounts);
  check_range(op, "n_positions", n_positions, kCounts);
  check_range(op, "n_embd", n_embd, kWidths);
  check_range(op, "n_layer", n_layer, kLayers);
  check_range(op, "n_head", n_head, kHeads);
  check_range(op, "n_inner", n_inner, {0, kWidths.most});
  FIRN_CHECK(n_embd % n_head == 0, op, "each head takes an equal part of the width",
             "n_embd = {} is no multiple of n_head = {}", n_embd, n_head);
  const std::string& f = activation_function;
  FIRN_CHECK(f == "gelu_new" || f == "gelu" || f == "relu" || f == "silu", op,
             "gelu_new is GPT-2's",
             "activation_function is \"{}\"; firn has gelu_new, gelu, relu "
             "and silu",
             f);
  check_probability(op, "resid_pdrop", resid_pdrop);
  check_probability(op, "embd_pdrop", embd_pdrop);
  check_probability(op, "attn_pdrop", attn_pdrop);
  check_not_negative(op, "layer_norm_epsilon", layer_norm_epsilon);
  check_not_negative(op, "initializer_range", initializer_range);
  check_special_ids(op, ids);
  const double d = double(n_embd), inner = n_inner > 0 ? double(n_inner) : 4 * d;
  check_parameters(
      op, double(n_layer) * d * (4 * d + 2 * inner) + d * double(n_positions + 2 * vocab_size));
}

std::string Gpt2Config::to_json() const {
  io::Record json;
  json.add("architectures", std::vector<std::string>{"GPT2LMHeadModel"});
  json.add("model_type", "gpt2");
  json.add("vocab_size", vocab_size);
  json.add("n_positions", n_positions);
  json.add("n_embd", n_embd);
  json.add("n_layer", n_layer);
  json.add("n_head", n_head);
  if (n_inner > 0) json.add("n_inner", n_inner);
  json.add("activation_function", activation_function);
  json.add("resid_pdrop", resid_pdrop);
  json.add("embd_pdrop", embd_pdrop);
  json.add("attn_pdrop", attn_pdrop);
  json.add("layer_norm_epsilon", layer_norm_epsilon);
  json.add("initializer_range", initializer_range);
  json.add("scale_attn_weights", scale_attn_weights);
  json.add("scale_attn_by_inverse_layer_idx", scale_attn_by_inverse_layer_idx);
  json.add("tie_word_embeddings", tie_word_embeddings);
  add_ids(json, ids);
  return json.text();
}

}  // namespace firn::lm

// LlamaConfig: the config.json of Llama, Mistral and Qwen2.
#include <fmt/format.h>

#include <algorithm>

#include "firn/lm/config.h"
#include "lm/config_check.h"
#include "lm/config_json.h"

namespace firn::lm {
namespace {

constexpr const char* kOp = "LlamaConfig::from_file";

/// Reads one object of rotary parameters, or the keys of the outermost one.
void read_scaling(ConfigFile& file, RopeParameters& rope) {
  const std::string older = file.text("type", "default");
  rope.rope_type = file.text("rope_type", older);
  rope.rope_theta = file.number("rope_theta", rope.rope_theta);
  const std::string& type = rope.rope_type;
  const char* const key = file.has("rope_type") ? "rope_type" : "type";
  if (type == "dynamic" || type == "longrope")
    file.refuse(key, "its angles depend on the length of the sequence, so firn lacks it",
                "firn has default, linear, llama3 and yarn");
  if (type != "default" && type != "linear" && type != "llama3" && type != "yarn")
    file.refuse(key, "firn does not know this scaling",
                "firn has default, linear, llama3 and yarn");
  if (file.number("partial_rotary_factor", 1) != 1)
    file.refuse("partial_rotary_factor", "firn turns all elements of a head", "1 is right");
  rope.factor = file.number("factor", 1);
  rope.low_freq_factor = file.number("low_freq_factor", rope.low_freq_factor);
  rope.high_freq_factor = file.number("high_freq_factor", rope.high_freq_factor);
  rope.original_max_position_embeddings =
      file.optional_integer("original_max_position_embeddings", kCounts).value_or(0);
  rope.beta_fast = file.number("beta_fast", rope.beta_fast);
  rope.beta_slow = file.number("beta_slow", rope.beta_slow);
  rope.truncate = file.flag("truncate", true);
  rope.attention_factor = file.optional_number("attention_factor");
  rope.mscale = file.number("mscale", 0);
  rope.mscale_all_dim = file.number("mscale_all_dim", 0);
  file.ignore({"finetuned"});  // a remark of YaRN's authors
  if (type != "default" && !file.has("factor"))
    file.refuse("factor", "the scaling \"" + type + "\" divides frequencies by it",
                "take it from the model's page");
  if (type == "llama3")
    for (const char* needed : {"low_freq_factor", "high_freq_factor"})
      if (!file.has(needed))
        file.refuse(needed, "the scaling \"llama3\" depends on it",
                    "take it from the model's page");
  file.finish();
}

RopeParameters read_rope(ConfigFile& file) {
  RopeParameters rope;
  rope.rope_theta = file.number("rope_theta", rope.rope_theta);
  std::optional<ConfigFile> older = file.object("rope_scaling");
  std::optional<ConfigFile> newer = file.object("rope_parameters");
  if (older && newer)
    file.refuse("rope_scaling", "the file also has rope_parameters, its newer name",
                "remove one of them");
  if (older) read_scaling(*older, rope);
  if (newer) read_scaling(*newer, rope);
  if (file.number("partial_rotary_factor", 1) != 1)
    file.refuse("partial_rotary_factor", "firn turns all elements of a head", "1 is right");
  if (file.flag("rope_interleaved", false))
    file.refuse("rope_interleaved", "firn turns elements i and i + head_dim/2", "false is right");
  return rope;
}

/// Reads sliding windows. For Qwen2 use_sliding_window switches them on, for blocks from
/// max_window_layers on unless layer_types names them.
void read_windows(ConfigFile& file, LlamaConfig& c) {
  const std::optional<std::int64_t> window = file.optional_integer("sliding_window", kCounts);
  const bool mistral = c.model_type == "mistral", qwen2 = c.model_type == "qwen2";
  const bool used = file.flag("use_sliding_window", mistral);
  const std::int64_t from =
      file.integer("max_window_layers", {0, kCounts.most}, std::int64_t{qwen2 ? 28 : 0});
  const std::vector<std::string> types = file.texts("layer_types");
  if (used) c.sliding_window = file.has("sliding_window") ? window : 4096;
  if (!mistral && !qwen2 && window)
    file.refuse("sliding_window", "a model of the type llama has none",
                "null is right, or model_type \"mistral\"");
  if (!types.empty() && static_cast<std::int64_t>(types.size()) != c.num_hidden_layers)
    file.refuse("layer_types", fmt::format("num_hidden_layers is {}", c.num_hidden_layers),
                "each block has one type");
  for (const std::string& type : types) {
    if (type != "full_attention" && type != "sliding_attention")
      file.refuse("layer_types", fmt::format("one of them is \"{}\"", type),
                  "firn has full_attention and sliding_attention");
    if (type == "sliding_attention" && !c.sliding_window)
      file.refuse("sliding_window", "layer_types has sliding_attention",
                  "give the number of keys that a token sees, and use_sliding_window");
    c.sliding_layers.push_back(type == "sliding_attention");
  }
  if (qwen2 && types.empty() && c.sliding_window)
    for (std::int64_t i = 0; i < c.num_hidden_layers; ++i) c.sliding_layers.push_back(i >= from);
  const auto& all = c.sliding_layers;
  if (c.sliding_window && std::find(all.begin(), all.end(), false) == all.end())
    c.sliding_layers.clear();  // all blocks have it, which is the default
}

void check_rope(const char* op, const LlamaConfig& c) {
  const RopeParameters& r = c.rope;
  const char* const hint = "see RopeParameters";
  FIRN_CHECK(std::isfinite(r.rope_theta) && r.rope_theta >= 1, op, "10000 is usual",
             "rope_theta = {} is not a finite number from 1 on", r.rope_theta);
  const std::string& type = r.rope_type;
  FIRN_CHECK(type == "default" || type == "linear" || type == "llama3" || type == "yarn", op, hint,
             "rope_type is \"{}\"; firn has default, linear, llama3 and yarn", type);
  if (type == "default") return;
  FIRN_CHECK(std::isfinite(r.factor) && r.factor >= 1, op, hint,
             "factor = {} of rope_type {} is not a finite number from 1 on", r.factor, type);
  check_range(op, "original_max_position_embeddings", r.original_max_position_embeddings,
              {0, kCounts.most});
  if (type == "llama3")
    FIRN_CHECK(r.low_freq_factor > 0 && r.high_freq_factor > r.low_freq_factor &&
                   std::isfinite(r.high_freq_factor),
               op, hint, "low_freq_factor = {} and high_freq_factor = {} are not 0 < low < high",
               r.low_freq_factor, r.high_freq_factor);
  if (type != "yarn") return;
  FIRN_CHECK(r.rope_theta > 1, op, hint, "rope_theta = {} of rope_type yarn", r.rope_theta);
  FIRN_CHECK(r.beta_slow > 0 && r.beta_fast >= r.beta_slow && std::isfinite(r.beta_fast), op, hint,
             "beta_slow = {} and beta_fast = {} are not 0 < slow <= fast", r.beta_slow,
             r.beta_fast);
  FIRN_CHECK(!r.attention_factor || (std::isfinite(*r.attention_factor) && *r.attention_factor > 0),
             op, hint, "attention_factor = {} is not above 0", r.attention_factor.value_or(0));
  check_not_negative(op, "mscale", r.mscale);
  check_not_negative(op, "mscale_all_dim", r.mscale_all_dim);
}

io::Record record_of(const RopeParameters& r) {
  io::Record json;
  json.add("rope_type", r.rope_type);
  json.add("factor", r.factor);
  if (r.original_max_position_embeddings > 0)
    json.add("original_max_position_embeddings", r.original_max_position_embeddings);
  if (r.rope_type == "llama3") {
    json.add("low_freq_factor", r.low_freq_factor);
    json.add("high_freq_factor", r.high_freq_factor);
  }
  if (r.rope_type == "yarn") {
    json.add("beta_fast", r.beta_fast);
    json.add("beta_slow", r.beta_slow);
    json.add("truncate", r.truncate);
    if (r.attention_factor) json.add("attention_factor", *r.attention_factor);
    if (r.mscale > 0) json.add("mscale", r.mscale);
    if (r.mscale_all_dim > 0) json.add("mscale_all_dim", r.mscale_all_dim);
  }
  return json;
}

}  // namespace

LlamaConfig LlamaConfig::from_file(const std::string& path) try {
  ConfigFile file(kOp, path);
  LlamaConfig c;
  file.require_one_of("model_type", "", {"llama", "mistral", "qwen2"}, "lm::Gpt2Config reads gpt2");
  c.model_type = file.text("model_type", "");
  const bool mistral = c.model_type == "mistral", qwen2 = c.model_type == "qwen2";
  if (mistral)
    check_architectures(file, {"MistralForCausalLM", "MistralModel"});
  else if (qwen2)
    check_architectures(file, {"Qwen2ForCausalLM", "Qwen2Model"});
  else
    check_architectures(file, {"LlamaForCausalLM", "LlamaModel"});
  c.vocab_size = file.integer("vocab_size", kCounts);
  c.hidden_size = file.integer("hidden_size", kWidths);
  c.intermediate_size = file.integer("intermediate_size", kWidths);
  c.num_hidden_layers = file.integer("num_hidden_layers", kLayers);
  c.num_attention_heads = file.integer("num_attention_heads", kHeads);
  // transformers' defaults without the key; null stands for all heads.
  const std::int64_t heads = file.has("num_key_value_heads") ? 0 : mistral ? 8 : qwen2 ? 32 : 0;
  c.num_key_value_heads = file.optional_integer("num_key_value_heads", kHeads).value_or(heads);
  c.head_dim = file.optional_integer("head_dim", kWidths).value_or(0);
  c.max_position_embeddings = file.integer("max_position_embeddings", kCounts,
                                           std::int64_t{mistral ? 131072
                                                        : qwen2 ? 32768
                                                                : 2048});
  c.rms_norm_eps = file.number("rms_norm_eps", c.rms_norm_eps);
  c.attention_dropout = file.number("attention_dropout", 0);
  c.initializer_range = file.number("initializer_range", c.initializer_range);
  c.tie_word_embeddings = file.flag("tie_word_embeddings", false);
  file.require_one_of("hidden_act", "silu", {"silu", "swish"}, "SwiGLU has silu");
  // Only Llama's own layers have these keys; transformers' other two ignore them.
  c.attention_bias = file.flag("attention_bias", qwen2);
  c.mlp_bias = file.flag("mlp_bias", false);
  if (c.model_type != "llama")
    for (const char* key : {"attention_bias", "mlp_bias"})
      if (file.has(key) && file.flag(key, false) != (qwen2 && key[0] == 'a'))
        file.refuse(key, "a model of the type " + c.model_type + " has no choice of biases",
                    "remove the key");
  c.rope = read_rope(file);
  read_windows(file, c);
  c.ids = read_special_ids(file);
  file.refuse_flag("add_cross_attention", "a decoder of two models is no language model");
  file.refuse_flag("is_encoder_decoder", "a decoder of two models is no language model");
  file.finish();
  with_path(file, [&] { c.check(kOp); });
  return c;
}
FIRN_OUT_OF_MEMORY("LlamaConfig::from_file")

std::int64_t LlamaConfig::key_value_heads() const noexcept {
  return num_key_value_heads > 0 ? num_key_value_heads : num_attention_heads;
}
std::int64_t LlamaConfig::head_width() const noexcept {
  return head_dim > 0 ? head_dim : hidden_size / num_attention_heads;
}
std::optional<std::int64_t> LlamaConfig::window(std::int64_t layer) const {
  const bool slides = sliding_layers.empty() || sliding_layers[static_cast<std::size_t>(layer)];
  return slides ? sliding_window : std::nullopt;
}

void LlamaConfig::check(const char* op) const {
  FIRN_CHECK(model_type == "llama" || model_type == "mistral" || model_type == "qwen2", op,
             "Gpt2Config is for gpt2", "model_type is \"{}\"; it is llama, mistral or qwen2",
             model_type);
  check_range(op, "vocab_size", vocab_size, kCounts);
  check_range(op, "hidden_size", hidden_size, kWidths);
  check_range(op, "intermediate_size", intermediate_size, kWidths);
  check_range(op, "num_hidden_layers", num_hidden_layers, kLayers);
  check_range(op, "num_attention_heads", num_attention_heads, kHeads);
  check_range(op, "num_key_value_heads", num_key_value_heads, {0, kHeads.most});
  check_range(op, "head_dim", head_dim, {0, kWidths.most});
  check_range(op, "max_position_embeddings", max_position_embeddings, kCounts);
  FIRN_CHECK(num_attention_heads % key_value_heads() == 0, op,
             "each head of keys serves as many heads of queries",
             "num_attention_heads = {} is no multiple of num_key_value_heads = {}",
             num_attention_heads, num_key_value_heads);
  FIRN_CHECK(head_dim > 0 || hidden_size % num_attention_heads == 0, op, "or set head_dim",
             "hidden_size = {} is no multiple of num_attention_heads = {}", hidden_size,
             num_attention_heads);
  FIRN_CHECK(head_width() % 2 == 0, op, "rotary positions turn pairs of elements",
             "head_dim = {} is odd", head_width());
  check_not_negative(op, "rms_norm_eps", rms_norm_eps);
  check_not_negative(op, "initializer_range", initializer_range);
  check_special_ids(op, ids);
  check_probability(op, "attention_dropout", attention_dropout);
  check_rope(op, *this);
  FIRN_CHECK(!sliding_window || *sliding_window > 0, op, "1 is the token itself",
             "sliding_window = {}", sliding_window.value_or(0));
  FIRN_CHECK(!sliding_window || model_type != "llama", op, "model_type \"mistral\" has one",
             "sliding_window = {} of model_type llama", sliding_window.value_or(0));
  FIRN_CHECK(sliding_layers.empty() ||
                 static_cast<std::int64_t>(sliding_layers.size()) == num_hidden_layers,
             op, "each block has one entry", "sliding_layers has {} entries for {} blocks",
             sliding_layers.size(), num_hidden_layers);
  const double d = double(hidden_size), heads = double(head_width());
  const double attention =
      2 * d * heads * double(num_attention_heads) + 2 * d * heads * double(key_value_heads());
  check_parameters(op, double(num_hidden_layers) * (attention + 3 * d * double(intermediate_size)) +
                           2 * d * double(vocab_size));
}

std::string LlamaConfig::to_json() const {
  const bool qwen2 = model_type == "qwen2", mistral = model_type == "mistral";
  io::Record json;
  json.add("architectures", std::vector<std::string>{qwen2     ? "Qwen2ForCausalLM"
                                                     : mistral ? "MistralForCausalLM"
                                                               : "LlamaForCausalLM"});
  json.add("model_type", model_type);
  json.add("vocab_size", vocab_size);
  json.add("hidden_size", hidden_size);
  json.add("intermediate_size", intermediate_size);
  json.add("num_hidden_layers", num_hidden_layers);
  json.add("num_attention_heads", num_attention_heads);
  json.add("num_key_value_heads", key_value_heads());
  json.add("head_dim", head_width());
  json.add("hidden_act", "silu");
  json.add("max_position_embeddings", max_position_embeddings);
  json.add("rms_norm_eps", rms_norm_eps);
  json.add("attention_dropout", attention_dropout);
  json.add("initializer_range", initializer_range);
  json.add("tie_word_embeddings", tie_word_embeddings);
  if (!qwen2 && !mistral) json.add("attention_bias", attention_bias);
  if (!qwen2 && !mistral) json.add("mlp_bias", mlp_bias);
  json.add("rope_theta", rope.rope_theta);
  if (rope.rope_type == "default")
    json.add("rope_scaling", std::nullopt);
  else
    json.add("rope_scaling", record_of(rope));
  if (qwen2) json.add("use_sliding_window", sliding_window.has_value());
  if (sliding_window)
    json.add("sliding_window", *sliding_window);
  else if (qwen2 || mistral)
    json.add("sliding_window", std::nullopt);
  if (qwen2 && sliding_window) {
    std::vector<std::string> types;
    for (std::int64_t i = 0; i < num_hidden_layers; ++i)
      types.push_back(window(i) ? "sliding_attention" : "full_attention");
    json.add("max_window_layers", std::int64_t{0});
    json.add("layer_types", types);
  }
  add_ids(json, ids);
  return json.text();
}

}  // namespace firn::lm

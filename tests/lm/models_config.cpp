// config.json: files of transformers are read, what firn would compute differently is refused.
#include <string>
#include <utility>

#include "data/files.h"
#include "firn/lm/config.h"
#include "models.h"
#include "support/catch.h"
#include "support/values.h"

using namespace firn;
using namespace firn::test;
using firn::testing::error_of;

namespace {

const std::string kLlama = R"("model_type": "llama", "vocab_size": 32, "hidden_size": 16,
  "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 4)";
const std::string kMistral = R"("model_type": "mistral", "vocab_size": 32, "hidden_size": 16,
  "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 8)";
const std::string kQwen2 = R"("model_type": "qwen2", "vocab_size": 32, "hidden_size": 16,
  "intermediate_size": 24, "num_hidden_layers": 3, "num_attention_heads": 4,
  "num_key_value_heads": 2)";
const std::string kGpt2 = R"("model_type": "gpt2", "vocab_size": 32, "n_positions": 8, "n_embd": 16,
  "n_layer": 2, "n_head": 4)";

template <class Config>
Config read(const std::string& members) {
  const TempFolder folder;
  write_file(folder.file("config.json"), "{" + members + "}");
  return Config::from_file(folder.path().string());
}

/// Checks that the file is refused with an IoError that names it and has these parts.
template <class Config>
void refused(const std::string& members, std::initializer_list<const char*> parts) {
  INFO(members);
  const TempFolder folder;
  const std::string path = write_file(folder.file("config.json"), "{" + members + "}");
  try {
    Config::from_file(path);
    FAIL("it was read");
  } catch (const IoError& e) {
    const std::string what = e.what();
    INFO(what);
    CHECK(e.path() == path);
    CHECK(what.find("hint") != std::string::npos);
    for (const char* part : parts) CHECK(what.find(part) != std::string::npos);
  }
}

}  // namespace

TEST_CASE("LlamaConfig: the names and defaults of transformers") {
  const auto c = read<lm::LlamaConfig>(kLlama + R"(, "rope_theta": 500000.0, "_name_or_path": "x",
    "architectures": ["LlamaForCausalLM"], "bos_token_id": 1, "eos_token_id": [2, 3],
    "pad_token_id": null, "torch_dtype": "bfloat16", "use_cache": true, "rope_scaling": null,
    "pretraining_tp": 1, "id2label": {"0": "A"}, "attention_bias": false, "tie_word_embeddings": true,
    "is_llama_config": true, "pruned_heads": {}, "logit_scale": null, "rope_interleaved": false, "transformers.js_config": {"a": [1]},
    "initializer_range": 0.041666666666666664, "transformers_version": "4.42.3")");
  CHECK(c.vocab_size == 32);
  CHECK(c.key_value_heads() == 4);
  CHECK(c.head_width() == 4);
  CHECK(c.rope.rope_theta == 500000);
  CHECK(c.rms_norm_eps == 1e-6);
  CHECK(c.initializer_range == 1.0 / 24);
  CHECK(c.tie_word_embeddings);
  CHECK(c.ids.bos_token_id == 1);
  CHECK(c.ids.eos_token_id == std::vector<std::int64_t>{2, 3});
  CHECK(!c.ids.pad_token_id);
}

TEST_CASE("LlamaConfig: rotary positions by their newer and their older names") {
  const char* llama3 = R"("factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192)";
  const auto newer = read<lm::LlamaConfig>(
      kLlama + R"(, "rope_parameters": {"rope_type": "llama3", "rope_theta": 500000.0, )" + llama3 +
      "}");
  const auto older = read<lm::LlamaConfig>(
      kLlama + R"(, "rope_theta": 500000.0, "rope_scaling": {"rope_type": "llama3", )" + llama3 +
      "}");
  CHECK(newer == older);
  CHECK(newer.rope.factor == 8);
  const auto linear =
      read<lm::LlamaConfig>(kLlama + R"(, "rope_scaling": {"type": "linear", "factor": 2})");
  CHECK(linear.rope.rope_type == "linear");
  CHECK(linear.rope.factor == 2);
}

TEST_CASE("LlamaConfig: windows of Mistral and Qwen2") {
  using Window = std::optional<std::int64_t>;
  const auto mistral = read<lm::LlamaConfig>(kMistral);
  CHECK(mistral.window(1) == Window(4096));  // transformers' defaults
  CHECK(mistral.key_value_heads() == 8);
  CHECK(!read<lm::LlamaConfig>(kMistral + R"(, "sliding_window": null)").window(0));
  CHECK(read<lm::LlamaConfig>(kMistral + R"(, "sliding_window": 7)").window(0) == Window(7));
  const auto off = read<lm::LlamaConfig>(
      kQwen2 + R"(, "sliding_window": 7, "use_sliding_window": false, "max_window_layers": 1)");
  CHECK(!off.window(2));
  CHECK(off.attention_bias);
  const auto on = read<lm::LlamaConfig>(
      kQwen2 + R"(, "sliding_window": 7, "use_sliding_window": true, "max_window_layers": 1)");
  CHECK((!on.window(0) && on.window(1) == Window(7) && on.window(2) == Window(7)));
  const auto types = read<lm::LlamaConfig>(
      kQwen2 + R"(, "sliding_window": 7, "use_sliding_window": true, "layer_types":
      ["sliding_attention", "full_attention", "sliding_attention"])");
  CHECK((types.window(0) && !types.window(1) && types.window(2)));
}

TEST_CASE("configs: what is written is read again") {
  const TempFolder folder;
  const auto again = [&](const auto& config) {
    using Config = std::remove_cvref_t<decltype(config)>;
    CHECK(Config::from_file(write_file(folder.file("a.json"), config.to_json())) == config);
  };
  lm::LlamaConfig small = small_llama();
  small.head_dim = 4;  // the file has the number, not its default
  again(small);
  again(small_gpt2());
  lm::LlamaConfig c;
  c.head_dim = 64;
  c.num_key_value_heads = 8;
  c.attention_bias = c.mlp_bias = true;
  c.rope = {.rope_type = "yarn",
            .rope_theta = 1e6,
            .factor = 2.5,
            .original_max_position_embeddings = 77,
            .beta_fast = 20,
            .beta_slow = 0.5,
            .truncate = false,
            .attention_factor = 1.25,
            .mscale = 0.7,
            .mscale_all_dim = 0.3};
  c.ids = {.bos_token_id = 0, .eos_token_id = {5, 6}, .pad_token_id = 7};
  again(c);
  lm::Gpt2Config g;
  g.activation_function = "gelu";
  g.scale_attn_weights = false;
  g.scale_attn_by_inverse_layer_idx = true;
  g.tie_word_embeddings = false;
  g.resid_pdrop = 0;
  again(g);
}

TEST_CASE("configs: other models and options are refused by name") {
  using Llama = lm::LlamaConfig;
  using Gpt2 = lm::Gpt2Config;
  refused<Llama>(R"("vocab_size": 3)", {"model_type", "missing", "llama"});
  refused<Llama>(kGpt2, {"model_type", "\"gpt2\"", "Gpt2Config"});
  refused<Gpt2>(kLlama, {"model_type", "\"llama\"", "LlamaConfig"});
  refused<Llama>(kLlama + R"(, "architectures": ["LlamaForSequenceClassification"])",
                 {"architectures", "LlamaForSequenceClassification", "LlamaForCausalLM"});
  refused<Llama>(kLlama + R"(, "hidden_act": "gelu")", {"hidden_act", "\"gelu\"", "\"silu\""});
  refused<Llama>(kLlama + R"(, "rope_scaling": {"type": "dynamic", "factor": 2.0})",
                 {"rope_scaling.type", "\"dynamic\"", "length", "llama3"});
  refused<Llama>(kLlama + R"(, "rope_scaling": {"rope_type": "su", "factor": 2.0})",
                 {"rope_scaling.rope_type", "\"su\"", "yarn"});
  refused<Llama>(kLlama + R"(, "rope_scaling": {"rope_type": "linear"})",
                 {"rope_scaling.factor", "missing"});
  refused<Llama>(kLlama + R"(, "rope_scaling": {"rope_type": "llama3", "factor": 2})",
                 {"rope_scaling.low_freq_factor", "missing"});
  refused<Llama>(kLlama + R"(, "rope_parameters": {"mrope_section": [1, 2]})",
                 {"rope_parameters.mrope_section", "a list of 2"});
  refused<Llama>(kLlama + R"(, "rope_scaling": {"rope_type": "linear", "factor": 0.5})",
                 {"factor = 0.5", "linear"});
  refused<Llama>(kLlama + R"(, "partial_rotary_factor": 0.5)", {"partial_rotary_factor", "0.5"});
  refused<Llama>(kLlama + R"(, "rope_interleaved": true)", {"rope_interleaved", "true"});
  refused<Llama>(kLlama + R"(, "sliding_window": 8)", {"sliding_window", "8", "mistral"});
  refused<Llama>(kLlama + R"(, "quantization_config": {"bits": 4})",
                 {"quantization_config", "an object of 1 keys"});
  refused<Llama>(kLlama + R"(, "logit_scale": 0.25)", {"logit_scale", "0.25", "remove"});
  refused<Llama>(kQwen2 + R"(, "attention_bias": false)", {"attention_bias", "false", "qwen2"});
  refused<Llama>(kMistral + R"(, "mlp_bias": true)", {"mlp_bias", "true", "mistral"});
  refused<Llama>(kQwen2 + R"(, "layer_types": ["full_attention"])", {"layer_types", "3"});
  refused<Llama>(
      kQwen2 + R"(, "layer_types": ["full_attention", "full_attention", "chunked_attention"])",
      {"layer_types", "chunked_attention"});
  refused<Llama>(kQwen2 + R"(, "use_sliding_window": false, "sliding_window": 4, "layer_types":
      ["full_attention", "full_attention", "sliding_attention"])",
                 {"sliding_window", "use_sliding_window"});
  refused<Gpt2>(kGpt2 + R"(, "activation_function": "quick_gelu")",
                {"activation_function", "quick_gelu", "gelu_new"});
  refused<Gpt2>(kGpt2 + R"(, "add_cross_attention": true)", {"add_cross_attention", "true"});
  CHECK(read<Gpt2>(kGpt2 + R"(, "reorder_and_upcast_attn": true, "n_ctx": 8, "n_inner": null,
    "summary_type": "cls_index", "task_specific_params": {"a": {"b": 1}})")
            .n_embd == 16);
}

TEST_CASE("configs: numbers are checked before a model is made") {
  using Llama = lm::LlamaConfig;
  using Gpt2 = lm::Gpt2Config;
  refused<Llama>(R"("model_type": "llama", "vocab_size": 32)", {"hidden_size", "missing"});
  const auto with = [](std::string all, const std::string& from, const std::string& to) {
    return all.replace(all.find(from), from.size(), to);
  };
  refused<Llama>(with(kLlama, "\"hidden_size\": 16", "\"hidden_size\": 0"), {"hidden_size", "0"});
  refused<Llama>(with(kLlama, "\"hidden_size\": 16", "\"hidden_size\": 18"),
                 {"hidden_size = 18", "num_attention_heads = 4"});
  refused<Llama>(with(kLlama, "\"hidden_size\": 16", "\"hidden_size\": 12"), {"head_dim = 3"});
  refused<Llama>(with(kLlama, "\"vocab_size\": 32", "\"vocab_size\": 99999999999999999999"),
                 {"vocab_size", "99999999999999999999"});
  refused<Llama>(with(kLlama, "\"vocab_size\": 32", "\"vocab_size\": -1"), {"vocab_size", "-1"});
  refused<Llama>(with(kLlama, "\"vocab_size\": 32", "\"vocab_size\": 3.5"), {"vocab_size", "3.5"});
  refused<Llama>(with(kLlama, "\"vocab_size\": 32", "\"vocab_size\": \"32\""),
                 {"vocab_size", "\"32\"", "whole number"});
  refused<Llama>(with(kLlama, "\"vocab_size\": 32", "\"vocab_size\": [32]"),
                 {"vocab_size", "a list of 1"});
  refused<Llama>(with(kLlama, "_layers\": 2", "_layers\": 1000000000"),
                 {"num_hidden_layers", "1000000000"});
  refused<Llama>(kLlama + R"(, "num_key_value_heads": 3)",
                 {"num_attention_heads = 4", "num_key_value_heads = 3"});
  refused<Llama>(kLlama + R"(, "rms_norm_eps": 1e999)", {"rms_norm_eps", "1e999"});
  refused<Llama>(kLlama + R"(, "rms_norm_eps": -1)", {"rms_norm_eps"});
  refused<Llama>(kLlama + R"(, "attention_dropout": 1)", {"attention_dropout = 1"});
  refused<Llama>(kLlama + R"(, "tie_word_embeddings": 1)",
                 {"tie_word_embeddings", "true or false"});
  refused<Llama>(kLlama + R"(, "rope_theta": 0.5)", {"rope_theta = 0.5"});
  refused<Llama>(kLlama + R"(, "vocab_size": 32)", {"vocab_size", "twice"});
  refused<Llama>(R"("model_type": "llama", "vocab_size": 2147483647, "hidden_size": 1048576,
    "intermediate_size": 1048576, "num_hidden_layers": 4096, "num_attention_heads": 65536)",
                 {"parameters"});
  refused<Gpt2>(with(kGpt2, "\"n_head\": 4", "\"n_head\": 3"), {"n_embd = 16", "n_head = 3"});
  refused<Gpt2>(kGpt2 + R"(, "n_inner": 0)", {"n_inner", "0"});
  refused<Gpt2>("", {"model_type"});
  refused<Gpt2>("\"a\": ", {"byte"});
  refused<Gpt2>(std::string("\"a\": ") + std::string(100, '[') + std::string(100, ']'), {"deep"});
  const TempFolder folder;
  CHECK(error_of([&] { Llama::from_file(folder.path().string()); }).find("config.json") !=
        std::string::npos);
  lm::LlamaConfig c = small_llama();
  c.num_attention_heads = 0;
  CHECK(error_of([&] { lm::Llama model(c); }).find("num_attention_heads = 0") != std::string::npos);
}

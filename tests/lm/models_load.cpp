// Folders of transformers: names, transposed weights, tied tables; nothing is half loaded.
#include <filesystem>
#include <string>

#include "data/files.h"
#include "models.h"
#include "support/catch.h"
#include "support/values.h"

using namespace firn;
using namespace firn::test;
using namespace firn::testing;

namespace {

template <class Model>
Model made(std::uint64_t seed, const lm::ModelOptions& options = {}) {
  manual_seed(seed);
  return Model(small_config<Model>(), options);
}

template <class Model>
std::vector<double> logits_of(Model& model) {
  const NoGrad guard;
  return values_of(model(random_ids(2, 9)));
}

/// The tensors of a saved folder.
std::vector<nn::NamedTensor> saved_in(const TempFolder& folder) {
  return io::load_safetensors(folder.file("model.safetensors"));
}

}  // namespace

#define EACH_MODEL(name) TEMPLATE_TEST_CASE(name, "", lm::Llama, lm::Gpt2)

EACH_MODEL("load and save: a folder gives the same logits, and every name is transformers'") {
  const TempFolder folder;
  TestType from = made<TestType>(1), to = made<TestType>(2);
  const auto want = logits_of(from);
  lm::save(folder.path().string(), from);
  CHECK(logits_of(to) != want);
  lm::load(folder.path().string(), to);
  expect_same("logits", logits_of(to), want);
  const io::SafetensorsFile file(folder.path().string());
  if constexpr (std::is_same_v<TestType, lm::Gpt2>) {
    CHECK(file.shape("transformer.h.1.attn.c_attn.weight") == Shape{16, 48});
    CHECK(file.shape("transformer.h.1.mlp.c_proj.weight") == Shape{24, 16});
    CHECK(file.shape("transformer.wpe.weight") == Shape{12, 16});
    CHECK(!file.contains("lm_head.weight"));
  } else {
    CHECK(file.shape("model.layers.2.self_attn.k_proj.weight") == Shape{8, 16});
    CHECK(file.contains("model.layers.0.self_attn.v_proj.bias"));
    CHECK(!file.contains("model.layers.0.self_attn.o_proj.bias"));
    CHECK(!file.contains("model.inv_freq"));
    CHECK(file.contains("lm_head.weight"));
  }
  TestType wide = made<TestType>(2, {.dtype = f64, .draw = false});
  lm::load(folder.path().string(), wide);
  expect_close("f64", logits_of(wide), want, 1e-4);
}

EACH_MODEL(
    "load: names without their prefix, masks and frequencies of older files, several files") {
  const TempFolder folder, other;
  TestType from = made<TestType>(1), to = made<TestType>(2);
  lm::save(folder.path().string(), from);
  constexpr bool kGpt2 = std::is_same_v<TestType, lm::Gpt2>;
  const std::string prefix = kGpt2 ? "transformer." : "model.";
  std::vector<nn::NamedTensor> tensors = saved_in(folder);
  for (auto& [name, t] : tensors)
    if (name.starts_with(prefix)) name = name.substr(prefix.size());
  if (kGpt2) {
    tensors.push_back({"h.0.attn.bias", ones({1, 1, 12, 12})});
    tensors.push_back({"h.0.attn.masked_bias", zeros({})});
  } else {
    tensors.push_back({"layers.0.self_attn.rotary_emb.inv_freq", ones({2})});
  }
  io::save_safetensors_shards(other.path().string(), tensors, {}, {.max_bytes = 2000});
  std::filesystem::copy(folder.file("config.json"), other.file("config.json"));
  lm::load(other.path().string(), to);
  expect_same("logits", logits_of(to), logits_of(from));
}

EACH_MODEL("load: a tied table may be in the file twice, if it is the same") {
  const TempFolder folder;
  auto config = small_config<TestType>();
  config.tie_word_embeddings = true;
  manual_seed(1);
  TestType from(config), to(config);
  lm::save(folder.path().string(), from);
  auto tensors = saved_in(folder);
  tensors.push_back({"lm_head.weight", from.lm_head.weight.detach().clone()});
  io::save_safetensors(folder.file("model.safetensors"), tensors);
  lm::load(folder.path().string(), to);
  expect_same("logits", logits_of(to), logits_of(from));
  tensors.back().tensor = zeros_like(tensors.back().tensor);
  io::save_safetensors(folder.file("model.safetensors"), tensors);
  const auto before = logits_of(to);
  CHECK(error_of([&] { lm::load(folder.path().string(), to); }).find("lm_head.weight") !=
        std::string::npos);
  expect_same("nothing was written", logits_of(to), before);
}

EACH_MODEL("load: all that differs is named, and nothing is written") {
  const TempFolder folder;
  TestType from = made<TestType>(1), to = made<TestType>(2);
  lm::save(folder.path().string(), from);
  auto tensors = saved_in(folder);
  const std::string first = tensors[0].name, second = tensors[1].name;
  tensors[0].name = "transformer.extra";
  if (!std::is_same_v<TestType, lm::Gpt2>) tensors[0].name = "model.extra";
  tensors[1].tensor = ones({3, 3});
  io::save_safetensors(folder.file("model.safetensors"), tensors);
  const auto before = logits_of(to);
  const std::string message = error_of([&] { lm::load(folder.path().string(), to); });
  INFO(message);
  for (const std::string& part : {first, second, std::string("extra"), std::string("[3, 3]")})
    CHECK(message.find(part) != std::string::npos);
  expect_same("nothing was written", logits_of(to), before);
}

TEST_CASE("load: a config that computes something else is refused, with both values") {
  const TempFolder folder;
  manual_seed(1);
  lm::LlamaConfig config = small_llama();
  lm::save(folder.path().string(), lm::Llama(config));
  config.rope.rope_theta = 500;
  config.attention_dropout = 0.1;  // may differ
  lm::Llama other(config);
  const std::string message = error_of([&] { lm::load(folder.path().string(), other); });
  INFO(message);
  CHECK(message.find("the file has \"rope_theta\": 10000.0; the model has \"rope_theta\": 500.0") !=
        std::string::npos);
  CHECK(message.find("dropout") == std::string::npos);
  config.rope.rope_theta = 10000;
  lm::Llama equal(config);
  lm::load(folder.path().string(), equal);
}

EACH_MODEL("save: weights above a limit are several files") {
  const TempFolder folder;
  TestType from = made<TestType>(1), to = made<TestType>(2);
  lm::save(folder.path().string(), from, {.max_bytes = 4000});
  CHECK(!std::filesystem::exists(folder.file("model.safetensors")));
  lm::load(folder.path().string(), to);
  expect_same("logits", logits_of(to), logits_of(from));
  CHECK(error_of([&] { lm::save(folder.path().string(), from); }).find("index.json") !=
        std::string::npos);
}

TEST_CASE("save: a folder with weights in the other form is refused, and one is made") {
  const TempFolder folder;
  manual_seed(1);
  const lm::Llama model(small_llama());
  write_file(folder.file("model.safetensors.index.json"), "{}");
  CHECK(error_of([&] { lm::save(folder.path().string(), model); }).find("index.json") !=
        std::string::npos);
  CHECK(!std::filesystem::exists(folder.file("config.json")));
  lm::save(folder.file("new"), model);
  lm::save(folder.file("new"), model);  // again
  CHECK(std::filesystem::exists(folder.file("new/config.json")));
  CHECK_THROWS_AS(lm::save(folder.file("none/new"), model), IoError);
}

TEST_CASE("save: the config of another model goes before its weights") {
  const TempFolder folder;
  const std::string path = folder.path().string();
  lm::LlamaConfig config = small_llama();
  lm::save(path, lm::Llama(config));
  config.rms_norm_eps = 1e-3;
  write_file(folder.file("model.safetensors.index.json"), "{}");  // which refuses the save
  CHECK_THROWS_AS(lm::save(path, lm::Llama(config)), IoError);
  CHECK(lm::LlamaConfig::from_file(path).rms_norm_eps == small_llama().rms_norm_eps);
  std::filesystem::remove(folder.file("model.safetensors.index.json"));
  std::filesystem::create_directory(folder.file("other"));
  std::filesystem::rename(folder.file("model.safetensors"), folder.file("other/w"));
  std::filesystem::create_directory(folder.file("model.safetensors"));  // no weights can be written
  CHECK_THROWS_AS(lm::save(path, lm::Llama(config)), IoError);
  CHECK(!std::filesystem::exists(folder.file("config.json")));
  config.ids.bos_token_id = -7;
  CHECK_THROWS_AS(lm::Llama(config), Error);
}

TEST_CASE("load_safetensors: a matrix may be transposed in the file") {
  const TempFolder folder;
  nn::Linear net(2, 3);
  const std::string path = folder.file("a.safetensors");
  const Tensor w = make({1, 2, 3, 4, 5, 6}, {2, 3}, f32);
  io::save_safetensors(path, {{"weight", w}, {"bias", zeros({3})}});
  const auto transposed = [](const std::string& name) { return name == "weight"; };
  CHECK(error_of([&] { io::load_safetensors(path, net); }).find("[2, 3]") != std::string::npos);
  io::load_safetensors(path, net, {.transposed = transposed});
  CHECK(values_of(net.weight) == std::vector<double>{1, 4, 2, 5, 3, 6});
  io::save_safetensors(path, {{"weight", w.reshape({3, 2})}, {"bias", zeros({3})}});
  CHECK(error_of([&] {
          io::load_safetensors(path, net, {.transposed = transposed});
        }).find("is [3, 2], the module's is [2, 3]") != std::string::npos);
}

// Folders of transformers: weights by their names there.
#include "firn/lm/load.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <vector>

#include "base/check.h"
#include "firn/io/safetensors.h"
#include "firn/ops/ops.h"
#include "io/file/text_file.h"
#include "io/json.h"

namespace firn::lm {
namespace {

constexpr const char* kLoad = "lm::load";
constexpr const char* kSave = "lm::save";
constexpr const char* kOneFile = "model.safetensors";
constexpr const char* kIndex = "model.safetensors.index.json";

/// The names of a family of models in files.
struct Names {
  std::string prefix;                        ///< prefix of all names but that of the output layer
  std::vector<std::string_view> left_out;    ///< ends of names that are no weights
  std::vector<std::string_view> transposed;  ///< ends of names of weights that are [in, out]
};

const Names& gpt2_names() {
  static const Names names{"transformer.",
                           {".attn.bias", ".attn.masked_bias"},
                           {".c_attn.weight", ".c_proj.weight", ".c_fc.weight"}};
  return names;
}
const Names& llama_names() {
  static const Names names{"model.", {"rotary_emb.inv_freq"}, {}};
  return names;
}

bool ends_with_one_of(std::string_view name, const std::vector<std::string_view>& ends) {
  for (const std::string_view end : ends)
    if (name.ends_with(end)) return true;
  return false;
}

/// Returns the members of a config, each as a text.
std::vector<std::string> members_of(std::string json) {
  std::vector<std::string> out;
  const io::JsonSource source{kLoad, "", "config", ""};
  io::JsonReader reader(source, json);
  reader.object([&](std::string_view name) {
    std::string_view value;
    reader.scalar(value);
    out.push_back(fmt::format("{}: {}", io::quoted_for_message(std::string(name)), value));
  });
  return out;
}

/// Returns the members that differ between two configs, each with both values.
std::string differences(const std::string& own, const std::string& other) {
  const std::vector<std::string> ours = members_of(own), theirs = members_of(other);
  std::string all;
  const auto add = [&](const char* whose, const std::vector<std::string>& some,
                       const std::vector<std::string>& rest) {
    std::string list;
    for (const std::string& line : some)
      if (std::find(rest.begin(), rest.end(), line) == rest.end())
        list += (list.empty() ? "" : ", ") + line;
    if (!list.empty()) all += fmt::format("{}{} {}", all.empty() ? "" : "; ", whose, list);
  };
  add("the file has", theirs, ours);
  add("the model has", ours, theirs);
  return all;
}

/// Throws unless the configs compute the same.
template <class Config>
void require_equal(const std::string& folder, const Config& model, Config file) {
  file.ids = model.ids;
  file.initializer_range = model.initializer_range;
  if constexpr (requires { file.attn_pdrop; }) {
    file.attn_pdrop = model.attn_pdrop;
    file.embd_pdrop = model.embd_pdrop;
    file.resid_pdrop = model.resid_pdrop;
  } else {
    file.attention_dropout = model.attention_dropout;
  }
  if (file.to_json() == model.to_json()) return;
  throw IoError(kLoad, folder,
                "its config is not the model's: " + differences(model.to_json(), file.to_json()),
                "make the model with the config that from_file() reads");
}

void load_weights(const std::string& folder, nn::Module& model, const Names& names) {
  io::LoadOptions options;
  options.rename = [&](const std::string& name) -> std::string {
    if (ends_with_one_of(name, names.left_out)) return {};
    const bool whole = name.starts_with(names.prefix) || name.starts_with("lm_head.");
    return whole ? name : names.prefix + name;
  };
  options.only = [](const std::string& name) { return !name.ends_with("inv_freq"); };
  options.map = true;  // else all of the file would be in memory beside the model
  options.transposed = [&](const std::string& name) {
    return ends_with_one_of(name, names.transposed);
  };
  io::load_safetensors(folder, model, options);
}

/// Throws if the folder has a file that readers could take for the weights.
void refuse_old(const std::filesystem::path& folder, const char* file, const char* written) {
  std::error_code none;
  if (!std::filesystem::exists(folder / file, none)) return;
  throw IoError(
      kSave, (folder / file).string(),
      fmt::format("the weights are written as {}, and readers could take this older file", written),
      "give another folder, or remove the file");
}

/// Removes a file with another text. Else a process that is killed during the save would leave the
/// new weights with the numbers of another model.
void remove_other_config(const std::filesystem::path& file, const std::string& config) {
  std::ifstream in(file, std::ios::binary);
  const std::string old{std::istreambuf_iterator<char>(in), {}};
  std::error_code error;
  if (in.is_open() && old != config + "\n" && !std::filesystem::remove(file, error))
    throw IoError(kSave, file.string(), "the file cannot be removed: " + error.message());
}

void save_weights(const std::filesystem::path& folder, const nn::Module& model, const Names& names,
                  const std::string& config, const io::ShardOptions& options) {
  std::error_code error;
  std::filesystem::create_directory(folder, error);
  if (error) throw IoError(kSave, folder.string(), "the folder cannot be made: " + error.message());
  std::vector<nn::NamedTensor> weights = model.named_parameters();
  std::uint64_t bytes = 0;
  for (nn::NamedTensor& w : weights) {
    bytes += w.tensor.bytes();
    if (ends_with_one_of(w.name, names.transposed)) w.tensor = transpose(w.tensor.detach(), 0, 1);
  }
  const std::vector<io::Metadata> metadata{{"format", "pt"}};  // transformers asks for it
  const bool one = bytes <= options.max_bytes;
  refuse_old(folder, one ? kIndex : kOneFile, one ? kOneFile : kIndex);
  remove_other_config(folder / "config.json", config);
  if (one)
    io::save_safetensors((folder / kOneFile).string(), weights, metadata);
  else
    io::save_safetensors_shards(folder.string(), weights, metadata, options);
  io::TextFile file(kSave, (folder / "config.json").string());
  file.write(config + "\n");
  file.commit();
}

}  // namespace

void load(const std::string& folder, Gpt2& model) try {
  require_equal(folder, model.config(), Gpt2Config::from_file(folder));
  load_weights(folder, model, gpt2_names());
}
FIRN_OUT_OF_MEMORY(kLoad)

void load(const std::string& folder, Llama& model) try {
  require_equal(folder, model.config(), LlamaConfig::from_file(folder));
  load_weights(folder, model, llama_names());
}
FIRN_OUT_OF_MEMORY(kLoad)

void save(const std::string& folder, const Gpt2& model, const io::ShardOptions& options) try {
  save_weights(folder, model, gpt2_names(), model.config().to_json(), options);
}
FIRN_OUT_OF_MEMORY(kSave)

void save(const std::string& folder, const Llama& model, const io::ShardOptions& options) try {
  save_weights(folder, model, llama_names(), model.config().to_json(), options);
}
FIRN_OUT_OF_MEMORY(kSave)

}  // namespace firn::lm

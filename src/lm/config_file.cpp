#include "lm/config_file.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <string>

#include "firn/error.h"
#include "io/json.h"

namespace firn::lm {
namespace {

constexpr std::uint64_t kLongestFile = 4 << 20;

/// Keys of every model that say how it is stored, run, sampled from or named.
constexpr std::string_view kNeutral[] = {
    "architectures", "model_type",
    // Keys of its storage and of running it.
    "transformers_version", "torch_dtype", "dtype", "use_cache", "use_return_dict", "return_dict",
    "return_dict_in_generate", "output_attentions", "output_hidden_states", "output_scores",
    "torchscript", "use_bfloat16", "attn_implementation", "chunk_size_feed_forward",
    "transformers.js_config", "pretraining_tp", "n_ctx", "unsloth_version", "unsloth_fixed",
    // Keys of sampling text.
    "do_sample", "early_stopping", "max_length", "max_new_tokens", "min_length", "num_beams",
    "num_beam_groups", "num_return_sequences", "diversity_penalty", "temperature", "top_k", "top_p",
    "typical_p", "repetition_penalty", "length_penalty", "no_repeat_ngram_size",
    "encoder_no_repeat_ngram_size", "bad_words_ids", "suppress_tokens", "begin_suppress_tokens",
    "forced_bos_token_id", "forced_eos_token_id", "remove_invalid_values",
    "exponential_decay_length_penalty", "task_specific_params", "prefix", "sep_token_id",
    "decoder_start_token_id", "keys_to_ignore_at_inference",
    // Keys of its use.
    "id2label", "label2id", "num_labels", "problem_type", "finetuning_task", "tokenizer_class",
    "is_llama_config"};

bool neutral(std::string_view key) {
  return key.starts_with('_') || key.starts_with("summary_") ||
         std::find(std::begin(kNeutral), std::end(kNeutral), key) != std::end(kNeutral);
}

std::string file_of(const std::string& path) {
  std::error_code none;
  return std::filesystem::is_directory(path, none) ? path + "/config.json" : path;
}

std::shared_ptr<const JsonTree> read(const char* op, const std::string& path) {
  return std::make_shared<const JsonTree>(
      io::JsonSource{op, file_of(path), "config", "this is not a config.json, or it is damaged"},
      kLongestFile);
}

/// Returns the value for a message: short, in the form of JSON.
std::string shown(const JsonValue& value) {
  switch (value.kind()) {
    case JsonValue::null:
      return "null";
    case JsonValue::text:
      return io::quoted_for_message(std::string(value.spelling()));
    case JsonValue::list:
      return fmt::format("a list of {}", value.items().size());
    case JsonValue::object:
      return fmt::format("an object of {} keys", value.members().size());
    default:
      return std::string(value.spelling().substr(0, 40)) +
             (value.spelling().size() > 40 ? "..." : "");
  }
}

/// Returns true for null, and for a list or an object of nothing.
bool is_empty(const JsonValue& value) {
  return value.is_null() || (value.spelling().empty() && value.items().empty() &&
                             value.members().empty() && value.kind() != JsonValue::text);
}

}  // namespace

ConfigFile::ConfigFile(std::shared_ptr<const JsonTree> tree, const JsonValue& value,
                       std::string prefix)
    : tree_(std::move(tree)),
      value_(value),
      prefix_(std::move(prefix)),
      read_(value.members().size(), false) {}

ConfigFile::ConfigFile(std::shared_ptr<const JsonTree> tree) : ConfigFile(tree, tree->root(), {}) {
  if (value_.kind() != JsonValue::object)
    fail(fmt::format("the text is {}, not an object", name_of(value_.kind())), tree->source().hint);
}

ConfigFile::ConfigFile(const char* op, const std::string& path) : ConfigFile(read(op, path)) {}

void ConfigFile::fail(const std::string& what, const std::string& hint) const {
  throw IoError(tree_->source().op, tree_->source().path, what, hint);
}

void ConfigFile::refuse(std::string_view key, const std::string& what,
                        const std::string& hint) const {
  const JsonValue* const value = find(key);
  fail(fmt::format("{} is {}; {}", io::name_for_message(prefix_ + std::string(key)),
                   value ? shown(*value) : "missing", what),
       hint);
}

void ConfigFile::refuse_kind(std::string_view key, const JsonValue& value,
                             const char* expected) const {
  fail(fmt::format("{} is {}, not {}", io::name_for_message(prefix_ + std::string(key)),
                   shown(value), expected),
       "the file is not one that transformers writes");
}

const JsonValue* ConfigFile::take(std::string_view key) {
  const JsonValue* const value = find(key);
  if (value)
    for (std::size_t i = 0; i < read_.size(); ++i)
      if (&value_.members()[i].second == value) read_[i] = true;
  return value;
}

std::int64_t ConfigFile::integer_of(std::string_view key, const JsonValue& value,
                                    Range range) const {
  std::int64_t n = 0;
  const char* const end = value.spelling().data() + value.spelling().size();
  const bool number = value.kind() == JsonValue::number;
  const auto [at, error] = std::from_chars(value.spelling().data(), end, n);
  if (!number || at != end || (error != std::errc() && error != std::errc::result_out_of_range))
    refuse_kind(key, value, "a whole number");
  if (error != std::errc() || n < range.least || n > range.most)
    fail(fmt::format("{} is {}, which is not in [{}, {}]",
                     io::name_for_message(prefix_ + std::string(key)), shown(value), range.least,
                     range.most),
         "the file is damaged, or of a model that firn cannot hold");
  return n;
}

std::int64_t ConfigFile::integer(std::string_view key, Range range,
                                 std::optional<std::int64_t> without) {
  const JsonValue* const value = take(key);
  if (value && !(value->kind() == JsonValue::null && without))
    return integer_of(key, *value, range);
  if (!without) refuse(key, "the size of the model depends on it", "take it from the model's page");
  return *without;
}

std::optional<std::int64_t> ConfigFile::optional_integer(std::string_view key, Range range) {
  const JsonValue* const value = take(key);
  if (!value || value->kind() == JsonValue::null) return std::nullopt;
  return integer_of(key, *value, range);
}

std::vector<std::int64_t> ConfigFile::integers(std::string_view key, Range range) {
  const JsonValue* const value = take(key);
  std::vector<std::int64_t> out;
  if (!value || value->kind() == JsonValue::null) return out;
  if (value->kind() != JsonValue::list) return {integer_of(key, *value, range)};
  for (const JsonValue& item : value->items()) out.push_back(integer_of(key, item, range));
  return out;
}

double ConfigFile::number_of(std::string_view key, const JsonValue& value) const {
  double number = 0;
  const char* const end = value.spelling().data() + value.spelling().size();
  const auto [at, error] = std::from_chars(value.spelling().data(), end, number);
  if (value.kind() != JsonValue::number || at != end || error != std::errc() ||
      !std::isfinite(number))
    refuse_kind(key, value, "a number that a double holds");
  return number;
}

std::optional<double> ConfigFile::optional_number(std::string_view key) {
  const JsonValue* const value = take(key);
  if (!value || value->kind() == JsonValue::null) return std::nullopt;
  return number_of(key, *value);
}

double ConfigFile::number(std::string_view key, double without) {
  return optional_number(key).value_or(without);
}

bool ConfigFile::flag(std::string_view key, bool without) {
  const JsonValue* const value = take(key);
  if (!value || value->kind() == JsonValue::null) return without;
  if (value->kind() != JsonValue::boolean) refuse_kind(key, *value, "true or false");
  return value->spelling() == "true";
}

std::string ConfigFile::text(std::string_view key, std::string_view without) {
  const JsonValue* const value = take(key);
  if (!value || value->kind() == JsonValue::null) return std::string(without);
  if (value->kind() != JsonValue::text) refuse_kind(key, *value, "a text");
  return std::string(value->spelling());
}

std::vector<std::string> ConfigFile::texts(std::string_view key) {
  const JsonValue* const value = take(key);
  std::vector<std::string> out;
  if (!value || value->kind() == JsonValue::null) return out;
  if (value->kind() != JsonValue::list) refuse_kind(key, *value, "a list of texts");
  for (const JsonValue& item : value->items()) {
    if (item.kind() != JsonValue::text) refuse_kind(key, item, "a list of texts");
    out.emplace_back(item.spelling());
  }
  return out;
}

std::optional<ConfigFile> ConfigFile::object(std::string_view key) {
  const JsonValue* const value = take(key);
  if (!value || value->kind() == JsonValue::null) return std::nullopt;
  if (value->kind() != JsonValue::object) refuse_kind(key, *value, "an object");
  return ConfigFile(tree_, *value, prefix_ + std::string(key) + ".");
}

void ConfigFile::require_one_of(std::string_view key, std::string_view without,
                                std::initializer_list<std::string_view> values, const char* hint) {
  const std::string value = text(key, without);
  if (std::find(values.begin(), values.end(), value) != values.end()) return;
  std::string all;
  for (const std::string_view v : values)
    all += fmt::format("{}\"{}\"", all.empty() ? "" : ", ", v);
  refuse(key, "firn has " + all, hint);
}

void ConfigFile::refuse_flag(std::string_view key, const char* hint) {
  if (flag(key, false)) refuse(key, "firn has nothing for it", hint);
}

void ConfigFile::ignore(std::initializer_list<std::string_view> keys) {
  for (const std::string_view key : keys) take(key);
}

void ConfigFile::finish() const {
  for (std::size_t i = 0; i < read_.size(); ++i) {
    const auto& [key, value] = value_.members()[i];
    if (read_[i] || is_empty(value) || (prefix_.empty() && neutral(key))) continue;
    refuse(key, "firn does not know this key, which may change what the model computes",
           "remove it from the file if it changes nothing");
  }
}

}  // namespace firn::lm

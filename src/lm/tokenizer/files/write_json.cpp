// Writes a tokenizer.json that Hugging Face's library reads.
#include <fmt/format.h>

#include <algorithm>
#include <tuple>

#include "base/json_string.h"
#include "lm/tokenizer/files/formats.h"

namespace firn::lm::bpe {
namespace {

/// Returns `items` with commas between them.
std::string joined(const std::vector<std::string>& items, const char* comma = ",") {
  std::string text;
  for (const std::string& item : items) text += (text.empty() ? "" : comma) + item;
  return text;
}

/// Returns null, the one part, or a sequence of them.
std::string sequence(const std::vector<std::string>& parts, const char* name) {
  if (parts.empty()) return "null";
  if (parts.size() == 1) return parts[0];
  return fmt::format(R"({{"type":"Sequence","{}":[{}]}})", name, joined(parts));
}

std::string normalizer(const Normalizer& n) {
  static constexpr const char* kForms[] = {"NFC", "NFD", "NFKC", "NFKD"};
  switch (n.kind) {
    case Normalizer::form:
      return fmt::format(R"({{"type":"{}"}})", kForms[static_cast<std::size_t>(n.normal_form)]);
    case Normalizer::lower:
      return R"({"type":"Lowercase"})";
    case Normalizer::prepend:
      return fmt::format(R"({{"type":"Prepend","prepend":{}}})", json_string(n.to));
    case Normalizer::replace:
      break;
  }
  return fmt::format(R"({{"type":"Replace","pattern":{{"String":{}}},"content":{}}})",
                     json_string(n.from), json_string(n.to));
}

std::string pre_step(const PreStep& step) {
  if (step.kind == PreStep::digits)
    return fmt::format(R"({{"type":"Digits","individual_digits":{}}})", step.one_by_one);
  if (step.kind == PreStep::byte_level)
    return fmt::format(
        R"({{"type":"ByteLevel","add_prefix_space":{},"trim_offsets":true,"use_regex":{}}})",
        step.add_prefix_space, step.use_regex);
  return fmt::format(R"({{"type":"Split","pattern":{{"{}":{}}},"behavior":"{}","invert":{}}})",
                     step.is_literal ? "String" : "Regex", json_string(step.pattern),
                     step.keep == Keep::both ? "Isolated" : "Removed", step.keep == Keep::matches);
}

std::string decoder(const Spec& spec) {
  if (spec.is_byte_level)
    return R"({"type":"ByteLevel","add_prefix_space":true,"trim_offsets":true,"use_regex":true})";
  std::vector<std::string> parts;
  for (const Normalizer& n : spec.decoder_replaces) parts.push_back(normalizer(n));
  if (spec.has_byte_fallback) parts.emplace_back(R"({"type":"ByteFallback"})");
  parts.emplace_back(R"({"type":"Fuse"})");
  if (spec.strip_count > 0)
    parts.push_back(fmt::format(R"({{"type":"Strip","content":{},"start":{},"stop":0}})",
                                json_string(spec.strip), spec.strip_count));
  return sequence(parts, "decoders");
}

const std::string& name(const Spec& spec, Id id) {
  return spec.tokens[static_cast<std::size_t>(id)].name;
}

std::string post_processor(const Spec& spec) {
  if (spec.before.empty() && spec.after.empty()) return "null";
  std::vector<std::string> single;
  std::vector<Id> ids;
  const auto put = [&](const std::vector<Id>& list) {
    for (const Id id : list) {
      single.push_back(fmt::format(R"({{"SpecialToken":{{"id":{},"type_id":0}}}})",
                                   json_string(name(spec, id))));
      if (std::find(ids.begin(), ids.end(), id) == ids.end()) ids.push_back(id);
    }
  };
  put(spec.before);
  single.emplace_back(R"({"Sequence":{"id":"A","type_id":0}})");
  put(spec.after);
  std::vector<std::string> special;
  for (const Id id : ids) {
    const std::string text = json_string(name(spec, id));
    special.push_back(
        fmt::format(R"({}:{{"id":{},"ids":[{}],"tokens":[{}]}})", text, text, id, text));
  }
  return fmt::format(
      R"({{"type":"TemplateProcessing","single":[{}],"pair":[{},{}],"special_tokens":{{{}}}}})",
      joined(single), joined(single), R"({"Sequence":{"id":"B","type_id":1}})", joined(special));
}

std::string added(const AddedToken& token) {
  return fmt::format(
      R"({{"id":{},"content":{},"single_word":{},"lstrip":{},"rstrip":{},"normalized":{},"special":{}}})",
      token.id, json_string(token.text), token.single_word, token.strips_left, token.strips_right,
      token.normalized, token.is_special);
}

std::string model(const Spec& spec) {
  std::vector<std::string> vocabulary, merges;
  for (std::size_t id = 0; id < spec.tokens.size(); ++id)
    if (!spec.tokens[id].name.empty())
      vocabulary.push_back(fmt::format("{}:{}", json_string(spec.tokens[id].name), id));
  // In the file the place of a merge is its rank, so merges of one rank get an order.
  std::vector<Merge> ordered = spec.merges;
  std::sort(ordered.begin(), ordered.end(), [](const Merge& a, const Merge& b) {
    return std::tie(a.rank, a.left, a.right) < std::tie(b.rank, b.left, b.right);
  });
  for (const Merge& m : ordered)
    merges.push_back(
        fmt::format("[{},{}]", json_string(name(spec, m.left)), json_string(name(spec, m.right))));
  return fmt::format(
      R"({{"type":"BPE","dropout":null,"unk_token":{},"continuing_subword_prefix":null,)"
      R"("end_of_word_suffix":null,"fuse_unk":{},"byte_fallback":{},"ignore_merges":{},)"
      "\n\"vocab\":{{{}}},\n\"merges\":[{}]}}",
      spec.unknown ? json_string(name(spec, *spec.unknown)) : "null", spec.fuses_unknown,
      spec.has_byte_fallback, spec.ignores_merges, joined(vocabulary), joined(merges));
}

}  // namespace

std::string write_json(const Spec& spec) {
  std::vector<std::string> tokens, normalizers, steps;
  std::vector<AddedToken> by_id = spec.added;
  std::sort(by_id.begin(), by_id.end(),
            [](const AddedToken& a, const AddedToken& b) { return a.id < b.id; });
  for (const AddedToken& token : by_id) tokens.push_back(added(token));
  for (const Normalizer& n : spec.normalizers) normalizers.push_back(normalizer(n));
  for (const PreStep& step : spec.steps) steps.push_back(pre_step(step));
  return fmt::format(
      "{{\"version\":\"1.0\",\"truncation\":null,\"padding\":null,\n\"added_tokens\":[{}],\n"
      "\"normalizer\":{},\n\"pre_tokenizer\":{},\n\"post_processor\":{},\n\"decoder\":{},\n"
      "\"model\":{}}}\n",
      joined(tokens, ",\n"), sequence(normalizers, "normalizers"), sequence(steps, "pretokenizers"),
      post_processor(spec), decoder(spec), model(spec));
}

}  // namespace firn::lm::bpe

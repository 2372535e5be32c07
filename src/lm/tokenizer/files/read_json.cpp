// Reads the tokenizer.json of Hugging Face's library. All that is not computed here is refused by
// name.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "firn/error.h"
#include "lm/json_tree.h"
#include "lm/tokenizer/byte_alphabet.h"
#include "lm/tokenizer/files/formats.h"
#include "lm/tokenizer/token_table.h"

namespace firn::lm::bpe {
namespace {

using io::quoted_for_message;

/// A value and its place in the file: "pre_tokenizer.pretokenizers[1]".
class Node {
 public:
  Node(const JsonTree& tree, const JsonValue* value, std::string key)
      : tree_(tree), value_(value), key_(std::move(key)) {}

  [[noreturn]] void refuse(const std::string& what, const std::string& hint) const {
    throw IoError(tree_.source().op, tree_.source().path, fmt::format("{}: {}", key_, what), hint);
  }
  [[noreturn]] void refuse_value(const std::string& hint) const {
    refuse(shown() + " is not supported", hint);
  }
  /// True if there is a value other than null.
  bool is_set() const { return value_ != nullptr && !value_->is_null(); }
  JsonValue::Kind kind() const { return value_ == nullptr ? JsonValue::null : value_->kind(); }
  const JsonValue& value() const { return *value_; }

  Node at(std::string_view name) const {
    return {tree_, value_ == nullptr ? nullptr : value_->find(name),
            key_.empty() ? std::string(name) : fmt::format("{}.{}", key_, name)};
  }
  std::vector<Node> items() const {
    expect(JsonValue::list);
    std::vector<Node> list;
    for (std::size_t i = 0; i < value_->items().size(); ++i)
      list.emplace_back(tree_, &value_->items()[i], fmt::format("{}[{}]", key_, i));
    return list;
  }
  void expect(JsonValue::Kind kind) const {
    if (value_ == nullptr) refuse(fmt::format("is missing; expected {}", name_of(kind)), kHint);
    if (value_->kind() != kind)
      refuse(fmt::format("is {}; expected {}", name_of(value_->kind()), name_of(kind)), kHint);
  }
  std::string text() const {
    expect(JsonValue::text);
    return std::string(value_->spelling());
  }
  std::string text_or_empty() const { return is_set() ? text() : std::string(); }
  bool flag(bool otherwise) const {
    if (!is_set()) return otherwise;
    expect(JsonValue::boolean);
    return value_->spelling() == "true";
  }
  std::uint64_t number() const {
    expect(JsonValue::number);
    const std::string_view s = value_->spelling();
    std::uint64_t n = 0;
    const auto [end, error] = std::from_chars(s.data(), s.data() + s.size(), n);
    if (error != std::errc() || end != s.data() + s.size())
      refuse(fmt::format("{} is not a whole number of 64 bits", s), kHint);
    return n;
  }
  /// Throws unless the value is missing, null, false or an empty text.
  void expect_unset(const std::string& hint) const {
    if (!is_set() || (kind() == JsonValue::boolean && !flag(false)) ||
        (kind() == JsonValue::text && text().empty()))
      return;
    refuse_value(hint);
  }

 private:
  static constexpr const char* kHint = "this is not a tokenizer.json, or it is damaged";
  std::string shown() const {
    if (kind() == JsonValue::text) return quoted_for_message(value_->spelling());
    if (kind() == JsonValue::number || kind() == JsonValue::boolean)
      return std::string(value_->spelling());
    return name_of(kind());
  }

  const JsonTree& tree_;
  const JsonValue* value_;
  std::string key_;
};

// ---- The vocabulary
// --------------------------------------------------------------------------------

/// Returns an id that a vocabulary of so many tokens may have.
Id id_of(const Node& node, std::size_t tokens) {
  const std::uint64_t id = node.number();
  if (!id_is_plausible(id, tokens))
    node.refuse(fmt::format("the id {} is too large for {} tokens", id, tokens),
                "ids have no large gaps");
  return static_cast<Id>(id);
}

void put_token(const Node& node, std::vector<Token>& tokens, Id id, std::string_view name,
               bool is_model) {
  const auto i = static_cast<std::size_t>(id);
  if (i >= tokens.size()) tokens.resize(i + 1);
  if (!tokens[i].name.empty())
    node.refuse(fmt::format("the id {} is of {} and of {}", id, quoted_for_message(tokens[i].name),
                            quoted_for_message(name)),
                "an id has one token");
  tokens[i] = {std::string(name), is_model};
}

void read_vocabulary(const JsonTree& tree, const Node& vocabulary, Spec& spec) {
  vocabulary.expect(JsonValue::object);
  const auto& members = vocabulary.value().members();
  if (members.size() > kMostTokens)
    vocabulary.refuse(fmt::format("has {} tokens", members.size()),
                      fmt::format("at most {} are read", kMostTokens));
  for (const auto& [name, value] : members) {
    const Node node(tree, &value, fmt::format("model.vocab.{}", quoted_for_message(name)));
    if (name.empty()) node.refuse("is a token without characters", "a token has at least one");
    put_token(node, spec.tokens, id_of(node, members.size()), name, true);
  }
}

/// The tokens by name, for merges.
TokenTable names_of(const Spec& spec) {
  TokenTable table(spec.tokens.size());
  for (std::size_t id = 0; id < spec.tokens.size(); ++id)
    if (!spec.tokens[id].name.empty()) table.add(spec.tokens[id].name, static_cast<Id>(id));
  return table;
}

/// Reads a merge: "left right", or ["left", "right"].
std::pair<std::string_view, std::string_view> read_merge(const Node& node) {
  if (node.kind() == JsonValue::list) {
    const std::vector<Node> parts = node.items();
    if (parts.size() != 2)
      node.refuse(fmt::format("has {} tokens", parts.size()), "a merge is of two");
    for (const Node& part : parts) part.expect(JsonValue::text);
    return {parts[0].value().spelling(), parts[1].value().spelling()};
  }
  node.expect(JsonValue::text);
  const std::string_view text = node.value().spelling();
  const std::size_t space = text.find(' ');
  if (space == std::string_view::npos || text.find(' ', space + 1) != std::string_view::npos)
    node.refuse(
        fmt::format("{} is not two tokens and a space between them", quoted_for_message(text)),
        "a merge is \"left right\" or [\"left\", \"right\"]");
  return {text.substr(0, space), text.substr(space + 1)};
}

void read_merges(const Node& merges, Spec& spec) {
  const TokenTable names = names_of(spec);
  merges.expect(JsonValue::list);
  if (merges.value().items().size() > kMostTokens)
    merges.refuse(fmt::format("has {} entries", merges.value().items().size()),
                  fmt::format("at most {} are read", kMostTokens));
  std::uint32_t rank = 0;
  std::string together;
  for (const Node& node : merges.items()) {
    const auto [left, right] = read_merge(node);
    together.assign(left).append(right);
    const Id ids[] = {names.find(left), names.find(right), names.find(together)};
    const std::string_view texts[] = {left, right, together};
    for (int i = 0; i < 3; ++i)
      if (ids[i] == kNone)
        node.refuse(fmt::format("{} is not in model.vocab", quoted_for_message(texts[i])),
                    "both tokens of a merge, and the one they become, are tokens");
    spec.merges.push_back({ids[0], ids[1], ids[2], rank++});
  }
}

void read_model(const JsonTree& tree, const Node& model, Spec& spec) {
  model.expect(JsonValue::object);
  // Old files have no type; of the kinds, only BPE has merges.
  const Node type = model.at("type");
  if (type.is_set() ? type.text() != "BPE" : !model.at("merges").is_set())
    (type.is_set() ? type : model.at("merges"))
        .refuse(
            type.is_set() ? quoted_for_message(type.text()) + " is not supported" : "is missing",
            "BPE is; Unigram, WordPiece and WordLevel are not");
  const Node dropout = model.at("dropout");
  if (dropout.is_set() && dropout.value().spelling().find_first_not_of("0.") != std::string::npos)
    dropout.refuse_value("null is: encoding takes no random choices");
  for (const char* name : {"continuing_subword_prefix", "end_of_word_suffix"})
    model.at(name).expect_unset("null is");
  spec.fuses_unknown = model.at("fuse_unk").flag(false);
  spec.has_byte_fallback = model.at("byte_fallback").flag(false);
  spec.ignores_merges = model.at("ignore_merges").flag(false);
  read_vocabulary(tree, model.at("vocab"), spec);
  read_merges(model.at("merges"), spec);
  const Node unknown = model.at("unk_token");
  if (!unknown.is_set()) return;
  const Id id = names_of(spec).find(unknown.text());
  if (id == kNone)
    unknown.refuse(quoted_for_message(unknown.text()) + " is not in model.vocab",
                   "it is a token, or null");
  spec.unknown = id;
}

void read_added(const Node& list, Spec& spec) {
  if (!list.is_set()) return;
  const std::vector<Node> nodes = list.items();
  const std::size_t most = spec.tokens.size() + nodes.size();
  for (const Node& node : nodes) {
    node.expect(JsonValue::object);
    AddedToken token;
    token.text = node.at("content").text();
    if (token.text.empty()) node.at("content").refuse("is empty", "a token has characters");
    token.id = id_of(node.at("id"), most);
    token.is_special = node.at("special").flag(false);
    token.single_word = node.at("single_word").flag(false);
    token.strips_left = node.at("lstrip").flag(false);
    token.strips_right = node.at("rstrip").flag(false);
    token.normalized = node.at("normalized").flag(!token.is_special);
    const auto id = static_cast<std::size_t>(token.id);
    if (id >= spec.tokens.size() || spec.tokens[id].name != token.text)
      put_token(node.at("id"), spec.tokens, token.id, token.text, false);
    spec.added.push_back(std::move(token));
  }
}

// ---- The pipeline
// ----------------------------------------------------------------------------------

/// Returns the parts of a "Sequence", or the node itself.
std::vector<Node> sequence(const Node& node, const char* parts) {
  if (!node.is_set()) return {};
  node.expect(JsonValue::object);
  if (node.at("type").text() != "Sequence") return {node};
  std::vector<Node> all;
  for (const Node& part : node.at(parts).items()) {
    for (const Node& inner : sequence(part, parts)) all.push_back(inner);
  }
  return all;
}

/// Reads {"String": text} or, if `is_literal` is given, also {"Regex": text}.
std::string read_pattern(const Node& node, bool* is_literal) {
  node.expect(JsonValue::object);
  const Node string = node.at("String"), regex = node.at("Regex");
  if (is_literal != nullptr) *is_literal = string.is_set();
  if (!string.is_set() && is_literal == nullptr && regex.is_set())
    regex.refuse_value("a String is, for normalizers and decoders");
  const std::string text = string.is_set() ? string.text() : regex.text();
  if (text.empty()) (string.is_set() ? string : regex).refuse("is empty", "it has characters");
  return text;
}

Normalizer read_replace(const Node& node) {
  Normalizer n{Normalizer::replace, {}, {}, {}};
  n.from = read_pattern(node.at("pattern"), nullptr);
  n.to = node.at("content").text();
  if (n.to.size() > kLongestToken)
    node.at("content").refuse(fmt::format("has {} bytes", n.to.size()),
                              fmt::format("at most {} are read", kLongestToken));
  return n;
}

void read_normalizers(const Node& root, Spec& spec) {
  for (const Node& node : sequence(root, "normalizers")) {
    const std::string type = node.at("type").text();
    Normalizer n{Normalizer::form, {}, {}, {}};
    if (type == "NFC" || type == "NFD" || type == "NFKC" || type == "NFKD") {
      n.normal_form = type == "NFC"    ? NormalForm::nfc
                      : type == "NFD"  ? NormalForm::nfd
                      : type == "NFKC" ? NormalForm::nfkc
                                       : NormalForm::nfkd;
    } else if (type == "Lowercase") {
      n.kind = Normalizer::lower;
    } else if (type == "Prepend") {
      n.kind = Normalizer::prepend;
      n.to = node.at("prepend").text();
    } else if (type == "Replace") {
      n = read_replace(node);
    } else {
      node.at("type").refuse_value(
          "NFC, NFD, NFKC, NFKD, Lowercase, Prepend, Replace and Sequence are");
    }
    spec.normalizers.push_back(std::move(n));
  }
  if (spec.normalizers.size() > 16)
    root.refuse(fmt::format("has {} steps", spec.normalizers.size()), "at most 16 are read");
}

PreStep read_split(const Node& node) {
  PreStep step{PreStep::regex, {}};
  step.pattern = read_pattern(node.at("pattern"), &step.is_literal);
  const std::string behavior = node.at("behavior").text();
  if (behavior == "Removed") {
    step.keep = node.at("invert").flag(false) ? Keep::matches : Keep::gaps;
  } else if (behavior != "Isolated") {
    node.at("behavior").refuse_value("Isolated and Removed are");
  }
  return step;
}

/// Returns whether byte-level BPE follows.
bool read_steps(const Node& root, Spec& spec) {
  bool is_byte_level = false;
  for (const Node& node : sequence(root, "pretokenizers")) {
    const std::string type = node.at("type").text();
    if (is_byte_level)
      node.at("type").refuse(quoted_for_message(type) + " follows ByteLevel",
                             "ByteLevel is the last step");
    PreStep step{PreStep::digits, {}};
    if (type == "ByteLevel") {
      step.kind = PreStep::byte_level;
      step.add_prefix_space = node.at("add_prefix_space").flag(true);
      step.use_regex = node.at("use_regex").flag(true);
      is_byte_level = true;
    } else if (type == "Split") {
      step = read_split(node);
    } else if (type == "Digits") {
      step.one_by_one = node.at("individual_digits").flag(false);
    } else {
      node.at("type").refuse_value("ByteLevel, Split, Digits and Sequence are");
    }
    spec.steps.push_back(std::move(step));
  }
  if (spec.steps.size() > 16)
    root.refuse(fmt::format("has {} steps", spec.steps.size()), "at most 16 are read");
  return is_byte_level;
}

void read_strip(const Node& node, Spec& spec) {
  spec.strip = node.at("content").text();
  const std::uint64_t start = node.at("start").number(), stop = node.at("stop").number();
  if (stop != 0) node.at("stop").refuse_value("0 is");
  std::size_t at = 0;
  if (!spec.strip.empty()) next_code_point(spec.strip, at);
  if (spec.strip.empty() || at != spec.strip.size())
    node.at("content").refuse_value("one character is");
  if (start > 1024) node.at("start").refuse_value("at most 1024 is");
  spec.strip_count = static_cast<int>(start);
}

void read_decoder(const Node& root, Spec& spec) {
  static constexpr const char* kHint =
      "ByteLevel is for byte-level BPE; else Replace, ByteFallback, Fuse and Strip, in this order";
  const std::vector<Node> nodes = sequence(root, "decoders");
  if (nodes.empty()) root.refuse("is null", kHint);
  static constexpr std::string_view kOrder[] = {"Replace", "ByteFallback", "Fuse", "Strip"};
  std::size_t place = 0;
  bool has_fallback = false, is_fused = false;
  for (const Node& node : nodes) {
    const Node type = node.at("type");
    const std::string name = type.text();
    if (spec.is_byte_level) {
      if (name != "ByteLevel" || nodes.size() != 1) type.refuse_value(kHint);
      return;
    }
    const auto* const found = std::find(std::begin(kOrder) + place, std::end(kOrder), name);
    if (found == std::end(kOrder)) type.refuse_value(kHint);
    place = static_cast<std::size_t>(found - std::begin(kOrder)) + (name == "Replace" ? 0 : 1);
    if (name == "Replace") spec.decoder_replaces.push_back(read_replace(node));
    if (name == "ByteFallback") has_fallback = true;
    if (name == "Fuse") is_fused = true;
    if (name == "Strip") {
      if (!is_fused) type.refuse("Strip comes without Fuse before it", kHint);
      read_strip(node, spec);
    }
  }
  if (!is_fused) root.refuse("has no Fuse", kHint);
  if (has_fallback != spec.has_byte_fallback)
    root.refuse("has ByteFallback, and model.byte_fallback is false, or the other way round",
                "both or none");
  if (spec.decoder_replaces.size() > 16) root.refuse("has too many steps", "at most 16 are read");
}

/// Reads the ids of a special token of the template.
std::vector<Id> template_ids(const Node& processor, const Node& item, std::size_t tokens) {
  const std::string name = item.at("id").text();
  const Node ids = processor.at("special_tokens").at(name).at("ids");
  std::vector<Id> list;
  for (const Node& id : ids.items()) list.push_back(id_of(id, tokens));
  if (list.size() > 64) ids.refuse("has more than 64 ids", "a template is short");
  return list;
}

void read_template(const Node& node, Spec& spec) {
  bool has_text = false;
  const Node single = node.at("single");
  const std::vector<Node> items = single.items();
  if (items.size() > 64) single.refuse("has more than 64 items", "a template is short");
  for (const Node& item : items) {
    const Node special = item.at("SpecialToken"), text = item.at("Sequence");
    if (special.is_set()) {
      std::vector<Id>& list = has_text ? spec.after : spec.before;
      for (const Id id : template_ids(node, special, spec.tokens.size())) list.push_back(id);
    } else {
      if (text.at("id").text() != "A" || has_text)
        item.refuse("is not the one text of a template", "a template for one text has one \"A\"");
      has_text = true;
    }
  }
  if (!has_text) single.refuse("has no text", "a template for one text has one \"A\"");
}

void read_post_processor(const Node& root, Spec& spec) {
  bool has_template = false;
  for (const Node& node : sequence(root, "processors")) {
    const std::string type = node.at("type").text();
    if (type == "ByteLevel") continue;  // it is about the places of tokens in the text
    if (type != "TemplateProcessing" || has_template)
      node.at("type").refuse_value("one TemplateProcessing, ByteLevel and Sequence are");
    has_template = true;
    read_template(node, spec);
  }
}

}  // namespace

Spec read_json(const std::string& path) {
  const io::JsonSource source{"Tokenizer", path, "tokenizer",
                              "this is not a tokenizer.json, or it is damaged"};
  const JsonTree tree(source, kLargestFile);
  const Node root(tree, &tree.root(), "");
  if (root.kind() != JsonValue::object)
    throw IoError(source.op, path, "the file is no JSON object", source.hint);
  Spec spec;
  spec.source = path;
  read_model(tree, root.at("model"), spec);
  read_added(root.at("added_tokens"), spec);
  read_normalizers(root.at("normalizer"), spec);
  spec.is_byte_level = read_steps(root.at("pre_tokenizer"), spec);
  read_decoder(root.at("decoder"), spec);
  read_post_processor(root.at("post_processor"), spec);
  return spec;
}

}  // namespace firn::lm::bpe

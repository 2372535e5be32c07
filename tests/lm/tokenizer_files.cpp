// Files of tokenizers that are damaged, hostile, or of a kind that is not read.
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "data/files.h"
#include "firn/error.h"
#include "firn/lm/tokenizer.h"
#include "support/catch.h"
#include "support/matchers.h"

using namespace firn;
using namespace firn::test;
using nlohmann::json;

namespace {

json good() {
  return json::parse(R"({
    "version": "1.0", "truncation": null, "padding": null,
    "added_tokens": [{"id": 4, "content": "<s>", "single_word": false, "lstrip": false,
                      "rstrip": false, "normalized": false, "special": true}],
    "normalizer": null,
    "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "use_regex": true},
    "post_processor": {"type": "TemplateProcessing",
      "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
      "pair": [], "special_tokens": {"<s>": {"id": "<s>", "ids": [4], "tokens": ["<s>"]}}},
    "decoder": {"type": "ByteLevel"},
    "model": {"type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
      "end_of_word_suffix": null, "fuse_unk": false,
      "vocab": {"a": 0, "b": 1, "ab": 2, "abb": 3}, "merges": ["a b", ["ab", "b"]]}})");
}

struct Refusal {
  const char* place;  ///< JSON pointer of what is replaced
  const char* value;  ///< by this; empty: it is removed
  const char* what;   ///< part of the message
};

const Refusal kRefusals[] = {
    {"/model/type", "\"Unigram\"", "model.type: \"Unigram\" is not supported"},
    {"/model/type", "\"WordPiece\"", "model.type: \"WordPiece\""},
    {"/model/type", "1", "model.type: is a number; expected a text"},
    {"/model", "[]", "model: is a list; expected an object"},
    {"/model", "", "model: is missing"},
    {"/model/dropout", "0.1", "model.dropout: 0.1"},
    {"/model/continuing_subword_prefix", "\"##\"", "model.continuing_subword_prefix: \"##\""},
    {"/model/end_of_word_suffix", "\"</w>\"", "model.end_of_word_suffix"},
    {"/model/fuse_unk", "\"no\"", "model.fuse_unk: is a text; expected a boolean"},
    {"/model/unk_token", "\"<unk>\"", "model.unk_token: \"<unk>\" is not in model.vocab"},
    {"/model/vocab", "[]", "model.vocab"},
    {"/model/vocab", "{}", "\"a\" is not in model.vocab"},
    {"/model/vocab/ab", "1", "the id 1 is of"},
    {"/model/vocab/ab", "-1", "not a whole number"},
    {"/model/vocab/ab", "2.5", "not a whole number"},
    {"/model/vocab/ab", "18446744073709551616", "not a whole number"},
    {"/model/vocab/ab", "100000", "the id 100000 is too large for 4 tokens"},
    {"/model/vocab/ab", "\"2\"", "model.vocab.\"ab\": is a text"},
    {"/model/merges", "", "model.merges"},
    {"/model/merges/0", "\"ab\"", "model.merges[0]"},
    {"/model/merges/0", "\"a b b\"", "model.merges[0]"},
    {"/model/merges/0", "\"a c\"", "model.merges[0]: \"c\" is not in model.vocab"},
    {"/model/merges/0", "\"b a\"", "\"ba\" is not in model.vocab"},
    {"/model/merges/0", "[\"a\"]", "model.merges[0]: has 1 tokens"},
    {"/model/merges/1", "\"a b\"", "occurs twice"},
    {"/added_tokens/0/id", "0", "the id 0 is of \"a\" and of \"<s>\""},
    {"/added_tokens/0/id", "5000", "the id 5000 is too large"},
    {"/added_tokens/0/content", "\"a\"", "has the ids 0 and 4"},
    {"/added_tokens/0/content", "\"\"", "added_tokens[0].content: is empty"},
    {"/added_tokens/0/content", "", "added_tokens[0].content: is missing"},
    {"/added_tokens/0", "7", "added_tokens[0]"},
    {"/normalizer", "{\"type\": \"BertNormalizer\"}", "normalizer.type: \"BertNormalizer\""},
    {"/normalizer", "{\"type\": \"Sequence\", \"normalizers\": [{\"type\": \"Nmt\"}]}",
     "normalizer.normalizers[0].type: \"Nmt\""},
    {"/normalizer", "{\"type\": \"Replace\", \"pattern\": {\"Regex\": \" \"}, \"content\": \"\"}",
     "normalizer.pattern.Regex"},
    {"/normalizer", "{\"type\": \"Replace\", \"pattern\": {\"String\": \"\"}, \"content\": \"\"}",
     "is empty"},
    {"/pre_tokenizer", "{\"type\": \"Metaspace\"}", "pre_tokenizer.type: \"Metaspace\""},
    {"/pre_tokenizer",
     "{\"type\": \"Sequence\", \"pretokenizers\": [{\"type\": \"Split\", \"pattern\": {\"Regex\": "
     "\"(\"}, "
     "\"behavior\": \"Isolated\"}, {\"type\": \"ByteLevel\"}]}",
     "the regular expression '('"},
    {"/pre_tokenizer",
     "{\"type\": \"Split\", \"pattern\": {\"String\": \"a\"}, \"behavior\": \"Contiguous\"}",
     "pre_tokenizer.behavior: \"Contiguous\""},
    {"/decoder", "null", "decoder: is null"},
    {"/decoder", "{\"type\": \"WordPiece\"}", "decoder.type: \"WordPiece\""},
    {"/post_processor", "{\"type\": \"BertProcessing\"}",
     "post_processor.type: \"BertProcessing\""},
    {"/post_processor/single", "[]", "post_processor.single: has no text"},
    {"/post_processor/special_tokens/<s>/ids/0", "9", "no token has the id 9"},
    {"/post_processor/special_tokens", "{}", "post_processor.special_tokens.<s>.ids: is missing"},
};

std::string message_of(const std::string& path) {
  try {
    lm::Tokenizer::from_file(path);
  } catch (const IoError& error) {
    CHECK(error.path() == path);
    CHECK(!error.hint().empty());
    return error.what();
  }
  return "no error";
}

}  // namespace

TEST_CASE("Tokenizer::from_file: reads a file, and the one in a folder") {
  const TempFolder folder;
  const std::string path = write_file(folder.file("tokenizer.json"), good().dump());
  const lm::Tokenizer tokenizer = lm::Tokenizer::from_file(folder.path().string());
  CHECK(tokenizer.size() == 5);
  CHECK(tokenizer.encode("abbab", {.add_template = true}) == std::vector<std::int64_t>{4, 3, 2});
  CHECK(tokenizer.id_of("abb") == 3);
  CHECK(!tokenizer.id_of("abbb"));
  CHECK_THROWS_AS(lm::Tokenizer::from_file(folder.file("none.json")), IoError);
  CHECK_THROWS_AS(lm::Tokenizer::from_file(""), IoError);
}

TEST_CASE("Tokenizer::from_file: a refusal names file, key, value and what would be right") {
  const TempFolder folder;
  const std::string path = folder.file("tokenizer.json");
  for (const Refusal& r : kRefusals) {
    json changed = good();
    const json::json_pointer place(r.place);
    if (std::string(r.value).empty()) {
      changed[place.parent_pointer()].erase(place.back());
    } else if (std::string(r.value) == "18446744073709551616") {  // nlohmann would round it
      changed[place] = "NUMBER";
    } else {
      changed[place] = json::parse(r.value);
    }
    std::string text = changed.dump();
    if (const auto at = text.find("\"NUMBER\""); at != std::string::npos)
      text.replace(at, 8, r.value);
    CAPTURE(r.place, r.value);
    CHECK_THAT(message_of(write_file(path, text)), contains(r.what));
  }
}

TEST_CASE("Tokenizer::from_file: texts that are no tokenizer") {
  const TempFolder folder;
  const std::string path = folder.file("tokenizer.json");
  const std::string text = good().dump();
  for (const std::string& bad :
       {std::string(), std::string("[]"), std::string("null"), std::string(100000, '['),
        text.substr(0, text.size() / 2), text + "x", std::string("{\"model\": \"\\ud800\"}"),
        std::string("{\"model\": {}, \"model\": {}}"), std::string("{\"model\": \"\xff\"}")}) {
    CAPTURE(bad.substr(0, 40));
    CHECK_THAT(message_of(write_file(path, bad)), contains("tokenizer.json"));
  }
  for (std::size_t size = 0; size < text.size(); ++size)
    CHECK(message_of(write_file(path, text.substr(0, size))) != "no error");
}

TEST_CASE("Tokenizer::from_file: a sequence in a sequence, 40 deep") {
  const TempFolder folder;
  json changed = good();
  json inner = {{"type", "NFC"}};
  for (int i = 0; i < 40; ++i) inner = {{"type", "Sequence"}, {"normalizers", {inner}}};
  changed["normalizer"] = inner;
  CHECK_THAT(message_of(write_file(folder.file("x"), changed.dump())), contains("nested"));
}

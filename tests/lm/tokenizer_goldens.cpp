// Tokenizers against Hugging Face's library: tests/lm/goldens, which goldens/make.py makes.
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "data/files.h"
#include "firn/lm/tokenizer.h"
#include "firn/lm/train_bpe.h"
#include "support/catch.h"
#include "support/source_path.h"

using namespace firn;
using namespace firn::test;
using nlohmann::json;
using Ids = std::vector<std::int64_t>;

namespace {

const char* const kGoldens[] = {"gpt2", "prefix", "digits", "llama3", "removed", "sentencepiece"};

json golden(const std::string& name) {
  return json::parse(read_file(testing::source_path("tests/lm/goldens/" + name + ".json")));
}

lm::Tokenizer tokenizer_of(const TempFolder& folder, const json& g) {
  return lm::Tokenizer::from_file(write_file(folder.file("tokenizer.json"), g["tokenizer"].dump()));
}

/// Hugging Face's template is part of what `special` permits in the goldens.
lm::EncodeOptions options_of(const json& c) {
  if (!c["special"]) return {};
  return {.special = lm::Special::all, .add_template = true};
}

void check_cases(const lm::Tokenizer& tokenizer, const json& g) {
  for (const json& c : g["cases"]) {
    const std::string text = c["text"];
    CAPTURE(text, bool(c["special"]));
    const Ids ids = tokenizer.encode(text, options_of(c));
    CHECK(ids == c["ids"].get<Ids>());
    CHECK(tokenizer.decode(ids, {.replace_invalid = true}) == c["decoded"].get<std::string>());
    CHECK(tokenizer.decode(ids, {.skip_special = true, .replace_invalid = true}) ==
          c["skipped"].get<std::string>());
  }
}

}  // namespace

TEST_CASE("Tokenizer: ids and texts are those of Hugging Face's library") {
  for (const char* const name : kGoldens) {
    CAPTURE(name);
    const TempFolder folder;
    const json g = golden(name);
    check_cases(tokenizer_of(folder, g), g);
  }
}

TEST_CASE("Tokenizer: a saved tokenizer is the same one") {
  for (const char* const name : kGoldens) {
    CAPTURE(name);
    const TempFolder folder;
    const json g = golden(name);
    const lm::Tokenizer tokenizer = tokenizer_of(folder, g);
    tokenizer.save(folder.file("saved.json"));
    const lm::Tokenizer again = lm::Tokenizer::from_file(folder.file("saved.json"));
    check_cases(again, g);
    again.save(folder.file("again.json"));
    CHECK(read_file(folder.file("saved.json")) == read_file(folder.file("again.json")));
  }
}

TEST_CASE("StreamDecoder: the texts of all pushes are the text of all ids") {
  for (const char* const name : kGoldens) {
    CAPTURE(name);
    const TempFolder folder;
    const json g = golden(name);
    const lm::Tokenizer tokenizer = tokenizer_of(folder, g);
    lm::StreamDecoder stream(tokenizer);
    for (const json& c : g["cases"]) {
      const Ids ids = c["ids"];
      std::string text;
      for (const std::int64_t id : ids) text += stream.push(id);
      text += stream.finish();
      CHECK(text == tokenizer.decode(ids, {.replace_invalid = true}));
    }
  }
}

TEST_CASE("train_bpe: the tokens and merges are those of Hugging Face's trainer") {
  for (const char* const name : {"gpt2", "digits"}) {
    CAPTURE(name);
    const TempFolder folder;
    const json g = golden(name);
    const std::vector<std::string> texts = {g["prose"]};
    const bool is_gpt2 = std::string(name) == "gpt2";
    const lm::Tokenizer trained =
        lm::train_bpe(texts, {.vocabulary = 420,
                              .pattern = is_gpt2 ? lm::Pattern::gpt2 : lm::Pattern::smollm,
                              .special = {"<s>", "</s>"},
                              .min_frequency = 1});
    trained.save(folder.file("trained.json"));
    const json ours = json::parse(read_file(folder.file("trained.json")));
    CHECK(ours["model"]["vocab"] == g["tokenizer"]["model"]["vocab"]);
    CHECK(ours["model"]["merges"] == g["tokenizer"]["model"]["merges"]);
  }
}

// Rules of tokenizers on vocabularies that are made by hand.
#include "firn/lm/tokenizer.h"

#include <functional>
#include <limits>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "data/files.h"
#include "firn/error.h"
#include "firn/lm/train_bpe.h"
#include "support/catch.h"
#include "support/matchers.h"

using namespace firn;
using namespace firn::test;
using Ids = std::vector<std::int64_t>;

namespace {

/// 256 bytes, a few merges, and the special tokens <s> (0) and </s> (1).
lm::Tokenizer small() {
  const std::vector<std::string> texts = {"the theme of the thesis, the thesis of the theme"};
  return lm::train_bpe(texts, {.vocabulary = 280, .special = {"<s>", "</s>"}});
}

std::string random_bytes(std::mt19937& random) {
  std::string bytes(random() % 40, '\0');
  for (char& byte : bytes) byte = static_cast<char>(random() % (random() % 2 == 0 ? 256 : 128));
  return bytes;
}

lm::TokenizerParts gpt2_parts() {
  lm::TokenizerParts parts{.source = "a.gguf", .model = "gpt2", .pre = "smollm"};
  parts.tokens = {"<|im_start|>",
                  "a",
                  "b",
                  "1",
                  "\xc4\xa0",
                  "ab",
                  "\xc4\xa0"
                  "ab",
                  "tool"};
  parts.types = {3, 1, 1, 1, 1, 1, 1, 4};
  parts.merges = {"a b", "\xc4\xa0 ab"};
  return parts;
}

lm::TokenizerParts llama_parts() {
  lm::TokenizerParts parts{.source = "a.gguf", .model = "llama"};
  parts.tokens = {"<unk>", "<s>", "</s>"};
  parts.types = {2, 3, 3};
  for (int byte = 0; byte < 256; ++byte) {
    static const char* const kDigits = "0123456789ABCDEF";
    parts.tokens.push_back(std::string("<0x") + kDigits[byte / 16] + kDigits[byte % 16] + ">");
    parts.types.push_back(6);
  }
  for (const char* const token : {"\xe2\x96\x81", "a", "b", "c", "ab", "bc",
                                  "\xe2\x96\x81"
                                  "ab"}) {
    parts.tokens.emplace_back(token);
    parts.types.push_back(1);
  }
  parts.scores.assign(parts.tokens.size(), 0);
  parts.scores[parts.tokens.size() - 2] = -1;  // bc before ab
  parts.scores[parts.tokens.size() - 3] = -2;
  parts.scores[parts.tokens.size() - 1] = -3;
  parts.bos = 1;
  parts.eos = 2;
  parts.add_bos = true;
  return parts;
}

}  // namespace

TEST_CASE("Tokenizer: text becomes no special token unless the call permits it") {
  const lm::Tokenizer tokenizer = small();
  const Ids plain = tokenizer.encode("<s>the</s>");
  for (const std::int64_t id : plain) CHECK(id > 1);
  CHECK(tokenizer.decode(plain) == "<s>the</s>");
  const Ids all = tokenizer.encode("<s>the</s>", {.special = lm::Special::all});
  CHECK(all.front() == 0);
  CHECK(all.back() == 1);
  const Ids one = tokenizer.encode("<s>the</s>", {.special = {"</s>"}});
  CHECK(one.front() != 0);
  CHECK(one.back() == 1);
  CHECK_THROWS_WITH(tokenizer.encode("a", {.special = {"the"}}),
                    contains("\"the\" is not a special token"));
  CHECK_THROWS_AS(tokenizer.encode("a", {.special = {"<x>"}}), Error);
}

TEST_CASE("Tokenizer: a merge that spells a special token is left out") {
  lm::TokenizerParts parts = gpt2_parts();
  parts.types[5] = 3;  // "ab" is a control token
  const lm::Tokenizer tokenizer = lm::Tokenizer::from_parts(parts);
  CHECK(tokenizer.encode("ab") == Ids{1, 2});
  CHECK(tokenizer.encode("ab", {.special = lm::Special::all}) == Ids{5});
  parts.types[1] = 3;  // and so is the byte "a"
  CHECK_THROWS_WITH(lm::Tokenizer::from_parts(parts), contains("also the token of byte 97"));
}

TEST_CASE("Tokenizer: any bytes come back") {
  const lm::Tokenizer tokenizer = small();
  std::mt19937 random(7);
  for (int i = 0; i < 3000; ++i) {
    const std::string bytes = random_bytes(random);
    const Ids ids = tokenizer.encode(bytes);
    REQUIRE(tokenizer.decode(ids) == bytes);
    lm::StreamDecoder stream(tokenizer);
    std::string text;
    for (const std::int64_t id : ids) text += stream.push(id);
    text += stream.finish();
    REQUIRE(text == tokenizer.decode(ids, {.replace_invalid = true}));
  }
}

TEST_CASE("Tokenizer: bytes that are not UTF-8 are pieces of their own") {
  const lm::Tokenizer tokenizer = small();
  Ids want = tokenizer.encode("the ");
  want.push_back(*tokenizer.id_of("\xc3\xbf"));  // the byte 0xff as a character of the alphabet
  for (const std::int64_t id : tokenizer.encode("the")) want.push_back(id);
  CHECK(tokenizer.encode("the \xffthe") == want);
}

TEST_CASE("Tokenizer: an id that no token has is named") {
  const lm::Tokenizer tokenizer = small();
  const Ids ids = {5, tokenizer.size()};
  CHECK_THROWS_WITH(tokenizer.decode(ids), contains("the id 268 is outside of the vocabulary"));
  CHECK_THROWS_AS(tokenizer.bytes_of(-1), Error);
  lm::StreamDecoder stream(tokenizer);
  CHECK_THROWS_AS(stream.push(1000), Error);
  CHECK(!tokenizer.is_special(-1));
}

TEST_CASE("StreamDecoder: a character comes when its last byte does") {
  const lm::Tokenizer tokenizer = small();
  const Ids ids = tokenizer.encode("\xe2\x82\xac!");
  REQUIRE(ids.size() == 4);
  lm::StreamDecoder stream(tokenizer);
  CHECK(stream.push(ids[0]).empty());
  CHECK(stream.push(ids[1]).empty());
  CHECK(stream.push(ids[2]) == "\xe2\x82\xac");
  CHECK(stream.push(ids[0]).empty());
  CHECK(stream.push(ids[3]) == "\xef\xbf\xbd!");
  CHECK(stream.push(ids[0]).empty());
  CHECK(stream.finish() == "\xef\xbf\xbd");
  CHECK(stream.finish().empty());
}

TEST_CASE("Tokenizer: long pieces are merged as short ones are") {
  const lm::Tokenizer tokenizer = small();
  // A piece of letters without a merge across its parts: "thesis" and "x" have none together.
  const Ids part = tokenizer.encode("thesisx");
  std::string text;
  Ids want;
  for (int i = 0; i < 400; ++i) {
    text += "thesisx";
    want.insert(want.end(), part.begin(), part.end());
  }
  CHECK(tokenizer.encode(text) == want);
}

TEST_CASE("Tokenizer::from_parts: byte-level BPE of a GGUF file") {
  const lm::Tokenizer tokenizer = lm::Tokenizer::from_parts(gpt2_parts());
  CHECK(tokenizer.encode("ab ab11") == Ids{5, 6, 3, 3});
  CHECK(tokenizer.encode("<|im_start|>", {.special = lm::Special::all}) == Ids{0});
  CHECK(tokenizer.encode("toolab") == Ids{7, 5});  // added tokens that are not special
  CHECK_THROWS_WITH(tokenizer.encode("abc"), contains("\"c\""));
  CHECK(tokenizer.encode("abc", {.skip_unknown = true}) == Ids{5});
  CHECK(tokenizer.special_tokens().size() == 1);
}

TEST_CASE("Tokenizer::from_parts: SentencePiece's BPE merges by score") {
  const lm::Tokenizer tokenizer = lm::Tokenizer::from_parts(llama_parts());
  const std::int64_t first = 259;  // the token of the space
  CHECK(tokenizer.encode("abc", {.add_template = true}) == Ids{1, first, first + 1, first + 5});
  CHECK(tokenizer.encode("ab") == Ids{first + 6});
  CHECK(tokenizer.encode("a\xc3\xa9") == Ids{first, first + 1, 3 + 0xc3, 3 + 0xa9});
  CHECK(tokenizer.encode("\xff") == Ids{3 + 0xff});
  const std::string text = "ab  \xc3\xa9 c\xf0\x9f\x99\x82";
  CHECK(tokenizer.decode(tokenizer.encode(text)) == text);
  CHECK(tokenizer.encode("<s>a").front() != 1);
}

TEST_CASE("Tokenizer::from_parts: contradictions name key and value") {
  const auto refused = [](auto change, const char* what) {
    for (lm::TokenizerParts parts : {gpt2_parts(), llama_parts()}) {
      change(parts);
      CHECK_THROWS_WITH(lm::Tokenizer::from_parts(parts), contains(what));
      CHECK_THROWS_AS(lm::Tokenizer::from_parts(parts), IoError);
    }
  };
  refused([](auto& p) { p.model = "bert"; }, "tokenizer.ggml.model: \"bert\" is not supported");
  refused([](auto& p) { p.types.pop_back(); }, "tokenizer.ggml.token_type");
  refused([](auto& p) { p.types[1] = 7; }, "has the type 7");
  refused([](auto& p) { p.tokens.back() = p.tokens[0]; }, "has the ids");
  refused([](auto& p) { p.tokens[1] = "\xff"; }, "not UTF-8");
  refused([](auto& p) { p.unknown = 100000; }, "tokenizer.ggml.unknown_token_id: 100000");
  refused([](auto& p) { p.add_eos = true, p.eos = {}; }, "tokenizer.ggml.eos_token_id");
  lm::TokenizerParts parts = gpt2_parts();
  parts.pre = "unheard-of";
  CHECK_THROWS_WITH(lm::Tokenizer::from_parts(parts), contains("\"unheard-of\" is not supported"));
  parts = gpt2_parts();
  for (const char* const merge : {"a", "a ", " a", "a c", "b a", "a b", ""}) {
    parts.merges = {"a b", merge};
    CAPTURE(merge);
    CHECK_THROWS_AS(lm::Tokenizer::from_parts(parts), IoError);
  }
  parts = llama_parts();
  parts.scores[5] = std::numeric_limits<float>::quiet_NaN();
  CHECK_THROWS_AS(lm::Tokenizer::from_parts(parts), IoError);
}

TEST_CASE("Tokenizer::from_tiktoken: ranks are the merges") {
  const TempFolder folder;
  const std::string path = folder.file("a.tiktoken");
  write_file(path, "YQ== 0\nYg== 1\nYw== 2\nYmM= 3\nYWI= 4\nYWJj 6\n");
  const lm::Tokenizer tokenizer =
      lm::Tokenizer::from_tiktoken(path, lm::Pattern::cl100k, {{"<|end|>", 7}});
  CHECK(tokenizer.size() == 8);
  CHECK(tokenizer.encode("abcab<|end|>b", {.special = lm::Special::all}) == Ids{6, 4, 7, 1});
  // The pattern as tiktoken has it, where $ is the end of the text.
  const std::string regex =
      R"('(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s)";
  CHECK(lm::Tokenizer::from_tiktoken(path, regex).encode("abcab") == Ids{6, 4});
  CHECK(tokenizer.encode("abc") == Ids{6});  // a piece that is a token is that token
  CHECK_THROWS_WITH(tokenizer.decode(Ids{5}), contains("no token has the id 5"));
  const auto refused = [&](const char* text, const char* what) {
    CHECK_THROWS_WITH(lm::Tokenizer::from_tiktoken(write_file(path, text), lm::Pattern::cl100k),
                      contains(what));
  };
  refused("", "has no token");
  refused("YQ== 0\nYQ== 1\n", "has the ids 0 and 1");
  refused("YQ== 0\nYg== 0\n", "the id 0 is of");
  refused("YQ== 90000\n", "too large");
  refused("YQ== 18446744073709551616\n", "line 1");
  refused("YQ= 0\n", "line 1");
  refused("YR== 0\n", "line 1");
  refused("YQ==0\n", "line 1");
  refused("YQ== -1\n", "line 1");
  refused("YQ== 0 1\n", "line 1");
}

TEST_CASE("train_bpe: ties, limits and bad options") {
  const std::vector<std::string> texts = {"ab ab cd cd"};
  const lm::Tokenizer tokenizer = lm::train_bpe(texts, {.vocabulary = 300});
  // "ab", "cd" and " c" are equally frequent; the pair with the lower id comes first.
  CHECK(tokenizer.bytes_of(256) == "ab");
  CHECK(tokenizer.bytes_of(257) == "cd");
  CHECK(tokenizer.bytes_of(258) == " cd");
  CHECK(tokenizer.size() == 259);  // " ab" occurs once
  CHECK_THROWS_WITH(lm::train_bpe(texts, {.vocabulary = 255}), contains("vocabulary is 255"));
  CHECK_THROWS_AS(lm::train_bpe(texts, {.vocabulary = 300, .min_frequency = 0}), Error);
  CHECK_THROWS_AS(lm::train_bpe(texts, {.vocabulary = 300, .special = {""}}), Error);
  CHECK_THROWS_AS(lm::train_bpe(texts, {.vocabulary = 300, .special = {"x", "x"}}), Error);
  CHECK_THROWS_AS(lm::train_bpe(std::function<bool(std::string&)>(), {.vocabulary = 300}), Error);
  CHECK(lm::train_bpe(std::span<const std::string>(), {.vocabulary = 300}).size() == 256);
}

TEST_CASE("train_bpe: a long run becomes tokens that a tokenizer can have") {
  const std::vector<std::string> texts(2, std::string(5000, '-'));
  const lm::Tokenizer tokenizer = lm::train_bpe(texts, {.vocabulary = 400});
  CHECK(tokenizer.bytes_of(tokenizer.size() - 1).size() <= 2048);
  CHECK(tokenizer.decode(tokenizer.encode(texts[0])) == texts[0]);
}

TEST_CASE("a tokenizer and a decoder that were moved from go on") {
  lm::Tokenizer first = small();
  const lm::Tokenizer second = std::move(first);
  CHECK(first.encode("the") == second.encode("the"));
  lm::StreamDecoder decoder(second);
  lm::StreamDecoder moved = std::move(decoder);
  CHECK(decoder.push(second.encode("the").front()) == moved.push(second.encode("the").front()));
}

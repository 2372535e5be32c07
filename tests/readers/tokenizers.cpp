// Readers of tokenizers. What they accept also encodes a text, and is saved and read again.
#include "firn/lm/tokenizer.h"
#include "readers/readers.h"

namespace firn::test {
namespace {

void use(const TempFolder& folder, const lm::Tokenizer& tokenizer) {
  tokenizer.save(folder.file("saved.json"));
  lm::Tokenizer::from_file(folder.file("saved.json"));
  for (const char* const text : {"abab <s>a\xff", "\xc3\xa9 1\n"}) {
    const auto ids = tokenizer.encode(
        text, {.special = lm::Special::all, .add_template = true, .skip_unknown = true});
    tokenizer.decode(ids, {.replace_invalid = true});
  }
}

const Bytes kByteLevel =
    R"({"added_tokens":[{"id":5,"content":"<s>","special":true,"lstrip":true}],"normalizer":null,)"
    R"("pre_tokenizer":{"type":"Sequence","pretokenizers":[{"type":"Split","pattern":{"Regex":"a+|\\s"},)"
    R"("behavior":"Isolated","invert":false},{"type":"ByteLevel","use_regex":true}]},)"
    R"("post_processor":{"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"<s>"}},)"
    R"({"Sequence":{"id":"A"}}],"special_tokens":{"<s>":{"ids":[5]}}},"decoder":{"type":"ByteLevel"},)"
    R"("model":{"type":"BPE","unk_token":"b","fuse_unk":true,"vocab":{"a":0,"b":1,"ab":2,"Ġ":3,"Ã":4},)"
    R"("merges":["a b"]}})";
const Bytes kCharacters =
    R"({"added_tokens":[{"id":0,"content":"<s>","special":true}],"normalizer":{"type":"Sequence",)"
    R"("normalizers":[{"type":"NFKC"},{"type":"Prepend","prepend":"_"},{"type":"Replace",)"
    R"("pattern":{"String":" "},"content":"_"}]},"pre_tokenizer":null,"decoder":{"type":"Sequence",)"
    R"("decoders":[{"type":"Replace","pattern":{"String":"_"},"content":" "},{"type":"ByteFallback"},)"
    R"({"type":"Fuse"},{"type":"Strip","content":" ","start":1,"stop":0}]},"model":{"type":"BPE",)"
    R"("unk_token":"<s>","byte_fallback":true,"vocab":{"<s>":0,"_":1,"a":2,"b":3,"_a":4,"<0xC3>":5},)"
    R"("merges":[["_","a"]]}})";

const std::vector<std::string> kWords = {"{",
                                         "}",
                                         "[",
                                         "]",
                                         ",",
                                         ":",
                                         "\"",
                                         "\\u0120",
                                         "null",
                                         "true",
                                         "4294967296",
                                         "-1",
                                         "0",
                                         "1e9",
                                         "\"NFC\"",
                                         "\"NFD\"",
                                         "\"Lowercase\"",
                                         "\"Digits\"",
                                         "\"Removed\"",
                                         "\"ByteLevel\"",
                                         "\"Split\"",
                                         "\"Sequence\"",
                                         "\"Prepend\"",
                                         "\"Replace\"",
                                         "\"String\"",
                                         "\"Regex\"",
                                         "\"Strip\"",
                                         "\"Fuse\"",
                                         "\"BPE\"",
                                         "\"Unigram\"",
                                         "\"ignore_merges\"",
                                         "\"single_word\"",
                                         "\"rstrip\"",
                                         "\"normalized\"",
                                         "\\\\p{L}+",
                                         "(?!a)",
                                         "(a+)+$",
                                         "[^\\\\s]",
                                         "a b",
                                         "\xc4\xa0",
                                         "\xff",
                                         "<0x41>"};

}  // namespace

std::vector<Reader> tokenizer_readers() {
  const auto json = [](const TempFolder& folder, const Bytes& input) {
    use(folder, lm::Tokenizer::from_file(write_file(folder.file("tokenizer.json"), input)));
  };
  const auto tiktoken = [](const TempFolder& folder, const Bytes& input) {
    use(folder, lm::Tokenizer::from_tiktoken(write_file(folder.file("x.tiktoken"), input),
                                             lm::Pattern::o200k, {{"<s>", 3}}));
  };
  return {{"tokenizer_json", {kByteLevel, kCharacters}, kWords, json},
          {"tiktoken",
           {"YQ== 0\nYg== 1\nYWI= 2\nIA== 4\n"},
           {"YQ== ", "YWI= ", "=", "\n", "\r\n", " 5", "18446744073709551616", "-1"},
           tiktoken}};
}

}  // namespace firn::test

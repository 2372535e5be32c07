// firn's side of `scripts/interop tokenizers`: encodes documents, decodes them, and measures the
// speed.
//   firn_tokenize REQUEST
// REQUEST is a JSON file: "kind" is json, tiktoken or parts, with what that needs; "text" is a file
// with all documents, one after the other, and "lengths" their bytes. "ids" and "counts" get the
// ids and their number for each document, as i64. Optional: "save", a file for the tokenizer;
// "special": true; "seconds": for how long to measure. Prints the rate in MB/s.
#include <time.h>

#include <algorithm>
#include <cstdio>
#include <exception>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "firn/lm/tokenizer.h"

namespace {

namespace lm = firn::lm;
using nlohmann::json;

std::string read(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) throw std::runtime_error("cannot read " + path);
  return {std::istreambuf_iterator<char>(in), {}};
}

void write(const std::string& path, const std::vector<std::int64_t>& numbers) {
  std::ofstream out(path, std::ios::binary);
  out.write(reinterpret_cast<const char*>(numbers.data()),
            static_cast<std::streamsize>(numbers.size() * sizeof(std::int64_t)));
  if (!out) throw std::runtime_error("cannot write " + path);
}

lm::Pattern pattern_of(const json& r) {
  static const std::vector<std::pair<std::string, lm::Pattern::Known>> kKnown = {
      {"gpt2", lm::Pattern::gpt2},     {"cl100k", lm::Pattern::cl100k},
      {"o200k", lm::Pattern::o200k},   {"llama3", lm::Pattern::llama3},
      {"smollm", lm::Pattern::smollm}, {"qwen2", lm::Pattern::qwen2},
      {"tekken", lm::Pattern::tekken}};
  for (const auto& [name, known] : kKnown)
    if (r.at("pattern") == name) return known;
  return r.at("pattern").get<std::string>();
}

lm::Tokenizer tokenizer_of(const json& r) {
  const std::string kind = r.at("kind");
  if (kind == "json") return lm::Tokenizer::from_file(r.at("path"));
  if (kind == "tiktoken") {
    std::vector<lm::SpecialToken> special;
    for (const json& s : r.at("special_tokens")) special.push_back({s.at(0), s.at(1)});
    return lm::Tokenizer::from_tiktoken(r.at("path"), pattern_of(r), special);
  }
  lm::TokenizerParts parts{.source = "parts", .model = r.at("model"), .pre = r.at("pre")};
  parts.tokens = r.at("tokens").get<std::vector<std::string>>();
  parts.types = r.at("types").get<std::vector<std::int32_t>>();
  parts.merges = r.at("merges").get<std::vector<std::string>>();
  return lm::Tokenizer::from_parts(parts);
}

/// Seconds that this thread has computed, which other programs do not lengthen.
double seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

int run(const json& r) {
  const double loading = seconds();
  const lm::Tokenizer tokenizer = tokenizer_of(r);
  const double load_seconds = seconds() - loading;
  if (r.contains("save")) tokenizer.save(r.at("save"));
  lm::EncodeOptions options;
  if (r.value("special", false)) options.special = lm::Special::all;
  options.skip_unknown = r.value("skip_unknown", false);

  const std::string text = read(r.at("text"));
  std::vector<std::string_view> documents;
  std::size_t at = 0;
  for (const std::size_t bytes : r.at("lengths")) {
    documents.push_back(std::string_view(text).substr(at, bytes));
    at += bytes;
  }
  std::vector<std::int64_t> ids, counts;
  for (const std::string_view document : documents) {
    const std::size_t before = ids.size();
    tokenizer.encode_to(document, ids, options);
    counts.push_back(static_cast<std::int64_t>(ids.size() - before));
    const std::span<const std::int64_t> own(ids.data() + before, ids.size() - before);
    if (r.value("lossless", true) && tokenizer.decode(own) != document) {
      std::fprintf(stderr, "firn_tokenize: a document does not come back\n");
      return 1;
    }
  }
  write(r.at("ids"), ids);
  write(r.at("counts"), counts);

  double best = 1e9;
  const double start = seconds();
  do {
    const double begin = seconds();
    ids.clear();
    for (const std::string_view document : documents) tokenizer.encode_to(document, ids, options);
    best = std::min(best, seconds() - begin);
  } while (seconds() - start < r.value("seconds", 0.0));
  std::printf("%.2f MB/s, loaded in %.2f s\n", static_cast<double>(text.size()) / best / 1e6,
              load_seconds);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: firn_tokenize REQUEST\n");
    return 2;
  }
  try {
    return run(json::parse(read(argv[1])));
  } catch (const std::exception& e) {
    std::fprintf(stderr, "firn_tokenize: %s\n", e.what());
    return 1;
  }
}

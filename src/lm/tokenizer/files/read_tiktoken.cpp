// Reads the files of tiktoken: a line "BASE64 ID" for each token.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "io/file/input_file.h"
#include "io/json.h"
#include "lm/tokenizer/byte_alphabet.h"
#include "lm/tokenizer/files/formats.h"
#include "lm/tokenizer/token_table.h"

namespace firn::lm::bpe {
namespace {

constexpr const char* kOp = "Tokenizer";
constexpr const char* kHint = "a line has a token in base64, a space, and its id";

int digit_of(char c) {
  static constexpr std::string_view kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  const std::size_t at = kDigits.find(c);
  return at == std::string_view::npos ? -1 : static_cast<int>(at);
}

/// Decodes base64 (RFC 4648); returns false if the text is not that of at least one byte.
bool decode_base64(std::string_view text, std::string& bytes) {
  bytes.clear();
  if (text.empty() || text.size() % 4 != 0) return false;
  const std::size_t padding = text.ends_with("==") ? 2 : text.ends_with("=") ? 1 : 0;
  text.remove_suffix(padding);
  unsigned bits = 0;
  int count = 0;
  for (const char c : text) {
    const int digit = digit_of(c);
    if (digit < 0) return false;
    bits = bits << 6 | static_cast<unsigned>(digit);
    count += 6;
    if (count >= 8) {
      count -= 8;
      bytes += static_cast<char>(bits >> count & 0xff);
    }
  }
  return (bits & ((1u << count) - 1)) == 0;
}

struct Line {
  std::string bytes;
  std::uint64_t id;
};

std::vector<Line> read_lines(const io::InputFile& file, std::string_view text) {
  std::vector<Line> lines;
  for (std::size_t number = 1; !text.empty(); ++number) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.empty()) continue;
    const std::size_t space = std::min(line.find(' '), line.size());
    Line token;
    const char* const last = line.data() + line.size();
    const auto [stop, error] =
        std::from_chars(line.data() + std::min(space + 1, line.size()), last, token.id);
    if (error != std::errc() || stop != last || !decode_base64(line.substr(0, space), token.bytes))
      file.fail(fmt::format("line {}: {} is not a token and its id", number,
                            io::quoted_for_message(line)),
                kHint);
    if (token.bytes.size() > kLongestToken)
      file.fail(fmt::format("line {}: a token of {} bytes", number, token.bytes.size()),
                fmt::format("at most {} are read", kLongestToken));
    lines.push_back(std::move(token));
    if (lines.size() > kMostTokens)
      file.fail(fmt::format("has more than {} tokens", kMostTokens), kHint);
  }
  return lines;
}

}  // namespace

std::vector<Merge> merges_of_ranks(const std::vector<std::string>& bytes,
                                   const std::vector<std::uint32_t>& rank_of) {
  TokenTable table(bytes.size());
  for (std::size_t id = 0; id < bytes.size(); ++id)
    if (!bytes[id].empty()) table.add(bytes[id], static_cast<Id>(id));
  std::vector<Merge> merges;
  for (std::size_t id = 0; id < bytes.size(); ++id) {
    if (rank_of[id] == kNoRank) continue;
    const std::string_view text = bytes[id];
    for (std::size_t cut = 1; cut < text.size(); ++cut) {
      const Id left = table.find(text.substr(0, cut));
      if (left == kNone) continue;
      const Id right = table.find(text.substr(cut));
      if (right != kNone) merges.push_back({left, right, static_cast<Id>(id), rank_of[id]});
    }
  }
  return merges;
}

std::vector<PreStep> steps_of(const Pattern& pattern) {
  std::vector<PreStep> steps;
  PreStep split{PreStep::regex, pattern.regex()};
  PreStep bytes{PreStep::byte_level, {}};
  if (pattern.regex().empty()) {
    split.pattern = regex_of(pattern.known());
    bytes.use_regex = pattern.known() == Pattern::gpt2 || pattern.known() == Pattern::smollm;
    if (pattern.known() == Pattern::smollm) {
      split = {PreStep::digits, {}};
      split.one_by_one = true;
    }
  }
  if (split.kind == PreStep::digits || !bytes.use_regex) steps.push_back(std::move(split));
  steps.push_back(std::move(bytes));
  return steps;
}

Spec read_tiktoken(const std::string& path, const Pattern& pattern,
                   const std::vector<SpecialToken>& special) {
  io::InputFile file(kOp, path);
  if (file.bytes() > kLargestFile)
    file.fail(fmt::format("has {} bytes; such a file has at most {}", file.bytes(), kLargestFile));
  std::string text(file.bytes(), '\0');
  file.read_all(text.data(), text.size());
  const std::vector<Line> lines = read_lines(file, text);

  Spec spec;
  spec.source = path;
  spec.ignores_merges = true;
  spec.steps = steps_of(of_tiktoken(pattern));
  const std::size_t count = lines.size() + special.size();
  const auto put = [&](std::uint64_t id, std::string name, bool is_model) {
    if (!id_is_plausible(id, count))
      file.fail(fmt::format("the id {} is too large for {} tokens", id, count),
                "ids have no large gaps");
    if (id >= spec.tokens.size()) spec.tokens.resize(static_cast<std::size_t>(id) + 1);
    Token& token = spec.tokens[static_cast<std::size_t>(id)];
    if (!token.name.empty())
      file.fail(fmt::format("the id {} is of {} and of {}", id, io::quoted_for_message(token.name),
                            io::quoted_for_message(name)),
                "an id has one token");
    token = {std::move(name), is_model};
  };
  for (const Line& line : lines) put(line.id, name_of_bytes(line.bytes), true);
  for (const SpecialToken& token : special) {
    if (token.name.empty() || !io::is_utf8(token.name) || token.id < 0)
      file.fail(fmt::format("the special token {} with the id {} is none",
                            io::quoted_for_message(token.name), token.id),
                "its name is a text, and its id is not negative");
    put(static_cast<std::uint64_t>(token.id), token.name, false);
    spec.added.push_back({static_cast<Id>(token.id), token.name, true});
  }
  std::vector<std::string> bytes(spec.tokens.size());
  std::vector<std::uint32_t> ranks(spec.tokens.size(), kNoRank);
  for (const Line& line : lines) {
    std::string& own = bytes[static_cast<std::size_t>(line.id)];
    own = line.bytes;
    ranks[static_cast<std::size_t>(line.id)] = static_cast<std::uint32_t>(line.id);
  }
  spec.merges = merges_of_ranks(bytes, ranks);
  return spec;
}

}  // namespace firn::lm::bpe

#include "firn/lm/tokenizer.h"

#include <sys/stat.h>

#include <algorithm>

#include "base/check.h"
#include "io/file/atomic_file.h"
#include "io/json.h"
#include "lm/tokenizer/files/formats.h"
#include "lm/tokenizer/model.h"

namespace firn::lm {
namespace {

void check_id(const bpe::Model& model, const char* op, std::int64_t id) {
  const auto size = static_cast<std::int64_t>(model.spec().tokens.size());
  FIRN_CHECK(id >= 0 && id < size, op, "is it a token of another tokenizer?",
             "the id {} is outside of the vocabulary, whose size is {}", id, size);
  FIRN_CHECK(model.has(id), op, "the vocabulary has ids without a token",
             "no token has the id {}; the size is {}", id, size);
}

/// Length of the longest beginning of `text`, which is not valid UTF-8, that begins a valid
/// character; at least 1. Sets `is_open` if the text ends there.
std::size_t broken_character(std::string_view text, bool& is_open) {
  static constexpr std::string_view kTails[] = {"\x80", "\x80\x80"};
  const auto first = static_cast<unsigned char>(text[0]);
  const std::size_t length = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  is_open = false;
  if (first < 0xc2 || first > 0xf4) return 1;
  std::size_t known = 1;
  while (known < length && known < text.size()) {
    // The prefix with one byte more is one if it can be completed; tails of 0x80 do that for each.
    const std::string prefix(text.substr(0, known + 1));
    const std::size_t left = length - known - 1;
    if (!io::is_utf8(left == 0 ? prefix : prefix + std::string(kTails[left - 1]))) return known;
    ++known;
  }
  is_open = known < length;
  return known;
}

/// Moves the valid text at the front of `bytes` to `out`, and U+FFFD for what is broken. A
/// character that is incomplete at the end stays, unless `is_end`.
void take_valid(std::string& bytes, std::string& out, bool is_end) {
  std::string_view rest = bytes;
  while (!rest.empty()) {
    const std::size_t valid = std::min(io::not_utf8(rest), rest.size());
    out += rest.substr(0, valid);
    rest.remove_prefix(valid);
    if (rest.empty()) break;
    bool is_open = false;
    const std::size_t broken = broken_character(rest, is_open);
    if (is_open && !is_end) break;
    out += "\xef\xbf\xbd";
    rest.remove_prefix(broken);
  }
  bytes.erase(0, bytes.size() - rest.size());
}

/// Appends the bytes of a token. The decoder may strip characters from the start of a text.
void append(const bpe::Model& model, std::int64_t id, std::string& bytes) {
  bytes += model.bytes(static_cast<std::size_t>(id));
}

/// Removes what the decoder strips from the start of a text.
void strip(const bpe::Spec& spec, std::string& text) {
  std::size_t at = 0;
  for (int i = 0; i < spec.strip_count && text.compare(at, spec.strip.size(), spec.strip) == 0; ++i)
    at += spec.strip.size();
  text.erase(0, at);
}

Tokenizer make(bpe::Spec spec) {
  return Tokenizer(std::make_shared<const bpe::Model>(std::move(spec)));
}

}  // namespace

Tokenizer Tokenizer::from_file(const std::string& path) {
  try {
    struct stat info {};
    const bool is_folder = ::stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode);
    return make(bpe::read_json(is_folder ? path + "/tokenizer.json" : path));
  }
  FIRN_OUT_OF_MEMORY("Tokenizer")
}

Tokenizer Tokenizer::from_tiktoken(const std::string& path, const Pattern& pattern,
                                   const std::vector<SpecialToken>& special) {
  try {
    return make(bpe::read_tiktoken(path, pattern, special));
  }
  FIRN_OUT_OF_MEMORY("Tokenizer")
}

Tokenizer Tokenizer::from_parts(const TokenizerParts& parts) {
  try {
    return make(bpe::read_parts(parts));
  }
  FIRN_OUT_OF_MEMORY("Tokenizer")
}

void Tokenizer::save(const std::string& path) const {
  try {
    const std::string text = bpe::write_json(model_->spec());
    io::AtomicFile file("Tokenizer::save", path);
    file.write(text.data(), text.size());
    file.commit();
  }
  FIRN_OUT_OF_MEMORY("Tokenizer::save")
}

std::vector<std::int64_t> Tokenizer::encode(std::string_view text,
                                            const EncodeOptions& options) const {
  std::vector<std::int64_t> ids;
  encode_to(text, ids, options);
  return ids;
}

void Tokenizer::encode_to(std::string_view text, std::vector<std::int64_t>& ids,
                          const EncodeOptions& options) const {
  model_->encode(text, options, ids);
}

std::string Tokenizer::decode(std::span<const std::int64_t> ids,
                              const DecodeOptions& options) const {
  std::string bytes;
  for (const std::int64_t id : ids) {
    check_id(*model_, "Tokenizer::decode", id);
    if (options.skip_special && is_special(id)) continue;
    append(*model_, id, bytes);
  }
  strip(model_->spec(), bytes);
  if (!options.replace_invalid) return bytes;
  std::string text;
  take_valid(bytes, text, true);
  return text;
}

std::int64_t Tokenizer::size() const noexcept {
  return static_cast<std::int64_t>(model_->spec().tokens.size());
}

std::optional<std::int64_t> Tokenizer::id_of(std::string_view name) const {
  const bpe::Id id = model_->id_of(name);
  if (id == bpe::kNone) return std::nullopt;
  return id;
}

std::string_view Tokenizer::bytes_of(std::int64_t id) const {
  check_id(*model_, "Tokenizer::bytes_of", id);
  return model_->bytes(static_cast<std::size_t>(id));
}

bool Tokenizer::is_special(std::int64_t id) const noexcept {
  return model_->has(id) && model_->is_special(static_cast<std::size_t>(id));
}

std::vector<SpecialToken> Tokenizer::special_tokens() const {
  std::vector<SpecialToken> list;
  for (std::int64_t id = 0; id < size(); ++id)
    if (is_special(id))
      list.push_back({model_->spec().tokens[static_cast<std::size_t>(id)].name, id});
  return list;
}

std::string StreamDecoder::push(std::int64_t id) {
  const bpe::Model& model = tokenizer_.model();
  check_id(model, "StreamDecoder::push", id);
  if (options_.skip_special && tokenizer_.is_special(id)) return {};
  std::string bytes = pending_;
  append(model, id, bytes);
  if (!has_begun_) {
    // The start of the text is decided once it is longer than all that may be stripped.
    const bpe::Spec& spec = model.spec();
    const std::size_t most = spec.strip.size() * static_cast<std::size_t>(spec.strip_count);
    std::string stripped = bytes;
    strip(spec, stripped);
    if (bytes.size() < most && stripped.size() < spec.strip.size()) {
      pending_ = std::move(bytes);
      return {};
    }
    bytes = std::move(stripped);
  }
  std::string text;
  take_valid(bytes, text, false);
  pending_ = std::move(bytes);
  has_begun_ = true;
  return text;
}

std::string StreamDecoder::finish() {
  std::string bytes = std::move(pending_), text;
  if (!has_begun_) strip(tokenizer_.model().spec(), bytes);
  take_valid(bytes, text, true);
  pending_.clear();
  has_begun_ = false;
  return text;
}

}  // namespace firn::lm

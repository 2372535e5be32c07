#include "firn/lm/train_bpe.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <queue>
#include <unordered_map>
#include <unordered_set>

#include "base/check.h"
#include "lm/tokenizer/byte_alphabet.h"
#include "lm/tokenizer/files/formats.h"
#include "lm/tokenizer/model.h"
#include "lm/tokenizer/split/pre_tokenizer.h"

namespace firn::lm {
namespace {

using bpe::Id;
constexpr const char* kOp = "train_bpe";

struct TextHash {
  using is_transparent = void;
  std::size_t operator()(std::string_view text) const noexcept { return bpe::hash_of(text); }
};
using Counts = std::unordered_map<std::string, std::int64_t, TextHash, std::equal_to<>>;

struct Word {
  std::vector<Id> symbols;
  std::int64_t count;
};

std::uint64_t key_of(Id left, Id right) {
  return static_cast<std::uint64_t>(left) << 32 | static_cast<std::uint32_t>(right);
}

/// Two neighbours: how often they occur, and the words in which they may.
struct Pair {
  std::int64_t count = 0;
  std::vector<std::uint32_t> words;
};

struct Candidate {
  std::int64_t count;
  std::uint64_t key;
  bool operator<(const Candidate& other) const noexcept {
    return count != other.count ? count < other.count : key > other.key;
  }
};

class Trainer {
 public:
  Trainer(const TrainBpeOptions& options) : options_(options) { start(); }

  void run(const Counts& counts) {
    add_words(counts);
    for (std::uint32_t w = 0; w < words_.size(); ++w) count_pairs(w);
    for (const auto& [key, pair] : pairs_) queue_.push({pair.count, key});
    while (static_cast<std::int64_t>(spec_.tokens.size()) < options_.vocabulary &&
           !queue_.empty()) {
      const Candidate top = queue_.top();
      queue_.pop();
      const auto found = pairs_.find(top.key);
      if (found == pairs_.end()) continue;
      if (found->second.count != top.count) {  // it became rarer since it was queued
        if (found->second.count > 0) queue_.push({found->second.count, top.key});
        continue;
      }
      if (top.count < options_.min_frequency) break;
      const std::vector<std::uint32_t> words = std::move(found->second.words);
      pairs_.erase(found);
      merge(top.key, words);
    }
  }
  bpe::Spec take() { return std::move(spec_); }

 private:
  /// Puts the special tokens and the bytes.
  void start() {
    spec_.steps = bpe::steps_of(options_.pattern);
    for (const std::string& name : options_.special) {
      spec_.added.push_back({static_cast<Id>(spec_.tokens.size()), name, true});
      spec_.tokens.push_back({name, false});
    }
    std::vector<int> bytes(256);
    std::iota(bytes.begin(), bytes.end(), 0);
    std::sort(bytes.begin(), bytes.end(), [](int a, int b) {
      return bpe::character_of_byte(static_cast<unsigned char>(a)) <
             bpe::character_of_byte(static_cast<unsigned char>(b));
    });
    for (const int byte : bytes) {
      const char text = static_cast<char>(byte);
      byte_ids_[static_cast<std::size_t>(byte)] = static_cast<Id>(spec_.tokens.size());
      spec_.tokens.push_back({bpe::name_of_bytes({&text, 1})});
    }
    for (std::size_t id = 0; id < spec_.tokens.size(); ++id)
      ids_.emplace(spec_.tokens[id].name, static_cast<Id>(id));
  }

  void add_words(const Counts& counts) {
    FIRN_CHECK(counts.size() < 0xffffffff, kOp, "fewer texts", "the texts have {} distinct pieces",
               counts.size());
    for (const auto& [text, count] : counts) {
      if (text.size() < 2) continue;
      Word word{{}, count};
      for (const char byte : text)
        word.symbols.push_back(byte_ids_[static_cast<unsigned char>(byte)]);
      words_.push_back(std::move(word));
    }
  }

  void count_pairs(std::uint32_t w) {
    const Word& word = words_[w];
    for (std::size_t i = 0; i + 1 < word.symbols.size(); ++i)
      add(key_of(word.symbols[i], word.symbols[i + 1]), word.count, w);
  }

  void add(std::uint64_t key, std::int64_t count, std::uint32_t w) {
    Pair& pair = pairs_[key];
    pair.count += count;
    if (pair.words.empty() || pair.words.back() != w) pair.words.push_back(w);
  }
  void remove(std::uint64_t key, std::int64_t count) {
    const auto found = pairs_.find(key);
    if (found != pairs_.end()) found->second.count -= count;
  }

  void merge(std::uint64_t key, const std::vector<std::uint32_t>& words) {
    const auto left = static_cast<Id>(key >> 32), right = static_cast<Id>(key & 0xffffffff);
    std::string name = spec_.tokens[static_cast<std::size_t>(left)].name +
                       spec_.tokens[static_cast<std::size_t>(right)].name;
    if (name.size() > 2 * bpe::kLongestToken) return;  // a tokenizer has no such token
    const auto [place, is_new] = ids_.emplace(name, static_cast<Id>(spec_.tokens.size()));
    const Id result = place->second;
    if (result < static_cast<Id>(options_.special.size())) return;
    if (is_new) spec_.tokens.push_back({std::move(name)});
    if (merged_.insert(key).second)
      spec_.merges.push_back(
          {left, right, result, static_cast<std::uint32_t>(spec_.merges.size())});
    changed_.clear();
    for (const std::uint32_t w : words) merge_in(w, left, right, result);
    std::sort(changed_.begin(), changed_.end());
    changed_.erase(std::unique(changed_.begin(), changed_.end()), changed_.end());
    for (const std::uint64_t pair : changed_)
      if (const std::int64_t count = pairs_[pair].count; count > 0) queue_.push({count, pair});
  }

  /// Merges two symbols in a word, from left to right, and counts the pairs with their neighbours.
  void merge_in(std::uint32_t w, Id left, Id right, Id result) {
    Word& word = words_[w];
    std::vector<Id>& s = word.symbols;
    std::size_t to = 0;
    for (std::size_t i = 0; i < s.size(); ++i, ++to) {
      if (i + 1 == s.size() || s[i] != left || s[i + 1] != right) {
        s[to] = s[i];
        continue;
      }
      if (to > 0) change(s[to - 1], left, s[to - 1], result, word.count, w);
      if (i + 2 < s.size()) change(right, s[i + 2], result, s[i + 2], word.count, w);
      s[to] = result;
      ++i;
    }
    s.resize(to);
  }

  /// Counts a pair that became another one.
  void change(Id old_left, Id old_right, Id left, Id right, std::int64_t count, std::uint32_t w) {
    remove(key_of(old_left, old_right), count);
    add(key_of(left, right), count, w);
    changed_.push_back(key_of(left, right));
  }

  const TrainBpeOptions& options_;
  bpe::Spec spec_;
  std::array<Id, 256> byte_ids_{};
  std::unordered_map<std::string, Id> ids_;
  std::vector<Word> words_;
  std::unordered_map<std::uint64_t, Pair> pairs_;
  std::priority_queue<Candidate> queue_;
  std::vector<std::uint64_t> changed_;
  std::unordered_set<std::uint64_t> merged_;
};

void check(const TrainBpeOptions& options) {
  const auto least = static_cast<std::int64_t>(options.special.size()) + 256;
  FIRN_CHECK(options.vocabulary >= least &&
                 options.vocabulary <= static_cast<std::int64_t>(bpe::kMostTokens),
             kOp, "special tokens and 256 bytes are tokens too",
             "vocabulary is {}; it must be from {} to {}", options.vocabulary, least,
             bpe::kMostTokens);
  FIRN_CHECK(options.min_frequency >= 1, kOp, "2 is usual", "min_frequency is {}",
             options.min_frequency);
  for (const std::string& name : options.special)
    FIRN_CHECK(!name.empty() && io::is_utf8(name), kOp, "a name is a text", "a special name is {}",
               io::quoted_for_message(name));
}

}  // namespace

Tokenizer train_bpe(const std::function<bool(std::string& text)>& next,
                    const TrainBpeOptions& options) {
  require_function(kOp, next, "give a function that sets the next text");
  check(options);
  try {
    const bpe::PreTokenizer pre_tokenizer(bpe::steps_of(options.pattern));
    Counts counts;
    bpe::SplitMemory memory;
    const auto count = [&](std::string_view piece) {
      const auto found = counts.find(piece);
      if (found != counts.end()) {
        ++found->second;
      } else {
        counts.emplace(piece, 1);
      }
    };
    for (std::string text; next(text);)
      bpe::cut_invalid(
          text, [&](std::string_view part) { pre_tokenizer.split(part, memory, count); }, count);
    Trainer trainer(options);
    trainer.run(counts);
    return Tokenizer(std::make_shared<const bpe::Model>(trainer.take()));
  }
  FIRN_OUT_OF_MEMORY(kOp)
}

Tokenizer train_bpe(std::span<const std::string> texts, const TrainBpeOptions& options) {
  std::size_t i = 0;
  return train_bpe(
      [&](std::string& text) {
        if (i == texts.size()) return false;
        text = texts[i++];
        return true;
      },
      options);
}

}  // namespace firn::lm

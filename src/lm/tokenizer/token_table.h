// Hash tables for encoding: from bytes to a token, and from two tokens to the one they become.
#pragma once

#include <cstdint>
#include <cstring>
#include <string_view>
#include <vector>

#include "lm/tokenizer/spec.h"

namespace firn::lm::bpe {

__extension__ using Wide = unsigned __int128;

inline std::uint64_t mix(std::uint64_t a, std::uint64_t b) noexcept {
  const Wide product = Wide{a ^ 0x9e3779b97f4a7c15u} * (b ^ 0xd6e8feb86659fd93u);
  return static_cast<std::uint64_t>(product) ^ static_cast<std::uint64_t>(product >> 64);
}

/// Hash of a short text.
inline std::uint64_t hash_of(std::string_view text) noexcept {
  const char* p = text.data();
  std::size_t n = text.size();
  std::uint64_t h = n;
  const auto word = [](const char* from, std::size_t bytes) {
    std::uint64_t w = 0;
    std::memcpy(&w, from, bytes);
    return w;
  };
  for (; n > 8; p += 8, n -= 8) h = mix(h, word(p, 8));
  if (n == 8) return mix(h, word(p, 8));
  std::uint64_t last = 0;  // loads of fixed sizes: faster than a copy of n bytes
  if (n >= 4) {
    last = word(p, 4) | word(p + n - 4, 4) << 32;
  } else if (n > 0) {
    last = word(p, 1) | word(p + n / 2, 1) << 8 | word(p + n - 1, 1) << 16;
  }
  return mix(h, last);
}

/// The smallest power of two with room for `entries` at half load.
inline std::size_t table_size(std::size_t entries) noexcept {
  std::size_t size = 16;
  while (size < 2 * entries) size *= 2;
  return size;
}

/// Ids by the bytes of tokens. The texts belong to the caller and stay where they are.
class TokenTable {
 public:
  explicit TokenTable(std::size_t entries)
      : slots_(table_size(entries)), mask_(slots_.size() - 1) {}

  /// Returns the id, or kNone.
  Id find(std::string_view text) const noexcept { return find(text, hash_of(text)); }
  Id find(std::string_view text, std::uint64_t hash) const noexcept {
    for (std::size_t i = hash & mask_;; i = (i + 1) & mask_) {
      const Slot& slot = slots_[i];
      if (slot.id == kNone) return kNone;
      if (slot.tag == static_cast<std::uint32_t>(hash >> 32) && slot.size == text.size() &&
          std::memcmp(slot.text, text.data(), text.size()) == 0)
        return slot.id;
    }
  }
  /// Adds a text that the table does not have. There may be as many as the constructor was told.
  void add(std::string_view text, Id id) noexcept {
    const std::uint64_t hash = hash_of(text);
    std::size_t i = hash & mask_;
    while (slots_[i].id != kNone) i = (i + 1) & mask_;
    slots_[i] = {text.data(), static_cast<std::uint32_t>(text.size()),
                 static_cast<std::uint32_t>(hash >> 32), id};
  }

 private:
  struct Slot {
    const char* text = nullptr;
    std::uint32_t size = 0;
    std::uint32_t tag = 0;
    Id id = kNone;
  };
  std::vector<Slot> slots_;
  std::size_t mask_;
};

/// Merges by their two tokens.
class MergeTable {
 public:
  struct Found {
    std::uint32_t rank = kNoRank;
    Id result = kNone;
  };
  explicit MergeTable(std::size_t entries)
      : slots_(table_size(entries)), mask_(slots_.size() - 1) {}

  Found find(Id left, Id right) const noexcept {
    const std::uint64_t key = key_of(left, right);
    for (std::size_t i = mix(key, 0) & mask_;; i = (i + 1) & mask_) {
      const Slot& slot = slots_[i];
      if (slot.key == key) return slot.found;
      if (slot.key == kEmpty) return {};
    }
  }
  /// Returns false if the two tokens have a merge.
  bool add(const Merge& merge) noexcept {
    const std::uint64_t key = key_of(merge.left, merge.right);
    std::size_t i = mix(key, 0) & mask_;
    for (; slots_[i].key != kEmpty; i = (i + 1) & mask_)
      if (slots_[i].key == key) return false;
    slots_[i] = {key, {merge.rank, merge.result}};
    return true;
  }

 private:
  static constexpr std::uint64_t kEmpty = ~std::uint64_t{0};
  static std::uint64_t key_of(Id left, Id right) noexcept {
    return static_cast<std::uint64_t>(static_cast<std::uint32_t>(left)) << 32 |
           static_cast<std::uint32_t>(right);
  }
  struct Slot {
    std::uint64_t key = kEmpty;
    Found found;
  };
  std::vector<Slot> slots_;
  std::size_t mask_;
};

}  // namespace firn::lm::bpe

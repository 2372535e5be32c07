// The layout of record files, for their writer and reader; see firn/data/records.h.
#pragma once

#include <fmt/format.h>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>

#include "firn/dtype.h"

namespace firn::data::records {

static_assert(std::endian::native == std::endian::little, "record files are little-endian");

inline constexpr std::string_view kShardMagic = "firn-rec", kIndexMagic = "firn-idx";
inline constexpr std::uint64_t kShardHead = 16;    ///< bytes before the first record
inline constexpr std::size_t kRecordHead = 8;      ///< checksum and number of fields
inline constexpr std::uint64_t kSmallest = 10;     ///< bytes of a record's head and a field's
inline constexpr std::uint64_t kIndexHead = 24;    ///< bytes before the list of shards
inline constexpr std::uint64_t kMostFields = 255;  ///< largest number of fields in a record

/// The dtypes by their code in files.
inline constexpr DType kDTypes[] = {f16,     bf16, f32, f64, i32, i64,     u8,
                                    boolean, i8,   i16, u16, u32, f8_e4m3, f8_e5m2};

inline std::string shard_path(const std::string& folder, std::uint64_t number) {
  return fmt::format("{}/records-{:05}.bin", folder, number);
}
inline std::string index_path(const std::string& folder) { return folder + "/records.index"; }

/// Appends the bytes of `value` to `text`.
template <class T>
void put(std::string& text, T value) {
  char bytes[sizeof(T)];
  std::memcpy(bytes, &value, sizeof value);
  text.append(bytes, sizeof bytes);
}
template <class T>
T get(const unsigned char* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

}  // namespace firn::data::records

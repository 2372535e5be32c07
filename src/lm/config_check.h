// Checks of configurations, with the keys and values in the message.
#pragma once

#include <cmath>
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "firn/lm/config.h"
#include "lm/config_file.h"

namespace firn::lm {

inline constexpr Range kWidths{1, 1 << 20}, kHeads{1, 1 << 16}, kLayers{1, 4096};
/// Largest number of parameters: 64 TB in f32. Products of sizes below it do not overflow.
inline constexpr double kMostParameters = 1.6e13;

inline void check_range(const char* op, const char* key, std::int64_t value, Range range) {
  FIRN_CHECK(value >= range.least && value <= range.most, op, "the config belongs to no model",
             "{} = {} is not in [{}, {}]", key, value, range.least, range.most);
}
inline void check_probability(const char* op, const char* key, double p) {
  FIRN_CHECK(p >= 0 && p < 1, op, "the share of what becomes zero", "{} = {} is not in [0, 1)", key,
             p);
}
/// Checks a number that is finite and 0 or more.
inline void check_not_negative(const char* op, const char* key, double value) {
  FIRN_CHECK(std::isfinite(value) && value >= 0, op, "the config belongs to no model",
             "{} = {} is not a finite number from 0 on", key, value);
}
inline void check_special_ids(const char* op, const SpecialIds& ids) {
  const Range range{-1, kCounts.most};
  if (ids.bos_token_id) check_range(op, "bos_token_id", *ids.bos_token_id, range);
  if (ids.pad_token_id) check_range(op, "pad_token_id", *ids.pad_token_id, range);
  for (const std::int64_t id : ids.eos_token_id) check_range(op, "eos_token_id", id, range);
}
inline void check_parameters(const char* op, double count) {
  FIRN_CHECK(count <= kMostParameters, op, "the config is damaged",
             "its sizes give {:.3g} parameters, more than {:.3g}", count, kMostParameters);
}

}  // namespace firn::lm

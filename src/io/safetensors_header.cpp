// Parses and checks the JSON of a header.
#include "io/safetensors_header.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace firn::io {
namespace {

constexpr std::pair<std::string_view, DType> kNames[] = {
    {"F16", DType::f16},         {"BF16", DType::bf16},      {"F32", DType::f32},
    {"F64", DType::f64},         {"I32", DType::i32},        {"I64", DType::i64},
    {"U8", DType::u8},           {"BOOL", DType::boolean},   {"I8", DType::i8},
    {"I16", DType::i16},         {"U16", DType::u16},        {"U32", DType::u32},
    {"F8_E4M3", DType::f8_e4m3}, {"F8_E5M2", DType::f8_e5m2}};

/// No program writes a shape with more axes.
constexpr std::size_t kMostAxes = 1000;

class HeaderReader {
 public:
  HeaderReader(const JsonSource& source, std::string& text) : json_(source, text) {}

  Header header() {
    Header h;
    std::vector<std::string_view> names;
    bool has_metadata = false;
    json_.begin_object();
    json_.object([&](std::string_view name) {
      json_.add(names, name);
      if (name == kMetadataKey) {
        if (std::exchange(has_metadata, true))
          json_.fail_at(json_.place_of(name),
                        fmt::format("the name \"{}\" is used twice", kMetadataKey));
        if (json_.null()) return;
        std::vector<std::string_view> keys;
        json_.object([&](std::string_view key) {
          json_.add(keys, key);
          h.metadata.emplace_back(key, json_.string());
        });
        json_.check_distinct(keys, "metadata key");
      } else {
        h.entries.push_back(entry(name));
      }
    });
    json_.end("the header's object");
    json_.check_distinct(names, "name");
    return h;
  }

 private:
  Entry entry(std::string_view entry_name) {
    Entry e;
    e.name = entry_name;
    const std::string name = quoted_for_message(entry_name);
    static constexpr std::string_view kFields[] = {"dtype", "shape", "data_offsets"};
    bool seen[3] = {};
    std::vector<std::string_view> others;
    json_.object([&](std::string_view field) {
      const auto known = std::find(std::begin(kFields), std::end(kFields), field);
      if (known == std::end(kFields)) {
        json_.add(others, field);
        std::string_view skipped;
        json_.scalar(skipped);
        return;
      }
      if (std::exchange(seen[known - std::begin(kFields)], true))
        json_.fail_at(json_.place_of(field), fmt::format("{} has two {}", name, field));
      const std::size_t at = json_.value_at();
      if (field == "dtype") {
        read_dtype(e, json_.string());
      } else if (field == "shape") {
        std::uint64_t bound = 1;
        const auto sizes = json_.numbers(kMostAxes + 1);
        if (sizes.size() > static_cast<std::size_t>(kMaxRank) && e.foreign.empty())
          e.foreign =
              fmt::format("has {} axes, and a tensor has {} at most", sizes.size(), kMaxRank);
        for (const std::uint64_t size : sizes) {
          if (__builtin_mul_overflow(bound, size == 0 ? 1u : size, &bound) ||
              bound >= static_cast<std::uint64_t>(kMaxElements))
            json_.fail_at(
                at, fmt::format("the sizes of {} make too many elements; a tensor has fewer than "
                                "2^56, with sizes of 0 counted as 1",
                                name));
          if (sizes.size() <= static_cast<std::size_t>(kMaxRank))
            e.shape.push_back(static_cast<std::int64_t>(size));
        }
      } else {
        const auto offsets = json_.numbers(kMaxRank + 1);
        if (offsets.size() != 2 || offsets[0] > offsets[1])
          json_.fail_at(at, fmt::format("the offsets of {} are not a begin and an end", name));
        e.begin = offsets[0];
        e.end = offsets[1];
      }
    });
    if (!(seen[0] && seen[1] && seen[2]))
      json_.fail_at(json_.place_of(entry_name),
                    fmt::format("{} lacks dtype, shape or data_offsets", name));
    return e;
  }

  static void read_dtype(Entry& e, std::string_view text) {
    for (const auto& [known, t] : kNames)
      if (known == text) {
        e.dtype = t;
        return;
      }
    e.foreign = fmt::format("has dtype {}, which firn does not have", quoted_for_message(text));
  }

  JsonReader json_;
};

}  // namespace

std::string_view safetensors_name(DType t) {
  const auto* const known = std::find_if(std::begin(kNames), std::end(kNames),
                                         [&](const auto& name) { return name.second == t; });
  return known == std::end(kNames) ? std::string_view() : known->first;
}

Header parse_header(const JsonSource& source, std::string& text) {
  return HeaderReader(source, text).header();
}

}  // namespace firn::io

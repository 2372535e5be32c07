// Writes safetensors files. The header is simple JSON, written without a JSON library.
#include "firn/io/safetensors.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <set>
#include <vector>

#include "base/check.h"
#include "firn/ops/ops.h"
#include "io/file/atomic_file.h"
#include "io/safetensors_header.h"
#include "io/safetensors_layout.h"

namespace firn::io {
namespace {

static_assert(std::endian::native == std::endian::little, "safetensors stores little-endian words");

using nn::NamedTensor;

constexpr const char* kOp = "save_safetensors";

void check_name(const char* op, std::string_view name, const char* what,
                std::set<std::string_view>& seen) {
  FIRN_CHECK(is_utf8(name), op, "names are UTF-8 text", "the {} {} is not UTF-8", what,
             quoted_for_message(name));
  FIRN_CHECK(seen.insert(name).second, op, "give each a name of its own", "the {} {} is used twice",
             what, quoted_for_message(name));
}

std::string header_of(const std::vector<const NamedTensor*>& tensors,
                      std::span<const Metadata> metadata) {
  std::string header = "{";
  const auto separator = [&] { return header.size() > 1 ? "," : ""; };
  if (!metadata.empty()) {
    std::string fields;
    for (const auto& [key, value] : metadata)
      fields +=
          fmt::format("{}{}:{}", fields.empty() ? "" : ",", json_string(key), json_string(value));
    header += fmt::format("\"{}\":{{{}}}", kMetadataKey, fields);
  }
  std::size_t offset = 0;
  for (const NamedTensor* named : tensors) {
    const auto& [name, t] = *named;
    header += fmt::format("{}{}:{{\"dtype\":\"{}\",\"shape\":[{}],\"data_offsets\":[{},{}]}}",
                          separator(), json_string(name), safetensors_name(t.dtype()),
                          fmt::join(t.shape(), ","), offset, offset + t.bytes());
    offset += t.bytes();
  }
  header += '}';
  header.resize((header.size() + 7) / 8 * 8, ' ');  // the data begins aligned
  return header;
}

}  // namespace

void check_names(const char* op, std::span<const NamedTensor> tensors,
                 std::span<const Metadata> metadata) {
  FIRN_CHECK(std::max(tensors.size(), metadata.size()) < kMostNames, op, "write several files",
             "{} tensors and {} metadata; at most {} of each fit", tensors.size(), metadata.size(),
             kMostNames - 1);
  std::set<std::string_view> seen;
  for (const auto& [name, t] : tensors) {
    FIRN_CHECK(t.defined(), op, "give a tensor that was made", "tensor \"{}\" is undefined", name);
    FIRN_CHECK(name != kMetadataKey, op, "rename it", "the name \"{}\" is reserved by the format",
               name);
    check_name(op, name, "name", seen);
  }
  seen.clear();
  for (const auto& [key, value] : metadata) {
    check_name(op, key, "metadata key", seen);
    FIRN_CHECK(is_utf8(value), op, "metadata is UTF-8 text",
               "the value of the metadata key \"{}\" is not UTF-8", key);
  }
}

SafetensorsLayout layout_of(const char* op, std::span<const NamedTensor> tensors,
                            std::span<const Metadata> metadata) {
  check_names(op, tensors, metadata);
  SafetensorsLayout out;
  for (const auto& named : tensors) out.order.push_back(&named);
  std::stable_sort(out.order.begin(), out.order.end(),
                   [](const NamedTensor* a, const NamedTensor* b) {
                     return size_of(a->tensor.dtype()) > size_of(b->tensor.dtype());
                   });
  out.header = header_of(out.order, metadata);
  FIRN_CHECK(out.header.size() <= kLongestHeader, op,
             "write several files, or shorten names and metadata",
             "the header takes {} bytes; readers of the format take at most {}", out.header.size(),
             kLongestHeader);
  return out;
}

void write_safetensors(const char* op, const std::string& path, const SafetensorsLayout& layout) {
  const std::uint64_t length = layout.header.size();
  AtomicFile file(op, path);
  file.write(&length, sizeof length);
  file.write(layout.header.data(), layout.header.size());
  for (const NamedTensor* named : layout.order) {
    // Copy one tensor at a time, to limit memory.
    const Tensor t = on_cpu(named->tensor);
    file.write(t.view().data, t.bytes());
  }
  file.commit();
}

Tensor on_cpu(const Tensor& t) { return contiguous(to_device(t.detach(), Device::cpu())); }

void save_safetensors(const std::string& path, std::span<const NamedTensor> tensors,
                      std::span<const Metadata> metadata) try {
  write_safetensors(kOp, path, layout_of(kOp, tensors, metadata));
}
FIRN_OUT_OF_MEMORY("save_safetensors")

}  // namespace firn::io

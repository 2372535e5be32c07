// Saving and loading a run. The file is read, verified and compared as a whole before a byte of the
// run is written.
#include "firn/io/run.h"

#include <zlib.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "base/check.h"
#include "firn/autograd.h"
#include "firn/io/safetensors.h"
#include "firn/ops/ops.h"
#include "firn/storage.h"
#include "firn/stream.h"
#include "io/file/input_file.h"
#include "io/run_parts.h"
#include "io/safetensors_layout.h"
#include "kernels/copy.h"

namespace firn::io {
namespace {

constexpr const char* kSums = "firn.crc32";
constexpr const char* kHeaderSum = "firn.header_crc32";
constexpr const char* kVersion = "firn.run";
constexpr std::int64_t kThisVersion = 1;

/// CRC-32 as zlib computes it (ISO 3309), continued from `before`.
std::int64_t crc_of(const void* data, std::size_t bytes, std::int64_t before = 0) {
  return static_cast<std::int64_t>(
      crc32_z(static_cast<uLong>(before), static_cast<const Bytef*>(data), bytes));
}
std::int64_t crc_of(const Tensor& on_the_cpu) {
  return on_the_cpu.bytes() == 0 ? crc_of("", 0)
                                 : crc_of(on_the_cpu.view().data, on_the_cpu.bytes());
}
/// Of the header's length, as the file begins with it, and of the header.
std::int64_t crc_of_header(const std::string& header) {
  const std::uint64_t length = header.size();
  return crc_of(header.data(), header.size(), crc_of(&length, sizeof length));
}

std::int64_t* values_of(const Tensor& t) { return t.mutable_view().as<std::int64_t>(); }

std::string text_of(const Tensor& t) {
  std::string out;
  for (const std::uint8_t c : t.to_vector<std::uint8_t>())
    if (c != 0) out += c >= 0x20 && c < 0x7f ? static_cast<char>(c) : '?';
  return out;
}

/// The first bytes of the file: its header as text. The file was parsed already.
std::string header_text(const char* op, const std::string& path) {
  InputFile file(op, path);
  std::uint64_t length = 0;
  file.read_all(&length, sizeof length);
  if (length > file.bytes()) file.fail("changed while it was read");
  std::string header(length, '\0');
  file.read_all(header.data(), length);
  return header;
}

/// The entries of a saved run, verified. Throws IoError if it is none, or is damaged.
std::map<std::string, Tensor> read_run(const char* op, const std::string& path) {
  const auto fail = [&](const std::string& what, const char* hint) {
    throw IoError(op, path, what, hint);
  };
  const char* const damaged = "the file is damaged: load an older one";
  const auto tensors = load_safetensors(path);
  std::map<std::string, Tensor> found;
  for (const auto& [name, t] : tensors) found.emplace(name, t);
  const auto number = [&](const char* name) {
    const auto it = found.find(name);
    if (it == found.end() || it->second.dtype() != i64 || it->second.shape() != Shape{})
      fail(fmt::format("has no \"{}\"", name), "this is not a file of save_run()");
    return *values_of(it->second);
  };
  const std::int64_t version = number(kVersion);
  const std::int64_t header_sum = number(kHeaderSum);
  if (header_sum != crc_of_header(header_text(op, path)))
    fail("the CRC-32 of its header is not the one that was saved", damaged);
  if (version != kThisVersion)
    fail(fmt::format("is of version {}, and this firn reads version {}", version, kThisVersion),
         "load it with the firn that saved it");
  const auto sums = found.find(kSums);
  std::vector<std::int64_t> want;
  if (sums != found.end() && sums->second.dtype() == i64)
    want = sums->second.to_vector<std::int64_t>();
  std::size_t at = 0;
  for (const auto& [name, t] : tensors) {
    if (name == kSums || name == kHeaderSum) continue;
    if (at >= want.size() || want[at] != crc_of(t))
      fail(fmt::format("the CRC-32 of \"{}\" is not the one that was saved", name), damaged);
    ++at;
  }
  if (at != want.size()) fail(fmt::format("has {} sums for {} entries", want.size(), at), damaged);
  for (const char* const own : {kSums, kHeaderSum, kVersion}) found.erase(own);
  return found;
}

/// Collects differences; the error lists them all, up to a limit.
class Differences {
 public:
  template <class... Args>
  void add(fmt::format_string<Args...> format, Args&&... args) {
    ++count_;
    if (count_ <= kMost) {
      text_ += fmt::format("{}{}", text_.empty() ? "" : "; ",
                           fmt::format(format, std::forward<Args>(args)...));
    }
  }
  void throw_if_any(const char* op, const std::string& path) const {
    if (count_ == 0) return;
    const std::string more = count_ > kMost ? fmt::format("; and {} more", count_ - kMost) : "";
    throw IoError(op, path, "it is of another run: " + text_ + more,
                  "give load_run() the parts that save_run() had, made with the same options");
  }

 private:
  static constexpr std::int64_t kMost = 20;
  std::int64_t count_ = 0;
  std::string text_;
};

/// Whether the file's entry `needed_by` says that it has this gradient.
bool is_needed(const RunSlot& slot, const std::map<std::string, Tensor>& found) {
  if (slot.needed_by.empty()) return true;
  const auto it = found.find(slot.needed_by);
  if (it == found.end() || it->second.dtype() != u8 || slot.index >= it->second.numel())
    return true;
  return it->second.view().as<std::uint8_t>()[slot.index] != 0;
}

void compare(const RunSlot& slot, const Tensor& read, const LoadRunOptions& options,
             Differences& differences) {
  if (slot.text != RunSlot::Text::none) {
    const std::string mine = text_of(slot.tensor), theirs = text_of(read);
    const bool allowed =
        slot.text == RunSlot::Text::may_differ_if_allowed && options.other_settings;
    if (mine != theirs && !allowed)
      differences.add("\"{}\" is \"{}\" in the file, and \"{}\" here", slot.name, theirs, mine);
    return;
  }
  if (read.shape() != slot.tensor.shape() || read.dtype() != slot.tensor.dtype())
    differences.add("\"{}\" is {} {} in the file, and {} {} here", slot.name, read.shape(),
                    read.dtype(), slot.tensor.shape(), slot.tensor.dtype());
}

}  // namespace

void save_run(const std::string& path, std::span<const RunPart> parts) try {
  constexpr const char* kOp = "save_run";
  const NoGrad guard;
  std::vector<NamedTensor> tensors;
  for (const RunSlot& slot : slots_of(kOp, parts))
    if (!slot.left_out) tensors.push_back({slot.name, slot.tensor});
  const Tensor version = full({}, static_cast<double>(kThisVersion), i64, Device::cpu());
  const Tensor header_sum = zeros({}, i64, Device::cpu());
  tensors.push_back({kVersion, version});
  const Tensor sums = zeros({static_cast<std::int64_t>(tensors.size())}, i64, Device::cpu());
  tensors.push_back({kSums, sums});
  tensors.push_back({kHeaderSum, header_sum});

  const SafetensorsLayout layout = layout_of(kOp, tensors, {});
  std::int64_t at = 0;
  for (const NamedTensor* const named : layout.order)
    if (named->name != kSums && named->name != kHeaderSum)
      values_of(sums)[at++] = crc_of(on_cpu(named->tensor));
  *values_of(header_sum) = crc_of_header(layout.header);
  write_safetensors(kOp, path, layout);
}
FIRN_OUT_OF_MEMORY("save_run")

void load_run(const std::string& path, std::span<const RunPart> parts,
              const LoadRunOptions& options) try {
  constexpr const char* kOp = "load_run";
  const NoGrad guard;
  const std::vector<RunSlot> slots = slots_of(kOp, parts);
  std::map<std::string, Tensor> found = read_run(kOp, path);
  Differences differences;
  std::set<std::string_view> known;
  for (const RunSlot& slot : slots) {
    known.insert(slot.name);
    const auto it = found.find(slot.name);
    if (it != found.end()) {
      compare(slot, it->second, options, differences);
    } else if (is_needed(slot, found)) {
      differences.add("\"{}\" is missing in the file", slot.name);
    }
  }
  for (const auto& item : found)
    if (!known.contains(item.first)) differences.add("\"{}\" is in the file alone", item.first);
  differences.throw_if_any(kOp, path);

  // Memory for all is taken before the first write.
  for (const RunSlot& slot : slots)
    if (const auto it = found.find(slot.name); it != found.end() && !slot.set)
      it->second = to_device(it->second, slot.tensor.device());
  for (const RunSlot& slot : slots) {
    const auto it = found.find(slot.name);
    if (it == found.end() || slot.text != RunSlot::Text::none) continue;
    if (slot.set) {
      slot.set(it->second);
      continue;
    }
    // The kernel itself: copy_() would allocate.
    kernels::copy(it->second.view(), slot.tensor.mutable_view(),
                  current_stream(slot.tensor.device()));
    slot.tensor.storage()->bump_version(kOp);
  }
}
FIRN_OUT_OF_MEMORY("load_run")

}  // namespace firn::io

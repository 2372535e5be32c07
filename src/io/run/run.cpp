// Saves and loads a run. The file is read, verified and compared as a whole before a byte of the
// run is written.
#include "firn/io/run.h"

#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "base/check.h"
#include "firn/autograd.h"
#include "firn/ops/ops.h"
#include "firn/runtime/rollback.h"
#include "firn/runtime/storage.h"
#include "firn/runtime/stream.h"
#include "io/run/run_file.h"
#include "io/run/run_parts.h"
#include "io/run/streams.h"
#include "kernels/copy.h"

namespace firn::io {
namespace {

std::string text_of(const Tensor& t) {
  std::string out;
  for (const std::uint8_t c : t.to_vector<std::uint8_t>())
    if (c != 0) out += c >= 0x20 && c < 0x7f ? static_cast<char>(c) : '?';
  return out;
}

/// Collects differences; the error lists them all, up to a limit.
class Differences {
 public:
  /// Adds a difference of a setting, which is allowed if the caller asks for it.
  template <class... Args>
  void add_setting(fmt::format_string<Args...> format, Args&&... args) {
    ++settings_;
    add(format, std::forward<Args>(args)...);
  }
  /// Adds 8-bit states of a weight that has another memory format here than in the file.
  void add_order(const RunSlot& slot) {
    constexpr const char *kRows = "row-major", *kChannels = "channels-last";
    const bool rows_here = *slot.codes_of == MemoryFormat::contiguous;
    ++orders_;
    add("\"{}\" has the 8-bit states of a {} weight in the file, and of a {} one here", slot.name,
        rows_here ? kChannels : kRows, rows_here ? kRows : kChannels);
  }
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
                  settings_ == count_ ? "make the optimizer with the same options, or set "
                                        "LoadRunOptions::other_settings to go on with other ones"
                  : orders_ == count_
                      ? "8-bit states have blocks in memory order: before the optimizer is made, "
                        "give the weights the format of the saved ones by contiguous() or "
                        "channels_last()"
                      : "give the parts that were saved, made with the same options; "
                        "load_safetensors() with {.strict = false} loads a model alone");
  }

 private:
  static constexpr std::int64_t kMost = 20;
  std::int64_t count_ = 0, settings_ = 0, orders_ = 0;
  std::string text_;
};

/// Returns true if the file must have this gradient, by its entry `needed_by`.
bool is_needed(const RunSlot& slot, const std::map<std::string, Tensor>& found) {
  if (slot.needed_by.empty()) return true;
  const auto it = found.find(slot.needed_by);
  if (it == found.end() || it->second.dtype() != u8 || slot.index >= it->second.numel())
    return true;
  return it->second.view().as<std::uint8_t>()[slot.index] != 0;
}

/// Returns true if the two are codes of 8-bit states (optim::StateEntry::codes_of) of equally many
/// elements, and one of them is flat.
bool has_other_order(const RunSlot& slot, const Tensor& read) {
  if (!slot.codes_of || read.dtype() != slot.tensor.dtype() || read.numel() != slot.tensor.numel())
    return false;
  const bool rows_here = *slot.codes_of == MemoryFormat::contiguous;
  const Tensor &flat = rows_here ? read : slot.tensor, &rows = rows_here ? slot.tensor : read;
  return flat.rank() == 1 && rows.rank() >= 3;
}

void compare(const RunSlot& slot, const Tensor& read, const LoadRunOptions& options,
             Differences& differences) {
  if (slot.text != RunSlot::Text::none) {
    const std::string mine = text_of(slot.tensor), theirs = text_of(read);
    constexpr const char* kFormat = "\"{}\" is \"{}\" in the file, and \"{}\" here";
    if (mine == theirs) return;
    if (slot.text == RunSlot::Text::must_agree)
      differences.add(kFormat, slot.name, theirs, mine);
    else if (!options.other_settings)
      differences.add_setting(kFormat, slot.name, theirs, mine);
    return;
  }
  if (slot.is_stream && is_stream(read)) return;
  if (has_other_order(slot, read)) return differences.add_order(slot);
  Shape expected = slot.tensor.shape();
  if (slot.any_rows && read.rank() > 0) expected[0] = read.size(0);
  if (read.shape() != expected || read.dtype() != slot.tensor.dtype())
    differences.add("\"{}\" is {} {} in the file, and {} {} here", slot.name, read.shape(),
                    read.dtype(), slot.tensor.shape(), slot.tensor.dtype());
}

}  // namespace

std::vector<RunEntry> entries_of(const char* op, std::span<const RunPart> parts) {
  const NoGrad guard;
  const autograd::StepRanks ranks = ranks_of(parts);
  std::vector<RunSlot> slots;
  autograd::on_every_rank(op, ranks, [&] {
    slots = slots_of(op, parts, SlotsOf::this_rank);
    for (const RunSlot& slot : slots)
      FIRN_CHECK(slot.not_saved.empty(), op,
                 "save between two steps; outside of run_batch(), zero_grad() drops the cycle",
                 "the optimizer of \"{}\": {}", slot.name, slot.not_saved);
  });
  for (const RunPart& part : parts)
    if (const auto& gather = RunAccess::source(part).gather) gather();
  std::vector<RunEntry> entries;
  std::vector<std::size_t> places;                     // entries that are streams
  std::vector<std::pair<std::size_t, Tensor>> copies;  // copies of gathered weights
  std::optional<StreamsOfRanks> streams;
  autograd::on_every_rank(op, ranks, [&] {
    slots = slots_of(op, parts, SlotsOf::all_ranks);
    const bool in_batch =
        std::any_of(slots.begin(), slots.end(), [](const RunSlot& s) { return s.in_batch; });
    for (const RunSlot& slot : slots) {
      if (slot.left_out) continue;
      Tensor saved = in_batch && slot.before_batch.defined() ? slot.before_batch : slot.tensor;
      // All ranks must make the call that reads a sharded weight, but only one rank writes the
      // weight.
      if (!slot.parts.any() && saved.storage()->is_provided())
        copies.emplace_back(entries.size(), empty({saved.numel()}, saved.dtype(), saved.device())
                                                .as_strided(saved.shape(), saved.strides(), 0));
      if (slot.is_stream) places.push_back(entries.size());
      entries.push_back({slot.name, saved, slot.parts});
    }
    streams.emplace(ranks.copies, places.size());
  });
  for (const auto& [i, copy] : copies) {
    kernels::copy(entries[i].tensor.view(), copy.mutable_view(), current_stream(copy.device()));
    entries[i].tensor = copy;
  }
  for (std::size_t i = 0; i < places.size(); ++i) streams->set_own(i, entries[places[i]].tensor);
  streams->exchange();
  for (std::size_t i = 0; i < places.size(); ++i)
    if (const Tensor rows = streams->rows(i); rows.defined()) entries[places[i]].tensor = rows;
  return entries;
}

namespace {

/// Returns the part of an entry's name up to its last point.
std::string folder_of(const std::string& name) { return name.substr(0, name.rfind('.') + 1); }

/// Adds the entries of the file that no slot has. States of an optimizer with other settings may be
/// among them, of parameters that are trained here too.
void add_those_in_file_alone(const std::map<std::string, Tensor>& found,
                             const std::set<std::string_view>& known,
                             const std::vector<RunSlot>& slots, const LoadRunOptions& options,
                             Differences& differences) {
  constexpr const char* kFormat = "\"{}\" is in the file alone";
  std::set<std::string> trained;  // "optim.parameters.0."
  for (const RunSlot& slot : slots)
    if (!slot.needed_by.empty()) trained.insert(folder_of(slot.name));
  for (const auto& [name, t] : found) {
    if (known.contains(name)) continue;
    if (!trained.contains(folder_of(name)) || name.ends_with(".weight"))
      differences.add(kFormat, name);
    else if (!options.other_settings)
      differences.add_setting(kFormat, name);
  }
}

/// Compares the file with the parts. Returns functions that write the file's values into the parts,
/// and that must not throw. With other settings, an optimizer's states that the file lacks begin
/// anew after the writes, and those that the file alone has are dropped.
std::vector<std::function<void()>> prepared_writes(const char* op, const std::string& path,
                                                   RunFile file, std::span<const RunPart> parts,
                                                   const LoadRunOptions& options) {
  if (file.version != kRunVersion)
    throw IoError(
        op, path,
        fmt::format("is of version {}, and this firn reads version {}", file.version, kRunVersion),
        "load it with the firn that saved it");
  const std::vector<RunSlot> slots = slots_of(op, parts, SlotsOf::this_rank);
  auto& found = file.entries;
  std::set<std::int64_t> in_file;  // optional parts that have an entry in the file
  for (const RunSlot& slot : slots)
    if (found.contains(slot.name)) in_file.insert(slot.optional_part);
  constexpr const char* kMissing = "\"{}\" is missing in the file";
  std::vector<std::function<void()>> begins;  // for states that the file's optimizer lacked
  Differences differences;
  std::set<std::string_view> known;
  for (const bool texts : {true, false}) {  // texts, which tell the kind, come first
    for (const RunSlot& slot : slots) {
      if ((slot.text != RunSlot::Text::none) != texts) continue;
      known.insert(slot.name);
      const auto it = found.find(slot.name);
      if (it != found.end()) {
        compare(slot, it->second, options, differences);
      } else if (slot.any_rows ||
                 (slot.optional_part > 0 && !in_file.contains(slot.optional_part))) {
        continue;
      } else if (slot.begin && options.other_settings) {
        begins.push_back(slot.begin);
      } else if (slot.begin) {
        differences.add_setting(kMissing, slot.name);
      } else if (is_needed(slot, found)) {
        differences.add(kMissing, slot.name);
      }
    }
  }
  add_those_in_file_alone(found, known, slots, options, differences);
  differences.throw_if_any(op, path);

  const autograd::StepRanks ranks = ranks_of(parts);
  const int rank = ranks.copies ? ranks.copies->rank() : 0;
  // Everything that may throw, also allocation, comes before the first write.
  std::vector<std::function<void()>> writes;
  for (const RunSlot& slot : slots) {
    const auto it = found.find(slot.name);
    const bool missing = it == found.end();
    if ((missing && !slot.any_rows) || slot.text != RunSlot::Text::none) continue;
    if (slot.prepare) {
      try {
        writes.push_back(slot.prepare(missing          ? Tensor()
                                      : slot.is_stream ? stream_of_rank(it->second, rank)
                                                       : it->second));
      } catch (const OutOfMemory&) {
        throw;
      } catch (const Error& e) {
        throw IoError(op, path, e.what());
      }
      continue;
    }
    writes.push_back([op, to = slot.tensor, from = to_device(it->second, slot.tensor.device())] {
      // Calls the kernel directly, because copy_() would allocate.
      kernels::copy(from.view(), to.mutable_view(), current_stream(to.device()));
      to.storage()->bump_version(op);
    });
  }
  for (auto& begin : begins) writes.push_back(std::move(begin));
  return writes;
}

}  // namespace

void restore_run(const char* op, const std::string& path, RunFile file,
                 std::span<const RunPart> parts, const LoadRunOptions& options) {
  const NoGrad guard;
  std::vector<std::function<void()>> writes;
  const auto prepare = [&] { writes = prepared_writes(op, path, std::move(file), parts, options); };
  load_on_every_rank(op, ranks_of(parts), std::ref(prepare));
  for (const auto& write : writes) write();
  for (const RunPart& part : parts)
    if (const auto& adopt = RunAccess::source(part).adopt) adopt();
  runtime::begin_points_anew();
  warn_of_own_statistics(op, parts, ranks_of(parts));
}

void save_run(const std::string& path, std::span<const RunPart> parts) try {
  constexpr const char* kOp = "save_run";
  const NoGrad guard;
  const autograd::StepRanks ranks = ranks_of(parts);
  require_own_path(kOp, path, ranks);
  write_run_of_ranks(kOp, path, entries_of(kOp, parts), {}, ranks);
}
FIRN_OUT_OF_MEMORY("save_run")

void load_run(const std::string& path, std::span<const RunPart> parts,
              const LoadRunOptions& options) try {
  constexpr const char* kOp = "load_run";
  const autograd::StepRanks ranks = ranks_of(parts);
  RunFile file;
  const auto read = [&] { file = read_run_of_ranks(kOp, path, ranks); };
  load_on_every_rank(kOp, ranks, std::ref(read));
  restore_run(kOp, path, std::move(file), parts, options);
}
FIRN_OUT_OF_MEMORY("load_run")

}  // namespace firn::io

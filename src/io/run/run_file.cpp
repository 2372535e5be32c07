// Files of save_run(): a checksum covers each byte.
#include "io/run/run_file.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "base/check.h"
#include "firn/ops/ops.h"
#include "firn/runtime/spans.h"
#include "io/file/atomic_file.h"
#include "io/file/crc32.h"
#include "io/run/parts_file.h"
#include "io/safetensors_layout.h"
#include "io/tensor_files.h"

namespace firn::io {
namespace {

constexpr const char* kSums = "firn.crc32";
constexpr const char* kHeaderSum = "firn.header_crc32";

std::int64_t crc_of(const Tensor& on_the_cpu) {
  return crc32(0, on_the_cpu.view().data, on_the_cpu.bytes());
}
/// Returns the checksum of the header's length, with which the file begins, and of the header.
std::int64_t crc_of_header(const std::string& header) {
  const std::uint64_t length = header.size();
  return crc32(crc32(0, &length, sizeof length), header.data(), header.size());
}

std::int64_t* values_of(const Tensor& t) { return t.mutable_view().as<std::int64_t>(); }

}  // namespace

RunFile read_run(const char* op, const std::string& path, bool map) {
  refuse_dry_run(op);
  const auto fail = [&](const std::string& what, const char* hint) {
    throw IoError(op, path, what, hint);
  };
  const char* const damaged = "the file is damaged: load an older one";
  const detail::TensorFile read(op, path, map);
  RunFile file;
  std::vector<std::pair<std::string, Tensor>> in_order;
  for (const Entry& e : read.entries()) {
    in_order.emplace_back(e.name, read.read(e));
    file.entries.insert(in_order.back());
  }
  const auto number = [&](const char* name) {
    const auto it = file.entries.find(name);
    if (it == file.entries.end() || it->second.dtype() != i64 || it->second.shape() != Shape{})
      fail(fmt::format("has no \"{}\"", name), "this is not a file of save_run()");
    return *values_of(it->second);
  };
  file.version = number(kRunVersionName);
  if (number(kHeaderSum) != crc_of_header(read.header_text()))
    fail("the CRC-32 of its header is not the one that was saved", damaged);
  std::vector<std::int64_t> want;
  if (const auto sums = file.entries.find(kSums);
      sums != file.entries.end() && sums->second.dtype() == i64)
    want = sums->second.to_vector<std::int64_t>();
  std::size_t at = 0;
  for (const auto& [name, t] : in_order) {
    if (name == kSums || name == kHeaderSum) continue;
    if (at >= want.size() || want[at] != crc_of(t))
      fail(fmt::format("the CRC-32 of \"{}\" is not the one that was saved", name), damaged);
    ++at;
  }
  if (at != want.size()) fail(fmt::format("has {} sums for {} entries", want.size(), at), damaged);
  for (const char* const own : {kSums, kHeaderSum, kRunVersionName}) file.entries.erase(own);
  return file;
}

RunSums::RunSums(std::vector<NamedTensor>& entries) : header_sum_(zeros({}, i64, Device::cpu())) {
  entries.push_back(
      {kRunVersionName, full({}, static_cast<double>(kRunVersion), i64, Device::cpu())});
  sums_ = zeros({static_cast<std::int64_t>(entries.size())}, i64, Device::cpu());
  entries.push_back({kSums, sums_});
  entries.push_back({kHeaderSum, header_sum_});
}

bool RunSums::is_sum(const NamedTensor& named) {
  return named.name == kSums || named.name == kHeaderSum;
}

void RunSums::finish(const std::string& header) {
  std::copy(values_.begin(), values_.end(), values_of(sums_));
  *values_of(header_sum_) = crc_of_header(header);
}

void write_run(const char* op, const std::string& path, std::vector<NamedTensor> entries,
               std::span<const Metadata> metadata) {
  const runtime::Span span(runtime::SpanKind::phase, "save run");
  RunSums sums(entries);
  const SafetensorsLayout layout = layout_of(op, entries, metadata);
  for (const NamedTensor* const named : layout.order)
    if (!RunSums::is_sum(*named)) sums.add(crc_of(on_cpu(named->tensor)));
  sums.finish(layout.header);
  write_safetensors(op, path, layout);
}

void write_run_of_ranks(const char* op, const std::string& path, std::vector<RunEntry> entries,
                        std::span<const Metadata> metadata, const autograd::StepRanks& ranks) {
  if (std::any_of(entries.begin(), entries.end(), [](const auto& e) { return e.parts.any(); }))
    return autograd::on_every_rank(op, ranks.model, [&] {
      write_parts(op, path, std::move(entries), metadata, *ranks.copies);
    });
  const auto write = [&] {
    write_run(op, path, whole_of(op, std::move(entries), nullptr), metadata);
  };
  on_first_copy(op, ranks, std::ref(write));
}

RunFile read_run_of_ranks(const char* op, const std::string& path,
                          const autograd::StepRanks& ranks) {
  return read_run(op, path, ranks.copies != nullptr);
}

}  // namespace firn::io

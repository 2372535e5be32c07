// Loads safetensors files. Checks the header against the file before it allocates memory for
// tensors.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <set>
#include <utility>

#include "base/check.h"
#include "firn/autograd.h"
#include "firn/io/safetensors.h"
#include "firn/ops/ops.h"
#include "firn/storage.h"
#include "firn/stream.h"
#include "io/input_file.h"
#include "io/safetensors_header.h"
#include "kernels/copy.h"
#include "nn/tree.h"

namespace firn::io {
namespace {

constexpr const char* kOp = "load_safetensors";
/// Throws unless the entries, in the order of their bytes, follow each other without gaps and end
/// with the file.
void check_extents(const InputFile& file, const std::vector<Entry>& entries, std::uint64_t data) {
  std::vector<const Entry*> order;
  for (const Entry& e : entries) order.push_back(&e);
  std::stable_sort(order.begin(), order.end(), [](const Entry* a, const Entry* b) {
    return a->begin != b->begin ? a->begin < b->begin : a->end < b->end;
  });
  std::uint64_t at = 0;
  for (const Entry* e : order) {
    const std::uint64_t want = static_cast<std::uint64_t>(e->shape.product()) * size_of(e->dtype);
    if (e->end - e->begin != want)
      file.fail(fmt::format("{} is {} {}, which takes {} bytes, and has {}",
                            quoted_for_message(e->name), e->shape, e->dtype, want,
                            e->end - e->begin));
    if (e->begin != at)
      file.fail(fmt::format("{} begins at byte {} of the data, where {} was expected",
                            quoted_for_message(e->name), e->begin, at));
    at = e->end;
  }
  if (at != data)
    file.fail(fmt::format("the header describes {} bytes of data, found {}", at, data),
              "the file is truncated or damaged; fetch it again");
}

/// Throws if a byte of a bool tensor is neither 0 nor 1.
void check_booleans(const InputFile& file, std::string_view name, const Tensor& t) {
  const auto* const bytes = static_cast<const unsigned char*>(t.view().data);
  for (std::int64_t i = 0; i < t.numel(); ++i)
    if (bytes[i] > 1)
      file.fail(fmt::format("{} is BOOL, and its element {} is {}", quoted_for_message(name), i,
                            bytes[i]),
                "the file is damaged; fetch it again");
}

/// Throws if a value of `from` did not fit in `to`, its cast to a dtype of the same kind. Rounding
/// is allowed.
void check_values_fit(const std::string& path, std::string_view name, const Tensor& from,
                      const Tensor& to) {
  if (from.dtype() == to.dtype()) return;
  constexpr std::int64_t kPart = 1 << 16;
  const Tensor source = from.reshape({-1}), converted = to.reshape({-1});
  const auto fail = [&](std::int64_t i, auto value) {
    throw IoError(kOp, path,
                  fmt::format("{}: element {} is {}, which {} cannot hold",
                              quoted_for_message(name), i, value, to.dtype()),
                  "load it into a model of a wider dtype");
  };
  for (std::int64_t at = 0; at < source.numel(); at += kPart) {
    const Tensor a = source.slice(0, at, at + kPart), b = converted.slice(0, at, at + kPart);
    if (is_floating(to.dtype())) {
      const auto want = a.to_vector<double>(), got = b.to_vector<double>();
      for (std::size_t i = 0; i < want.size(); ++i)
        if (std::isfinite(want[i]) && !std::isfinite(got[i]))
          fail(at + static_cast<std::int64_t>(i), want[i]);
    } else {
      const auto want = a.to_vector<std::int64_t>(), got = b.to_vector<std::int64_t>();
      for (std::size_t i = 0; i < want.size(); ++i)
        if (want[i] != got[i]) fail(at + static_cast<std::int64_t>(i), want[i]);
    }
  }
}

}  // namespace

std::vector<nn::NamedTensor> load_safetensors(const std::string& path) try {
  InputFile file(kOp, path);
  std::uint64_t length = 0;
  if (file.bytes() < sizeof length)
    file.fail(fmt::format("has {} bytes, too few for a safetensors file", file.bytes()));
  file.read_all(&length, sizeof length);
  if (length > kLongestHeader || length > file.bytes() - sizeof length)
    file.fail(fmt::format("declares a header of {} bytes in a file of {}", length, file.bytes()),
              "this is not a safetensors file, or it is damaged");
  std::string header(length, '\0');
  file.read_all(header.data(), length);
  const std::vector<Entry> entries = parse_header(path, header);
  const std::uint64_t data = file.bytes() - sizeof length - length;
  check_extents(file, entries, data);

  std::vector<nn::NamedTensor> tensors;
  for (const Entry& e : entries)
    tensors.push_back({std::string(e.name), empty(e.shape, e.dtype, Device::cpu())});
  // Read the file once, in the order of the bytes.
  std::vector<std::size_t> order(entries.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return entries[a].begin < entries[b].begin;
  });
  for (const std::size_t i : order) {
    const Tensor& t = tensors[i].tensor;
    if (t.bytes() > 0) file.read_all(t.mutable_view().data, t.bytes());
    if (t.dtype() == boolean) check_booleans(file, entries[i].name, t);
  }
  return tensors;
}
FIRN_OUT_OF_MEMORY("load_safetensors")

std::vector<nn::NamedTensor> state_of(const nn::Module& module) try {
  auto state = module.named_parameters();
  for (auto& buffer : module.named_buffers()) state.push_back(std::move(buffer));
  return state;
}
FIRN_OUT_OF_MEMORY("state_of")

void load_safetensors(const std::string& path, nn::Module& module) try {
  std::map<std::string, Tensor> found;
  for (auto& [name, t] : load_safetensors(path)) found.emplace(name, t);
  const auto state = state_of(module);
  std::set<std::string> may_be_missing;
  for (const auto& m : nn::detail::tree_of(module))
    for (const auto& t : m.tensors)
      if (t.of_cycle) may_be_missing.insert(t.path);
  std::string missing, left_over;
  for (const auto& [name, t] : state) {
    const auto it = found.find(name);
    if (it == found.end() && may_be_missing.contains(name)) {
      found.emplace(name, zeros(t.shape(), t.dtype()));
      continue;
    }
    if (it == found.end()) {
      missing += (missing.empty() ? "" : ", ") + name;
      continue;
    }
    if (it->second.shape() != t.shape())
      throw IoError(
          kOp, path,
          fmt::format("\"{}\" is {}, the module's is {}", name, it->second.shape(), t.shape()),
          "the file belongs to another model");
    if (is_floating(it->second.dtype()) != is_floating(t.dtype()))
      throw IoError(
          kOp, path,
          fmt::format("\"{}\" is {}, the module's is {}", name, it->second.dtype(), t.dtype()));
  }
  for (const auto& item : found) {
    const std::string& name = item.first;  // no structured binding: Clang 14 does not capture one
    const bool known = std::any_of(state.begin(), state.end(),
                                   [&](const nn::NamedTensor& n) { return n.name == name; });
    if (!known) left_over += (left_over.empty() ? "" : ", ") + name;
  }
  if (!missing.empty() || !left_over.empty())
    throw IoError(
        kOp, path,
        fmt::format("its tensors are not the module's; missing: {}; left over: {}",
                    missing.empty() ? "none" : missing, left_over.empty() ? "none" : left_over),
        "the file belongs to another model");
  const NoGrad guard;
  // Convert everything first: if memory runs out, nothing has been written.
  for (const auto& [name, t] : state) {
    Tensor& source = found.at(name);
    const Tensor converted = cast(source, t.dtype());
    check_values_fit(path, name, source, converted);
    source = to_device(converted, t.device());
  }
  // Call the kernel directly: copy_()'s checks hold here, and copy_() would allocate.
  for (const auto& [name, t] : state) {
    kernels::copy(found.at(name).view(), t.mutable_view(), current_stream(t.device()));
    t.storage()->bump_version(kOp);
  }
}
FIRN_OUT_OF_MEMORY("load_safetensors")

}  // namespace firn::io

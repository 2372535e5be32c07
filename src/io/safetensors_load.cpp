// Loads safetensors files into modules: pairs names, checks everything, then writes.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <map>
#include <set>
#include <utility>

#include "base/check.h"
#include "firn/autograd.h"
#include "firn/io/safetensors.h"
#include "firn/ops/ops.h"
#include "firn/runtime/rollback.h"
#include "firn/runtime/storage.h"
#include "firn/runtime/stream.h"
#include "io/run/run_file.h"
#include "io/tensor_files.h"
#include "kernels/copy.h"
#include "nn/shown_weights.h"
#include "nn/tree.h"

namespace firn::io {
namespace {

constexpr const char* kOp = "load_safetensors";
using Item = detail::TensorFiles::Item;

/// Returns true if no finite number of `from` became an infinity in `to`: a quick test that looks
/// at whole tensors. False means that it does not know.
bool fits_surely(const Tensor& from, const Tensor& to) {
  const auto usual = [](DType t) { return t == f16 || t == bf16 || t == f32 || t == f64; };
  if (!usual(from.dtype()) || !usual(to.dtype())) return false;
  if (size_of(to.dtype()) > size_of(from.dtype())) return true;
  return count_nonzero(isfinite(from)).item() == count_nonzero(isfinite(to)).item();
}

/// Throws if a value of `from` did not fit in `to`, its cast to a dtype of the same kind. Rounding
/// is allowed.
void check_values_fit(const std::string& path, std::string_view name, const Tensor& from,
                      const Tensor& to) {
  if (from.dtype() == to.dtype() || fits_surely(from, to)) return;
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

/// Returns "a, b, c" with at most kMostListed names; "none" for an empty list.
template <class List, class TextOf>
std::string listed(const List& list, const TextOf& text_of) {
  constexpr std::size_t kMostListed = 500;
  std::string all;
  for (std::size_t i = 0; i < std::min(list.size(), kMostListed); ++i)
    all += (i > 0 ? ", " : "") + text_of(list[i]);
  if (list.size() > kMostListed) all += fmt::format(" and {} more", list.size() - kMostListed);
  return all.empty() ? "none" : all;
}

/// Pairs the tensors of a file with those of a module.
class Loader {
 public:
  Loader(const detail::TensorFiles& files, const nn::Module& module, const LoadOptions& options)
      : files_(files), options_(options) {
    nn::detail::require_members(kOp, module);
    name_sources();
    nn::detail::show_weights(module);
    for (const auto& m : nn::detail::tree_of(module)) pair(m);
    name_unexpected();
    parameters_first(report.loaded);
    parameters_first(report.missing);
  }

  /// Throws if the file differs from the module.
  void require_complete() const {
    const LoadReport& r = report;
    if (r.complete()) return;
    std::string text =
        fmt::format("its tensors are not the module's; missing: {}; left over: {}",
                    listed(r.missing, name_for_message), listed(r.unexpected, name_for_message));
    if (!r.mismatched.empty())
      text += "; mismatched: " + listed(r.mismatched, [](const LoadReport::Mismatch& m) {
                return quoted_for_message(m.name) + " " + m.what;
              });
    throw IoError(kOp, files_.path(), text,
                  is_run() ? "the file is a saved run: {.strict = false} loads the model alone, "
                             "with {.prefix = \"NAME.\"} if its part was saved under a name; "
                             "load_run() loads all of it"
                           : "the file belongs to another model");
  }

  void load() {
    const NoGrad guard;
    // Convert everything first: if memory runs out, nothing has been written.
    for (Pair& p : pairs_) {
      const Tensor source = source_of(p);
      const Tensor converted = cast(source, p.to.dtype());
      check_values_fit(files_.path(), p.name, source, converted);
      p.from = to_device(converted, p.to.device());
    }
    // Call the kernel directly: copy_()'s checks hold here, and copy_() would allocate.
    for (const Pair& p : pairs_) {
      kernels::copy(p.from.view(), p.to.mutable_view(), current_stream(p.to.device()));
      p.to.storage()->bump_version(kOp);
      runtime::forget_change(Rollback::statistics, p.to.impl());
      runtime::forget_change(Rollback::gradients, p.to.impl());  // a pool of a cycle
    }
  }

  LoadReport report;

 private:
  struct Source {
    const Item* item;
    bool used = false;
  };
  struct Pair {
    std::string name;
    Tensor to;
    const Item* source;  ///< null: zeros
    Tensor from = {};
  };

  /// Returns true for a file of save_run().
  bool is_run() const {
    return std::any_of(files_.items().begin(), files_.items().end(),
                       [](const Item& item) { return item.entry->name == kRunVersionName; });
  }

  std::string name_in_file(const Item& item) const { return std::string(item.entry->name); }
  bool takes_part(const std::string& name) const { return !options_.only || options_.only(name); }
  /// Returns true if the file has the matrix `t` with its axes in the other order.
  bool transposed(const std::string& name, const Tensor& t) const {
    return options_.transposed && t.rank() == 2 && options_.transposed(name);
  }
  /// Returns the tensor of the file in the module's order of axes.
  Tensor source_of(const Pair& p) const {
    if (!p.source) return zeros(p.to.shape(), p.to.dtype());
    const Tensor read = p.source->read();
    return transposed(p.name, p.to) ? transpose(read, 0, 1) : read;
  }

  /// Maps the file's tensors to their names in the module.
  void name_sources() {
    bool any = false;
    for (const Item& item : files_.items()) {
      std::string name = name_in_file(item);
      if (!name.starts_with(options_.prefix)) continue;
      any = true;
      name = options_.rename(name.substr(options_.prefix.size()));
      if (name.empty() || !takes_part(name)) continue;
      const auto [known, fresh] = sources_.try_emplace(name, Source{&item});
      if (!fresh)
        throw IoError(kOp, files_.path(),
                      fmt::format("{} and {} both become {}",
                                  quoted_for_message(known->second.item->entry->name),
                                  quoted_for_message(item.entry->name), quoted_for_message(name)),
                      "rename one of them to the empty name, which leaves it out");
    }
    if (!any && !files_.items().empty() && !options_.prefix.empty())
      throw IoError(kOp, files_.path(),
                    fmt::format("no name begins with {}; the first is {}",
                                quoted_for_message(options_.prefix),
                                quoted_for_message(files_.items().front().entry->name)));
  }

  /// Pairs the module's own tensors. Several names of one tensor are a group, under the first name.
  void pair(const nn::detail::TreeModule& m) {
    std::vector<const nn::detail::TreeTensor*> of_cycle;
    const std::size_t before = report.loaded.size();
    for (const auto& t : m.tensors) {
      if (t.buffer) buffers_.insert(t.path);
      if (!t.tied_to.empty()) {
        pair_tied(t);
      } else if (!takes_part(t.path)) {
        left_out_.push_back(t.path);
      } else if (const auto found = sources_.find(t.path); found != sources_.end()) {
        use(t.path, t, found->second);
      } else if (t.of_cycle) {
        of_cycle.push_back(&t);
      } else {
        report.missing.push_back(t.path);
      }
    }
    // Values that a cycle has pooled belong to the state that is replaced, so they become zeros.
    if (report.loaded.size() == before) return;
    for (const auto* t : of_cycle) pairs_.push_back({t->path, t->tensor, nullptr});
  }

  void use(const std::string& name, const nn::detail::TreeTensor& t, Source& source) {
    source.used = true;
    const Entry& e = *source.item->entry;
    if (!e.foreign.empty()) {
      report.mismatched.push_back({name, e.foreign});
    } else if (const Shape shape = transposed(name, t.tensor) ? transpose(t.tensor, 0, 1).shape()
                                                              : t.tensor.shape();
               e.shape != shape) {
      report.mismatched.push_back({name, fmt::format("is {}, the module's is {}", e.shape, shape)});
    } else if (is_floating(e.dtype) != is_floating(t.tensor.dtype())) {
      report.mismatched.push_back(
          {name, fmt::format("is {}, the module's is {}", e.dtype, t.tensor.dtype())});
    } else {
      report.loaded.push_back(name);
      pairs_.push_back({name, t.tensor, source.item});
    }
  }

  /// Pairs a further name of a tensor: the file may have it in place of the first name, or in
  /// addition.
  void pair_tied(const nn::detail::TreeTensor& t) {
    const auto found = sources_.find(t.path);
    if (found == sources_.end() || !takes_part(t.path)) return;
    found->second.used = true;
    const auto missing = std::find(report.missing.begin(), report.missing.end(), t.tied_to);
    const bool left_out =
        std::find(left_out_.begin(), left_out_.end(), t.tied_to) != left_out_.end();
    if (missing != report.missing.end() || left_out) {
      if (!left_out) report.missing.erase(missing);
      use(t.path, t, found->second);
      return;
    }
    const auto first = std::find_if(pairs_.begin(), pairs_.end(),
                                    [&](const Pair& p) { return p.to.impl() == t.tensor.impl(); });
    if (first == pairs_.end() || !first->source) return;  // the first name's mismatch is reported
    if (!same_elements(*first->source, *found->second.item))
      report.mismatched.push_back(
          {t.path, fmt::format("differs from {}, to which the module ties it",
                               quoted_for_message(first->source->entry->name))});
  }

  static bool same_elements(const Item& a, const Item& b) {
    if (!a.entry->foreign.empty() || !b.entry->foreign.empty()) return false;
    if (a.entry->shape != b.entry->shape || a.entry->dtype != b.entry->dtype) return false;
    const Tensor x = a.read(), y = b.read();
    return x.bytes() == 0 || std::memcmp(x.view().data, y.view().data, x.bytes()) == 0;
  }

  void name_unexpected() {
    for (const auto& [name, source] : sources_)
      if (!source.used) report.unexpected.push_back(name_in_file(*source.item));
  }

  /// Sorts names in the order of state_of().
  void parameters_first(std::vector<std::string>& names) const {
    std::stable_partition(names.begin(), names.end(),
                          [&](const std::string& name) { return !buffers_.contains(name); });
  }

  const detail::TensorFiles& files_;
  const LoadOptions& options_;
  std::map<std::string, Source> sources_;
  std::set<std::string> buffers_;
  std::vector<std::string> left_out_;
  std::vector<Pair> pairs_;
};

}  // namespace

void Rename::require_function() const {
  firn::require_function("Rename", function_, "give a function of a name, or nothing");
}

std::string Rename::operator()(const std::string& name) const {
  if (function_) return function_(name);
  for (const auto& [from, to] : pairs_)
    if (from == name) return to;
  return name;
}

std::vector<nn::NamedTensor> load_safetensors(const std::string& path) try {
  return detail::TensorFiles(kOp, path, false).read_all();
}
FIRN_OUT_OF_MEMORY("load_safetensors")

std::vector<nn::NamedTensor> state_of(const nn::Module& module) try {
  nn::detail::require_members("state_of", module);
  auto state = module.named_parameters();
  for (auto& buffer : module.named_buffers()) state.push_back(std::move(buffer));
  return state;
}
FIRN_OUT_OF_MEMORY("state_of")

void load_safetensors(const std::string& path, nn::Module& module) {
  load_safetensors(path, module, LoadOptions{});
}

LoadReport load_safetensors(const std::string& path, nn::Module& module,
                            const LoadOptions& options) try {
  const detail::TensorFiles files(kOp, path, options.map);
  Loader loader(files, module, options);
  if (options.strict) loader.require_complete();
  loader.load();
  return std::move(loader.report);
}
FIRN_OUT_OF_MEMORY("load_safetensors")

}  // namespace firn::io

// Checkpoints are files of save_run() whose metadata has the step and the metric.
#include "firn/io/checkpoints.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <exception>
#include <filesystem>
#include <functional>
#include <set>
#include <system_error>
#include <thread>
#include <utility>

#include "base/check.h"
#include "firn/autograd.h"
#include "firn/dist/group.h"
#include "firn/io/safetensors_file.h"
#include "firn/ops/ops.h"
#include "firn/warning.h"
#include "io/file/atomic_file.h"
#include "io/file/folder_entries.h"
#include "io/run/parts_file.h"
#include "io/run/run_file.h"

namespace firn::io {
namespace {

namespace fs = std::filesystem;

constexpr const char* kOp = "Checkpoints";
constexpr std::string_view kBegin = "step-", kEnd = ".safetensors";
constexpr std::size_t kDigits = 12;
constexpr std::int64_t kLastStep = 999'999'999'999;
constexpr const char* kMetric = "metric";

std::string name_of(std::int64_t step) {
  return fmt::format("{}{:0{}}{}", kBegin, step, kDigits, kEnd);
}

/// Returns the step in a file's name, or -1.
std::int64_t step_of(std::string_view name) {
  if (name.size() != kBegin.size() + kDigits + kEnd.size() || !name.starts_with(kBegin) ||
      !name.ends_with(kEnd))
    return -1;
  const std::string_view digits = name.substr(kBegin.size(), kDigits);
  std::int64_t step = -1;
  const auto end = std::from_chars(digits.data(), digits.data() + kDigits, step);
  return end.ec == std::errc() && end.ptr == digits.data() + kDigits && digits[0] != '-' ? step
                                                                                         : -1;
}

/// Returns the metric of a file; NaN if the file cannot be read or has none.
double metric_of(const std::string& path) {
  try {
    for (const auto& [key, value] : SafetensorsFile(path).metadata()) {
      double metric = 0;
      if (key != kMetric) continue;
      const auto end = std::from_chars(value.data(), value.data() + value.size(), metric);
      if (end.ec == std::errc() && end.ptr == value.data() + value.size()) return metric;
    }
  } catch (const IoError&) {  // the file is damaged; resume() reports that
  }
  return std::numeric_limits<double>::quiet_NaN();
}

bool better(double a, double b, BestMetric best) {
  return best == BestMetric::lowest ? a < b : a > b;
}

std::vector<Metadata> metadata_of(std::int64_t step, std::optional<double> metric) {
  std::vector<Metadata> out{{"step", std::to_string(step)}};
  if (metric) out.emplace_back(kMetric, fmt::format("{}", *metric));
  return out;
}

/// A copy of a run's entries on the CPU. Its memory is reused if the next run has similar entries.
class Snapshot {
 public:
  void take(const std::vector<NamedTensor>& entries) {
    const NoGrad guard;
    copies_.resize(entries.size());
    for (std::size_t i = 0; i < entries.size(); ++i) {
      const Tensor& from = entries[i].tensor;
      Tensor& to = copies_[i].tensor;
      copies_[i].name = entries[i].name;
      if (!to.defined() || to.shape() != from.shape() || to.dtype() != from.dtype())
        to = empty(from.shape(), from.dtype(), Device::cpu());
      copy_(to, from);
    }
  }
  const std::vector<NamedTensor>& entries() const noexcept { return copies_; }

 private:
  std::vector<NamedTensor> copies_;
};

}  // namespace

struct Checkpoints::State {
  std::string folder;
  CheckpointsOptions options;
  std::int64_t last = -1;              ///< the step of the last save() or resume()
  bool is_ours = false;                ///< true if the folder's checkpoints are this run's
  std::set<std::int64_t> passed_over;  ///< damaged checkpoints that resume() found
  Snapshot snapshot;
  std::thread writer;
  std::exception_ptr failure;  ///< error of the writer; read it after join()

  std::string path_of(std::int64_t step) const { return folder + "/" + name_of(step); }

  std::vector<Checkpoint> list() const {
    std::vector<Checkpoint> out;
    for (const FolderEntry& entry : folder_entries(kOp, folder))
      if (const std::int64_t step = step_of(entry.name); step >= 0)
        out.push_back({path_of(step), step, metric_of(path_of(step))});
    return out;  // names of equal length are in the order of their steps
  }

  /// Returns the best checkpoint, and the newest among equally good ones.
  std::optional<Checkpoint> best(const std::vector<Checkpoint>& all) const {
    std::optional<Checkpoint> found;
    if (options.best == BestMetric::none) return found;
    for (const Checkpoint& c : all)
      if (!std::isnan(c.metric) && (!found || !better(found->metric, c.metric, options.best)))
        found = c;
    return found;
  }

  void wrote(std::int64_t step) {
    passed_over.erase(step);
    remove_old();
  }

  /// Removes the checkpoints that need not be kept, damaged ones first. An error of the folder does
  /// not end the training.
  void remove_old() {
    std::vector<Checkpoint> all;
    try {
      all = list();
    } catch (const IoError&) {
      return;
    }
    const auto the_best = best(all);
    int newer = 0;
    for (auto c = all.rbegin(); c != all.rend(); ++c) {
      const bool damaged = passed_over.contains(c->step);
      if (!damaged && newer++ < options.keep) continue;
      if (the_best && c->step == the_best->step) continue;
      std::error_code ignored;
      fs::remove(c->path, ignored);
    }
    AtomicFile::remove_leftovers(folder, [](std::string_view name) { return step_of(name) >= 0; });
  }

  void join() {
    if (writer.joinable()) writer.join();
  }
  void wait() {
    join();
    if (const auto thrown = std::exchange(failure, nullptr)) std::rethrow_exception(thrown);
  }

  ~State() {
    try {
      wait();
    } catch (const std::exception& e) {
      try {
        warn(kOp, fmt::format("the last checkpoint was not written: {}", e.what()),
             "call wait() before the end to have it as an error");
      } catch (...) {  // the handler's exception: a destructor has no way to pass it on
      }
    }
  }
};

Checkpoints::Checkpoints(std::string folder, const CheckpointsOptions& options) try {
  refuse_dry_run(kOp);
  FIRN_CHECK(options.keep >= 1, kOp, "the newest has to stay", "keep is {}", options.keep);
  require_named(kOp, "BestMetric", options.best, BestMetric::highest);
  FIRN_CHECK(!folder.empty() && folder.find('\0') == std::string::npos, kOp, "name a folder",
             "the folder's name is empty or has a zero byte");
  std::error_code error;
  fs::create_directory(folder, error);
  if (error || !fs::is_directory(folder, error))
    throw IoError(kOp, folder,
                  "is no folder and cannot be made" + (error ? ": " + error.message() : ""),
                  "its parent must exist and be writable");
  state_ = std::make_unique<State>();
  state_->folder = fs::absolute(folder).lexically_normal();
  while (state_->folder.size() > 1 && state_->folder.back() == '/') state_->folder.pop_back();
  state_->options = options;
  state_->list();
}
FIRN_OUT_OF_MEMORY("Checkpoints")

Checkpoints::~Checkpoints() = default;
Checkpoints::Checkpoints(Checkpoints&&) noexcept = default;
Checkpoints& Checkpoints::operator=(Checkpoints&&) noexcept = default;

Checkpoints::State& Checkpoints::state() const {
  FIRN_CHECK(state_, kOp, "use the object that it was moved to",
             "these checkpoints were moved away");
  return *state_;
}

const std::string& Checkpoints::folder() const { return state().folder; }
void Checkpoints::wait() try { state().wait(); }
FIRN_OUT_OF_MEMORY("Checkpoints")

std::vector<Checkpoint> Checkpoints::list() const try {
  state().join();
  return state().list();
}
FIRN_OUT_OF_MEMORY("Checkpoints")

std::optional<Checkpoint> Checkpoints::best() const try {
  state().join();
  FIRN_CHECK(state().options.best != BestMetric::none, kOp,
             "give .best = io::BestMetric::lowest or highest",
             "best() of a folder without a best metric");
  return state().best(state().list());
}
FIRN_OUT_OF_MEMORY("Checkpoints")

std::optional<Checkpoint> Checkpoints::resume(std::span<const RunPart> parts,
                                              const LoadRunOptions& options) try {
  State& s = state();
  s.wait();
  std::vector<Checkpoint> all = s.list();
  const std::size_t found = all.size();
  std::set<std::int64_t> damaged;
  std::string newest_error;
  const autograd::StepRanks ranks = ranks_of(parts);
  for (; !all.empty(); all.pop_back()) {
    const Checkpoint& c = all.back();
    RunFile file;
    std::string error;
    Tensor passes_over;  // number of ranks that pass the file over
    const auto read = [&] {
      passes_over = zeros({1}, i64, Device::cpu());
      try {
        file = read_run_of_ranks(kOp, c.path, ranks);
      } catch (const IoError& e) {
        error = e.what();
        *passes_over.mutable_view().as<std::int64_t>() = 1;
      }
    };
    load_on_every_rank(kOp, ranks, std::ref(read));
    try {
      for (const autograd::Peers* peers : {ranks.copies, ranks.model})
        if (peers && !runtime::dry_run()) peers->all_reduce(passes_over);
    } catch (const dist::RankError&) {  // the group is broken: each rank decides for itself
    }
    if (*passes_over.view().as<std::int64_t>() > 0) {
      if (error.empty()) error = "another rank cannot read it";
      if (damaged.empty()) newest_error = error;
      damaged.insert(c.step);
      warn(kOp, fmt::format("{} is passed over: {}", c.path, error),
           "an older checkpoint is tried");
      continue;
    }
    std::optional<Checkpoint> resumed = c;  // copied before the run changes, since that allocates
    restore_run(kOp, c.path, std::move(file), parts, options);
    s.last = c.step;
    s.is_ours = true;
    s.passed_over = std::move(damaged);
    return resumed;
  }
  if (found > 0)
    throw IoError(
        kOp, s.folder,
        fmt::format("none of its {} checkpoints can be read; the newest: {}", found, newest_error),
        "begin again in an empty folder");
  return std::nullopt;
}
FIRN_OUT_OF_MEMORY("Checkpoints")

void Checkpoints::save(std::int64_t step, std::span<const RunPart> parts,
                       std::optional<double> metric) try {
  State& s = state();
  s.join();
  refuse_dry_run(kOp);
  const autograd::StepRanks ranks = ranks_of(parts);
  const bool writes = !ranks.copies || ranks.copies->rank() == 0;
  Tensor step_of_all;
  autograd::on_every_rank(kOp, ranks,
                          [&] { step_of_all = tensor<std::int64_t>({step}, {1}, Device::cpu()); });
  for (const autograd::Peers* peers : {ranks.copies, ranks.model})
    if (peers) peers->broadcast(step_of_all, 0);
  require_own_path(kOp, s.folder, ranks);
  autograd::on_every_rank(kOp, ranks, [&] {
    FIRN_CHECK(step >= 0 && step <= kLastStep, kOp, "count the steps of the run from 0",
               "step {}; a checkpoint has 0 to {}", step, kLastStep);
    FIRN_CHECK(step >= s.last, kOp, "steps increase; discard_after() goes back",
               "step {} after step {}", step, s.last);
    const std::int64_t first = *step_of_all.view().as<std::int64_t>();
    FIRN_CHECK(step == first, kOp, "save the same step on every rank",
               "step {}, and rank 0 saves step {}", step, first);
    if (s.is_ours || !writes) return;
    const std::vector<Checkpoint> old = s.list();
    FIRN_CHECK(old.empty(), kOp, "resume() from it first, or use another folder",
               "{} is in the folder, of another run than this one", old.back().path);
  });
  s.is_ours = true;
  std::vector<RunEntry> entries = entries_of(kOp, parts);
  const std::vector<Metadata> metadata = metadata_of(step, metric);
  if (!s.options.async) {
    write_run_of_ranks(kOp, s.path_of(step), std::move(entries), metadata, ranks);
    if (writes) s.wrote(step);
    s.last = step;
    return;
  }
  const std::vector<NamedTensor> whole = whole_of(kOp, std::move(entries), ranks.copies);
  if (!writes) {
    s.last = step;
    return;
  }
  s.snapshot.take(whole);
  const std::exception_ptr before = std::exchange(s.failure, nullptr);
  s.last = step;
  const auto write = [&s, step, metadata] {
    try {
      write_run(kOp, s.path_of(step), s.snapshot.entries(), metadata);
      s.wrote(step);
    } catch (...) {
      s.failure = std::current_exception();
    }
  };
  try {
    s.writer = std::thread(write);
  } catch (const std::system_error&) {
    write();  // the system refused a thread
  }
  if (before) std::rethrow_exception(before);
}
FIRN_OUT_OF_MEMORY("Checkpoints")

void Checkpoints::discard_after(std::int64_t step) try {
  State& s = state();
  s.join();
  refuse_dry_run(kOp);
  for (const Checkpoint& c : s.list()) {
    if (c.step <= step) continue;
    std::error_code error;
    fs::remove(c.path, error);
    if (error) throw IoError(kOp, c.path, "cannot be removed: " + error.message());
    s.passed_over.erase(c.step);
  }
  s.last = std::min(s.last, step);
  s.is_ours = true;
}
FIRN_OUT_OF_MEMORY("Checkpoints")

}  // namespace firn::io

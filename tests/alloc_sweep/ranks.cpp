// Calls of two ranks in which every allocation of rank 1's thread fails once: nobody waits for a
// rank that has no memory, all throw or none does, and they go on together.
#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <typeinfo>
#include <utility>
#include <vector>

#include "alloc_sweep/failing.h"
#include "alloc_sweep/sweep.h"
#include "dist/training.h"
#include "firn/io/run.h"
#include "firn/memory.h"
#include "support/catch.h"
#include "support/threads.h"

namespace firn::testing {
namespace {

using dist::Group;

constexpr double kDeadline = 5;
constexpr std::int64_t kSamples = 8;

struct Setting {
  std::string name;
  optim::StepOptions step = {};
  dist::DistributeOptions over = {};
  bool exact() const { return step.exact.chunk > 0; }
};

std::vector<Setting> settings() {
  const optim::StepOptions plain{.accumulate = 2, .clip_norm = 1};
  optim::StepOptions exact = plain;
  exact.exact.chunk = 2;
  std::vector<Setting> out;
  for (int zero = 0; zero <= 3; ++zero)
    out.push_back({fmt::format("zero {}", zero), plain, {.zero = zero}});
  out.push_back({"overlap", plain, {.overlap = true}});
  out.push_back({"zero 3, overlap", plain, {.zero = 3, .overlap = true}});
  for (int zero = 0; zero <= 3; ++zero)
    out.push_back({fmt::format("exact, zero {}", zero), exact, {.zero = zero}});
  return out;
}

/// A folder of its own, which goes with it.
struct Folder {
  Folder()
      : path(std::filesystem::temp_directory_path() /
             fmt::format("firn-sweep-ranks-{}", getpid())) {
    std::filesystem::remove_all(path);
    std::filesystem::create_directories(path);
  }
  ~Folder() { std::filesystem::remove_all(path); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  std::string run() const { return (path / "run").string(); }
  std::filesystem::path path;
};

/// One rank's model, optimizer and samples.
struct Training {
  const Group& group;
  const Setting& setting;
  const std::string file;
  SmallMlp net = made();
  optim::AdamW opt;
  const Rows rows{kSamples, 7, 3, 77};
  const optim::MicroBatch halving{.size = 2}, given{.size = 2, .halve_on_out_of_memory = false};
  const std::function<Loss(std::int64_t, std::int64_t)> loss = [this](auto first, auto last) {
    return cross_entropy(net(rows.x.slice(0, first, last)), rows.y.slice(0, first, last));
  };
  const std::vector<io::RunPart> parts{net, opt};
  std::vector<Loss> losses;  ///< losses of a cycle that is made by hand
  bool in_step = false;      ///< a step() of such a cycle is under way

  Training(const Group& g, const Setting& s, std::string run)
      : group(g), setting(s), file(std::move(run)), opt(net.parameters(), {.lr = 0.1}, s.step) {}
  static SmallMlp made() {
    manual_seed(5);
    return SmallMlp();
  }
  void batch() { opt.run_batch(kSamples, 2, loss); }
  void prepare_by_hand(int micro_steps) {
    losses.clear();
    for (int i = 0; i < micro_steps; ++i)
      losses.push_back(loss(4 * group.rank() + 2 * i, 4 * group.rank() + 2 * i + 2));
  }
  void by_hand() {
    for (const Loss& l : losses) {
      in_step = false;
      opt.backward(l);
      in_step = true;
      opt.step();
    }
  }
  /// Recovers as docs/distributed.md asks after a failure in a cycle that is made by hand. A rank
  /// that has failed alone makes another call, by which the others learn of it.
  std::string recover_by_hand() {
    opt.zero_grad();
    const bool alone = group.rank() == 1 && (setting.over.zero < 2 || in_step);
    if (!alone) return {};
    try {
      prepare_by_hand(2);
      by_hand();
      return "the cycle after one that was dropped is no error";
    } catch (const dist::RankError& e) {
      return e.what();
    } catch (const Error&) {
    }
    opt.zero_grad();
    return {};
  }
};

/// A call of all ranks.
struct Call {
  std::function<void(Training&)> prepare;
  std::function<void(Training&)> run;
  /// Recovers a rank as the documentation asks. Returns what is wrong; empty: nothing.
  std::function<std::string(Training&)> recover = [](Training&) { return std::string(); };
  bool by_hand = false;  ///< exact mode refuses it
};

/// The outcome of a rank.
struct End {
  std::string error, then;  ///< errors of the call, and of what follows
  std::vector<double> weights;
  double seconds = 0;
  bool halved = false;
};

/// Returns what fn() throws, in words; empty: nothing.
template <class Fn>
std::string thrown_by(const Fn& fn) {
  try {
    fn();
  } catch (const Error& e) {
    return e.what();
  } catch (const std::exception& e) {
    return fmt::format("no Error but {}: {}", typeid(e).name(), e.what());
  }
  return {};
}

/// The call, whose allocation k fails on rank 1 (negative: none), and another batch. If `batches`
/// is positive, so many go before. Without `call` only the rest is done.
std::vector<End> ends_of(const Setting& setting, const Call& call, int batches, std::int64_t k,
                         bool make_call = true) {
  const Folder folder;
  return on_ranks<End>(
      2,
      [&](const Group& group) {
        End end;
        Training t(group, setting, folder.run());
        dist::distribute(t.opt, group, setting.over);
        for (int i = 0; i < batches; ++i) t.batch();
        if (make_call && call.prepare) call.prepare(t);
        group.barrier();
        if (group.rank() == 0) release_cached_memory();
        group.barrier();
        const auto begin = std::chrono::steady_clock::now();
        if (make_call) {
          end.error = thrown_by([&] {
            std::optional<FailingHeap> failing;
            if (group.rank() == 1 && k >= 0) failing.emplace(k, HeapFailure{.this_thread = true});
            call.run(t);
          });
          if (!end.error.empty()) end.then = call.recover(t);
        }
        end.then += thrown_by([&] {
          end.halved = end.error.empty() && t.opt.last_report().memory_retries() > 0;
          t.batch();
          const optim::GatheredWeights whole(t.opt);
          end.weights = weights_of(t.opt);
        });
        end.seconds =
            std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
        return end;
      },
      {.deadline = kDeadline, .threads = 1});
}

/// Returns what is wrong with the ends of a call in which an allocation has failed; empty: nothing.
std::string wrong_with(const std::vector<End>& ends, const std::vector<End>& called,
                       const std::vector<End>& not_called) {
  for (const End& e : ends) {
    if (e.error.starts_with("no Error")) return "not an Error";
    if (e.error.empty() != ends[0].error.empty()) return "only one rank throws";
    if (e.seconds > kDeadline - 1) return "a rank waits";
    if (!e.then.empty()) return "the ranks do not go on";
    if (e.weights != ends[0].weights) return "the weights differ";
  }
  const bool threw = !ends[0].error.empty();
  const auto& wanted = (threw ? not_called : called)[0].weights;
  if (!threw && (ends[0].halved || ends[1].halved))
    return relative_distance(ends[0].weights, wanted) < 1e-4 ? "" : "a halved batch is another";
  return ends[0].weights == wanted ? "" : "the weights are not those of a run without failure";
}

Tried attempt(const Setting& setting, const Call& call, int batches, std::int64_t k,
              const std::vector<End>& called, const std::vector<End>& not_called,
              std::string& said) try {
  FailingHeap::forget();
  const auto ends = ends_of(setting, call, batches, k);
  said = wrong_with(ends, called, not_called);
  if (said.empty()) {
    if (!ends[0].error.empty()) return Tried::threw;
    return FailingHeap::fired() ? Tried::hidden : Tried::done;
  }
  for (std::size_t r = 0; r < ends.size(); ++r)
    said += fmt::format("\n    rank {}: {:.1f} s, \"{}\", then \"{}\"", r, ends[r].seconds,
                        ends[r].error, ends[r].then);
  return Tried::wrong;
} catch (const std::exception& e) {
  said = e.what();
  return Tried::wrong;
}

int sweep_ranks(const Setting& setting, const Call& call, int batches, int stride) {
  const Threads one(1);
  const auto called = ends_of(setting, call, batches, -1);
  const auto not_called = ends_of(setting, call, batches, -1, false);
  for (const auto& ends : {called, not_called})
    for (const End& e : ends) REQUIRE(e.error + e.then == "");
  return sweep_attempts(
      [&](std::int64_t k, std::string& said) {
        return attempt(setting, call, batches, k, called, not_called, said);
      },
      stride);
}

/// Sweeps the call in every setting: in ranks that have just begun, and after a batch. Takes every
/// allocation, without `stride`, if FIRN_SWEEP_ALL is in the environment.
void sweep_settings(const Call& call, int stride, int least = 1) {
  if (std::getenv("FIRN_SWEEP_ALL")) stride = 1;
  for (const Setting& setting : settings()) {
    if (call.by_hand && setting.exact()) continue;
    for (const int batches : {0, 1}) DYNAMIC_SECTION(setting.name << ", after " << batches) {
        CHECK(sweep_ranks(setting, call, batches, stride) >= least);
      }
  }
}

TEST_CASE("[S40][S42] alloc_sweep: run_batch() of two ranks", "[host]") {
  sweep_settings({nullptr, [](Training& t) { t.batch(); }}, 9);
}

TEST_CASE("[S37][S40][S42] alloc_sweep: run_batch() of two ranks that may halve", "[host]") {
  sweep_settings({nullptr, [](Training& t) { t.opt.run_batch(kSamples, t.halving, t.loss); }}, 13);
}

TEST_CASE("[S37][S40][S42] alloc_sweep: run_batch() of two ranks that may not halve", "[host]") {
  sweep_settings({nullptr, [](Training& t) { t.opt.run_batch(kSamples, t.given, t.loss); }}, 15);
}

TEST_CASE("[S40][S42] alloc_sweep: backward() and step() of two ranks", "[host]") {
  sweep_settings({[](Training& t) { t.prepare_by_hand(2); }, [](Training& t) { t.by_hand(); },
                  [](Training& t) { return t.recover_by_hand(); }, true},
                 2);
}

// A cycle ends without an allocation.
TEST_CASE("[S40][S42] alloc_sweep: flush() of two ranks", "[host]") {
  sweep_settings(
      {[](Training& t) {
         t.prepare_by_hand(1);
         t.by_hand();
       },
       [](Training& t) { t.opt.flush(); }, [](Training& t) { return t.recover_by_hand(); }, true},
      1, 0);
}

TEST_CASE("[S40][S42] alloc_sweep: save_run() of two ranks", "[host]") {
  sweep_settings({nullptr, [](Training& t) { io::save_run(t.file, t.parts); },
                  [](Training& t) { return thrown_by([&] { io::save_run(t.file, t.parts); }); }},
                 90);
}

TEST_CASE("[S40][S42] alloc_sweep: load_run() of two ranks", "[host]") {
  sweep_settings({[](Training& t) { io::save_run(t.file, t.parts); },
                  [](Training& t) { io::load_run(t.file, t.parts); }},
                 90);
}

// Not swept, because ranks still wait there for one that has no memory: distribute(), and a
// BatchNorm in the mode per_step, which adds up its statistics over ranks after the cycle's end was
// announced.

}  // namespace
}  // namespace firn::testing

// Calls of two ranks in which every allocation of rank 1's thread fails once: nobody waits for a
// rank that has no memory, all throw or none does, and they go on together.
#include <fmt/format.h>

#include <chrono>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "alloc_sweep/failing.h"
#include "alloc_sweep/sweep.h"
#include "data/files.h"
#include "dist/failing_ranks.h"
#include "dist/training.h"
#include "dist/zero/zero.h"
#include "firn/io/run.h"
#include "firn/memory.h"
#include "support/catch.h"
#include "support/threads.h"

namespace firn::testing {
namespace {

using dist::Group;

constexpr double kDeadline = 5;
constexpr std::int64_t kSamples = 8;

/// One rank's model, optimizer and samples.
struct Training {
  const Group& group;
  const RankSetting& setting;
  const std::string file;
  SmallMlp net = made();
  optim::AdamW opt;
  const Rows rows{kSamples, 7, 3, 77};
  const optim::MicroBatch halving{.size = 2}, given{.size = 2, .halve_on_out_of_memory = false};
  const std::function<Loss(std::int64_t, std::int64_t)> loss = [this](auto first, auto last) {
    const Tensor hidden = gelu(net.a(rows.x.slice(0, first, last)));
    return cross_entropy(net.b(norm ? (*norm)(hidden) : hidden), rows.y.slice(0, first, last));
  };
  const std::vector<io::RunPart> parts{net, opt};
  std::vector<Loss> losses;  ///< losses of a cycle that is made by hand
  bool in_step = false;      ///< a step() of such a cycle is under way

  std::optional<dist::Mesh> mesh;
  std::optional<nn::BatchNorm1d> norm;  ///< its statistics belong to the optimizer's cycles

  Training(const Group& g, const RankSetting& s, std::string run)
      : group(g), setting(s), file(std::move(run)), opt(net.parameters(), {.lr = 0.1}, s.step) {}
  SmallMlp made() const {
    manual_seed(setting.over.broadcast ? 6 + static_cast<std::uint64_t>(group.rank()) : 5);
    SmallMlp out;
    manual_seed(5);
    return out;
  }
  void distribute() {
    if (mesh) return dist::distribute(opt, *mesh, setting.over);
    dist::distribute(opt, group, setting.over);
  }
  void normalise() {
    norm.emplace(
        16, nn::BatchNormOptions{.affine = false, .accumulation = nn::BatchNormMode::per_step});
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
  std::function<void(Training&)> prepare = nullptr;
  std::function<void(Training&)> run;
  /// Recovers a rank as the documentation asks. Returns what is wrong; empty: nothing.
  std::function<std::string(Training&)> recover = [](Training&) { return std::string(); };
  bool by_hand = false;      ///< exact mode refuses it
  bool distributes = false;  ///< the call is distribute(), before which each rank steps alone
  bool on_mesh = false;      ///< four ranks are two copies of a model for two ranks
  bool normalises = false;   ///< the model has a BatchNorm with the statistics of a cycle
  bool may_break = false;    ///< the group may be broken afterwards, for all ranks
  bool on_all = false;       ///< allocations of all ranks fail, not only those of rank 1
  HeapFailure fails = {.this_thread = true};
};

/// The outcome of a rank.
struct End {
  std::string error, then;  ///< errors of the call, and of what follows
  std::vector<double> weights;
  double seconds = 0;
  bool halved = false;
};

/// The call, whose allocation k fails on rank 1 (negative: none), and another batch. If `batches`
/// is positive, so many go before. Without `call` only the rest is done.
std::vector<End> ends_of(const RankSetting& setting, const Call& call, int batches, std::int64_t k,
                         bool make_call = true) {
  const test::TempFolder folder;
  return on_ranks<End>(
      call.on_mesh ? 4 : 2,
      [&](const Group& group) {
        End end;
        Training t(group, setting, folder.file("run"));
        if (call.normalises) t.normalise();
        if (call.on_mesh) t.mesh.emplace(group, dist::MeshSizes{.dp = 2, .tp = 2});
        if (!call.distributes) t.distribute();
        for (int i = 0; i < batches; ++i) t.batch();
        if (make_call && call.prepare) call.prepare(t);
        group.barrier();
        if (group.rank() == 0) release_cached_memory();
        group.barrier();
        const auto begin = std::chrono::steady_clock::now();
        if (make_call) {
          end.error = thrown_by([&] {
            std::optional<FailingHeap> failing;
            if (k >= 0 && (group.rank() == 1 || call.on_all)) failing.emplace(k, call.fails);
            call.run(t);
          });
        }
        if (!end.error.empty() || (!make_call && call.distributes)) end.then = call.recover(t);
        end.then += thrown_by([&] {
          end.halved = end.error.empty() && t.opt.last_report().memory_retries() > 0;
          t.batch();
          const optim::GatheredWeights whole(t.opt);
          end.weights = weights_of(t.opt);
          if (t.norm)
            for (const double v : values_of(cat({t.norm->running_mean, t.norm->running_var}, 0)))
              end.weights.push_back(v);
        });
        end.seconds =
            std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
        return end;
      },
      {.deadline = kDeadline, .threads = 1});
}

/// Returns what is wrong with the ends of a call in which an allocation has failed; empty: nothing.
std::string wrong_with(const std::vector<End>& ends, const std::vector<End>& called,
                       const std::vector<End>& not_called, bool may_break) {
  for (const End& e : ends) {
    if (e.error.starts_with("no Error")) return "not an Error";
    if (e.error.empty() != ends[0].error.empty()) return "only one rank throws";
    if (e.seconds > kDeadline - 1) return "a rank waits";
    if (e.then.empty() != ends[0].then.empty()) return "only one rank goes on";
    if (!e.then.empty() && !may_break) return "the ranks do not go on";
  }
  if (!ends[0].then.empty()) return "";
  for (const End& e : ends) {
    if (e.weights != ends[0].weights) return "the weights differ";
  }
  const bool threw = !ends[0].error.empty();
  const auto& wanted = (threw ? not_called : called)[0].weights;
  if (!threw && (ends[0].halved || ends[1].halved))
    return relative_distance(ends[0].weights, wanted) < 1e-4 ? "" : "a halved batch is another";
  return ends[0].weights == wanted ? "" : "the weights are not those of a run without failure";
}

Tried attempt(const RankSetting& setting, const Call& call, int batches, std::int64_t k,
              const std::vector<End>& called, const std::vector<End>& not_called,
              std::string& said) try {
  FailingHeap::forget();
  const auto ends = ends_of(setting, call, batches, k);
  said = wrong_with(ends, called, not_called, call.may_break);
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

int sweep_ranks(const RankSetting& setting, const Call& call, int batches, int stride) {
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

std::vector<RankSetting> settings() { return rank_settings({.accumulate = 2, .clip_norm = 1}); }

/// Sweeps the call in these settings: in ranks that have just begun, and after a batch. Takes every
/// allocation, without `stride`, if FIRN_SWEEP_ALL is in the environment.
void sweep_settings(const Call& call, int stride, int least = 1,
                    const std::vector<RankSetting>& all = settings()) {
  if (std::getenv("FIRN_SWEEP_ALL")) stride = 1;
  for (const RankSetting& setting : all) {
    if ((call.by_hand || call.on_mesh) && setting.exact()) continue;
    if (call.on_mesh && setting.over.overlap) continue;
    // A layer's exchange of a chunk breaks the group, and sharded gradients are refused.
    if (call.normalises && setting.exact()) continue;
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

// ---- distribute() ----

/// distribute(), which leaves the optimizer as it was if it throws: it steps alone, and the call
/// can be made again.
Call distribute_call(const HeapFailure& fails, bool on_mesh = false) {
  const auto before = std::make_shared<std::vector<std::string>>(4);
  const auto bits = [before](Training& t) -> std::string& {
    return (*before)[static_cast<std::size_t>(t.group.rank())];
  };
  return {.prepare = [bits](Training& t) { bits(t) = bits_of_training(t.opt).bytes; },
          .run = [](Training& t) { t.distribute(); },
          .recover =
              [bits](Training& t) {
                std::string& of_rank = bits(t);
                if (!of_rank.empty() && bits_of_training(t.opt).bytes != of_rank)
                  return std::string("the optimizer has changed");
                return thrown_by([&] {
                  t.batch();
                  t.distribute();
                });
              },
          .distributes = true,
          .on_mesh = on_mesh,
          .fails = fails};
}

std::vector<RankSetting> with_broadcast() {
  std::vector<RankSetting> out = settings();
  for (RankSetting& s : out) {
    s.name += ", broadcast";
    s.over.broadcast = true;
  }
  return out;
}

TEST_CASE("[S40] alloc_sweep: distribute() of two ranks", "[host]") {
  sweep_settings(distribute_call({.this_thread = true}), 13);
}

TEST_CASE("[S40] alloc_sweep: distribute() of two ranks with broadcast", "[host]") {
  sweep_settings(distribute_call({.this_thread = true}), 17, 1, with_broadcast());
}

TEST_CASE("[S40] alloc_sweep: distribute() of a rank that has no memory any more", "[host]") {
  sweep_settings(distribute_call({.sticky = true, .this_thread = true}), 19);
}

TEST_CASE("[S40] alloc_sweep: distribute() of two ranks that have no memory any more", "[host]") {
  Call call = distribute_call({.sticky = true, .this_thread = true});
  call.on_all = true;
  sweep_settings(call, 23);
}

TEST_CASE("[S40][S43] alloc_sweep: distribute() over a mesh", "[host]") {
  sweep_settings(distribute_call({.this_thread = true}, true), 29);
}

TEST_CASE("[S42] alloc_sweep: Group::split() and Mesh of two ranks", "[host]") {
  const std::vector<RankSetting> one = {settings().front()};
  sweep_settings(
      {nullptr, [](Training& t) { t.group.split(0, -t.group.rank()).barrier(); },
       [](Training& t) { return thrown_by([&] { t.group.split(0, -t.group.rank()).barrier(); }); }},
      1, 3, one);
  sweep_settings({nullptr, [](Training& t) { dist::Mesh(t.group, {.tp = 2}).tp().barrier(); },
                  [](Training& t) {
                    return thrown_by([&] { dist::Mesh(t.group, {.tp = 2}).tp().barrier(); });
                  }},
                 1, 20, one);
}

TEST_CASE("[S37][S40][S42] alloc_sweep: run_batch() of two ranks with many buckets", "[host]") {
  const SmallBuckets buckets(64);  // one for each parameter
  std::vector<RankSetting> sharded = settings();
  std::erase_if(sharded, [](const RankSetting& s) { return s.over.zero < 2 && !s.over.overlap; });
  sweep_settings({nullptr, [](Training& t) { t.opt.run_batch(kSamples, t.halving, t.loss); }}, 31,
                 1, sharded);
}

// With sharded gradients and no memory for a bucket, the others are already in that exchange.
TEST_CASE("[S40][S42] alloc_sweep: run_batch() of a rank that has no memory any more", "[host]") {
  const SmallBuckets buckets(64);
  sweep_settings({.run = [](Training& t) { t.batch(); },
                  .may_break = true,
                  .fails = {.sticky = true, .this_thread = true}},
                 13);
}

// ---- States of layers ----

TEST_CASE("[S19][S40][S42] alloc_sweep: run_batch() of two ranks with BatchNorm", "[host]") {
  sweep_settings({.run = [](Training& t) { t.batch(); }, .normalises = true}, 9);
}

TEST_CASE("[S19][S40][S42] alloc_sweep: step() of two ranks with BatchNorm", "[host]") {
  sweep_settings({.prepare = [](Training& t) { t.prepare_by_hand(2); },
                  .run = [](Training& t) { t.by_hand(); },
                  .recover = [](Training& t) { return t.recover_by_hand(); },
                  .by_hand = true,
                  .normalises = true},
                 2);
}

}  // namespace
}  // namespace firn::testing

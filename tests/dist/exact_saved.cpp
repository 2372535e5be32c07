// Runs in exact mode that are saved within a batch, and go on from there on other numbers of ranks.
#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <string>
#include <vector>

#include "data/files.h"
#include "dist/training.h"
#include "firn/io/checkpoints.h"
#include "optim/exact/chunks.h"

namespace firn::testing {
namespace {

using dist::distribute;
using dist::Group;

TEST_CASE("[S39] exact: the tree is the same whatever nodes of it are done already") {
  const auto add = [](std::string& a, const std::string& b) { a = "(" + a + "+" + b + ")"; };
  Rng rng(5);
  for (int trial = 0; trial < 300; ++trial) {
    const std::int64_t n = 1 + rng.below(20), parts = 1 + rng.below(5), saved_by = 1 + rng.below(5);
    optim::ChunkStack<std::string> whole;
    for (std::int64_t q = 0; q < n; ++q) whole.push({q, 1}, std::to_string(q), add);
    // Other ranks have come to some of their chunks.
    std::vector<optim::ChunkRange> done;
    std::vector<std::string> values;
    for (std::int64_t r = 0; r < saved_by; ++r) {
      const std::int64_t first = n * r / saved_by, last = n * (r + 1) / saved_by;
      const std::int64_t end = first + rng.below(last - first + 1);
      optim::ChunkStack<std::string> some;
      for (std::int64_t q = first; q < end; ++q) some.push({q, 1}, std::to_string(q), add);
      for (const auto& e : some.entries()) {
        done.push_back(e.range);
        values.push_back(e.value);
      }
    }
    optim::ChunkStack<std::string> all;
    std::int64_t computed = 0;
    for (std::int64_t r = 0; r < parts; ++r) {
      const auto work = optim::work_of(n * r / parts, n * (r + 1) / parts, done);
      optim::ChunkStack<std::string> mine;
      std::size_t most = 0;
      for (const auto& item : work.items) {
        most = std::max(most, mine.entries().size() + 1);
        mine.push(item.range,
                  item.done >= 0 ? values[static_cast<std::size_t>(item.done)]
                                 : std::to_string(item.range.first),
                  add);
      }
      computed += work.to_compute;
      const optim::ChunkPlan plan = optim::plan_chunks(work);
      CHECK(plan.most == most);
      REQUIRE(plan.nodes.size() == mine.entries().size());
      for (const auto& e : mine.entries()) all.push(e.range, e.value, add);
    }
    CHECK(all.fold(add) == whole.fold(add));
    const auto covered =
        std::accumulate(done.begin(), done.end(), std::int64_t{0},
                        [](std::int64_t sum, const optim::ChunkRange& d) { return sum + d.count; });
    CHECK(computed == n - covered);
  }
}

// ---- Trainings ----

/// Two ways to a parameter that some chunks do not take, dropout, and a layer that is used twice.
struct Net : nn::Module {
  nn::Linear in{5, 8}, twice{8, 8}, out{8, 3};
  nn::Dropout drop{0.3};
  FIRN_MEMBERS(in, twice, out, drop)
  Tensor forward(const Tensor& x) override {
    const Tensor h = relu(in(x));
    return out(h + drop(twice(relu(twice(h)))));
  }
};

data::TensorDataset rows_of_set() {
  const Rows rows(44, 5, 3, 9);
  return data::TensorDataset({rows.x, rows.y});
}

struct Plan {
  DType dtype = f32;
  int zero = 0;
  bool loader = true;
  bool overflows = false;
};

/// A program that trains two epochs, two batches of 22 samples each, in 11 chunks of 2.
struct Program {
  data::TensorDataset set = rows_of_set();
  data::Loader loader;
  Net net;
  optim::AdamW opt;

  Program(const Group& group, const Plan& plan)
      : loader(set, {.batch = 22, .shuffle = true, .seed = 3, .group = group, .chunk = 2}),
        net(made(plan)),
        opt(net.parameters(), {.lr = 1e-2}, options(plan)) {
    distribute(opt, group, {.zero = plan.zero});
  }
  static Net made(const Plan& plan) {
    manual_seed(6);
    Net out;
    out.to(plan.dtype);
    return out;
  }
  static optim::StepOptions options(const Plan& plan) {
    optim::StepOptions out{.clip_norm = 0.5, .ema = 0.9, .exact = {.chunk = 2}};
    if (plan.overflows)
      out.loss_scale =
          optim::LossScale::dynamic({.init = 0x1p24, .on_overflow = optim::OverflowPolicy::retry});
    return out;
  }
  optim::StepReport step(const data::LoaderBatch& b,
                         const std::function<void(std::int64_t)>& between) {
    return opt.run_batch(b.total, {.size = 4, .between = between},
                         [&](std::int64_t first, std::int64_t last) {
                           const auto part = b.part(first, last);
                           return cross_entropy(net(part.x().to(net.in.weight.dtype())), part.y());
                         });
  }
  std::string bits() const {
    Bits out;
    for (const Tensor& t : opt.parameters()) out = out + bits_of(t);
    for (const Tensor& t : optim::ema(opt)) out = out + bits_of(t);
    const auto totals = opt.loss_totals();
    return out.bytes + fmt::format("{:a} {:a} {}", totals.loss, totals.weight,
                                   opt.last_report().applied_steps());
  }
};

struct Killed {};

/// Runs to its end. If `stop` is not 0, saves after so many chunks of batch 1 and ends there.
std::string run(const Group& group, const Plan& plan, const std::string& file, int batch, int stop,
                bool load) {
  Program p(group, plan);
  if (load) io::load_run(file, {p.net, p.opt, p.loader});
  const std::int64_t begin = p.opt.last_report().applied_steps();
  try {
    std::int64_t number = begin;
    while (p.loader.position().epoch < 2)
      for (const auto& b : p.loader) {
        p.step(b, [&](std::int64_t done) {
          rand({3});  // does not count, before a save either
          if (number == batch && done == stop) {
            io::save_run(file, {p.net, p.opt, p.loader});
            throw Killed();
          }
        });
        ++number;
      }
  } catch (const Killed&) {
    return "";
  }
  return p.bits();
}

std::vector<std::string> run_on(int ranks, const Plan& plan, const std::string& file, int batch,
                                int stop, bool load) {
  return on_ranks<std::string>(
      ranks, [&](const Group& g) { return run(g, plan, file, batch, stop, load); });
}

TEST_CASE("[S23][S33][S39] exact: a run saved within a batch goes on with any number of ranks",
          "[host]") {
  const test::TempFolder folder;
  const std::string file = folder.file("run");
  for (const Plan& plan : {Plan{}, Plan{.dtype = f16}, Plan{.dtype = bf16, .zero = 1},
                           Plan{.dtype = f16, .overflows = true}, Plan{.zero = 2},
                           Plan{.dtype = f16, .zero = 2, .overflows = true}, Plan{.zero = 3}}) {
    const std::string whole = run(Group(), plan, file, -1, 0, false);
    for (const int saved_by : {1, 3, 4})
      for (const int stop : {1, saved_by == 1 ? 9 : 2}) {  // 9: a sum of 8 chunks
        run_on(saved_by, plan, file, 1, stop, false);
        for (const int ranks : {1, 2, 3}) {
          CAPTURE(plan.dtype, plan.zero, plan.overflows, saved_by, stop, ranks);
          Plan goes_on = plan;
          goes_on.zero = ranks == 2 ? plan.zero : (plan.zero + ranks / 2 + 1) % 4;
          for (const auto& end : run_on(ranks, goes_on, file, -1, 0, true)) CHECK(end == whole);
        }
      }
  }
}

TEST_CASE("[S23][S33][S39] exact: a batch that was resumed is saved within once more", "[host]") {
  const test::TempFolder folder;
  const std::string file = folder.file("run");
  const std::string whole = run(Group(), {}, file, -1, 0, false);
  for (const int again : {1, 3})
    for (const int zero : {0, 2}) {
      const bool at_once = again == 1 || zero == 2;
      CAPTURE(again, at_once);
      const Plan plan{.zero = zero};
      run_on(2, plan, file, 1, 2, false);
      if (at_once)  // between load_run() and run_batch()
        on_ranks<int>(again, [&](const Group& g) {
          Program p(g, plan);
          io::load_run(file, {p.net, p.opt, p.loader});
          io::save_run(file, {p.net, p.opt, p.loader});
          return 0;
        });
      run_on(again, plan, file, 1, 1, true);
      for (const auto& end : run_on(2, plan, file, -1, 0, true)) CHECK(end == whole);
    }
}

TEST_CASE("[S39] exact: what is loaded of a batch is not lost unseen", "[host]") {
  const test::TempFolder folder;
  const std::string file = folder.file("run"), before = folder.file("before");
  {
    Program p(Group(), {});
    io::save_run(before, {p.net, p.opt, p.loader});
  }
  run(Group(), {}, file, 1, 3, false);
  const auto other = [](Program& p) {
    const Rows rows(6, 5, 3, 4);
    return p.opt.run_batch(6, 2, [&](std::int64_t first, std::int64_t last) {
      return cross_entropy(p.net(rows.x.slice(0, first, last)), rows.y.slice(0, first, last));
    });
  };
  Program p(Group(), {});
  io::load_run(file, {p.net, p.opt, p.loader});
  CHECK(mentions(error_of([&] { other(p); }),
                 {"a batch of 6 samples", "saved in one of 22", "zero_grad()"}));
  p.opt.zero_grad();
  CHECK(other(p).applied());
  io::load_run(file, {p.net, p.opt, p.loader});
  CHECK(mentions(error_of([&] { p.opt.flush(); }), {"flush() while a part of a batch of 22"}));
  CHECK(mentions(error_of([&] { p.opt.step(); }), {"step() while a part of a batch of 22"}));
  // A file without a part of a batch leaves none.
  io::load_run(file, {p.net, p.opt, p.loader});
  io::load_run(before, {p.net, p.opt, p.loader});
  CHECK(other(p).applied());
  // A failed batch, and a plan, do not take it away or bring it back.
  io::load_run(file, {p.net, p.opt, p.loader});
  for (const auto& b : p.loader) {
    plan_memory([&] { p.step(b, {}); });
    CHECK(p.loader.position().sample == 44);
    CHECK(p.step(b, {}).applied());
    CHECK(p.step(b, {}).weight() == 22);
  }
  CHECK(mentions(error_of([&] {
                   Net net;
                   optim::AdamW plain(net.parameters());
                   plain.run_batch(4, {.size = 2, .between = [](std::int64_t) {}},
                                   [](auto, auto) -> Loss { throw Killed(); });
                 }),
                 {"MicroBatch::between", "StepOptions::exact"}));
  CHECK(
      mentions(error_of([&] {
                 p.loader.seek({0, 0});
                 for (const auto& b : p.loader)
                   p.step(b, [&](std::int64_t) { io::load_run(before, {p.net, p.opt, p.loader}); });
               }),
               {"load_run()", "inside the function of run_batch()"}));
  CHECK(mentions(error_of([&] {
                   Net net;
                   optim::AdamW plain(net.parameters(), {.lr = 1e-2},
                                      {.clip_norm = 0.5, .ema = 0.9});
                   io::load_run(file, {net, plain, p.loader}, {.other_settings = true});
                 }),
                 {"it is of another run"}));
  CHECK(mentions(error_of([&] {
                   Net net;
                   optim::AdamW other_chunks(net.parameters(), {.lr = 1e-2},
                                             {.clip_norm = 0.5, .ema = 0.9, .exact = {.chunk = 1}});
                   io::load_run(file, {net, other_chunks, p.loader}, {.other_settings = true});
                 }),
                 {"within a batch in chunks of 2 samples, and the optimizer has chunks of 1"}));
  CHECK(mentions(error_of([&] {
                   p.opt.run_batch(std::int64_t{1} << 60, 2,
                                   [](auto, auto) -> Loss { throw Killed(); });
                 }),
                 {"chunks of 2, more than 16777216"}));
}

}  // namespace
}  // namespace firn::testing

// Whatever a function of the user's throws on one rank, in whatever call of all ranks: all throw,
// and go on together with the next call.
#include <chrono>
#include <new>
#include <stdexcept>

#include "data/files.h"
#include "dist/failing_ranks.h"
#include "dist/training.h"
#include "firn/data/dataset.h"
#include "firn/data/loader.h"
#include "firn/io/run.h"
#include "firn/memory.h"
#include "firn/runtime/kernel_support.h"
#include "firn/train/fit.h"

namespace firn::testing {
namespace {

using dist::distribute;
using dist::Group;
using LossOf = std::function<Loss(std::int64_t first, std::int64_t last)>;

enum class Thrown { runtime_error, bad_alloc, out_of_memory, error, number };
constexpr Thrown kThrown[] = {Thrown::runtime_error, Thrown::bad_alloc, Thrown::out_of_memory,
                              Thrown::error, Thrown::number};

[[noreturn]] void throw_it(Thrown what) {
  switch (what) {
    case Thrown::runtime_error:
      throw std::runtime_error("no more disk");
    case Thrown::bad_alloc:
      throw std::bad_alloc();
    case Thrown::out_of_memory:
      throw OutOfMemory("none", 1);
    case Thrown::error:
      throw Error("loader", "no more");
    default:
      throw 7;
  }
}

/// A small model, its optimizer, and twelve samples of all ranks.
struct Training {
  SmallMlp net = made();
  optim::AdamW opt;
  const Rows rows{12, 7, 3, 77};
  const Group& group;

  Training(const Group& g, const RankSetting& s)
      : opt(net.parameters(), {.lr = 0.1}, s.step), group(g) {
    distribute(opt, group, s.over);
  }
  static SmallMlp made() {
    manual_seed(5);
    return SmallMlp();
  }
  Loss loss(std::int64_t first, std::int64_t last) {
    return cross_entropy(net(rows.x.slice(0, first, last)), rows.y.slice(0, first, last));
  }
  void batch() {
    opt.run_batch(12, {.size = 2}, [this](auto first, auto last) { return loss(first, last); });
  }
};

/// Where in a call the function of rank 1 throws.
struct Place {
  int call = -1;          ///< from its so many-th call on
  bool plan = false;      ///< in a dry run
  bool backward = false;  ///< in a hook
};

/// A call of all ranks with a loss of the user's.
struct Maker {
  const char* name;
  std::function<void(Training&, const LossOf&)> run;
  bool with_exact = true, without_exact = true;
};

std::vector<Maker> makers() {
  return {
      {"run_batch(n, micro)",
       [](Training& t, const LossOf& loss) { t.opt.run_batch(12, 2, loss); }},
      {"run_batch(n, MicroBatch)",
       [](Training& t, const LossOf& loss) { t.opt.run_batch(12, {.size = 2}, loss); }},
      {"run_batch(n, MicroBatch), planned",
       [](Training& t, const LossOf& loss) {
         t.opt.run_batch(12, {.budget = std::size_t{1} << 40}, loss);
       }},
      {"run_batch(n, MicroBatch), not halved",
       [](Training& t, const LossOf& loss) {
         t.opt.run_batch(12, {.size = 2, .halve_on_out_of_memory = false}, loss);
       }},
      {"run_cycle",
       [](Training& t, const LossOf& loss) {
         t.opt.run_cycle(2, [&](std::int64_t i) {
           const std::int64_t first = 4 * t.group.rank() + 2 * i;
           return loss(first, first + 2);
         });
       },
       false},
      {"MicroBatch::between",
       [](Training& t, const LossOf& loss) {
         t.opt.run_batch(12, {.size = 2, .between = [&](std::int64_t) { loss(0, 1); }},
                         [&](auto first, auto last) { return t.loss(first, last); });
       },
       true, false},
  };
}

struct End {
  std::string error, then;  ///< what the call throws, and what the next one does
  std::vector<double> weights;
  double seconds = 0;
};

void check_failed_on_all(const std::vector<End>& ends) {
  for (std::size_t r = 0; r < ends.size(); ++r) {
    CAPTURE(r, ends[r].error);
    CHECK_FALSE(ends[r].error.empty());
    CHECK(ends[r].then == "");
    const bool as_rank_0 = ends[r].weights == ends[0].weights;
    CHECK(as_rank_0);
  }
}

/// A batch, the call that fails, and another batch.
std::vector<End> ends_of(const RankSetting& setting, const Maker* maker, const Place& place,
                         Thrown what) {
  return on_ranks<End>(3,
                       [&](const Group& group) {
                         Training t(group, setting);
                         t.batch();
                         End end;
                         int calls = 0;
                         const auto fails = [&](std::int64_t first, std::int64_t last) {
                           const bool here = group.rank() == 1 && runtime::dry_run() == place.plan;
                           if (here && place.call >= 0 && calls++ >= place.call) throw_it(what);
                           if (!here || !place.backward) return t.loss(first, last);
                           const Tensor hidden = gelu(t.net.a(t.rows.x.slice(0, first, last)));
                           add_hook(hidden, [what](const Tensor&) -> Tensor { throw_it(what); });
                           return cross_entropy(t.net.b(hidden), t.rows.y.slice(0, first, last));
                         };
                         if (maker) end.error = thrown_by([&] { maker->run(t, fails); });
                         end.then = thrown_by([&] { t.batch(); });
                         const optim::GatheredWeights whole(t.opt);
                         end.weights = weights_of(t.opt);
                         return end;
                       },
                       {.deadline = 5});
}

TEST_CASE(
    "[S40][S42] ranks: whatever one rank's loss throws, all throw, and the next batch goes on",
    "[host]") {
  for (const RankSetting& setting : rank_settings()) {
    const auto wanted = ends_of(setting, nullptr, {}, Thrown::error);
    for (const Maker& maker : makers()) {
      if (setting.exact() ? !maker.with_exact : !maker.without_exact) continue;
      for (const Place& place : {Place{.call = 0}, Place{.call = 1}, Place{.backward = true},
                                 Place{.call = 0, .plan = true}}) {
        const std::string name = maker.name;
        const bool plans = name.find("planned") != std::string::npos;
        const bool between = name == "MicroBatch::between";
        if (plans || between ? place.call == 1 : place.plan) continue;  // one call of each rank
        if (between && (place.plan || place.backward)) continue;
        for (const Thrown what : kThrown) {
          CAPTURE(setting.name, name, place.call, place.plan, place.backward, int(what));
          const auto ends = ends_of(setting, &maker, place, what);
          check_failed_on_all(ends);
          const bool as_wanted = ends[0].weights == wanted[0].weights;
          CHECK(as_wanted);
        }
      }
    }
  }
}

TEST_CASE("[S40][S42] ranks: arguments that one rank alone has wrong are an error on all",
          "[host]") {
  const std::vector<std::pair<const char*, std::function<void(Training&, bool)>>> calls = {
      {"samples",
       [](Training& t, bool wrong) {
         t.opt.run_batch(wrong ? 0 : 12, 2, [&](auto a, auto b) { return t.loss(a, b); });
       }},
      {"micro_batch",
       [](Training& t, bool wrong) {
         t.opt.run_batch(12, wrong ? 0 : 2, [&](auto a, auto b) { return t.loss(a, b); });
       }},
      {"no function",
       [](Training& t, bool wrong) {
         t.opt.run_batch(
             12, {.size = 2}, wrong ? LossOf() : [&](auto a, auto b) { return t.loss(a, b); });
       }},
      {"a budget too small",
       [](Training& t, bool wrong) {
         t.opt.run_batch(12, {.budget = wrong ? std::size_t{1} : std::size_t{1} << 40},
                         [&](auto a, auto b) { return t.loss(a, b); });
       }},
      {"an undefined loss",
       [](Training& t, bool wrong) {
         t.opt.run_batch(12, {.size = 2},
                         [&](auto a, auto b) { return wrong ? Loss{} : t.loss(a, b); });
       }},
  };
  for (const RankSetting& setting : rank_settings())
    for (const auto& [name, call] : calls) {
      CAPTURE(setting.name, name);
      const auto ends = on_ranks<End>(2,
                                      [&, &call = call](const Group& group) {
                                        Training t(group, setting);
                                        End end;
                                        end.error = thrown_by([&] { call(t, group.rank() == 1); });
                                        end.then = thrown_by([&] { t.batch(); });
                                        return end;
                                      },
                                      {.deadline = 5});
      check_failed_on_all(ends);
    }
}

TEST_CASE("[S40][S42] ranks: distribute() that one rank refuses is an error on all", "[host]") {
  const std::vector<std::pair<const char*, std::function<void(optim::Optimizer&, const Group&)>>>
      wrong = {
          {"broadcast", [](auto& opt, const Group& g) { distribute(opt, g, {.broadcast = true}); }},
          {"zero", [](auto& opt, const Group& g) { distribute(opt, g, {.zero = 1}); }},
          {"no such stage", [](auto& opt, const Group& g) { distribute(opt, g, {.zero = 4}); }},
          {"overlap in stage 2",
           [](auto& opt, const Group& g) { distribute(opt, g, {.zero = 2, .overlap = true}); }},
          {"a part of a parameter",
           [](auto& opt, const Group& g) {
             dist::mark_sharded(opt.parameters()[0]);
             distribute(opt, g);
           }},
      };
  for (const auto& [name, call] : wrong) {
    CAPTURE(name);
    const auto ends = on_ranks<End>(3,
                                    [&, &call = call](const Group& group) {
                                      manual_seed(5);
                                      SmallMlp net, other;
                                      optim::AdamW opt(net.parameters()), again(other.parameters());
                                      End end;
                                      end.error = thrown_by([&] {
                                        if (group.rank() == 1)
                                          call(opt, group);
                                        else
                                          distribute(opt, group);
                                      });
                                      end.then = thrown_by([&] { distribute(again, group); });
                                      return end;
                                    },
                                    {.deadline = 5});
    check_failed_on_all(ends);
  }
}

// ---- Saving and loading ----

TEST_CASE("[S40][S42] ranks: a run that one rank cannot save or load fails on all", "[host]") {
  for (const RankSetting& setting : rank_settings()) {
    const test::TempFolder folder;
    for (const int which : {0, 1, 2, 3}) {
      CAPTURE(setting.name, which);
      const auto ends =
          on_ranks<End>(2,
                        [&](const Group& group) {
                          Training t(group, setting);
                          t.batch();
                          const bool wrong = group.rank() == 1;
                          const std::string run = folder.file("run");
                          io::save_run(run, {t.net, t.opt});
                          t.batch();
                          End end;
                          end.error = thrown_by([&] {
                            if (which == 0 && wrong) io::save_run(run, {t.net, t.opt, t.net});
                            if (which == 0 && !wrong) io::save_run(run, {t.net, t.opt});
                            if (which == 1)
                              io::save_run(wrong ? run : folder.file("no/run"), {t.net, t.opt});
                            if (which == 2)
                              io::load_run(wrong ? folder.file("none") : run, {t.net, t.opt});
                            SmallMlp other;
                            if (which == 3 && wrong) io::load_run(run, {{"other", other}, t.opt});
                            if (which == 3 && !wrong) io::load_run(run, {t.net, t.opt});
                          });
                          end.then = thrown_by([&] {
                            t.batch();
                            io::save_run(run, {t.net, t.opt});
                            io::load_run(run, {t.net, t.opt});
                          });
                          const optim::GatheredWeights whole(t.opt);
                          end.weights = weights_of(t.opt);
                          return end;
                        },
                        {.deadline = 5});
      check_failed_on_all(ends);
    }
  }
}

TEST_CASE("[S37][S40] ranks: memory that lasts for the save of some ranks fails on all", "[host]") {
  struct Limit {
    ~Limit() { set_memory_limit(before); }
    std::size_t before = memory_stats().limit;
  };
  const test::TempFolder folder;
  constexpr int kRanks = 3;
  for (const int zero : {0, 2})
    for (const int room : {0, 1, 2}) {  // for the gradients of so many ranks
      CAPTURE(zero, room);
      const Limit limit;
      const auto ends = on_ranks<End>(
          kRanks,
          [&](const Group& group) {
            manual_seed(5);
            nn::Linear net(512, 512);
            optim::SGD opt(net.parameters(), {.lr = 0.1}, {.accumulate = 2});
            distribute(opt, group, {.zero = zero});
            const Tensor x = ones({2, 512}), y = zeros({2}, i64);
            const auto half = [&] {
              opt.backward(cross_entropy(net(x), y));
              opt.step();
            };
            half();
            const std::string run = folder.file("run");
            io::save_run(run, {net, opt});  // what a save keeps stays
            group.barrier();
            if (group.rank() == 0) {
              release_cached_memory();
              set_memory_limit(memory_stats().reserved + std::size_t(room) * (1 << 20) + 65536);
            }
            group.barrier();
            End end;
            end.error = thrown_by([&] { io::save_run(run, {net, opt}); });
            group.host().barrier();
            if (group.rank() == 0) set_memory_limit(0);
            group.barrier();
            end.then = thrown_by([&] {
              io::save_run(run, {net, opt});
              half();
            });
            end.weights = weights_of(opt);
            return end;
          },
          {.deadline = 5});
      for (const End& e : ends) {
        CHECK(e.error.empty() == ends[0].error.empty());
        if (zero == 0) CHECK_FALSE(e.error.empty());
        CHECK(e.then == "");
        const bool as_rank_0 = e.weights == ends[0].weights;
        CHECK(as_rank_0);
      }
    }
}

// ---- fit() ----

TEST_CASE("[S40][S42] ranks: fit() that fails on one rank fails on all", "[host]") {
  enum class At { loss, micro_batch, on_batch, on_epoch };
  for (const At at : {At::loss, At::micro_batch, At::on_batch, At::on_epoch})
    for (const Thrown what : kThrown)
      for (const int zero : {0, 1, 2}) {
        CAPTURE(int(at), int(what), zero);
        const auto ends = on_ranks<End>(
            2,
            [&](const Group& group) {
              Training t(group, {"", {}, {.zero = zero}});
              bool fails = true;
              int calls = 0;
              const auto fail = [&](At here) {
                if (fails && here == at && group.rank() == 1 && ++calls == 2) throw_it(what);
              };
              const data::TensorDataset set({t.rows.x, t.rows.y});
              data::Loader loader(set, {.batch = 4, .group = group});
              train::FitOptions options{.epochs = 2, .progress = false};
              if (at == At::micro_batch) options.micro_batch = optim::MicroBatch{.size = 1};
              options.callbacks.on_batch = [&](auto&) { fail(At::on_batch); };
              options.callbacks.on_epoch_end = [&](auto&, auto&) { fail(At::on_epoch); };
              const auto loss = [&](const Tensor& out, const Tensor& y) {
                fail(At::loss);
                fail(At::micro_batch);
                return cross_entropy(out, y);
              };
              const auto begin = std::chrono::steady_clock::now();
              End end;
              end.error = thrown_by([&] { train::fit(t.net, t.opt, loader, loss, options); });
              fails = false;
              const double spent =
                  std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
              end.then = thrown_by([&] { train::fit(t.net, t.opt, loader, loss, options); });
              end.seconds = spent;
              return end;
            },
            {.deadline = 30});
        // A rank that stops between two batches may break the group: then at once, and for all.
        const bool whole = at == At::loss || at == At::micro_batch;
        for (const End& e : ends) {
          CHECK_FALSE(e.error.empty());
          CHECK(e.seconds < 10);
          CHECK(e.then.empty() == ends[0].then.empty());
          if (whole) CHECK(e.then == "");
        }
      }
}

}  // namespace
}  // namespace firn::testing

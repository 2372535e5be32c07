// Divided gradients in the ordinary mode: the results of undivided ones, to rounding.
#include "dist/zero/zero.h"
#include "firn/optim/health.h"

namespace firn::testing {
namespace {

using dist::distribute;
using dist::Group;

struct End {
  std::vector<double> weights, averages;
  std::vector<double> norms, losses, sizes;
  std::vector<std::int64_t> micro_steps;
  double scale = 0, total = 0;
};

/// A training, and how near its end is to that without ZeRO.
void check_near(const std::string& name, double tolerance, int ranks,
                const std::function<End(const Group&, int zero)>& run, int most = 3) {
  const auto plain = on_ranks<End>(ranks, [&](const Group& g) { return run(g, 0); });
  for (int zero = 2; zero <= most; ++zero) {
    CAPTURE(name, ranks, zero);
    const auto parts = on_ranks<End>(ranks, [&](const Group& g) { return run(g, zero); });
    REQUIRE(!plain[0].weights.empty());
    for (const End& e : parts) {
      CHECK(e.weights == parts[0].weights);  // to the bit
      CHECK(e.norms == parts[0].norms);
      CHECK(relative_distance(e.weights, plain[0].weights) <= tolerance);
      if (!e.averages.empty()) CHECK(relative_distance(e.averages, plain[0].averages) <= tolerance);
      CHECK(relative_distance(e.norms, plain[0].norms) <= 10 * tolerance);
      CHECK(relative_distance(e.losses, plain[0].losses) <= 10 * tolerance);
      CHECK(e.sizes == plain[0].sizes);
      CHECK(e.micro_steps == plain[0].micro_steps);
      CHECK(e.scale == plain[0].scale);
      CHECK(e.total == plain[0].total);
    }
  }
}

void note(End& end, const optim::StepReport& report) {
  end.norms.push_back(report.norm());
  end.losses.push_back(report.loss());
  end.sizes.push_back(report.weight());
  end.micro_steps.push_back(report.micro_steps());
}
End finish(End end, const optim::Optimizer& opt) {
  end.weights = weights_of(opt);
  end.scale = opt.loss_scale();
  end.total = opt.loss_totals().weight;
  return end;
}

/// Batches that ranks share unevenly; one has fewer samples than ranks.
End batches(const Group& group, const OptimizerKind& of, DType dtype, int zero) {
  manual_seed(4);
  ZeroNet net;
  net.to(dtype);
  optim::StepOptions step{.clip_norm = 0.5, .ema = 0.9};
  if (dtype == f16)  // some steps overflow
    step.loss_scale =
        optim::LossScale::dynamic({.init = 0x1p20, .on_overflow = optim::OverflowPolicy::retry});
  const OptimizerPtr opt = of.make(net, step);
  distribute(*opt, group, {.zero = zero});
  seed_thread(static_cast<std::uint64_t>(group.rank()));
  End end;
  std::uint64_t seed = 30;
  for (const std::int64_t n : {23, 2, 31, 9}) {
    const ZeroBatch batch(n, seed += 2);
    note(end, opt->run_batch(n, 3, [&](std::int64_t first, std::int64_t last) {
      return batch.loss(net, first, last);
    }));
  }
  for (const Tensor& t : optim::ema(*opt))
    for (const double v : values_of(t)) end.averages.push_back(v);
  return finish(std::move(end), *opt);
}

TEST_CASE("[S40][S41][S43] zero 2: batches that ranks share unevenly", "[host]") {
  using namespace optim;
  const std::vector<OptimizerKind> kinds{kind<SGD>("SGD", SGDOptions{.lr = 0.05, .momentum = 0.9}),
                                         kind<AdamW>("AdamW", AdamWOptions{.lr = 1e-3}),
                                         kind<Muon>("Muon", MuonOptions{.lr = 1e-3})};
  for (const OptimizerKind& of : kinds)
    for (const int ranks : {2, 3, 4}) {
      const SmallBuckets buckets(ranks == 3 ? 4 << 20 : 4000);
      check_near(std::string(of.name) + " f32", 1e-5, ranks,
                 [&](const Group& g, int zero) { return batches(g, of, f32, zero); });
      check_near(std::string(of.name) + " f64", 1e-12, ranks,
                 [&](const Group& g, int zero) { return batches(g, of, f64, zero); });
      // Weights of 16 bits show little of what masters have, but for how they are rounded.
      for (const DType dtype : {f16, bf16})
        check_near(of.name, 2e-3, ranks,
                   [&](const Group& g, int zero) { return batches(g, of, dtype, zero); });
    }
  const OptimizerKind small =
      kind<AdamW>("AdamW in 8 bits", AdamWOptions{.lr = 1e-3, .state = StatePrecision::bits8});
  check_near(small.name, 1e-3, 3,
             [&](const Group& g, int zero) { return batches(g, small, f32, zero); });
}

TEST_CASE("[S01][S40][S43] zero 2: one micro-step of each rank has the bits of undivided ones",
          "[host]") {
  const SmallBuckets buckets(4000);
  const auto run = [](const Group& group, int zero) {
    manual_seed(4);
    ZeroNet net;
    optim::AdamW opt(net.parameters(), {.lr = 1e-2});
    distribute(opt, group, {.zero = zero});
    for (int step = 0; step < 3; ++step) {
      const ZeroBatch batch(12, 30 + static_cast<std::uint64_t>(step));
      opt.run_batch(12, 12, [&](std::int64_t first, std::int64_t last) {
        return batch.loss(net, first, last);
      });
    }
    return weights_of(opt);
  };
  using Weights = std::vector<double>;
  const auto plain = on_ranks<Weights>(3, [&](const Group& g) { return run(g, 0); });
  for (const int zero : {2, 3})
    for (const auto& w : on_ranks<Weights>(3, [&](const Group& g) { return run(g, zero); }))
      CHECK(w == plain[0]);
}

TEST_CASE("[S01][S05][S40][S43] zero 2: cycles by hand, with scales that change on the way",
          "[host]") {
  for (const DType dtype : {f64, f16})
    check_near(
        "by hand", dtype == f64 ? 1e-12 : 2e-3, 3,
        [&](const Group& group, int zero) {
          manual_seed(4);
          ZeroNet net(0);
          net.to(dtype);
          optim::SGD opt(net.parameters(), {.lr = 0.05, .momentum = 0.9},
                         {.accumulate = 4,
                          .clip_norm = 0.5,
                          .loss_scale = optim::LossScale::dynamic({.init = 64})});
          distribute(opt, group, {.zero = zero});
          End end;
          for (int step = 0; step < 3; ++step)
            for (int micro = 0; micro < 4; ++micro) {
              const std::int64_t n = 1 + 40 * (micro % 2) + 5 * group.rank();
              if (micro == 2) opt.set_loss_scale(0x1p10);
              if ((micro + group.rank()) % 3 == 0) {
                opt.no_samples();
              } else {
                const auto seed =
                    static_cast<std::uint64_t>(100 * step + 10 * micro + group.rank());
                opt.backward(ZeroBatch(n, seed).loss(net));
              }
              const auto report = opt.step();
              if (micro == 3) note(end, report);
            }
          return finish(std::move(end), opt);
        },
        2);
}

struct Norms : nn::Module {
  nn::Linear a{7, 16}, b{16, 3};
  nn::BatchNorm1d norm{16, {.accumulation = nn::BatchNormMode::per_step}};
  FIRN_MEMBERS(a, b, norm)
  Tensor forward(const Tensor& x) override { return b(relu(norm(a(x)))); }
};

TEST_CASE("[S07][S40][S43] zero 2: running statistics of BatchNorm are those of all ranks",
          "[host]") {
  check_near("BatchNorm", 1e-10, 3, [](const Group& group, int zero) {
    manual_seed(4);
    // In f32 Adam would make steps of the rounding errors that are the gradient of a bias before BatchNorm.
    Norms net;
    net.to(f64);
    optim::AdamW opt(net.parameters(), {.lr = 1e-3});
    distribute(opt, group, {.zero = zero});
    End end;
    for (int step = 0; step < 3; ++step) {
      const Rows rows(20, 7, 3, 60 + static_cast<std::uint64_t>(step), f64);
      note(end, opt.run_batch(20, {.size = 4, .split_statistics = true},
                              [&](std::int64_t first, std::int64_t last) {
                                return cross_entropy(net(rows.x.slice(0, first, last)),
                                                     rows.y.slice(0, first, last));
                              }));
    }
    for (const Tensor& t : {net.norm.running_mean, net.norm.running_var})
      for (const double v : values_of(t)) end.averages.push_back(v);
    return finish(std::move(end), opt);
  });
}

TEST_CASE("[S17][S40][S43] zero 2: graphs that differ between ranks, frozen parameters, groups",
          "[host]") {
  for (const std::int64_t bytes : {4, 100, 1 << 20}) {
    const SmallBuckets buckets(bytes);
    check_near(
        "graphs", 1e-12, 3,
        [](const Group& group, int zero) {
          manual_seed(4);
          SmallMlp one(f64), two(f64), frozen(f64);
          optim::AdamW opt({{.parameters = one.parameters(), .lr_scale = 2},
                            {.parameters = two.parameters()},
                            {.parameters = frozen.parameters()}},
                           {.lr = 1e-2});
          distribute(opt, group, {.zero = zero});
          const Rows rows(12, 7, 3, 60, f64);
          End end;
          for (int step = 0; step < 3; ++step) {
            const Freeze guard(frozen.parameters());
            for (int micro = 0; micro < 2; ++micro) {
              const Tensor x = rows.x.slice(0, 4 * group.rank(), 4 * group.rank() + 4);
              const Tensor y = rows.y.slice(0, 4 * group.rank(), 4 * group.rank() + 4);
              Tensor out = one(x);
              // The second network is used on rank 1 alone, and there before the first.
              if (group.rank() == 1) out = out + two(x) * 0.5;
              out = out + frozen(x);
              opt.backward(cross_entropy(out, y));
            }
            note(end, opt.step());
          }
          return finish(std::move(end), opt);
        },
        2);
  }
}

TEST_CASE("[S40][S43] zero 2: a hook sees the gradient of its rank, and may change it", "[host]") {
  check_near("hooks", 1e-12, 2, [](const Group& group, int zero) {
    manual_seed(4);
    SmallMlp net(f64);
    optim::SGD opt(net.parameters(), {.lr = 0.1});
    distribute(opt, group, {.zero = zero});
    add_hook(net.a.weight, [](const Tensor& g) { return g * 0.5; });
    const Rows rows(8, 7, 3, 60, f64);
    End end;
    for (int step = 0; step < 2; ++step)
      note(end, opt.run_batch(8, 2, [&](std::int64_t first, std::int64_t last) {
        return cross_entropy(net(rows.x.slice(0, first, last)), rows.y.slice(0, first, last));
      }));
    return finish(std::move(end), opt);
  });
}

TEST_CASE("[S15][S40][S43] zero 2: a cycle that overflows on one rank is repeated on all",
          "[host]") {
  check_near("retry", 2e-3, 3, [](const Group& group, int zero) {
    manual_seed(4);
    SmallMlp net;
    net.to(f16);
    optim::SGD opt(net.parameters(), {.lr = 0.1},
                   {.loss_scale = optim::LossScale::dynamic(
                        {.init = 0x1p12, .on_overflow = optim::OverflowPolicy::retry})});
    distribute(opt, group, {.zero = zero});
    const Rows rows(12, 7, 3, 61);
    const Tensor large = group.rank() == 1 ? full({4, 7}, 300.0) : ones({4, 7});
    End end;
    note(end, opt.run_batch(12, 4, [&](std::int64_t first, std::int64_t last) {
      const Tensor x = (rows.x.slice(0, first, last) * large.slice(0, 0, last - first)).to(f16);
      return cross_entropy(net(x), rows.y.slice(0, first, last));
    }));
    note(end, opt.run_batch(12, 2, [&](std::int64_t first, std::int64_t last) {
      return cross_entropy(net(rows.x.slice(0, first, last).to(f16)), rows.y.slice(0, first, last));
    }));
    return finish(std::move(end), opt);
  });
}

}  // namespace
}  // namespace firn::testing

// Exact mode with sharded gradients: the bits of one rank.
#include "data/files.h"
#include "dist/zero/zero.h"
#include "firn/io/run.h"

namespace firn::testing {
namespace {

using dist::distribute;
using dist::Group;

std::vector<OptimizerKind> exact_kinds() {
  using namespace optim;
  return {kind<SGD>("SGD", SGDOptions{.lr = 0.05, .momentum = 0.9}),
          kind<AdamW>("AdamW", AdamWOptions{.lr = 1e-2}),
          kind<AdamW>("AdamW in 8 bits", AdamWOptions{.lr = 1e-2, .state = StatePrecision::bits8}),
          kind<Muon>("Muon", MuonOptions{.lr = 1e-2}),
          kind<LAMB>("LAMB", LAMBOptions{.lr = 1e-2}),
          kind<Adafactor>("Adafactor", AdafactorOptions{.lr = 1e-2})};
}

/// Bits of weights, averages and reports after batches of 40, 21 and 5 tokens in chunks of 4. Five
/// tokens are two chunks: on four ranks two have none.
std::string train(const Group& group, const OptimizerKind& of, DType dtype, int zero,
                  double clip_value = 0) {
  manual_seed(4);
  ZeroNet net;
  net.to(dtype);
  optim::StepOptions step{
      .clip_norm = 0.5, .clip_value = clip_value, .ema = 0.9, .exact = {.chunk = 4}};
  if (dtype == f16)
    step.loss_scale =
        optim::LossScale::dynamic({.init = 0x1p24, .on_overflow = optim::OverflowPolicy::retry});
  const OptimizerPtr opt = of.make(net, step);
  distribute(*opt, group, {.zero = zero});
  std::string out;
  std::uint64_t seed = 30;
  for (const std::int64_t n : {40, 21, 5}) {
    const ZeroBatch batch(n, seed += 2);
    const auto report = opt->run_batch(
        n, 8, [&](std::int64_t first, std::int64_t last) { return batch.loss(net, first, last); });
    out += fmt::format("{} {} {:a} {:a} {:a} {}\n", report.applied(), report.weight(),
                       report.norm(), report.loss(), report.loss_scale(), report.micro_steps());
  }
  Bits bits;
  for (const Tensor& t : opt->parameters()) bits = bits + bits_of(t);
  for (const Tensor& t : optim::ema(*opt)) bits = bits + bits_of(t);
  return out + fmt::format("{:a} {}\n", opt->loss_totals().loss, opt->loss_totals().weight) +
         bits.bytes;
}

TEST_CASE("[S39][S43] zero 2 and 3: exact mode has the bits of one rank, for every kind of rule",
          "[host]") {
  for (const OptimizerKind& of : exact_kinds())
    for (const DType dtype : {f32, f16, bf16}) {
      const std::string one = train(Group(), of, dtype, 0);
      CHECK(mentions(one, {"true"}));
      for (const int ranks : {2, 3, 4}) {
        const SmallBuckets buckets(ranks == 3 ? 4 << 20 : 4000);
        CAPTURE(of.name, dtype, ranks);
        for (const auto& r :
             on_ranks<std::string>(ranks, [&](const Group& g) { return train(g, of, dtype, 2); }))
          CHECK(r == one);
      }
    }
}

TEST_CASE("[S39][S43] zero 2 and 3: exact mode clips by value and norm with the bits of one rank",
          "[host]") {
  const OptimizerKind of = exact_kinds()[1];
  const std::string one = train(Group(), of, f64, 0, 1e-3);
  CHECK(one != train(Group(), of, f64, 0));
  for (const std::int64_t bytes : {100, 20000}) {
    const SmallBuckets buckets(bytes);
    for (const int zero : {2, 3})
      for (const auto& r :
           on_ranks<std::string>(3, [&](const Group& g) { return train(g, of, f64, zero, 1e-3); }))
        CHECK(r == one);
  }
}

TEST_CASE("[S39][S43] zero 2 and 3: the norm has the bits of one rank over chunks and buckets",
          "[host]") {
  // Several chunks of 8192 elements, whose borders are not those of buckets and parts.
  const auto run = [](const Group& group, int zero) {
    manual_seed(4);
    nn::Sequential net{nn::Linear(90, 201), nn::GELU(), nn::Linear(201, 77), nn::GELU(),
                       nn::Linear(77, 3)};
    optim::AdamW opt(net.parameters(), {.lr = 1e-2}, {.clip_norm = 0.5, .exact = {.chunk = 2}});
    distribute(opt, group, {.zero = zero});
    std::string out;
    for (int step = 0; step < 2; ++step) {
      const Rows rows(14, 90, 3, 7 + static_cast<std::uint64_t>(step));
      out += fmt::format("{:a} ", opt.run_batch(14, 2,
                                                [&](std::int64_t first, std::int64_t last) {
                                                  return cross_entropy(
                                                      net(rows.x.slice(0, first, last)),
                                                      rows.y.slice(0, first, last));
                                                })
                                      .norm());
    }
    for (const Tensor& t : opt.parameters()) out += bits_of(t).bytes;
    return out;
  };
  const std::string one = run(Group(), 0);
  for (const std::int64_t bytes : {1000, 70000, 4 << 20})
    for (const int ranks : {2, 3, 5}) {
      const SmallBuckets buckets(bytes);
      CAPTURE(bytes, ranks);
      for (const int zero : {2, 3})
        for (const auto& r :
             on_ranks<std::string>(ranks, [&](const Group& g) { return run(g, zero); }))
          CHECK(r == one);
    }
}

TEST_CASE("[S17][S39][S43] zero 2 and 3: exact mode, and a parameter that some chunks do not reach",
          "[host]") {
  const auto run = [](const Group& group, int zero) {
    Tensor a = parameter({1}, {1}, f32), b = parameter({2}, {1}, f32), c = parameter({3}, {1}, f32);
    optim::AdamW opt({a, b, c}, {.lr = 0.1}, {.exact = {.chunk = 1}});
    distribute(opt, group, {.zero = zero});
    for (int step = 0; step < 3; ++step)
      opt.run_batch(5, 1, [&](std::int64_t first, std::int64_t) -> Loss {
        Tensor sum = objective(a, {0.1 * double(first)});
        if (first == 3) sum = sum + objective(b, {0.3});  // in one chunk alone
        return {sum, make({1}, {}, f32)};
      });
    Bits out;
    for (const Tensor& t : opt.parameters()) out = out + bits_of(t);
    return out.bytes;
  };
  const std::string one = run(Group(), 0);
  for (const std::int64_t bytes : {4, 1 << 20})
    for (const int ranks : {2, 3, 7}) {
      const SmallBuckets buckets(bytes);
      for (const auto& r : on_ranks<std::string>(ranks, [&](const Group& g) { return run(g, 2); }))
        CHECK(r == one);
    }
}

}  // namespace
}  // namespace firn::testing

// Divided weights: there while they are read, and whole in files.
#include "data/files.h"
#include "dist/zero/zero.h"
#include "firn/io/run.h"
#include "firn/runtime/storage.h"
#include "support/thread_check.h"

namespace firn::testing {
namespace {

using dist::distribute;
using dist::Group;

bool is_here(const Tensor& t) { return !t.storage()->is_absent(); }

void train(ZeroNet& net, optim::Optimizer& opt, int first, int last) {
  for (int step = first; step < last; ++step) {
    const ZeroBatch batch(12, 100 + static_cast<std::uint64_t>(step));
    opt.run_batch(12, 4,
                  [&](std::int64_t from, std::int64_t to) { return batch.loss(net, from, to); });
  }
}

TEST_CASE("[S43] zero 3: a weight has memory while its module runs", "[host]") {
  const SmallBuckets buckets(100);
  on_ranks<int>(3, [](const Group& group) {
    manual_seed(3);
    ZeroNet net(0);
    const ZeroBatch batch(6, 1);
    std::vector<double> before, after;
    {
      const NoGrad guard;
      net.eval();
      before = values_of(net(batch.ids));
      net.train();
    }
    optim::SGD opt(net.parameters(), {.lr = 0.1});
    distribute(opt, group, {.zero = 3});
    for (const Tensor& p : opt.parameters()) THREAD_CHECK(!is_here(p));
    std::vector<bool> within;
    net.in.add_forward_hook([&](nn::Module&, const nn::CallTensors&, const nn::CallTensors&) {
      within.push_back(is_here(net.in.weight));
      within.push_back(is_here(net.out.weight));
    });
    {
      const NoGrad guard;
      net.eval();
      after = values_of(net(batch.ids));
      net.train();
    }
    THREAD_CHECK(after == before);
    THREAD_CHECK(within == std::vector<bool>{true, false});
    for (const Tensor& p : opt.parameters()) THREAD_CHECK(!is_here(p));
    opt.backward(batch.loss(net));
    for (const Tensor& p : opt.parameters()) THREAD_CHECK(!is_here(p));
    opt.step();
    return 0;
  });
}

TEST_CASE("[S28][S43] zero 3: weights that all ranks write are those of the next step", "[host]") {
  for (const DType dtype : {f32, bf16}) {
    const SmallBuckets buckets(300);
    const auto run = [&](const Group& group, int zero) {
      manual_seed(2);
      ZeroNet net(0);
      net.to(dtype);
      optim::AdamW opt(net.parameters(), {.lr = 1e-2}, {.ema = 0.5});
      distribute(opt, group, {.zero = zero});
      train(net, opt, 0, 1);
      {
        const NoGrad guard;
        for (const Tensor& t : opt.parameters()) t.fill_(0.25);
      }
      for (const Tensor& t : opt.parameters())
        for (const double v : values_of(t)) THREAD_CHECK(v == 0.25);
      train(net, opt, 1, 2);
      std::vector<double> out = weights_of(opt);
      {
        const optim::AveragedWeights averaged(opt);
        for (const double v : weights_of(opt)) out.push_back(v);
      }
      for (const double v : weights_of(opt)) out.push_back(v);
      return out;
    };
    using Weights = std::vector<double>;
    const auto plain = on_ranks<Weights>(3, [&](const Group& g) { return run(g, 0); });
    for (const auto& w : on_ranks<Weights>(3, [&](const Group& g) { return run(g, 3); }))
      CHECK(w == plain[0]);
  }
}

TEST_CASE("[S33][S40][S43] zero 3: a saved run is the file of undivided ranks", "[host]") {
  const test::TempFolder folder;
  const SmallBuckets buckets(300);
  std::string files[2];
  const auto part = [&](const Group& group, int zero, int first, int last, bool load) {
    manual_seed(load ? 9 : 2);
    ZeroNet net(0);
    optim::AdamW opt(net.parameters(), {.lr = 1e-2}, {.ema = 0.5, .exact = {.chunk = 4}});
    distribute(opt, group, {.zero = zero});
    const std::string file = folder.file("run");
    if (load) io::load_run(file, {net, opt});
    train(net, opt, first, last);
    if (last < 4) io::save_run(file, {net, opt});
    for (const Tensor& p : opt.parameters())
      if (zero == 3) THREAD_CHECK(!is_here(p));
    return weights_of(opt);
  };
  using Weights = std::vector<double>;
  const auto whole = on_ranks<Weights>(3, [&](const Group& g) { return part(g, 0, 0, 4, false); });
  for (const int zero : {0, 3}) {
    on_ranks<Weights>(3, [&](const Group& g) { return part(g, zero, 0, 2, false); });
    files[zero / 3] = test::read_file(folder.file("run"));
    for (const int again : {3, 0})
      for (const auto& w :
           on_ranks<Weights>(3, [&](const Group& g) { return part(g, again, 2, 4, true); }))
        CHECK(w == whole[0]);
  }
  CHECK(files[0] == files[1]);
}

TEST_CASE("[S43] zero 3: one rank reads whole weights, which all have kept", "[host]") {
  const SmallBuckets buckets(100);
  on_ranks<int>(3, [](const Group& group) {
    manual_seed(3);
    ZeroNet net(0);
    optim::AdamW opt(net.parameters());
    const auto before = weights_of(opt);
    distribute(opt, group, {.zero = 3});
    {
      const optim::GatheredWeights whole(opt);
      if (group.rank() == 1) THREAD_CHECK(weights_of(opt) == before);
      const NoGrad guard;
      net.in.bias.fill_(0.5);
    }
    for (const Tensor& p : opt.parameters()) THREAD_CHECK(!is_here(p));
    for (const double v : values_of(net.in.bias)) THREAD_CHECK(v == 0.5);
    train(net, opt, 0, 1);
    return 0;
  });
}

TEST_CASE("[S43] zero 3: what has no weights is refused by name", "[host]") {
  const auto errors = errors_on_ranks(2, [](const Group& group) {
    manual_seed(2);
    SmallMlp net;
    std::string none, gone;
    {
      optim::AdamW opt(net.parameters());
      distribute(opt, group, {.zero = 3});
      none = error_of([&] { opt.no_samples(); });
    }
    gone = error_of([&] { (void)values_of(net.a.weight); });
    throw Error("all", none + gone);
  });
  for (const auto& e : errors)
    CHECK(mentions(e, {"a micro-step without samples", "run_batch()", "has lost its optimizer"}));
}

TEST_CASE("[S43] zero 3: ranks whose programs differ are refused on every rank", "[host]") {
  const SmallBuckets buckets(100);
  for (const auto& e : errors_on_ranks(
           2,
           [](const Group& group) {
             manual_seed(2);
             SmallMlp net;
             optim::AdamW opt(net.parameters());
             distribute(opt, group, {.zero = 3});
             const NoGrad guard;
             if (group.rank() == 1) (void)net.b(zeros({1, 16}));
             (void)net.a(zeros({1, 7}));
           },
           20))
    CHECK(mentions(e, {"rank 1 needs weights with number", "the same program"}));
}

TEST_CASE("[S43] zero 3: a rank keeps its part of everything", "[host]") {
  constexpr int kRanks = 4, kLayers = 12;
  constexpr std::int64_t kWidth = 256;
  constexpr std::size_t kLayer = kWidth * kWidth * 4;
  const SmallBuckets buckets(kLayer);
  // Ranks are threads of one process, so their memory is seen together.
  std::size_t kept[2], peak[2];
  for (const bool sharded : {false, true})
    dist::run_local(sharded ? kRanks : 1, [&](const Group& group) {
      manual_seed(1);
      nn::Sequential net;
      for (int i = 0; i < kLayers; ++i) net.push_back(nn::Linear(kWidth, kWidth, {.bias = false}));
      optim::AdamW opt(net.parameters(), {.lr = 1e-3});
      distribute(opt, group, {.zero = sharded ? 3 : 0});
      const Tensor x = ones({64, kWidth});
      const auto step = [&] {
        opt.run_batch(64, 16 / group.size(), [&](std::int64_t first, std::int64_t last) -> Loss {
          return {net(x.slice(0, first, last)).square().sum(), ones({})};
        });
      };
      step();
      group.barrier();
      if (group.rank() == 0) {
        const MemoryStats stats = memory_stats();
        kept[sharded] = 0;
        for (const Owner o : {Owner::weights, Owner::gradients, Owner::masters, Owner::optimizer})
          kept[sharded] += stats.of(o).current;
        reset_peak_memory();
      }
      group.barrier();
      step();
      group.barrier();
      if (group.rank() == 0) peak[sharded] = memory_stats().total.peak;
      group.barrier();
    });
  // Weights, gradients and two moments, beside tables.
  CHECK(kept[0] >= 4 * kLayers * kLayer);
  CHECK(kept[1] <= 4 * kLayers * kLayer + kRanks * (kLayers * 4 * 64 + 65536));
  const double share = static_cast<double>(peak[1]) / kRanks / static_cast<double>(peak[0]);
  CAPTURE(kept[0], kept[1], peak[0], peak[1]);
  CHECK(share <= 0.35);
}

TEST_CASE("[S28][S38] zero 3: weights that were written before a plan are those of the next step",
          "[host]") {
  for (const DType dtype : {f32, bf16})
    for (int zero = 0; zero < 4; ++zero)
      for (int plan = 0; plan < 3; ++plan) {
        std::vector<double> weight(2);
        dist::run_local(2, [&](const Group& group) {
          manual_seed(1);
          nn::Linear net(4, 2);
          net.to(dtype);
          optim::SGD opt(net.parameters(), {.lr = 0.0});
          distribute(opt, group, {.zero = zero});
          const Tensor x = ones({8, 4}, dtype), y = zeros({8}, i64);
          const auto step = [&] {
            opt.run_batch(8, 2, [&](std::int64_t first, std::int64_t last) {
              return cross_entropy(net(x.slice(0, first, last)), y.slice(0, first, last));
            });
          };
          step();
          {
            const NoGrad guard;
            fill_(net.weight, 0.25);
          }
          if (plan == 1) plan_memory(step);
          if (plan == 2) plan_memory([&] { net(x); });
          step();
          const optim::GatheredWeights whole(opt);
          weight[static_cast<std::size_t>(group.rank())] = net.weight[0][0].item();
          group.barrier();
        });
        CAPTURE(dtype, zero, plan);
        CHECK(weight == std::vector<double>{0.25, 0.25});
      }
}

}  // namespace
}  // namespace firn::testing

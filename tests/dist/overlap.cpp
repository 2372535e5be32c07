// Sums of gradients that are exchanged beside the last backward pass: the bits of those that are
// exchanged after it, and what comes of passes that fail.
#include <fmt/format.h>

#include <chrono>
#include <thread>

#include "dist/zero/zero.h"

namespace firn::testing {
namespace {

using dist::distribute;
using dist::Group;

struct Run {
  std::string bits, reports;
};

/// Steps on batches of `sizes` samples, in micro-batches of at most 4.
Run train(const Group& group, const OptimizerKind& kind, DType dtype, bool overlap, int zero = 0) {
  manual_seed(3);
  SmallMlp net(dtype == f16 ? f32 : dtype);
  net.to(dtype);
  const OptimizerPtr opt = kind.make(net, {.clip_norm = 0.5, .ema = 0.9});
  distribute(*opt, group, {.zero = zero, .overlap = overlap});
  Run out;
  std::uint64_t seed = 10;
  for (const std::int64_t n : {13, 16, 2, 9}) {  // of 2, two ranks of four have none
    const Rows rows(n, 7, 3, seed += 2);
    const auto report = opt->run_batch(n, 4, [&](std::int64_t first, std::int64_t last) {
      return cross_entropy(net(rows.x.slice(0, first, last).to(dtype)),
                           rows.y.slice(0, first, last));
    });
    out.reports += fmt::format("{} {} {:a} {:a} {}\n", report.applied(), report.weight(),
                               report.norm(), report.loss(), report.loss_scale());
  }
  const auto totals = opt->loss_totals();
  out.reports += fmt::format("{} {}", totals.loss, totals.weight);
  if (zero == 0)
    out.bits = bits_of_training(*opt).bytes;
  else
    for (const Tensor& p : opt->parameters()) out.bits += bits_of(p).bytes;
  return out;
}

TEST_CASE("[S40][S41] overlap: it changes no bit of any optimizer", "[host]") {
  for (const std::int64_t piece : {100, 4 << 20}) {
    const SmallBuckets pieces(piece);
    for (const OptimizerKind& k : all_kinds())
      for (const DType dtype : {f32, f16})
        for (const int zero : {0, 1}) {
          if (zero == 1 && std::string(k.name) == "ScheduleFreeAdamW") continue;
          CAPTURE(piece, k.name, dtype, zero);
          const auto after =
              on_ranks<Run>(4, [&](const Group& g) { return train(g, k, dtype, false, zero); });
          const auto beside =
              on_ranks<Run>(4, [&](const Group& g) { return train(g, k, dtype, true, zero); });
          for (std::size_t r = 0; r < 4; ++r) {
            CHECK(beside[r].bits == after[r].bits);
            CHECK(beside[r].reports == after[r].reports);
          }
        }
  }
}

TEST_CASE("[S17][S40] overlap: graphs that differ, frozen parameters, hooks, tied weights",
          "[host]") {
  const SmallBuckets pieces(200);
  const auto run = [](const Group& group, bool overlap) {
    manual_seed(5);
    ZeroNet net;  // with a checkpoint, a layer that is used twice, and a tied embedding
    nn::Linear extra(24, 24), frozen(24, 24);
    frozen.weight.set_requires_grad(false);
    std::vector<Tensor> parameters = net.parameters();
    for (const Tensor& p : extra.parameters()) parameters.push_back(p);
    parameters.push_back(frozen.bias);
    add_hook(net.out.weight, [](const Tensor& g) { return g * 0.5; });
    optim::AdamW opt(parameters, {.lr = 1e-2}, {.clip_norm = 1});
    distribute(opt, group, {.overlap = overlap});
    std::string out;
    for (int step = 0; step < 4; ++step) {
      const ZeroBatch batch(11, 100 + static_cast<std::uint64_t>(step));
      const auto loss = [&](std::int64_t first, std::int64_t last) {
        const Tensor h = net(batch.ids.slice(0, first, last));
        // One rank uses a layer, in some steps, and in some of its micro-batches.
        const bool more = group.rank() == 1 && step > 0 && (first + step) % 2 == 0;
        return linear_cross_entropy(more ? frozen(extra(h)) : h, net.tokens.weight,
                                    batch.next.slice(0, first, last));
      };
      if (step == 2) {  // a cycle by hand between two batches
        opt.backward(loss(group.rank(), group.rank() + 1));
        opt.step();
      } else {
        opt.run_batch(11, 2, loss);
      }
    }
    return bits_of_training(opt).bytes;
  };
  const auto after = on_ranks<std::string>(3, [&](const Group& g) { return run(g, false); });
  const auto beside = on_ranks<std::string>(3, [&](const Group& g) { return run(g, true); });
  for (std::size_t r = 0; r < 3; ++r) {
    CHECK(after[r] == after[0]);
    CHECK(beside[r] == after[r]);
  }
}

TEST_CASE("[S40] overlap: the last layer's sum is there while the first layer is at it", "[host]") {
  const SmallBuckets pieces(1);
  const auto seen = on_ranks<bool>(2, [](const Group& group) {
    manual_seed(2);
    nn::Linear first(7, 16), last(16, 3);
    std::vector<Tensor> parameters = first.parameters();
    for (const Tensor& p : last.parameters()) parameters.push_back(p);
    optim::SGD opt(parameters, {.lr = 0.0});
    distribute(opt, group, {.overlap = true});
    const Rows rows(2, 7, 3, 5);
    bool summed = false;
    opt.run_batch(2, 1, [&](std::int64_t from, std::int64_t to) {
      const Tensor h = relu(first(rows.x.slice(0, from, to)));
      add_hook(h, [&](const Tensor& g) {
        // The bias's gradients add up to 0 for a sample, and for all ranks' too: look at weights.
        const double own = sum(square(last.weight.grad())).item();
        for (int i = 0; i < 500 && !summed; ++i) {
          std::this_thread::sleep_for(std::chrono::milliseconds(10));
          summed = sum(square(last.weight.grad())).item() != own;
        }
        return g;
      });
      return cross_entropy(last(h), rows.y.slice(0, from, to));
    });
    return summed;
  });
  CHECK((seen[0] || seen[1]));
}

TEST_CASE("[S40][S42] overlap: a pass that fails on one rank fails on all, and leaves no trace",
          "[host]") {
  const SmallBuckets pieces(100);
  const auto run = [](const Group& group, bool fails) {
    manual_seed(8);
    SmallMlp net(f64);
    optim::AdamW opt(net.parameters(), {.lr = 1e-2});
    distribute(opt, group, {.overlap = true});
    const Rows rows(12, 7, 3, 60, f64);
    bool fail = false;
    std::string seen;
    const auto loss = [&](std::int64_t first, std::int64_t last) {
      const Tensor x = net.a(rows.x.slice(0, first, last));
      if (fail && group.rank() == 1 && last == 8)  // its last micro-batch
        add_hook(x, [](const Tensor& g) -> Tensor {
          if (g.defined()) throw Error("hook", "no");
          return g;
        });
      return cross_entropy(net.b(gelu(x)), rows.y.slice(0, first, last));
    };
    opt.run_batch(12, 2, loss);
    if (fails)
      for (int i = 0; i < 2; ++i) {
        fail = true;
        try {
          opt.run_batch(12, 2, loss);
        } catch (const Error& e) {
          seen = e.what();
        }
        fail = false;
        if (!mentions(seen, {group.rank() == 1 ? "[hook] no" : "rank 1 has failed"}))
          throw std::runtime_error("not the error of rank 1: " + seen);
        if (!gradients_are_zero(opt)) throw std::runtime_error("gradients are left");
      }
    opt.run_batch(12, 2, loss);
    const Rows one(1, 7, 3, 61, f64);  // the other ranks have none
    opt.run_batch(1, 1,
                  [&](std::int64_t, std::int64_t) { return cross_entropy(net(one.x), one.y); });
    return bits_of_training(opt).bytes;
  };
  const auto plain = on_ranks<std::string>(3, [&](const Group& g) { return run(g, false); });
  const auto after = on_ranks<std::string>(3, [&](const Group& g) { return run(g, true); });
  for (std::size_t r = 0; r < 3; ++r) CHECK(after[r] == plain[r]);
}

TEST_CASE("[S22][S37][S40] overlap: if memory runs out in a last pass, all halve", "[host]") {
  for (const bool in_last : {false, true}) {
    const auto run = [&](const Group& group, bool overlap) {
      manual_seed(8);
      SmallMlp net(f64);
      optim::SGD opt(net.parameters(), {.lr = 0.1}, {.keep_accumulator = in_last});
      distribute(opt, group, {.overlap = overlap});
      const Rows rows(16, 7, 3, 60, f64);
      const auto report = opt.run_batch(
          16, {.size = 4, .halve_on_out_of_memory = true},
          [&](std::int64_t first, std::int64_t last) {
            const Tensor x = net.a(rows.x.slice(0, first, last));
            const bool ends = last == (group.rank() == 1 ? 16 : 8);
            if (overlap && group.rank() == 1 && last - first > 2 && ends == in_last)
              add_hook(x, [](const Tensor&) -> Tensor { throw OutOfMemory("none", 1); });
            return cross_entropy(net.b(gelu(x)), rows.y.slice(0, first, last));
          });
      if (!report.applied()) throw std::runtime_error("not applied");
      if (overlap && group.rank() == 1 && report.memory_retries() != 1)
        throw std::runtime_error("rank 1 has not halved");
      return weights_of(opt);
    };
    const auto plain =
        on_ranks<std::vector<double>>(2, [&](const Group& g) { return run(g, false); });
    const auto halved =
        on_ranks<std::vector<double>>(2, [&](const Group& g) { return run(g, true); });
    CHECK(halved[0] == halved[1]);
    CHECK(relative_distance(halved[0], plain[0]) <= 1e-12);
  }
}

TEST_CASE("[S43] overlap: sharded weights come ahead of time, with the same bits", "[host]") {
  const SmallBuckets buckets(300);
  const auto run = [](const Group& group, bool overlap, std::int64_t chunk) {
    manual_seed(4);
    ZeroNet net(0.1);
    optim::AdamW opt(net.parameters(), {.lr = 1e-2}, {.exact = {.chunk = chunk}});
    distribute(opt, group, {.zero = 3, .overlap = overlap});
    std::string out;
    for (int step = 0; step < 4; ++step) {
      const ZeroBatch batch(step == 2 ? 4 : 12, 100 + static_cast<std::uint64_t>(step));
      const auto train = [&] {
        opt.run_batch(batch.ids.size(0), 4, [&](std::int64_t first, std::int64_t last) {
          return batch.loss(net, first, last);
        });
      };
      if (plan_memory(train).peak == 0) throw std::runtime_error("no plan");
      train();
      const NoGrad guard;  // buckets in another order than in a step, and a write
      net.eval();
      out += bits_of(net.in(ones({1, 24}))).bytes + bits_of(net(batch.ids)).bytes;
      net.train();
      if (step == 1) mul_(net.twice.bias, full({40}, 0.5));
    }
    try {
      opt.run_batch(12, 4, [&](std::int64_t, std::int64_t) -> Loss {
        const NoGrad guard;
        net.in(ones({1, 24}));
        throw Error("loss", "no");
      });
      throw std::runtime_error("no error");
    } catch (const Error& e) {
      if (!mentions(e.what(), {"[loss] no"})) throw;
    }
    const ZeroBatch batch(12, 1);
    opt.run_batch(
        12, 4, [&](std::int64_t first, std::int64_t last) { return batch.loss(net, first, last); });
    for (const Tensor& p : opt.parameters()) out += bits_of(p).bytes;
    return out;
  };
  for (const std::int64_t chunk : {0, 4}) {
    const auto after =
        on_ranks<std::string>(3, [&](const Group& g) { return run(g, false, chunk); });
    const auto ahead =
        on_ranks<std::string>(3, [&](const Group& g) { return run(g, true, chunk); });
    for (std::size_t r = 0; r < 3; ++r) CHECK(ahead[r] == after[r]);
  }
}

TEST_CASE("overlap: what exchanges gradients another way refuses it", "[host]") {
  const int ranks = GENERATE(1, 2);
  const auto error_of = [ranks](std::int64_t chunk, int zero) {
    return errors_on_ranks(ranks, [&](const Group& group) {
      manual_seed(1);
      SmallMlp net;
      optim::SGD opt(net.parameters(), {.lr = 0.1}, {.exact = {.chunk = chunk}});
      distribute(opt, group, {.zero = zero, .overlap = true});
    });
  };
  for (const std::string& e : error_of(4, 0)) CHECK(mentions(e, {"overlap", "exact mode"}));
  for (const std::string& e : error_of(0, 2)) CHECK(mentions(e, {"overlap", "ZeRO stage 2"}));
  for (const std::string& e : errors_on_ranks(2, [](const Group& group) {
         const dist::Mesh mesh(group, {.tp = 2});
         manual_seed(1);
         SmallMlp net;
         optim::SGD opt(net.parameters(), {.lr = 0.1});
         distribute(opt, mesh, {.overlap = true});
       }))
    CHECK(mentions(e, {"overlap", "share a model"}));
}

}  // namespace
}  // namespace firn::testing

// BatchNormMode::whole_batch: chunks are normalised by the statistics of their whole batch, forward
// and backward, on one rank or several.
#include "dist/exact_runs.h"
#include "firn/nn/layers/batch_norm.h"

namespace firn::testing {
namespace {

using dist::distribute;
using dist::Group;
using nn::BatchNormMode;

nn::BatchNormOptions whole(DType dtype = f32) {
  return {.accumulation = BatchNormMode::whole_batch, .dtype = dtype};
}

/// A residual block between batch norms, and a layer that is called twice.
struct NormedConv : nn::Module {
  static constexpr bool kImages = true;
  nn::Conv2d a{1, 4, 3, {.padding = 1}}, b{4, 4, 3, {.padding = 1, .bias = false}};
  nn::BatchNorm2d norm1{4, whole()}, norm2{4, whole()};
  nn::Linear head{4 * 3 * 2, 8}, last{8, 3};
  nn::BatchNorm1d norm3{
      8, {.affine = false, .track = false, .accumulation = BatchNormMode::whole_batch}};
  nn::Dropout drop{0.2};
  FIRN_MEMBERS(a, b, norm1, norm2, head, last, norm3, drop)
  Tensor forward(const Tensor& x) override {
    const Tensor h = relu(norm1(a(x)));
    const Tensor g = norm2(b(drop(h)));
    return last(norm3(head(flatten(relu(norm2(b(g)) + h), 1))));
  }
};

/// The same with blocks that are computed again.
struct AgainConv : NormedConv {
  Tensor forward(const Tensor& x) override {
    const Tensor h = relu(norm1(a(x)));
    const Tensor g = checkpoint([this](const Tensor& t) { return relu(norm2(b(drop(t))) + t); }, h);
    const Tensor f = checkpoint([this](const Tensor& t) { return norm3(head(flatten(t, 1))); }, g);
    return last(f);
  }
};

TEST_CASE("[S19][S39] exact: a network with batch norm has one set of bits for every cut",
          "[host]") {
  check_all_cuts<NormedConv>(f32);
  check_all_cuts<NormedConv>(f16, 0x1p24);  // the first steps overflow
  check_all_cuts<NormedConv>(bf16);
}

TEST_CASE("[S19][S35][S39] exact: batch norm in blocks that are computed again", "[host]") {
  check_all_cuts<AgainConv>(f32);
}

// ---- Compared with the batch in one piece ----

struct Small : nn::Module {
  nn::Linear a, b, c;
  nn::BatchNorm1d norm1, norm2;
  FIRN_MEMBERS(a, b, c, norm1, norm2)
  explicit Small(const nn::BatchNormOptions& norm)
      : a(7, 12, {.dtype = norm.dtype}),
        b(12, 12, {.dtype = norm.dtype}),
        c(12, 3, {.dtype = norm.dtype}),
        norm1(12, norm),
        norm2(12, norm) {}
  Tensor forward(const Tensor& x) override {
    const Tensor h = gelu(norm1(a(x)));
    return c(norm2(b(h)) + h);
  }
};

struct End {
  std::vector<double> weights, statistics;
  double loss = 0;
};

/// Three steps in f64, with weights of classes, so that chunks count differently.
End train_small(const Group& group, BatchNormMode mode, std::int64_t chunk) {
  manual_seed(5);
  Small net({.accumulation = mode, .dtype = f64});
  // Not Adam: biases in front of a batch norm have a gradient of 0, whose rounding it would
  // enlarge.
  optim::SGD opt(net.parameters(), {.lr = 0.1, .momentum = 0.9},
                 {.clip_norm = 0.5, .exact = {.chunk = chunk}});
  distribute(opt, group);
  const Tensor classes = tensor<double>({0.2, 1, 3}, {3});
  End end;
  for (std::uint64_t step = 0; step < 3; ++step) {
    const Rows rows(22, 7, 3, 50 + 2 * step, f64);
    end.loss = opt.run_batch(22, chunk > 0 ? chunk : 22,
                             [&](std::int64_t first, std::int64_t last) {
                               return cross_entropy(net(rows.x.slice(0, first, last)),
                                                    rows.y.slice(0, first, last),
                                                    {.class_weights = classes});
                             })
                   .loss();
  }
  end.weights = weights_of(opt);
  for (const auto& b : net.named_buffers())
    if (b.name.find("running") != std::string::npos || b.name.find("num_batches") == 0)
      for (const double v : values_of(b.tensor.to(f64))) end.statistics.push_back(v);
  return end;
}

TEST_CASE("[S19] whole_batch: chunks train as the batch in one piece does", "[host]") {
  const End expected = train_small(Group(), BatchNormMode::per_step, 0);
  REQUIRE(expected.statistics.size() == 4 * 12);
  const auto compare = [&](const End& e) {
    CHECK(relative_distance(e.weights, expected.weights) <= 1e-12);
    CHECK(relative_distance(e.statistics, expected.statistics) <= 1e-12);
    CHECK(std::abs(e.loss - expected.loss) <= 1e-12);
  };
  for (const std::int64_t chunk : {1, 4, 11, 22}) {  // one sample has no variance of its own
    CAPTURE(chunk);
    compare(train_small(Group(), BatchNormMode::whole_batch, chunk));
  }
  for (const int ranks : {2, 3, 7}) {  // six chunks: one of seven ranks has none
    CAPTURE(ranks);
    for (const End& e : on_ranks<End>(
             ranks, [](const Group& g) { return train_small(g, BatchNormMode::whole_batch, 4); }))
      compare(e);
  }
}

TEST_CASE("[S15][S19] whole_batch: statistics move once, and not for a step that is skipped",
          "[host]") {
  struct Outcome {
    bool applied;
    double updates;
    std::string bits;
  };
  const auto run = [](const Group& group, optim::OverflowPolicy policy) {
    manual_seed(4);
    Small net(whole());
    net.to(f16);
    optim::SGD opt(
        net.parameters(), {.lr = 0.1},
        {.loss_scale = optim::LossScale::dynamic({.init = 0x1p24, .on_overflow = policy}),
         .exact = {.chunk = 4}});
    distribute(opt, group);
    const Rows rows(16, 7, 3, 61);
    const bool applied =
        opt.run_batch(16, 4,
                      [&](std::int64_t first, std::int64_t last) {
                        return cross_entropy(net(rows.x.slice(0, first, last).to(f16)),
                                             rows.y.slice(0, first, last));
                      })
            .applied();
    return Outcome{applied, net.norm1.num_batches_tracked.item(),
                   bits_of(net.norm2.running_var).bytes + bits_of_training(opt).bytes};
  };
  const Outcome skipped = run(Group(), optim::OverflowPolicy::skip);
  const Outcome retried = run(Group(), optim::OverflowPolicy::retry);
  CHECK_FALSE(skipped.applied);
  CHECK(skipped.updates == 0);
  CHECK(retried.applied);
  CHECK(retried.updates == 1);
  for (const auto& r :
       on_ranks<Outcome>(3, [&](const Group& g) { return run(g, optim::OverflowPolicy::retry); })) {
    CHECK(r.updates == 1);
    CHECK((r.bits == retried.bits));  // not printed
  }
}

TEST_CASE("[S19] whole_batch: evaluation, frozen parts, and layers of other modes", "[host]") {
  const auto run = [](const Group& group) {
    manual_seed(6);
    nn::Sequential net{nn::Linear(6, 8), nn::BatchNorm1d(8, whole()), nn::Linear(8, 8),
                       nn::BatchNorm1d(8), nn::Linear(8, 3)};
    dynamic_cast<nn::BatchNorm1d&>(net[3]).eval();  // by its running statistics
    optim::SGD opt(net.parameters(), {.lr = 0.1}, {.exact = {.chunk = 3}});
    distribute(opt, group);
    for (int step = 0; step < 2; ++step) {
      const Rows rows(12, 6, 3, 70);
      const Freeze frozen(net[0].parameters());
      opt.run_batch(12, 3, [&](std::int64_t first, std::int64_t last) {
        const Autocast half(bf16);
        const Tensor x = rows.x.slice(0, first, last);
        return cross_entropy(net(x), rows.y.slice(0, first, last));
      });
    }
    net.eval();
    return bits_of_training(opt).bytes + bits_of(net(Rows(5, 6, 3, 80).x)).bytes;
  };
  const std::string one = run(Group());
  for (const auto& r : on_ranks<std::string>(2, run)) CHECK(r == one);
}

TEST_CASE("[S19] whole_batch: chunks have the modes of the caller", "[host]") {
  const auto run = [](bool around) {
    manual_seed(6);
    Small net(whole());
    optim::SGD opt(net.parameters(), {.lr = 0.1}, {.exact = {.chunk = 4}});
    const Rows rows(12, 7, 3, 70);
    std::optional<Autocast> outer;
    if (around) outer.emplace(bf16);
    opt.run_batch(12, 4, [&](std::int64_t first, std::int64_t last) {
      std::optional<Autocast> inner;
      if (!around) inner.emplace(bf16);
      return cross_entropy(net(rows.x.slice(0, first, last)), rows.y.slice(0, first, last));
    });
    return bits_of_training(opt).bytes;
  };
  CHECK(run(true) == run(false));
}

// ---- Failures ----

TEST_CASE("[S19][S37] whole_batch: a batch that fails leaves no trace in the next one", "[host]") {
  const Rows rows(20, 7, 3, 60);
  struct Run {
    Small net{whole()};
    optim::SGD opt{net.parameters(), {.lr = 0.1}, {.exact = {.chunk = 4}}};
  };
  const auto run = [&](bool fails) {
    manual_seed(8);
    Run r;
    const auto loss = [&](std::int64_t first, std::int64_t last) {
      return cross_entropy(r.net(rows.x.slice(0, first, last)), rows.y.slice(0, first, last));
    };
    r.opt.run_batch(20, 4, loss);
    const RandomKey stream = default_generator().get();
    for (const std::int64_t at : {0, 4, 16})
      for (const int when : {0, 1, 2, 3}) {  // in front, between layers, behind, in backward
        if (!fails) continue;
        CHECK_THROWS_AS(r.opt.run_batch(20, 4,
                                        [&](std::int64_t first, std::int64_t last) -> Loss {
                                          const auto fail = [=](int here) {
                                            if (first == at && when == here)
                                              throw OutOfMemory("none", 1);
                                          };
                                          fail(0);
                                          const Tensor h = gelu(
                                              r.net.norm1(r.net.a(rows.x.slice(0, first, last))));
                                          fail(1);
                                          add_hook(h, [=](const Tensor&) {
                                            fail(3);
                                            return Tensor();
                                          });
                                          const Tensor y = r.net.c(r.net.norm2(r.net.b(h)) + h);
                                          fail(2);
                                          return cross_entropy(y, rows.y.slice(0, first, last));
                                        }),
                        OutOfMemory);
        CHECK(gradients_are_zero(r.opt));
      }
    default_generator().set(stream);
    r.opt.run_batch(20, 4, loss);
    return bits_of_training(r.opt).bytes + bits_of(r.net.norm2.running_mean).bytes;
  };
  CHECK(run(true) == run(false));
}

TEST_CASE("[S19][S42] whole_batch: if a rank fails, all do, and can go on", "[host]") {
  for (const int when : {0, 1, 2}) {
    CAPTURE(when);
    const auto run = [when](const Group& group, bool fails) {
      manual_seed(8);
      Small net(whole());
      optim::SGD opt(net.parameters(), {.lr = 0.1}, {.exact = {.chunk = 2}});
      distribute(opt, group);
      const Rows rows(12, 7, 3, 60);
      const auto loss = [&](std::int64_t first, std::int64_t last, bool bad) -> Loss {
        const Tensor h = gelu(net.norm1(net.a(rows.x.slice(0, first, last))));
        if (bad && when == 0) throw std::runtime_error("of the user");
        const Tensor y = net.c(net.norm2(net.b(h)) + h);
        if (bad && when == 1) throw std::runtime_error("of the user");
        if (bad)
          add_hook(h, [](const Tensor&) -> Tensor { throw std::runtime_error("of the user"); });
        return cross_entropy(y, rows.y.slice(0, first, last));
      };
      std::string error;
      if (fails) try {
          opt.run_batch(12, 2, [&](std::int64_t first, std::int64_t last) {
            return loss(first, last, first == 6);  // a sample of rank 1 of 3
          });
        } catch (const std::exception& e) {
          error = e.what();
        }
      manual_seed(9);
      opt.run_batch(
          12, 2, [&](std::int64_t first, std::int64_t last) { return loss(first, last, false); });
      return std::pair(error, bits_of_training(opt).bytes);
    };
    using Outcome = std::pair<std::string, std::string>;
    const Outcome clean = run(Group(), false);
    const auto ends = on_ranks<Outcome>(3, [&](const Group& g) { return run(g, true); });
    CHECK(ends[1].first == "of the user");
    for (const int r : {0, 2}) CHECK(mentions(ends[r].first, {"rank 1 has failed"}));
    for (const Outcome& e : ends) CHECK(e.second == clean.second);
  }
}

TEST_CASE("[S19] whole_batch: what it cannot do is refused by name", "[host]") {
  const Rows rows(8, 7, 3, 70);
  manual_seed(5);
  Small net(whole());
  CHECK(mentions(error_of([&] { net(rows.x); }), {"whole_batch", "run_batch()", "exact"}));
  {
    optim::SGD opt(net.parameters(), {.lr = 0.1});
    CHECK(mentions(error_of([&] {
                     opt.run_batch(8, 4, [&](std::int64_t first, std::int64_t last) {
                       return cross_entropy(net(rows.x.slice(0, first, last)),
                                            rows.y.slice(0, first, last));
                     });
                   }),
                   {"whole_batch", "StepOptions::exact"}));
  }
  optim::SGD opt(net.parameters(), {.lr = 0.1}, {.exact = {.chunk = 4}});
  const auto loss = [&](std::int64_t first, std::int64_t last) {
    return cross_entropy(net(rows.x.slice(0, first, last)), rows.y.slice(0, first, last));
  };
  CHECK(mentions(
      error_of([&] { opt.run_batch(8, {.size = 4, .between = [](std::int64_t) {}}, loss); }),
      {"norm1 (BatchNorm1d)", "MicroBatch::between"}));
  // Chunks that call other layers.
  const auto other = [&](int what) {
    return [&net, &rows, what](std::int64_t first, std::int64_t last) {
      Tensor h = net.a(rows.x.slice(0, first, last));
      if (first == 0 || what != 0) h = net.norm1(h);
      h = net.b(h);
      if (first > 0 && what == 1) h = net.norm2(h);
      if (what == 2) h = first == 0 ? net.norm2(h) : net.norm2(h.slice(1, 0, 12)) * 2;
      return cross_entropy(net.c(h), rows.y.slice(0, first, last));
    };
  };
  CHECK(mentions(error_of([&] { opt.run_batch(8, 4, other(0)); }),
                 {"chunk 1 of this rank has ended", "chunk 0 is at"}));
  CHECK(
      mentions(error_of([&] { opt.run_batch(8, 4, other(1)); }),
               {"chunk 1 of this rank is at the forward pass of", "chunk 0 at the backward pass"}));
  CHECK(opt.run_batch(8, 4, other(2)).applied());
  CHECK(opt.run_batch(8, 4, loss).applied());

  const auto errors = errors_on_ranks(2, [&](const Group& group) {
    manual_seed(5);
    Small mine(whole());
    optim::SGD each(mine.parameters(), {.lr = 0.1}, {.exact = {.chunk = 4}});
    distribute(each, group);
    each.run_batch(8, 4, [&](std::int64_t first, std::int64_t last) {
      Tensor h = mine.norm1(mine.a(rows.x.slice(0, first, last)));
      if (first == 0) h = mine.norm2(mine.b(h));
      return cross_entropy(mine.c(h), rows.y.slice(0, first, last));
    });
  });
  for (const auto& e : errors) CHECK(mentions(e, {"rank 1 and rank 0", "different layers"}));
}

// ---- What chunks that take turns must not see of each other ----

TEST_CASE("[S19] whole_batch: a Freeze in the loss is that of its chunk", "[host]") {
  // A discriminator that trains on one term and is frozen in the other, as in a GAN.
  const auto run = [](const Group& group, std::int64_t chunk, bool first) {
    manual_seed(5);
    const bool exact = chunk > 0;
    Small d({.accumulation = exact ? BatchNormMode::whole_batch : BatchNormMode::per_step,
             .dtype = f64});
    nn::Linear g(7, 7, {.dtype = f64});
    auto parameters = d.parameters();
    for (const Tensor& p : g.parameters()) parameters.push_back(p);
    optim::SGD opt(parameters, {.lr = 0.1}, {.exact = {.chunk = chunk}});
    distribute(opt, group);
    const Rows rows(16, 7, 3, 60, f64);
    double norm = 0;
    for (int step = 0; step < 2; ++step)
      norm = opt.run_batch(16, exact ? chunk : 16,
                           [&](std::int64_t from, std::int64_t to) -> Loss {
                             const Tensor x = rows.x.slice(0, from, to),
                                          y = rows.y.slice(0, from, to);
                             const auto frozen = [&] {
                               const Freeze guard(d.parameters());
                               return cross_entropy(d(g(x)), y);
                             };
                             const auto free = [&] { return cross_entropy(d(x), y); };
                             return first ? frozen() + free() : free() + frozen();
                           })
                 .norm();
    return std::pair(norm, bits_of_training(opt).bytes);
  };
  for (const bool first : {false, true}) {
    CAPTURE(first);
    const double expected = run(Group(), 0, first).first;
    const auto one = run(Group(), 4, first);
    CHECK(std::abs(one.first - expected) <= 1e-12 * expected);
    CHECK(std::abs(run(Group(), 16, first).first - expected) <= 1e-12 * expected);
    using Outcome = std::pair<double, std::string>;
    for (const auto& r :
         on_ranks<Outcome>(4, [&](const Group& group) { return run(group, 4, first); }))
      CHECK((r.second == one.second));
  }
}

TEST_CASE("[S19] whole_batch: gradients that came another way, modes and nested calls are refused",
          "[host]") {
  const Rows rows(16, 7, 3, 60);
  for (const std::int64_t chunk : {4, 16}) {
    CAPTURE(chunk);
    manual_seed(5);
    Small net(whole());
    nn::Dropout drop(0.5);
    optim::SGD opt(net.parameters(), {.lr = 0.1}, {.exact = {.chunk = chunk}});
    const auto plain = [&](std::int64_t first, std::int64_t last) -> Loss {
      return cross_entropy(drop(net(rows.x.slice(0, first, last))), rows.y.slice(0, first, last));
    };
    const auto error_with = [&](const std::function<Loss(std::int64_t, std::int64_t)>& loss) {
      return error_of([&] { opt.run_batch(16, chunk, loss); });
    };
    CHECK(mentions(error_with([&](std::int64_t first, std::int64_t last) -> Loss {
                     net(rows.x.slice(0, first, last)).sum().backward();
                     return plain(first, last);
                   }),
                   {"did not come through the optimizer's backward"}));
    opt.zero_grad();
    CHECK(mentions(error_with([&](std::int64_t first, std::int64_t last) -> Loss {
                     net.norm1.eval();
                     const Loss out = plain(first, last);
                     net.norm1.train();
                     return out;
                   }),
                   {"train() or eval()"}));
    net.train();
    CHECK(mentions(error_with([&](std::int64_t first, std::int64_t last) -> Loss {
                     opt.run_batch(16, chunk, plain);
                     return plain(first, last);
                   }),
                   {"run_batch() inside the function of run_batch()"}));
    // Modes that are put back in time.
    CHECK(opt.run_batch(16, chunk,
                        [&](std::int64_t first, std::int64_t last) -> Loss {
                          drop.eval();
                          const Tensor x = drop(rows.x.slice(0, first, last));
                          drop.train();
                          return cross_entropy(net(x), rows.y.slice(0, first, last));
                        })
              .applied());
  }
}

TEST_CASE("[S19] whole_batch: chunks that swap two layers are refused by name", "[host]") {
  const Rows rows(8, 7, 3, 60);
  manual_seed(5);
  Small net(whole());
  optim::SGD opt(net.parameters(), {.lr = 0.1}, {.exact = {.chunk = 4}});
  const std::string error = error_of([&] {
    opt.run_batch(8, 4, [&](std::int64_t first, std::int64_t last) -> Loss {
      const Tensor h = net.a(rows.x.slice(0, first, last));
      const Tensor n = first == 0 ? net.norm2(net.norm1(h)) : net.norm1(net.norm2(h));
      return cross_entropy(net.c(n), rows.y.slice(0, first, last));
    });
  });
  CHECK(mentions(error, {"chunk 1 of this rank is at", "chunk 0 at"}));
}

TEST_CASE("[S19] whole_batch: the mode is shown, converted and copied", "[host]") {
  nn::Sequential net{nn::Linear(7, 4), nn::BatchNorm1d(4), nn::Linear(4, 3)};
  CHECK(nn::convert_batch_norm(net, BatchNormMode::whole_batch) == 1);
  auto& norm = dynamic_cast<nn::BatchNorm1d&>(net[1]);
  CHECK(mentions(norm.extra_repr(), {"whole_batch"}));
  CHECK(norm.pooled.defined());
  optim::SGD opt(net.parameters(), {.lr = 0.1}, {.exact = {.chunk = 4}});
  const Rows rows(8, 7, 3, 70);
  const auto train = [&] {
    opt.run_batch(8, 4, [&](std::int64_t first, std::int64_t last) {
      return cross_entropy(net(rows.x.slice(0, first, last)), rows.y.slice(0, first, last));
    });
  };
  train();
  CHECK(norm.num_batches_tracked.item() == 1);
  CHECK(nn::convert_to_group_norm(net, 2) == 1);
  train();
}

TEST_CASE("[S19][S38] whole_batch: a plan says the peak of a cycle", "[host]") {
  manual_seed(4);
  Small net(whole());
  optim::AdamW opt(net.parameters(), {}, {.exact = {.chunk = 4}});
  const Rows rows(64, 7, 3, 71);
  const auto loss = [&](std::int64_t first, std::int64_t last) {
    return cross_entropy(net(rows.x.slice(0, first, last)), rows.y.slice(0, first, last));
  };
  for (int i = 0; i < 2; ++i) {
    const auto before = bits_of_training(opt).bytes;
    const MemoryPlan plan = plan_memory([&] { opt.run_batch(64, 16, loss); });
    CHECK(bits_of_training(opt).bytes == before);
    reset_peak_memory(Device::cpu());
    CHECK(opt.run_batch(64, 16, loss).applied());
    CHECK(memory_stats(Device::cpu()).total.peak == plan.peak);
  }
}

}  // namespace
}  // namespace firn::testing

// Trainings whose model is sharded over ranks, beside those of one rank: weights, reports,
// clipping, overflows, dropout.
#include <fmt/format.h>

#include <cmath>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "dist/parallel/models.h"

namespace firn::testing {
namespace {

using dist::distribute;
using dist::Group;
using dist::Mesh;

std::string report_of(const optim::StepReport& r) {
  return fmt::format("{} {} {} {:a} {:a} {:a} {}\n", static_cast<int>(r.status()),
                     r.applied_steps(), r.skipped_steps(), r.norm(), r.loss(), r.loss_scale(),
                     r.micro_steps());
}

struct Outcome {
  std::string reports;
  std::vector<double> losses, norms;
  std::vector<double> same;          ///< parameters that every rank of tp has
  std::vector<NamedTensor> weights;  ///< this rank's
  double distance = 0;               ///< from the weights of one rank
};

/// Ten steps of a small language model.
Outcome train(const Group& all, const dist::MeshSizes& sizes, DType dtype,
              const std::vector<NamedTensor>& one = {},
              const optim::StepOptions& step = {.clip_norm = 0.5}, double dropout = 0) {
  const Mesh mesh(all, sizes);
  manual_seed(4);
  ParallelGpt net(mesh.tp(), dtype, dropout);
  optim::AdamW opt(net.named_parameters(), {.lr = 1e-2, .eps = 1e-5, .weight_decay = 0.01}, step);
  distribute(opt, mesh);
  Outcome out;
  for (int i = 0; i < 10; ++i) {
    const Tensor ids = tokens(12, static_cast<std::uint64_t>(i));
    const auto report = opt.run_batch(12, 3, [&](std::int64_t first, std::int64_t last) {
      return net.loss(ids.slice(0, first, last));
    });
    out.reports += report_of(report);
    out.losses.push_back(report.loss());
    out.norms.push_back(report.norm());
  }
  for (const Tensor& p : net.parameters())
    if (!dist::is_sharded(p))
      for (const double v : values_of(p)) out.same.push_back(v);
  out.weights = copies_of(net);
  out.distance = distance_from(one, net, mesh.tp());
  return out;
}

TEST_CASE("[S40] tensor parallel: a language model on 2 and 4 ranks trains as on one") {
  for (const auto& [dtype, bound] : {std::pair(f64, 1e-12), std::pair(f32, 1e-5)}) {
    CAPTURE(dtype);
    const DType t = dtype;
    const Outcome one = train(Group(), {}, t);
    CHECK(one.norms[0] > 0.5);  // clipping does something
    for (const dist::MeshSizes& sizes :
         {dist::MeshSizes{.tp = 2}, dist::MeshSizes{.tp = 4}, dist::MeshSizes{.dp = 2, .tp = 2}}) {
      CAPTURE(sizes.dp, sizes.tp);
      const auto all = on_ranks<Outcome>(
          sizes.dp * sizes.tp, [&](const Group& g) { return train(g, sizes, t, one.weights); });
      for (const Outcome& o : all) {
        CHECK(o.reports == all[0].reports);
        CHECK(o.same == all[0].same);
        CHECK(relative_distance(o.losses, one.losses) < bound);
        CHECK(relative_distance(o.norms, one.norms) < bound);
        CHECK(o.distance < bound);
      }
    }
  }
}

TEST_CASE("tensor parallel: f16 with a loss scale, clip_value and averages is alike on all ranks") {
  const optim::StepOptions step{.clip_norm = 1, .clip_value = 0.02, .ema = 0.9};
  const Outcome one = train(Group(), {}, f16, {}, step);
  for (const Outcome& o : on_ranks<Outcome>(4, [&](const Group& g) {
         return train(g, {.dp = 2, .tp = 2}, f16, one.weights, step);
       })) {
    CHECK(relative_distance(o.losses, one.losses) < 1e-2);
    CHECK(relative_distance(o.norms, one.norms) < 5e-2);
    CHECK(o.distance < 2e-2);
  }
}

TEST_CASE("tensor parallel: dropout of what every rank has is the same on all ranks") {
  // The ranks of tp draw from one stream alike, so the model is that of one rank, dropout included.
  const Outcome one = train(Group(), {}, f64, {}, {}, 0.2);
  const auto all = on_ranks<Outcome>(
      2, [&](const Group& g) { return train(g, {.tp = 2}, f64, one.weights, {}, 0.2); });
  CHECK(all[0].reports == all[1].reports);
  CHECK(all[0].same == all[1].same);
  for (const Outcome& o : all) CHECK(o.distance < 1e-12);
  const Outcome without = train(Group(), {}, f64);
  CHECK(relative_distance(one.losses, without.losses) > 1e-3);
}

// ---- The decision ----

/// One weight that is divided, and one that is not, whose gradients are given.
struct Pair {
  Tensor sharded, whole;
  explicit Pair(const Group& tp)
      : sharded(full({4 / tp.size()}, 1.0).set_requires_grad()),
        whole(full({2}, 1.0).set_requires_grad()) {
    dist::mark_sharded(sharded);
  }
  Tensor loss(double of_sharded, double of_whole) const {
    return (sharded * of_sharded).sum() + (whole * of_whole).sum();
  }
};

TEST_CASE(
    "[S40] tensor parallel: the norm counts all parts of what is divided, and the rest once") {
  const auto norms = on_ranks<std::vector<double>>(2, [](const Group& g) {
    const Mesh mesh(g, {.tp = 2});
    Pair p(g);
    optim::SGD opt({p.sharded, p.whole}, {.lr = 1}, {.clip_norm = 1});
    distribute(opt, mesh);
    // The gradient of the divided weight is 3, 3 here and 6, 6 there: 2 (9 + 36) + 2 * 4 = 98.
    // The loss is the same on both ranks, as that of a divided model.
    Tensor loss = p.loss(g.rank() == 0 ? 3 : 6, 2);
    const Tensor other = full({}, g.rank() == 0 ? 12.0 : 6.0);
    opt.backward(loss + other);
    const auto report = opt.step();
    return std::vector{report.norm(), values_of(p.sharded)[0], values_of(p.whole)[0]};
  });
  const double norm = std::sqrt(98.0), clip = 1 / (norm + 1e-6);
  for (std::size_t r = 0; r < 2; ++r) {
    CHECK(std::abs(norms[r][0] - norm) < 1e-12);
    CHECK(std::abs(norms[r][1] - (1 - (r == 0 ? 3 : 6) * clip)) < 1e-6);
    CHECK(std::abs(norms[r][2] - (1 - 2 * clip)) < 1e-6);
  }
  CHECK(norms[0][0] == norms[1][0]);
}

TEST_CASE(
    "[S40] tensor parallel: an overflow on one rank skips the step of all and moves all scales") {
  const auto reports = on_ranks<std::string>(4, [](const Group& g) {
    const Mesh mesh(g, {.dp = 2, .tp = 2});
    nn::Linear part(4, 2, {.dtype = f16}), same(4, 2, {.dtype = f16});
    for (nn::Linear* layer : {&part, &same})
      for (const Tensor& p : layer->parameters()) {
        const NoGrad guard;
        p.fill_(0.5);
      }
    dist::mark_sharded(part.weight);
    std::vector<Tensor> all = part.parameters();
    for (const Tensor& p : same.parameters()) all.push_back(p);
    optim::AdamW opt(all, {.lr = 1e-2}, {.loss_scale = optim::LossScale::dynamic({.init = 1024})});
    distribute(opt, mesh);
    std::string out;
    for (int i = 0; i < 3; ++i) {
      // Rank 3 has an infinity in the gradient of its part in step 1; its loss is as the others'.
      const double factor = g.rank() == 3 && i == 1 ? HUGE_VAL : 1.0;
      const Tensor x = ones({3, 4}, f16);
      Tensor y = part(x);
      add_hook(y, [factor](const Tensor& grad) { return grad * factor; });
      opt.backward({.sum = cast(y + same(x), f32).sum(), .weight = full({}, 3.0)});
      const auto r = opt.step();
      out += report_of(r) + r.culprit_name() + "\n";
    }
    for (const Tensor& p : all)
      for (const double v : values_of(p)) out += fmt::format("{:a} ", v);
    return out + fmt::format("{}", opt.loss_scale());
  });
  for (const std::string& r : reports) CHECK(r == reports[0]);
  CHECK(reports[0].find("512") != std::string::npos);
  CHECK(reports[0].find(
            fmt::format("{} 1 1", static_cast<int>(optim::StepStatus::skipped_non_finite))) !=
        std::string::npos);
}

TEST_CASE(
    "[S41] tensor parallel: copies without samples, and a batch of fewer samples than copies") {
  const auto weights = on_ranks<std::vector<double>>(4, [](const Group& g) {
    const Mesh mesh(g, {.dp = 2, .tp = 2});
    manual_seed(4);
    ParallelGpt net(mesh.tp(), f64);
    optim::SGD opt(net.parameters(), {.lr = 0.1});
    distribute(opt, mesh);
    const Tensor ids = tokens(1, 5);
    opt.run_batch(1, 1, [&](std::int64_t first, std::int64_t last) {
      return net.loss(ids.slice(0, first, last));
    });
    return weights_of(opt);
  });
  CHECK(weights[0] == weights[2]);
  CHECK(weights[1] == weights[3]);
}

// ---- What distribute() refuses ----

TEST_CASE("tensor parallel: distribute() refuses what it cannot train, and names it") {
  const auto has = [](const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
  };
  const auto errors = [](const std::function<void(const Mesh&, const Pair&)>& make_and_distribute) {
    return errors_on_ranks(2, [&](const Group& g) {
      const Mesh mesh(g, {.tp = 2});
      make_and_distribute(mesh, Pair(g));
    });
  };
  for (const std::string& e : errors([](const Mesh&mesh, const Pair&p) {
         optim::LAMB opt({p.whole, p.sharded});
         distribute(opt, mesh);
       }))
    CHECK(has(e, "parameter 1, [2] f32 cpu is sharded over ranks, and the rule of LAMB needs"));
  for (const std::string& e : errors([](const Mesh&mesh, const Pair&p) {
         optim::Adafactor opt({p.whole, p.sharded});
         distribute(opt, mesh);
       }))
    CHECK(has(e, "the rule of Adafactor needs the whole parameter"));
  for (const std::string& e : errors([](const Mesh&mesh, const Pair&p) {
         optim::SGD opt({p.whole, p.sharded});
         distribute(opt, mesh.tp(), {.broadcast = true});
       }))
    CHECK(has(e, "this rank has a part of parameter 1"));
  for (const std::string& e : errors([](const Mesh&mesh, const Pair&p) {
         optim::SGD opt({p.whole}, {.lr = 1}, {.exact = {.chunk = 2}});
         distribute(opt, mesh);
       }))
    CHECK(has(e, "exact mode works with copies of the model"));
  for (const std::string& e : errors([](const Mesh&mesh, const Pair&p) {
         if (mesh.tp().rank() == 1) {
           const NoGrad guard;
           p.whole.fill_(2);
         }
         optim::SGD opt({p.sharded, p.whole});
         distribute(opt, mesh);
       }))
    CHECK(has(e, "parameters.1.weight of rank 1 has other values than that of rank 0"));
  for (const std::string& e : errors([](const Mesh&mesh, const Pair&p) {
         if (mesh.tp().rank() == 1) dist::mark_sharded(p.whole);
         optim::SGD opt({p.sharded, p.whole});
         distribute(opt, mesh);
       }))
    CHECK(has(e, "\"parameter 1 is sharded\" and \"parameter 1 is whole\""));
  for (const std::string& e : errors([](const Mesh&mesh, const Pair&p) {
         optim::SGD opt({p.sharded, p.whole}, {.lr = mesh.tp().rank() + 1.0});
         distribute(opt, mesh);
         opt.backward(p.loss(1, 1));
         opt.step();
       }))
    CHECK(has(e, "has other values than"));
  for (const std::string& e : errors([](const Mesh&mesh, const Pair&p) {
         optim::SGD opt({p.sharded, p.whole});
         distribute(opt, mesh);
         opt.backward(p.loss(1 + mesh.tp().rank(), 1), 5);
         opt.step();
       }))
    CHECK(has(e,
              "rank 1 of a model has 1 micro-steps, a weight of 5 and losses of 6, and rank 0 1, "
              "5 and 4"));
}

TEST_CASE("tensor parallel: {.broadcast = true} takes what is not divided from the first rank") {
  const auto weights = on_ranks<std::vector<double>>(4, [](const Group& g) {
    const Mesh mesh(g, {.dp = 2, .tp = 2});
    Pair p(mesh.tp());
    {
      const NoGrad guard;
      p.sharded.fill_(g.rank());
      p.whole.fill_(10 + g.rank());
    }
    optim::SGD opt({p.sharded, p.whole});
    distribute(opt, mesh, {.broadcast = true});
    return weights_of(opt);
  });
  CHECK(weights[0] == std::vector<double>{0, 0, 10, 10});
  CHECK(weights[1] == std::vector<double>{1, 1, 10, 10});
  CHECK(weights[2] == weights[0]);
  CHECK(weights[3] == weights[1]);
}

}  // namespace
}  // namespace firn::testing

// fit() is the written loop: same bits, whatever it does beside it.
#include <cmath>
#include <optional>

#include "data/files.h"
#include "fit/small_runs.h"
#include "support/catch.h"

namespace firn::testing {
namespace {

struct Setting {
  DType dtype = f32;
  std::int64_t accumulate = 1;
  double ema = 0;
  bool drop_last = false;
};

struct Run {
  explicit Run(const Setting& s)
      : net(made(s.dtype)),
        opt(net.parameters(), {.lr = optim::warmup(3, optim::cosine(1e-2, 40))},
            {.accumulate = s.accumulate, .clip_norm = 1, .ema = s.ema}),
        loader(rows(70, 3), {.batch = 8, .shuffle = true, .seed = 2, .drop_last = s.drop_last}) {}
  static FitNet made(DType dtype) {
    manual_seed(4);
    FitNet net;
    net.to(dtype);
    return net;
  }
  Tensor operator()(const Tensor& x) { return net(x.to(net.in.weight.dtype())); }

  FitNet net;
  optim::AdamW opt;
  data::Loader loader;
};

std::string by_hand(const Setting& s, std::int64_t epochs) {
  Run r(s);
  for (std::int64_t e = 0; e < epochs; ++e) {
    r.opt.set_epoch(e);
    for (const auto& batch : r.loader.epoch(e)) {
      r.opt.backward(cross_entropy(r(batch.x()), batch.y()));
      r.opt.step();
    }
    r.opt.flush();
  }
  return bits_of_run(r.net, r.opt);
}

}  // namespace

TEST_CASE("[S44] fit: the bits of the written loop, with validation, metrics, log and checkpoints",
          "[host]") {
  const auto s = GENERATE(Setting{}, Setting{f16, 3, 0.9}, Setting{bf16, 2, 0, true},
                          Setting{f64, 1, 0.5}, Setting{f32, 4});
  CAPTURE(s.dtype, s.accumulate);
  const std::string expected = by_hand(s, 3);
  const bool all = GENERATE(false, true);
  const test::TempFolder folder;
  Run r(s);
  train::FitOptions o{.epochs = 3, .progress = false};
  o.forward = [&](const data::LoaderBatch& batch) { return r(batch.x()); };
  std::optional<data::Loader> validation;
  std::int64_t steps = 0;
  if (all) {
    validation.emplace(rows(33, 7), data::LoaderOptions{.batch = 10, .shuffle = true});
    o.validate = &*validation;
    o.log = {.path = folder.file("run.jsonl"), .every = 1};
    o.checkpoint = {.folder = folder.file("run"), .every = 3};
    o.callbacks.on_step = [&](train::Loop&, const std::string&, const optim::StepReport& report) {
      CHECK(report.applied());
      ++steps;
    };
  }
  const auto report = train::fit(r.net, r.opt, r.loader, class_loss, o);
  CHECK(bits_of_run(r.net, r.opt) == expected);
  CHECK(report.ended == train::Ended::epochs);
  CHECK(report.epochs == 3);
  CHECK(report.last.samples == r.loader.samples());
  CHECK(report.applied_steps == r.opt.last_report().applied_steps());
  if (all) CHECK(steps == report.applied_steps);
  CHECK(r.net.training());
}

TEST_CASE("fit: micro_batch is run_batch() of each batch", "[host]") {
  const auto by = [](std::int64_t size, bool hand) {
    Run r({.dtype = f32});
    if (!hand) {
      train::fit(r.net, r.opt, r.loader, class_loss,
                 {.epochs = 2, .micro_batch = optim::MicroBatch{.size = size}, .progress = false});
      return bits_of_run(r.net, r.opt);
    }
    for (std::int64_t e = 0; e < 2; ++e) {
      r.opt.set_epoch(e);
      for (const auto& batch : r.loader.epoch(e))
        r.opt.run_batch(batch.total, size, [&](std::int64_t first, std::int64_t last) {
          const auto part = batch.part(first, last);
          return cross_entropy(r(part.x()), part.y());
        });
    }
    return bits_of_run(r.net, r.opt);
  };
  CHECK(by(3, false) == by(3, true));
  CHECK(by(8, false) == by(8, true));
}

TEST_CASE("fit: on_step hears how memory made run_batch() cut the batch", "[host]") {
  Run r({.dtype = f32});
  train::FitOptions o{.epochs = 1, .micro_batch = optim::MicroBatch{.size = 4}, .progress = false};
  o.forward = [&](const data::LoaderBatch& batch) {
    if (batch.size() > 2) throw OutOfMemory("too many", 1);
    return r(batch.x());
  };
  std::vector<std::int64_t> sizes, retries;
  o.callbacks.on_step = [&](train::Loop&, const std::string&, const optim::StepReport& report) {
    sizes.push_back(report.micro_batch());
    retries.push_back(report.memory_retries());
  };
  train::fit(r.net, r.opt, r.loader, class_loss, o);
  REQUIRE(sizes.size() > 2);
  CHECK(sizes.front() == 2);
  CHECK(retries.front() == 1);
  CHECK(sizes[1] == 2);  // a size that worked is kept
  CHECK(retries[1] == 0);
}

TEST_CASE("fit: a GAN by a step of one's own, same bits", "[host]") {
  const auto run = [](bool hand, const std::string& log) {
    manual_seed(6);
    nn::MLP generator({4, 16, 6}), critic({6, 16, 1});
    optim::Adam opt_g(generator.parameters(), {.lr = 1e-3}, {.accumulate = 2});
    optim::SGD opt_c(critic.parameters(), {.lr = 1e-2});
    data::Loader loader(rows(50, 8), {.batch = 8, .shuffle = true});
    const auto step = [&](const data::LoaderBatch& batch) {
      const Tensor fake = generator(randn({batch.size(), 4}));
      const Tensor ones = full({batch.size(), 1}, 1.0), none = zeros({batch.size(), 1});
      opt_c.backward(bce_with_logits(critic(batch.x()), ones) +
                     bce_with_logits(critic(fake.detach()), none));
      opt_c.step();
      opt_g.backward(bce_with_logits(critic(fake), ones));
      opt_g.step();
    };
    if (hand) {
      for (std::int64_t e = 0; e < 3; ++e) {
        opt_g.set_epoch(e);
        opt_c.set_epoch(e);
        for (const auto& batch : loader.epoch(e)) step(batch);
        opt_g.flush();
        opt_c.flush();
      }
    } else {
      const auto report =
          train::fit({.modules = {{"generator", generator}, {"critic", critic}},
                      .optimizers = {{"generator", opt_g}, {"critic", opt_c}}},
                     loader, step,
                     {.epochs = 3,
                      .evaluate =
                          [] {
                            return std::vector<metrics::Value>{{"loss", 0.5}, {"fid", 12}};
                          },
                      .log = {.path = log, .every = 1},
                      .checkpoint = {.folder = log + ".run"},
                      .progress = false});
      CHECK(report.last.validation_loss == 0.5);
      CHECK(report.last.value("fid") == 12);
      CHECK(report.last.train_losses.size() == 2);
    }
    return bits_of_run(generator, opt_g) + bits_of_run(critic, opt_c);
  };
  const test::TempFolder folder;
  CHECK(run(false, folder.file("gan")) == run(true, ""));
  int generator_steps = 0, critic_steps = 0;
  for (const Json& r : records_of(folder.file("gan"))) {
    if (r["record"] == "epoch") CHECK(r["train_losses"].size() == 2);
    if (r["record"] == "step") ++(r["optimizer"] == "critic" ? critic_steps : generator_steps);
  }
  CHECK(critic_steps == 21);
  CHECK(generator_steps == 12);
}

namespace {

/// Tied embedding, attention with dropout, a language model of next tokens.
struct Gpt : nn::Module {
  nn::Embedding tokens{13, 16};
  nn::LayerNorm norm1{16}, norm2{16};
  nn::MultiHeadAttention attend{16, 2, {.causal = true, .dropout = 0.2, .rope_theta = 100.0}};
  nn::SwiGLU unit{16, 24};
  FIRN_MEMBERS(tokens, norm1, norm2, attend, unit)
  Tensor forward(const Tensor& ids) override {
    Tensor h = tokens(ids);
    h = h + attend(norm1(h));
    return norm2(h + unit(h));
  }
};

}  // namespace

TEST_CASE("fit: a language model under autocast, in micro-batches, checkpointed, same bits",
          "[host]") {
  const auto run = [](bool hand) {
    manual_seed(8);
    Gpt net;
    net.set_autocast(bf16);
    net.attend.set_checkpoint(CheckpointOptions{});
    optim::AdamW opt(net.parameters(), {.lr = optim::warmup(2, optim::cosine(1e-2, 12))},
                     {.clip_norm = 1});
    const Tensor ids = argmax(randn({40, 7, 13}));
    data::Loader loader(data::TensorDataset({ids.slice(1, 0, 6), ids.slice(1, 1, 7)}),
                        {.batch = 8, .shuffle = true, .seed = 3});
    const auto loss = [&](const Tensor& hidden, const Tensor& next) {
      return linear_cross_entropy(hidden, net.tokens.weight, next);
    };
    if (hand) {
      for (std::int64_t e = 0; e < 2; ++e) {
        opt.set_epoch(e);
        for (const auto& batch : loader.epoch(e))
          opt.run_batch(batch.total, 3, [&](std::int64_t first, std::int64_t last) {
            const auto part = batch.part(first, last);
            return loss(net(part.x()), part.y());
          });
      }
    } else {
      data::Loader validation(data::TensorDataset({ids.slice(1, 0, 6), ids.slice(1, 1, 7)}),
                              {.batch = 16});
      const auto report = train::fit(net, opt, loader, loss,
                                     {.epochs = 2,
                                      .validate = &validation,
                                      .micro_batch = optim::MicroBatch{.size = 3},
                                      .progress = false});
      CHECK(std::isfinite(report.last.validation_loss));
      CHECK(report.applied_steps == 10);
    }
    return bits_of_run(net, opt);
  };
  CHECK(run(false) == run(true));
}

TEST_CASE("fit: images on the device, several steps an epoch, epochs after one another", "[host]") {
  const auto run = [](bool hand) {
    manual_seed(2);
    const data::LabelledImages images{(rand({30, 4, 4}) * 255).to(u8), arange(30, i64)};
    nn::MLP net({16, 8, 30});
    optim::Adam opt(net.parameters(), {.lr = 1e-2});
    data::ResidentBatches batches(data::ImageDataset(images, {.flatten = true}),
                                  {.batch = 7, .shuffle = true, .seed = 1});
    const auto step = [&] {
      const auto [x, y] = batches.next();
      opt.backward(cross_entropy(net(x), y));
      opt.step();
    };
    if (hand) {
      for (std::int64_t e = 0; e < 3; ++e) {
        opt.set_epoch(e);
        batches.begin_epoch(e);
        while (batches.remaining() > 0) step();
      }
    } else {
      train::fit({.modules = {{"", net}}, .optimizers = {{"", opt}}}, batches, step,
                 {.epochs = 3, .progress = false});
    }
    return bits_of_run(net, opt);
  };
  CHECK(run(false) == run(true));
}

TEST_CASE("fit: all of the validation set counts, wherever its loader was left", "[host]") {
  const auto loss = [](bool left_inside) {
    Run r({});
    data::Loader validation(rows(20, 7), {.batch = 8});
    if (left_inside)
      for (const auto& batch : validation.epoch(0))
        if (batch.size() > 0) break;
    return train::fit(r.net, r.opt, r.loader, class_loss,
                      {.epochs = 1, .validate = &validation, .progress = false})
        .last.validation_loss;
  };
  CHECK(loss(true) == loss(false));
}

TEST_CASE("fit: modes of modules stay, in training and in evaluation", "[host]") {
  Run r({});
  r.net.own.eval();
  bool frozen = true;
  r.net.own.add_forward_hook([&](nn::Module& m, auto&&...) { frozen = frozen && !m.training(); });
  data::Loader validation(rows(20, 7), {.batch = 8});
  train::fit(r.net, r.opt, r.loader, class_loss,
             {.epochs = 1, .validate = &validation, .progress = false});
  CHECK(frozen);
  CHECK(r.net.shared.training());
  CHECK_FALSE(r.net.own.training());
  r.net.eval();
  train::fit(r.net, r.opt, r.loader, class_loss, {.epochs = 1, .progress = false});
  CHECK(r.net.own.training());
}

}  // namespace firn::testing

// What fit() refuses, before anything is trained; and what ranks do together.
#include <atomic>
#include <csignal>
#include <mutex>

#include "data/files.h"
#include "fit/small_runs.h"
#include "support/catch.h"
#include "support/matchers.h"
#include "support/thread_check.h"
#include "support/values.h"

namespace firn::testing {
namespace {

struct Small {
  Small() : loader(rows(20, 3), {.batch = 4}) {}
  FitNet net;
  optim::AdamW opt{net.parameters(), {.lr = 1e-2}};
  data::Loader loader;
};

std::string refusal(const train::FitOptions& o, bool own_step = false) {
  Small s;
  try {
    if (own_step)
      train::fit(
          {.modules = {{"", s.net}}, .optimizers = {{"", s.opt}}}, s.loader,
          [](const data::LoaderBatch&) {}, o);
    else
      train::fit(s.net, s.opt, s.loader, class_loss, o);
  } catch (const Error& e) {
    CHECK(s.opt.last_report().applied_steps() == 0);
    return e.what();
  }
  return "nothing";
}

}  // namespace

TEST_CASE("[S15][S45] fit: an optimizer that retries needs whole batches", "[host]") {
  FitNet net;
  optim::AdamW opt(
      net.parameters(), {.lr = 1e-2},
      {.loss_scale = optim::LossScale::dynamic({.on_overflow = optim::OverflowPolicy::retry})});
  data::Loader loader(rows(20, 3), {.batch = 4});
  CHECK_THAT(error_of([&] { train::fit(net, opt, loader, class_loss, {.epochs = 1}); }),
             test::contains("OverflowPolicy::retry") && test::contains("micro_batch"));
  train::fit(net, opt, loader, class_loss,
             {.epochs = 1, .micro_batch = optim::MicroBatch{.size = 2}, .progress = false});
  CHECK(opt.last_report().applied_steps() == 5);
}

TEST_CASE("fit: options that contradict each other are refused", "[host]") {
  const test::TempFolder folder;
  data::Loader other(rows(4, 1));
  const auto evaluate = [] { return std::vector<metrics::Value>(); };
  CHECK_THAT(refusal({.epochs = 0}), test::contains("epochs is 0"));
  CHECK_THAT(refusal({.validate = &other, .evaluate = evaluate}), test::contains("both"));
  CHECK_THAT(refusal({.metrics = {nullptr}}), test::contains("nothing to compute them on"));
  CHECK_THAT(refusal({.validate = &other, .metrics = {nullptr}}), test::contains("null"));
  CHECK_THAT(refusal({.log = {.every = 3}}), test::contains("log.path"));
  CHECK_THAT(refusal({.log = {.settings = train::Record("x")}}), test::contains("log.path"));
  CHECK_THAT(refusal({.checkpoint = {.every = 3}}), test::contains("checkpoint.folder"));
  CHECK_THAT(refusal({.early_stop = {.patience = -1}}), test::contains("patience -1"));
  CHECK_THAT(refusal({.limit = {.steps = -1}}), test::contains("-1 steps"));
  CHECK_THAT(refusal({.validate = &other}, true), test::contains("validate"));
  CHECK_THAT(refusal({.micro_batch = optim::MicroBatch{.size = 2}}, true),
             test::contains("micro_batch"));
  CHECK_THAT(refusal({.early_stop = {.value = "accuracy"}}), test::contains("\"accuracy\""));
  CHECK_THAT(refusal({.validate = &other,
                      .metrics = {std::make_shared<metrics::Accuracy>()},
                      .early_stop = {.value = "acc"}}),
             test::contains("there is loss, accuracy"));
  CHECK_THAT(refusal({.validate = &other,
                      .metrics = {std::make_shared<metrics::Accuracy>(),
                                  std::make_shared<metrics::Accuracy>()}}),
             test::contains("two metrics have a value \"accuracy\""));
  CHECK_THAT(refusal({.log = {.path = folder.file("no/log")}}), test::contains("folder"));
  Small s;
  CHECK_THROWS_WITH(train::fit(s.net, s.opt, s.loader, nullptr),
                    test::contains("the loss is empty"));
  CHECK_THROWS_WITH(train::fit({}, s.loader, [](const data::LoaderBatch&) {}),
                    test::contains("no optimizer"));
  optim::Adam second(nn::MLP({2, 2}).parameters(), {.lr = 1e-2});
  CHECK_THROWS_WITH(train::fit({.optimizers = {{"a", s.opt}, {"a", second}}}, s.loader,
                               [](const data::LoaderBatch&) {}),
                    test::contains("called \"a\""));
  CHECK_THROWS_WITH(train::fit({.optimizers = {{"a", s.opt}, {"", second}}}, s.loader,
                               [](const data::LoaderBatch&) {}),
                    test::contains("no name"));
  train::fit(s.net, s.opt, s.loader, class_loss,
             {.checkpoint = {.folder = folder.file("run")}, .progress = false});
  Small again;
  CHECK_THROWS_WITH(train::fit(again.net, again.opt, again.loader, class_loss,
                               {.checkpoint = {.folder = folder.file("run"), .resume = false}}),
                    test::contains("earlier run"));
}

TEST_CASE("fit: an exception in the middle leaves optimizer and handlers usable", "[host]") {
  Small s;
  struct sigaction before {
  }, after{};
  ::sigaction(SIGTERM, nullptr, &before);
  int calls = 0;
  const auto fails = [&](const Tensor& out, const Tensor& y) {
    if (++calls == 3) throw std::runtime_error("no more");
    return cross_entropy(out, y);
  };
  CHECK_THROWS_WITH(train::fit(s.net, s.opt, s.loader, fails, {.progress = false}), "no more");
  ::sigaction(SIGTERM, nullptr, &after);
  CHECK(after.sa_handler == before.sa_handler);
  // A nested fit() of the same optimizer is refused; another one may go on.
  train::FitOptions o{.progress = false};
  bool refused = false;
  o.callbacks.on_step = [](train::Loop&, const std::string&, const optim::StepReport&) {};
  const auto inner = o;
  o.callbacks.on_batch = [&](train::Loop&) {
    try {
      data::Loader loader(rows(8, 3), {.batch = 4});
      train::fit(s.net, s.opt, loader, class_loss, inner);
    } catch (const Error& e) {
      refused = std::string(e.what()).find("one fit() at a time") != std::string::npos;
    }
  };
  train::fit(s.net, s.opt, s.loader, class_loss, o);
  CHECK(refused);
}

TEST_CASE("fit: callbacks come in their order, and say where training is", "[host]") {
  Small s;
  std::string order;
  train::FitOptions o{.epochs = 2, .progress = false};
  o.callbacks = {
      .on_start = [&](train::Loop& l) { order += "start" + std::to_string(l.epochs()); },
      .on_epoch_start = [&](train::Loop& l) { order += " [" + std::to_string(l.epoch()); },
      .on_batch = [&](train::Loop& l) { order += ' ' + std::to_string(l.samples()); },
      .on_step = [&](train::Loop&, const std::string&, const optim::StepReport&) { order += " s"; },
      .on_epoch_end =
          [&](train::Loop& l, train::EpochReport& r) {
            CHECK(l.epoch_samples() == 20);
            CHECK(r.samples == 20);
            order += ']';
            if (r.epoch == 2) l.stop();
          }};
  const auto report = train::fit(s.net, s.opt, s.loader, class_loss, o);
  CHECK(order == "start2 [1 s 4 s 8 s 12 s 16 s 20] [2 s 4 s 8 s 12 s 16 s 20]");
  CHECK(report.ended == train::Ended::epochs);
}

TEST_CASE("[S41] fit: the end of an epoch is no step of ranks that have nothing to flush",
          "[host]") {
  const auto accumulate = GENERATE(1, 3);
  const auto zero = GENERATE(0, 2);
  CAPTURE(accumulate, zero);
  dist::run_local(2, [&](const dist::Group& group) {
    manual_seed(4);
    nn::MLP net({6, 8, 3});
    optim::Adam opt(net.parameters(), {.lr = 1e-2}, {.accumulate = accumulate});
    dist::distribute(opt, group, {.zero = zero});
    // Of 25 samples the last batch has 1, which is rank 0's.
    data::Loader loader(rows(25, 3), {.batch = 4, .group = group});
    const auto report = train::fit(net, opt, loader, class_loss, {.epochs = 2, .progress = false});
    THREAD_CHECK(report.last.skipped_steps == 0);
    THREAD_CHECK(report.applied_steps == (accumulate == 1 ? 14 : 6));
  });
}

TEST_CASE("fit: sharded weights need samples of each batch on each rank", "[host]") {
  const auto drop_last = GENERATE(false, true);
  const auto chunk = GENERATE(0, 2);
  CAPTURE(drop_last, chunk);
  dist::run_local(2, [&](const dist::Group& group) {
    manual_seed(4);
    nn::MLP net({6, 8, 3});
    optim::Adam opt(net.parameters(), {.lr = 1e-2}, {.exact = {.chunk = chunk}});
    dist::distribute(opt, group, {.zero = 3});
    data::Loader loader(rows(25, 3), {.batch = 4,
                                      .drop_last = drop_last,
                                      .group = group,
                                      .chunk = std::max<std::int64_t>(chunk, 1)});
    const train::FitOptions o{
        .epochs = 2, .micro_batch = optim::MicroBatch{.size = 2}, .progress = false};
    const auto run = [&] { return train::fit(net, opt, loader, class_loss, o); };
    const std::string refused = drop_last ? "" : error_of(run);
    const auto trained = drop_last ? run() : train::FitReport{};
    if (drop_last) {
      THREAD_CHECK(trained.applied_steps == 12);
    } else {
      THREAD_CHECK(
          refused ==
          "[fit] rank 1 has no samples of a batch of 1, and with sharded weights every rank "
          "needs some; hint: set drop_last, or choose a batch that leaves each rank samples, "
          "also of the last one of an epoch");
      THREAD_CHECK(opt.last_report().applied_steps() == 0);
    }
  });
}

TEST_CASE("fit: ranks train as one, one of them logs, and if one asks all end", "[host]") {
  const auto run = [](int ranks, int asks, const std::string& folder) {
    std::string bits;
    std::mutex mutex;
    std::vector<train::FitReport> reports(static_cast<std::size_t>(ranks));
    dist::run_local(ranks, [&](const dist::Group& group) {
      manual_seed(4);
      FitNet net;
      net.own.eval();  // its stream is no part of exact mode
      optim::AdamW opt(net.parameters(), {.lr = 1e-2}, {.exact = {.chunk = 2}});
      dist::distribute(opt, group);
      data::Loader loader(rows(50, 3), {.batch = 16, .shuffle = true, .group = group, .chunk = 2});
      data::Loader validation(rows(30, 5), {.batch = 8, .group = group});
      train::FitOptions o{.epochs = 2,
                          .validate = &validation,
                          .micro_batch = optim::MicroBatch{.size = 4},
                          .log = {.path = folder + "/log", .every = 1},
                          .checkpoint = {.folder = folder + "/run"},
                          .progress = false};
      int batches = 0;
      o.callbacks.on_batch = [&](train::Loop& loop) {
        if (group.rank() == asks && ++batches == 5) loop.stop();
      };
      auto report = train::fit(net, opt, loader, class_loss, o);
      const std::lock_guard lock(mutex);
      reports[static_cast<std::size_t>(group.rank())] = report;
      if (group.rank() == 0) {
        for (const auto& [name, t] : io::state_of(net)) bits += bits_of(t);
      }
    });
    for (const auto& r : reports) {
      CHECK(r.ended == (asks < 0 ? train::Ended::epochs : train::Ended::asked));
      CHECK(r.last.validation_loss == reports[0].last.validation_loss);
      CHECK(r.last.train_loss == reports[0].last.train_loss);
      CHECK(r.last.samples == reports[0].last.samples);
    }
    return bits;
  };
  std::string one;
  std::vector<Json> log;
  for (const int ranks : {1, 2, 3}) {
    const test::TempFolder folder, stopped;
    const std::string bits = run(ranks, -1, folder.path().string());
    if (ranks == 1) one = bits;
    CHECK(bits == one);
    auto records = records_of(folder.file("log"), true);
    for (Json& r : records) {
      r.erase("ranks");
      r.erase("threads");
      // To rounding only: each rank adds up its own part.
      r.erase("validation_loss");
      r.erase("best");
    }
    if (ranks == 1) log = records;
    CHECK(records == log);
    if (ranks == 1) continue;
    run(ranks, 1, stopped.path().string());
    CHECK(run(ranks, -1, stopped.path().string()) == one);
  }
}

}  // namespace firn::testing

// A run that fit() was stopped in, anywhere, goes on to the bits and the log of the whole one.
#include <fcntl.h>
#include <unistd.h>

#include <cmath>
#include <csignal>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <stdexcept>

#include "data/files.h"
#include "fit/small_runs.h"
#include "support/catch.h"
#include "support/matchers.h"

namespace firn::testing {
namespace {

struct Killed {};

struct Outcome {
  std::string bits;
  train::FitReport report;
};

/// A run in new objects. `stop` is called after each batch, and may throw.
Outcome run(const test::TempFolder& folder, const std::function<void(train::Loop&)>& stop,
            train::FitOptions o = {}) {
  manual_seed(4);
  FitNet net;
  optim::AdamW opt(net.parameters(), {.lr = optim::cosine(1e-2, 60)},
                   {.accumulate = 2, .clip_norm = 1, .ema = 0.9});
  data::Loader loader(rows(75, 3), {.batch = 8, .shuffle = true, .seed = 9});
  data::Loader validation(rows(30, 5), {.batch = 7});
  o.epochs = o.epochs == 1 ? 4 : o.epochs;
  o.validate = &validation;
  o.log.path = folder.file("log");
  o.log.every = 1;
  o.checkpoint.folder = folder.file("run");
  if (o.checkpoint.every == 0) o.checkpoint.every = 2;
  o.progress = false;
  o.callbacks.on_batch = stop;
  Outcome out;
  out.report = train::fit(net, opt, loader, class_loss, o);
  out.bits = bits_of_run(net, opt);
  return out;
}

void check_same(const Outcome& whole, const Outcome& resumed) {
  CHECK(resumed.bits == whole.bits);
  CHECK(resumed.report.last.train_loss == whole.report.last.train_loss);
  CHECK(resumed.report.last.validation_loss == whole.report.last.validation_loss);
  CHECK(resumed.report.last.samples == whole.report.last.samples);
  CHECK(resumed.report.best == whole.report.best);
  CHECK(resumed.report.best_epoch == whole.report.best_epoch);
}

}  // namespace

TEST_CASE("[S34] fit: 50 runs that are stopped anywhere end with the same bits and the same log",
          "[host][training]") {
  const test::TempFolder one;
  const Outcome whole = run(one, nullptr);
  const auto log = records_of(one.file("log"), true);
  REQUIRE(log.size() == 2 + 4 + 20 + 48);
  Generator g(1);
  const GeneratorScope scope(g);
  for (int round = 0; round < 50; ++round) {
    const test::TempFolder folder;
    int kills = 0;
    for (;; ++kills) {
      REQUIRE(kills < 100);
      const auto left = static_cast<int>(rand({1}).item() * 14);
      const bool kill = rand({1}).item() < 0.7;
      int batches = 0;
      const GeneratorScope own(default_generator());
      try {
        const Outcome resumed = run(folder, [&](train::Loop& loop) {
          if (batches++ != left) return;
          if (kill) throw Killed();
          loop.stop();
        });
        if (resumed.report.ended == train::Ended::asked) continue;
        check_same(whole, resumed);
        break;
      } catch (const Killed&) {
      }
    }
    CAPTURE(round, kills);
    CHECK(records_of(folder.file("log"), true) == log);
  }
}

TEST_CASE("fit: Ctrl-C ends after the batch under way, with a checkpoint", "[host]") {
  const test::TempFolder one, folder;
  const Outcome whole = run(one, nullptr);
  struct sigaction before {
  }, after{};
  ::sigaction(SIGINT, nullptr, &before);
  int batches = 0;
  const Outcome stopped = run(folder, [&](train::Loop&) {
    if (++batches == 13) ::raise(SIGINT);
  });
  ::sigaction(SIGINT, nullptr, &after);
  CHECK(after.sa_handler == before.sa_handler);
  CHECK(batches == 13);
  CHECK(stopped.report.ended == train::Ended::interrupted);
  CHECK(stopped.report.epochs == 1);
  CHECK(records_of(folder.file("log")).back()["ended"] == "interrupted");
  const Outcome resumed = run(folder, nullptr);
  CHECK(resumed.report.resumed.has_value());
  check_same(whole, resumed);
  CHECK(records_of(folder.file("log"), true) == records_of(one.file("log"), true));
}

TEST_CASE("fit: limits end within an epoch, evaluated, and a higher one goes on", "[host]") {
  const test::TempFolder one, folder;
  const Outcome whole = run(one, nullptr);
  const Outcome first = run(folder, nullptr, {.limit = {.steps = 7}});
  CHECK(first.report.ended == train::Ended::limit);
  CHECK(first.report.applied_steps == 7);
  CHECK(first.report.epochs == 1);
  CHECK(first.report.last.epoch == 2);
  CHECK(first.report.last.samples == 32);
  CHECK(first.report.last.validation_loss > 0);
  const Outcome again = run(folder, nullptr, {.limit = {.steps = 7}});
  CHECK(again.report.applied_steps == 7);
  check_same(whole, run(folder, nullptr));
  const Outcome none = run(folder, [](train::Loop&) { throw std::logic_error("trained"); });
  CHECK(none.report.epochs == 4);
  CHECK(none.bits == whole.bits);
  CHECK(none.report.last.validation_loss == whole.report.last.validation_loss);
  const test::TempFolder timed;
  const Outcome late = run(timed, nullptr, {.limit = {.seconds = 1e-9}});
  CHECK(late.report.ended == train::Ended::limit);
  CHECK(late.report.applied_steps <= 1);
}

TEST_CASE("fit: what it prints at an early end is how to go on", "[host]") {
  const auto printed = [](const train::FitOptions& options) {
    const test::TempFolder out;
    std::fflush(stdout);
    const int before = ::dup(STDOUT_FILENO);
    const int file = ::open(out.file("text").c_str(), O_WRONLY | O_CREAT, 0600);
    ::dup2(file, STDOUT_FILENO);
    const test::TempFolder folder;
    train::FitOptions o = options;
    o.checkpoint.folder = folder.file("run");
    o.progress = true;
    FitNet net;
    optim::SGD opt(net.parameters(), {.lr = 1e-2});
    data::Loader loader(rows(40, 3), {.batch = 8});
    train::fit(net, opt, loader, class_loss, o);
    std::fflush(stdout);
    ::dup2(before, STDOUT_FILENO);
    ::close(before);
    ::close(file);
    return test::read_file(out.file("text"));
  };
  train::FitOptions patient{.epochs = 5, .early_stop = {.value = "made", .patience = 1}};
  patient.callbacks.on_epoch_end = [](train::Loop&, train::EpochReport& r) {
    r.metrics.push_back({"made", static_cast<double>(r.epoch)});
  };
  CHECK_THAT(printed(patient), test::contains("the run is saved, and goes on with more patience"));
  CHECK_THAT(printed({.epochs = 5, .limit = {.steps = 3}}),
             test::contains("the run is saved, and goes on with a higher limit"));
  train::FitOptions stopped{.epochs = 5};
  stopped.callbacks.on_batch = [](train::Loop& loop) { loop.stop(); };
  CHECK_THAT(printed(stopped), test::contains("the same program goes on with it"));
}

TEST_CASE("fit: early stopping counts over a resume, and the best checkpoint stays", "[host]") {
  const auto values = {3.0, 2.0, 2.5, 1.9, 1.95, 1.89, 2.0, 1.0};
  const auto with = [&](const test::TempFolder& folder, std::int64_t epochs, bool highest) {
    train::FitOptions o{.epochs = epochs,
                        .early_stop = {.value = "made", .highest = highest, .patience = 2}};
    if (!highest) o.early_stop.least_gain = 0.05;
    o.callbacks.on_epoch_end = [&](train::Loop& loop, train::EpochReport& r) {
      CHECK(loop.epoch() == r.epoch);
      r.metrics.push_back({"made", values.begin()[r.epoch - 1] * (highest ? -1 : 1)});
    };
    return run(folder, nullptr, o);
  };
  const test::TempFolder one, two, three;
  const Outcome lowest = with(one, 8, false);
  CHECK(lowest.report.ended == train::Ended::early_stop);
  CHECK(lowest.report.epochs == 6);
  CHECK(lowest.report.best == 1.89);
  CHECK(lowest.report.best_epoch == 6);
  const io::Checkpoints saved(one.file("run"), {.best = io::BestMetric::lowest});
  CHECK(saved.best()->metric == 1.89);
  CHECK(with(two, 5, false).report.ended == train::Ended::epochs);
  const Outcome resumed = with(two, 8, false);
  CHECK(resumed.report.ended == train::Ended::early_stop);
  CHECK(resumed.report.epochs == 6);
  CHECK(resumed.bits == lowest.bits);
  const Outcome again = with(two, 8, false);
  CHECK(again.report.ended == train::Ended::early_stop);
  CHECK(again.report.epochs == 6);
  CHECK(with(three, 8, true).report.epochs == 8);
}

TEST_CASE("fit: a loss that is NaN is never the best one", "[host]") {
  manual_seed(4);
  FitNet net;
  optim::AdamW opt(net.parameters(), {.lr = 1e-3});
  data::Loader loader(rows(16, 3), {.batch = 8});
  const test::TempFolder folder;
  train::FitOptions o{.epochs = 3, .log = {.path = folder.file("log")}, .progress = false};
  int epoch = 0;
  o.evaluate = [&] {
    return std::vector<metrics::Value>{{"loss", ++epoch == 2 ? std::nan("") : 0.5 + epoch}};
  };
  const auto report = train::fit(net, opt, loader, class_loss, o);
  CHECK(report.best == 1.5);
  CHECK(report.best_epoch == 1);
  CHECK(records_of(folder.file("log"))[2]["validation_loss"].is_null());
}

TEST_CASE("fit: a limit at the end of an epoch finishes it, and the next start reports it",
          "[host]") {
  const test::TempFolder folder;
  const auto with = [&](const std::function<void(train::Loop&)>& stop) {
    train::FitOptions o{.epochs = 2, .limit = {.steps = 5}};
    o.callbacks.on_epoch_end = [](train::Loop&, train::EpochReport& r) {
      r.metrics.push_back({"mine", 7});
    };
    return run(folder, stop, o).report;
  };
  const auto first = with(nullptr);
  CHECK(first.ended == train::Ended::limit);
  CHECK(first.epochs == 1);
  CHECK(first.last.value("mine") == 7);
  const auto second = with([](train::Loop&) { throw std::logic_error("trained"); });
  CHECK(second.ended == train::Ended::limit);
  CHECK(second.last.epoch == 1);
  CHECK(second.last.samples == 75);
  CHECK(second.last.train_loss == first.last.train_loss);
  CHECK(second.last.validation_loss == first.last.validation_loss);
  CHECK(second.last.value("mine") == 7);
}

TEST_CASE("fit: a log of something else is left alone, and two runs with one log are refused",
          "[host]") {
  const test::TempFolder folder;
  run(folder, [](train::Loop& loop) { loop.stop(); });
  const std::string text(100'000, 'x');
  std::ofstream(folder.file("log")) << text;
  CHECK_THROWS_WITH(run(folder, nullptr), test::contains("no log of a run"));
  std::ifstream file(folder.file("log"));
  CHECK(std::string(std::istreambuf_iterator<char>(file), {}) == text);
  const train::RunLog held(folder.file("held"));
  CHECK_THROWS_WITH(train::RunLog(folder.file("held")), test::contains("another log"));
}

}  // namespace firn::testing

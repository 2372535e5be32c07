#include "report/runs.h"

#include <filesystem>
#include <fstream>
#include <limits>
#include <sstream>
#include <stdexcept>

#include "fit/small_runs.h"

namespace firn::testing {

void plain_run(const std::string& log) {
  manual_seed(4);
  FitNet net;
  optim::AdamW opt(net.parameters(), {.lr = optim::warmup(4, optim::cosine(1e-2, 30))},
                   {.accumulate = 2, .clip_norm = 0.5});
  data::Loader loader(rows(64, 3), {.batch = 8, .shuffle = true});
  data::Loader validation(rows(30, 5), {.batch = 7});
  train::fit(
      net, opt, loader, class_loss,
      {.epochs = 3,
       .validate = &validation,
       .callbacks = {.on_epoch_end =
                         [](train::Loop& loop, train::EpochReport& r) {
                           r.metrics.push_back({"accuracy", 0.5 + 0.1 * double(loop.epoch())});
                           r.metrics.push_back({"a/b.c", 1.0 / 3});
                         }},
       .log = {.path = log,
               .every = 1,
               .settings = train::Record().add("note", "a \"quoted\" <b>").add("lr", 0.1)},
       .progress = false});
}

void gan_run(const std::string& log) {
  manual_seed(7);
  nn::MLP generator({2, 8, 6}), critic({6, 8, 2});
  optim::AdamW opt_g(generator.parameters(), {.lr = 1e-3});
  optim::AdamW opt_c(critic.parameters(), {.lr = 4e-3}, {.clip_norm = 2});
  data::Loader loader(rows(64, 3), {.batch = 8});
  train::fit({.modules = {{"generator", generator}, {"critic", critic}},
              .optimizers = {{"generator", opt_g}, {"critic", opt_c}}},
             loader,
             [&](const data::LoaderBatch& b) {
               const std::int64_t n = b.x().shape()[0];
               const Tensor made = generator(randn({n, 2}));
               opt_c.backward(cross_entropy(critic(b.x()), ones({n}, i64)));
               opt_c.backward(cross_entropy(critic(made.detach()), zeros({n}, i64)));
               opt_c.step();
               opt_g.backward(cross_entropy(critic(made), ones({n}, i64)));
               opt_g.step();
             },
             {.epochs = 2, .log = {.path = log, .every = 1}, .progress = false});
}

void stopped_run(const std::string& log) {
  manual_seed(4);
  FitNet net;
  optim::AdamW opt(net.parameters(), {.lr = 1e-2});
  data::Loader loader(rows(64, 3), {.batch = 8});
  train::fit(net, opt, loader, class_loss,
             {.epochs = 5,
              .callbacks = {.on_batch =
                                [](train::Loop& loop) {
                                  if (loop.epoch() == 2 && loop.samples() == 24) loop.stop();
                                }},
              .log = {.path = log},
              .progress = false});
}

test::Ran report(const std::vector<std::string>& arguments) {
  return test::run_program(FIRN_REPORT, arguments);
}

void make_log(const std::vector<std::string>& options, const std::string& log) {
  std::vector<std::string> arguments = {FIRN_REPORT_TESTS "/make_log.py"};
  arguments.insert(arguments.end(), options.begin(), options.end());
  const test::Ran ran = test::run_program(FIRN_PYTHON, arguments);
  if (ran.exit_code != 0) throw std::runtime_error("make_log.py: " + ran.err);
  write_file(log, ran.out);
}

std::string faults(const std::vector<std::string>& arguments) {
  std::vector<std::string> all = {FIRN_REPORT_TESTS "/read_back.py"};
  all.insert(all.end(), arguments.begin(), arguments.end());
  const test::Ran ran = test::run_program(FIRN_PYTHON, all);
  return ran.exit_code == 0 ? "" : ran.out + ran.err;
}

std::string contents(const std::string& path) {
  std::ostringstream out;
  out << std::ifstream(path, std::ios::binary).rdbuf();
  return out.str();
}

void write_file(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

}  // namespace firn::testing

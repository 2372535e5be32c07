// What the log of fit() says is what was used (S44).
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <limits>

#include "data/files.h"
#include "fit/small_runs.h"
#include "support/catch.h"
#include "support/matchers.h"

namespace firn::testing {

TEST_CASE("[S44] log: every number of a step is that step's own", "[host]") {
  const test::TempFolder folder;
  manual_seed(4);
  FitNet net;
  const optim::Schedule lr = optim::warmup(4, optim::cosine(1e-2, 30));
  optim::AdamW opt(net.parameters(), {.lr = lr}, {.accumulate = 2, .clip_norm = 0.5});
  data::Loader loader(rows(64, 3), {.batch = 8, .shuffle = true});
  data::Loader validation(rows(30, 5), {.batch = 7});
  std::vector<optim::StepReport> reports;
  const auto report = train::fit(
      net, opt, loader, class_loss,
      {.epochs = 3,
       .validate = &validation,
       .callbacks = {.on_step = [&](train::Loop&, const std::string&,
                                    const optim::StepReport& r) { reports.push_back(r); }},
       .log = {.path = folder.file("log"),
               .every = 1,
               .settings = train::Record().add("note", "a \"quoted\"\n\u00fc").add("lr", 0.1)},
       .progress = false});
  const std::vector<Json> records = records_of(folder.file("log"));
  const Json& run = records.front();
  CHECK(run["record"] == "run");
  CHECK(run["schema"] == 1);
  CHECK(run["epoch_samples"] == 64);
  CHECK(run["validation_samples"] == 30);
  CHECK(run["settings"]["note"] == "a \"quoted\"\n\u00fc");
  CHECK(run["settings"]["lr"] == 0.1);
  CHECK(run["modules"][0]["parameters"] == net.num_parameters());
  CHECK(run["optimizers"][0]["clip_norm"] == 0.5);
  std::size_t steps = 0;
  std::int64_t epochs = 0;
  for (const Json& r : records) {
    if (r["record"] == "step") {
      const optim::StepReport& own = reports.at(steps++);
      CHECK(r["step"] == static_cast<std::int64_t>(steps));
      CHECK(r["lr"].get<double>() == own.lr());
      CHECK(static_cast<float>(own.lr()) ==
            static_cast<float>(lr.at(static_cast<std::int64_t>(steps) - 1)));
      CHECK(r["loss"].get<double>() == own.loss());
      CHECK(r["norm"].get<double>() == own.norm());
      CHECK(r["weight"] == 16);
      CHECK(r["samples"] == 16 * ((static_cast<std::int64_t>(steps) - 1) % 4 + 1));
      CHECK(r["applied"] == true);
      CHECK(r["measured"]["seconds"].get<double>() > 0);
    }
    if (r["record"] == "epoch") CHECK(r["epoch"] == ++epochs);
  }
  CHECK(steps == 12);
  CHECK(epochs == 3);
  const Json& last = records.at(records.size() - 2);
  CHECK(last["train_loss"].get<double>() == report.last.train_loss);
  CHECK(last["validation_loss"].get<double>() == report.last.validation_loss);
  CHECK(last["lr"].get<double>() == reports.back().lr());
  CHECK(last["samples"] == 64);
  CHECK(last["measured"]["training_peak_by_owner"]["gradients"].get<std::int64_t>() > 0);
  CHECK(records.back()["record"] == "end");
  CHECK(records.back()["ended"] == "epochs");
  // The mean over the epoch's samples is that of its steps.
  double loss = 0;
  for (std::size_t i = 8; i < 12; ++i) loss += reports[i].loss() / 4;
  CHECK(report.last.train_loss == Approx(loss).epsilon(1e-12));
}

TEST_CASE("[S44] log: a skipped step is there with its cause and its parameter", "[host]") {
  const test::TempFolder folder;
  overflow_run(folder.file("log"));
  int skipped = 0, applied = 0;
  for (const Json& r : records_of(folder.file("log"))) {
    if (r["record"] != "step") continue;
    if (r["applied"] == true) {
      ++applied;
      CHECK(r["step"].get<int>() % 3 == 0);
      CHECK_FALSE(r.contains("cause"));
      continue;
    }
    ++skipped;
    CHECK(r["samples"] == 40);
    CHECK(r["step"] == 4);
    CHECK(r["loss_scale"] == 1024);
    CHECK(r["norm"].is_null());
    CHECK(r["parameter"].get<std::string>().find("hidden.weight") != std::string::npos);
    CHECK(r["cause"].get<std::string>().find("skipped") != std::string::npos);
  }
  CHECK(skipped == 1);
  CHECK(applied == 2);
}

TEST_CASE("records: numbers, texts and nesting, names once", "[host]") {
  train::Record r("kind");
  const std::vector<double> numbers = {1, -0.0, 0.1, 1e300, std::nan("")};
  const std::vector<std::string> texts = {"a", "\t\x01"};
  r.add("pi", 3.141592653589793)
      .add("third", 1.0f / 3)
      .add("big", std::numeric_limits<std::uint64_t>::max())
      .add("small", std::numeric_limits<std::int64_t>::min())
      .add("yes", true)
      .add("inf", std::numeric_limits<double>::infinity())
      .add("none", std::nullopt)
      .add("numbers", numbers)
      .add("texts", texts)
      .add("nested", train::Record().add("x", 1));
  const Json j = Json::parse(r.text());
  CHECK(j["record"] == "kind");
  CHECK(j["pi"].get<double>() == 3.141592653589793);
  CHECK(j["third"].get<double>() == 1.0f / 3);
  CHECK(j["big"].get<std::uint64_t>() == std::numeric_limits<std::uint64_t>::max());
  CHECK(j["small"].get<std::int64_t>() == std::numeric_limits<std::int64_t>::min());
  CHECK(j["yes"] == true);
  CHECK(j["inf"].is_null());
  CHECK(j["none"].is_null());
  CHECK(j["numbers"][3].get<double>() == 1e300);
  CHECK(std::signbit(j["numbers"][1].get<double>()));
  CHECK(j["numbers"][4].is_null());
  CHECK(j["texts"][1] == "\t\x01");
  CHECK(j["nested"]["x"] == 1);
  CHECK(r.text().find('\n') == std::string::npos);
  CHECK_THROWS_WITH(r.add("pi", 3), test::contains("twice"));
  CHECK_THROWS_WITH(r.add("", 3), test::contains("empty"));
  CHECK_THROWS_WITH(r.add("x", "\xff"), test::contains("UTF-8"));
  CHECK_THROWS_WITH(train::Record(""), test::contains("empty"));
  CHECK(Json::parse(r.text()) == j);  // a refused one leaves nothing
}

TEST_CASE("records: a log keeps what it is told to, and fails whole", "[host]") {
  const test::TempFolder folder;
  const std::string path = folder.file("log");
  {
    train::RunLog log(path);
    log.write(train::Record("a"));
    log.write(train::Record("b"));
    CHECK(log.bytes() == 2 * 15);
  }
  {
    train::RunLog log(path, 15);
    CHECK(log.bytes() == 15);
    log.write(train::Record("c"));
  }
  const auto records = records_of(path);
  REQUIRE(records.size() == 2);
  CHECK(records[0]["record"] == "a");
  CHECK(records[1]["record"] == "c");
  CHECK_THROWS_AS(train::RunLog(path, 31), IoError);
  CHECK(records_of(path).size() == 2);
  CHECK_THROWS_WITH(train::RunLog(folder.file("no/log")), test::contains("folder"));
  train::RunLog none;
  none.write(train::Record("a"));
  CHECK(none.bytes() == 0);
  if (std::filesystem::exists("/dev/full")) {
    train::RunLog full("/dev/full");
    CHECK_THROWS_WITH(full.write(train::Record("a")), test::contains("full"));
  }
}

TEST_CASE("records: a log in a pipe needs a reader, and a path ends where its text does",
          "[host]") {
  const test::TempFolder folder;
  const std::string pipe = folder.file("pipe");
  REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
  CHECK_THROWS_WITH(train::RunLog(pipe), test::contains("start the reader of the pipe first"));
  const int reader = ::open(pipe.c_str(), O_RDONLY | O_NONBLOCK);
  REQUIRE(reader >= 0);
  train::RunLog log(pipe);
  log.write(train::Record("note"));
  char text[64] = {};
  CHECK(::read(reader, text, sizeof text) == 18);
  CHECK(std::string(text) == "{\"record\":\"note\"}\n");
  ::close(reader);
  CHECK_THROWS_WITH(log.write(train::Record("note")),
                    test::contains("the reader of the pipe is gone"));
  const std::string cut = folder.file("log") + std::string("\0x", 2);
  CHECK_THROWS_WITH(train::RunLog(cut), test::contains("a NUL character follows"));
  CHECK_FALSE(std::filesystem::exists(folder.file("log")));
}

TEST_CASE("[S44] fit: the log shows the memory of a cycle, the same way after a resume", "[host]") {
  const test::TempFolder folder;
  const auto run = [&](const std::string& name, std::int64_t stop_at) {
    manual_seed(3);
    FitNet net;
    optim::AdamW opt(net.named_parameters(), {.lr = 1e-3}, {.accumulate = 2});
    data::Loader loader(rows(64, 3), {.batch = 8});
    train::fit(net, opt, loader, class_loss,
               {.epochs = 2,
                .log = {.path = folder.file(name), .every = 1},
                .checkpoint = {.folder = folder.file(name + ".run"), .every = 1},
                .limit = {.steps = stop_at},
                .progress = false});
  };
  run("whole", 0);
  for (const std::int64_t stop : {1, 2}) {
    run("stopped" + std::to_string(stop), stop);
    run("stopped" + std::to_string(stop), 0);
  }
  const auto records = [&](const std::string& name) {
    std::ifstream file(folder.file(name));
    std::vector<Json> out;
    for (std::string line; std::getline(file, line);) {
      out.push_back(Json::parse(line));
      out.back().erase("measured");
    }
    return out;
  };
  CHECK(records("stopped1") == records("whole"));
  CHECK(records("stopped2") == records("whole"));
  std::ifstream file(folder.file("whole"));
  int points = 0;
  for (std::string line; std::getline(file, line);) {
    const Json r = Json::parse(line);
    if (r.at("record") != "memory") continue;
    CHECK(r.at("cycle") == 2);
    CHECK(r.at("point") == ++points);
    std::int64_t sum = 0;
    for (const auto& [owner, bytes] : r.at("measured").at("by_owner").items())
      sum += bytes.get<std::int64_t>();
    CHECK(r.at("measured").at("bytes") == sum);
    CHECK(r.at("measured").at("by_owner").at("weights") > 0);
  }
  CHECK(points == 48);
}

}  // namespace firn::testing

// --plan and --memory: what a training costs, and one that stays within a limit.
#include "small_set.h"

using namespace firn::test;

TEST_CASE("images: --plan lists what each size of micro-batch costs, and ends") {
  const SmallSet set(40, 4);
  const Ran ran = set.run({"--model", "cnn", "--batch", "8", "--plan", "--memory", "1MiB"});
  INFO(ran.out << ran.err);
  REQUIRE(ran.exit_code == 0);
  const auto rows = plan_rows(ran.out);
  REQUIRE(rows.size() == 4);  // 8, 4, 2, 1
  for (std::size_t i = 0; i < rows.size(); ++i) {
    CHECK(rows[i].micro_batch * rows[i].per_step == 8);
    CHECK((i == 0 || rows[i].training <= rows[i - 1].training));
  }
  CHECK(rows[3].training < rows[0].training);
  CHECK(ran.out.find("no") != std::string::npos);
  CHECK(ran.out.find("epoch") == std::string::npos);
}

TEST_CASE("images: --memory cuts micro-batches until a step fits, and trains within it") {
  const SmallSet set(40, 4);
  const std::vector<std::string> training = {"--model", "cnn", "--batch", "8", "--epochs", "1"};
  auto planned = training;
  planned.push_back("--plan");
  const auto rows = plan_rows(set.run(planned).out);
  REQUIRE(rows.size() == 4);
  // Between what 8 and 4 images take, both rounded to a tenth of a MiB.
  const double limit = (rows[0].training + rows[1].training) / 2;
  const std::string log = set.folder.file("memory.jsonl");
  auto limited = training;
  limited.insert(limited.end(),
                 {"--memory", std::to_string(static_cast<int>(limit)) + "KiB", "--log", log});
  const Ran ran = set.run(limited);
  INFO(ran.out << ran.err);
  REQUIRE(ran.exit_code == 0);
  CHECK(ran.out.find("micro-batches of 4: ") != std::string::npos);
  const auto epoch = records_of(log).back();
  CHECK(epoch["details"]["effective_batch"] == 8);
  CHECK(epoch["measured"]["training_peak_bytes"].get<double>() <= limit * 1024);
}

TEST_CASE("images: a limit that nothing fits into, and one that is no size") {
  const SmallSet set(40, 4);
  const Ran small = set.run({"--batch", "4", "--memory", "100KiB"});
  CHECK(small.exit_code == 1);
  CHECK(small.err.find("micro-batches of one image need") != std::string::npos);
  const Ran text = set.run({"--memory", "plenty"});
  CHECK(text.exit_code != 0);
  CHECK(text.err.find("'plenty' is no size") != std::string::npos);
}

TEST_CASE("images: --recompute takes less memory and gives the same weights") {
  const SmallSet set(16, 4);
  const auto run = [&set](const char* recompute, const char* what) {
    const Ran ran = set.run({"--model", "resnet", "--batch", "8", "--epochs", "1", "--seed", "1",
                             "--recompute", recompute, what});
    INFO(ran.out << ran.err);
    REQUIRE(ran.exit_code == 0);
    return ran.out;
  };
  const auto weights = [&](const char* recompute) {
    for (const std::string& line : lines_of(run(recompute, "--hash")))
      if (line.find("weights ") == 0) return line;
    return std::string();
  };
  const std::string plain = weights("nothing");
  CHECK(plain.size() > 64);
  CHECK(weights("all") == plain);
  CHECK(weights("cheap") == plain);
  const auto peak = [&](const char* recompute) {
    return plan_rows(run(recompute, "--plan")).at(0).training;
  };
  CHECK(peak("all") < peak("cheap"));
  CHECK(peak("cheap") < peak("nothing"));

  // More and more is computed again before micro-batches are cut.
  const auto rows = plan_rows(run("auto", "--plan"));
  REQUIRE(rows.size() == 4 * 3);  // 8, 4, 2, 1
  for (std::size_t i = 0; i < rows.size(); ++i) CHECK(rows[i].micro_batch == 8 >> (i / 3));
  CHECK(rows[0].training == peak("nothing"));
  CHECK(rows[1].training == peak("cheap"));
  CHECK(rows[2].training == peak("all"));
  const auto within = [&](double limit) {
    const Ran ran =
        set.run({"--model", "resnet", "--batch", "8", "--epochs", "1", "--seed", "1", "--recompute",
                 "auto", "--hash", "--memory", std::to_string(static_cast<int>(limit)) + "KiB"});
    INFO(ran.out << ran.err);
    REQUIRE(ran.exit_code == 0);
    return ran.out;
  };
  const std::string less = within((rows[1].training + rows[2].training) / 2);
  INFO(less);
  CHECK(less.find("micro-batches of 8, --recompute all: ") != std::string::npos);
  CHECK(less.find(plain) != std::string::npos);
  const Ran alone = set.run({"--model", "resnet", "--recompute", "auto"});
  CHECK(alone.err.find("needs --memory, or --plan") != std::string::npos);

  const Ran refused = set.run({"--model", "mlp", "--recompute", "all"});
  CHECK(refused.exit_code != 0);
  CHECK(refused.err.find("no blocks") != std::string::npos);
}

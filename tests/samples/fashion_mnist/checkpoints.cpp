// The sample's --checkpoint and --resume: a run that was stopped ends with the bits of one that was
// not. scripts/kill-resume does the same at random moments.
#include <filesystem>
#include <string>
#include <vector>

#include "small_set.h"
#include "support/catch.h"

namespace firn::test {
namespace {

using Arguments = std::vector<std::string>;

Arguments operator+(Arguments a, const Arguments& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

std::string line_with(const std::string& text, const std::string& begin) {
  for (const std::string& line : lines_of(text))
    if (line.rfind(begin, 0) == 0) return line;
  return "no line begins with " + begin;
}

std::vector<std::string> checkpoints_in(const std::filesystem::path& folder) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace

TEST_CASE("[S34] images: a run that Ctrl-C stopped goes on to the same bits", "[host][training]") {
  const SmallSet set(6000);
  const TempFolder folder;
  const std::string run = (folder.path() / "run").string(), log = (folder.path() / "log").string();
  const Arguments options = {"--epochs",     "3",           "--micro-batch", "4",
                             "--accumulate", "3",           "--ema",         "0.99",
                             "--hash",       "--precision", "fp16"};
  const Ran whole = set.run(options);
  REQUIRE(whole.exit_code == 0);
  const std::string weights = line_with(whole.out, "weights ");
  REQUIRE(weights.size() == std::string("weights ").size() + 64);
  CHECK(lines_of(whole.out).at(lines_of(whole.out).size() - 2) == weights);
  CHECK(lines_of(whole.out).back().rfind("test accuracy ", 0) == 0);

  const Arguments saving = options + Arguments{"--checkpoint", run, "--log", log};
  const Ran stopped = set.run(saving + Arguments{"--resume"}, {{"TERM=xterm"}, 80, "samples/s"});
  REQUIRE(stopped.exit_code == 130);
  CHECK_THAT(stopped.err,
             contains("error: interrupted: the run is saved in " + run + " after step"));
  CHECK_THAT(stopped.err, contains("; the same command with --resume goes on"));
  const Ran refused = set.run(saving);
  check_fails(refused, "has checkpoints of an earlier run; hint: give --resume to go on with it");

  const Ran resumed = set.run(saving + Arguments{"--resume"});
  REQUIRE(resumed.exit_code == 0);
  CHECK_THAT(resumed.out, contains("resumed after step "));
  CHECK(line_with(resumed.out, "weights ") == weights);
  const auto records = records_of(log);
  REQUIRE(records.size() == 4);
  for (int epoch = 1; epoch <= 3; ++epoch)
    CHECK(records.at(static_cast<std::size_t>(epoch)).at("epoch") == epoch);

  // A finished run has nothing left to do, and says the same.
  const Ran again = set.run(saving + Arguments{"--resume"});
  CHECK(again.exit_code == 0);
  CHECK(line_with(again.out, "weights ") == weights);
  CHECK(lines_of(again.out).back() == lines_of(whole.out).back());
  CHECK(records_of(log).size() == 4);
}

TEST_CASE("images: checkpoints after so many steps, and after each epoch", "[host]") {
  const SmallSet set(100);
  const TempFolder folder;
  const std::string run = (folder.path() / "run").string();
  const Ran ran = set.run({"--epochs", "1", "--batch", "10", "--checkpoint", run,
                           "--checkpoint-every", "4", "--resume"});
  REQUIRE(ran.exit_code == 0);
  CHECK(checkpoints_in(run) == std::vector<std::string>{"step-000000000004.safetensors",
                                                        "step-000000000008.safetensors",
                                                        "step-000000000010.safetensors"});
  const Ran other = set.run(
      {"--epochs", "1", "--batch", "10", "--optimizer", "sgd", "--checkpoint", run, "--resume"});
  check_fails(other, "it is of another run");
  check_fails(set.run({"--checkpoint", (folder.path() / "no/such").string()}), "is no folder");
  for (const Arguments& wrong : {Arguments{"--resume"}, Arguments{"--checkpoint-every", "3"},
                                 Arguments{"--checkpoint", run, "--show-graph"},
                                 Arguments{"--checkpoint", run, "--epochs", "0"},
                                 Arguments{"--checkpoint", run, "--checkpoint-every", "0"}}) {
    const Ran refused = set.run(wrong);
    CHECK(refused.exit_code != 0);
    CHECK_THAT(refused.err, contains("--checkpoint") || contains("--resume"));
  }
}

}  // namespace firn::test

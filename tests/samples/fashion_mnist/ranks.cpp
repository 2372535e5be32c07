// The sample with several ranks and in exact mode.
#include <sstream>

#include "small_set.h"

using namespace firn::test;

namespace {

/// The line with the hash, or what the run has said instead.
std::string weights_of(const SmallSet& set, const std::string& options) {
  std::vector<std::string> arguments = {"--epochs", "2", "--batch", "40", "--hash"};
  std::istringstream words(options);
  for (std::string word; words >> word;) arguments.push_back(word);
  const Ran ran = set.run(arguments);
  INFO(ran.out << ran.err);
  REQUIRE(ran.exit_code == 0);
  const auto at = ran.out.find("\nweights ");
  REQUIRE(at != std::string::npos);
  return ran.out.substr(at, 9 + 64);
}

}  // namespace

TEST_CASE("images: --exact has the same weights for any cut, threads and ranks",
          "[host][training]") {
  const SmallSet set;  // 600 = 15 x 40
  for (const std::string model : {"", " --precision fp16", " --model cnn --augment"}) {
    CAPTURE(model);
    const std::string one = weights_of(set, "--exact 8 --threads 1" + model);
    for (const std::string cut :
         {"--micro-batch 8", "--threads 2", "--ranks 2", "--ranks 3 --micro-batch 16",
          "--ranks 3 --zero 1", "--ranks 3 --zero 2", "--ranks 2 --zero 3"})
      CHECK(weights_of(set, "--exact 8 " + cut + model) == one);
    CHECK(weights_of(set, "--exact 20 --threads 1" + model) != one);
  }
}

TEST_CASE("images: --exact with batch norm over the whole batch", "[host][training][once]") {
  const SmallSet set;
  const std::string net = " --model resnet";
  const std::string one = weights_of(set, "--exact 8 --threads 1" + net);
  for (const std::string cut : {"--micro-batch 16 --threads 2", "--ranks 2 --recompute all"})
    CHECK(weights_of(set, "--exact 8 " + cut + net) == one);
}

TEST_CASE("images: a run of two ranks goes on with one, and prints once", "[host][training]") {
  const SmallSet set;
  const std::string folder = set.folder.file("run"), log = set.folder.file("ranks.jsonl");
  const std::string whole = weights_of(set, "--exact 8");
  const Ran first = set.run({"--epochs", "1", "--batch", "40", "--exact", "8", "--ranks", "2",
                             "--zero", "1", "--checkpoint", folder, "--log", log});
  INFO(first.out << first.err);
  REQUIRE(first.exit_code == 0);
  CHECK(first.out.find("test accuracy") == first.out.rfind("test accuracy"));
  CHECK(first.out.find("2 ranks") != std::string::npos);
  CHECK(records_of(log).size() == 2);  // the settings and an epoch
  CHECK(weights_of(set, "--exact 8 --resume --checkpoint " + folder + " --log " + log) == whole);
}

TEST_CASE("images: ranks that divide all go on with one, and save averages as one does",
          "[host][training]") {
  const SmallSet set;
  const std::string whole = weights_of(set, "--exact 8 --ema 0.9");
  for (const std::string zero : {"2", "3"}) {
    CAPTURE(zero);
    const std::string folder = set.folder.file("run-" + zero),
                      file = set.folder.file("net-" + zero);
    const Ran first = set.run({"--epochs", "1", "--batch", "40", "--exact", "8", "--ema", "0.9",
                               "--ranks", "2", "--zero", zero, "--checkpoint", folder});
    INFO(first.out << first.err);
    REQUIRE(first.exit_code == 0);
    CHECK(weights_of(set, "--exact 8 --ema 0.9 --resume --checkpoint " + folder) == whole);
    const Ran saves = set.run({"--epochs", "2", "--batch", "40", "--exact", "8", "--ema", "0.9",
                               "--ranks", "3", "--zero", zero, "--save", file});
    INFO(saves.out << saves.err);
    REQUIRE(saves.exit_code == 0);
    const Ran tested = set.run({"--load", file, "--hash"});
    CHECK(tested.out.find(whole.substr(1)) != std::string::npos);
  }
}

TEST_CASE("images: what does not go with ranks is refused", "[host]") {
  const SmallSet set;
  const auto refused = [&](std::vector<std::string> arguments, const char* what) {
    const Ran ran = set.run(arguments);
    INFO(ran.out << ran.err);
    CHECK(ran.exit_code != 0);
    CHECK((ran.out + ran.err).find(what) != std::string::npos);
  };
  refused({"--ranks", "2", "--plan"}, "--plan");
  refused({"--zero", "1"}, "nobody to divide");
  refused({"--ranks", "4", "--pipeline", "2", "--zero", "2"}, "stages make other micro-steps");
  refused({"--exact", "8", "--model", "resnet", "--ranks", "2", "--zero", "2"}, "--zero 2");
  refused({"--exact", "8", "--micro-batch", "12"}, "12 is no multiple of 8");
  refused({"--ranks", "2", "--batch", "64", "--accumulate", "2"}, "--accumulate");
}

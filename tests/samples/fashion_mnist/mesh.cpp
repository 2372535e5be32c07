// The sample with a model that ranks divide, beside that of one rank.
#include <cmath>
#include <sstream>

#include "small_set.h"

using namespace firn::test;
using nlohmann::json;

namespace {

/// What a run of two epochs has reported, each figure once.
struct Run {
  std::vector<json> epochs;
  std::string weights;  ///< their hash
  std::string out;
};

std::vector<std::string> words(const std::string& text) {
  std::istringstream in(text);
  std::vector<std::string> out;
  for (std::string word; in >> word;) out.push_back(word);
  return out;
}

Run train(const SmallSet& set, const std::string& options,
          const std::string& batch = "--batch 40 ") {
  const std::string log = set.folder.file("mesh.jsonl");
  const Ran ran = set.run(words("--epochs 2 --hash --log " + log + " " + batch + options));
  INFO(options << ran.out << ran.err);
  REQUIRE(ran.exit_code == 0);
  CHECK(complaints(ran).empty());
  Run run{.epochs = records_of(log), .weights = {}, .out = ran.out};
  REQUIRE(run.epochs.size() == 3);
  CHECK(run.epochs[0]["settings"]["parameters"] == 669'706);
  run.epochs.erase(run.epochs.begin());
  std::smatch hash;
  REQUIRE(std::regex_search(ran.out, hash, std::regex("\nweights ([0-9a-f]{64})\ntest accuracy")));
  run.weights = hash[1];
  CHECK(ran.out.find("test accuracy") == ran.out.rfind("test accuracy"));  // one rank speaks
  return run;
}

/// The largest relative difference of losses; infinite if steps or their settings differ.
double distance(const Run& a, const Run& b) {
  double most = 0;
  for (std::size_t i = 0; i < a.epochs.size(); ++i) {
    for (const char* field : {"train_loss", "validation_loss"}) {
      const double x = a.epochs[i][field].get<double>(), y = b.epochs[i][field].get<double>();
      most = std::max(most, std::abs(x - y) / std::abs(y));
    }
    for (const char* field : {"applied_steps", "skipped_steps", "lr", "loss_scale"})
      if (a.epochs[i].at(field) != b.epochs[i].at(field)) return HUGE_VAL;
    const auto batch = [](const json& epoch) { return epoch.at("details").at("effective_batch"); };
    if (batch(a.epochs[i]) != batch(b.epochs[i])) return HUGE_VAL;
  }
  return most;
}

}  // namespace

TEST_CASE("images: a model that ranks divide trains and is tested as on one rank",
          "[host][training]") {
  const SmallSet set(300);  // 300 = 7 x 40 + 20
  const Run one = train(set, "--clip 0.5");
  for (const std::string mesh :
       {"--ranks 2 --tensor-parallel 2", "--ranks 2 --pipeline 2", "--ranks 3 --pipeline 3",
        "--ranks 4 --tensor-parallel 2 --pipeline 2", "--ranks 4 --tensor-parallel 2"}) {
    CAPTURE(mesh);
    const Run ran = train(set, "--clip 0.5 " + mesh);
    CHECK(distance(ran, one) < 1e-5);
    CHECK(ran.epochs.back()["metrics"]["accuracy"] == one.epochs.back()["metrics"]["accuracy"]);
    CHECK(ran.epochs.back()["details"]["confusion"] == one.epochs.back()["details"]["confusion"]);
  }
}

TEST_CASE("images: stages alone have the weights of one rank to the bit", "[host][training]") {
  const SmallSet set(300);
  for (const std::string options :
       {"--micro-batch 8", "--micro-batch 10 --precision fp16 --ema 0.9",
        "--micro-batch 20 --precision amp-fp16",
        "--micro-batch 20 --augment --label-smoothing 0.1 --optimizer sgd --weight-decay 0.01"}) {
    CAPTURE(options);
    CHECK(train(set, options + " --ranks 3 --pipeline 3").weights == train(set, options).weights);
  }
}

TEST_CASE("images: a divided model starts from --load and is saved as a whole",
          "[host][training]") {
  const SmallSet set(300);
  const std::string start = set.folder.file("start"), end = set.folder.file("end");
  train(set, "--save " + start);
  const std::string go_on = "--load " + start + " --save " + end + " --micro-batch 20";
  const Run one = train(set, go_on);
  const Bytes saved = read_file(end);
  CHECK(train(set, go_on + " --ranks 2 --pipeline 2").weights == one.weights);
  CHECK((read_file(end) == saved));  // not printed if it fails
  // Parts of layers, which a test on one rank puts together again.
  const Run parts = train(set, go_on + " --ranks 4 --tensor-parallel 2 --pipeline 2");
  CHECK(distance(parts, one) < 3e-5);  // as one rank in other micro-batches: 1.7e-5 with AVX2
  const Ran tested = set.run({"--load", end, "--hash"});
  CHECK_THAT(tested.out, contains("weights " + parts.weights));
  const auto accuracy = tested.out.find("test accuracy");
  REQUIRE(accuracy != std::string::npos);
  CHECK_THAT(parts.out, contains(tested.out.substr(accuracy)));
}

TEST_CASE("images: precisions and settings of steps go with a divided model", "[host][training]") {
  const SmallSet set(300);
  struct Case {
    const char *options, *divided;  ///< of both runs, and of the divided model alone
    double bound;
  };
  // In 16 bits each rank's products are rounded before they are added up. SGD, for Adam makes much
  // of the rounding of small gradients.
  for (const Case& c :
       {Case{"--precision fp16 --clip 1 --optimizer sgd", "--tensor-parallel 2 --pipeline 2", 5e-4},
        Case{"--precision amp-bf16 --optimizer sgd", "--tensor-parallel 2 --pipeline 2", 4e-3},
        Case{"--ema 0.9 --weight-decay 0.01", "--tensor-parallel 2 --zero 1", 1e-5},
        Case{"--ema 0.9 --weight-decay 0.01", "--tensor-parallel 2 --zero 2", 1e-5},
        Case{"--schedule cosine --label-smoothing 0.1 --augment", "--pipeline 2", 1e-5}}) {
    CAPTURE(c.options);
    const Run one = train(set, c.options);
    const Run ran = train(set, c.options + std::string(" --ranks 4 ") + c.divided);
    CHECK(distance(ran, one) < c.bound);
  }
  // Of the last image of an epoch, one copy has nothing.
  CHECK(distance(train(set, "--ranks 4 --tensor-parallel 2", "--batch 299 "),
                 train(set, "", "--batch 299 ")) < 1e-5);
  // A copy's step is so many micro-batches: 64 images in all.
  const Run one = train(set, "--micro-batch 16 --accumulate 4", "");
  CHECK(one.epochs[0]["details"]["effective_batch"] == 64);
  for (const char* divided : {"--micro-batch 16 --accumulate 4 --ranks 2 --pipeline 2",
                              "--micro-batch 8 --accumulate 4 --ranks 4 --tensor-parallel 2"}) {
    CAPTURE(divided);
    CHECK(distance(train(set, divided, ""), one) < 1e-5);
  }
}

TEST_CASE("images: what does not go with a divided model is refused", "[host]") {
  const SmallSet set;
  struct Case {
    const char *arguments, *names, *hint;
  };
  for (const Case& c :
       {Case{"--ranks 2 --tensor-parallel 2 --model cnn", "--tensor-parallel", "--model cnn"},
        Case{"--ranks 2 --pipeline 2 --model resnet", "--pipeline", "--model resnet"},
        Case{"--tensor-parallel 2", "--ranks 1", "a multiple of 2"},
        Case{"--ranks 6 --tensor-parallel 2 --pipeline 2", "--ranks 6", "a multiple of 4"},
        Case{"--ranks 3 --tensor-parallel 3", "--tensor-parallel", "512 hidden units"},
        Case{"--ranks 4 --pipeline 4", "--pipeline", "the mlp has 3 layers"},
        Case{"--ranks 2 --pipeline 0", "--pipeline", "0"},
        Case{"--ranks 2 --pipeline 2 --exact 8", "--pipeline", "--exact"},
        Case{"--ranks 2 --pipeline 2 --checkpoint run", "--checkpoint", "--save"},
        Case{"--ranks 2 --pipeline 2 --plan", "--pipeline", "--plan"},
        Case{"--ranks 2 --pipeline 2 --memory 1GiB", "--pipeline", "--memory"},
        Case{"--ranks 2 --pipeline 2 --show-graph", "--pipeline", "--show-graph"},
        Case{"--ranks 2 --pipeline 2 --epochs 0 --load x", "--pipeline", "--epochs 0"},
        Case{"--ranks 2 --tensor-parallel 2 --load x", "--tensor-parallel", "--epochs 0"},
        Case{"--ranks 2 --tensor-parallel 2 --zero 1", "--zero", "--tensor-parallel"},
        Case{"--ranks 2 --pipeline 2 --batch 64 --accumulate 2", "--accumulate", "--batch"}}) {
    const Ran ran = set.run(words(c.arguments));
    INFO(c.arguments << ran.out << ran.err);
    CHECK(ran.exit_code > 1);
    CHECK(ran.out.empty());
    CHECK_THAT(ran.err, contains(c.names));
    CHECK_THAT(ran.err, contains(c.hint));
  }
}

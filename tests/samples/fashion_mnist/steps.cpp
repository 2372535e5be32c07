// The sample's options for what a step is made of: precision, accumulation, scale, schedule.
#include <cmath>
#include <cstring>
#include <map>

#include "small_set.h"

using namespace firn::test;
using nlohmann::json;

namespace {

/// The records of the epochs of a run that must succeed.
std::vector<json> train(const SmallSet& set, std::vector<std::string> arguments) {
  const std::string log = set.folder.file("steps.jsonl");
  arguments.insert(arguments.end(), {"--log", log});
  const Ran ran = set.run(arguments);
  INFO(ran.out << ran.err);
  REQUIRE(ran.exit_code == 0);
  auto records = records_of(log);
  records.erase(records.begin());
  return records;
}

double number(const json& record, const char* field) { return record[field].get<double>(); }

bool within(double a, double b, double relative) { return std::abs(a - b) <= relative * b; }

}  // namespace

TEST_CASE("images: 16 x 4 images per step, short last cycle included, train as 64 do",
          "[host][training]") {
  const SmallSet set;  // 600 = 9 x 64 + 24, which is a cycle of two micro-batches
  const auto whole = train(set, {"--epochs", "3", "--batch", "64"});
  for (const std::vector<std::string>& split :
       std::vector<std::vector<std::string>>{{"--micro-batch", "16", "--accumulate", "4"},
                                             {"--micro-batch", "16", "--batch", "64"},
                                             {"--accumulate", "4", "--batch", "64"}}) {
    std::vector<std::string> arguments = {"--epochs", "3"};
    arguments.insert(arguments.end(), split.begin(), split.end());
    const auto parts = train(set, arguments);
    for (std::size_t i = 0; i < 3; ++i) {
      CHECK(parts[i]["details"]["effective_batch"] == 64);
      CHECK(parts[i]["applied_steps"] == 10 * (i + 1));
      CHECK(whole[i]["applied_steps"] == 10 * (i + 1));
      CHECK(parts[i]["skipped_steps"] == 0);
      CHECK(within(number(parts[i], "train_loss"), number(whole[i], "train_loss"), 1e-4));
      CHECK(within(number(parts[i], "validation_loss"), number(whole[i], "validation_loss"), 1e-4));
    }
  }
}

TEST_CASE("images: every precision trains as FP32 does, and reports its scale",
          "[host][training]") {
  const SmallSet set;
  const std::string weights = set.folder.file("weights");
  std::map<std::string, json> last;
  std::map<std::string, std::string> dtype;
  for (const char* precision : {"fp32", "fp16", "bf16", "amp-fp16", "amp-bf16"}) {
    last[precision] = train(set, {"--epochs", "3", "--micro-batch", "16", "--accumulate", "4",
                                  "--precision", precision, "--save", weights})
                          .back();
    const Bytes file = read_file(weights);
    std::uint64_t length = 0;
    std::memcpy(&length, file.data(), 8);
    dtype[precision] = json::parse(file.substr(8, length))["layers.0.weight"]["dtype"];
  }
  const auto held = [&](const char* precision) {
    const json& bytes = last[precision]["measured"]["training_peak_by_owner"];
    return bytes["weights"].get<double>() + bytes["activations"].get<double>();
  };
  for (const auto& [precision, epoch] : last) {
    INFO(precision << " loss " << number(epoch, "train_loss") << " fp32 "
                   << number(last["fp32"], "train_loss"));
    CHECK(epoch["loss_scale"] == (precision.ends_with("fp16") ? 65536 : 1));
    CHECK(epoch["skipped_steps"] == 0);
    // Of a loss of 0.0006: what is left once the images are told apart.
    const double rounding = precision.ends_with("bf16") ? 0.1 : 0.03;
    CHECK(within(number(epoch, "train_loss"), number(last["fp32"], "train_loss"), rounding));
    CHECK(std::abs(number(epoch["metrics"], "accuracy") -
                   number(last["fp32"]["metrics"], "accuracy")) <= 0.02);
  }
  CHECK(dtype == std::map<std::string, std::string>{{"fp32", "F32"},
                                                    {"fp16", "F16"},
                                                    {"bf16", "BF16"},
                                                    {"amp-fp16", "F32"},
                                                    {"amp-bf16", "F32"}});
  CHECK(held("fp16") <= 0.55 * held("fp32"));
  CHECK(held("bf16") <= 0.55 * held("fp32"));
}

TEST_CASE("images: the images per step can change from epoch to epoch", "[host][training]") {
  const SmallSet set;
  const auto epochs =
      train(set, {"--epochs", "3", "--micro-batch", "16", "--accumulate-schedule", "0:8,2:2"});
  CHECK(epochs[0]["details"]["effective_batch"] == 128);
  CHECK(epochs[1]["details"]["effective_batch"] == 128);
  CHECK(epochs[2]["details"]["effective_batch"] == 32);
  CHECK(epochs[0]["applied_steps"] == 5);  // 600 / 128, rounded up
  CHECK(epochs[1]["applied_steps"] == 10);
  CHECK(epochs[2]["applied_steps"] == 29);  // and 600 / 32
  const Ran ran =
      set.run({"--epochs", "1", "--micro-batch", "16", "--accumulate-schedule", "0:8,4:2"});
  CHECK_THAT(ran.out, contains("16 x 8 = 128"));
  CHECK_THAT(ran.out, contains("from epoch 5 on 16 x 2 = 32"));
}

TEST_CASE("images: schedules span the run", "[host]") {
  const SmallSet set;  // 10 steps an epoch
  const auto rates = [&](std::vector<std::string> arguments) {
    arguments.insert(arguments.end(), {"--epochs", "3", "--lr", "0.003"});
    std::vector<double> out;
    for (const json& epoch : train(set, arguments)) out.push_back(number(epoch, "lr"));
    return out;
  };
  // The rates of steps 9, 19 and 29, counted from 0, of 30.
  const auto check = [&](const std::vector<double>& got, const std::vector<double>& expected) {
    for (std::size_t i = 0; i < 3; ++i) CHECK(std::abs(got[i] - expected[i]) < 1e-9);
  };
  check(rates({}), {0.003, 0.003, 0.003});
  check(rates({"--schedule", "linear"}), {0.0021, 0.0011, 0.0001});
  check(rates({"--schedule", "step"}), {0.003, 0.0003, 0.00003});
  const auto cosine = [](double step) {
    return 0.0015 * (1 + std::cos(step / 30 * std::acos(-1)));
  };
  check(rates({"--schedule", "cosine"}), {cosine(9), cosine(19), cosine(29)});
  check(rates({"--schedule", "linear", "--warmup", "10"}), {0.003, 0.00165, 0.00015});
  const auto cycle = rates({"--schedule", "one-cycle"});
  CHECK(cycle[0] > cycle[1]);
  CHECK(cycle[1] > 1e-4);
  CHECK(cycle[2] < 1e-4);
}

TEST_CASE("images: a scale that overflows is seen in the skipped steps", "[host]") {
  const SmallSet set;
  const auto fixed = [&](const char* scale) {
    return train(set, {"--epochs", "1", "--precision", "fp16", "--loss-scale", scale}).back();
  };
  const json good = fixed("1024");
  CHECK(good["loss_scale"] == 1024);
  CHECK(good["skipped_steps"] == 0);
  CHECK(good["applied_steps"] == 10);
  const json bad = fixed("16777216");
  CHECK(bad["loss_scale"] == 16'777'216);
  CHECK(bad["skipped_steps"] == 10);
  CHECK(bad["applied_steps"] == 0);
  CHECK(std::abs(number(bad, "validation_loss") - std::log(10.0)) < 0.2);  // nothing was learnt
}

TEST_CASE("images: --clip limits what a step can do", "[host]") {
  const SmallSet set;
  // How far the test loss moves in ten steps of SGD.
  const auto moved = [&](const std::vector<std::string>& clip) {
    std::vector<std::string> arguments = {"--epochs", "2", "--optimizer", "sgd"};
    arguments.insert(arguments.end(), clip.begin(), clip.end());
    const auto epochs = train(set, arguments);
    return std::abs(number(epochs[1], "validation_loss") - number(epochs[0], "validation_loss"));
  };
  const double free = moved({});
  CHECK(free > 0.01);
  CHECK(moved({"--clip", "0.0001"}) < 0.01 * free);
  CHECK(moved({"--clip", "1e9"}) == free);
}

TEST_CASE("images: options that contradict each other are named, both of them", "[host]") {
  const SmallSet set;
  struct Case {
    std::vector<std::string> arguments, named;
  };
  for (const Case& c : std::vector<Case>{
           {{"--batch", "64", "--micro-batch", "10"}, {"--batch", "--micro-batch", "64", "10"}},
           {{"--batch", "64", "--micro-batch", "16", "--accumulate", "3"},
            {"--batch", "--micro-batch", "--accumulate", "64 is not 16 x 3"}},
           {{"--batch", "65", "--accumulate", "3"}, {"--batch", "--accumulate", "65", "3"}},
           {{"--accumulate-schedule", "0:8", "--accumulate", "3"},
            {"--accumulate-schedule", "--accumulate:"}},
           {{"--accumulate-schedule", "0:8", "--batch", "64"},
            {"--accumulate-schedule", "--batch"}},
           {{"--loss-scale", "dynamic"}, {"--loss-scale", "--precision fp32"}},
           {{"--schedule", "one-cycle", "--warmup", "3"}, {"--warmup", "--schedule one-cycle"}},
           {{"--accumulate-schedule", "1:8"}, {"--accumulate-schedule", "epoch 1"}},
           {{"--accumulate-schedule", "0:8,0:2"}, {"--accumulate-schedule", "0:8,0:2"}},
           {{"--accumulate-schedule", "0:0"}, {"--accumulate-schedule", "0:0"}},
           {{"--accumulate-schedule", "often"}, {"--accumulate-schedule", "often"}},
           {{"--precision", "fp16", "--loss-scale", "3"}, {"--loss-scale", "3"}},
           {{"--precision", "fp8"}, {"--precision", "fp8"}},
           {{"--clip", "0"}, {"--clip"}}}) {
    const Ran ran = set.run(c.arguments);
    INFO(ran.err);
    CHECK(ran.exit_code > 1);
    CHECK(ran.out.empty());
    for (const std::string& name : c.named) CHECK_THAT(ran.err, contains(name));
  }
  check_fails(set.run({"--warmup", "30", "--epochs", "3"}), "--warmup 30 does not fit --epochs 3");
}

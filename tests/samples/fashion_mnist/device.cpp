// The sample on a CUDA device: its steps are graphs there, and the figures those of the CPU.
#include <cmath>

#include "small_set.h"

using namespace firn::test;
using nlohmann::json;

namespace {

std::vector<json> epochs_of(const SmallSet& set, std::vector<std::string> arguments) {
  const std::string log = set.folder.file("device.jsonl");
  arguments.insert(arguments.end(), {"--log", log});
  const Ran ran = set.run(arguments);
  INFO(ran.out << ran.err);
  REQUIRE(ran.exit_code == 0);
  CHECK(complaints(ran) == "");
  auto records = records_of(log);
  records.erase(records.begin());
  return records;
}

}  // namespace

TEST_CASE("images: trains on a CUDA device as on the CPU", "[gpu][long]") {
  const SmallSet set(216);  // 3 x 64 + 24: the last batch has a graph of its own
  struct {
    std::vector<std::string> arguments;
    double tolerance;
  } const runs[] = {
      {{"--epochs", "2"}, 1e-4},
      {{"--epochs", "2", "--precision", "fp16", "--micro-batch", "32", "--accumulate", "2"}, 0.02},
      {{"--epochs", "2", "--precision", "amp-bf16", "--optimizer", "sgd", "--clip", "1",
        "--schedule", "cosine", "--warmup", "3"},
       0.05},
  };
  for (const auto& run : runs) {
    std::vector<std::string> arguments = run.arguments;
    const auto cpu = epochs_of(set, arguments);
    arguments.insert(arguments.end(), {"--device", "cuda"});
    const auto cuda = epochs_of(set, arguments);
    REQUIRE(cuda.size() == 2);
    INFO(run.arguments.back());
    for (std::size_t i = 0; i < 2; ++i) {
      for (const char* field : {"train_loss", "validation_loss"}) {
        const double want = cpu[i][field].get<double>(), got = cuda[i][field].get<double>();
        INFO(field << " of epoch " << i + 1 << ": " << got << ", on the CPU " << want);
        CHECK(std::abs(got - want) <= run.tolerance * want);
      }
      for (const char* field : {"applied_steps", "skipped_steps", "loss_scale", "lr"})
        CHECK(cuda[i][field] == cpu[i][field]);
      CHECK(std::abs(cuda[i]["metrics"]["accuracy"].get<double>() -
                     cpu[i]["metrics"]["accuracy"].get<double>()) <= 0.02);
    }
    CHECK(cuda[1]["train_loss"].get<double>() < cuda[0]["train_loss"].get<double>());
  }
}

TEST_CASE("images: augmented images and averaged weights are those of the CPU", "[gpu]") {
  const SmallSet set(150, 50);
  std::vector<std::string> arguments = {
      "--epochs",          "2",   "--augment",      "--ema", "0.9",
      "--label-smoothing", "0.1", "--weight-decay", "0.01"};
  const auto cpu = epochs_of(set, arguments);
  arguments.insert(arguments.end(), {"--device", "cuda"});
  const auto cuda = epochs_of(set, arguments);
  for (std::size_t i = 0; i < 2; ++i) {
    for (const char* field : {"train_loss", "validation_loss"}) {
      const double want = cpu[i][field].get<double>(), got = cuda[i][field].get<double>();
      INFO(field << " of epoch " << i + 1 << ": " << got << ", on the CPU " << want);
      CHECK(std::abs(got - want) <= 1e-4 * want);
    }
  }
}

TEST_CASE("images: image models train on a CUDA device as on the CPU", "[gpu][long]") {
  const SmallSet set(6, 4);  // the last batch is short
  for (const char* model : {"cnn", "resnet"}) {
    for (const bool half : {false, true}) {
      std::vector<std::string> arguments = {"--model",       model, "--epochs",     "1",
                                            "--micro-batch", "2",   "--accumulate", "2"};
      if (half) arguments.insert(arguments.end(), {"--precision", "fp16"});
      const auto cpu = epochs_of(set, arguments);
      arguments.insert(arguments.end(), {"--device", "cuda"});
      const auto cuda = epochs_of(set, arguments);
      for (const char* field : {"train_loss", "validation_loss"}) {
        const double want = cpu[0][field].get<double>(), got = cuda[0][field].get<double>();
        INFO(model << (half ? ", fp16, " : ", ") << field << ": " << got << ", on the CPU "
                   << want);
        CHECK(std::abs(got - want) <= (half ? 0.05 : 0.002) * want);
      }
      CHECK(cuda[0]["applied_steps"] == cpu[0]["applied_steps"]);
    }
  }
}

TEST_CASE("images: the FP16 step with Adam and a dynamic scale has few nodes", "[gpu]") {
  const SmallSet set;
  const Ran ran =
      set.run({"--device", "cuda", "--precision", "fp16", "--optimizer", "adam", "--show-graph"});
  INFO(ran.out << ran.err);
  REQUIRE(ran.exit_code == 0);
  const auto lines = lines_of(ran.out);
  const auto nodes = static_cast<std::size_t>(std::stoi(lines.back()));
  CHECK(lines.size() == nodes + 1);
  CHECK_THAT(lines.front(), contains("take_batch"));
  // 13 for batch, products, loss and update, and relu's own kernel after two of the products.
  CHECK(nodes <= 15);
}

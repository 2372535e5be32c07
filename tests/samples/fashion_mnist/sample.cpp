// The FashionMNIST sample end to end, on a small set made here.
#include <cstdlib>
#include <regex>

#include "firn/environment.h"
#include "firn/runtime/stream.h"
#include "small_set.h"

using namespace firn::test;
using nlohmann::json;

TEST_CASE("images: trains, reports and ends with the test accuracy", "[host]") {
  const SmallSet set;
  const std::string log = set.folder.file("run.jsonl");
  const Ran ran = set.run({"--epochs", "3", "--seed", "4", "--log", log});
  INFO(ran.out << ran.err);
  REQUIRE(ran.exit_code == 0);
  CHECK(complaints(ran) == "");
  CHECK(!has_control_bytes(ran.out));
  CHECK_THAT(ran.out, contains("epoch  train loss  val. loss   accuracy  samples/s  peak memory"));
  CHECK_THAT(ran.out, contains("64 x 1 = 64 samples per step"));
  CHECK_THAT(ran.out, contains("600 training and 100 test images"));
  CHECK_THAT(ran.out, contains("669,706 parameters"));
  CHECK_THAT(ran.out, contains("T-shirt/top"));
  CHECK_THAT(ran.out, contains("Ankle boot"));
  const std::string last = lines_of(ran.out).back();
  CHECK(std::regex_match(last, std::regex(R"(test accuracy [01]\.\d{4})")));
  // The classes are told apart by one bright band: three epochs are plenty.
  CHECK(std::stod(last.substr(last.rfind(' '))) > 0.95);

  const auto records = records_of(log);
  REQUIRE(records.size() == 4);
  const json& run = records[0];
  CHECK(run["record"] == "run");
  CHECK(run["epochs"] == 3);
  CHECK(run["settings"]["seed"] == 4);
  CHECK(run["settings"]["optimizer"] == "adam");
  CHECK(run["settings"]["lr"] == 0.001);
  CHECK(run["settings"]["batch"] == 64);
  CHECK(run["settings"]["data"] == set.folder.path().string());
  CHECK(run["modules"][0]["parameters"] == 669'706);
  const json& environment = run["measured"]["environment"];
  CHECK(environment["build"]["version"] == firn::version());
  CHECK(environment["build"]["revision"] == firn::revision());
  CHECK(!environment["cpu"]["model"].get<std::string>().empty());
  for (std::size_t i = 1; i < records.size(); ++i) {
    const json& epoch = records[i];
    CHECK(epoch["record"] == "epoch");
    CHECK(epoch["epoch"] == i);
    for (const char* field : {"train_loss", "validation_loss"})
      CHECK(epoch[field].get<double>() > 0);
    CHECK(epoch["metrics"]["accuracy"].get<double>() > 0);
    const json& measured = epoch["measured"];
    CHECK(measured["samples_per_second"].get<double>() > 0);
    CHECK(measured["seconds"].get<double>() > 0);
    // Weights, gradients and Adam's two moments at least.
    CHECK(measured["peak_bytes"].get<double>() > 4 * 4 * 669'706);
    CHECK(measured["peak_rss_bytes"].get<double>() > measured["peak_bytes"].get<double>() / 2);
    CHECK(epoch["details"]["class_accuracy"].size() == 10);
  }
  CHECK(records[3]["train_loss"].get<double>() < records[1]["train_loss"].get<double>());
  char text[32];
  std::snprintf(text, sizeof text, "test accuracy %.4f",
                records[3]["metrics"]["accuracy"].get<double>());
  CHECK(last == text);
}

TEST_CASE("images: the same seed gives the same figures and weights, for 1 and 2 threads",
          "[host][training]") {
  const SmallSet set;
  const auto train = [&](const char* threads, const char* seed, const char* optimizer) {
    const std::string log = set.folder.file("log");
    const std::string weights = set.folder.file("weights");
    const Ran ran = set.run({"--epochs", "2", "--batch", "100", "--threads", threads, "--seed",
                             seed, "--optimizer", optimizer, "--log", log, "--save", weights});
    INFO(ran.err);
    REQUIRE(ran.exit_code == 0);
    const json epoch = records_of(log).back();
    return std::make_tuple(epoch["train_loss"].get<double>(),
                           epoch["validation_loss"].get<double>(), read_file(weights));
  };
  for (const char* optimizer : {"sgd", "adam", "adamw"}) {
    INFO(optimizer);
    const auto one = train("1", "7", optimizer);
    CHECK((train("2", "7", optimizer) == one));
    CHECK((train("2", "8", optimizer) != one));
  }
}

TEST_CASE("images: --save writes the weights", "[host]") {
  const SmallSet set;
  const std::string path = set.folder.file("mlp.safetensors");
  const Ran ran = set.run({"--epochs", "1", "--save", path});
  REQUIRE(ran.exit_code == 0);
  const Bytes file = read_file(path);
  std::uint64_t length = 0;
  std::memcpy(&length, file.data(), 8);
  const json header = json::parse(file.substr(8, length));
  CHECK(header["layers.0.weight"]["shape"] == json({512, 784}));
  CHECK(header["layers.0.weight"]["dtype"] == "F32");
  CHECK(header["layers.2.bias"]["shape"] == json({10}));
  CHECK(file.size() == 8 + length + 4 * 669'706);
}

TEST_CASE("images: a file that is damaged or missing gives one clear line", "[host]") {
  const SmallSet set;
  const std::string images = set.folder.file("train-images-idx3-ubyte");
  write_file(images, read_file(images).substr(0, 5000));
  check_fails(set.run({}), images +
                               ": sizes at byte 4 declare [600, 28, 28] u8: expected 470400 "
                               "bytes of data, found only 4984");
  const std::string packed = set.folder.file("t10k-images-idx3-ubyte.gz");
  write_split(set.folder.path(), "train", 10);
  write_file(packed, read_file(packed).substr(0, 5000));
  CHECK(set.run({}).exit_code == 1);
  const TempFolder empty;
  check_fails(run_program(IMAGES, {"--data", empty.path().string()}), "no FashionMNIST files");
}

TEST_CASE("images: what cannot be done is said before training", "[host]") {
  const SmallSet set;
  check_fails(set.run({"--device", "tpu"}), "tpu");
  check_fails(set.run({"--device", "cuda:63"}), "cuda");
  check_fails(set.run({"--log", "/no/such/folder/log"}), "/no/such/folder/log");
  check_fails(set.run({"--save", "/no/such/folder/weights"}), "/no/such/folder/weights");
  check_fails(set.run({"--optimizer", "sgd", "--lr", "1e30", "--epochs", "2"}),
              "the loss is not finite");
  for (const std::vector<std::string>& bad :
       std::vector<std::vector<std::string>>{{"--epochs", "0"},
                                             {"--batch", "-1"},
                                             {"--optimizer", "magic"},
                                             {"--model", "gpt"},
                                             {"--lr", "0"},
                                             {"--threads", "0"},
                                             {"--frobnicate"}}) {
    const Ran ran = set.run(bad);
    INFO(bad.front());
    CHECK(ran.exit_code != 0);
    CHECK(ran.out.empty());
    CHECK_THAT(ran.err, contains(bad.front()));
  }
}

TEST_CASE("images: without a CUDA device --device cuda says in one line why not", "[host]") {
  const SmallSet set;
  const RunOptions hidden{.environment = {"CUDA_VISIBLE_DEVICES=", "CUSIM_DEVICES=0"}};
  for (const char* device : {"cuda", "cuda:0", "cuda:3"}) {
    const Ran ran = set.run({"--device", device}, hidden);
    INFO(ran.err);
    check_fails(ran, std::string(device[4] == '\0' ? "cuda:0" : device) + " cannot be used: " +
                         (firn::built_with_cuda() ? "" : "this firn was built without CUDA"));
    CHECK_THAT(ran.err, contains("; hint: "));
    CHECK(ran.out.empty());
  }
}

TEST_CASE("images: --show-graph needs a device that records", "[host]") {
  const SmallSet set;
  check_fails(set.run({"--show-graph"}), "use --device cuda");
}

TEST_CASE("images: the bar is for terminals, and never wider than one", "[host][training]") {
  // Many small batches: an epoch that ends within a tenth of a second is not drawn.
  const SmallSet set(4000);
  const std::vector<std::string> slow = {"--epochs", "1", "--batch", "1", "--threads", "1"};
  const std::string term = "TERM=xterm";
  for (const int columns : {100, 40, 12, 3, 1}) {
    const Ran ran = set.run(slow, {{term, "NO_COLOR"}, columns});
    REQUIRE(ran.exit_code == 0);
    CHECK(!has_control_bytes(ran.out));
    CHECK_THAT(ran.err, contains("\r"));
    if (columns == 100) {
      CHECK_THAT(ran.err, contains("epoch 1/1 ["));
      CHECK_THAT(ran.err, contains("samples/s  ETA 0:0"));
    }
    // Between two carriage returns stands at most one line's width.
    std::size_t width = 0;
    for (const char c : std::regex_replace(ran.err, std::regex("\x1b\\[K"), "")) {
      width = c == '\r' || c == '\n' ? 0 : width + 1;
      CHECK(width < static_cast<std::size_t>(columns));
    }
    CHECK(ran.err.substr(ran.err.size() - 4) == "\r\x1b[K");
  }
  for (const std::vector<std::string>& environment : std::vector<std::vector<std::string>>{
           {term, "NO_COLOR=1"}, {"TERM=dumb", "NO_COLOR"}, {"TERM", "NO_COLOR"}}) {
    const Ran ran = set.run(slow, {environment, 80});
    REQUIRE(ran.exit_code == 0);
    CHECK(complaints(ran) == "");
  }
}

TEST_CASE("images: an interrupt ends the bar's line and the run", "[host]") {
  const SmallSet set;
  const Ran ran =
      set.run({"--epochs", "1000", "--batch", "1"}, {{"TERM=xterm", "NO_COLOR"}, 80, "samples/s"});
  CHECK(ran.exit_code == 130);
  CHECK_THAT(ran.err, contains("\x1b[Kerror: interrupted\r\n"));  // a terminal adds the \r
}

TEST_CASE("from_scratch: the loss falls", "[host]") {
  const Ran ran = run_program(FROM_SCRATCH, {});
  REQUIRE(ran.exit_code == 0);
  const auto lines = lines_of(ran.out);
  REQUIRE(lines.size() >= 3);
  const auto number = [](const std::string& line) {
    return std::stod(line.substr(line.rfind(' ')));
  };
  CHECK(number(lines[lines.size() - 2]) < 0.2 * number(lines.front()));
  CHECK(number(lines.back()) > 0.95);
}

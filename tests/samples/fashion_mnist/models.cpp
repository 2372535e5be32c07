// The sample's models, what is done to images and weights while they train, and predictions.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <regex>

#include "small_set.h"

using namespace firn::test;
using nlohmann::json;

namespace {

/// The records of a run that must succeed, the first for the run, the others for its epochs.
std::vector<json> train(const SmallSet& set, std::vector<std::string> arguments) {
  const std::string log = set.folder.file("models.jsonl");
  arguments.insert(arguments.end(), {"--log", log});
  const Ran ran = set.run(arguments);
  INFO(ran.out << ran.err);
  REQUIRE(ran.exit_code == 0);
  CHECK(complaints(ran) == "");
  return records_of(log);
}

double number(const json& record, const char* field) { return record[field].get<double>(); }

std::string last_line(const Ran& ran) { return lines_of(ran.out).back(); }

}  // namespace

TEST_CASE("images: cnn and resnet train, whole and in micro-batches, in 32 and 16 bits",
          "[host][training]") {
  const SmallSet set(24, 10);
  struct {
    const char* model;
    int parameters;
  } const models[] = {{"cnn", 320 + 18'496 + 1'179'776 + 1'290}, {"resnet", 174'970}};
  for (const auto& m : models) {
    INFO(m.model);
    double loss = 0;
    for (const std::vector<std::string>& how : std::vector<std::vector<std::string>>{
             {"--batch", "8"},
             {"--batch", "8", "--micro-batch", "4", "--precision", "fp16"},
             {"--batch", "8", "--micro-batch", "2", "--precision", "amp-bf16"}}) {
      std::vector<std::string> arguments = {"--model", m.model, "--epochs", "2"};
      arguments.insert(arguments.end(), how.begin(), how.end());
      const auto records = train(set, arguments);
      REQUIRE(records.size() == 3);
      CHECK(records[0]["settings"]["parameters"] == m.parameters);
      CHECK(records[2]["applied_steps"] == 6);
      CHECK(records[2]["skipped_steps"] == 0);
      CHECK(std::isfinite(number(records[2], "validation_loss")));
      loss = number(records[2], "train_loss");
      CHECK(loss < 4);
    }
  }
}

TEST_CASE("images: image models learn bands that tell the classes", "[host][long][training]") {
  const SmallSet set(400, 100);
  for (const char* model : {"cnn", "resnet"}) {
    const auto records = train(set, {"--model", model, "--epochs", "3", "--batch", "16"});
    INFO(model << ": " << records.back()["metrics"]["accuracy"]);
    CHECK(number(records.back()["metrics"], "accuracy") > 0.9);
  }
}

TEST_CASE("images: --augment changes what is trained on, not what is tested", "[host]") {
  const SmallSet set(120, 20);
  const std::vector<std::string> base = {"--epochs", "1", "--lr", "1e-30"};  // weights stay
  const auto with = [&](const std::vector<std::string>& more) {
    std::vector<std::string> arguments = base;
    arguments.insert(arguments.end(), more.begin(), more.end());
    return train(set, arguments);
  };
  const auto plain = with({}), augmented = with({"--augment"});
  CHECK(augmented[0]["settings"]["augment"] ==
        json({{"crop_padding", 2}, {"flip", 0.5}, {"erase", 0.25}}));
  CHECK(plain[0]["settings"]["augment"] ==
        json({{"crop_padding", 0}, {"flip", 0.0}, {"erase", 0.0}}));
  CHECK(augmented[1]["validation_loss"] == plain[1]["validation_loss"]);
  CHECK(augmented[1]["train_loss"] != plain[1]["train_loss"]);
  CHECK(with({"--augment"})[1]["train_loss"] == augmented[1]["train_loss"]);
  const auto flipped = with({"--augment", "flip=1"});
  CHECK(flipped[0]["settings"]["augment"]["crop_padding"] == 0);
  CHECK(flipped[1]["train_loss"] != augmented[1]["train_loss"]);
  CHECK(with({"--augment", "crop=0,flip=0"})[1]["train_loss"] == plain[1]["train_loss"]);
}

TEST_CASE("images: --ema tests and saves the averaged weights", "[host]") {
  const SmallSet set(300, 50);
  const std::string weights = set.folder.file("weights");
  const auto run = [&](const std::vector<std::string>& more) {
    std::vector<std::string> arguments = {"--epochs", "2", "--save", weights};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return train(set, arguments);
  };
  const auto plain = run({});
  const auto averaged = run({"--ema", "0.999"});
  CHECK(averaged[0]["settings"]["ema"] == 0.999);
  CHECK(averaged[2]["train_loss"] == plain[2]["train_loss"]);  // training goes on without them
  // After ten steps the average has hardly left the start.
  CHECK(std::abs(number(averaged[2], "validation_loss") - std::log(10.0)) < 0.2);
  CHECK(number(plain[2], "validation_loss") < 1.5);
  char want[32];
  std::snprintf(want, sizeof want, "test accuracy %.4f",
                number(averaged[2]["metrics"], "accuracy"));
  CHECK(last_line(set.run({"--load", weights})) == want);
}

TEST_CASE("images: --label-smoothing and --weight-decay", "[host]") {
  const SmallSet set(120, 20);
  const auto plain = train(set, {"--epochs", "1", "--lr", "1e-30"});
  const auto smoothed = train(set, {"--epochs", "1", "--lr", "1e-30", "--label-smoothing", "0.1"});
  CHECK(smoothed[1]["validation_loss"] == plain[1]["validation_loss"]);
  CHECK(smoothed[1]["train_loss"] != plain[1]["train_loss"]);
  // So much decay that nothing is left of the weights: every class is as likely.
  const auto decayed =
      train(set, {"--epochs", "3", "--optimizer", "sgd", "--lr", "0.01", "--weight-decay", "60"});
  CHECK(decayed[0]["settings"]["weight_decay"] == 60);
  CHECK(std::abs(number(decayed[3], "validation_loss") - std::log(10.0)) < 0.05);
  for (const char* optimizer : {"adam", "adamw"}) {
    const std::vector<std::string> base = {"--epochs", "2", "--optimizer", optimizer};
    auto with = base;
    with.insert(with.end(), {"--weight-decay", "0.5"});
    CHECK(train(set, with)[2]["validation_loss"] != train(set, base)[2]["validation_loss"]);
  }
  CHECK(plain[0]["settings"]["weight_decay"].is_null());
}

TEST_CASE("images: the table of confusions counts every test image", "[host]") {
  const SmallSet set(300, 50);
  const std::string log = set.folder.file("log");
  const Ran ran = set.run({"--epochs", "2", "--log", log});
  REQUIRE(ran.exit_code == 0);
  const json epoch = records_of(log).back();
  std::vector<std::vector<int>> rows = epoch["details"]["confusion"];
  REQUIRE(rows.size() == 10);
  int all = 0, right = 0;
  for (std::size_t i = 0; i < 10; ++i) {
    REQUIRE(rows[i].size() == 10);
    const int images = std::accumulate(rows[i].begin(), rows[i].end(), 0);
    CHECK(images == 5);
    CHECK(epoch["details"]["class_accuracy"][i].get<double>() == Approx(rows[i][i] / 5.0));
    all += images;
    right += rows[i][i];
  }
  CHECK(all == 50);
  CHECK(number(epoch["metrics"], "accuracy") == Approx(right / 50.0));
  CHECK_THAT(ran.out, contains("true class (rows) and predicted class (columns)"));
  // The table's first row, as the log has it.
  const auto lines = lines_of(ran.out);
  const auto first = std::find_if(lines.begin(), lines.end(), [](const std::string& line) {
    return line.rfind("T-shirt/top", 0) == 0;
  });
  REQUIRE(first != lines.end());
  std::istringstream cells(first->substr(11));
  for (int i = 0; i < 10; ++i) {
    int cell = -1;
    cells >> cell;
    CHECK(cell == rows[0][static_cast<std::size_t>(i)]);
  }
}

TEST_CASE("images: --load shows what saved weights do, in every precision", "[host]") {
  const SmallSet set(300, 50);
  const std::string weights = set.folder.file("weights"), again = set.folder.file("again");
  const Ran trained = set.run({"--epochs", "2", "--save", weights});
  REQUIRE(trained.exit_code == 0);
  const Ran loaded = set.run({"--load", weights, "--save", again});
  INFO(loaded.err);
  REQUIRE(loaded.exit_code == 0);
  CHECK(last_line(loaded) == last_line(trained));
  CHECK(read_file(again) == read_file(weights));
  CHECK(set.run({"--load", weights, "--precision", "fp16"}).exit_code == 0);
  // Training goes on from there.
  const auto more = train(set, {"--load", weights, "--epochs", "1"});
  const auto anew = train(set, {"--epochs", "1"});
  CHECK(number(more[1], "train_loss") < number(anew[1], "train_loss"));

  check_fails(set.run({"--load", weights, "--model", "resnet"}), "missing: conv.weight");
  check_fails(set.run({"--load", "/no/such/file"}), "/no/such/file");
}

TEST_CASE("images: --predict shows an image, its class and how sure the model is", "[host]") {
  const SmallSet set(300, 50);
  const std::string weights = set.folder.file("weights");
  const std::string images = set.folder.file("t10k-images-idx3-ubyte.gz");
  const Ran trained = set.run({"--epochs", "4", "--save", weights, "--predict", images + ":3"});
  REQUIRE(trained.exit_code == 0);
  CHECK_THAT(trained.out, contains("predicted class: Dress\n"));  // labels are index mod 10
  CHECK(last_line(trained).rfind("test accuracy", 0) == 0);

  // With weights from a file no data set is needed.
  const std::vector<std::string> arguments = {"--load", weights, "--predict", images + ":13"};
  const Ran ran = run_program(IMAGES, arguments, {{"FIRN_DATA=/no/such/folder"}});
  INFO(ran.out << ran.err);
  REQUIRE(ran.exit_code == 0);
  CHECK(!has_control_bytes(ran.out));
  CHECK_THAT(ran.out, contains(images + ":13\n"));
  CHECK_THAT(ran.out, contains("predicted class: Dress\n"));
  const auto lines = lines_of(ran.out);
  REQUIRE(lines.size() == 2 + 28 + 2 + 10);
  double sum = 0;
  for (std::size_t i = lines.size() - 10; i < lines.size(); ++i)
    sum += std::stod(lines[i].substr(11));
  CHECK(sum == Approx(1).margin(1e-3));
  // The bright band of class 3 is in rows 10 and 11.
  CHECK(std::count(lines[2 + 10].begin(), lines[2 + 10].end(), ' ') == 0);
  CHECK(std::all_of(ran.out.begin(), ran.out.end(), [](char c) { return (c & 0x80) == 0; }));

  RunOptions terminal{.environment = {"TERM=xterm", "NO_COLOR"}, .terminal_columns = 80};
  terminal.terminal_out = true;
  const Ran drawn = run_program(IMAGES, arguments, terminal);
  CHECK(drawn.exit_code == 0);
  CHECK_THAT(drawn.out, contains("\x1b[0m"));
  CHECK_THAT(drawn.out, contains("\u2580"));
  CHECK_THAT(drawn.out, contains("\u2588"));
  terminal.environment = {"TERM=xterm", "NO_COLOR=1"};
  CHECK(run_program(IMAGES, arguments, terminal).out.find('\x1b') == std::string::npos);

  check_fails(set.run({"--load", weights, "--predict", images + ":50"}),
              "has no image 50: there are 50, counted from 0");
  check_fails(set.run({"--load", weights, "--predict", "/no/such/images:0"}), "/no/such/images");
  check_fails(
      set.run({"--load", weights, "--predict", set.folder.file("t10k-labels-idx1-ubyte.gz:0")}),
      "not images [n, 28, 28] u8");
}

TEST_CASE("images: options of models and images that make no sense are named", "[host]") {
  const SmallSet set(20, 10);
  struct Case {
    std::vector<std::string> arguments, named;
  };
  for (const Case& c :
       std::vector<Case>{{{"--augment", "shear=2"}, {"--augment", "shear=2", "crop=2,flip=0.5"}},
                         {{"--augment", "crop=28"}, {"--augment", "crop=28", "0 to 27"}},
                         {{"--augment", "crop=1.5"}, {"--augment", "crop=1.5"}},
                         {{"--augment", "flip=2"}, {"--augment", "flip=2", "0 to 1"}},
                         {{"--augment", "erase=x"}, {"--augment", "erase=x"}},
                         {{"--ema", "1"}, {"--ema", "less than 1"}},
                         {{"--ema", "-0.5"}, {"--ema"}},
                         {{"--label-smoothing", "1"}, {"--label-smoothing", "less than 1"}},
                         {{"--weight-decay", "-1"}, {"--weight-decay"}},
                         {{"--predict", "images"}, {"--predict", "FILE:INDEX"}},
                         {{"--predict", "images:-1"}, {"--predict", "images:-1"}},
                         {{"--predict", ":3"}, {"--predict", "FILE:INDEX"}},
                         {{"--epochs", "0"}, {"--epochs", "--load"}}}) {
    const Ran ran = set.run(c.arguments);
    INFO(ran.err);
    CHECK(ran.exit_code > 1);
    CHECK(ran.out.empty());
    for (const std::string& name : c.named) CHECK_THAT(ran.err, contains(name));
  }
  const std::string help = set.run({"--help"}).out;
  for (const char* option : {"--model", "--augment", "--ema", "--label-smoothing", "--weight-decay",
                             "--load", "--predict", "resnet"})
    CHECK_THAT(help, contains(option));
}

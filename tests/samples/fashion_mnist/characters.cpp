// The other sample that trains: a small GPT on bytes, by the same options.
#include <cmath>
#include <iterator>
#include <sstream>

#include "small_set.h"

using namespace firn::test;
using nlohmann::json;

namespace {

/// A folder with a text of few letters, and a model that is trained on it in a second.
class Writing {
 public:
  Writing() {
    std::string text;
    for (int i = 0; i < 400; ++i) text += i % 3 == 0 ? "snow is cold. " : "ice is colder. ";
    write_file(path(), text);
  }
  std::string path() const { return folder_.file("text"); }
  std::string file(const std::string& name) const { return folder_.file(name); }
  /// Runs with the options, words apart, and those of a small model that are not among them.
  Ran run(const std::string& options) const {
    std::vector<std::string> arguments = words(options);
    const std::vector<std::string> small =
        words("--data " + path() +
              " --length 16 --width 16 --blocks 1 --heads 2 --lr 0.01 --generate 40 --prompt s");
    for (std::size_t i = 0; i < small.size(); i += 2)
      if (std::find(arguments.begin(), arguments.end(), small[i]) == arguments.end())
        arguments.insert(arguments.end(), {small[i], small[i + 1]});
    return run_program(CHARACTERS, arguments);
  }
  Ran good(const std::string& options) const {
    Ran ran = run(options);
    INFO(options << "\n" << ran.out << ran.err);
    REQUIRE(ran.exit_code == 0);
    CHECK(complaints(ran).empty());
    return ran;
  }
  std::string weights(const std::string& options) const {
    const std::string out = good("--hash " + options).out;
    const auto at = out.find("\nweights ");
    REQUIRE(at != std::string::npos);
    return out.substr(at + 9, 64);
  }

 private:
  static std::vector<std::string> words(const std::string& text) {
    std::istringstream in(text);
    return {std::istream_iterator<std::string>(in), {}};
  }
  TempFolder folder_;
};

std::string last_line(const Ran& ran) { return lines_of(ran.out).back(); }

}  // namespace

TEST_CASE("characters: learns a text, and writes some of its words", "[host]") {
  const Writing text;
  const std::string log = text.file("log"), weights = text.file("weights");
  const Ran ran = text.good("--epochs 8 --batch 16 --log " + log + " --save " + weights);
  INFO(ran.out);
  CHECK_THAT(ran.out, contains("training and 36 test windows of 16 bytes"));
  CHECK_THAT(ran.out, contains("gpt, "));
  const auto records = records_of(log);
  REQUIRE(records.size() == 9);
  CHECK(records[0]["settings"]["program"] == "characters");
  CHECK(records[0]["settings"]["length"] == 16);
  const json &first = records[1], &last = records[8];
  CHECK(last["train_loss"].get<double>() < 0.5 * first["train_loss"].get<double>());
  const double loss = last["validation_loss"].get<double>();
  const double perplexity = last["metrics"]["perplexity"].get<double>();
  CHECK(perplexity == Approx(std::exp(loss)).epsilon(1e-4));
  CHECK(perplexity < 4);  // of 256 bytes
  char line[48];
  std::snprintf(line, sizeof line, "test perplexity %.4f", perplexity);
  CHECK(last_line(ran) == line);
  CHECK_THAT(ran.out, contains("cold"));

  const Ran tested = text.good("--load " + weights);
  CHECK(last_line(tested) == line);
  CHECK_THAT(ran.out, contains(tested.out));  // the same words, and the same line
  CHECK(text.good("--load " + weights + " --generate 0").out == std::string("\n") + line + "\n");
}

TEST_CASE("characters: a run that goes on has the weights of one that was not stopped", "[host]") {
  const Writing text;
  const std::string run = " --checkpoint " + text.file("run");
  const std::string whole = text.weights("--epochs 2 --batch 16 --micro-batch 8 --ema 0.9");
  text.good("--epochs 1 --batch 16 --micro-batch 8 --ema 0.9 --checkpoint-every 5" + run);
  CHECK(text.weights("--epochs 2 --batch 16 --micro-batch 8 --ema 0.9 --resume" + run) == whole);
}

TEST_CASE("characters: with --exact ranks and cuts change no bit", "[host]") {
  const Writing text;
  const std::string one = text.weights("--epochs 1 --batch 16 --exact 4 --threads 1");
  CHECK(text.weights("--epochs 1 --batch 16 --exact 4 --ranks 2") == one);
  CHECK(text.weights("--epochs 1 --batch 16 --exact 4 --ranks 2 --zero 3") == one);
  CHECK(text.weights("--epochs 1 --batch 16 --exact 4 --micro-batch 8 --recompute all") == one);
  CHECK(text.weights("--epochs 1 --batch 16 --exact 8") != one);
}

TEST_CASE("characters: precisions, plans and limits of the shared program", "[host]") {
  const Writing text;
  for (const char* precision : {"fp16", "amp-bf16"})
    CHECK_THAT(last_line(text.good(std::string("--epochs 1 --precision ") + precision)),
               contains("test perplexity "));
  const std::string plan = text.good("--batch 16 --plan --recompute auto").out;
  CHECK(lines_of(plan).size() == 1 + 5 * 3);  // 16, 8, 4, 2, 1
  // Between what 64 and 32 windows take; evaluation takes less than either.
  const auto rows = plan_rows(text.good("--batch 64 --plan").out);
  REQUIRE(rows.size() == 7);
  const int limit = static_cast<int>((rows[0].training + rows[1].training) / 2);
  CHECK_THAT(text.good("--epochs 1 --batch 64 --memory " + std::to_string(limit) + "KiB").out,
             contains("micro-batches of 32: "));
}

TEST_CASE("characters: what cannot be done is refused", "[host]") {
  const Writing text;
  const auto refused = [&](const std::string& options, const std::string& what) {
    const Ran ran = text.run(options);
    INFO(options << ran.out << ran.err);
    CHECK(ran.exit_code != 0);
    CHECK_THAT(ran.err, contains(what));
  };
  refused("--heads 3", "no multiple of 2 x 3");
  refused("--dropout 1", "less than 1");
  refused("--ranks 2 --micro-batch 4 --accumulate-schedule 0:2,1:4", "one size");
  refused("--pipeline 2", "--pipeline");
  refused("--show-graph", "--show-graph");
  check_fails(text.run("--data /no/such/text"), "/no/such/text");
  check_fails(text.run("--length 60000"), "/text: ");
}

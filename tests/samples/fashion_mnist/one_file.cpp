// samples/fashion_mnist.cpp: the program of one file, on a small set made here.
#include <regex>

#include "small_set.h"

using namespace firn::test;

namespace {

Ran run_small(const SmallSet& set, const std::vector<std::string>& arguments) {
  return run_program(FASHION_MNIST, arguments, {{"FIRN_DATA=" + set.folder.path().string()}});
}

/// "test accuracy 0.9800"
std::string last_line(const Ran& ran) {
  INFO(ran.err);
  REQUIRE(ran.exit_code == 0);
  return lines_of(ran.out).back();
}

/// The first number behind `before` in the output: "0.3186".
std::string number_behind(const Ran& ran, const std::string& before) {
  std::smatch found;
  CAPTURE(ran.out);
  REQUIRE(std::regex_search(ran.out, found, std::regex(before + R"( +(\d+\.\d{4}))")));
  return found[1];
}

}  // namespace

TEST_CASE("fashion_mnist: learns in each precision, and ends with the test accuracy",
          "[host][training]") {
  const SmallSet set;
  for (const char* precision : {"f32", "f16", "bf16"}) {
    INFO(precision);
    const Ran ran = run_small(set, {"--epochs", "3", "--precision", precision});
    const std::string last = last_line(ran);
    CHECK(ran.err == "");
    CHECK(lines_of(ran.out).size() == 5);
    CHECK_THAT(ran.out, contains("600 training and 100 test images"));
    CHECK_THAT(ran.out, contains("669706 parameters"));
    CHECK(std::regex_match(last, std::regex(R"(test accuracy [01]\.\d{4})")));
    CHECK(std::stod(last.substr(last.rfind(' '))) > 0.95);
  }
}

TEST_CASE("fashion_mnist: the full program with the same options gets the same loss and accuracy",
          "[host][training]") {
  const SmallSet set(1000, 500);
  const std::vector<std::vector<std::string>> small = {
      {}, {"--precision", "f16"}, {"--precision=bf16"}, {"--accumulate", "3"}};
  const std::vector<std::vector<std::string>> full = {
      {}, {"--precision", "fp16"}, {"--precision=bf16"}, {"--accumulate", "3"}};
  for (std::size_t i = 0; i < small.size(); ++i) {
    auto one = small[i], other = full[i];
    INFO(i);
    one.insert(one.end(), {"--epochs", "1"});
    other.insert(other.end(), {"--epochs", "1"});
    const Ran by_one = run_small(set, one), by_other = set.run(other);
    CHECK(last_line(by_one) == last_line(by_other));
    CHECK(number_behind(by_one, "epoch 1  loss") == number_behind(by_other, "\n +1"));
  }
}

TEST_CASE("fashion_mnist: an option or a value that it does not have is named in one line",
          "[host]") {
  const SmallSet set;
  check_fails(run_small(set, {"--optimizer", "sgd"}), "'--optimizer' is not an option");
  check_fails(run_small(set, {"5"}), "'5' is not an option");
  check_fails(run_small(set, {"--epochs"}), "--epochs lacks its value");
  for (const char* bad : {"0", "-1", "2.5", "many", "", "5x", "99999999999999999999"})
    for (const char* name : {"--epochs", "--accumulate"})
      check_fails(run_small(set, {name, bad}),
                  std::string(name) + " takes a whole number from 1 to 1000000, not '" + bad + "'");
  check_fails(run_small(set, {"--precision=fp16"}),
              "--precision takes f32, f16 or bf16, not 'fp16'");
  check_fails(run_small(set, {"--help=5"}), "'--help=5' is not an option");
}

TEST_CASE("fashion_mnist: --help lists the options, and trains nothing", "[host]") {
  const Ran ran = run_program(FASHION_MNIST, {"--help"}, {{"FIRN_DATA=/no/such/folder"}});
  CHECK(ran.exit_code == 0);
  CHECK(ran.err == "");
  for (const char* option : {"--epochs N", "--precision P", "--accumulate N", "--help"})
    CHECK_THAT(ran.out, contains(option));
}

TEST_CASE("fashion_mnist: files that are missing give one clear line", "[host]") {
  const SmallSet set;
  std::filesystem::remove(set.folder.file("train-labels-idx1-ubyte"));
  check_fails(run_small(set, {}), "train-labels-idx1-ubyte");
}

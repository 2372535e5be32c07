// samples/why_mixed_precision on a small setting: each failure in its row, and in no other.
#include <regex>

#include "small_set.h"

using namespace firn::test;

namespace {

struct Row {
  double loss = 0, accuracy = 0, flushed = 0, lost = 0;
};

Row row_of(const Ran& ran, const std::string& name) {
  for (const std::string& line : lines_of(ran.out)) {
    std::smatch m;
    if (std::regex_match(
            line, m, std::regex(R"((.*\S) +(\d+\.\d+) +(\d\.\d+) +(\d+\.\d+)% +(\d+\.\d+)%)")) &&
        m[1] == name)
      return {std::stod(m[2]), std::stod(m[3]), std::stod(m[4]), std::stod(m[5])};
  }
  FAIL("no row " << name << " in\n" << ran.out);
  return {};
}

}  // namespace

TEST_CASE("why_mixed_precision: rounding stalls, underflow harms, masters and scaling do neither",
          "[host][training]") {
  const Ran ran = run_program(WHY_MIXED_PRECISION, {"--generated", "--steps", "2000"});
  INFO(ran.out << ran.err);
  REQUIRE(ran.exit_code == 0);
  const Row fp32 = row_of(ran, "FP32");
  const Row naive = row_of(ran, "FP16 naive");
  const Row masters = row_of(ran, "FP16 + masters");
  const Row scaled = row_of(ran, "FP16 + masters + scaling");

  CHECK(std::abs(scaled.loss - fp32.loss) < 0.01 * fp32.loss);
  CHECK(std::abs(scaled.accuracy - fp32.accuracy) <= 0.01);
  CHECK(masters.loss > 2 * scaled.loss);
  CHECK(naive.loss > 1.05 * masters.loss);

  CHECK(fp32.flushed == 0);
  CHECK(scaled.flushed < 1);
  CHECK(masters.flushed > 10);
  CHECK(naive.flushed > 10);

  CHECK(naive.lost > 20);
  for (const Row& r : {fp32, masters, scaled}) CHECK(r.lost < 1);
}

TEST_CASE("why_mixed_precision: a folder without the set is an error, not another set", "[host]") {
  const TempFolder empty;
  const Ran ran = run_program(WHY_MIXED_PRECISION, {"--data", empty.path().string()});
  CHECK(ran.exit_code == 1);
  CHECK(ran.out.empty());
  CHECK_THAT(ran.err, contains("no FashionMNIST files"));
}

// What the samples draw: images, bars and the table of confusions.
#include "samples/program/drawing.h"

#include <array>

#include "small_set.h"

using namespace firn::test;

namespace {

constexpr std::array<std::string_view, 3> kNames = {"Bag", "Ankle boot", "T-shirt/top"};

}  // namespace

TEST_CASE("drawing: an image in ASCII is two characters a pixel, dark to light", "[host]") {
  const std::vector<std::uint8_t> pixels = {0,   255, 0,   //
                                            0,   0,   0,   //
                                            128, 25,  26,  //
                                            231, 230, 0};
  CHECK(sample::ascii_image(pixels, 3) == "  @@\n\n++  ..\n@@%%\n");
}

TEST_CASE("drawing: an image in half-blocks is a line for two rows, closed by a reset", "[host]") {
  const std::vector<std::uint8_t> pixels = {0, 255, 255, 0, 128, 128};
  CHECK(sample::block_image(pixels, 2) ==
        "\x1b[38;5;232;48;5;255m\u2580\x1b[38;5;255;48;5;232m\u2580\x1b[0m\n"
        "\x1b[38;5;243;48;5;232m\u2580\x1b[38;5;243;48;5;232m\u2580\x1b[0m\n");
}

TEST_CASE("drawing: bars are as long as their probabilities", "[host]") {
  const std::vector<double> shares = {0.5, 0.4999, 0.0001};
  CHECK(sample::probability_bars(shares, kNames, "#") ==
        "Bag          0.5000  ####################\n"
        "Ankle boot   0.4999  ####################\n"
        "T-shirt/top  0.0001\n");
  const std::vector<double> sure = {1, 0, 0};
  CHECK(lines_of(sample::probability_bars(sure, kNames, "#"))[0].size() == 11 + 2 + 6 + 2 + 40);
}

TEST_CASE("drawing: confusions in rows of true classes, none at all included", "[host]") {
  CHECK(sample::confusion_table({{7, 1, 0}, {10, 1000, 0}, {0, 0, 0}}, kNames) ==
        "true \\ as     Bag Ankle T-shi  right\n"
        "Bag             7     1     0 0.8750\n"
        "Ankle boot     10  1000     0 0.9901\n"
        "T-shirt/top     0     0     0 0.0000\n");
}

// Draws an image and a row of probabilities as text, for terminals and files.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace sample {

/// Draws grey pixels, row-major, as characters from dark to light, two for a pixel, in plain ASCII.
std::string ascii_image(std::span<const std::uint8_t> pixels, int width);

/// Draws grey pixels in grey levels of a terminal with 256 colours. A line shows two rows of
/// pixels: each character is an upper half-block with the upper pixel as foreground, the lower as
/// background.
std::string block_image(std::span<const std::uint8_t> pixels, int width);

/// Draws a line for each name: "Sandal       0.9312  #####...". The bar for probability 1 is 40
/// times `bar`.
std::string probability_bars(std::span<const double> probabilities,
                             std::span<const std::string_view> names, std::string_view bar);

/// Formats counts of images by true class (rows) and predicted class (columns), with the share of
/// correct predictions in each row. Long column names are cut.
std::string confusion_table(const std::vector<std::vector<std::int64_t>>& confusion,
                            std::span<const std::string_view> names);

/// Prints a picture, the name of the most probable class, and probability_bars(): in colours and
/// blocks on a terminal, else in ASCII.
void print_prediction(const std::string& name, std::span<const std::uint8_t> pixels, int width,
                      std::span<const double> probabilities,
                      std::span<const std::string_view> names);

}  // namespace sample

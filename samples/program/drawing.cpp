// Returns strings; only predictions are printed.
#include "program/drawing.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "firn/train/progress.h"

namespace sample {
namespace {

/// Returns a grey level of the 256-colour palette, in which 232 to 255 are a ramp without black and
/// white.
int palette(std::uint8_t pixel) { return 232 + pixel * 23 / 255; }

std::string formatted(const char* format, double value) {
  char text[32];
  std::snprintf(text, sizeof text, format, value);
  return text;
}

std::string padded(std::string_view text, std::size_t width) {
  std::string out(text.substr(0, width));
  out.resize(width, ' ');
  return out;
}

std::string right(const std::string& text, std::size_t width) {
  return std::string(width > text.size() ? width - text.size() : 0, ' ') + text;
}

std::size_t longest(std::span<const std::string_view> names) {
  std::size_t n = 0;
  for (const auto name : names) n = std::max(n, name.size());
  return n;
}

}  // namespace

std::string ascii_image(std::span<const std::uint8_t> pixels, int width) {
  static constexpr std::string_view kShades = " .:-=+*#%@";
  const auto columns = static_cast<std::size_t>(width);
  std::string out;
  for (std::size_t row = 0; row < pixels.size() / columns; ++row) {
    std::string line;
    for (const std::uint8_t pixel : pixels.subspan(row * columns, columns))
      line.append(2, kShades[pixel * kShades.size() / 256]);
    line.resize(line.find_last_not_of(' ') + 1);
    out += line + '\n';
  }
  return out;
}

std::string block_image(std::span<const std::uint8_t> pixels, int width) {
  const auto columns = static_cast<std::size_t>(width);
  const std::size_t rows = pixels.size() / columns;
  std::string out;
  for (std::size_t row = 0; row < rows; row += 2) {
    for (std::size_t column = 0; column < columns; ++column) {
      const std::uint8_t upper = pixels[row * columns + column];
      const std::uint8_t lower = row + 1 < rows ? pixels[(row + 1) * columns + column] : 0;
      out += "\x1b[38;5;" + std::to_string(palette(upper)) + ";48;5;" +
             std::to_string(palette(lower)) + "m\u2580";
    }
    out += "\x1b[0m\n";
  }
  return out;
}

std::string probability_bars(std::span<const double> probabilities,
                             std::span<const std::string_view> names, std::string_view bar) {
  constexpr double kLongest = 40;
  const std::size_t width = longest(names);
  std::string out;
  for (std::size_t i = 0; i < probabilities.size(); ++i) {
    out += padded(names[i], width) + formatted("  %6.4f", probabilities[i]);
    const auto length = static_cast<int>(std::lround(probabilities[i] * kLongest));
    if (length > 0) out += "  ";
    for (int k = 0; k < length; ++k) out += bar;
    out += '\n';
  }
  return out;
}

std::string confusion_table(const std::vector<std::vector<std::int64_t>>& confusion,
                            std::span<const std::string_view> names) {
  constexpr std::size_t kColumn = 6;
  const std::size_t width = longest(names);
  std::string out = padded("true \\ as", width);
  for (const auto name : names) out += right(std::string(name.substr(0, kColumn - 1)), kColumn);
  out += "  right\n";
  for (std::size_t i = 0; i < confusion.size(); ++i) {
    std::int64_t all = 0;
    out += padded(names[i], width);
    for (const std::int64_t count : confusion[i]) {
      out += right(std::to_string(count), kColumn);
      all += count;
    }
    const double share =
        all > 0 ? static_cast<double>(confusion[i][i]) / static_cast<double>(all) : 0.0;
    out += formatted("%7.4f", share) + '\n';
  }
  return out;
}

void print_prediction(const std::string& name, std::span<const std::uint8_t> pixels, int width,
                      std::span<const double> probabilities,
                      std::span<const std::string_view> names) {
  const auto best = static_cast<std::size_t>(
      std::max_element(probabilities.begin(), probabilities.end()) - probabilities.begin());
  const bool terminal = firn::train::may_draw(STDOUT_FILENO);
  const std::string picture = terminal ? block_image(pixels, width) : ascii_image(pixels, width);
  const std::string bars = probability_bars(probabilities, names, terminal ? "\u2588" : "#");
  std::printf("\n%s\n%spredicted class: %s\n\n%s", name.c_str(), picture.c_str(),
              std::string(names[best]).c_str(), bars.c_str());
  std::fflush(stdout);
}

}  // namespace sample

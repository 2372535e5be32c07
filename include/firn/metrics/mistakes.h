// Collects the pictures that a classifier gets wrong with the most confidence, for the page of
// firn-report.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "firn/metrics/metric.h"

namespace firn::metrics {

struct MistakesOptions {
  std::int64_t keep = 12;  ///< number of pictures to keep, 1 to 64
  /// Size of a picture in pixels, for inputs [n, height * width * channels]. With 0, the size is
  /// that of the input, [n, height, width] or [n, channels, height, width].
  std::int64_t height = 0, width = 0;
  /// The input's values that are shown as black and as white. Default: the smallest and the largest
  /// value of each picture.
  std::optional<double> black = std::nullopt, white = std::nullopt;
  std::optional<std::int64_t> ignore_index = std::nullopt;  ///< samples of this target do not count
};

/// A wrong prediction.
struct Mistake {
  std::int64_t target = 0;                           ///< the right class
  std::int64_t predicted = 0;                        ///< the class that the model chose
  double probability = 0;                            ///< softmax() of the predicted class
  std::int64_t height = 0, width = 0, channels = 0;  ///< size of the picture; 1 or 3 channels
  std::vector<std::uint8_t> pixels;  ///< [height, width, channels], row-major, 0 is black
};

/// Keeps the samples with the largest probabilities of wrong classes, and the first among equal
/// ones. Outputs are logits [n, C], targets are classes [n], inputs are pictures with 1 or 3
/// channels. Pictures of more than 48 pixels a side lose rows and columns. This metric has no
/// figures: values() is empty. A sample whose probabilities are NaN, as for a logit of NaN or +inf,
/// is left out.
class Mistakes final : public Metric {
 public:
  using Options = MistakesOptions;
  /// Throws Error unless keep is 1 to 64, and height and width are both above 0 or both 0.
  explicit Mistakes(const Options& options = {});

  /// Throws Error: it needs the inputs.
  [[noreturn]] void update(const Tensor& output, const Tensor& target) override;
  void update_from(const Tensor& input, const Tensor& output, const Tensor& target) override;
  std::vector<Value> values() const override { return {}; }
  void reset() override;
  void combine(const dist::Group& group) override;

  /// Returns the mistakes, the most certain one first. Waits for the device.
  std::vector<Mistake> list() const;
  /// Adds "mistakes", a list of {true, predicted, probability, image}: the image is a data URI of a
  /// BMP file. If the details also have "classes", a list of names, the page shows the names.
  void add_details(io::Record& details) const override;

 private:
  /// Scores f32 [k], in descending order, -1 where there is no mistake; classes i64 [k, 2];
  /// pictures f32 [k, channels, height, width]. Never written in place.
  struct Kept {
    Tensor scores, classes, pictures;
    Kept separate() const { return *this; }
  };
  Tensor pictures_of(const Tensor& input) const;
  Kept best_of(const Kept& all) const;

  Options options_;
  detail::Collected<Kept> own_, all_;
};

}  // namespace firn::metrics

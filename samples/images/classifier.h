// Trains one of the models on FashionMNIST.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "firn/data/fashion_mnist.h"
#include "firn/metrics/classification.h"
#include "firn/metrics/mistakes.h"
#include "mesh.h"

namespace sample {

/// The image that --predict names.
struct Picture {
  std::vector<std::uint8_t> pixels;  ///< 28 x 28, row-major
  std::string name;                  ///< name on the command line
};
/// Reads "FILE:INDEX", where FILE is an IDX file of images 28 x 28. Throws IoError if it is not
/// such a file, or lacks the image.
Picture read_picture(const std::string& file_and_index);

/// The sample's own options.
struct Settings {
  std::string model = "mlp";
  double label_smoothing = 0;
  firn::data::Augmentation augment;
  std::string data;  ///< folder; empty: see load_fashion_mnist
  std::optional<Picture> picture;
};

class Classifier final : public Training {
 public:
  /// With `needs_set`, loads FashionMNIST.
  Classifier(const Settings& settings, const Options& options, firn::Device device,
             const firn::dist::Group& group, bool needs_set);

  std::string name() const override { return settings_.model; }
  firn::nn::Module& model() override { return sharded_ ? sharded_->stage() : *model_; }
  Sharded* sharded() override { return sharded_.get(); }
  std::string data() const override;
  Batches batches(const Options& options) override;
  Batches& tests() override { return *tests_; }
  firn::Loss loss(const firn::Tensor& logits, const firn::Tensor& y, bool training) override;
  std::vector<firn::metrics::Metric*> figures() override { return {&accuracy_}; }
  std::vector<firn::metrics::Metric*> others() override { return {&confusion_, &mistakes_}; }
  void describe_run(firn::train::Record& settings) const override;
  void describe_epoch(firn::train::Record& details) const override;
  void show(firn::nn::Module& model) override;
  std::string details() const override;
  std::string result() const override;

 private:
  const Settings& settings_;
  std::string precision_;
  firn::Device device_;
  std::unique_ptr<ShardedMlp> sharded_;
  std::unique_ptr<firn::nn::Module> model_;  ///< the model if it is not sharded
  std::optional<firn::data::FashionMnist> set_;
  std::optional<firn::data::ImageDataset> images_;
  std::optional<Batches> tests_;
  firn::metrics::Accuracy accuracy_;
  firn::metrics::Confusion confusion_{{.classes = firn::data::FashionMnist::kClasses}};
  firn::metrics::Mistakes mistakes_{{.height = 28, .width = 28}};
};

}  // namespace sample

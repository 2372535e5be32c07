// Training, tests and displayed predictions of the image classifiers.
#include "classifier.h"

#include <charconv>
#include <span>

#include "firn/data/idx.h"
#include "firn/firn.h"
#include "firn/train/progress.h"
#include "models.h"
#include "program/drawing.h"

namespace sample {

using firn::data::FashionMnist;
using firn::train::grouped;

namespace {

constexpr int kSide = 28;

}  // namespace

Picture read_picture(const std::string& file_and_index) {
  const auto colon = file_and_index.rfind(':');
  const std::string path = file_and_index.substr(0, colon);
  std::int64_t index = 0;
  const char* const end = file_and_index.data() + file_and_index.size();
  std::from_chars(file_and_index.data() + colon + 1, end, index);  // the parser has checked it

  const firn::Tensor images = firn::data::read_idx(path);
  if (images.dtype() != firn::u8 || images.rank() != 3 || images.size(1) != kSide ||
      images.size(2) != kSide)
    throw firn::IoError("predict", path,
                        "holds " + firn::describe(images) + ", not images [n, 28, 28] u8",
                        "see --predict");
  if (index >= images.size(0))
    throw firn::IoError("predict", path,
                        "has no image " + std::to_string(index) + ": there are " +
                            std::to_string(images.size(0)) + ", counted from 0",
                        "see --predict");
  return {images[index].to_vector<std::uint8_t>(), file_and_index};
}

Classifier::Classifier(const Settings& settings, const Options& o, firn::Device device,
                       const firn::dist::Group& group, bool needs_set)
    : settings_(settings), precision_(o.precision), device_(device) {
  if (o.sharded())
    sharded_ = std::make_unique<ShardedMlp>(o, group);
  else
    model_ = make_model(settings.model, o, device);
  if (!needs_set) return;
  const firn::DType dtype = model_dtype(precision_);
  set_ = firn::data::load_fashion_mnist(settings.data);
  images_.emplace(set_->train, firn::data::ImageOptions{
                                   .flatten = true, .augment = settings.augment, .dtype = dtype});
  // The batch size keeps a model's activations small.
  tests_ = firn::data::ResidentBatches(
      firn::data::ImageDataset(set_->test, {.flatten = true, .dtype = dtype}),
      {.batch = settings.model == "mlp" ? 1000 : 250, .device = device});
}

std::string Classifier::data() const {
  return set_->folder + ": " + grouped(set_->train.size()) + " training and " +
         grouped(set_->test.size()) + " test images";
}

Batches Classifier::batches(const Options& o) {
  return firn::data::ResidentBatches(*images_, resident_options(o, device_));
}

firn::Loss Classifier::loss(const firn::Tensor& logits, const firn::Tensor& y, bool training) {
  firn::CrossEntropyOptions options;
  if (training) options.label_smoothing = settings_.label_smoothing;
  return firn::cross_entropy(logits, y, options);
}

void Classifier::describe_run(firn::train::Record& settings) const {
  const firn::data::Augmentation& augment = settings_.augment;
  settings.add("label_smoothing", settings_.label_smoothing)
      .add("augment", firn::train::Record()
                          .add("crop_padding", augment.crop_padding)
                          .add("flip", augment.flip)
                          .add("erase", augment.erase))
      .add("data", set_->folder);
}

void Classifier::describe_epoch(firn::train::Record& details) const {
  const std::vector<std::string> classes(FashionMnist::kClassNames.begin(),
                                         FashionMnist::kClassNames.end());
  std::vector<double> shares;
  for (const firn::metrics::Value& share : confusion_.values()) shares.push_back(share.value);
  details.add("classes", std::span<const std::string>(classes))
      .add("class_accuracy", std::span<const double>(shares));
  confusion_.add_details(details);
  mistakes_.add_details(details);
}

void Classifier::show(firn::nn::Module& model) {
  if (!settings_.picture) return;
  const auto& [pixels, name] = *settings_.picture;
  const firn::NoGrad guard;
  model.eval();
  const firn::Tensor bytes = firn::tensor(pixels, {1, kSide * kSide}, firn::Device::cpu());
  const firn::Tensor x = firn::to_device(
      firn::cast(firn::cast(bytes, firn::f32) / 255.0, model_dtype(precision_)), device_);
  const auto shares =
      firn::softmax(firn::cast(output_of(model, x, precision_), firn::f64), -1).to_vector<double>();
  print_prediction(name, pixels, kSide, shares, FashionMnist::kClassNames);
}

std::string Classifier::details() const {
  return "test images by true class (rows) and predicted class (columns)\n" +
         confusion_table(confusion_.matrix(), FashionMnist::kClassNames);
}

std::string Classifier::result() const {
  char text[32];
  std::snprintf(text, sizeof text, "test accuracy %.4f", accuracy_.values()[0].value);
  return text;
}

}  // namespace sample

// Trains a model on FashionMNIST, or evaluates a trained one; `images --help` lists the options.
// The common options of trainings, and the program around them, are in samples/program.
#include <CLI/CLI.hpp>
#include <cmath>
#include <memory>
#include <string>

#include "classifier.h"
#include "models.h"

namespace sample {
namespace {

/// Value of --augment if none is given.
const std::string kDefaultAugment = "crop=2,flip=0.5,erase=0.25";

/// Parses "crop=2,flip=0.5,erase=0.25"; omitted parts are off.
firn::data::Augmentation parse_augment(const std::string& text) {
  const std::string name = "--augment";
  firn::data::Augmentation a;
  for (const std::string& part : CLI::detail::split(text, ',')) {
    const auto equals = part.find('=');
    const std::string what = part.substr(0, equals);
    double value = 0;
    if (equals == std::string::npos || !CLI::detail::lexical_cast(part.substr(equals + 1), value) ||
        (what != "crop" && what != "flip" && what != "erase"))
      refuse(name,
             "'" + part + "' is not crop=PIXELS, flip=P or erase=P, as in " + kDefaultAugment);
    if (what == "crop") {
      if (!(value >= 0 && value < 28) || value != std::floor(value))
        refuse(name, part + ": pixels are a whole number from 0 to 27");
      a.crop_padding = static_cast<std::int64_t>(value);
    } else {
      if (!(value >= 0 && value <= 1))
        refuse(name, part + ": a probability is a number from 0 to 1");
      (what == "flip" ? a.flip : a.erase) = value;
    }
  }
  return a;
}

/// Returns an error unless the text is FILE:INDEX.
std::string check_picture(const std::string& text) {
  const auto colon = text.rfind(':');
  const auto digits = colon == std::string::npos ? std::string() : text.substr(colon + 1);
  if (colon == 0 || digits.empty() || digits.size() > 9 ||
      digits.find_first_not_of("0123456789") != std::string::npos)
    return "'" + text + "' is not FILE:INDEX, as in t10k-images-idx3-ubyte.gz:7";
  return {};
}

class FashionMnist final : public Sample {
 public:
  About about() const override {
    return {.program = "images",
            .purpose = "Trains a model on FashionMNIST, or evaluates a trained one.",
            .one = "image",
            .blocks = "the ResNet's blocks",
            .sharded = "the mlp",
            .graph = true};
  }

  void add_options(CLI::App& app) override {
    app.add_option(
           "--model", settings_.model,
           "mlp: 784-512-512-10 with ReLU; cnn: convolutions of 32 and 64 channels, 128-10; "
           "resnet: six residual blocks of 16, 32 and 64 channels")
        ->check(CLI::IsMember({"mlp", "cnn", "resnet"}))
        ->capture_default_str();
    app.add_option("--label-smoothing", settings_.label_smoothing,
                   "share of the target that is spread over all classes, in [0, 1) [0]")
        ->check(CLI::Range(0.0, 1.0));
    augment_ = app.add_option("--augment", augmentation_,
                              "augment training images at random: crop after padding by this many "
                              "pixels, mirror, erase a rectangle [" +
                                  kDefaultAugment + "]")
                   ->expected(0, 1);
    app.add_option("--data", settings_.data,
                   "folder with the four IDX files [$FIRN_DATA, data/fashion-mnist, "
                   "/usr/share/datasets/fashion-mnist]");
    app.add_option(
           "--predict", predict_,
           "at the end, show an image and its predicted class: FILE:INDEX, where FILE is an "
           "IDX file of images")
        ->check(check_picture);
  }

  void check(const Options& o) override {
    const std::string model = "--model " + settings_.model;
    if (augment_->count() > 0)
      settings_.augment = parse_augment(augmentation_.empty() ? kDefaultAugment : augmentation_);
    if (settings_.label_smoothing >= 1) refuse("--label-smoothing", "must be less than 1");
    check_contradiction(o.exact > 0 && o.zero >= 2 && settings_.model == "resnet",
                        "--exact with --model resnet", "--zero " + std::to_string(o.zero),
                        "its BatchNorm needs the gradients of all chunks at a time");
    check_contradiction(o.recompute != "nothing" && settings_.model != "resnet", "--recompute",
                        model, "it has no blocks");
    check_contradiction(o.sharded() && settings_.model != "mlp",
                        o.tensor_parallel > 1 ? "--tensor-parallel" : "--pipeline", model,
                        "only the mlp has layers that ranks divide");
    if (kMlpSizes[1] % o.tensor_parallel != 0)
      refuse("--tensor-parallel", std::to_string(kMlpSizes[1]) +
                                      " hidden units cannot be divided by " +
                                      std::to_string(o.tensor_parallel) + "; give a power of two");
    if (o.pipeline >= static_cast<int>(kMlpSizes.size()))
      refuse("--pipeline", std::to_string(o.pipeline) + " stages, and the mlp has " +
                               std::to_string(kMlpSizes.size() - 1) + " layers");
  }

  void prepare(const Options&) override {
    if (!predict_.empty()) settings_.picture = read_picture(predict_);
  }
  bool tests_loaded() const override { return predict_.empty(); }

  std::unique_ptr<Training> training(const Options& o, firn::Device device,
                                     const firn::dist::Group& group) const override {
    return std::make_unique<Classifier>(settings_, o, device, group,
                                        o.epochs > 0 || tests_loaded());
  }

 private:
  Settings settings_;
  CLI::Option* augment_ = nullptr;
  std::string augmentation_, predict_;
};

}  // namespace
}  // namespace sample

int main(int argc, char** argv) {
  sample::FashionMnist program;
  return sample::run(program, argc, argv);
}

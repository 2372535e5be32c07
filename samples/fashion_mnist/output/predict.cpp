#include "output/predict.h"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <optional>

#include "firn/data/fashion_mnist.h"
#include "firn/data/idx.h"
#include "firn/firn.h"
#include "firn/train/progress.h"
#include "models.h"
#include "output/drawing.h"
#include "training.h"

namespace sample {
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

void predict(firn::nn::Module& model, const Picture& picture, const Options& o,
             firn::Device device) {
  constexpr auto& names = firn::data::FashionMnist::kClassNames;
  const firn::NoGrad guard;
  model.eval();
  const firn::Tensor bytes = firn::tensor(picture.pixels, {1, kSide * kSide}, firn::Device::cpu());
  const firn::Tensor x = firn::to_device(
      firn::cast(firn::cast(bytes, firn::f32) / 255.0, model_dtype(o.precision)), device);
  const auto shares = firn::softmax(firn::cast(logits_of(model, x, o.precision), firn::f64), -1)
                          .to_vector<double>();
  const auto best =
      static_cast<std::size_t>(std::max_element(shares.begin(), shares.end()) - shares.begin());
  const bool terminal = firn::train::may_draw(STDOUT_FILENO);
  std::printf(
      "\n%s\n%s%s: %s\n\n%s", picture.name.c_str(),
      (terminal ? block_image(picture.pixels, kSide) : ascii_image(picture.pixels, kSide)).c_str(),
      "predicted class", std::string(names[best]).c_str(),
      probability_bars(shares, names, terminal ? "\u2588" : "#").c_str());
  std::fflush(stdout);
}

}  // namespace sample

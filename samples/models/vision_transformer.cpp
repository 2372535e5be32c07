// A vision transformer (Dosovitskiy et al. 2021): an image is cut into patches, which are the
// tokens of a transformer. The mean of its outputs says which shape is drawn. train::fit() runs the
// training, in bf16 where that is safe.
#include <cstdio>
#include <cstdlib>

#include "firn/firn.h"

using namespace firn;

constexpr std::int64_t kSize = 16, kPatch = 4, kSide = kSize / kPatch, kWidth = 48;

struct VisionTransformer : nn::Module {
  nn::Linear embed{kPatch * kPatch, kWidth};
  nn::Parameter place{0.02 * randn({kSide * kSide, kWidth})};
  nn::TransformerEncoder encoder{
      nn::TransformerEncoderLayer(
          kWidth, 4, {.hidden = 96, .dropout = 0, .activation = gelu, .norm_first = true}),
      2, nn::LayerNorm(kWidth)};
  nn::Linear out{kWidth, 4};
  FIRN_MEMBERS(embed, place, encoder, out)

  Tensor forward(const Tensor& images) override {  // [n, 16, 16]
    const Tensor patches = images.reshape({-1, kSide, kPatch, kSide, kPatch})
                               .permute({0, 1, 3, 2, 4})
                               .reshape({-1, kSide * kSide, kPatch * kPatch});
    return out(mean(encoder(embed(patches) + place), 1));
  }
};

// Returns n noisy images of a disc, a square, a cross or a ring, of any size and at any place.
static data::TensorDataset shapes(std::int64_t n) {
  const Tensor label = randint(0, 4, {n});
  const Tensor radius = 4.0 + 2.0 * rand({n, 1, 1});
  const Tensor at = arange(kSize, {.dtype = f32});
  const Tensor x = abs(at - (6.0 + 3.0 * rand({n, 1, 1}))),
               y = abs(at.unsqueeze(1) - (6.0 + 3.0 * rand({n, 1, 1})));
  const Tensor distance = sqrt(square(x) + square(y)), farther = maximum(x, y);
  const Tensor disc = lt(distance, radius), box = lt(farther, 0.9 * radius);
  const Tensor drawn[] = {disc, box, logical_and(box, lt(minimum(x, y), 0.35 * radius)),
                          logical_and(disc, gt(distance, 0.5 * radius))};
  Tensor images = zeros({n, kSize, kSize});
  for (int k = 0; k < 4; ++k)
    images = where(eq(label, k).reshape({n, 1, 1}), drawn[k].to(f32), images);
  return data::TensorDataset({images + 0.1 * randn(images.shape()), label});
}

int main(int argc, char** argv) {
  const std::uint64_t seed = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 1;
  manual_seed(seed);
  const data::TensorDataset train_set = shapes(6000), test_set = shapes(500);
  data::Loader loader(train_set, {.batch = 50, .shuffle = true, .seed = seed});
  data::Loader test(test_set, {.batch = 250});

  VisionTransformer net;
  net.set_autocast(bf16);
  optim::AdamW opt(net.parameters(), {.lr = optim::cosine(3e-3, 600)}, {.clip_norm = 1});
  const auto loss = [](const Tensor& out, const Tensor& y) { return cross_entropy(out, y); };
  const train::FitReport report = train::fit(net, opt, loader, loss,
                                             {.epochs = 5,
                                              .validate = &test,
                                              .metrics = {std::make_shared<metrics::Accuracy>()},
                                              .progress = false});
  const double accuracy = report.last.value("accuracy");
  std::printf("%.1f %% of the held-out shapes are named\n", 100 * accuracy);
  return accuracy >= 0.95 ? 0 : 1;
}

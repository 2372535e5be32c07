// A U-Net (Ronneberger et al. 2015) that finds the pixels of discs. A square is as bright, so a
// pixel needs its surroundings. Pooling leads down, transposed convolutions lead up, and skip
// connections pass each size across. Each step consists of two micro-batches.
#include <cstdio>
#include <cstdlib>

#include "firn/firn.h"

using namespace firn;

constexpr std::int64_t kSize = 32;

struct TwoConvolutions : nn::Sequential {
  TwoConvolutions(std::int64_t in, std::int64_t out)
      : nn::Sequential(nn::Conv2d(in, out, 3, {.padding = 1, .bias = false}), nn::GroupNorm(4, out),
                       nn::ReLU(), nn::Conv2d(out, out, 3, {.padding = 1, .bias = false}),
                       nn::GroupNorm(4, out), nn::ReLU()) {}
};

struct UNet : nn::Module {
  TwoConvolutions down1{1, 8}, down2{8, 16}, bottom{16, 32}, up2{32, 16}, up1{16, 8};
  nn::ConvTranspose2d grow2{32, 16, 2, {.stride = 2}}, grow1{16, 8, 2, {.stride = 2}};
  nn::Conv2d out{8, 1, 1};
  FIRN_MEMBERS(down1, down2, bottom, up2, up1, grow2, grow1, out)

  Tensor forward(const Tensor& x) override {  // [n, 1, h, w] -> logits of the same shape
    const Tensor large = down1(x), middle = down2(max_pool2d(large, 2)),
                 small = bottom(max_pool2d(middle, 2));
    const Tensor y = up2(cat({middle, grow2(small)}, 1));
    return out(up1(cat({large, grow1(y)}, 1)));
  }
};

// Returns n images with a square and two discs under noise, and the masks of the discs.
static data::Sample blobs(std::int64_t n) {
  const Tensor at = arange(kSize, {.dtype = f32});
  Tensor bright = zeros({n, 1, kSize, kSize}), mask = bright;
  for (int k = 0; k < 3; ++k) {
    const auto place = [&] { return 6.0 + (kSize - 12.0) * rand({n, 1, 1, 1}); };
    const Tensor x = at - place(), y = at.unsqueeze(1) - place();
    const Tensor radius = 4.0 + 2.0 * rand({n, 1, 1, 1});
    const Tensor square_of = lt(maximum(abs(x), abs(y)), 0.9 * radius).to(f32);
    const Tensor disc = lt(square(x) + square(y), square(radius)).to(f32);
    if (k == 0) {
      bright = maximum(bright, square_of);
    } else {
      bright = maximum(bright, disc);
      mask = maximum(mask, disc);
    }
  }
  return {bright + 0.2 * randn(bright.shape()), mask};
}

int main(int argc, char** argv) {
  const std::uint64_t seed = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 1;
  manual_seed(seed);
  const data::TensorDataset train_set(blobs(600));
  data::Loader loader(train_set, {.batch = 20, .shuffle = true, .seed = seed});
  UNet net;
  optim::AdamW opt(net.parameters(), {.lr = optim::cosine(5e-3, 210)});
  // The loss has a term for the overlap in each image, and one for each pixel.
  const auto loss = [](const Tensor& logits, const Tensor& mask) {
    const Loss overlap = dice_loss(sigmoid(logits), mask);
    return overlap + bce_with_logits(logits, mask).mean_per(overlap);
  };
  train::fit(net, opt, loader, loss,
             {.epochs = 7, .micro_batch = optim::MicroBatch{.size = 10}, .progress = false});

  net.eval();
  const NoGrad guard;
  const data::Sample test = blobs(100);
  const Tensor found = gt(net(test[0]), 0), mask = gt(test[1], 0);
  const double iou = count_nonzero(logical_and(found, mask)).item() /
                     count_nonzero(logical_or(found, mask)).item();
  std::printf("intersection over union of the held-out discs: %.3f\n", iou);
  return iou >= 0.85 ? 0 : 1;
}

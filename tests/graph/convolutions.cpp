// Training steps of a small convolutional network as graphs: the same bits as steps given one
// kernel at a time, by the library's plans and as matrix products.
#include <string>
#include <vector>

#include "firn/firn.h"
#include "firn/ops/conv.h"
#include "graph/steps.h"
#include "support/catch.h"
#include "support/values.h"
#ifdef FIRN_HAS_CUDA
#include "kernels/cuda/conv/parts.h"
#include "kernels/settings/settings.h"
#endif

namespace firn::testing {
namespace {

/// Weights after some steps: a convolution of one channel, one of eight with relu, a linear layer.
std::vector<std::vector<double>> train(DType t, std::int64_t accumulate, bool as_graph) {
  manual_seed(7);
  const auto parameter = [&](const Shape& shape) {
    return cast(randn(shape, {.stddev = 0.3}), t).set_requires_grad();
  };
  const Tensor w1 = parameter({8, 1, 3, 3}), b1 = parameter({8}), w2 = parameter({16, 8, 3, 3}),
               b2 = parameter({16}), w3 = parameter({4, 16 * 2 * 2});
  optim::AdamW opt({w1, b1, w2, b2, w3}, {.lr = 1e-2}, {.accumulate = accumulate});
  const Tensor x = zeros({4, 1, 8, 8}, t), y = zeros({4}, i64);
  const auto work = [&] {
    Tensor h = conv2d(x, w1, b1, {.activation = Activation::relu});
    h = conv2d(h, w2, b2, {.stride = 2, .activation = Activation::relu});
    opt.backward(cross_entropy(linear(reshape(h, {4, 16 * 2 * 2}), w3), y));
    opt.step();
  };
  take_steps(opt, {x, y, 4}, 12, as_graph, work);
  std::vector<std::vector<double>> out;
  for (const Tensor& w : {w1, b1, w2, b2, w3}) out.push_back(values_of(w));
  return out;
}

void check_replays() {
  for (const DType t : {f32, f16}) {
    for (const std::int64_t accumulate : {1, 3}) {
      const auto eager = train(t, accumulate, false), replayed = train(t, accumulate, true);
      for (std::size_t i = 0; i < eager.size(); ++i) {
        expect_same(std::string(to_string(t)) + ", " + std::to_string(accumulate) +
                        " micro-steps, parameter " + std::to_string(i),
                    replayed[i], eager[i]);
      }
    }
  }
}

}  // namespace

TEST_CASE("Replayed steps of a convolutional network are equal to eager ones, to the bit") {
  check_replays();
}

#ifdef FIRN_HAS_CUDA
TEST_CASE("Replayed steps of a convolutional network without cuDNN") {
  auto& path = kernels::conv_path();
  const auto before = path.exchange(kernels::ConvPath::im2col);
  check_replays();
  path = before;
}
#endif

}  // namespace firn::testing

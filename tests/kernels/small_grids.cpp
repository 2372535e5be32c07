// Threads of a grid stride over what a grid cannot hold. Tensors of a test fit into one grid, so
// here grids are made small: two blocks. No result changes by a bit.
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "kernels/twins.h"
#include "support/catch.h"
#include "support/small_grids.h"
#include "support/values.h"

#ifdef FIRN_HAS_CUDA

namespace firn::testing {
namespace {

Tensor drawn(const Shape& shape, DType dtype = f32, Layout layout = Layout::contiguous) {
  Rng rng(7);
  return make(rng.uniforms(shape.product(), -3, 3), shape, dtype, layout, Device::cuda());
}
Tensor counted(const Shape& shape, double bound) {
  std::vector<double> values(static_cast<std::size_t>(shape.product()));
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = static_cast<double>(i * 31 % static_cast<std::size_t>(bound));
  return make(values, shape, i64, Layout::contiguous, Device::cuda());
}
/// The gradient of fn's result with respect to x, for a seed of its own.
Tensor slope(const Tensor& x, const std::function<Tensor(const Tensor&)>& fn) {
  Tensor leaf = x.detach().clone();
  leaf.set_requires_grad();
  const Tensor y = fn(leaf);
  backward(y, {.initial_gradient = drawn(y.shape(), y.dtype())});
  return leaf.grad();
}

/// More work than 2 blocks of 256 threads do in one go, whatever a thread does at a time.
constexpr std::int64_t kMany = 20'011;

const std::vector<std::pair<std::string, std::function<Tensor()>>> kWorks = {
    {"elementwise, contiguous", [] { return relu(drawn({kMany})); }},
    {"elementwise, contiguous f16", [] { return exp(drawn({kMany}, f16)); }},
    {"elementwise, groups",
     [] {
       return drawn({2501, 8}, f16) + drawn({8}, f16);
     }},
    {"elementwise, strided",
     [] {
       return neg(drawn({143, 140}, f32, Layout::stepped));
     }},
    {"elementwise, f64", [] { return sqrt(square(drawn({kMany}, f64))); }},
    {"comparison", [] { return lt(drawn({kMany}), drawn({kMany}) * 0.5).to(f32); }},
    {"accumulated gradient",
     [] { return slope(drawn({kMany}), [](const Tensor& x) { return x * x; }); }},
    {"cast", [] { return drawn({kMany}).to(bf16); }},
    {"cast to f64", [] { return drawn({kMany}, f16).to(f64); }},
    {"transposed copy",
     [] {
       return contiguous(transpose(drawn({143, 140}), 0, 1));
     }},
    {"strided copy",
     [] {
       return contiguous(drawn({143, 140}, f32, Layout::stepped));
     }},
    {"fill of a slice",
     [] {
       const Tensor x = zeros({kMany, 2}, f32, Device::cuda());
       fill_(slice(x, 1, 0, 1), 3);
       return x;
     }},
    {"arange", [] { return arange(kMany, {.start = 5, .step = 3, .device = Device::cuda()}); }},
    {"uniform",
     [] {
       Generator g(3);
       return rand({kMany}, {.device = Device::cuda(), .generator = &g});
     }},
    {"normal",
     [] {
       Generator g(3);
       return randn({kMany}, {.dtype = f16, .device = Device::cuda(), .generator = &g});
     }},
    {"dropout",
     [] {
       return slope(drawn({kMany}), [](const Tensor& x) {
         Generator g(3);
         return dropout(x, 0.3, true, g) + x;
       });
     }},
    {"gather",
     [] {
       return gather(drawn({3, kMany}), 0, counted({2, kMany}, 3));
     }},
    {"gather, gradient",
     [] {
       return slope(drawn({3, kMany}), [](const Tensor& x) {
         return gather(x, 0, counted({2, kMany}, 3));
       });
     }},
    {"embedding",
     [] {
       return embedding(drawn({50, 3}), counted({kMany}, 50));
     }},
    {"embedding, gradient",
     [] {
       return slope(drawn({5000, 3}),
                    [](const Tensor& x) { return embedding(x, counted({kMany}, 5000)); });
     }},
    {"one_hot", [] { return one_hot(counted({kMany}, 3), 3); }},
    {"sort of short lines",
     [] {
       return argsort(drawn({kMany / 5, 5}));
     }},
    {"sort of long lines",
     [] {
       return argsort(drawn({4, kMany / 4}));
     }},
    {"sort of a line at a time, of columns",
     [] {
       return argsort(drawn({5002, 4}, f64), 0);
     }},
    {"bincount", [] { return bincount(counted({kMany}, 50)); }},
    {"bincount of many places", [] { return bincount(counted({kMany}, 5000)); }},
    {"sum of rows",
     [] {
       return sum(drawn({kMany, 5}), {1});
     }},
    {"sum of columns",
     [] {
       return sum(drawn({5, kMany}), {0});
     }},
    {"largest, gradient",
     [] {
       return slope(drawn({5, kMany}), [](const Tensor& x) { return max(x, {0}); });
     }},
    {"argmax of columns",
     [] {
       return argmax(drawn({5, kMany}), 0);
     }},
    {"softmax",
     [] {
       return softmax(drawn({kMany, 5}));
     }},
    {"layer_norm",
     [] {
       return layer_norm(drawn({kMany, 5}));
     }},
    {"batch",
     [] {
       std::vector<std::uint8_t> pixels(9 * 784), labels(9, 3);
       for (std::size_t i = 0; i < pixels.size(); ++i) pixels[i] = static_cast<std::uint8_t>(i * 7);
       data::ResidentBatches batches(
           data::ImageDataset(data::LabelledImages{tensor(pixels, {9, 28, 28}, Device::cpu()),
                                                   tensor(labels, {9}, Device::cpu())}),
           {.batch = 9, .shuffle = true, .seed = 1, .device = Device::cuda()});
       batches.begin_epoch(0);
       return batches.next().x;
     }},
    {"mlp, gradient",
     [] {
       const Tensor w1 = drawn({40, 4}), w2 = drawn({3, 40});
       return slope(drawn({513, 4}), [&](const Tensor& x) { return mlp(x, std::vector{w1, w2}); });
     }},
};

TEST_CASE("small grids give the same bits", "[gpu][once]") {
  if (!has_device()) return;
  for (const auto& [name, work] : kWorks) {
    INFO(name);
    const auto want = values_of(work());
    const SmallGrids guard(2);
    const auto got = values_of(work());
    REQUIRE(got.size() == want.size());
    std::size_t different = 0;
    for (std::size_t i = 0; i < want.size(); ++i)
      different += !(got[i] == want[i] || (std::isnan(got[i]) && std::isnan(want[i])));
    CHECK(different == 0);
  }
}

}  // namespace
}  // namespace firn::testing
#endif

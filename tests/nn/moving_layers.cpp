// Padding, shuffles, distances, local response norm and bags as modules: each is its op with its
// options, says so, and refuses sizes that make no layer.
#include "firn/firn.h"
#include "message_of.h"
#include "support/catch.h"
#include "support/values.h"

using namespace firn;
using firn::testing::message_of;
using firn::testing::values_of;

namespace {

Tensor input(const Shape& shape) {
  Generator g(7);
  return randn(shape, {.generator = &g});
}

void check(nn::Module&& m, const Tensor& x, const Tensor& expected, const std::string& name,
           const std::string& settings) {
  INFO(name);
  const Tensor y = m(x);
  CHECK(y.shape() == expected.shape());
  CHECK(values_of(y) == values_of(expected));
  CHECK(m.type_name() == name);
  CHECK(m.extra_repr() == settings);
  CHECK(m.parameters().empty());
  CHECK(values_of((*nn::clone(static_cast<const nn::Module&>(m)))(x)) == values_of(expected));
}

TEST_CASE("exact mode refuses spectral norm, which moves at each call", "[host]") {
  auto layer = nn::spectral_norm(nn::Linear(3, 1));
  optim::SGD opt(layer.parameters(), {.lr = 0.1}, {.exact = {.chunk = 2}});
  std::string text;
  try {
    opt.run_batch(4, 2, [&](std::int64_t first, std::int64_t last) {
      return mse_loss(layer(ones({last - first, 3})), zeros({last - first, 1}));
    });
  } catch (const Error& e) {
    text = e.what();
  }
  INFO(text);
  CHECK(text.find("spectral_norm moves its vectors at each call") != std::string::npos);
  CHECK(nn::ReflectionPad({1})(ones({1, 3})).shape() == Shape{1, 5});
}

}  // namespace

TEST_CASE("padding modules pad the last axes") {
  const Tensor x = input({2, 3, 4, 5});
  check(nn::ZeroPad({1, 2}), x, pad(x, {0, 0, 1, 2}, {0, 0, 1, 2}), "ZeroPad", "[1, 2]");
  check(nn::ConstantPad({0, 1}, {2, 0}, 3.5), x, pad(x, {0, 0, 0, 1}, {0, 0, 2, 0}, 3.5),
        "ConstantPad", "[0, 1], [2, 0], value = 3.5");
  check(nn::ReflectionPad({3, 4}), x, pad(x, {0, 0, 3, 4}, {0, 0, 3, 4}, PadMode::reflect),
        "ReflectionPad", "[3, 4]");
  check(nn::ReplicationPad(2), x, pad(x, {0, 0, 0, 2}, {0, 0, 0, 2}, PadMode::replicate),
        "ReplicationPad", "[2]");
  check(nn::CircularPad({1, 1, 1}, {0, 0, 2}), x,
        pad(x, {0, 1, 1, 1}, {0, 0, 0, 2}, PadMode::circular), "CircularPad",
        "[1, 1, 1], [0, 0, 2]");
  CHECK(message_of([&] {
          nn::ZeroPad({1, 1, 1, 1, 1})(x);
        }) == "[ZeroPad] 5 sizes for [2, 3, 4, 5] f32 " + to_string(default_device()) +
                  "; hint: give fewer sizes, or unsqueeze()");
  CHECK(message_of([&] { nn::ReflectionPad(5)(x); }).find("[pad] reflect adds 5 on axis 3") == 0);
  CHECK(message_of([] { nn::CircularPad({1, -1}); }).find("[CircularPad] before [1, -1]") == 0);
  CHECK_THROWS_AS(nn::ReflectionPad(Axes{}), Error);
  CHECK_THROWS_AS(nn::ReplicationPad({1, 2}, {1}), Error);
}

TEST_CASE("shuffles and local response norm are their ops") {
  const Tensor x = input({2, 8, 4, 6});
  check(nn::PixelShuffle(2), x, pixel_shuffle(x, 2), "PixelShuffle", "2");
  check(nn::PixelUnshuffle(2), x, pixel_unshuffle(x, 2), "PixelUnshuffle", "2");
  CHECK(values_of(nn::PixelUnshuffle(2)(nn::PixelShuffle(2)(x))) == values_of(x));
  check(nn::ChannelShuffle(4), x, channel_shuffle(x, 4), "ChannelShuffle", "4");
  check(nn::LocalResponseNorm(3, {.k = 2}), x, local_response_norm(x, 3, 1e-4, 0.75, 2),
        "LocalResponseNorm", "3, alpha = 0.0001, beta = 0.75, k = 2");
  CHECK_THROWS_AS(nn::PixelShuffle(0), Error);
  CHECK_THROWS_AS(nn::PixelUnshuffle(-1), Error);
  CHECK_THROWS_AS(nn::ChannelShuffle(0), Error);
  CHECK_THROWS_AS(nn::LocalResponseNorm(0), Error);
}

TEST_CASE("Unfold and Fold are their ops") {
  const Tensor x = input({2, 3, 5, 6});
  const WindowOptions options{.dilation = {1, 2}, .padding = 1, .stride = 2};
  const Tensor columns = unfold(x, {2, 3}, options);
  check(nn::Unfold({2, 3}, options), x, columns, "Unfold",
        "2 x 3, dilation = 1 x 2, padding = 1, stride = 2");
  check(nn::Fold({5, 6}, {2, 3}, options), columns, fold(columns, {5, 6}, {2, 3}, options), "Fold",
        "5 x 6, 2 x 3, dilation = 1 x 2, padding = 1, stride = 2");
  check(nn::Unfold(2), x, unfold(x, 2), "Unfold", "2");
  CHECK_THROWS_AS(nn::Unfold(0), Error);
  CHECK_THROWS_AS(nn::Fold({0, 3}, 2), Error);
}

TEST_CASE("distances are modules of two inputs") {
  const Tensor a = input({3, 4}), b = a * 0.5 + 1.0;
  nn::CosineSimilarity cosine(-1);
  CHECK(values_of(cosine(a, b)) == values_of(cosine_similarity(a, b, -1)));
  CHECK(cosine.extra_repr() == "axis = -1, eps = 1e-08");
  nn::PairwiseDistance distance({.p = 1, .keepdims = true});
  CHECK(distance(a, b).shape() == Shape{3, 1});
  CHECK(values_of(distance(a, b)) ==
        values_of(pairwise_distance(a, b, {.p = 1, .keepdims = true})));
  CHECK(distance.extra_repr() == "p = 1, eps = 1e-06, keepdims = true");
}

TEST_CASE("Embedding: the row of padding starts at 0, and training leaves it alone") {
  manual_seed(1);
  nn::Embedding table(5, 3, {.padding_idx = -2});
  CHECK(table.extra_repr() == "5, 3, padding_idx = 3");
  CHECK(values_of(table.weight[3]) == std::vector<double>{0, 0, 0});
  CHECK(values_of(table.weight[2]) != std::vector<double>{0, 0, 0});
  const Tensor index = tensor<std::int64_t>({3, 0, 3, 1}, {2, 2});
  const auto first = values_of(table.weight[0]);
  optim::SGD opt(table.parameters(), {.lr = 0.1});
  opt.backward(mse_loss(table(index), ones({2, 2, 3})));
  opt.step();
  CHECK(values_of(table.weight[3]) == std::vector<double>{0, 0, 0});
  CHECK(values_of(table.weight[0]) != first);
  nn::Embedding copy = nn::clone(table);
  opt.backward(mse_loss(copy(index), ones({2, 2, 3})) + mse_loss(table(index), ones({2, 2, 3})));
  opt.step();
  CHECK(values_of(table.weight[3]) == std::vector<double>{0, 0, 0});
  CHECK(message_of([] { nn::Embedding(5, 3, {.padding_idx = 5}); }) ==
        "[Embedding] padding_idx = 5 of 5 rows; hint: it is one of the rows");
}

TEST_CASE("EmbeddingBag is embedding_bag() of its weight") {
  manual_seed(1);
  nn::EmbeddingBag means(6, 2), sums(6, 2, {.mode = BagMode::sum, .include_last_offset = true}),
      largest(6, 2, {.mode = BagMode::max, .padding_idx = 0, .dtype = f64});
  const Tensor rows = tensor<std::int64_t>({1, 2, 3, 0, 5, 5}, {2, 3}), list = flatten(rows);
  const Tensor offsets = tensor<std::int64_t>({0, 4, 6}), weights = input({6});
  CHECK(values_of(means(rows)) == values_of(embedding_bag(means.weight, rows)));
  CHECK(values_of(means(list, offsets)) ==
        values_of(embedding_bag(means.weight, list, {.offsets = offsets})));
  CHECK(values_of(sums(list, offsets, weights)) ==
        values_of(embedding_bag(sums.weight, list,
                                {.mode = BagMode::sum,
                                 .offsets = offsets,
                                 .per_sample_weights = weights,
                                 .include_last_offset = true})));
  CHECK(sums(list, offsets, weights).shape() == Shape{2, 2});
  CHECK(values_of(largest(rows)) ==
        values_of(embedding_bag(largest.weight, rows, {.mode = BagMode::max, .padding_idx = 0})));
  CHECK(values_of(largest.weight[0]) == std::vector<double>{0, 0});
  CHECK(largest.extra_repr() == "6, 2, mode = max, padding_idx = 0");
  CHECK(sums.extra_repr() == "6, 2, mode = sum, include_last_offset = true");
  CHECK(means.named_parameters()[0].name == "weight");
  CHECK(nn::clone(means).extra_repr() == "6, 2, mode = mean");
  CHECK_THROWS_AS(nn::EmbeddingBag(0, 2), Error);
  CHECK_THROWS_AS(means(list), Error);
}

// Rows of what layers are made of: borders and shuffles, pooling of rows and volumes, norms of
// powers, distances, bags of an embedding.
#include <cmath>
#include <functional>

#include "support/catch.h"
#include "support/ops/op_row.h"
#include "support/values.h"

namespace firn::testing {
namespace {

using Shapes = std::vector<std::vector<Shape>>;

/// x padded along its last axes.
Tensor around(const Tensor& x, Axes before, Axes after, PadMode mode) {
  while (before.size() < x.rank()) {
    before.insert(0, 0);
    after.insert(0, 0);
  }
  return pad(x, before, after, mode);
}

void moves(const char* name, OpFn op, Shapes shapes, Accuracy accuracy = Accuracy::exact) {
  Row(name, std::move(op))
      .args({real()})
      .shapes(std::move(shapes))
      .accuracy(accuracy)
      .integers()
      .golden();
}

/// Bags of a list, of which the second is empty and row 1 does not count.
Tensor in_bags(const Tensor& table, const Tensor& index, BagMode mode) {
  const Tensor offsets = tensor<std::int64_t>({0, 2, 2, 5}, {4}, table.device());
  return embedding_bag(table, index, {.mode = mode, .offsets = offsets, .padding_idx = 1});
}

FIRN_OP_ROWS(borders) {
  const auto padded = [](const char* name, const Axes& before, const Axes& after, PadMode mode,
                         Shapes shapes) {
    moves(
        name, [=](const Args& x) { return around(x[0], before, after, mode); }, std::move(shapes),
        Accuracy::sum);
  };
  padded("pad reflect", {2, 3}, {2, 3}, PadMode::reflect,
         {{{2, 3, 4, 5}}, {{3, 4}}, {{1, 2, 9, 33}}});
  padded("pad reflect uneven", {0, 1}, {2, 0}, PadMode::reflect, {{{2, 3, 3}}, {{0, 3, 2}}});
  padded("pad replicate", {1, 0}, {3, 2}, PadMode::replicate,
         {{{2, 3, 4}}, {{1, 1}}, {{2, 17, 5}}});
  padded("pad circular", {3, 0}, {1, 2}, PadMode::circular,
         {{{2, 3, 4}}, {{3, 2}}, {{2, 2, 5, 17}}});
  padded("pad reflect of volumes", {1, 1, 1}, {1, 1, 2}, PadMode::reflect, {{{1, 2, 3, 3, 3}}});
  moves("pixel_shuffle 2", [](const Args& x) { return pixel_shuffle(x[0], 2); },
        {{{1, 8, 2, 3}}, {{4, 3, 2}}, {{2, 12, 5, 4}}, {{0, 4, 1, 1}}});
  moves("pixel_unshuffle 3", [](const Args& x) { return pixel_unshuffle(x[0], 3); },
        {{{2, 2, 6, 3}}, {{1, 3, 3}}, {{2, 2, 3, 9, 6}}});
  moves("channel_shuffle 3", [](const Args& x) { return channel_shuffle(x[0], 3); },
        {{{2, 6, 2, 2}}, {{2, 9}}, {{1, 12, 3}}, {{0, 3, 2}}});
}

FIRN_OP_ROWS(other_pooling) {
  const auto row = [](const char* name, const std::function<Tensor(const Tensor&)>& fn,
                      Shapes shapes, bool largest, double terms = 1) {
    Row(name, [fn](const Args& x) { return fn(x[0]); })
        .args({largest ? apart() : real()})
        .shapes(std::move(shapes))
        .accuracy(largest ? Accuracy::exact : Accuracy::sum, terms)
        .golden();
  };
  const Shapes lines = {{{2, 3, 7}}, {{3, 4}}, {{1, 20, 5}}};
  row(
      "adaptive_max_pool1d 3", [](const Tensor& x) { return adaptive_max_pool1d(x, 3); }, lines,
      true);
  row(
      "adaptive_avg_pool1d 3", [](const Tensor& x) { return adaptive_avg_pool1d(x, 3); }, lines,
      false, 4);
  const Shapes volumes = {{{1, 2, 4, 3, 5}}, {{1, 3, 4, 4}}, {{2, 1, 5, 4, 3}}};
  const Pool3dOptions wide{.stride = {2, 1, 2}, .padding = {1, 0, 1}, .ceil_mode = true};
  row(
      "max_pool3d 2", [](const Tensor& x) { return max_pool3d(x, 2); }, volumes, true);
  row(
      "max_pool3d 3 by 2 by 2 ceil",
      [wide](const Tensor& x) {
        return max_pool3d(x, {3, 2, 2}, wide);
      },
      volumes, true);
  row(
      "max_pool3d dilation 1 by 2 by 1",
      [](const Tensor& x) {
        return max_pool3d(x, 2, {.stride = 1, .dilation = {1, 2, 1}});
      },
      volumes, true);
  row(
      "avg_pool3d 2", [](const Tensor& x) { return avg_pool3d(x, 2); }, volumes, false, 8);
  for (const bool count : {true, false}) {
    Pool3dOptions options = wide;
    options.count_padding = count;
    row(
        count ? "avg_pool3d 3 by 2 by 2 ceil" : "avg_pool3d 3 by 2 by 2 ceil without padding",
        [options](const Tensor& x) {
          return avg_pool3d(x, {3, 2, 2}, options);
        },
        volumes, false, 12);
  }
  row(
      "adaptive_max_pool3d 2 by 3 by 2",
      [](const Tensor& x) {
        return adaptive_max_pool3d(x, {2, 3, 2});
      },
      volumes, true);
  row(
      "adaptive_avg_pool3d 2 by 3 by 2",
      [](const Tensor& x) {
        return adaptive_avg_pool3d(x, {2, 3, 2});
      },
      volumes, false, 18);

  const auto powers = [](const char* name, const std::function<Tensor(const Tensor&)>& fn,
                         double low, Shapes shapes) {
    Row(name, [fn](const Args& x) { return fn(x[0]); })
        .args({real(low, 2, {0})})
        .shapes(std::move(shapes))
        .accuracy(Accuracy::sum, 9)
        .cancels(10, 10)
        .golden();
  };
  powers("lp_pool2d p 2",
         [](const Tensor& x) {
           return lp_pool2d(x, 2, {2, 3});
         },
         -2, {{{2, 2, 4, 6}}, {{3, 5, 4}}});
  powers("lp_pool2d p 3 stride 1 ceil",
         [](const Tensor& x) {
           return lp_pool2d(x, 3, 2, {.stride = {1, 2}, .ceil_mode = true});
         },
         0.2, {{{1, 2, 4, 5}}});
  powers("lp_pool1d p 1.5", [](const Tensor& x) { return lp_pool1d(x, 1.5, 3, {.stride = 2}); },
         0.2, {{{2, 3, 7}}, {{2, 9}}});
}

FIRN_OP_ROWS(neighbours_and_distances) {
  for (const std::int64_t size : {3, 4}) {
    Row(size == 3 ? "local_response_norm 3" : "local_response_norm 4",
        [size](const Args& x) { return local_response_norm(x[0], size, 0.5, 0.75, 1.5); })
        .args({real()})
        .shapes({{{2, 5, 3, 2}}, {{3, 2}}, {{1, 17, 4}}, {{2, 1, 3}}})
        .accuracy(Accuracy::normwise)
        .cancels(4, 8)
        .golden();
  }
  const auto pair = [](const char* name,
                       const std::function<Tensor(const Tensor&, const Tensor&)>& fn,
                       Shapes shapes) {
    Row(name, [fn](const Args& x) { return fn(x[0], x[1]); })
        .args({real(0.25, 2), real(-2, -0.25)})
        .shapes(std::move(shapes))
        .accuracy(Accuracy::normwise)
        .cancels(4, 8)
        .golden();
  };
  pair("cosine_similarity",
       [](const Tensor& a, const Tensor& b) { return cosine_similarity(a, b); },
       {{{3, 5}, {3, 5}}, {{2, 7, 3}, {7, 1}}, {{1, 4}, {5, 4}}});
  pair("cosine_similarity last axis",
       [](const Tensor& a, const Tensor& b) { return cosine_similarity(a, b, -1); },
       {{{2, 3, 4}, {4}}, {{33}, {33}}});
  pair("pairwise_distance",
       [](const Tensor& a, const Tensor& b) { return pairwise_distance(a, b); },
       {{{3, 5}, {3, 5}}, {{4, 7}, {7}}, {{6}, {6}}});
  pair("pairwise_distance p 1",
       [](const Tensor& a, const Tensor& b) {
         return pairwise_distance(a, b, {.p = 1, .keepdims = true});
       },
       {{{3, 5}, {3, 5}}});
  pair("pairwise_distance p 3",
       [](const Tensor& a, const Tensor& b) { return pairwise_distance(a, b, {.p = 3}); },
       {{{3, 5}, {3, 5}}});
}

FIRN_OP_ROWS(bags) {
  // The row that gets no gradient is one that the function has: no central difference.
  Row("embedding with padding", [](const Args& x) { return embedding(x[0], x[1], -2); })
      .args({real(), index(4)})
      .shapes({{{4, 3}, {2, 5}}, {{4, 2, 2}, {9}}, {{4, 1}, {0}}})
      .accuracy(Accuracy::sum)
      .kinks()
      .golden();
  for (const BagMode mode : {BagMode::sum, BagMode::mean, BagMode::max}) {
    const bool largest = mode == BagMode::max;
    const std::string name = std::string("embedding_bag ") + to_string(mode);
    Row(name, [mode](const Args& x) { return embedding_bag(x[0], x[1], {.mode = mode}); })
        .args({largest ? apart() : real(), index(5)})
        .shapes({{{5, 3}, {4, 6}}, {{5, 2}, {3, 1}}, {{5, 17}, {2, 33}}})
        .accuracy(largest ? Accuracy::normwise : Accuracy::sum, 33)
        .golden();
    if (largest) continue;  // the length of the longest bag is not known by shapes alone
    Row(name + " offsets", [mode](const Args& x) { return in_bags(x[0], x[1], mode); })
        .args({real(), index(5)})
        .shapes({{{5, 3}, {9}}, {{5, 2}, {5}}})
        .accuracy(Accuracy::sum, 9)
        .golden();
  }
  Row("embedding_bag weighted",
      [](const Args& x) {
        const Tensor offsets = tensor<std::int32_t>({0, 4, 9}, {3}, x[0].device());
        return embedding_bag(x[0], x[1],
                             {.mode = BagMode::sum,
                              .offsets = offsets,
                              .per_sample_weights = x[2],
                              .include_last_offset = true});
      })
      .args({real(), index(5), real()})
      .shapes({{{5, 3}, {9}, {9}}})
      .accuracy(Accuracy::sum, 9)
      .cancels(4, 4)
      .golden();
}

}  // namespace

TEST_CASE("pad by x's own elements, written out", "[ops]") {
  const auto row = [](PadMode mode, std::int64_t before, std::int64_t after) {
    return values_of(pad(make({1, 2, 3}, {3}), {before}, {after}, mode));
  };
  using V = std::vector<double>;
  CHECK(row(PadMode::reflect, 2, 2) == V{3, 2, 1, 2, 3, 2, 1});
  CHECK(row(PadMode::replicate, 2, 4) == V{1, 1, 1, 2, 3, 3, 3, 3, 3});
  CHECK(row(PadMode::circular, 2, 3) == V{2, 3, 1, 2, 3, 1, 2, 3});
  CHECK(row(PadMode::constant, 1, 2) == V{0, 1, 2, 3, 0, 0});
  CHECK(row(PadMode::circular, 0, 0) == V{1, 2, 3});
  CHECK(std::string(to_string(PadMode::replicate)) == "replicate");
  // The first axis too, and what lies between two axes.
  const Tensor x = make({1, 2, 3, 4}, {2, 1, 2});
  CHECK(values_of(pad(x, {1, 0, 1}, {0, 0, 0}, PadMode::circular)) == V{4, 3, 4, 2, 1, 2, 4, 3, 4});
}

TEST_CASE("pad by x's own elements keeps channels-last memory", "[ops]") {
  Rng rng(5);
  const Tensor x = make(rng.uniforms(2 * 5 * 3 * 4, -1, 1), {2, 5, 3, 4}, f32);
  const Tensor y = pad(x, {0, 0, 1, 2}, {0, 0, 2, 0}, PadMode::reflect);
  Tensor last = channels_last(x).detach().set_requires_grad();
  const Tensor z = pad(last, {0, 0, 1, 2}, {0, 0, 2, 0}, PadMode::reflect);
  CHECK(z.is_channels_last());
  CHECK(values_of(z) == values_of(y));
  sum(z * z).backward();
  Tensor first = x.detach().set_requires_grad();
  const Tensor w = pad(first, {0, 0, 1, 2}, {0, 0, 2, 0}, PadMode::reflect);
  sum(w * w).backward();
  expect_close("gradient", values_of(last.grad()), values_of(first.grad()), 1e-5);
}

TEST_CASE("refusals: borders, shuffles, powers and distances", "[ops][host]") {
  const Tensor x = zeros({2, 3});
  const auto says = [](const std::string& what, const auto& fn) {
    const std::string text = error_of(fn);
    INFO(text);
    CHECK(text.find(what) != std::string::npos);
  };
  says("[pad] reflect adds 3 on axis 1 of [2, 3] f32 cpu", [&] {
    pad(x, {0, 3}, {0, 0}, PadMode::reflect);
  });
  says("[pad] circular adds 4 on axis 1", [&] { pad(x, {0, 0}, {0, 4}, PadMode::circular); });
  says("[pad] there is nothing to repeat on axis 0", [] {
    pad(zeros({0, 2}), {1, 0}, {0, 0}, PadMode::replicate);
  });
  says("[pad] before [1] and after [1]", [&] { pad(x, {1}, {1}, PadMode::replicate); });
  says("[pad] before [0, -1]", [&] { pad(x, {0, -1}, {0, 0}, PadMode::circular); });
  says("[pad]", [] { pad(Tensor(), {}, {}, PadMode::circular); });
  says("[pixel_shuffle] the 2 channels", [] { pixel_shuffle(zeros({2, 3, 3}), 2); });
  says("[pixel_shuffle] r = 0", [] { pixel_shuffle(zeros({4, 3, 3}), 0); });
  says("[pixel_shuffle]", [&] { pixel_shuffle(x, 1); });
  says("4294967296 * 4294967296", [] { pixel_shuffle(zeros({4, 3, 3}), std::int64_t{1} << 32); });
  says("[pixel_unshuffle] r = 2", [] { pixel_unshuffle(zeros({4, 3, 4}), 2); });
  says("[channel_shuffle] 2 groups", [&] { channel_shuffle(x, 2); });
  says("[lp_pool2d] p = 0", [] { lp_pool2d(zeros({1, 2, 2}), 0, 2); });
  says("[lp_pool1d] padding", [] { lp_pool1d(zeros({1, 4}), 2, 2, {.padding = 1}); });
  says("[lp_pool2d] along the height: a window of 3", [] { lp_pool2d(zeros({1, 2, 2}), 2, 3); });
  says("[lp_pool1d] along the width: a window of 5", [] { lp_pool1d(zeros({1, 4}), 2, 5); });
  says("[lp_pool2d] x is [n, c, h, w]", [] { lp_pool2d(zeros({2}), 2, 3); });
  const Tensor volumes = zeros({1, 1, 2, 2, 2});
  says("[max_pool3d] along the depth: a window of 3", [&] { max_pool3d(volumes, {3, 1, 1}); });
  says("[avg_pool3d] dilation is 2 x 2 x 2", [&] { avg_pool3d(volumes, 1, {.dilation = 2}); });
  says("[adaptive_max_pool3d] out is 0 x 1 x 1", [&] { adaptive_max_pool3d(volumes, {0, 1, 1}); });
  says("[adaptive_avg_pool3d] out is 1 x 0 x 1", [&] { adaptive_avg_pool3d(volumes, {1, 0, 1}); });
  says("[upsample3d] out is 1 x 1 x 0", [&] { upsample3d(volumes, {1, 1, 0}); });
  says("[upsample3d] align_corners with nearest", [&] {
    upsample3d(volumes, {2, 2, 2}, Upsampling::nearest, {.align_corners = true});
  });
  says("[tril]", [&] { tril(x.to(i8)); });
  says("[median]", [&] { median(x.to(i8)); });
  says("[max_pool3d] x is [n, c, d, h, w]", [&] { max_pool3d(x, 1); });
  says("[avg_pool3d] x [1, 1, 0, 2, 2] f32 cpu has no positions", [] {
    avg_pool3d(zeros({1, 1, 0, 2, 2}), 1);
  });
  says("[local_response_norm] size = 0", [&] { local_response_norm(x, 0); });
  says("[cosine_similarity]", [&] { cosine_similarity(x, zeros({2, 4})); });
  says("[pairwise_distance] p is 0", [&] { pairwise_distance(x, x, {.p = 0}); });
  says("[pairwise_distance]", [&] { pairwise_distance(x, x.to(f64)); });

  const Tensor table = zeros({4, 2}), list = tensor<std::int64_t>({0, 1, 3});
  const auto bag = [&](const Tensor& index, const EmbeddingBagOptions& o) {
    return [&table, index, o] { embedding_bag(table, index, o); };
  };
  const auto places = [](std::initializer_list<std::int64_t> v) { return tensor<std::int64_t>(v); };
  says("[embedding] padding_idx is 4 of the table [4, 2]", [&] { embedding(table, list, 4); });
  says("[embedding_bag] index [3] i64 cpu is not [bags, length]", bag(list, {}));
  says("the first offset is 1", bag(list, {.offsets = places({1, 2})}));
  says("offset 1 is 2, beyond 1 in a list of 3", bag(list, {.offsets = places({0, 2, 1})}));
  says("offset 1 is 5, beyond 3 in a list of 3", bag(list, {.offsets = places({0, 5})}));
  says("the last offset is 2, not the length of the list, 3",
       bag(list, {.offsets = places({0, 2}), .include_last_offset = true}));
  says("include_last_offset is set without offsets",
       bag(zeros({1, 3}, i64), {.include_last_offset = true}));
  says("per_sample_weights with mode mean",
       bag(zeros({1, 3}, i64), {.per_sample_weights = ones({1, 3})}));
  says("per_sample_weights [3] f32 cpu",
       bag(zeros({1, 3}, i64), {.mode = BagMode::sum, .per_sample_weights = ones({3})}));
  says("padding_idx is -5", bag(zeros({1, 3}, i64), {.padding_idx = -5}));
  says("offsets [1] i64 cpu for index [1, 3]", bag(zeros({1, 3}, i64), {.offsets = places({0})}));
  says("index [3] i64 cpu without a bag", bag(list, {.offsets = zeros({0}, i64)}));
  CHECK(embedding_bag(table, zeros({0}, i64), {.offsets = zeros({0}, i64)}).shape() == Shape{0, 2});
  CHECK(embedding_bag(table, zeros({2, 0}, i64), {.mode = BagMode::max}).shape() == Shape{2, 2});
}

TEST_CASE("embedding with padding: gradients that the row has stay, and NaN does not reach it",
          "[ops]") {
  Tensor table = make({1, 2, 3, 4}, {2, 2}, f32).set_requires_grad();
  const Tensor index = tensor<std::int64_t>({0, 1, 0});
  sum(embedding(table, index)).backward();
  CHECK(values_of(table.grad()) == std::vector<double>{2, 2, 1, 1});
  (sum(embedding(table, index, 0)) * std::nan("")).backward();
  const auto got = values_of(table.grad());
  CHECK(got[0] == 2);
  CHECK(got[1] == 2);
  CHECK(std::isnan(got[2]));
}

TEST_CASE("means and powers of 16 bits are rounded once", "[ops]") {
  Rng rng(9);
  const Tensor x = make(rng.uniforms(2 * 4 * 4 * 4, 0.5, 2), {1, 2, 4, 4, 4}, f16);
  const auto same = [](const char* what, const Tensor& got, const Tensor& want) {
    CHECK(got.dtype() == f16);
    expect_same(what, values_of(got), values_of(want.to(f16)));
  };
  same("avg_pool3d", avg_pool3d(x, 2), avg_pool3d(x.to(f32), 2));
  same("lp_pool2d", lp_pool2d(x[0], 3, 2), lp_pool2d(x[0].to(f32), 3, 2));
  same("local_response_norm", local_response_norm(x, 3), local_response_norm(x.to(f32), 3));
  // 300^2 is beyond f16.
  CHECK(lp_pool1d(full({1, 2}, 300, f16), 2, 1)[0][0].item() == 300);
  const Tensor a = x.reshape({8, 16}), b = a * -0.5;
  same("cosine_similarity", cosine_similarity(a, b), cosine_similarity(a.to(f32), b.to(f32)));
  const Autocast guard(f16);
  CHECK(cosine_similarity(a, b).dtype() == f16);
  CHECK(lp_pool2d(x[0], 3, 2).dtype() == f16);
  CHECK(local_response_norm(x, 3).dtype() == f16);
}

}  // namespace firn::testing

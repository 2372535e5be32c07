// The first contribution to a gradient in a cycle is stored over what the arena holds from cycles
// before, be it numbers, infinities or NaNs; the others are added.
#include <cmath>
#include <functional>
#include <limits>

#include "autograd/node.h"
#include "kernels/copy.h"
#include "optim/problem.h"

namespace firn::testing {
namespace {

using optim::LossScale;

constexpr double kInf = std::numeric_limits<double>::infinity();
const double kNaN = std::nan("");

// What each of the parameters' gradients holds from now on, if it has not been reached.
void spoil(const std::vector<Tensor>& parameters, double value) {
  for (const Tensor& p : parameters) {
    const Tensor& arena = autograd::leaf_of(p)->arena;
    kernels::fill(arena.mutable_view(), value, current_stream(arena.device()));
  }
}

Tensor random(const Shape& shape, DType dtype, std::uint64_t seed) {
  return make(Rng(seed).uniforms(shape.product(), -1, 1), shape, dtype);
}

struct Layer {
  const char* name;
  std::vector<Shape> parameters;
  std::function<Tensor(const std::vector<Tensor>& p, DType dtype)> forward;
};

// One for every way in which a gradient comes to a parameter.
std::vector<Layer> layers() {
  const auto index = [](std::vector<double> rows) {
    const auto n = static_cast<std::int64_t>(rows.size());
    return make(rows, {n}, i64);
  };
  using P = std::vector<Tensor>;
  return {
      {"linear",
       {{5, 7}, {5}},
       [](const P& p, DType t) {
         return linear(random({9, 7}, t, 1), p[0], p[1]);
       }},
      {"linear, large",
       {{70, 90}, {70}},
       [](const P& p, DType t) {
         return linear(random({130, 90}, t, 1), p[0], p[1]);
       }},
      {"linear of no rows",
       {{5, 7}, {5}},
       [](const P& p, DType t) {
         return linear(zeros({0, 7}, t), p[0], p[1]);
       }},
      {"bias alone",
       {{5}},
       [](const P& p, DType t) {
         return linear(random({9, 7}, t, 1), random({5, 7}, t, 2), p[0]);
       }},
      {"mlp",
       {{6, 7}, {4, 6}, {3, 4}, {6}, {4}, {3}},
       [](const P& p, DType t) {
         return mlp(random({9, 7}, t, 1), std::span(p).first(3), std::span(p).last(3),
                    Activation::relu);
       }},
      {"tied weights",
       {{6, 6}},
       [](const P& p, DType t) {
         return linear(relu(linear(random({9, 6}, t, 1), p[0])), p[0]);
       }},
      {"a weight as both factors", {{6, 6}}, [](const P& p, DType) { return matmul(p[0], p[0]); }},
      {"batched matmul",
       {{4, 5}},
       [](const P& p, DType t) {
         return matmul(random({3, 2, 4}, t, 1), p[0]);
       }},
      {"matmul of batches",
       {{3, 4, 5}},
       [](const P& p, DType t) {
         return matmul(random({3, 2, 4}, t, 1), p[0]);
       }},
      {"matmul of no terms",
       {{0, 5}, {4, 0}},
       [](const P& p, DType) { return matmul(p[1], p[0]); }},
      {"conv2d",
       {{6, 4, 3, 3}, {6}},
       [](const P& p, DType t) {
         return conv2d(random({2, 4, 8, 7}, t, 1), p[0], p[1], {.padding = 1});
       }},
      {"conv2d in groups",
       {{6, 2, 3, 3}, {6}},
       [](const P& p, DType t) {
         return conv2d(random({2, 4, 8, 7}, t, 1), p[0], p[1], {.stride = 2, .groups = 2});
       }},
      {"conv2d, depthwise",
       {{4, 1, 3, 3}},
       [](const P& p, DType t) {
         return conv2d(random({2, 4, 8, 7}, t, 1), p[0], {}, {.groups = 4});
       }},
      {"conv2d, 1 x 1",
       {{6, 4, 1, 1}, {6}},
       [](const P& p, DType t) {
         return conv2d(random({2, 4, 8, 7}, t, 1), p[0], p[1]);
       }},
      {"conv2d of many images",
       {{8, 3, 3, 3}, {8}},
       [](const P& p, DType t) {
         return conv2d(random({40, 3, 9, 9}, t, 1), p[0], p[1], {.activation = Activation::relu});
       }},
      {"conv2d of no images",
       {{6, 4, 3, 3}, {6}},
       [](const P& p, DType t) {
         return conv2d(zeros({0, 4, 8, 7}, t), p[0], p[1]);
       }},
      {"conv1d",
       {{6, 4, 3}, {6}},
       [](const P& p, DType t) {
         return conv1d(random({2, 4, 9}, t, 1), p[0], p[1]);
       }},
      {"conv_transpose2d",
       {{4, 6, 3, 3}, {6}},
       [](const P& p, DType t) {
         return conv_transpose2d(random({2, 4, 5, 6}, t, 1), p[0], p[1], {.stride = 2});
       }},
      {"conv3d",
       {{6, 2, 2, 3, 2}, {6}},
       [](const P& p, DType t) {
         return conv3d(random({2, 4, 3, 5, 4}, t, 1), p[0], p[1], {.padding = 1, .groups = 2});
       }},
      {"conv_transpose3d",
       {{4, 3, 2, 2, 2}, {3}},
       [](const P& p, DType t) {
         return conv_transpose3d(random({2, 4, 3, 2, 2}, t, 1), p[0], p[1], {.stride = 2});
       }},
      {"layer_norm",
       {{7}, {7}},
       [](const P& p, DType t) {
         return layer_norm(random({90, 7}, t, 1), p[0], p[1]);
       }},
      {"layer_norm of no rows",
       {{7}, {7}},
       [](const P& p, DType t) {
         return layer_norm(zeros({0, 7}, t), p[0], p[1]);
       }},
      {"rms_norm",
       {{7}},
       [](const P& p, DType t) {
         return rms_norm(random({9, 7}, t, 1), p[0]);
       }},
      {"batch_norm",
       {{4}, {4}},
       [](const P& p, DType t) {
         return batch_norm(random({3, 4, 5, 5}, t, 1), p[0], p[1]);
       }},
      {"group_norm",
       {{4}, {4}},
       [](const P& p, DType t) {
         return group_norm(random({3, 4, 5, 5}, t, 1), 2, p[0], p[1]);
       }},
      {"norms of the parameter itself",
       {{4, 8}},
       [](const P& p, DType) { return layer_norm(p[0]) + rms_norm(p[0]); }},
      {"embedding",
       {{6, 3}},
       [index](const P& p, DType) {
         return embedding(p[0], index({4, 1, 4, 4}));
       }},
      {"embedding of nothing",
       {{6, 3}},
       [](const P& p, DType) { return embedding(p[0], zeros({0}, i64)); }},
      {"index_select",
       {{6, 3}},
       [index](const P& p, DType) {
         return index_select(p[0], 1, index({2, 2, 0}));
       }},
      {"gather",
       {{6, 3}},
       [](const P& p, DType) {
         return gather(p[0], 1, make({1, 1, 0, 2}, {2, 2}, i64));
       }},
      {"slices", {{6, 3}}, [](const P& p, DType) { return slice(p[0], 0, 1, 5, 2); }},
      {"select", {{6, 3}}, [](const P& p, DType) { return select(p[0], 1, 2); }},
      {"an empty slice", {{6, 3}}, [](const P& p, DType) { return slice(p[0], 0, 2, 2); }},
      {"permute and reshape",
       {{6, 3}, {2, 3, 4, 4}},
       [](const P& p, DType) {
         return cat({reshape(transpose(p[0], 0, 1), {18}), flatten(permute(p[1], {2, 0, 3, 1}))});
       }},
      {"expand",
       {{1, 3}},
       [](const P& p, DType) {
         return expand(p[0], {4, 3});
       }},
      {"cat and pad",
       {{2, 3}, {4, 3}},
       [](const P& p, DType) {
         return pad(cat({p[0], p[1], p[0]}), {1, 0}, {0, 1});
       }},
      {"a scale and a shift",
       {{1, 3}, {}},
       [](const P& p, DType t) {
         return random({4, 3}, t, 1) * p[0] + p[1];
       }},
      {"products of parameters",
       {{4, 3}, {4, 3}},
       [](const P& p, DType) { return p[0] * p[1] / (square(p[0]) + 1.0) + maximum(p[0], p[1]); }},
      {"unary", {{4, 3}}, [](const P& p, DType) { return gelu(p[0]) + tanh(p[0]) + relu(p[0]); }},
      {"where",
       {{4, 3}, {4, 1}},
       [](const P& p, DType) { return where(gt(p[0].detach(), zeros_like(p[0])), p[0], p[1]); }},
      {"reductions",
       {{4, 3}},
       [](const P& p, DType) {
         return cat(
             {sum(p[0], {0}), mean(p[0], {1}), max(p[0], {0}), var(p[0], {1}), norm(p[0], {1})});
       }},
      {"softmax", {{4, 3}}, [](const P& p, DType) { return softmax(p[0]) + log_softmax(p[0], 0); }},
      {"pools",
       {{1, 4, 6, 6}},
       [](const P& p, DType) {
         return max_pool2d(p[0], 2) + avg_pool2d(p[0], 2) + adaptive_avg_pool2d(p[0], 3);
       }},
      {"upsampling",
       {{1, 2, 3, 3}},
       [](const P& p, DType) {
         return upsample2d(p[0], {6, 6});
       }},
      {"dropout",
       {{4, 30}},
       [](const P& p, DType) {
         manual_seed(3);
         return dropout(p[0], 0.5);
       }},
  };
}

TEST_CASE("[S17] every operation stores the first contribution, whatever the arena holds",
          "[once]") {
  for (const Layer& layer : layers())
    for (const DType dtype : {f16, bf16, f32, f64}) {
      CAPTURE(layer.name, to_string(dtype));
      std::vector<Tensor> p;
      for (const Shape& shape : layer.parameters)
        p.push_back(random(shape, dtype, 40 + p.size()).set_requires_grad());
      optim::SGD opt(p, {}, {.loss_scale = LossScale::none()});
      const auto backward = [&] {
        const Tensor y = layer.forward(p, dtype);
        opt.backward(sum(cast(y * random(y.shape(), dtype, 7), compute_dtype(dtype))), 1);
        std::vector<std::vector<double>> gradients;
        for (const Tensor& t : p) gradients.push_back(values_of(t.grad()));
        return gradients;
      };
      const auto want = backward();
      for (const auto& gradient : want)
        for (const double g : gradient) REQUIRE(std::isfinite(g));
      for (const double left : {kNaN, kInf, 3.0}) {
        opt.zero_grad();
        spoil(p, left);
        const auto got = backward();
        for (std::size_t i = 0; i < p.size(); ++i) expect_same("gradient", got[i], want[i]);
      }
      const auto twice = backward();  // the next one is added
      for (std::size_t i = 0; i < p.size(); ++i)
        for (std::size_t k = 0; k < want[i].size(); ++k)
          REQUIRE(twice[i][k] == Approx(2 * want[i][k]).epsilon(1e-6).margin(1e-4));
    }
}

TEST_CASE("[S17] losses and hooks store the first contribution too") {
  for (const DType dtype : {f32, f64}) {
    const Tensor w = random({4, 3}, dtype, 1).set_requires_grad();
    const Tensor hooked = random({4, 3}, dtype, 2).set_requires_grad();
    add_hook(hooked, [](const Tensor& g) { return g * 2.0; });
    optim::SGD opt({w, hooked}, {});
    const Tensor y = make({0, 2, 1, 1}, {4}, i64);
    const auto gradients = [&](const Loss& loss) {
      opt.backward(loss);
      return std::pair(values_of(w.grad()), values_of(hooked.grad()));
    };
    for (const bool direct : {true, false}) {
      CAPTURE(to_string(dtype), direct);
      const auto run = [&] {
        if (!direct) return gradients(cross_entropy(w + hooked, y));
        opt.backward(cross_entropy(w, y));
        return gradients(cross_entropy(hooked, y));
      };
      opt.zero_grad();
      const auto want = run();
      opt.zero_grad();
      spoil({w, hooked}, kNaN);
      const auto got = run();
      expect_same("w", got.first, want.first);
      expect_same("hooked", got.second, want.second);
    }
  }
}

TEST_CASE("[S17] a gradient first reached in mid-cycle has nothing of the cycles before") {
  for (const DType dtype : {f16, f32, f64}) {
    CAPTURE(to_string(dtype));
    Tensor w = parameter({0, 0}, {2}, dtype), v = parameter({0, 0}, {2}, dtype);
    optim::SGD opt({w, v}, {.lr = 1}, {.accumulate = 3, .loss_scale = LossScale::fixed(16)});
    for (int m = 0; m < 3; ++m) {
      opt.backward(objective(w, {1}) + objective(v, {8, 4}));
      opt.step();
    }
    REQUIRE(values_of(v) == std::vector<double>{-8, -4});
    opt.backward(objective(w, {3}));
    opt.step();
    CHECK(!v.grad().defined());
    CHECK(optim::gradient_health(opt)[1].received == false);
    opt.backward(objective(v, {1, 2}));
    opt.step();
    opt.backward(objective(v, {2, 1}));
    CHECK(opt.step().norm() == Approx(std::sqrt(4.0)));
    CHECK(values_of(w) == std::vector<double>{-2, -2});
    CHECK(values_of(v) == std::vector<double>{-9, -5});
  }
}

TEST_CASE(
    "[S05][S09] what a skipped cycle leaves behind is in no sum, nor when that changes unit") {
  for (const double bad : {kInf, -kInf, kNaN, 3e38})
    for (const bool larger : {false, true}) {  // the unit, in the second micro-step
      CAPTURE(bad, larger);
      Tensor w = parameter({0, 0}, {2}), v = parameter({0, 0}, {2});
      optim::SGD opt({w, v}, {.lr = 1}, {.accumulate = 3, .loss_scale = LossScale::fixed(1024)});
      opt.backward(objective(w, {bad}) + objective(v, {bad, 1}), 1);
      REQUIRE(opt.flush().skipped());
      CHECK(gradients_are_zero(opt));
      spoil({w, v}, bad);
      const double weights[] = {larger ? 1024.0 : 16.0, larger ? 16.0 : 1024.0, 16.0};
      opt.backward(objective(w, {64, 32}), weights[0]);
      opt.step();
      opt.backward(objective(w, {16, 8}), weights[1]);  // v's stale numbers are multiplied
      opt.step();
      opt.backward(objective(v, {1056, -528}), weights[2]);
      const optim::StepReport report = opt.step();
      REQUIRE(report.applied());
      const double sum = 16 + 16 + 1024;
      CHECK(values_of(w)[0] == Approx(-80 / sum));
      CHECK(values_of(w)[1] == Approx(-40 / sum));
      CHECK(values_of(v)[0] == Approx(-1));
      CHECK(values_of(v)[1] == Approx(0.5));
    }
}

TEST_CASE("[S09] a dropped cycle leaves no infinity behind") {
  Tensor w = parameter({1, 2}, {2});
  optim::SGD opt({w}, {.lr = 1, .momentum = 0.5}, {.accumulate = 2});
  opt.backward(objective(w, {kInf}));
  opt.zero_grad();
  CHECK(gradients_are_zero(opt));
  opt.backward(objective(w, {kNaN}));
  opt.flush(optim::Partial::drop);
  opt.backward(objective(w, {1, 2}));
  opt.step();
  opt.backward(objective(w, {1, 0}));
  REQUIRE(opt.step().applied());
  CHECK(values_of(w) == std::vector<double>{0, 1});
}

TEST_CASE("[S17] rows of an embedding that a cycle does not read stay") {
  Tensor table = parameter(std::vector<double>(12, 1), {4, 3});
  optim::SGD opt({table}, {.lr = 1});
  const auto step = [&](const std::vector<double>& rows) {
    const auto n = static_cast<std::int64_t>(rows.size());
    opt.backward(sum(embedding(table, make(rows, {n}, i64))), 1);
    REQUIRE(opt.step().applied());
  };
  step({0, 1, 2, 3, 3});
  CHECK(values_of(table) == std::vector<double>{0, 0, 0, 0, 0, 0, 0, 0, 0, -1, -1, -1});
  step({1, 1});
  CHECK(values_of(table) == std::vector<double>{0, 0, 0, -2, -2, -2, 0, 0, 0, -1, -1, -1});
}

TEST_CASE("a gradient that is set or taken away is followed by what backward adds or stores") {
  Tensor w = parameter({0}, {1});
  optim::SGD opt({w}, {.lr = 1}, {.accumulate = 3});
  opt.backward(objective(w, {100}));
  w.set_grad({});
  CHECK(gradients_are_zero(opt));
  opt.backward(objective(w, {2}));
  w.set_grad(make({5}, {1}, f32));
  opt.backward(objective(w, {1}));
  REQUIRE(opt.flush().weight() == 3);
  CHECK(w.item() == -2);
}

TEST_CASE("[S23] the state shows zeros for gradients that a cycle has not reached") {
  Tensor w = parameter({0, 0}, {2}), v = parameter({0}, {1});
  optim::SGD opt({w, v}, {.lr = 1}, {.accumulate = 2});
  opt.backward(objective(w, {1}) + objective(v, {2}));
  opt.step();
  opt.backward(objective(w, {1}) + objective(v, {2}));
  opt.step();
  CHECK(gradients_are_zero(opt));
  opt.backward(objective(w, {3, 4}));
  opt.step();
  CHECK(values_of(state_of(opt, "parameters.0.gradient")) == std::vector<double>{3, 4});
  CHECK(values_of(state_of(opt, "parameters.1.gradient")) == std::vector<double>{0});

  // Restored one by one, into an optimizer that has numbers of its own in its arenas.
  Tensor a = parameter({7, 7}, {2}), b = parameter({7}, {1});
  optim::SGD other({a, b}, {.lr = 1}, {.accumulate = 2});
  other.backward(objective(a, {kInf}) + objective(b, {9}));
  REQUIRE(other.flush().skipped());
  for (const optim::NamedState& s : opt.state()) {
    const NoGrad guard;
    copy_(state_of(other, s.name), s.tensor);
  }
  for (optim::SGD* o : {&opt, &other}) {
    o->backward(o == &opt ? objective(w, {1}) + objective(v, {6})
                          : objective(a, {1}) + objective(b, {6}));
    REQUIRE(o->step().applied());
  }
  CHECK(bits_of_training(opt) == bits_of_training(other));
  CHECK(values_of(a) == std::vector<double>{-3, -3.5});
  CHECK(b.item() == -5);
}

TEST_CASE("anomaly mode does not look at gradients that have not arrived") {
  Tensor w = parameter({1}, {1}), v = parameter({1}, {1});
  optim::SGD opt({w, v}, {.lr = 1});
  opt.backward(objective(w, {kInf}) + objective(v, {kInf}));
  REQUIRE(opt.step().skipped());
  const AnomalyMode guard;
  Tensor y;
  {
    const NoGrad plain;
    y = w * v;
  }
  const Tensor product = custom("half", {w, v}, y, {}, [](const CustomBackward& b) {
    return std::vector<Tensor>{b.grad, Tensor()};
  });
  opt.backward(sum(product), 1);
  REQUIRE(opt.step().applied());
  CHECK(w.item() == 0);
  CHECK(v.item() == 1);
}

}  // namespace
}  // namespace firn::testing

// Every family of operations can be part of a graph, forward and backward: nothing in it waits,
// copies from the host, or keeps a number of the first run.
#include <functional>
#include <string>

#include "firn/firn.h"
#include "firn/runtime/graph.h"
#include "support/catch.h"
#include "support/device/simulator.h"
#include "support/values.h"

using namespace firn;
using firn::testing::expect_same;
using firn::testing::values_of;

namespace {

/// Two operands [6, 8] that want gradients, their dtype's positive numbers, and indices.
struct Operands {
  Tensor a, b, positive, index, rows;
};

struct Case {
  const char* name;
  std::function<Tensor(const Operands&)> f;
};

Tensor of(const Loss& loss) { return loss.mean(); }

const std::vector<Case>& cases() {
  static const std::vector<Case> all = {
      {"elementwise", [](const Operands& o) { return gelu(o.a * o.b + 2) / softplus(o.b) - o.a; }},
      {"comparison and choice",
       [](const Operands& o) { return where(gt(o.a, o.b), o.a, o.b * 3.0); }},
      {"three operands, and numbers beside them",
       [](const Operands& o) {
         const Tensor mixed = addcmul(lerp(o.a, o.b, 0.25), o.a, o.b, -0.5);
         return masked_fill(clamp(mixed, o.b - 1, Tensor()), isnan(o.a), 0) + floor(o.b);
       }},
      {"clamp and powers", [](const Operands& o) { return pow(clamp(o.positive, 0.2, 2), 1.5); }},
      {"broadcasting",
       [](const Operands& o) {
         return o.a * slice(o.b, 0, 0, 1) + select(o.b, 1, 2).unsqueeze(1);
       }},
      {"sums", [](const Operands& o) { return sum(o.a, {0}) * mean(o.b, {0}); }},
      {"extremes", [](const Operands& o) { return max(o.a, {1}) - min(o.b, {1}); }},
      {"variance and norm", [](const Operands& o) { return var(o.a, {0}) * norm(o.b); }},
      {"softmax", [](const Operands& o) { return softmax(o.a, 1) * log_softmax(o.b, 0); }},
      {"norms",
       [](const Operands& o) {
         return layer_norm(o.a, select(o.b, 0, 0), select(o.b, 0, 1)) +
                rms_norm(o.b, select(o.a, 0, 2));
       }},
      {"norms by channel",
       [](const Operands& o) {
         const Tensor x = reshape(o.a, {2, 4, 6}), weight = slice(select(o.b, 0, 0), 0, 0, 4);
         return batch_norm(x, weight) + group_norm(x, 2) + instance_norm(reshape(o.b, {2, 4, 6}));
       }},
      {"shape",
       [](const Operands& o) {
         return reshape(transpose(o.a, 0, 1), {12, 4}) + reshape(permute(o.b, {1, 0}), {12, 4});
       }},
      {"cat, stack and pad",
       [](const Operands& o) {
         return pad(cat({o.a, o.b}, 0), {1, 0}, {0, 2}, 5) * 2.0 + sum(stack({o.a, o.b}, 1));
       }},
      {"split",
       [](const Operands& o) {
         const auto parts = split(o.a, 4, 1);
         return parts[0] * parts[1];
       }},
      {"gather", [](const Operands& o) { return gather(o.a, 1, o.index) + 1; }},
      {"index_select", [](const Operands& o) { return index_select(o.a, 0, o.rows) * 2.0; }},
      {"embedding", [](const Operands& o) { return embedding(o.b, o.index); }},
      {"one_hot", [](const Operands& o) { return matmul(one_hot(o.rows, 6), o.a); }},
      {"matmul", [](const Operands& o) { return matmul(o.a, transpose(o.b, 0, 1)); }},
      {"linear", [](const Operands& o) { return relu(linear(o.a, o.b, select(o.b, 1, 0))); }},
      {"dropout",
       [](const Operands& o) {
         return dropout(o.a, 0.4, true) + rand({6, 8});
       }},
      {"cast", [](const Operands& o) { return cast(cast(o.a, f16) * cast(o.b, f16), f32); }},
      {"cross_entropy", [](const Operands& o) { return of(cross_entropy(o.a, o.rows)); }},
      {"cross_entropy, smoothed",
       [](const Operands& o) {
         return of(cross_entropy(o.a, o.rows,
                                 {.ignore_index = 1, .label_smoothing = 0.1, .class_weights = {}}));
       }},
      {"linear_cross_entropy",
       [](const Operands& o) {
         return of(linear_cross_entropy(
             o.a, o.b, o.rows, {.label_smoothing = 0.1, .z_loss = 0.1},
             {.bias = select(o.b, 1, 0), .chunk_rows = 4, .chunk_classes = 4}));
       }},
      {"other losses",
       [](const Operands& o) {
         return of(mse_loss(o.a, o.b)) + of(huber_loss(o.a, o.b)) + of(l1_loss(o.a, o.positive)) +
                of(bce_with_logits(o.a, o.positive));
       }},
      {"losses by terms",
       [](const Operands& o) {
         const Tensor mask = gt(o.b, 0);
         return of(smooth_l1_terms(o.a, o.b).loss(mask)) + of(focal_loss(o.a, o.positive)) +
                of(gaussian_nll_loss(o.a, o.b, square(o.a))) +
                of(triplet_margin_loss(o.a, o.b, o.positive)) +
                of(cross_entropy_terms(o.a, o.rows, {.label_smoothing = 0.1}).loss());
       }},
      {"info_nce", [](const Operands& o) { return of(info_nce(o.a, o.b)); }},
      {"autocast",
       [](const Operands& o) {
         const Autocast guard(f16);
         return cast(matmul(o.a, transpose(o.b, 0, 1)), f32);
       }},
      {"in place",
       [](const Operands& o) {
         Tensor t = o.a * 1.0;
         mul_(t, o.b.detach());
         exp_(t);
         return t;
       }},
      {"no gradient",
       [](const Operands& o) {
         const NoGrad guard;
         Tensor t = zeros({6, 8});
         copy_(t, o.a);
         return t + arange(8, f32) + eye(8).slice(0, 0, 6);
       }},
  };
  return all;
}

}  // namespace

TEST_CASE("graph: every family of operations can be recorded, and replays what it would compute",
          "[graph][gpu]") {
  for (const Case& c : cases()) {
    INFO(c.name);
    testing::Rng rng(testing::seed_of(c.name));
    const auto operand = [&](double low, double high) {
      return testing::make(rng.uniforms(48, low, high), {6, 8}, f32).set_requires_grad();
    };
    const Operands o{operand(-2, 2), operand(-2, 2), operand(0.1, 0.9),
                     testing::make({0, 3, 5, 2, 1, 4, 4, 2, 0, 5, 1, 3}, {6, 2}, i64),
                     testing::make({1, 4, 0, 3, 5, 2}, {6}, i64)};
    Tensor y;
    const auto work = [&] {
      for (const Tensor* t : {&o.a, &o.b, &o.positive}) t->set_grad({});
      y = c.f(o);
      if (y.requires_grad()) sum(square(y)).backward();
    };
    const auto results = [&] {
      std::vector<std::vector<double>> all = {values_of(y)};
      for (const Tensor* t : {&o.a, &o.b, &o.positive})
        all.push_back(t->grad().defined() ? values_of(t->grad()) : std::vector<double>{});
      return all;
    };
    const auto other_data = [&](std::uint64_t seed) {
      const NoGrad guard;
      testing::Rng other(seed);
      copy_(o.a, testing::make(other.uniforms(48, -2, 2), {6, 8}, f32));
      copy_(o.b, testing::make(other.uniforms(48, -2, 2), {6, 8}, f32));
      copy_(o.positive, testing::make(other.uniforms(48, 0.1, 0.9), {6, 8}, f32));
      std::vector<double> rows;
      for (int i = 0; i < 6; ++i) rows.push_back(static_cast<double>(other.below(6)));
      copy_(o.rows, testing::make(rows, {6}, i64));
    };
    manual_seed(1);
    work();
    graph::Graph g = graph::Graph::capture(default_device(), work);
    CHECK(g.nodes() > 0);
    std::vector<std::vector<std::vector<double>>> replayed;
    std::vector<Tensor> kept;  // eager work must not get the graph's memory
    for (std::uint64_t seed = 10; seed < 13; ++seed) {
      other_data(seed);
      const auto waits = host_waits();
      g.replay();
      CHECK(host_waits() == waits);
      replayed.push_back(results());
      kept.push_back(full({6, 8}, 77, f32));
    }
    manual_seed(1);
    work();
    work();
    for (std::uint64_t seed = 10; seed < 13; ++seed) {
      other_data(seed);
      work();
      const auto eager = results();
      for (std::size_t i = 0; i < eager.size(); ++i)
        expect_same(std::string(c.name) + ", result " + std::to_string(i), replayed[seed - 10][i],
                    eager[i]);
    }
  }
}

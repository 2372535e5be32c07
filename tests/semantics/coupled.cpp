// Losses that couple the samples of a batch.
#include <cmath>
#include <vector>

#include "firn/firn.h"
#include "support/catch.h"
#include "support/values.h"

using namespace firn;
using namespace firn::testing;

namespace {

constexpr std::int64_t kSamples = 12;

struct Encoder : nn::Module {
  nn::Linear a{6, 16, {.dtype = f64}}, b{16, 4, {.dtype = f64}};
  nn::Dropout dropout{0.25};
  FIRN_MEMBERS(a, b, dropout)
  Tensor forward(const Tensor& x) override { return b(dropout(tanh(a(x)))); }
};

struct Pairs {
  Tensor x, y;
};
Pairs pairs() {
  Generator g(3);
  return {randn({kSamples, 6}, {.dtype = f64, .generator = &g}),
          randn({kSamples, 6}, {.dtype = f64, .generator = &g})};
}

/// Both views of a sample side by side: [n, 2, 4].
Tensor encode(Encoder& net, const Pairs& p, std::int64_t first, std::int64_t last) {
  return stack({net(slice(p.x, 0, first, last)), net(slice(p.y, 0, first, last))}, 1);
}
Loss contrast(const Tensor& all) { return info_nce(select(all, 1, 0), select(all, 1, 1), 0.5); }

std::vector<double> weights_of(const nn::Module& net) {
  std::vector<double> all;
  for (const Tensor& p : net.parameters())
    for (double v : values_of(p)) all.push_back(v);
  return all;
}

double relative_distance(const std::vector<double>& a, const std::vector<double>& b) {
  double difference = 0, size = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    difference += (a[i] - b[i]) * (a[i] - b[i]);
    size += b[i] * b[i];
  }
  return std::sqrt(difference / size);
}

}  // namespace

TEST_CASE("info_nce is the cross-entropy of similarities, and is coupled") {
  const Tensor q = make({1, 0, 0, 2}, {2, 2}, f64), k = make({1, 1, 0, 1}, {2, 2}, f64);
  const Loss loss = info_nce(q, k, 0.5);  // logits {{2, 0}, {4, 4}}
  CHECK(loss.coupled);
  CHECK((2.0 * loss).coupled);
  CHECK(loss.weight.item() == 2);
  CHECK(loss.sum.item() == Approx(std::log1p(std::exp(-2.0)) + std::log(2.0)).epsilon(1e-14));
  CHECK_FALSE(cross_entropy(q, tensor<std::int64_t>({0, 1})).coupled);
  CHECK(error_of([&] {
          info_nce(q, make({1, 2}, {1, 2}, f64));
        }).find("keys [1, 2] f64 " + to_string(default_device())) != std::string::npos);
}

TEST_CASE("[S20] accumulation of a coupled loss is refused, with the way out") {
  Encoder net;
  const Pairs data = pairs();
  optim::SGD opt(net.parameters(), {.lr = 0.1}, {.accumulate = 2});
  const std::vector<double> before = weights_of(net);
  const std::string text = error_of([&] { opt.backward(contrast(encode(net, data, 0, 6))); });
  CHECK(text.find("couples the samples of its batch") != std::string::npos);
  CHECK(text.find("step_two_pass") != std::string::npos);

  Encoder other;
  optim::SGD plain(other.parameters(), {.lr = 0.1});
  plain.backward(contrast(encode(other, data, 0, kSamples)));  // one micro-step: exact
  CHECK_FALSE(error_of([&] { plain.backward(contrast(encode(other, data, 0, 6))); }).empty());
  CHECK(plain.step().applied());
  CHECK(weights_of(net) == before);
}

TEST_CASE("[S20] two passes over parts equal one pass over the batch, dropout included") {
  const Pairs data = pairs();
  std::vector<std::vector<double>> results;
  std::vector<double> losses;
  for (const std::vector<std::int64_t>& ends :
       std::vector<std::vector<std::int64_t>>{{12}, {4, 8, 12}, {1, 8, 12}}) {
    manual_seed(5);
    Encoder net;
    optim::SGD opt(net.parameters(), {.lr = 0.5, .momentum = 0.9}, {.accumulate = 4});
    // The mask of a sample must not depend on the cut: dropout off, then on for equal parts.
    net.eval();
    for (int step = 0; step < 4; ++step) {
      const optim::StepReport report = opt.step_two_pass(
          static_cast<std::int64_t>(ends.size()),
          [&](std::int64_t i) {
            const auto k = static_cast<std::size_t>(i);
            return encode(net, data, i == 0 ? 0 : ends[k - 1], ends[k]);
          },
          contrast);
      CHECK(report.applied());
      CHECK(report.weight() == kSamples);
      CHECK(report.applied_steps() == step + 1);
    }
    results.push_back(weights_of(net));
    losses.push_back(contrast(encode(net, data, 0, kSamples)).item());
  }
  CHECK(relative_distance(results[1], results[0]) <= 1e-12);
  CHECK(relative_distance(results[2], results[0]) <= 1e-12);
  CHECK(losses[0] < 2.4);  // ln 12 = 2.48 before

  // With dropout: the second pass meets the masks of the first, and the stream goes on after it.
  manual_seed(6);
  Encoder net, twin;
  twin.copy_from(net);
  optim::SGD opt(net.parameters(), {.lr = 0.5}), reference(twin.parameters(), {.lr = 0.5});
  const RandomKey start = default_generator().get();
  opt.step_two_pass(
      3, [&](std::int64_t i) { return encode(net, data, 4 * i, 4 * i + 4); }, contrast);
  const RandomKey end = default_generator().get();
  default_generator().set(start);
  std::vector<Tensor> parts;
  for (std::int64_t i = 0; i < 3; ++i) parts.push_back(encode(twin, data, 4 * i, 4 * i + 4));
  CHECK(default_generator().get().offset == end.offset);
  reference.backward(contrast(cat(parts)));
  reference.step();
  CHECK(relative_distance(weights_of(net), weights_of(twin)) <= 1e-12);
}

TEST_CASE("[S20] tensors that a forward pass changes are changed once, not in both passes") {
  Encoder net;
  const Pairs data = pairs();
  optim::SGD opt(net.parameters(), {.lr = 0.1});
  const Tensor calls = zeros({1});
  opt.restore_on_retry({calls});
  const auto count = [&](std::int64_t i) {
    fill_(calls, calls.item() + 1);
    return encode(net, data, 4 * i, 4 * i + 4);
  };
  opt.step_two_pass(3, count, contrast);
  CHECK(calls.item() == 3);
  CHECK_THROWS_AS(opt.step_two_pass(3, count, [](const Tensor&) -> Loss { throw Error("", ""); }),
                  Error);
  CHECK(calls.item() == 3);
}

TEST_CASE("[S20] a failure in either pass drops the cycle and changes nothing") {
  Encoder net;
  const Pairs data = pairs();
  optim::Adam opt(net.parameters(), {.lr = 0.1});
  const std::vector<double> before = weights_of(net);
  int calls = 0;
  const int failing = GENERATE(1, 4);
  CHECK_THROWS_AS(opt.step_two_pass(
                      3,
                      [&](std::int64_t i) {
                        if (calls++ == failing) throw std::runtime_error("no data");
                        return encode(net, data, 4 * i, 4 * i + 4);
                      },
                      contrast),
                  std::runtime_error);
  CHECK(weights_of(net) == before);
  CHECK(error_of([&] {
          opt.step_two_pass(
              2, [&](std::int64_t i) { return encode(net, data, 6 * i, 6 * i + 6); },
              [&](const Tensor&) { return contrast(encode(net, data, 0, 4)); });
        }).find("does not depend on the encodings") != std::string::npos);
  CHECK(weights_of(net) == before);
  CHECK(opt.step_two_pass(
               3, [&](std::int64_t i) { return encode(net, data, 4 * i, 4 * i + 4); }, contrast)
            .applied());
}

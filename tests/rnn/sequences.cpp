// recurrent(): packed lengths beside single sequences, steps beside a loop of elementwise
// operations, trainings, and compositions with the rest.
#include <cmath>
#include <limits>

#include "firn/firn.h"
#include "support/catch.h"
#include "support/device/slow_device.h"
#include "support/threads.h"
#include "support/values.h"

namespace firn::testing {
namespace {

using Values = std::vector<double>;

constexpr RecurrentCell kCells[] = {RecurrentCell::rnn_tanh, RecurrentCell::rnn_relu,
                                    RecurrentCell::gru, RecurrentCell::lstm};

/// One step, written with elementwise operations.
std::pair<Tensor, Tensor> step(RecurrentCell cell, const Tensor& x, const Tensor& weight,
                               const Tensor& bias, const Tensor& h, const Tensor& c) {
  const Tensor r = linear(h, weight, bias);
  const std::int64_t n = x.size(1) / gates_of(cell);
  const auto gate = [n](const Tensor& t, std::int64_t i) {
    return slice(t, 1, i * n, (i + 1) * n);
  };
  switch (cell) {
    case RecurrentCell::rnn_tanh:
      return {tanh(x + r), c};
    case RecurrentCell::rnn_relu:
      return {relu(x + r), c};
    case RecurrentCell::gru: {
      const Tensor reset = sigmoid(gate(x, 0) + gate(r, 0)), z = sigmoid(gate(x, 1) + gate(r, 1));
      const Tensor candidate = tanh(gate(x, 2) + reset * gate(r, 2));
      return {candidate + z * (h - candidate), c};
    }
    case RecurrentCell::lstm: {
      const Tensor all = x + r;
      const Tensor next = sigmoid(gate(all, 1)) * c + sigmoid(gate(all, 0)) * tanh(gate(all, 2));
      return {sigmoid(gate(all, 3)) * tanh(next), next};
    }
  }
  return {};
}

/// Operands of a call; the sizes are odd on purpose.
struct Operands {
  Tensor gates, weight, bias, h, c;

  Operands(RecurrentCell cell, std::int64_t steps, std::int64_t batch, std::int64_t n,
           DType dtype) {
    Rng rng(static_cast<std::uint64_t>(steps * 100 + batch * 10 + n));
    const std::int64_t g = gates_of(cell) * n;
    const auto leaf = [&](const Shape& shape, double size) {
      return make(rng.uniforms(shape.product(), -size, size), shape, dtype).set_requires_grad();
    };
    gates = leaf({steps, batch, g}, 2);
    weight = leaf({g, n}, 1 / std::sqrt(static_cast<double>(n)));
    bias = leaf({g}, 1);
    h = leaf({batch, n}, 1);
    if (cell == RecurrentCell::lstm) c = leaf({batch, n}, 1);
  }
  std::vector<Tensor> all() const {
    std::vector<Tensor> list = {gates, weight, bias, h};
    if (c.defined()) list.push_back(c);
    return list;
  }
  std::vector<Values> gradients() const {
    std::vector<Values> out;
    for (Tensor t : all()) {
      out.push_back(t.grad().defined() ? values_of(t.grad()) : Values());
      t.set_grad({});
    }
    return out;
  }
};

/// A number that depends on every element of the results.
Tensor weighed(const RecurrentResult& y) {
  const auto weigh = [](const Tensor& t) {
    const Tensor ramp = cast(arange(t.numel(), {.device = t.device()}), t.dtype());
    return sum(flatten(t) * cos(ramp));
  };
  Tensor total = weigh(y.output) + 2.0 * weigh(y.h);
  return y.c.defined() ? total + 3.0 * weigh(y.c) : total;
}

}  // namespace

TEST_CASE("recurrent() equals a loop of elementwise operations, in both directions") {
  for (const RecurrentCell cell : kCells) {
    for (const bool reverse : {false, true}) {
      for (const auto& [steps, batch, n] :
           {std::array<std::int64_t, 3>{5, 3, 7}, {1, 1, 1}, {3, 2, 301}}) {
        if (n > 100 && on_slow_device()) continue;
        const Operands o(cell, steps, batch, n, f64);
        weighed(recurrent(cell, o.gates, o.weight,
                          {.bias = o.bias, .h = o.h, .c = o.c, .reverse = reverse}))
            .backward();
        const std::vector<Values> got = o.gradients();
        RecurrentResult loop;
        std::vector<Tensor> outputs(static_cast<std::size_t>(steps));
        Tensor h = o.h, c = o.c;
        for (std::int64_t i = 0; i < steps; ++i) {
          const std::int64_t t = reverse ? steps - 1 - i : i;
          std::tie(h, c) = step(cell, select(o.gates, 0, t), o.weight, o.bias, h, c);
          outputs[static_cast<std::size_t>(t)] = h;
        }
        weighed({stack(outputs), h, c}).backward();
        const std::vector<Values> want = o.gradients();
        for (std::size_t i = 0; i < want.size(); ++i)
          expect_close("gradient " + std::to_string(i), got[i], want[i],
                       1e-12 * (1 + largest(want[i])));
      }
    }
  }
}

TEST_CASE("packed lengths equal the loop over single sequences, and padding is not read") {
  const std::vector<std::int64_t> lengths = {3, 0, 5, 1};
  const std::int64_t steps = 5, batch = 4, n = 3;
  for (const RecurrentCell cell : kCells) {
    for (const bool reverse : {false, true}) {
      const Operands o(cell, steps, batch, n, f64);
      Values gates = values_of(o.gates.detach());
      const std::int64_t g = gates_of(cell) * n;
      for (std::int64_t t = 0; t < steps; ++t)
        for (std::int64_t b = 0; b < batch; ++b)
          if (t >= lengths[static_cast<std::size_t>(b)])
            std::fill_n(gates.begin() + (t * batch + b) * g, g,
                        std::numeric_limits<double>::quiet_NaN());
      const Tensor padded = make(gates, {steps, batch, g}).set_requires_grad();
      const RecurrentResult all = recurrent(cell, padded, o.weight,
                                            {.bias = o.bias,
                                             .h = o.h,
                                             .c = o.c,
                                             .lengths = tensor(lengths, {batch}),
                                             .reverse = reverse});
      weighed(all).backward();
      const Values dgates = values_of(padded.grad());
      const std::vector<Values> got = o.gradients();

      // The same by single sequences, whose results are put where those of the batch are.
      std::vector<Tensor> outputs, hs, cs;
      for (std::int64_t b = 0; b < batch; ++b) {
        const std::int64_t length = lengths[static_cast<std::size_t>(b)];
        const RecurrentResult one =
            recurrent(cell, slice(slice(o.gates, 1, b, b + 1), 0, 0, length), o.weight,
                      {.bias = o.bias,
                       .h = slice(o.h, 0, b, b + 1),
                       .c = o.c.defined() ? slice(o.c, 0, b, b + 1) : o.c,
                       .reverse = reverse});
        outputs.push_back(cat({one.output, zeros({steps - length, 1, n}, f64)}, 0));
        hs.push_back(one.h);
        if (one.c.defined()) cs.push_back(one.c);
      }
      const RecurrentResult single{cat(outputs, 1), cat(hs, 0), cs.empty() ? Tensor() : cat(cs, 0)};
      expect_close("output", values_of(all.output), values_of(single.output), 1e-14);
      expect_close("h", values_of(all.h), values_of(single.h), 1e-14);
      weighed(single).backward();
      const std::vector<Values> want = o.gradients();
      expect_close("gates", dgates, want[0], 1e-13);
      for (std::size_t i = 1; i < want.size(); ++i)
        expect_close("gradient " + std::to_string(i), got[i], want[i],
                     1e-13 * (1 + largest(want[i])));
    }
  }
}

TEST_CASE("recurrent() with no steps, no batch and no state") {
  for (const RecurrentCell cell : kCells) {
    const Operands o(cell, 3, 2, 4, f32);
    const RecurrentResult none =
        recurrent(cell, slice(o.gates, 0, 0, 0), o.weight, {.h = o.h, .c = o.c});
    CHECK(none.output.shape() == Shape{0, 2, 4});
    expect_same("h", values_of(none.h), values_of(o.h));
    none.h.sum().backward();
    CHECK(values_of(o.h.grad()) == Values(8, 1));
    CHECK(recurrent(cell, slice(o.gates, 1, 0, 0), o.weight).output.shape() == Shape{3, 0, 4});
    const Tensor zero = zeros({2, 4}, f32);
    expect_same("no state", values_of(recurrent(cell, o.gates, o.weight).output),
                values_of(recurrent(cell, o.gates, o.weight, {.h = zero}).output));
    // Nothing is recorded, and the values are the same.
    const NoGrad guard;
    const RecurrentResult plain =
        recurrent(cell, o.gates, o.weight, {.bias = o.bias, .h = o.h, .c = o.c});
    const EnableGrad recording;
    const RecurrentResult kept =
        recurrent(cell, o.gates, o.weight, {.bias = o.bias, .h = o.h, .c = o.c});
    expect_same("output", values_of(plain.output), values_of(kept.output));
    if (plain.c.defined()) expect_same("c", values_of(plain.c), values_of(kept.c));
  }
}

TEST_CASE("recurrent() has the same bits for any number of threads", "[host]") {
  for (const RecurrentCell cell : kCells) {
    const Operands o(cell, 4, 33, 70, f32);
    std::vector<Values> first;
    for (const int n : {1, 2, 5}) {
      const Threads threads(n);
      const RecurrentResult y =
          recurrent(cell, o.gates, o.weight, {.bias = o.bias, .h = o.h, .c = o.c});
      weighed(y).backward();
      std::vector<Values> all = o.gradients();
      all.push_back(values_of(y.output));
      if (first.empty()) first = all;
      for (std::size_t i = 0; i < all.size(); ++i) expect_same("operand", all[i], first[i]);
    }
  }
}

TEST_CASE("under autocast a layer runs in the guard's dtype, and its weights get f32 gradients") {
  manual_seed(3);
  nn::LSTM lstm(3, 4);
  const Tensor x = make(Rng(2).uniforms(5 * 2 * 3, -1, 1), {5, 2, 3}, f32);
  const Values plain = values_of(lstm(x));
  const Autocast guard(f16);
  const RecurrentResult y =
      lstm(x, nn::RecurrentInput{.h = zeros({1, 2, 4}), .c = zeros({1, 2, 4})});
  CHECK(y.output.dtype() == f16);
  expect_close("output", values_of(y.output), plain, 0x1p-9);
  y.output.sum().backward();
  for (const Tensor& p : lstm.parameters()) CHECK(p.grad().dtype() == f32);
}

TEST_CASE("an LSTM learns to remember the first element, with f16, scaling and accumulation") {
  manual_seed(5);
  struct Net : nn::Module {
    nn::LSTM lstm{1, 12, {.batch_first = true}};
    nn::Linear head{12, 2};
    FIRN_MEMBERS(lstm, head)
    Tensor forward(const Tensor& x) override { return head(select(lstm(x), 1, -1)); }
  } net;
  optim::Adam opt(net.named_parameters(), {.lr = 0.03});
  Rng rng(4);
  const std::int64_t rounds = on_slow_device() ? 3 : 150;
  double first = 0, last = 0;
  for (std::int64_t round = 0; round < rounds; ++round) {
    const Values values = rng.uniforms(32 * 6, -1, 1);
    std::vector<std::int64_t> labels;
    for (std::size_t i = 0; i < 32; ++i) labels.push_back(values[i * 6] > 0 ? 1 : 0);
    const Tensor x = make(values, {32, 6, 1}, f32);
    const Tensor target = to_device(tensor(labels, {32}), x.device());
    const auto report = opt.run_batch(32, 8, [&](std::int64_t begin, std::int64_t end) {
      const Autocast autocast(f16);
      return cross_entropy(net(slice(x, 0, begin, end)), slice(target, 0, begin, end));
    });
    (round == 0 ? first : last) = report.loss();
  }
  INFO(first << " -> " << last);
  if (!on_slow_device()) CHECK(last < 0.5 * first);
  CHECK(std::isfinite(last));
}

TEST_CASE("a state that goes on over a step without detach(): the error names detach()", "[rnn]") {
  nn::LSTM lstm(4, 8);
  optim::SGD opt(lstm.parameters(), {.lr = 0.1});
  Tensor h, c;
  const auto batch = [&](bool keep) {
    const auto [y, hn, cn] = lstm(randn({3, 2, 4}), nn::RecurrentInput{.h = h, .c = c});
    opt.backward(mse_loss(y, zeros_like(y)), {.retain_graph = keep});
    opt.step();
    h = hn, c = cn;
  };
  batch(true);
  const std::string kept = error_of([&] { batch(true); });
  INFO(kept);
  CHECK(kept.find("modified in place by the optimizer's step") != std::string::npos);
  CHECK(kept.find("h = h.detach()") != std::string::npos);
  opt.zero_grad();

  h = c = Tensor();
  batch(false);
  const std::string freed = error_of([&] { batch(false); });
  INFO(freed);
  CHECK(freed.find("freed") != std::string::npos);
  CHECK(freed.find("h = h.detach()") != std::string::npos);
  opt.zero_grad();

  h = c = Tensor();
  for (int i = 0; i < 3; ++i) {
    batch(false);
    h = h.detach(), c = c.detach();
  }
}

}  // namespace firn::testing

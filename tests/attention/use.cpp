// Attention in a program: views, shared inputs, threads, memory, dropout, graphs, autocast,
// refusals.
#include <cmath>
#include <optional>

#include "reference.h"
#include "support/catch.h"
#include "support/device/simulator.h"
#include "support/threads.h"

namespace firn::testing {
namespace {}  // namespace

TEST_CASE("attention: views of a fused projection are not copied, nor is the result's reshape") {
  const std::int64_t b = 2, n = 90, heads = 3, key_heads = 1, d = 4;
  const std::int64_t width = (heads + 2 * key_heads) * d;
  Rng rng(8);
  const std::vector<double> values = rng.uniforms(b * n * width, -2, 2);
  const std::vector<double> seed = rng.uniforms(b * n * heads * d, -2, 2);
  const auto run = [&](bool views) {
    const Tensor qkv = make(values, {b, n, width}, f32).set_requires_grad();
    const auto part = [&](std::int64_t from, std::int64_t h) {
      const Tensor x =
          transpose(reshape(slice(qkv, 2, from * d, (from + h) * d), {b, n, h, d}), 1, 2);
      return views ? x : contiguous(x);
    };
    const Tensor q = part(0, heads), k = part(heads, key_heads),
                 v = part(heads + key_heads, key_heads);
    const std::size_t before = memory_stats().of(Owner::activations).current;
    const Tensor o = attention(q, k, v, {.causal = true});
    // The result, and one f32 a query; a copy of k alone would be twice the rest.
    const std::size_t made = memory_stats().of(Owner::activations).current - before;
    CHECK(made <= o.bytes() + static_cast<std::size_t>(b * heads * n) * 4 + 1024);
    CHECK(transpose(o, 1, 2).is_contiguous() == views);
    const Tensor rows = reshape(transpose(o, 1, 2), {b, n, heads * d});
    if (views) CHECK(rows.storage() == o.storage());
    backward(rows, {.initial_gradient = make(seed, {b, n, heads * d}, f32)});
    return std::vector<std::vector<double>>{values_of(rows), values_of(qkv.grad())};
  };
  const auto viewed = run(true), copied = run(false);
  expect_same("result", viewed[0], copied[0]);
  expect_same("gradient", viewed[1], copied[1]);
}

TEST_CASE("attention: operands of any layout, and a gradient of any strides") {
  const AttentionCase c{.b = 2, .hq = 2, .hk = 2, .n = 5, .m = 5, .d = 4, .dv = 4};
  Rng rng(2);
  const AttentionValues x = random_values(c, rng, f32);
  const AttentionResults want = run_attention(c, x, f32);
  for (const Layout layout :
       {Layout::transposed, Layout::channels_last, Layout::stepped, Layout::offset}) {
    INFO(to_string(layout));
    const Tensor q = make(x.q, c.q_shape(), f32, layout).set_requires_grad();
    const Tensor k = make(x.k, c.k_shape(), f32, layout).set_requires_grad();
    const Tensor v = make(x.v, c.v_shape(), f32, layout).set_requires_grad();
    const Tensor o = attention(q, k, v);
    backward(o, {.initial_gradient = make(x.dout, c.o_shape(), f32, layout)});
    expect_same("o", values_of(o), want.o);
    expect_same("dq", values_of(q.grad()), want.dq);
    expect_same("dk", values_of(k.grad()), want.dk);
    expect_same("dv", values_of(v.grad()), want.dv);
  }
  // sum() gives a gradient that is one number, repeated.
  const Tensor q = make(x.q, c.q_shape(), f32), k = make(x.k, c.k_shape(), f32);
  const Tensor v = make(x.v, c.v_shape(), f32).set_requires_grad();
  attention(q, k, v).sum().backward();
  CHECK(v.grad().sum().item() == Approx(2 * 2 * 5 * 4));
}

TEST_CASE("attention: one tensor as q, k and v gets the sum of the three gradients") {
  const AttentionCase c{
      .b = 1, .hq = 2, .hk = 2, .n = 40, .m = 40, .d = 8, .dv = 8, .causal = true};
  for (const DType dtype : {f64, f32, bf16}) {
    Rng rng(4);
    AttentionValues x = random_values(c, rng, dtype);
    x.k = x.v = x.q;
    const AttentionResults want = reference(c, x);
    const Tensor t = make(x.q, c.q_shape(), dtype).set_requires_grad();
    const Tensor o = attention(t, t, t, {.causal = true});
    backward(o, {.initial_gradient = make(x.dout, c.o_shape(), dtype)});
    std::vector<double> sum = want.dq;
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += want.dk[i] + want.dv[i];
    CHECK(relative_error(values_of(t.grad()), sum) <= (dtype == f64   ? 1e-14
                                                       : dtype == f32 ? 2e-6
                                                                      : 0.01));
    // And k and v alone.
    const Tensor q = make(x.q, c.q_shape(), dtype).set_requires_grad();
    const Tensor kv = make(x.q, c.q_shape(), dtype).set_requires_grad();
    backward(attention(q, kv, kv, {.causal = true}),
             {.initial_gradient = make(x.dout, c.o_shape(), dtype)});
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] = want.dk[i] + want.dv[i];
    CHECK(relative_error(values_of(kv.grad()), sum) <= (dtype == f64   ? 1e-14
                                                        : dtype == f32 ? 2e-6
                                                                       : 0.01));
    CHECK(relative_error(values_of(q.grad()), want.dq) <= (dtype == f64   ? 1e-14
                                                           : dtype == f32 ? 2e-6
                                                                          : 0.01));
  }
}

TEST_CASE("attention: gradients add up over calls, passes and a retained graph") {
  const AttentionCase c{.b = 1, .hq = 2, .hk = 1, .n = 7, .m = 9, .d = 4, .dv = 3};
  Rng rng(6);
  const AttentionValues x = random_values(c, rng, f64);
  const AttentionResults once = run_attention(c, x, f64);
  const Tensor q = make(x.q, c.q_shape()).set_requires_grad();
  const Tensor k = make(x.k, c.k_shape()).set_requires_grad();
  const Tensor v = make(x.v, c.v_shape()).set_requires_grad();
  const Tensor o = attention(q, k, v), seed = make(x.dout, c.o_shape());
  backward(o, {.initial_gradient = seed, .retain_graph = true});
  backward(o, {.initial_gradient = seed});
  backward(attention(q, k, v) + attention(q, k, v), {.initial_gradient = seed});
  const auto four_times = [](std::vector<double> g) {
    for (double& e : g) e *= 4;
    return g;
  };
  CHECK(relative_error(values_of(q.grad()), four_times(once.dq)) <= 1e-14);
  CHECK(relative_error(values_of(k.grad()), four_times(once.dk)) <= 1e-14);
  CHECK(relative_error(values_of(v.grad()), four_times(once.dv)) <= 1e-14);
  CHECK_THROWS_AS(backward(o, {.initial_gradient = seed}), Error);
}

TEST_CASE("attention: only the gradients that are asked for") {
  const AttentionCase c{.b = 1, .hq = 2, .hk = 1, .n = 7, .m = 9, .d = 4, .dv = 3};
  Rng rng(6);
  const AttentionValues x = random_values(c, rng, f32);
  const AttentionResults all = run_attention(c, x, f32);
  for (int which = 0; which < 3; ++which) {
    Tensor in[] = {make(x.q, c.q_shape(), f32), make(x.k, c.k_shape(), f32),
                   make(x.v, c.v_shape(), f32)};
    in[which].set_requires_grad();
    backward(attention(in[0], in[1], in[2]), {.initial_gradient = make(x.dout, c.o_shape(), f32)});
    for (int i = 0; i < 3; ++i) CHECK(in[i].grad().defined() == (i == which));
    expect_same("gradient", values_of(in[which].grad()),
                all_of(all)[static_cast<std::size_t>(which) + 1]);
  }
}

TEST_CASE("attention: optimizers collect the gradient of a 16-bit query in f32", "[host]") {
  const Tensor q = full({1, 1, 1, 1}, 1, bf16).set_requires_grad();
  optim::SGD opt({q}, {.lr = 1}, {.accumulate = 2});
  const Tensor k = tensor({1.f, -1.f}, {1, 1, 2, 1}).to(bf16);
  const auto micro_step = [&](double factor) {
    const Tensor o = attention(q, k, k, {.scale = 1.0});
    opt.backward(Loss{(o.to(f32) * factor).sum(), full({}, 1)});
    return q.grad().item();
  };
  // A sum in bf16 would not notice the second micro-step.
  const double first = micro_step(256), second = micro_step(0.25);
  CHECK(q.grad().dtype() == f32);
  CHECK((second - first) / first == Approx(0.25 / 256).epsilon(1e-3));
}

TEST_CASE("attention: the same bits for any number of threads", "[host]") {
  AttentionCase c{.b = 2, .hq = 4, .hk = 2, .n = 300, .m = 280, .d = 16, .dv = 24, .causal = true};
  c.dropout = 0.1;
  AttentionCase one{.b = 1, .hq = 1, .hk = 1, .n = 700, .m = 700, .d = 16, .dv = 16};
  for (const AttentionCase& each : {c, one}) check_threads(each);
}

#ifdef FIRN_HAS_CUSIM
TEST_CASE("attention: the same bits in every order of threads and blocks", "[gpu]") {
  AttentionCase c{.b = 1, .hq = 2, .hk = 1, .n = 70, .m = 90, .d = 20, .dv = 70, .causal = true};
  c.dropout = 0.2;
  Rng rng(4);
  const AttentionValues x = random_values(c, rng, f32);
  expect_same_in_every_order([&] {
    std::vector<double> all;
    for (const auto& part : all_of(run_attention(c, x, f32)))
      all.insert(all.end(), part.begin(), part.end());
    return all;
  });
}
#endif

TEST_CASE("attention: memory grows with the sequence, not with its square", "[host]") {
  const std::int64_t heads = 12, n = 8192, d = 64;
  for (const DType dtype : {f32, bf16}) {
    const Shape shape = {1, heads, n, d};
    const auto operand = [&](double v) { return full(shape, v, dtype).set_requires_grad(); };
    const Tensor q = operand(0.1), k = operand(0.2), v = operand(0.3);
    const std::size_t before = memory_stats().total.current;
    reset_peak_memory();
    {
      // The window makes it fast; nothing that is allocated depends on it.
      const Tensor o = attention(q, k, v, {.causal = true, .window = 128});
      backward(o, {.initial_gradient = ones(shape, dtype)});
    }
    const std::size_t extra = memory_stats().total.peak - before;
    CHECK(extra <= 2 * 4 * q.bytes() + (std::size_t{16} << 20));
  }
}

TEST_CASE("attention: dropout keeps 1 - p of the probabilities, and backward the same ones") {
  const std::int64_t n = 64, m = 101;
  const double p = 0.3;
  Generator g(5);
  // Equal scores and values 1: an output is the share of its keys that is kept, over 1 - p.
  const Tensor q = zeros({1, 2, n, 4}), k = zeros({1, 2, m, 4});
  const Tensor v = ones({1, 2, m, 1}).set_requires_grad();
  const Tensor o = attention(q, k, v, {.dropout = p, .generator = &g});
  const double mean = o.mean().item(), pairs = 2 * n * m;
  CHECK(std::abs(mean - 1) <= 4 * std::sqrt(p / (1 - p) / pairs));
  // A value's gradient counts the queries that kept it: the sums of both are the same number.
  o.sum().backward();
  CHECK(v.grad().sum().item() == Approx(o.sum().item()).epsilon(1e-6));
  // Other numbers each time, the same ones from the same place of the stream.
  const Tensor other = attention(q, k, v, {.dropout = p, .generator = &g});
  CHECK(values_of(other) != values_of(o));
  g.set({5, 0});
  CHECK(values_of(attention(q, k, v, {.dropout = p, .generator = &g})) == values_of(o));
  // The stream moves by whole blocks of four numbers a row, and only with dropout.
  CHECK(g.get().offset == 2 * n * 26);
  attention(q, k, v, {.generator = &g});
  CHECK(g.get().offset == 2 * n * 26);
}

TEST_CASE("attention: a graph's replays draw the masks of eager steps, in both passes") {
  Rng rng(3);
  const AttentionCase c{.b = 1, .hq = 2, .hk = 1, .n = 10, .m = 12, .d = 4, .dv = 4};
  const AttentionValues x = random_values(c, rng, f32);
  const Tensor q = make(x.q, c.q_shape(), f32).set_requires_grad();
  const Tensor k = make(x.k, c.k_shape(), f32).set_requires_grad();
  const Tensor v = make(x.v, c.v_shape(), f32).set_requires_grad();
  const Tensor lengths = tensor<std::int64_t>({11}, {1});
  Tensor o, dq, dv;
  const auto work = [&] {
    for (const Tensor& t : {q, k, v}) t.set_grad({});
    o = attention(q, k, v, {.causal = true, .lengths = lengths, .dropout = 0.4});
    o.sum().backward();
    dq = q.grad();
    dv = v.grad();
  };
  const auto results = [&] {
    return std::vector<std::vector<double>>{values_of(o), values_of(dq), values_of(dv)};
  };
  manual_seed(6);
  std::vector<std::vector<std::vector<double>>> want;
  for (int i = 0; i < 5; ++i) {
    work();
    want.push_back(results());
  }
  CHECK(want[1] != want[2]);
  manual_seed(6);
  work();
  CHECK(results() == want[0]);
  graph::Graph g = graph::Graph::capture(default_device(), work);
  CHECK(results() == want[1]);
  for (std::size_t i = 2; i < 5; ++i) {
    g.replay();
    CHECK(results() == want[i]);
  }
}

TEST_CASE("attention: a checkpoint that computes it again gives the same gradients") {
  const AttentionCase c{.b = 1, .hq = 2, .hk = 2, .n = 12, .m = 12, .d = 4, .dv = 4};
  Rng rng(1);
  const AttentionValues x = random_values(c, rng, f32);
  Generator g(2);
  const auto part = [&](const Tensor& t) {
    g.set({2, 0});
    return attention(t, t * 0.5, t, {.causal = true, .dropout = 0.2, .generator = &g});
  };
  const Tensor seed = make(x.dout, c.o_shape(), f32);
  const Tensor plain = make(x.q, c.q_shape(), f32).set_requires_grad();
  backward(part(plain), {.initial_gradient = seed});
  const Tensor t = make(x.q, c.q_shape(), f32).set_requires_grad();
  Tensor y;
  {
    const NoGrad guard;
    y = part(t).detach();
  }
  y = custom("checkpoint", {t}, y, {t}, [&](const CustomBackward& b) {
    const Tensor again = b.saved[0].detach().set_requires_grad();
    {
      const EnableGrad guard;
      backward(part(again), {.initial_gradient = b.grad});
    }
    return std::vector<Tensor>{again.grad()};
  });
  backward(y, {.initial_gradient = seed});
  expect_same("gradient", values_of(t.grad()), values_of(plain.grad()));
}

TEST_CASE("attention: autocast runs it in 16 bits, and gradients of f32 operands are f32") {
  const AttentionCase c{.b = 1, .hq = 2, .hk = 2, .n = 12, .m = 12, .d = 8, .dv = 8};
  Rng rng(1);
  const AttentionValues x = random_values(c, rng, bf16);
  const Tensor q = make(x.q, c.q_shape(), f32).set_requires_grad();
  const Tensor k = make(x.k, c.k_shape(), bf16).set_requires_grad();
  const Tensor v = make(x.v, c.v_shape(), f32).set_requires_grad();
  Tensor o;
  {
    const Autocast guard(bf16);
    const DtypeTrace trace;
    o = attention(q, k, v);
    CHECK(to_string(trace.ops().back()) == "attention bf16 bf16 bf16 -> bf16");
  }
  CHECK(o.dtype() == bf16);
  backward(o, {.initial_gradient = make(x.dout, c.o_shape(), bf16)});
  CHECK(q.grad().dtype() == f32);
  const AttentionResults want = reference(c, x);
  CHECK(relative_error(values_of(q.grad()), want.dq) <= 0.01);
  CHECK(values_of(q.grad()) != rounded(values_of(q.grad()), bf16));  // it was never rounded
  // One f32 tensor three times: its three copies share its gradient.
  const Tensor t = make(x.q, c.q_shape(), f32).set_requires_grad();
  {
    const Autocast guard(bf16);
    o = attention(t, t, t);
  }
  backward(o, {.initial_gradient = make(x.dout, c.o_shape(), bf16)});
  AttentionValues same = x;
  same.k = same.v = same.q;
  const AttentionResults three = reference(c, same);
  std::vector<double> sum = three.dq;
  for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += three.dk[i] + three.dv[i];
  CHECK(relative_error(values_of(t.grad()), sum) <= 0.01);
}

TEST_CASE("attention: what does not fit is refused, with the values") {
  const Tensor q = ones({2, 4, 3, 8}), k = ones({2, 2, 5, 8}), v = ones({2, 2, 5, 6});
  const auto refused = [](auto fn, const char* part) {
    const std::string message = error_of(fn);
    INFO(message);
    CHECK(message.find("[attention]") != std::string::npos);
    CHECK(message.find(part) != std::string::npos);
  };
  refused([&] { attention(q[0], k, v); }, "4 axes");
  refused([&] { attention(Tensor(), k, v); }, "undefined");
  refused([&] { attention(q, k.to(f64), v); }, "dtypes differ");
  refused([&] { attention(q.to(i32), k.to(i32), v.to(i32)); }, "floating");
  refused([&] { attention(q.slice(0, 0, 1), k, v); }, "batch sizes differ");
  refused([&] { attention(q, k, v.slice(2, 0, 4)); }, "differ in heads or keys");
  refused([&] { attention(q, k.slice(3, 0, 7), v); }, "differ in the last axis");
  refused([&] { attention(q.slice(1, 0, 3), k, v); }, "3 heads of q, 2 of k and v");
  refused([&] { attention(q, k, v, {.window = 0}); }, "window = 0");
  refused([&] { attention(q, k, v, {.scale = std::nan("")}); }, "scale = nan");
  refused([&] { attention(q, k, v, {.scale = 1e300}); }, "scale = 1e+300");
  refused([&] { attention(q, k, v, {.dropout = 1}); }, "dropout = 1");
  refused([&] { attention(q, k, v, {.lengths = tensor<std::int64_t>({1, 2, 3})}); }, "lengths [3]");
  refused([&] { attention(q, k, v, {.lengths = ones({2})}); },
          "lengths is i64 or i32, got [2] f32");
  refused([&] { attention(q, k, v, {.mask = ones({3, 5})}); }, "mask is bool");
  refused([&] { attention(q, k, v, {.mask = ones({3, 4}, boolean)}); }, "mask [3, 4] bool");
  refused([&] { attention(q, k, v, {.mask = ones({3, 2, 4, 3, 5}, boolean)}); }, "mask");
}

TEST_CASE("attention: a length outside [0, m] is an error") {
  const Tensor q = ones({2, 1, 3, 4}), k = ones({2, 1, 5, 4});
  for (const std::int64_t bad : {-1, 6}) {
    const Tensor lengths = tensor<std::int64_t>({5, bad}, {2});
    // A device is asked at the host's next wait.
    const std::string message =
        error_of([&] { values_of(attention(q, k, k, {.lengths = lengths})); });
    CHECK(message.find("[attention] length") != std::string::npos);
    CHECK(message.find(std::to_string(bad)) != std::string::npos);
  }
}

TEST_CASE("attention: grouped heads equal repeated keys") {
  const AttentionCase grouped{.b = 2, .hq = 6, .hk = 2, .n = 5, .m = 7, .d = 4, .dv = 3};
  Rng rng(12);
  const AttentionValues x = random_values(grouped, rng, f32);
  const Tensor q = make(x.q, grouped.q_shape(), f32), k = make(x.k, grouped.k_shape(), f32),
               v = make(x.v, grouped.v_shape(), f32);
  // Repeated as a view: the strides of a repeated head are 0.
  const auto repeat = [](const Tensor& t) {
    return reshape(expand(unsqueeze(t, 2), {2, 2, 3, 7, t.size(3)}), {2, 6, 7, t.size(3)});
  };
  expect_same("o", values_of(attention(q, k, v)), values_of(attention(q, repeat(k), repeat(v))));
}

}  // namespace firn::testing

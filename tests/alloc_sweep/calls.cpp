// What a training program calls beside its steps, in which every allocation fails once.
#include <array>
#include <cstring>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <typeinfo>
#include <utility>

#include "alloc_sweep/bytes.h"
#include "alloc_sweep/failing.h"
#include "alloc_sweep/sweep.h"
#include "firn/firn.h"
#include "support/catch.h"
#include "support/threads.h"

namespace firn::testing {
namespace {

struct Model : nn::Module {
  nn::Linear in{3, 4};
  nn::BatchNorm1d norm{4};
  nn::Sequential out{nn::ReLU(), nn::Linear(4, 2)};
  FIRN_MEMBERS(in, norm, out)
  Tensor forward(const Tensor& x) override { return out(norm(in(x))); }
};

struct Two : nn::ModuleOf<Two> {
  nn::Linear a{3, 2}, b{3, 2};
  FIRN_MEMBERS(a, b)
  Tensor forward(const Tensor& x, const Tensor& y) { return a(x) + b(y); }
};

/// Values, dtypes and gradients' switches of all tensors, and the mode of each module.
std::string all_of(nn::Module& m) {
  std::string all;
  for (const nn::NamedTensor& t : io::state_of(m))
    all += t.name + to_string(t.tensor.dtype()) + std::to_string(t.tensor.requires_grad()) +
           bytes_of(t.tensor);
  for (const nn::NamedModule& n : m.named_modules())
    all += n.name + (n.module->training() ? "t" : "e");
  return all;
}

/// What a call makes beside what it changes in the model.
struct Made {
  std::string text = {};
  Tensor tensor = {};
  std::array<Tensor, 4> gradients = {};
  std::unique_ptr<nn::Module> module = {};
};

class CallOfModel : public Work {
 public:
  using Call = std::function<Made(Model&)>;
  explicit CallOfModel(Call call) : call_(std::move(call)) {}
  void run() override { made_ = call_(model); }
  std::string kept() override { return all_of(model); }
  std::string made() override {
    std::string all = made_.text + (made_.module ? all_of(*made_.module) : "") + all_of(model);
    if (made_.tensor.defined()) all += bytes_of(made_.tensor);
    for (const Tensor& g : made_.gradients)
      if (g.defined()) all += bytes_of(g);
    return all;
  }

  Model model;

 private:
  Call call_;
  Made made_;
};

using Prepare = std::function<void(Model&)>;
MakeWork call_of(CallOfModel::Call call, const Prepare& prepare = {}) {
  return [=]() -> std::unique_ptr<Work> {
    manual_seed(1);
    auto w = std::make_unique<CallOfModel>(call);
    if (prepare) prepare(w->model);
    return w;
  };
}
/// A call that makes nothing.
MakeWork change_of(const std::function<void(Model&)>& change, const Prepare& prepare = {}) {
  return call_of(
      [change](Model& m) {
        change(m);
        return Made();
      },
      prepare);
}

TEST_CASE("alloc_sweep: a summary with a trial run leaves modes as they were", "[host]") {
  const Threads one(1);
  const auto summary = call_of(
      [](Model& m) {
        return Made{m.summary({2, 3})};
      },
      [](Model& m) { m.norm.eval(); });
  CHECK(sweep(summary, Fails::heap, 2) > 50);
}

TEST_CASE("alloc_sweep: modes, conversion and copies of a model", "[host]") {
  const Threads one(1);
  CHECK(sweep(change_of([](Model& m) { m.eval(); }), Fails::heap, 2) > 5);
  CHECK(sweep(change_of([](Model& m) { m.eval(); }), Fails::heap_for_good, 2) > 5);
  const auto to_half = change_of([](Model& m) { m.to(f16); });
  CHECK(sweep(to_half, Fails::heap, 2) > 10);
  CHECK(sweep(to_half, Fails::blocks) > 2);
  const auto freeze = change_of([](Model& m) { const Freeze guard(m.parameters()); });
  CHECK(sweep(freeze, Fails::heap, 2) > 10);
  const auto unfreeze = change_of([](Model& m) { m.set_requires_grad(true); },
                                  [](Model& m) { m.set_requires_grad(false); });
  CHECK(sweep(unfreeze, Fails::heap, 2) > 10);
  const auto clone = call_of([](Model& m) {
    Model copy = nn::clone(static_cast<const Model&>(m));
    Made made{.module = nn::clone(static_cast<const nn::Module&>(m))};
    made.module->copy_from(copy);
    return made;
  });
  CHECK(sweep(clone, Fails::heap, 3) > 20);
  CHECK(sweep(clone, Fails::blocks) > 5);
  const auto hooks = change_of([](Model& m) {
    m.remove_hook(m.add_forward_hook([](auto&&...) {}));
    const DtypeTrace trace;
    m.out(ones({2, 4}));
  });
  CHECK(sweep(hooks, Fails::heap) > 10);
}

TEST_CASE("alloc_sweep: statistics that are computed anew leave modes as they were", "[host]") {
  const Threads one(1);
  const auto recomputed = change_of([](Model& m) {
    const nn::RecomputedStatistics statistics(m, [&m] { m(ones({4, 3})); });
  });
  CHECK(sweep(recomputed, Fails::heap) > 20);
}

TEST_CASE("alloc_sweep: operations outside of a module", "[host]") {
  const Threads one(1);
  const auto sweep_op = [](const std::function<Tensor()>& op) {
    const auto call = call_of([op](Model&) { return Made{.tensor = op()}; });
    CHECK(sweep(call, Fails::heap, 2) > 2);
    CHECK(sweep(call, Fails::heap_for_good, 2) > 2);
  };
  const auto leaf = [](const Shape& shape) { return ones(shape).set_requires_grad(); };
  sweep_op([&] { return conv2d(leaf({1, 2, 5, 5}), leaf({3, 2, 3, 3})); });
  sweep_op([&] { return conv1d(leaf({1, 2, 5}), leaf({3, 2, 3})); });
  sweep_op([&] { return conv_transpose2d(leaf({1, 2, 4, 4}), leaf({2, 3, 3, 3})); });
  sweep_op([&] { return conv3d(leaf({1, 2, 3, 4, 4}), leaf({3, 2, 2, 2, 2})); });
  sweep_op([&] { return conv_transpose3d(leaf({1, 2, 3, 2, 2}), leaf({2, 3, 2, 2, 2})); });
  sweep_op([&] { return unfold(leaf({1, 2, 5, 5}), 3, {.padding = 1}); });
  sweep_op([&] { return sort(leaf({3, 40}), 0).values; });
  sweep_op([&] { return topk(leaf({3, 40}), 7, 1, {.sorted = false}).values; });
  sweep_op([&] { return bincount(arange(9)); });
  sweep_op([&] { return cumprod(leaf({3, 40}), 1); });
  sweep_op([&] { return cummax(leaf({3, 40}), 0).values; });
  sweep_op([&] { return median(leaf({3, 40}), 1).values; });
  sweep_op([&] { return quantile(leaf({3, 40}), 0.3); });
  sweep_op([&] { return unique(arange(9)).inverse; });
}

/// A second batch for a metric.
class UpdateOfMetric : public Work {
 public:
  explicit UpdateOfMetric(std::unique_ptr<metrics::Metric> metric) : metric_(std::move(metric)) {
    update(1);
  }
  void run() override { update(2); }
  std::string kept() override {
    std::string all;
    for (const metrics::Value& v : metric_->values())
      all += v.name + " " + std::to_string(v.value) + " ";
    return all;
  }
  std::string made() override { return kept(); }

 private:
  void update(std::uint64_t seed) {
    Generator g(seed);
    const Tensor output = randn({9, 3}, {.generator = &g});
    const bool numbers = dynamic_cast<metrics::R2*>(metric_.get()) != nullptr;
    metric_->update(output, numbers ? output * 1.25 : argmax(output * output));
  }

  std::unique_ptr<metrics::Metric> metric_;
};

TEST_CASE("alloc_sweep: a metric whose update fails stays as it was", "[host]") {
  const Threads one(1);
  const auto sweep_metric = [](const std::function<std::unique_ptr<metrics::Metric>()>& make) {
    const MakeWork work = [=] { return std::make_unique<UpdateOfMetric>(make()); };
    CHECK(sweep(work, Fails::heap, 3) > 5);
    CHECK(sweep(work, Fails::heap_for_good, 5) > 5);
    CHECK(sweep(work, Fails::blocks) > 5);
  };
  using namespace metrics;
  sweep_metric([] { return std::make_unique<Accuracy>(AccuracyOptions{.top_k = 2}); });
  sweep_metric(
      [] { return std::make_unique<PrecisionRecallF1>(PrecisionRecallF1Options{.classes = 3}); });
  sweep_metric([] { return std::make_unique<Auroc>(AurocOptions{.classes = 3}); });
  sweep_metric([] { return std::make_unique<Perplexity>(); });
  sweep_metric([] { return std::make_unique<R2>(); });
}

TEST_CASE("alloc_sweep: attention and rotary positions, forward and back", "[host]") {
  const auto sweep_op = [](int least, const std::function<Made()>& op) {
    const auto call = call_of([op](Model&) { return op(); });
    {
      const Threads one(1);
      CHECK(sweep(call, Fails::heap) > least);
      CHECK(sweep(call, Fails::heap_for_good, 4) >= least / 4);
      CHECK(sweep(call, Fails::blocks) > least);
    }
    const Threads two(2);
    CHECK(sweep(call, Fails::heap, 3) >= least / 3);
    CHECK(sweep(call, Fails::blocks, 3) >= least / 3);
  };
  const auto leaf = [](const Shape& shape, DType dtype, std::uint64_t seed) {
    Generator g(seed);
    return randn(shape, {.generator = &g}).to(dtype).detach().set_requires_grad();
  };
  sweep_op(3, [&] {
    const Tensor x = leaf({1, 2, 9, 8}, f32, 1);
    const Tensor y = attention(x, x, x, {.causal = true});
    mul(y, y).sum().backward();
    return Made{.tensor = y, .gradients = {x.grad()}};
  });
  for (const DType dtype : {f64, f32, bf16}) {
    CAPTURE(to_string(dtype));
    // Several blocks of queries and keys, grouped heads, and every option.
    sweep_op(10, [&] {
      Generator masks(5);
      const Tensor q = leaf({2, 70, 4, 6}, dtype, 1), k = leaf({2, 2, 135, 6}, dtype, 2);
      const Tensor v = leaf({2, 2, 135, 5}, dtype, 3), bias = leaf({4, 1, 135}, dtype, 4);
      const Tensor y = attention(transpose(q, 1, 2), k, v,
                                 {.causal = true,
                                  .window = 90,
                                  .lengths = tensor<std::int64_t>({135, 80}, {2}),
                                  .mask = ne(arange(135), full({}, 3, i64)),
                                  .bias = bias,
                                  .dropout = 0.25,
                                  .generator = &masks});
      y.sum().backward();
      return Made{.tensor = y, .gradients = {q.grad(), k.grad(), v.grad(), bias.grad()}};
    });
    sweep_op(3, [&] {
      const Tensor x = leaf({2, 4, 3, 6}, dtype, 1);
      const Tensor positions = tensor<std::int64_t>({3, 1, 4, 0, 5, 9}, {2, 3});
      const Tensor y = rope(rope(x, {.positions = positions}), {.interleaved = true});
      mul(y, y).sum().backward();
      return Made{.tensor = y, .gradients = {x.grad()}};
    });
    sweep_op(3, [&] {
      const Tensor gate = leaf({3, 7}, dtype, 1), up = leaf({3, 7}, dtype, 2);
      const Tensor y = swiglu(gate, up);
      y.sum().backward();
      return Made{.tensor = y, .gradients = {gate.grad(), up.grad()}};
    });
    sweep_op(3, [&] {
      const Tensor x = leaf({3, 7}, dtype, 1), low = leaf({7}, dtype, 2),
                   b = leaf({3, 1}, dtype, 3);
      const Tensor y = clamp(addcmul(lerp(x, b, 0.3), x, b), low, Tensor());
      masked_fill(y, isnan(y), 0).sum().backward();
      return Made{.tensor = y, .gradients = {x.grad(), low.grad(), b.grad()}};
    });
  }
}

/// backward() through one operation of leaves without gradients.
class BackwardOfLeaves : public Work {
 public:
  using Op = std::function<Tensor(const std::array<Tensor, 3>&)>;
  BackwardOfLeaves(const std::array<Shape, 3>& shapes, DType dtype, Op op) : op_(std::move(op)) {
    Generator g(3);
    for (std::size_t i = 0; i < shapes.size(); ++i)
      leaves_[i] = randn(shapes[i], {.generator = &g}).to(dtype).detach().set_requires_grad();
  }
  void run() override { op_(leaves_).sum().backward(); }
  std::string kept() override {
    std::string all;
    for (const Tensor& t : leaves_)
      all += bytes_of(t) + (t.grad().defined() ? bytes_of(t.grad()) : "none");
    return all;
  }
  std::string made() override { return kept(); }

 private:
  Op op_;
  std::array<Tensor, 3> leaves_;
};

TEST_CASE("alloc_sweep: leaves have no gradient after the backward() of an operation that fails",
          "[host]") {
  const auto sweep_op = [](const std::array<Shape, 3>& shapes, const BackwardOfLeaves::Op& op) {
    for (const DType dtype : {f32, bf16}) {
      CAPTURE(to_string(dtype));
      const MakeWork work = [=] { return std::make_unique<BackwardOfLeaves>(shapes, dtype, op); };
      {
        const Threads one(1);
        CHECK(sweep(work, Fails::heap, 2) > 3);
        CHECK(sweep(work, Fails::blocks) > 3);
      }
      const Threads two(2);
      CHECK(sweep(work, Fails::blocks, 2) > 1);
    }
  };
  sweep_op({Shape{1, 4, 70, 6}, Shape{1, 2, 135, 6}, Shape{1, 2, 135, 5}},
           [](auto& t) { return attention(t[0], t[1], t[2], {.causal = true}); });
  sweep_op({Shape{1, 2, 70, 6}, Shape{1}, Shape{1}},
           [](auto& t) { return attention(t[0], t[0], t[0], {.window = 3}); });
  sweep_op({Shape{2, 6, 8}, Shape{1}, Shape{1}}, [](auto& t) { return rope(t[0]); });
  sweep_op({Shape{6, 8}, Shape{1, 8}, Shape{1}}, [](auto& t) { return swiglu(t[0], t[1]); });
  sweep_op({Shape{6, 8}, Shape{1, 8}, Shape{6, 1}}, [](auto& t) { return lerp(t[0], t[1], t[2]); });
  sweep_op({Shape{40, 8}, Shape{30, 8}, Shape{30}}, [](auto& t) {
    return linear_cross_entropy(t[0], t[1], zeros({40}, i64), {},
                                {.bias = t[2], .chunk_rows = 13, .chunk_classes = 9})
        .sum;
  });
}

TEST_CASE("alloc_sweep: a module with two inputs, in its first call", "[host]") {
  const Threads one(1);
  const auto call = call_of([](Model&) {
    manual_seed(2);
    Two two;
    return Made{.tensor = two(ones({1, 3}), ones({1, 3}))};
  });
  CHECK(sweep(call, Fails::heap) > 5);
}

TEST_CASE("alloc_sweep: an optimizer that is made, its averages and reports", "[host]") {
  const Threads one(1);
  const auto make = call_of(
      [](Model& m) {
        optim::AdamW opt(m.named_parameters(), {}, {.ema = 0.9});
        const optim::AveragedWeights guard(opt);
        const bool reported = !to_string(opt.last_report()).empty();
        return Made{reported ? describe(opt) : std::string()};
      },
      [](Model& m) { m.to(f16); });
  CHECK(sweep(make, Fails::heap, 2) > 20);
  CHECK(sweep(make, Fails::heap_for_good, 3) > 20);
  CHECK(sweep(make, Fails::blocks) > 10);
}

TEST_CASE("alloc_sweep: a heap that stays empty gives OutOfMemory, with a text", "[host]") {
  const Threads one(1);
  Model model;
  const Tensor x = ones({100, 3});
  model(x);
  const std::function<void()> calls[] = {
      [&] { x.to_vector<double>(); },
      [&] { model.parameters(); },
      [&] { model.eval(); },
      [&] { const Tensor block = empty({1 << 12}); },  // larger ones are mapped
      [] { throw OutOfMemory("a message that is too long to be kept without the heap", 7); },
  };
  for (const auto& call : calls) {
    release_cached_memory();
    char text[256] = "no error";
    std::size_t bytes = 0;
    {
      const FailingHeap empty_heap(0, {.sticky = true});
      try {
        call();
      } catch (const OutOfMemory& e) {
        std::strncpy(text, e.what(), sizeof text - 1);
        bytes = e.requested_bytes();
        e.op();
        e.hint();
        const OutOfMemory copy = e;  // NOLINT: needs no memory either
      } catch (const std::exception& e) {
        std::strncpy(text, typeid(e).name(), sizeof text - 1);
      }
    }
    CHECK(std::string(text) ==
          "[allocate] no memory left, not even for the text of this error; hint: use a smaller "
          "batch, or release tensors that are not needed");
    if (&call == &calls[4]) CHECK(bytes == 7);
  }
  // With a heap that has memory again, the text says more.
  CHECK(std::string(OutOfMemory("message", 1).what()).find("[allocate] message") == 0);
}

}  // namespace

TEST_CASE("alloc_sweep: a profile without memory loses spans, and nothing else", "[host]") {
  const Threads one(1);
  const Tensor x = randn({5, 4});
  const auto work = [&x] { return bytes_of(relu(matmul(x, transpose(x, 0, 1)) + 1.0)); };
  const std::string expected = work();
  std::uint64_t lost = 0;
  int thrown = 0;
  for (std::int64_t k = 0; k < 60; ++k) {
    Profile profile;
    std::string made = expected;
    try {
      const Range range("range");  // keeps its name
      const FailingHeap failing(k);
      made = work();
    } catch (const OutOfMemory&) {
      ++thrown;
    } catch (const std::bad_alloc&) {  // of the test's own text
    }
    CHECK(made == expected);
    profile.stop();
    lost += profile.log().lost;
    CHECK(profile.log().totals.size() > 0);
  }
  CHECK(lost > 0);
  CHECK(thrown > 0);
}

}  // namespace firn::testing

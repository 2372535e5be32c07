// Every language model: all parameters get a gradient, losses of parts, masks and
// positions, dtypes, recomputation.
#include <cmath>
#include <set>
#include <string>

#include "firn/memory/plan.h"
#include "models.h"
#include "support/catch.h"
#include "support/values.h"

using namespace firn;
using namespace firn::test;
using namespace firn::testing;

namespace {

template <class Model>
Model made_model(const lm::ModelOptions& options = {}) {
  manual_seed(3);
  return Model(small_config<Model>(), options);
}

/// Gradients of the mean loss by name, in f64 if `model` is.
template <class Model>
std::vector<NamedTensor> gradients_of(Model& model, const Tensor& ids) {
  model.zero_grad();
  model.loss(ids, lm::next_ids(ids)).backward();
  std::vector<NamedTensor> out;
  for (const auto& [name, p] : model.named_parameters()) {
    INFO(name);
    REQUIRE(p.grad().defined());
    out.push_back({name, p.grad().detach().clone()});
  }
  return out;
}

}  // namespace

#define EACH_MODEL(name, tags) TEMPLATE_TEST_CASE(name, tags, lm::Llama, lm::Gpt2)

EACH_MODEL("language models: every parameter gets a gradient that is not zero", "") {
  // Each row of a table gets one only if its token occurs.
  for (const DType dtype : {f64, f32, f16, bf16}) {
    TestType model = made_model<TestType>({.dtype = dtype});
    for (const auto& [name, grad] : gradients_of(model, random_ids(2, 12))) {
      INFO(name << " " << to_string(dtype));
      const std::vector<double> values = values_of(grad);
      CHECK(largest(values) > 0);
      bool finite = true;
      for (const double v : values) finite = finite && std::isfinite(v);
      CHECK(finite);
    }
  }
}

EACH_MODEL("[S38] language models: a plan of a step has its peak, and changes nothing", "") {
  const Tensor ids = random_ids(2, 12);
  const auto train = [&](bool planned) {
    TestType model = made_model<TestType>({.dtype = f16});
    optim::AdamW opt(model.parameters());
    const auto step = [&] {
      opt.backward(model.loss(ids, lm::next_ids(ids)));
      opt.step();
    };
    for (int i = 0; i < 2; ++i) {
      const std::size_t peak = planned ? plan_memory(step).peak : 0;
      reset_peak_memory();
      step();
      if (planned) CHECK(memory_stats().total.peak == peak);
    }
    return model.loss(ids, lm::next_ids(ids)).item();
  };
  CHECK(train(true) == train(false));
}

EACH_MODEL("language models: gradients are those of differences", "") {
  TestType model = made_model<TestType>({.dtype = f64});
  const Tensor ids = random_ids(2, 7);
  const auto gradients = gradients_of(model, ids);
  const NoGrad guard;
  const auto loss = [&] { return model.loss(ids, lm::next_ids(ids)).item(); };
  const auto parameters = model.named_parameters();
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    INFO(parameters[i].name);
    const Tensor& p = parameters[i].tensor;
    const Tensor direction = randn(p.shape(), f64), before = p.clone();
    const double h = 2e-6;
    copy_(p, before + direction * h);
    const double above = loss();
    copy_(p, before - direction * h);
    const double below = loss();
    copy_(p, before);
    const double want = (gradients[i].tensor * direction).sum().item();
    CHECK((above - below) / (2 * h) == Approx(want).epsilon(1e-6).margin(1e-8));
  }
}

EACH_MODEL("language models: loss() is cross_entropy() of the logits, with weights and targets",
           "") {
  TestType model = made_model<TestType>({.dtype = f64});
  const Tensor ids = random_ids(3, 9);
  const NoGrad guard;
  const Tensor logits = model(ids), targets = lm::next_ids(ids);
  CHECK(logits.shape() == Shape{3, 9, 23});
  CHECK(targets.slice(1, 0, 8).to_vector<std::int64_t>() ==
        ids.slice(1, 1, 9).to_vector<std::int64_t>());
  const Loss loss = model.loss(ids, targets);
  CHECK(loss.weight.item() == 3 * 8);
  CHECK(loss.item() == Approx(cross_entropy(logits, targets).item()).epsilon(1e-12));
  const CrossEntropyOptions options{.row_weights = rand({3, 9}, f64), .z_loss = 0.1};
  CHECK(model.loss(ids, targets, options).item() ==
        Approx(cross_entropy(logits, targets, options).item()).epsilon(1e-12));
}

EACH_MODEL("language models: the gradient of a batch is that of its micro-batches", "") {
  TestType whole = made_model<TestType>({.dtype = f64}), parts = nn::clone(whole);
  const Tensor ids = random_ids(4, 9);
  Tensor targets = lm::next_ids(ids);
  targets.slice(0, 0, 1).slice(1, 2, 9).fill_(-100.0);  // rows of different weight
  optim::SGD one(whole.parameters(), {.lr = 1.0}),
      three(parts.parameters(), {.lr = 1.0}, {.accumulate = 3});
  one.backward(whole.loss(ids, targets));
  one.step();
  for (const auto& [from, to] : {std::pair{0, 1}, std::pair{1, 3}, std::pair{3, 4}}) {
    three.backward(parts.loss(ids.slice(0, from, to), targets.slice(0, from, to)));
    three.step();
  }
  const auto a = whole.named_parameters(), b = parts.named_parameters();
  for (std::size_t i = 0; i < a.size(); ++i)
    expect_close(a[i].name, values_of(b[i].tensor), values_of(a[i].tensor), 1e-12);
}

EACH_MODEL("language models: padding changes no token of a row, in front and at the end", "") {
  TestType model = made_model<TestType>({.dtype = f64});
  const Tensor row = random_ids(1, 6), padding = zeros({1, 4}, i64);
  const NoGrad guard;
  const std::vector<double> want = values_of(model(row));
  const Tensor behind = model(cat({row, padding}, 1));
  expect_close("behind", values_of(behind.slice(1, 0, 6)), want, 1e-12);
  const Tensor positions = maximum(arange(10) - 4, 0.0).to(i64);
  const Tensor mask = ge(arange(10), 4).reshape({1, 1, 1, 10});
  const Tensor in_front =
      model(cat({padding, row}, 1), lm::Sequences{.positions = positions, .seen = {.mask = mask}});
  expect_close("in front", values_of(in_front.slice(1, 4, 10)), want, 1e-12);
}

EACH_MODEL("language models: documents packed into a row see themselves alone", "") {
  TestType model = made_model<TestType>({.dtype = f64});
  const Tensor a = random_ids(1, 5, 23, 1), b = random_ids(1, 4, 23, 2);
  const NoGrad guard;
  const Tensor document = cat({zeros({5}, i64), ones({4}, i64)}, 0);
  const Tensor mask = eq(document.unsqueeze(0), document.unsqueeze(1)).reshape({1, 1, 9, 9});
  const Tensor positions = cat({arange(5), arange(4)}, 0);
  const Tensor both =
      model(cat({a, b}, 1), lm::Sequences{.positions = positions, .seen = {.mask = mask}});
  expect_close("first", values_of(both.slice(1, 0, 5)), values_of(model(a)), 1e-12);
  expect_close("second", values_of(both.slice(1, 5, 9)), values_of(model(b)), 1e-12);
}

EACH_MODEL("language models: recomputed blocks give the same bits", "") {
  TestType model = made_model<TestType>();
  const Tensor ids = random_ids(2, 11);
  const auto want = gradients_of(model, ids);
  for (const nn::BlockCheckpoints& policy :
       {nn::BlockCheckpoints{}, nn::BlockCheckpoints{.every = 2},
        nn::BlockCheckpoints{.keep = Keep::products}}) {
    CHECK(nn::checkpoint_blocks(model, policy) == (policy.every == 2 ? 2 : 3));
    const auto got = gradients_of(model, ids);
    for (std::size_t i = 0; i < want.size(); ++i)
      expect_same(want[i].name, values_of(got[i].tensor), values_of(want[i].tensor));
    nn::checkpoint_nothing(model);
  }
}

EACH_MODEL("language models: 16 bits train, as weights and under autocast", "") {
  const Tensor ids = random_ids(2, 12);
  TestType exact = made_model<TestType>();
  const double want = exact.loss(ids, lm::next_ids(ids)).item();
  for (const DType dtype : {f16, bf16}) {
    INFO(to_string(dtype));
    TestType model = made_model<TestType>({.dtype = dtype});
    optim::AdamW opt(model.parameters(), {.lr = 1e-2});
    double last = 0;
    for (int step = 0; step < 30; ++step) {
      const Loss loss = model.loss(ids, lm::next_ids(ids));
      if (step == 0) CHECK(loss.item() == Approx(want).epsilon(0.05));
      opt.backward(loss);
      opt.step();
      last = loss.item();
    }
    CHECK(last < 0.7 * want);
    TestType wide = made_model<TestType>();
    wide.set_autocast(dtype);
    const double lowered = wide.loss(ids, lm::next_ids(ids)).item();
    CHECK(lowered == Approx(want).epsilon(0.05));
    CHECK(lowered != want);  // loss() runs in the model's own mode
  }
}

EACH_MODEL("language models: names, a summary, copies, tied tables", "") {
  TestType model = made_model<TestType>();
  const std::string text = model.summary(random_ids(1, 4));
  CHECK(text.find("[1, 4, 23]") != std::string::npos);
  TestType copy = nn::clone(model);
  const NoGrad guard;
  expect_same("copy", values_of(copy(random_ids(1, 4))), values_of(model(random_ids(1, 4))));
  auto config = small_config<TestType>();
  for (const bool tied : {false, true}) {
    config.tie_word_embeddings = tied;
    const TestType other(config);
    std::set<std::string> names;
    for (const auto& [name, p] : other.named_parameters()) names.insert(name);
    CHECK(names.contains("lm_head.weight") == !tied);
  }
}

EACH_MODEL("language models: ids that do not fit are refused", "") {
  TestType model = made_model<TestType>();
  CHECK(error_of([&] { model(random_ids(2, 3)[0]); }).find("[n, t]") != std::string::npos);
  CHECK(error_of([&] { model(ones({2, 3})); }).find("i64") != std::string::npos);
  CHECK(error_of([&] { model(full({1, 2}, 23, i64)); }).find("23") != std::string::npos);
  CHECK(model(zeros({2, 0}, i64)).shape() == Shape{2, 0, 23});
}

TEST_CASE("Gpt2: a text longer than n_positions is refused") {
  lm::Gpt2 model(small_gpt2());
  CHECK(error_of([&] { model(random_ids(1, 13)); }).find("n_positions = 12") != std::string::npos);
}

TEST_CASE("Gpt2: scores may be divided by the number of the block, or stay") {
  const Tensor ids = random_ids(1, 8);
  const auto logits = [&](bool scaled, bool by_block) {
    lm::Gpt2Config c = small_config<lm::Gpt2>();
    c.scale_attn_weights = scaled;
    c.scale_attn_by_inverse_layer_idx = by_block;
    manual_seed(3);
    lm::Gpt2 model(c, {.dtype = f64});
    const NoGrad guard;
    if (!scaled) {  // the same scores by smaller queries
      for (auto& block : model.transformer.h)
        for (const Tensor& t : {Tensor(block.attn.c_attn.weight), Tensor(block.attn.c_attn.bias)}) {
          const Tensor queries = t.slice(0, 0, 16);
          copy_(queries, queries / 2.0);
        }
    }
    if (by_block)
      for (std::size_t i = 0; i < model.transformer.h.size(); ++i)
        for (const Tensor& t : {Tensor(model.transformer.h[i].attn.c_attn.weight)}) {
          const Tensor queries = t.slice(0, 0, 16);
          copy_(queries, queries * double(i + 1));
        }
    return values_of(model(ids));
  };
  const auto want = logits(true, false);
  expect_close("not scaled", logits(false, false), want, 1e-12);
  expect_close("by block", logits(true, true), want, 1e-12);
}

// Cycles made by a function, and optimizers that step together: what they refuse.
#include "optim/problem.h"

namespace firn::testing {
namespace {

using optim::LossScale;

bool says(const std::string& text, const char* part) {
  UNSCOPED_INFO(text);
  return text.find(part) != std::string::npos;
}

Loss loss_of(const Tensor& w, double gradient, double weight) {
  return {objective(w, {gradient}), make({weight}, {}, compute_dtype(w.dtype()))};
}

TEST_CASE("[S02] a batch is cut into micro-batches, the last one shorter") {
  Tensor w = parameter({0}, {1}, f64);
  optim::SGD opt({w}, {.lr = 1}, {.accumulate = 7});  // a whole cycle, whatever this says
  std::vector<std::int64_t> cuts;
  const optim::StepReport report = opt.run_batch(10, 4, [&](std::int64_t first, std::int64_t last) {
    cuts.insert(cuts.end(), {first, last});
    return loss_of(w, double(last - first), double(last - first));
  });
  CHECK(cuts == std::vector<std::int64_t>{0, 4, 4, 8, 8, 10});
  CHECK(report.applied());
  CHECK(report.micro_steps() == 3);
  CHECK(report.weight() == 10);
  CHECK(w.item() == -1);
}

TEST_CASE("a whole cycle is refused in the middle of one, and what its function throws drops it") {
  Tensor w = parameter({0}, {1}, f64);
  optim::SGD opt({w}, {.lr = 1});
  const auto fine = [&](std::int64_t) { return loss_of(w, 1, 1); };
  opt.backward(fine(0));
  CHECK(says(error_of([&] { opt.run_cycle(2, fine); }), "a cycle is under way"));
  REQUIRE(opt.step());
  CHECK(says(error_of([&] {
               opt.run_cycle(2, [&](std::int64_t i) -> Loss {
                 if (i == 1) throw Error("loader", "no more data");
                 return fine(i);
               });
             }),
             "no more data"));
  CHECK(gradients_are_zero(opt));
  CHECK(opt.run_cycle(2, fine).applied_steps() == 2);
  CHECK(w.item() == -2);
  CHECK(says(error_of([&] { opt.run_cycle(0, fine); }), "0 micro-steps"));
}

TEST_CASE("[S21] an error in a cycle that may be retried puts running statistics back", "[host]") {
  nn::BatchNorm1d norm(2);  // per micro-batch
  optim::SGD opt(norm.parameters(), {},
                 {.loss_scale = LossScale::dynamic({.on_overflow = optim::OverflowPolicy::retry})});
  CHECK_THROWS_AS(opt.run_cycle(2,
                                [&](std::int64_t i) -> Loss {
                                  if (i == 1) throw OutOfMemory("no memory", 1);
                                  const Tensor y = norm(tensor({1.f, 2.f, 3.f, 4.f}, {2, 2}));
                                  return {sum(y), ones({})};
                                }),
                  OutOfMemory);
  CHECK(norm.running_mean.to_vector<float>() == std::vector<float>{0, 0});
  CHECK(norm.running_var.to_vector<float>() == std::vector<float>{1, 1});
}

TEST_CASE("[S15] retry ends: at the smallest scale, and for a loss that is not finite") {
  Tensor w = parameter({1}, {1});
  optim::SGD opt({w}, {},
                 {.loss_scale = LossScale::dynamic(
                      {.init = 16, .on_overflow = optim::OverflowPolicy::retry})});
  int tries = 0;
  const optim::StepReport overflow = opt.run_cycle(1, [&](std::int64_t) {
    ++tries;
    Tensor loss = objective(w, {1});
    add_hook(loss, [](const Tensor& g) { return g * double(HUGE_VALF); });
    return Loss{loss, ones({})};
  });
  CHECK(overflow.non_finite() == optim::NonFinite::gradient);
  CHECK(tries == 5);  // at 16, 8, 4, 2 and 1
  CHECK(opt.loss_scale() == 1);
  tries = 0;
  const optim::StepReport loss = opt.run_cycle(1, [&](std::int64_t) {
    ++tries;
    return loss_of(w, HUGE_VAL, 1);
  });
  CHECK(loss.non_finite() == optim::NonFinite::loss);
  CHECK(tries == 1);
}

TEST_CASE("[S15][S45] calls that cannot compute a cycle again refuse the policy of retry") {
  const LossScale retry = LossScale::dynamic({.on_overflow = optim::OverflowPolicy::retry});
  Tensor w = parameter({1}, {1});
  optim::SGD opt({w}, {.lr = 1}, {.loss_scale = retry});
  const std::vector<std::function<void()>> calls{[&] { opt.backward(loss_of(w, 1, 1)); },
                                                 [&] { opt.backward(objective(w, {1}), 1); },
                                                 [&] { opt.no_samples(); },
                                                 [&] {
                                                   opt.step_two_pass(
                                                       1, [&](std::int64_t) { return w * 1.0; },
                                                       [](const Tensor& all) {
                                                         return Loss{all.sum(), ones({})};
                                                       });
                                                 }};
  for (const auto& call : calls) {
    const std::string error = error_of(call);
    CHECK(says(error, "OverflowPolicy::retry"));
    CHECK(says(error, "run_cycle()"));
  }
  CHECK(opt.run_cycle(1, [&](std::int64_t) { return loss_of(w, 1, 1); }).applied());
  const optim::LossScaler scaler(retry);
  CHECK(says(error_of([&] { optim::SGD({w}, {.lr = 1}, {.scaler = scaler}); }), "step_all()"));
}

TEST_CASE("[S16] optimizers that share a scale step together, at the same place of their cycles") {
  Tensor a = parameter({1}, {1}), b = parameter({1}, {1}), c = parameter({1}, {1});
  const optim::LossScaler scaler(LossScale::dynamic({.init = 64}));
  optim::SGD first({a}, {.lr = 1}, {.accumulate = 2, .scaler = scaler});
  optim::SGD second({b}, {.lr = 1}, {.accumulate = 2, .scaler = scaler});
  optim::SGD stranger({c}, {}, {.loss_scale = LossScale::dynamic()});
  CHECK(says(error_of([&] { first.step(); }), "step_all()"));
  CHECK(says(error_of([&] { optim::step_all({&first, &stranger}); }), "does not share"));
  CHECK(says(error_of([&] { optim::step_all({&first, &first}); }), "0 and 1 are the same"));
  CHECK(says(error_of([&] {
               optim::step_all({&stranger, &stranger});
             }),
             "it is given twice; hint: give each of them once"));
  CHECK(says(error_of([&] {
               optim::step_all({&first, nullptr});
             }),
             "optimizer 1 is a null pointer; hint: "));
  CHECK(says(error_of([&] { optim::step_all({}); }), "no optimizer; hint: "));
  CHECK(says(
      error_of([&] { optim::SGD({c}, {}, {.loss_scale = LossScale::none(), .scaler = scaler}); }),
      "both loss_scale and scaler"));

  first.backward(objective(a, {1}));
  second.backward(objective(b, {2}));
  CHECK(optim::step_all({&first, &second})[1].accumulating());
  first.backward(objective(a, {1}));
  second.backward(objective(b, {2}));
  const auto reports = optim::step_all({&first, &second});
  CHECK(reports[0].applied());
  CHECK(reports[1].applied());
  CHECK(reports[0].loss_scale() == 64);
  CHECK(a.item() == 0);
  CHECK(b.item() == -1);
}

TEST_CASE("[S04][S16] optimizers that share a scale end a short cycle together") {
  Tensor a = parameter({1}, {1}), b = parameter({1}, {1});
  const optim::LossScaler scaler(LossScale::dynamic({.init = 64, .growth_interval = 1}));
  optim::SGD first({a}, {.lr = 1}, {.accumulate = 3, .scaler = scaler});
  optim::SGD second({b}, {.lr = 1}, {.accumulate = 3, .scaler = scaler});
  CHECK(optim::flush_all({&first, &second})[0].accumulating());  // there is nothing
  const auto micro_step = [&] {
    first.backward(objective(a, {1}), 2);
    second.backward(objective(b, {1}), 4);
  };
  micro_step();
  CHECK(says(error_of([&] { first.flush(); }), "flush_all()"));
  CHECK(optim::flush_all({&first, &second}, optim::Partial::drop)[0].micro_steps() == 0);
  micro_step();
  CHECK(optim::flush_all({&first, &second}, optim::Partial::carry)[1].micro_steps() == 1);
  micro_step();
  const auto reports = optim::flush_all({&first, &second});
  CHECK(reports[0].weight() == 4);
  CHECK(reports[1].weight() == 8);
  CHECK(a.item() == 0.5);
  CHECK(b.item() == 0.75);
  CHECK(scaler.scale() == 128);
}

TEST_CASE("[S16] an overflow in one of several changes no bit of any") {
  Tensor a = parameter({1}, {1}), b = parameter({1}, {1});
  const optim::LossScaler scaler(LossScale::dynamic({.init = 64}));
  optim::AdamW first({a}, {}, {.scaler = scaler, .ema = 0.5});
  optim::AdamW second({b}, {}, {.scaler = scaler});
  const Bits before = bits_of_training(first);
  first.backward(objective(a, {1}));
  second.backward(objective(b, {HUGE_VAL}));
  const auto reports = optim::step_all({&first, &second});
  CHECK(reports[0].status() == optim::StepStatus::skipped_partner);
  CHECK(to_string(reports[0]) == "skipped: another optimizer's step was skipped");
  CHECK(reports[0].skipped_steps() == 1);
  CHECK(bits_of_training(first) == before);
  CHECK(gradients_are_zero(first));
}

}  // namespace
}  // namespace firn::testing

// Metrics of chosen classes: accuracy, confusion matrix, precision, recall and F1.
#include "metrics/naive.h"
#include "support/catch.h"

namespace firn::testing {
namespace {

using metrics::Accuracy;
using metrics::Average;
using metrics::Confusion;
using metrics::PrecisionRecallF1;

TEST_CASE("metrics: the examples of scikit-learn's pages", "[metrics]") {
  // confusion_matrix([2, 0, 2, 2, 0, 1], [0, 0, 2, 2, 0, 2])
  const auto chosen = [](const std::vector<double>& classes, std::int64_t n) {
    return one_hot(make(classes, {static_cast<std::int64_t>(classes.size())}, i64), n);
  };
  Confusion confusion({.classes = 3});
  confusion.update(chosen({0, 0, 2, 2, 0, 2}, 3), make({2, 0, 2, 2, 0, 1}, {6}, i64));
  using Matrix = std::vector<std::vector<std::int64_t>>;
  CHECK(confusion.matrix() == Matrix{{2, 0, 0}, {0, 0, 1}, {1, 0, 2}});
  CHECK(figures_of(confusion) ==
        Figures{{"class_accuracy_0", 1}, {"class_accuracy_1", 0}, {"class_accuracy_2", 2.0 / 3}});

  // precision_recall_fscore_support of cat, dog, pig, cat, dog, pig
  const auto averaged = [&](Average average) {
    PrecisionRecallF1 metric({.classes = 3, .average = average});
    metric.update(chosen({0, 2, 1, 0, 0, 1}, 3), make({0, 1, 2, 0, 1, 2}, {6}, i64));
    return figures_of(metric);
  };
  const auto near = [](double v) { return Approx(v).epsilon(1e-14); };
  Figures f = averaged(Average::macro);
  CHECK(f["precision"] == near(2.0 / 9));
  CHECK(f["recall"] == near(1.0 / 3));
  CHECK(f["f1"] == near(0.8 / 3));
  CHECK(averaged(Average::weighted) == f);
  f = averaged(Average::micro);
  CHECK(f["precision"] == near(1.0 / 3));
  CHECK(f["recall"] == near(1.0 / 3));
  CHECK(f["f1"] == near(1.0 / 3));
  f = averaged(Average::none);
  CHECK(f.size() == 9);
  CHECK(f["precision_0"] == near(2.0 / 3));
  CHECK(f["recall_0"] == 1);
  CHECK(f["f1_0"] == near(0.8));
  CHECK(f["f1_2"] == 0);

  // top_k_accuracy_score(k=2)
  Accuracy top({.top_k = 2});
  top.update(make({.5, .2, .2, .3, .4, .2, .2, .4, .3, .7, .2, .1}, {4, 3}, f32),
             make({0, 1, 2, 2}, {4}, i64));
  CHECK(figures_of(top) == Figures{{"top2_accuracy", 0.75}});
}

void check_classes(const Samples& s, const Tensor& output, const Tensor& target,
                   std::optional<std::int64_t> ignore) {
  const std::int64_t classes = s.classes == 1 ? 2 : s.classes, ignored = ignore.value_or(-1000);
  Accuracy accuracy({.ignore_index = ignore});
  accuracy.update(output, target);
  CHECK(figures_of(accuracy)["accuracy"] == naive::accuracy(s, 1, ignored));
  for (std::int64_t k = 2; k <= s.classes; ++k) {
    Accuracy top({.top_k = k, .ignore_index = ignore});
    top.update(output, target);
    CHECK(top.values()[0].value == naive::accuracy(s, k, ignored));
  }
  Confusion confusion({.classes = classes, .ignore_index = ignore});
  confusion.update(output, target);
  const auto want = naive::confusion(s, ignored);
  CHECK(confusion.matrix() == want);
  PrecisionRecallF1 each({.classes = classes, .average = Average::none, .ignore_index = ignore});
  each.update(output, target);
  Figures f = figures_of(each);
  double sums[3] = {}, weighted[3] = {}, there = 0, samples = 0;
  const char* const names[] = {"precision", "recall", "f1"};
  for (std::size_t c = 0; c < want.size(); ++c) {
    const auto of = naive::of_class(want, c);
    double row = 0, column = 0;
    for (std::size_t o = 0; o < want.size(); ++o) {
      row += static_cast<double>(want[c][o]);
      column += static_cast<double>(want[o][c]);
    }
    samples += row;
    there += row + column > 0 ? 1 : 0;
    for (int i = 0; i < 3; ++i) {
      CHECK(f[names[i] + ("_" + std::to_string(c))] == Approx(of[i]).epsilon(1e-14));
      sums[i] += of[i];
      weighted[i] += row * of[i];
    }
  }
  for (const Average average : {Average::macro, Average::weighted}) {
    PrecisionRecallF1 metric({.classes = classes, .average = average, .ignore_index = ignore});
    metric.update(output, target);
    f = figures_of(metric);
    for (int i = 0; i < 3; ++i) {
      const double mean = average == Average::macro ? sums[i] / there : weighted[i] / samples;
      CHECK(f[names[i]] == Approx(mean).epsilon(1e-13));
    }
  }
}

TEST_CASE("metrics of classes equal plain loops, in every dtype and layout", "[metrics]") {
  for (const std::int64_t classes : {1, 2, 5, 40}) {
    for (const bool ignoring : {false, true}) {
      const std::optional<std::int64_t> ignore =
          ignoring ? std::optional<std::int64_t>(-100) : std::nullopt;
      const Samples s = drawn(150, classes, 7 + static_cast<std::uint64_t>(classes), 0.25,
                              ignoring ? -100 : -1000);
      for (const DType t : {f16, bf16, f32, f64}) {
        INFO(classes << " classes, " << to_string(t));
        check_classes(s, s.output(0, s.n, t), s.target_of(0, s.n), ignore);
      }
      for (const Layout layout : {Layout::transposed, Layout::stepped, Layout::offset}) {
        check_classes(s, s.output(0, s.n, f32, layout), s.target_of(0, s.n, i32), ignore);
      }
      check_classes(s, s.output(0, s.n, f16), s.target_of(0, s.n, f32), ignore);
    }
  }
}

TEST_CASE("metrics: classes on axis 1 of images, and two classes of any shape", "[metrics]") {
  const Samples s = drawn(6 * 20, 3, 5);
  const Tensor output = permute(reshape(s.output(0, s.n), {6, 4, 5, 3}), {0, 3, 1, 2});
  check_classes(s, output, reshape(s.target_of(0, s.n), {6, 4, 5}), std::nullopt);
  check_classes(s, channels_last(output), reshape(s.target_of(0, s.n), {6, 4, 5}), std::nullopt);
  const Samples two = drawn(120, 1, 6);
  check_classes(two, reshape(two.output(0, 120), {6, 20}), reshape(two.target_of(0, 120), {6, 20}),
                std::nullopt);
  check_classes(two, two.output(0, 120), two.target_of(0, 120, boolean), std::nullopt);
}

TEST_CASE("metrics without samples are NaN, and absent classes are 0", "[metrics]") {
  const Tensor none = zeros({0, 3}), no_class = zeros({0}, i64);
  Accuracy accuracy;
  PrecisionRecallF1 averaged({.classes = 3}), each({.classes = 3, .average = Average::none});
  Confusion confusion({.classes = 3});
  for (metrics::Metric* metric :
       std::initializer_list<metrics::Metric*>{&accuracy, &averaged, &each, &confusion}) {
    for (int round = 0; round < 3; ++round) {
      for (const auto& v : metric->values()) CHECK(std::isnan(v.value));
      if (round == 0) metric->update(none, no_class);
      if (round == 1) metric->update(zeros({2, 3}), make({1, 1}, {2}, i64)), metric->reset();
    }
  }
  CHECK(confusion.matrix()[2] == std::vector<std::int64_t>{0, 0, 0});
  // Class 2 is neither target nor choice: no part of the mean, and 0 by itself.
  const Tensor output = make({1, 0, 0, 0, 1, 0}, {2, 3}, f32), target = make({0, 1}, {2}, i64);
  averaged.update(output, target);
  CHECK(figures_of(averaged) == Figures{{"precision", 1}, {"recall", 1}, {"f1", 1}});
  each.update(output, target);
  CHECK(figures_of(each)["f1_2"] == 0);
  // All samples are ignored.
  Accuracy ignoring({.ignore_index = 1});
  ignoring.update(output, make({1, 1}, {2}, i64));
  CHECK(std::isnan(ignoring.values()[0].value));
}

TEST_CASE("metrics: what is refused changes nothing", "[metrics]") {
  const Samples s = drawn(30, 4, 9);
  Accuracy accuracy({.top_k = 2});
  Confusion confusion({.classes = 4});
  PrecisionRecallF1 prf({.classes = 4});
  for (metrics::Metric* metric :
       std::initializer_list<metrics::Metric*>{&accuracy, &confusion, &prf}) {
    metric->update(s.output(0, 30), s.target_of(0, 30));
    const Figures before = figures_of(*metric);
    const auto refused = [&](const Tensor& output, const Tensor& target, const char* words) {
      const std::string message = error_of([&] { metric->update(output, target); });
      INFO(message);
      CHECK(message.find(words) != std::string::npos);
      CHECK(figures_of(*metric) == before);
    };
    const Tensor x = s.output(0, 30), y = s.target_of(0, 30);
    refused(Tensor(), y, "");
    refused(x, Tensor(), "");
    refused(x, s.target_of(0, 29), "[30, 4]");
    refused(transpose(x, 0, 1), y, "[4, 30]");
    refused(x.to(i64), y, "logits");
    refused(zeros({30, 1}), y, "squeeze(1)");
    refused(x, y.unsqueeze(1), "[30, 1]");
    if (!default_device().is_cpu()) continue;
    for (const double bad : {4.0, -1.0, 1e15}) {
      auto classes = s.targets;
      classes[17] = bad;
      refused(x, make(classes, {30}, i64), "17");
    }
    auto classes = s.targets;
    classes[3] = 0.5;
    refused(x, make(classes, {30}, f32), "whole numbers");
  }
  CHECK(error_of([] { Accuracy({.top_k = 0}); }).find("top_k = 0") != std::string::npos);
  CHECK(error_of([] { Confusion({.classes = 1}); }).find("classes = 1") != std::string::npos);
  CHECK(error_of([] { PrecisionRecallF1({.classes = -3}); }).find("-3") != std::string::npos);
  CHECK(error_of([] { metrics::Auroc({.classes = 0}); }).find("classes = 0") != std::string::npos);
  CHECK(error_of([&] {
          Accuracy({.top_k = 9}).update(s.output(0, 30), s.target_of(0, 30));
        }).find("top_k = 9") != std::string::npos);
}

}  // namespace
}  // namespace firn::testing

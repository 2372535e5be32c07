// Samples in batches of any sizes and on any ranks; what an update leaves alone; devices.
#include <functional>
#include <memory>
#include <mutex>

#include "metrics/naive.h"
#include "support/catch.h"

namespace firn::testing {
namespace {

using MetricPtr = std::unique_ptr<metrics::Metric>;

/// A metric, the samples that it takes, and whether figures are sums of floats.
struct Kind {
  std::string name;
  std::function<MetricPtr()> make;
  std::int64_t classes;  ///< of the logits; 0: numbers
  bool rounded;
};

template <class M, class... Options>
std::function<MetricPtr()> maker(Options... options) {
  return [=]() -> MetricPtr { return std::make_unique<M>(options...); };
}

std::vector<Kind> kinds() {
  using namespace metrics;
  return {
      {"accuracy", maker<Accuracy>(AccuracyOptions{}), 5, false},
      {"accuracy of two classes", maker<Accuracy>(AccuracyOptions{}), 1, false},
      {"top 3", maker<Accuracy>(AccuracyOptions{.top_k = 3}), 5, false},
      {"confusion", maker<Confusion>(ConfusionOptions{.classes = 5}), 5, false},
      {"f1", maker<PrecisionRecallF1>(PrecisionRecallF1Options{.classes = 5}), 5, false},
      {"auroc", maker<Auroc>(AurocOptions{}), 1, false},
      {"auroc of classes", maker<Auroc>(AurocOptions{.classes = 5}), 5, false},
      {"perplexity", maker<Perplexity>(PerplexityOptions{}), 5, true},
      {"mae", maker<MeanAbsoluteError>(), 0, true},
      {"rmse", maker<RootMeanSquaredError>(), 0, true},
      {"r2", maker<R2>(), 0, true},
  };
}

Samples samples_for(const Kind& kind, std::int64_t n) {
  return drawn(n, kind.classes == 0 ? 1 : kind.classes, 31, 0.125);
}

void update(metrics::Metric& metric, const Kind& kind, const Samples& s, std::int64_t begin,
            std::int64_t end, Device device = default_device()) {
  metric.update(s.output(begin, end, f32, Layout::contiguous, device),
                s.target_of(begin, end, kind.classes == 0 ? f32 : i64, device));
}

void check_same(const Kind& kind, const Figures& got, const Figures& want) {
  INFO(kind.name);
  REQUIRE(got.size() == want.size());
  for (const auto& entry : want) {
    const double value = got.at(entry.first);
    if (kind.rounded) {
      CHECK(value == Approx(entry.second).epsilon(1e-12));
    } else {
      CHECK(value == entry.second);
    }
  }
}

TEST_CASE("metrics: batches of any sizes are one batch", "[metrics]") {
  constexpr std::int64_t kSamples = 150;
  for (const Kind& kind : kinds()) {
    const Samples s = samples_for(kind, kSamples);
    const MetricPtr whole = kind.make();
    update(*whole, kind, s, 0, kSamples);
    const Figures want = figures_of(*whole);
    for (const std::vector<std::int64_t>& cuts :
         {std::vector<std::int64_t>{1, 2, 3, 100}, {75}, {0, 149}, {10, 10, 64, 128}}) {
      const MetricPtr parts = kind.make();
      std::int64_t begin = 0;
      for (const std::int64_t end : cuts) {
        update(*parts, kind, s, begin, end);
        parts->values();  // changes nothing
        begin = end;
      }
      update(*parts, kind, s, begin, kSamples);
      check_same(kind, figures_of(*parts), want);
      parts->reset();
      update(*parts, kind, s, 0, kSamples);
      check_same(kind, figures_of(*parts), want);
    }
  }
}

TEST_CASE("metrics: ranks have the values of all samples, each sample once", "[metrics][host]") {
  constexpr std::int64_t kSamples = 60;
  for (const Kind& kind : kinds()) {
    const Samples s = samples_for(kind, kSamples);
    const MetricPtr whole = kind.make();
    update(*whole, kind, s, 0, kSamples / 2);
    const Figures half = figures_of(*whole);
    update(*whole, kind, s, kSamples / 2, kSamples);
    const Figures all = figures_of(*whole);
    for (const int ranks : {1, 2, 3, 4}) {
      std::mutex mutex;
      std::vector<Figures> halves, twice, wholes, nothing;
      dist::run_local(ranks, [&](const dist::Group& group) {
        const MetricPtr metric = kind.make();
        metric->combine(group);
        const Figures none = figures_of(*metric);
        // Rank 0 takes two batches of one sample, the last what is left; those between have none
        // of the first half, and the others two samples each of the second.
        const std::int64_t r = group.rank(), last = group.size() - 1;
        if (r == 0) {
          update(*metric, kind, s, 0, 1);
          update(*metric, kind, s, 1, 2);
        }
        if (r == last) update(*metric, kind, s, 2, kSamples / 2);
        metric->combine(group);
        metric->combine(group);
        const Figures first = figures_of(*metric);
        const std::int64_t begin = kSamples / 2 + 2 * r;
        update(*metric, kind, s, begin, r == last ? kSamples : begin + 2);
        metric->combine(group);
        const Figures second = figures_of(*metric);
        metric->reset();
        if (r == 0) update(*metric, kind, s, 0, kSamples);
        metric->combine(group);
        const Figures third = figures_of(*metric);
        const std::lock_guard lock(mutex);
        nothing.push_back(none);
        halves.push_back(first);
        twice.push_back(second);
        wholes.push_back(third);
      });
      for (std::size_t r = 0; r < static_cast<std::size_t>(ranks); ++r) {
        INFO(ranks << " ranks");
        for (const auto& entry : nothing[r]) CHECK(std::isnan(entry.second));
        check_same(kind, halves[r], half);
        check_same(kind, twice[r], all);
        check_same(kind, wholes[r], all);
        CHECK(halves[r] == halves[0]);
        CHECK(twice[r] == twice[0]);
      }
    }
  }
}

TEST_CASE("metrics: ranks of other options are found out", "[metrics][host]") {
  const auto combined = [](const std::function<MetricPtr(int)>& make) {
    return error_of([&] {
      dist::run_local(2, [&](const dist::Group& group) { make(group.rank())->combine(group); });
    });
  };
  using namespace metrics;
  CHECK_FALSE(combined([](int r) -> MetricPtr {
                return std::make_unique<Confusion>(ConfusionOptions{.classes = 3 + r});
              }).empty());
  CHECK(combined([](int r) -> MetricPtr {
          return std::make_unique<Auroc>(AurocOptions{.classes = 3 + r});
        }).find("[Auroc]") == 0);
}

TEST_CASE("metrics: updates record nothing, whatever the modes of the caller", "[metrics]") {
  for (const Kind& kind : kinds()) {
    const Samples s = samples_for(kind, 40);
    const MetricPtr plain = kind.make(), recorded = kind.make();
    update(*plain, kind, s, 0, 40);
    Tensor x = s.output(0, 40);
    x.set_requires_grad();
    const Tensor output = x * 1.0, target = s.target_of(0, 40, kind.classes == 0 ? f32 : i64);
    {
      const Autocast guard(f16);
      recorded->update(output, target);
      recorded->update(output, target);
      check_same(kind, figures_of(*recorded), figures_of(*recorded));
    }
    recorded->reset();
    recorded->update(output, target);
    check_same(kind, figures_of(*recorded), figures_of(*plain));
    output.sum().backward();  // the graph is the caller's, and whole
    CHECK(values_of(x.grad()) == std::vector<double>(static_cast<std::size_t>(x.numel()), 1));
  }
}

/// A metric as a program writes it: the mean length of rows, which are the samples.
class MeanLength : public metrics::SumMetric {
 public:
  explicit MeanLength(DType dtype = f64) : SumMetric("MeanLength", dtype, 2) {}

 private:
  Tensor sums_of(const Tensor& output, const Tensor&) const override {
    const Tensor total = sum(norm(output.to(f64), 1));
    return stack({total, full({}, static_cast<double>(output.size(0)), f64, output.device())});
  }
  std::vector<metrics::Value> figures(const std::vector<double>& sums) const override {
    return {{"length", sums[0] / sums[1]}};
  }
};

TEST_CASE("metrics: one of a program's own", "[metrics]") {
  MeanLength metric;
  metric.update(make({3, 4, 0, 5}, {2, 2}, f32), zeros({2}));
  metric.update(make({6, 8}, {1, 2}, f32), zeros({1}));
  CHECK(figures_of(metric) == Figures{{"length", 20.0 / 3}});
  CHECK(error_of([] { MeanLength{f32}; }).find("[MeanLength]") == 0);
  MeanLength counts(i64);
  CHECK(error_of([&] {
          counts.update(zeros({1, 2}), zeros({1}));
        }).find("f64") != std::string::npos);
}

TEST_CASE("metrics: copies are independent", "[metrics]") {
  const Samples s = drawn(20, 3, 8);
  metrics::Accuracy one;
  one.update(s.output(0, 10), s.target_of(0, 10));
  metrics::Accuracy two = one;
  const Figures before = figures_of(one);
  two.update(s.output(10, 20), s.target_of(10, 20));
  CHECK(figures_of(one) == before);
  two.reset();
  CHECK(figures_of(one) == before);
  // Scores too, which lie in one block with room for more.
  const Samples pairs = drawn(30, 1, 8);
  const auto add = [&](metrics::Auroc& metric, std::int64_t begin, std::int64_t end) {
    metric.update(pairs.output(begin, end), pairs.target_of(begin, end));
  };
  metrics::Auroc a, b, want_a, want_b;
  for (metrics::Auroc* metric : {&a, &want_a, &want_b}) add(*metric, 0, 10), add(*metric, 10, 12);
  b = a;
  add(a, 12, 14);
  add(b, 14, 17);
  add(a, 17, 18);
  add(want_a, 12, 14), add(want_a, 17, 18);
  add(want_b, 14, 17);
  CHECK(figures_of(a) == figures_of(want_a));
  CHECK(figures_of(b) == figures_of(want_b));
}

TEST_CASE("metrics: a RollbackPoint and a plan of memory put them back", "[metrics]") {
  for (const Kind& kind : kinds()) {
    const Samples s = samples_for(kind, 60);
    const MetricPtr want = kind.make();
    update(*want, kind, s, 0, 25);
    const Figures before = figures_of(*want);
    update(*want, kind, s, 25, 60);
    const Figures after = figures_of(*want);
    MetricPtr metric = kind.make();
    update(*metric, kind, s, 0, 20);
    update(*metric, kind, s, 20, 25);
    {
      RollbackPoint start;
      for (int attempt = 0; attempt < 3; ++attempt) {
        update(*metric, kind, s, 3, 40);
        if (attempt == 1) metric->reset();
        metric->combine(dist::Group());
        update(*metric, kind, s, 7, 11);
        start.roll_back();
        check_same(kind, figures_of(*metric), before);
      }
      update(*metric, kind, s, 25, 60);
      check_same(kind, figures_of(*metric), after);
      start.roll_back();
    }
    plan_memory([&] { update(*metric, kind, s, 3, 40); });
    check_same(kind, figures_of(*metric), before);
    update(*metric, kind, s, 25, 60);
    check_same(kind, figures_of(*metric), after);
    RollbackPoint longer;
    update(*metric, kind, s, 0, 9);
    metric.reset();
    longer.roll_back();
  }
}

TEST_CASE("metrics: a cycle that is retried counts its samples once", "[metrics]") {
  nn::Linear net(3, 2);
  net.to(f16);
  optim::SGD opt(net.parameters(), {.lr = 1e-3},
                 {.loss_scale = optim::LossScale::dynamic(
                      {.init = 0x1p24, .on_overflow = optim::OverflowPolicy::retry})});
  metrics::Confusion confusion({.classes = 2});
  metrics::Auroc auroc;
  int calls = 0;
  const Tensor x = ones({8, 3}, f16) * 30.0, y = make({0, 1, 1, 0, 1, 1, 0, 0}, {8}, i64);
  opt.run_cycle(1, [&](std::int64_t) {
    ++calls;
    const Tensor logits = net(x);
    confusion.update(logits, y);
    auroc.update(logits, y);
    return cross_entropy(logits * 40.0, y);
  });
  REQUIRE(calls > 1);
  const auto matrix = confusion.matrix();
  CHECK(matrix[0][0] + matrix[0][1] == 4);
  CHECK(matrix[1][0] + matrix[1][1] == 4);
  CHECK(figures_of(auroc)["auroc"] == 0.5);  // all scores are equal
}

TEST_CASE("metrics on a device: no wait, the CPU's values, bad classes at the next wait",
          "[metrics][gpu]") {
  if (cuda_device_count() == 0) return;
  const Device cuda = Device::cuda();
  for (const Kind& kind : kinds()) {
    INFO(kind.name);
    const Samples s = samples_for(kind, 70);
    const MetricPtr host = kind.make(), device = kind.make();
    update(*host, kind, s, 0, 70, Device());
    const DType t = kind.classes == 0 ? f32 : i64;
    const Tensor x1 = s.output(0, 30, f32, Layout::contiguous, cuda),
                 y1 = s.target_of(0, 30, t, cuda),
                 x2 = s.output(30, 70, f32, Layout::stepped, cuda),
                 y2 = s.target_of(30, 70, t, cuda);
    synchronize(cuda);
    const std::uint64_t waits = host_waits();
    device->update(x1, y1);
    device->update(x2, y2);
    CHECK(host_waits() == waits);
    const Figures want = figures_of(*host), got = figures_of(*device);
    REQUIRE(got.size() == want.size());
    for (const auto& entry : want)
      CHECK(got.at(entry.first) == Approx(entry.second).epsilon(kind.rounded ? 1e-12 : 1e-15));
    CHECK(error_of([&] { device->update(x1.to(Device()), y1.to(Device())); }).find("cuda:0") !=
          std::string::npos);
    if (kind.classes == 0) continue;
    auto classes = s.targets;
    classes[3] = 77;
    device->update(
        x1, make({classes.begin(), classes.begin() + 30}, {30}, i64, Layout::contiguous, cuda));
    const std::string message = error_of([&] { synchronize(cuda); });
    CHECK(message.find("77 at position 3") != std::string::npos);
    CHECK(figures_of(*device) == got);  // no sample of that batch
    const std::string captured =
        error_of([&] { graph::Graph::capture(cuda, [&] { device->update(x1, y1); }); });
    CHECK(captured.find("a replay would not count") != std::string::npos);
    CHECK(figures_of(*device) == got);
  }
}

}  // namespace
}  // namespace firn::testing

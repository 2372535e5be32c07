// Random numbers in graphs: a replay takes those that the work itself would have taken.
#include <optional>
#include <string>

#include "firn/firn.h"
#include "firn/runtime/graph.h"
#include "support/catch.h"
#include "support/device/simulator.h"
#include "support/values.h"

using namespace firn;
using firn::testing::expect_same;
using firn::testing::values_of;
using graph::Graph;

TEST_CASE("graph: replays with dropout are equal to eager steps, to the bit", "[graph]") {
  const Tensor x = full({1001}, 1, f32);
  Generator own(11);
  const auto work = [&] {
    const Tensor a = dropout(x, 0.3, true), b = dropout(a, 0.5, true, own);
    return b + rand({1001}) + dropout(x, 0.1, true);
  };
  constexpr int kSteps = 200;
  std::vector<std::vector<double>> want;
  manual_seed(42);
  own.set({11, 0});
  for (int i = 0; i < kSteps; ++i) {
    want.push_back(values_of(work()));
    if (i % 7 == 0) want.push_back(values_of(rand({5})));  // somebody else draws in between
  }
  const RandomKey end = default_generator().get();

  manual_seed(42);
  own.set({11, 0});
  std::vector<std::vector<double>> got;
  Tensor y;
  std::optional<Graph> g;
  for (int i = 0; i < kSteps; ++i) {
    if (g) {
      g->replay();
    } else if (i == 1) {
      g = Graph::capture(default_device(), [&] { y = work(); });
    } else {
      y = work();
    }
    got.push_back(values_of(y));
    if (i % 7 == 0) got.push_back(values_of(rand({5})));
  }
  CHECK(default_generator().get().offset == end.offset);
  CHECK(default_generator().get().seed == end.seed);
  for (std::size_t i = 0; i < want.size(); ++i) {
    expect_same("draw " + std::to_string(i), got[i], want[i]);
  }

  // A seed set between replays counts.
  manual_seed(9);
  own.set({11, 4});
  g->replay();
  const auto replayed = values_of(y);
  manual_seed(9);
  own.set({11, 4});
  CHECK(values_of(work()) == replayed);
}

TEST_CASE("graph: the backward of a dropout uses the mask of its replay", "[graph]") {
  const Tensor w = full({600}, 1, f32).set_requires_grad();
  Tensor y, grad;
  const auto work = [&] {
    w.set_grad({});
    y = dropout(w, 0.5, true);
    sum(y).backward();
    grad = w.grad();
  };
  manual_seed(1);
  work();
  Graph g = Graph::capture(default_device(), work);
  std::vector<double> last;
  for (int i = 0; i < 20; ++i) {
    g.replay();
    const auto values = values_of(y);
    CHECK(values == values_of(grad));
    CHECK(values != last);
    last = values;
  }
}

TEST_CASE("graph: queued replays each have their own numbers", "[graph][gpu]") {
  Tensor total = zeros({64});
  const Tensor x = full({64}, 1, f32);
  const auto work = [&] { add_(total, dropout(x, 0.5, true)); };
#ifdef FIRN_HAS_CUSIM
  const firn::testing::LazyStreams lazy;
  constexpr int kReplays = 3000;  // more than fit into the ring
#else
  constexpr int kReplays = 20000;
#endif
  manual_seed(5);
  for (int i = 0; i < kReplays; ++i) work();
  const auto want = values_of(total);
  manual_seed(5);
  zero_(total);
  Graph g = Graph::capture(default_device(), work);
  for (int i = 1; i < kReplays; ++i) g.replay();
  CHECK(values_of(total) == want);
}

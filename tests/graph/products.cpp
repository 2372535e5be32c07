// Matrix products in graphs: cuBLASLt has to have chosen an algorithm before the capture.
#include <cmath>
#include <string>
#include <thread>
#include <vector>

#include "firn/firn.h"
#include "firn/runtime/graph.h"
#include "support/catch.h"
#include "support/values.h"

using namespace firn;
using firn::testing::error_of;
using firn::testing::expect_same;
using firn::testing::values_of;
using graph::Graph;

TEST_CASE("graph: a product whose shape has not run before is refused, and can be captured after",
          "[graph][gpu]") {
  const Device d = default_device();
  // Sizes that no other case has: algorithms are kept.
  const Tensor x = rand({37, 41}), w = rand({43, 41}), b = rand({43});
  Tensor y;
  const auto work = [&] { y = linear(x, w, b); };
  std::string error;
  std::vector<double> want, replayed;
  const auto capture = [&] {
    error = error_of([&] { Graph::capture(d, work); });
    work();
    want = values_of(y);
    Graph g = Graph::capture(d, work);
    fill_(y, 0);
    g.replay();
    replayed = values_of(y);
  };
  SECTION("by a thread that has computed products") {
    (void)matmul(x, transpose(w, 0, 1));
    capture();
  }
  SECTION("by a thread that may have no handle yet") { std::thread(capture).join(); }
  CHECK(error.find("run the step once before") != std::string::npos);
  CHECK(error.find("cannot be part of a captured graph") != std::string::npos);
  expect_same("replayed", replayed, want);
}

TEST_CASE("graph: a step is captured though gradients are added now, or stored again",
          "[graph][gpu]") {
  const bool stores_first = GENERATE(true, false);
  const std::int64_t rows = stores_first ? 38 : 39;
  const Tensor x = rand({rows, 42}), w = rand({44, 42}).set_requires_grad();
  const Tensor b = rand({44}).set_requires_grad();
  const auto work = [&] { sum(square(linear(x, w, b))).backward(); };
  for (const Tensor& t : {w, b}) t.set_grad(stores_first ? Tensor() : zeros(t.shape()));
  work();
  const auto want_w = values_of(w.grad()), want_b = values_of(b.grad());
  if (stores_first) {
    w.set_grad(zeros({44, 42}));
    b.set_grad(zeros({44}));
  } else {
    w.set_grad({});
    b.set_grad({});
  }
  Graph g = Graph::capture(default_device(), work);  // runs it too
  const auto bounds = [](std::vector<double> values) {
    for (double& v : values) v = 1e-5 * std::abs(v) + 1e-6;
    return values;
  };
  firn::testing::expect_close("w", values_of(w.grad()), want_w, bounds(want_w));
  firn::testing::expect_close("b", values_of(b.grad()), want_b, bounds(want_b));
}

// Writing in place: what the tape finds out, and what it allows.
#include <cmath>
#include <string>

#include "autograd/leaf.h"

using namespace firn;
using namespace firn::testing;

TEST_CASE("in place: an edit of a saved output is found, both ops are named", "[autograd]") {
  Tensor x = leaf({1, 2});
  Tensor y = exp(x);  // saves its output
  {
    const NoGrad guard;
    mul_(y, 2);
  }
  const std::string message = error_of([&] { sum(y).backward(); });
  CHECK(holds(message, "[exp]"));
  CHECK(holds(message, "mul_"));
  CHECK(holds(message, "saved for backward"));
}

TEST_CASE("in place: an edit of a saved input is found, both ops are named", "[autograd]") {
  Tensor x = leaf({1, 2});
  const Tensor y = square(x);
  {
    const NoGrad guard;
    neg_(x);
  }
  const std::string message = error_of([&] { sum(y).backward(); });
  CHECK(holds(message, "[square]"));
  CHECK(holds(message, "neg_"));
}

TEST_CASE("in place: an edit through a view of something saved is found", "[autograd]") {
  Tensor x = leaf({1, 2, 3});
  const Tensor other = make({4, 5, 6}, {3});
  const Tensor y = x * other;
  fill_(slice(other, 0, 1, 2), 7);
  const std::string message = error_of([&] { sum(y).backward(); });
  CHECK(holds(message, "[mul]"));
  CHECK(holds(message, "fill_"));
}

TEST_CASE("in place: an edit of a factor whose values no gradient needs is fine", "[autograd]") {
  // Transposed too: the layout of its gradient is the factor's, its values are of no account.
  const bool flips = GENERATE(false, true);
  const Tensor x = make({1, 2, 3, 4}, {2, 2});
  Tensor w = make({5, 6, 7, 8}, {2, 2}).set_requires_grad();
  const Tensor y = matmul(x, flips ? transpose(w, 0, 1) : w);
  {
    const NoGrad guard;
    mul_(w, 2);
  }
  sum(y).backward();
  CHECK(w.grad().to_vector<double>() ==
        (flips ? std::vector<double>{4, 6, 4, 6} : std::vector<double>{4, 4, 6, 6}));
}

TEST_CASE("in place: an edit of what nobody saved is fine", "[autograd]") {
  Tensor x = leaf({1, 2});
  const Tensor other = make({4, 5}, {2});
  const Tensor y = x + other;
  fill_(other, 7);
  sum(y).backward();
  CHECK(values_of(x.grad()) == Values{1, 1});
}

TEST_CASE("in place: after backward the saved values may change again", "[autograd]") {
  Tensor x = leaf({1, 2});
  const Tensor loss = sum(square(x));
  loss.backward();
  {
    const NoGrad guard;
    sub_(x, x.grad() * 0.5);
  }
  CHECK(values_of(x) == Values{0, 0});
  sum(square(x)).backward();
  CHECK(values_of(x.grad()) == Values{2, 4});
}

TEST_CASE("in place: a leaf that requires a gradient is refused while recording", "[autograd]") {
  Tensor x = leaf({1, 2});
  CHECK(holds(error_of([&] { exp_(x); }), "is a leaf"));
  CHECK(holds(error_of([&] { add_(x, 1); }), "[add_]"));
  CHECK(holds(error_of([&] { fill_(x, 1); }), "[fill_]"));
  CHECK(holds(error_of([&] { zero_(x); }), "[zero_]"));
  CHECK(holds(error_of([&] { copy_(x, make({1, 2}, {2})); }), "[copy_]"));
  CHECK(holds(error_of([&] { uniform_(x, 0, 1); }), "[uniform_]"));
  CHECK(holds(error_of([&] { normal_(x, 0, 1); }), "[normal_]"));
  CHECK(values_of(x) == Values{1, 2});
  const NoGrad guard;
  CHECK_NOTHROW(exp_(x));
}

TEST_CASE("in place: refused where another handle, a view or a saved copy exists", "[autograd]") {
  Tensor x = leaf({1, 2});
  Tensor y = x * 2;
  const Tensor handle = y;
  CHECK(holds(error_of([&] { exp_(y); }), "another handle"));
  Tensor z = x * 2;
  const Tensor view = slice(z, 0, 0, 1);
  CHECK(holds(error_of([&] { exp_(z); }), "[exp_]"));
  Tensor w = exp(x);  // saved by exp itself
  CHECK(holds(error_of([&] { neg_(w); }), "[neg_]"));
}

TEST_CASE("in place: an operand that requires a gradient is recorded into a plain tensor",
          "[autograd]") {
  Tensor x = leaf({1, 2});
  Tensor y = make({10, 20}, {2});
  add_(y, x * 3);
  CHECK(y.requires_grad());
  CHECK(values_of(y) == Values{13, 26});
  sum(y * y).backward();
  CHECK(values_of(x.grad()) == Values{2 * 13 * 3, 2 * 26 * 3});
}

TEST_CASE("in place: the first operand must have the broadcast shape", "[autograd]") {
  Tensor x = make({1, 2}, {2});
  CHECK(holds(error_of([&] { add_(x, zeros({3, 2}, f64)); }), "[add_]"));
  CHECK_NOTHROW(add_(x, make({5}, {1})));
  CHECK(values_of(x) == Values{6, 7});
}

TEST_CASE("in place: integers and bool follow the plain forms", "[autograd]") {
  Tensor x = tensor({std::int64_t{1}, std::int64_t{-2}});
  mul_(x, 3);
  abs_(x);
  CHECK(x.to_vector<std::int64_t>() == std::vector<std::int64_t>{3, 6});
  CHECK(holds(error_of([&] { exp_(x); }), "[exp_]"));
}

TEST_CASE("in place: a tensor without elements is not an expanded one", "[autograd]") {
  CHECK_NOTHROW(fill_(zeros({2, 0, 5, 5}), 1));
  Tensor x = zeros({2, 0, 5});
  CHECK_NOTHROW(add_(x, 1));
}

TEST_CASE("in place: copy_ of values with a gradient is recorded", "[autograd]") {
  Tensor w = leaf({1, 2});
  Tensor x = zeros({2}, f64);
  copy_(x, w * 3);
  CHECK(x.requires_grad());
  CHECK(values_of(x) == Values{3, 6});
  sum(x * x).backward();
  CHECK(values_of(w.grad()) == Values{2 * 3 * 3, 2 * 6 * 3});
}

TEST_CASE("in place: the gradient of copy_ is summed over broadcast axes and cast back",
          "[autograd]") {
  Tensor w = leaf({1, 2}, f32);
  Tensor x = zeros({3, 2}, f64);
  copy_(x, w);
  CHECK(x.dtype() == f64);
  sum(x * make({1, 2, 3, 4, 5, 6}, {3, 2})).backward();
  CHECK(w.grad().dtype() == f32);
  CHECK(values_of(w.grad()) == Values{1 + 3 + 5, 2 + 4 + 6});

  Tensor half = zeros({2, 2}, f16);
  copy_(half, w);
  sum(half).backward();
  CHECK(values_of(w.grad()) == Values{9 + 2, 12 + 2});
}

TEST_CASE("in place: copy_ records into channels-last and transposed tensors", "[autograd]") {
  Tensor w = make({0, 1, 2, 3, 4, 5, 6, 7}, {1, 2, 2, 2});
  w.set_requires_grad();
  const Tensor factors = make({1, 2, 3, 4, 5, 6, 7, 8}, {1, 2, 2, 2});
  Tensor x = make(Values(8, 0.0), {1, 2, 2, 2}, f64, Layout::channels_last);
  copy_(x, w);
  CHECK(values_of(x) == values_of(w));
  sum(x * factors).backward();
  CHECK(values_of(w.grad()) == values_of(factors));
}

TEST_CASE("in place: copy_ that would lose a gradient is refused", "[autograd]") {
  Tensor w = leaf({1, 2});
  Tensor x = zeros({3, 2}, f64);
  const std::string message = error_of([&] { copy_(x[0], w); });
  CHECK(holds(message, "[copy_]"));
  CHECK(holds(message, "a view"));
  CHECK(holds(message, "src.detach()"));
  const Tensor handle = x;
  CHECK(holds(error_of([&] { copy_(x, w); }), "another handle"));
  CHECK_FALSE(x.requires_grad());
  CHECK(values_of(x) == Values(6, 0.0));
  copy_(x[0], w.detach());
  copy_(x[1], values_of(w) == Values{1, 2} ? w.detach() : x[2]);
  {
    const NoGrad guard;
    copy_(x[2], w);
  }
  CHECK(values_of(x) == Values{1, 2, 1, 2, 1, 2});
  Tensor n = zeros({2}, i64);
  copy_(n, w);  // as a cast to integers, without a gradient
  CHECK_FALSE(n.requires_grad());
}

TEST_CASE("in place: overwriting what belongs to a graph is refused", "[autograd]") {
  Tensor w = leaf({1, 2});
  const Tensor y = w * 3;
  for (const Tensor& part : {y, y[0], y.slice(0, 1, 2)}) {
    CHECK(holds(error_of([&] { fill_(part, 1); }), "belongs to its graph"));
    CHECK(holds(error_of([&] { zero_(part); }), "[zero_]"));
    CHECK(holds(error_of([&] { copy_(part, zeros(part.shape(), f64)); }), "[copy_]"));
    CHECK(holds(error_of([&] { copy_(part, w[0]); }), "[copy_]"));
    CHECK(holds(error_of([&] { uniform_(part, 0, 1); }), "[uniform_]"));
    CHECK(holds(error_of([&] { normal_(part, 0, 1); }), "[normal_]"));
  }
  CHECK(values_of(y) == Values{3, 6});
}

TEST_CASE("in place: hints for a part name what replaces it in a new tensor", "[autograd]") {
  const Tensor y = leaf({1, 2, 3}) * 2;
  const auto filled = [](const Tensor& t) { return error_of([&] { fill_(t, 1); }); };
  CHECK(holds(filled(y.slice(0, 0, 2)), "slice_scatter(), select_scatter() and index_put()"));
  CHECK(holds(filled(y), "assign a new tensor"));
  Tensor part = y.slice(0, 0, 2);
  CHECK(holds(error_of([&] { add_(part, 1); }), "slice_scatter(), select_scatter()"));
  Tensor whole = leaf({1, 2, 3}) * 2;
  const Tensor other = whole;
  CHECK(holds(error_of([&] { add_(whole, 1); }), "use the form without underscore"));
}

TEST_CASE("in place: set_grad(), custom() and mixed dtypes say which dtype is meant",
          "[autograd]") {
  const Tensor x = leaf({1, 2});
  CHECK(holds(error_of([&] { x.set_grad(zeros({2}, i64)); }), "in a floating dtype"));
  const auto eighth = [&] {
    custom("quantized", {x}, zeros({2}).to(f8_e4m3), {},
           [](const CustomBackward& b) { return std::vector<Tensor>{b.grad}; });
  };
  CHECK(holds(error_of(eighth), "[quantized] the output [2] f8_e4m3"));
  const Tensor whole = zeros({2}, i32);
  CHECK(holds(error_of([&] { div(ones({2}), whole); }), "cast the second, .to(firn::f32)"));
  CHECK(holds(error_of([&] { div(whole, ones({2})); }), "cast the first, .to(firn::f32)"));
  CHECK(holds(error_of([] { full({2}, HUGE_VAL, f8_e4m3); }), "f8_e4m3 has no infinity"));
  CHECK(holds(error_of([] { einsum(std::string(300, 'a'), {ones({2})}); }),
              "\"" + std::string(60, 'a') + "...\""));
  CHECK(holds(error_of([] { conv2d(ones({1, 6, 4, 4}), ones({4, 3, 1, 1})); }), "set groups = 2"));
}

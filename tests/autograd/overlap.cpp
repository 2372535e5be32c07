// In-place operations whose operand shares memory with the tensor that they write.
#include "tensor/overlap.h"
#include "autograd/leaf.h"

using namespace firn;
using namespace firn::testing;

namespace {

const Values kNine = {1, 2, 3, 4, 5, 6, 7, 8, 9};

struct Write {
  const char* name;
  void (*run)(Tensor&, const Tensor&);
  double (*result)(double, double);
};
const Write kWrites[] = {
    {"copy_", [](Tensor& a, const Tensor& b) { copy_(a, b); }, [](double, double b) { return b; }},
    {"add_", [](Tensor& a, const Tensor& b) { add_(a, b); },
     [](double a, double b) { return a + b; }},
    {"sub_", [](Tensor& a, const Tensor& b) { sub_(a, b); },
     [](double a, double b) { return a - b; }},
    {"mul_", [](Tensor& a, const Tensor& b) { mul_(a, b); },
     [](double a, double b) { return a * b; }},
    {"div_", [](Tensor& a, const Tensor& b) { div_(a, b); },
     [](double a, double b) { return a / b; }},
};

/// Two views of one tensor: what is written, and what is read.
struct Pair {
  const char* name;
  Tensor (*written)(const Tensor&);
  Tensor (*read)(const Tensor&);
};
const Pair kPairs[] = {
    {"transposed", [](const Tensor& x) { return x; },
     [](const Tensor& x) { return transpose(x, 0, 1); }},
    {"itself", [](const Tensor& x) { return x; }, [](const Tensor& x) { return x; }},
    {"the same elements", [](const Tensor& x) { return x; },
     [](const Tensor& x) { return x.detach(); }},
    {"shifted on", [](const Tensor& x) { return x.reshape({9}).slice(0, 1, 9); },
     [](const Tensor& x) { return x.reshape({9}).slice(0, 0, 8); }},
    {"shifted back", [](const Tensor& x) { return x.reshape({9}).slice(0, 0, 8); },
     [](const Tensor& x) { return x.reshape({9}).slice(0, 1, 9); }},
    {"its first row", [](const Tensor& x) { return x; },
     [](const Tensor& x) { return x.slice(0, 0, 1); }},
    {"its last column", [](const Tensor& x) { return x; },
     [](const Tensor& x) { return x.slice(1, 2, 3); }},
    {"an element", [](const Tensor& x) { return x; }, [](const Tensor& x) { return x[1][1]; }},
};

}  // namespace

TEST_CASE("overlap: an in-place operation reads its operand as it was before", "[autograd]") {
  for (const Pair& p : kPairs) {
    for (const Write& w : kWrites) {
      INFO(w.name << " with " << p.name);
      const Tensor x = make(kNine, {3, 3});
      Tensor a = p.written(x);
      const Tensor b = p.read(x);
      const Values before = values_of(a), operand = values_of(expand(b, a.shape()));
      Values expected;
      for (std::size_t i = 0; i < before.size(); ++i)
        expected.push_back(w.result(before[i], operand[i]));
      w.run(a, b);
      CHECK(values_of(a) == expected);
    }
  }
}

TEST_CASE("overlap: large tensors, where a kernel works on many elements at a time", "[autograd]") {
  Values values;
  for (int i = 0; i < 200 * 200; ++i) values.push_back(i);
  Tensor x = make(values, {200, 200});
  copy_(x, transpose(x, 0, 1));
  CHECK(values_of(x) == values_of(transpose(make(values, {200, 200}), 0, 1).clone()));
  Tensor y = make(values, {200, 200});
  add_(y, transpose(y, 0, 1));
  CHECK(values_of(y) == values_of(make(values, {200, 200}) + x));
}

TEST_CASE("overlap: two tensors on one piece of the caller's memory", "[autograd][host]") {
  Values memory = kNine;
  const Tensor whole = from_memory(memory.data(), {3, 3});
  const Tensor other = from_memory(memory.data(), {3, 3});
  copy_(whole, transpose(other, 0, 1));
  CHECK(memory == Values{1, 4, 7, 2, 5, 8, 3, 6, 9});
}

TEST_CASE("overlap: with itself or with the same elements nothing is copied", "[autograd]") {
  Tensor x = make(kNine, {3, 3});
  const auto before = memory_stats().total.peak;
  add_(x, x);
  mul_(x, x.detach());
  copy_(x, x);
  copy_(x, x.detach());
  CHECK(memory_stats().total.peak == before);
  CHECK(values_of(x)[1] == 16);
}

TEST_CASE("overlap: a tensor multiplied by itself in place has the gradient of its square",
          "[autograd]") {
  Tensor w = leaf({2, 3});
  Tensor y = w * 1.0;
  mul_(y, y);
  sum(y).backward();
  CHECK(values_of(w.grad()) == Values{4, 6});
}

TEST_CASE("overlap: a tensor whose elements are one in memory cannot be written", "[autograd]") {
  const Tensor x = make(kNine, {9});
  const Tensor rows[] = {expand(x.slice(0, 0, 3), {4, 3}), x.as_strided({4, 3}, {0, 1}),
                         x.as_strided({4, 3}, {1, 1}), x.as_strided({2, 2, 2}, {3, 2, 1})};
  for (const Tensor& t : rows) {
    Tensor a = t;
    for (const Write& w : kWrites)
      CHECK(holds(error_of([&] { w.run(a, ones(a.shape(), f64)); }), "are one in memory"));
    CHECK(holds(error_of([&] { fill_(a, 0); }), "[fill_]"));
    CHECK(holds(error_of([&] { zero_(a); }), "[zero_]"));
    CHECK(holds(error_of([&] { exp_(a); }), "[exp_]"));
    CHECK(holds(error_of([&] { add_(a, 1); }), "[add_]"));
    CHECK(holds(error_of([&] { uniform_(a, 0, 1); }), "[uniform_]"));
    CHECK(holds(error_of([&] { normal_(a, 0, 1); }), "[normal_]"));
  }
  CHECK(values_of(x) == kNine);
  // Strides that cross and yet meet no element twice, as slices and transposed views have.
  fill_(transpose(x.reshape({3, 3}), 0, 1).slice(0, 0, 3, 2), 0);
  fill_(x.as_strided({1, 3}, {0, 1}), 0);
  CHECK(values_of(x) == Values{0, 0, 0, 0, 5, 0, 0, 8, 0});
}

TEST_CASE("overlap: repeats, shared memory and equal geometry", "[autograd][host]") {
  CHECK(may_repeat({2, 2}, {0, 1}));
  CHECK(may_repeat({3, 3}, {2, 1}));
  CHECK_FALSE(may_repeat({3, 3}, {1, 3}));
  CHECK_FALSE(may_repeat({1, 3}, {0, 1}));
  CHECK_FALSE(may_repeat({0, 3}, {0, 0}));
  CHECK_FALSE(may_repeat({}, {}));
  const Tensor x = zeros({4, 4});
  CHECK(share_memory(x.view(), x[1].view()));
  CHECK_FALSE(share_memory(x[0].view(), x[1].view()));
  CHECK_FALSE(share_memory(x.view(), zeros({4, 4}).view()));
  CHECK_FALSE(share_memory(x.slice(0, 1, 1).view(), x.view()));
  CHECK(same_elements(x.view(), x.detach().view()));
  CHECK_FALSE(same_elements(x.view(), transpose(x, 0, 1).view()));
}

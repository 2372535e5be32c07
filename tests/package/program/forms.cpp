// The short forms of firn's interface as a user writes them, with the values they must give. Prints
// what consumer.cpp prints, so that the same test reads both.
#include <firn/firn.h>

#include <cmath>
#include <cstdlib>
#include <iostream>
#include <vector>

using namespace firn;

namespace {

/// The program fails at the first value that is wrong.
void expect(const char* what, const Tensor& t, const std::vector<double>& want) {
  const std::vector<double> got = t.to_vector<double>();
  bool same = got.size() == want.size();
  for (std::size_t i = 0; same && i < got.size(); ++i) same = std::abs(got[i] - want[i]) < 1e-5;
  if (same) return;
  std::cerr << what << ": " << t << "\n";
  std::exit(1);
}

void creation(const Device& device) {
  Generator g(7);
  expect("options", zeros({3}, {.dtype = f16, .device = device}), {0, 0, 0});
  expect("a device", ones({2}, device), {1, 1});
  expect("a size", full(2, 0.5), {0.5, 0.5});
  expect("eye", eye(2, {.dtype = i64}), {1, 0, 0, 1});
  expect("arange", arange(3, {.start = 1, .step = 0.5, .dtype = f32}), {1, 1.5, 2});
  const Tensor u = rand({100}, {.low = -1, .high = 1, .dtype = f32, .generator = &g});
  expect("rand", (u >= -1).to(f32).min(), {1});
  expect("randn", randn({4}, {.mean = 2, .stddev = 0, .device = device}), {2, 2, 2, 2});
  expect("a number", tensor(3.f), {3});
  expect("long long", tensor({1LL, 2LL}), {1, 2});
  expect("braces and a shape", tensor({1.f, 2.f, 3.f, 4.f}, {2, 2}).sum(0), {4, 6});
}

void elementwise() {
  const Tensor x = tensor({-1.f, 0.f, 2.f}), y = tensor({1.f, 0.f, 1.f});
  expect("x > 0", x > 0, {0, 0, 1});
  expect("x >= y", x >= y, {0, 1, 1});
  expect("x < y", x < y, {1, 0, 0});
  expect("1 <= x", 1 <= x, {0, 0, 1});
  expect("where", where(x > 0, x, 0.0), {0, 0, 2});
  expect("where", where(x > 0, 0.0, x), {-1, 0, 0});
  expect("maximum", maximum(x, 0.0), {0, 0, 2});
  expect("minimum", minimum(x, 1), {-1, 0, 1});

  Tensor z = zeros(3);
  z += x;
  z -= 1.0;
  z *= y;
  z /= 2;
  z[1] += 5;
  expect("in place", z, {-1, 5, 0.5});
}

void reductions_and_members() {
  const Tensor x = tensor({1.f, 2.f, 3.f, 6.f}, {2, 2});
  expect("sum", sum(x, 1), {3, 9});
  expect("mean", mean(x, 0), {2, 4});
  expect("max", max(x, -1), {2, 6});
  expect("var", var(x, 1), {0.5, 4.5});
  expect("norm", norm(tensor({3.f, 4.f}), 0), {5});
  expect("members", (x - 3).relu().matmul(x).sum(1), {0, 27});
  expect("members", x.softmax(-1).sum(1).log().exp(), {1, 1});
  expect("argmax", x.argmax(-1), {1, 1});
  expect("max of all", x.max(), {6});
  expect("split", split(tensor({1, 2, 3}), {1, 2})[1], {2, 3});
  expect("cat", cat({x[0], x[1]}), {1, 2, 3, 6});
  expect("mlp", mlp(x, {eye(2), eye(2)}, {zeros(2), ones(2)}), {2, 3, 4, 7});
}

void losses() {
  manual_seed(1);
  nn::Linear net(4, 3);
  optim::SGD opt(net.parameters(), {.lr = 0.1});
  const Tensor x = randn({6, 4}), images = randn({2, 3, 4, 4});
  const Tensor y = tensor({0, 1, 2, 0, 1, 2});
  const Tensor h = net(x);
  const Loss main = cross_entropy(h, y), aside = mse_loss(h, zeros_like(h));
  Loss loss = main + 0.1 * aside.mean_per(main);
  loss += 0.5 * cross_entropy(2 * h, y);
  opt.backward(loss);
  opt.step();
  const Loss pixels = cross_entropy(images, zeros({2, 4, 4}, i64), {.axis = 1});
  expect("pixels", pixels.weight, {32});
  try {
    std::cerr << main + aside;
    std::exit(1);
  } catch (const Error& e) {
    if (e.hint().find("mean_per") == std::string::npos) std::exit(1);
  }
}

}  // namespace

int main() {
  creation(Device::cpu());
  elementwise();
  reductions_and_members();
  losses();
  std::cout << "loss 12, gradient 24\n";
}

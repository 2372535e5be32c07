// Random graphs over every way in which an operation is recorded: with a fixed number of inputs and
// with a list, views, in place, custom functions, several outputs, hooks, shared parts and two
// roots. The gradients must agree with dual numbers, and nodes are numbered in topological order.
#include <map>
#include <unordered_set>

#include "autograd/dual.h"
#include "autograd/node.h"

using namespace firn;
using namespace firn::testing;

namespace {

using autograd::Node;
using autograd::node_of;
using Nodes = std::unordered_set<const Node*>;

/// One random program. Every operation takes tensors of the pool and adds its result to it.
class Program {
 public:
  explicit Program(std::uint64_t seed) : rng_(seed) {
    for (std::int64_t i = 1 + rng_.below(3); i > 0; --i) {
      leaves_.push_back(dual_leaf(random_shape(), rng_));
      Dual x = leaves_.back();
      hook_sometimes(x);
      pool_.push_back(x);
    }
    for (std::int64_t i = 4 + rng_.below(16); i > 0; --i) {
      Dual y = operation();
      // Values stay small, so that what is compared keeps its digits.
      if (std::any_of(y.value.begin(), y.value.end(), [](double v) { return std::abs(v) > 2; }))
        y = sine(y);
      hook_sometimes(y);
      pool_.push_back(std::move(y));
    }
  }

  /// Runs backward from one or two of the results; returns what is wrong, "" if nothing is.
  std::string check() {
    const Dual a = pool_.back(), b = any();
    const Dual first = weighed(a), second = weighed(b);
    double expected = first.tangent[0] + second.tangent[0];
    std::string fault;
    switch (rng_.below(3)) {
      case 0:
        run(fault, first.t + second.t, false);
        break;
      case 1:  // two passes through shared nodes, which are kept for the second
        run(fault, first.t, true);
        run(fault, second.t, false);
        break;
      default: {  // the seed is given, and one root may be a node below the other
        run(fault, first.t, true);
        run(fault, b.t, false);
        expected = first.tangent[0];
        for (const double v : b.tangent) expected += v;
      }
    }
    double got = 0, size = 1;
    for (const Dual& leaf : leaves_) {
      if (!leaf.t.grad().defined()) continue;
      const Values grad = values_of(leaf.t.grad());
      for (std::size_t i = 0; i < grad.size(); ++i) {
        got += grad[i] * leaf.tangent[i];
        size += std::abs(grad[i] * leaf.tangent[i]);
      }
    }
    if (!(std::abs(got - expected) <= 1e-10 * size))
      fault += "gradient times direction is " + std::to_string(got) + ", dual numbers give " +
               std::to_string(expected) + "; ";
    return fault;
  }
  int hooks() const { return static_cast<int>(hooks_.size()); }
  const std::map<std::string, int>& used() const { return used_; }

 private:
  Shape random_shape() {
    Shape shape;
    for (std::int64_t i = rng_.below(4); i > 0; --i) shape.push_back(1 + rng_.below(3));
    return shape;
  }
  const Dual& any() { return pool_[static_cast<std::size_t>(rng_.below(count()))]; }
  std::int64_t count() const { return static_cast<std::int64_t>(pool_.size()); }

  Dual sine(const Dual& x) {
    return map(
        x, sin(x.t), [](double v) { return std::sin(v); }, [](double v) { return std::cos(v); });
  }
  /// One of the pool, brought to that shape.
  Dual any_of(const Shape& shape) {
    const Dual& x = any();
    if (x.t.shape() == shape) return x;
    const Dual mean_of = averaged(x, mean(x.t));
    return moved(mean_of, [&](const Tensor& t) { return expand(t, shape); });
  }
  Dual any_of_rank(int rank) {
    for (int tries = 0; tries < 4; ++tries)
      if (const Dual& x = any(); x.t.rank() == rank) return x;
    Shape shape;
    for (int i = 0; i < rank; ++i) shape.push_back(1 + rng_.below(3));
    return any_of(shape);
  }
  Dual weighed(const Dual& x) {
    const Dual w = dual_constant(x.t.shape(), rng_);
    const Dual product = multiplied(x, w, x.t * w.t);
    return averaged(product, mean(product.t));
  }

  /// Hooks that scale the gradient scale the direction too; others leave it.
  void hook_sometimes(Dual& x) {
    if (rng_.below(6) != 0 || !x.t.requires_grad()) return;
    const double factor = rng_.below(2) == 0 ? 1 : rng_.uniform(-1.5, 1.5);
    hooks_.push_back(std::make_shared<Hook>(Hook{node_of(x.t), 0}));
    add_hook(x.t, [factor, hook = hooks_.back()](const Tensor& g) {
      ++hook->calls;
      return factor == 1 ? Tensor() : g * factor;
    });
    for (double& v : x.tangent) v *= factor;
  }

  Dual operation();
  Dual view();
  Dual in_place();
  Dual with_list();
  Dual custom_of_three();

  /// The nodes below `root`, and whether each has a greater number than its inputs.
  static Nodes below(std::string& fault, const Tensor& root) {
    Nodes seen;
    std::vector<const Node*> left;
    if (node_of(root)) left.push_back(node_of(root));
    while (!left.empty()) {
      const Node& n = *left.back();
      left.pop_back();
      if (!seen.insert(&n).second) continue;
      for (int i = 0; i < n.inputs.size(); ++i) {
        const Node* input = n.inputs[i].get();
        if (!input) continue;
        if (input->sequence >= n.sequence) fault += std::string(n.op) + " is out of order; ";
        left.push_back(input);
      }
    }
    return seen;
  }

  void run(std::string& fault, const Tensor& root, bool retain) {
    const Nodes nodes = below(fault, root);
    if (nodes.empty()) return;
    std::vector<int> before;
    for (const auto& h : hooks_) before.push_back(h->calls);
    backward(root, {.initial_gradient = ones(root.shape(), f64), .retain_graph = retain});
    for (std::size_t i = 0; i < hooks_.size(); ++i)
      if (hooks_[i]->calls - before[i] != (nodes.contains(hooks_[i]->node) ? 1 : 0))
        fault += "a hook ran " + std::to_string(hooks_[i]->calls - before[i]) + " times; ";
  }

  struct Hook {
    const Node* node;
    int calls;
  };
  Rng rng_;
  std::vector<Dual> leaves_, pool_;
  std::vector<std::shared_ptr<Hook>> hooks_;
  std::map<std::string, int> used_;
};

Dual Program::operation() {
  const char* const names[] = {"unary", "binary", "broadcast", "matmul",
                               "view",  "place",  "list",      "custom"};
  const std::int64_t kind = rng_.below(8);
  ++used_[names[kind]];
  switch (kind) {
    case 0: {
      const Dual& x = any();
      return rng_.below(2) ? sine(x)
                           : map(
                                 x, tanh(x.t), [](double v) { return std::tanh(v); },
                                 [](double v) { return 1 - std::tanh(v) * std::tanh(v); });
    }
    case 1: {
      const Dual x = any(), y = any_of(x.t.shape());
      return rng_.below(2) ? added(x, y, x.t - y.t, -1) : multiplied(x, y, x.t * y.t);
    }
    case 2: {
      const Dual x = any(), s = any_of({1});
      const Dual wide = moved(s, [&](const Tensor& t) {
        const NoGrad guard;
        return expand(t, x.t.rank() == 0 ? Shape{1} : x.t.shape());
      });
      return multiplied(x, wide, x.t.rank() == 0 ? x.t * s.t.reshape({}) : x.t * s.t);
    }
    case 3: {
      const Dual x = any_of_rank(2);
      const Dual y = any_of({1 + rng_.below(3), x.t.size(1)});
      return product(x, y, matmul(x.t, transpose(y.t, 0, 1)));
    }
    case 4:
      return view();
    case 5:
      return in_place();
    case 6:
      return with_list();
    default:
      return custom_of_three();
  }
}

Dual Program::view() {
  const Dual x = any_of_rank(static_cast<int>(1 + rng_.below(3)));
  const std::int64_t rank = x.t.rank(), axis = rng_.below(rank), size = x.t.size(axis);
  const std::int64_t at = rng_.below(size), step = 1 + rng_.below(2), other = rng_.below(rank);
  switch (rng_.below(7)) {
    case 0:
      return moved(x, [&](const Tensor& t) { return slice(t, axis, at, size, step); });
    case 1:
      return moved(x, [&](const Tensor& t) { return transpose(t, axis, other); });
    case 2:
      return moved(x, [&](const Tensor& t) { return reshape(t, {-1, 1}); });
    case 3:
      return moved(x, [&](const Tensor& t) { return reshape(transpose(t, 0, -1), {-1}); });
    case 4: {
      Shape wide = x.t.shape();
      if (rank == 3) return moved(x, [&](const Tensor& t) { return select(t, axis, at); });
      wide.insert(0, 2);
      return moved(x, [&](const Tensor& t) { return expand(t, wide); });
    }
    case 5:
      return moved(x, [&](const Tensor& t) { return select(t, axis, at); });
    default: {  // all pieces of one split, but for the last one into the pool
      const auto pieces = static_cast<std::size_t>(size);
      std::vector<Tensor> split_once = split(x.t, 1, axis);
      Dual last;
      for (std::size_t i = 0; i < pieces; ++i) {
        last = moved(x, [&](const Tensor& t) {
          return slice(t, axis, static_cast<std::int64_t>(i), static_cast<std::int64_t>(i) + 1);
        });
        last.t = split_once[i];
        if (i + 1 < pieces) pool_.push_back(last);
      }
      return last;
    }
  }
}

Dual Program::in_place() {
  const Dual x = any();
  Dual y;
  switch (rng_.below(5)) {
    case 0: {  // of a result that nobody else sees
      const Dual other = any_of(x.t.shape());
      Tensor fresh = x.t * 0.5;
      mul_(fresh, other.t);
      y = multiplied(x, other, {});
      for (std::size_t i = 0; i < y.value.size(); ++i) {
        y.value[i] *= 0.5;
        y.tangent[i] *= 0.5;
      }
      sin_(fresh);
      y = map(
          y, {}, [](double v) { return std::sin(v); }, [](double v) { return std::cos(v); });
      y.t = std::move(fresh);
      return y;
    }
    case 1: {  // of values that were not recorded before
      const Dual plain = dual_constant(x.t.shape(), rng_);
      y = added(plain, x, {});
      y.t = plain.t.clone();
      add_(y.t, x.t);
      return y;
    }
    case 2: {
      y = added(x, x, {});
      Tensor fresh = x.t * 1.0;
      add_(fresh, fresh);
      y.t = std::move(fresh);
      return y;
    }
    case 3: {
      y = x;
      y.t = zeros(x.t.shape(), f64);
      copy_(y.t, x.t);
      return y;
    }
    default: {  // a broadcast copy
      Shape wide = x.t.shape();
      if (wide.size() == 3) wide.erase(0);
      if (wide.size() != x.t.rank()) return sine(x);
      wide.insert(0, 2);
      y = moved(x, [&](const Tensor& t) {
        const NoGrad guard;
        return expand(t, wide);
      });
      y.t = zeros(wide, f64);
      copy_(y.t, x.t);
      return y;
    }
  }
}

Dual Program::with_list() {
  switch (rng_.below(3)) {
    case 0: {
      const Dual first = any_of_rank(static_cast<int>(1 + rng_.below(2)));
      std::vector<Dual> parts = {first};
      for (std::int64_t i = rng_.below(5); i > 0; --i) parts.push_back(any_of(first.t.shape()));
      std::vector<Tensor> tensors;
      for (const Dual& p : parts) tensors.push_back(p.t);
      const Dual all = joined(parts, cat(tensors));
      const std::int64_t keep = std::min<std::int64_t>(3, all.t.size(0));
      return moved(all, [&](const Tensor& t) { return slice(t, 0, 0, keep); });
    }
    case 1: {
      const Dual first = any_of_rank(static_cast<int>(rng_.below(3)));
      std::vector<Dual> parts = {first, any_of(first.t.shape())};
      if (rng_.below(2)) parts.push_back(first);
      std::vector<Tensor> tensors;
      for (const Dual& p : parts) tensors.push_back(p.t);
      return joined(parts, stack(tensors));
    }
    default: {  // x W1ᵀ, relu, W2ᵀ: the weights are of the pool, the second with a bias
      const Dual x = any_of_rank(2);
      const Dual w1 = any_of({2, x.t.size(1)}), w2 = any_of({3, 2}), bias = any_of({3});
      const std::vector<Tensor> weights = {w1.t, w2.t}, biases = {Tensor(), bias.t};
      const Tensor y = mlp(x.t, weights, biases);
      Dual h = product(x, w1, x.t);
      h = map(
          h, zeros({x.t.size(0), 2}, f64), [](double v) { return v > 0 ? v : 0; },
          [](double v) { return v > 0 ? 1.0 : 0.0; });
      const Dual wide = moved(bias, [&](const Tensor& t) {
        const NoGrad guard;
        return expand(t, y.shape());
      });
      return added(product(h, w2, {}), wide, y);
    }
  }
}

/// a*b + c, where some of the three may be the same tensor.
Dual Program::custom_of_three() {
  const Dual a = any(), b = rng_.below(3) == 0 ? a : any_of(a.t.shape()), c = any_of(a.t.shape());
  Tensor y;
  {
    const NoGrad guard;
    y = a.t * b.t + c.t;
  }
  const Tensor z =
      custom("a*b+c", {a.t, b.t, c.t}, y, {a.t, b.t}, [](const CustomBackward& backward) {
        return std::vector<Tensor>{backward.grad * backward.saved[1],
                                   backward.grad * backward.saved[0], backward.grad};
      });
  return added(multiplied(a, b, {}), c, z);
}

}  // namespace

TEST_CASE("random graphs: the gradients of 10,000 agree with dual numbers", "[autograd][long]") {
  std::map<std::string, int> used;
  int hooks = 0;
  for (std::uint64_t seed = 1; seed <= 10'000; ++seed) {
    std::string fault;
    try {
      Program program(seed);
      fault = program.check();
      for (const auto& [name, n] : program.used()) used[name] += n;
      hooks += program.hooks();
    } catch (const Error& e) {
      fault = e.what();
    }
    if (!fault.empty()) FAIL("random graph of seed " << seed << ": " << fault);
  }
  // Every way of recording took part.
  CHECK(used.size() == 8);
  for (const auto& [name, n] : used) {
    INFO(name);
    CHECK(n > 10'000);
  }
  CHECK(hooks > 10'000);
}

// The call of a module: any signature, hooks, autocast, and the path that errors name.
#include <algorithm>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "firn/firn.h"
#include "message_of.h"
#include "support/catch.h"
#include "support/values.h"

using namespace firn;
using firn::testing::expect_close;
using firn::testing::expect_same;
using firn::testing::message_of;
using firn::testing::values_of;

namespace {

struct Attention : nn::ModuleOf<Attention> {
  nn::Linear q{4, 4}, k{4, 4}, v{4, 4};
  FIRN_MEMBERS(q, k, v)
  Tensor forward(const Tensor& x, const Tensor& memory, const Tensor& mask = {}) {
    Tensor scores = matmul(q(x), k(memory).transpose(-2, -1)) * 0.5;
    if (mask.defined()) scores = scores + mask;
    return matmul(softmax(scores, -1), v(memory));
  }
};

using State = std::pair<Tensor, Tensor>;
struct Cell : nn::ModuleOf<Cell> {
  nn::Linear in{3, 3};
  FIRN_MEMBERS(in)
  std::tuple<Tensor, State> forward(const Tensor& x, const State& state) {
    const Tensor h = tanh(in(x) + state.first);
    return {h, {h, state.second + h}};
  }
};

/// The encoder of a variational auto-encoder: one tensor in, two out.
struct Encoder : nn::ModuleOf<Encoder> {
  nn::Linear hidden{4, 8}, mu{8, 2}, log_var{8, 2};
  FIRN_MEMBERS(hidden, mu, log_var)
  std::pair<Tensor, Tensor> forward(Tensor x) {
    x = relu(hidden(x));
    return {mu(x), log_var(x)};
  }
};

struct Block : nn::Module {
  Attention attend;
  nn::Linear out{4, 4};
  FIRN_MEMBERS(attend, out)
  Tensor forward(const Tensor& x) override { return out(x + attend(x, x)); }
};

struct Model : nn::Module {
  nn::Linear in{2, 4};
  std::vector<Block> blocks{2};
  FIRN_MEMBERS(in, blocks)
  Tensor forward(const Tensor& x) override { return blocks[1](blocks[0](in(x))); }
};

Tensor input(const Shape& shape) {
  Generator g(3);
  return randn(shape, {.generator = &g});
}

}  // namespace

TEST_CASE("a module of several inputs is called with them, and with default arguments") {
  Attention attend;
  const Tensor x = input({2, 5, 4}), memory = input({2, 3, 4}), mask = input({5, 3});
  expect_same("all", values_of(attend(x, memory, mask)),
              values_of(attend.forward(x, memory, mask)));
  expect_same("two", values_of(attend(x, memory)), values_of(attend.forward(x, memory)));
  CHECK(attend.parameters().size() == 6);
  attend(x, memory).sum().backward();
  for (const Tensor& p : attend.parameters()) CHECK(p.grad().defined());
}

TEST_CASE("a module may take and return structures, numbers and losses") {
  Cell cell;
  auto [y, state] = cell(input({2, 3}), State{zeros({2, 3}), zeros({2, 3})});
  expect_same("state", values_of(y), values_of(state.second));

  struct Scaled : nn::ModuleOf<Scaled> {
    nn::Linear fc{2, 2};
    FIRN_MEMBERS(fc)
    Loss forward(const Tensor& x, double factor, std::optional<Tensor> target) {
      return mse_loss(fc(x) * factor, target ? *target : zeros_like(x));
    }
  } scaled;
  CHECK(scaled(ones({1, 2}), 0.0, std::nullopt).item() == 0);
  CHECK(scaled(ones({1, 2}), 0.0, ones({1, 2})).item() == 1);
}

TEST_CASE("a module of several inputs has no forward(const Tensor&), one with such a forward has") {
  Attention attend;
  nn::Module& base = attend;
  CHECK(message_of([&] {
          base(ones({1, 4}));
        }).find("[Attention] has no forward(const Tensor&)") == 0);
  struct Single : nn::ModuleOf<Single> {
    nn::Linear fc{2, 3};
    FIRN_MEMBERS(fc)
    Tensor forward(const Tensor& x) override { return fc(x); }
  };
  nn::Sequential net{Single(), nn::ReLU()};
  CHECK(net(ones({5, 2})).shape() == Shape{5, 3});
}

TEST_CASE("a call with arguments that forward() does not take is no candidate") {
  static_assert(std::is_invocable_v<Attention&, const Tensor&, const Tensor&>);
  static_assert(!std::is_invocable_v<Attention&, int>);
  static_assert(!std::is_invocable_v<nn::Linear&, const Tensor&, const Tensor&>);
  static_assert(!std::is_invocable_v<nn::LSTM&, const std::vector<Tensor>&>);
  // Functions that take a module or a std::function are overloads of each other.
  using Function = std::function<std::vector<Tensor>(const std::vector<Tensor>&)>;
  static_assert(!std::is_convertible_v<nn::LSTM&, Function>);
  CHECK(std::is_convertible_v<nn::LSTM&, std::function<Tensor(const Tensor&)>>);
}

TEST_CASE("set_autocast holds in a call of several inputs, and in nothing after it") {
  Attention attend;
  attend.set_autocast(bf16);
  const Tensor x = input({2, 5, 4});
  CHECK(attend(x, x).dtype() == bf16);
  CHECK(attend.q(x).dtype() == f32);
  CHECK_FALSE(autocast_dtype().has_value());
  CHECK_THROWS_AS(attend(x, ones({3, 7})), Error);
  CHECK_FALSE(autocast_dtype().has_value());
}

TEST_CASE("a module of one tensor that returns two takes it by value") {
  Encoder encode;
  const Tensor x = input({3, 4}).set_requires_grad();
  const auto [mu, log_var] = encode(x);
  expect_same("mu", values_of(mu), values_of(encode.mu(relu(encode.hidden(x)))));
  CHECK(log_var.shape() == Shape{3, 2});
  (mu + log_var).sum().backward();
  CHECK(x.grad().defined());
  CHECK(encode.hidden.weight.grad().defined());

  std::size_t seen = 0;
  const auto id = encode.add_forward_hook(
      [&](nn::Module&, const nn::CallTensors& in, const nn::CallTensors& out) {
        seen = 10 * in.size() + out.size();
        out[1] = out[1] * 0.0;
      });
  CHECK(values_of(encode(x).second) == std::vector<double>(6));
  CHECK(seen == 12);
  encode.remove_hook(id);
  encode.set_autocast(bf16);
  CHECK(encode(x).first.dtype() == bf16);
  CHECK(nn::clone(encode)(x).second.dtype() == bf16);
  CHECK(message_of([&] { encode(ones({3, 5})); }).find("[linear] hidden (Linear): ") == 0);
  CHECK(encode.summary(zeros({3, 4})).find(": [3, 4] -> [3, 2], [3, 2]\n") != std::string::npos);
  CHECK(encode.summary(Shape{3, 4}).find("[3, 4] -> [3, 2], [3, 2]\n") != std::string::npos);
}

TEST_CASE("set_autocast and hooks are refused where a call operator of its own would ignore them") {
  struct Own : nn::Module {
    nn::Linear fc{2, 2};
    FIRN_MEMBERS(fc)
    Tensor operator()(const Tensor& a, const Tensor& b) { return fc(a + b); }
  } own;
  struct OwnSingle : nn::Module {
    nn::Linear fc{2, 2};
    FIRN_MEMBERS(fc)
    Tensor operator()(const Tensor& a) { return fc(a); }
  } single;
  for (nn::Module* m : {static_cast<nn::Module*>(&own), static_cast<nn::Module*>(&single)}) {
    const std::string text = message_of([&] { m->set_autocast(bf16); });
    INFO(text);
    CHECK(text.find("has a call operator of its own") != std::string::npos);
    CHECK(text.find("nn::ModuleOf") != std::string::npos);
    CHECK_NOTHROW(m->set_autocast(std::nullopt));
    CHECK_THROWS_AS(m->add_forward_hook([](auto&&...) {}), Error);
    CHECK_THROWS_AS(m->add_forward_pre_hook([](auto&&...) {}), Error);
  }
  nn::Linear(2, 2).set_autocast(bf16);
}

TEST_CASE("forward hooks see inputs and outputs of every signature, and may replace them") {
  Attention attend;
  const Tensor x = input({2, 5, 4}), memory = input({2, 3, 4});
  const Tensor doubled = attend(x * 2.0, memory);
  std::vector<std::string> seen;
  const auto before = attend.add_forward_pre_hook([&](nn::Module& m, const nn::CallTensors& in) {
    seen.push_back(m.type_name() + " " + std::to_string(in.size()));
    in[0] = in[0] * 2.0;
  });
  const auto after = attend.add_forward_hook(
      [&](nn::Module& m, const nn::CallTensors& in, const nn::CallTensors& out) {
        CHECK(&m == &attend);
        CHECK(out.size() == 1);
        CHECK_THROWS_WITH(out[1],
                          "[CallTensors] there is no tensor 1 among 1; hint: they count from 0");
        seen.push_back("after " + std::to_string(in.size()));
        out[0] = out[0] + 1.0;
      });
  const Tensor y = attend(x, memory, Tensor());
  CHECK(seen == std::vector<std::string>{"Attention 3", "after 3"});
  expect_close("replaced", values_of(y), values_of(doubled + 1.0), 1e-6);
  attend.remove_hook(before);
  attend.remove_hook(after);
  expect_same("removed", values_of(attend(x, memory)), values_of(attend.forward(x, memory)));
  CHECK(seen.size() == 2);
  CHECK_THROWS_AS(attend.remove_hook(after), Error);
}

TEST_CASE("forward hooks of a module with one input, inside of others, with gradients") {
  nn::Sequential net{nn::Linear(2, 3), nn::ReLU(), nn::Linear(3, 1)};
  std::vector<Shape> shapes;
  for (std::size_t i = 0; i < net.size(); ++i)
    net[i].add_forward_hook(
        [&](nn::Module&, const nn::CallTensors& in, const nn::CallTensors& out) {
          CHECK(in.size() == 1);
          shapes.push_back(out[0].shape());
        });
  net[1].add_forward_pre_hook(
      [](nn::Module&, const nn::CallTensors& in) { in[0] = in[0].detach(); });
  net(input({4, 2})).sum().backward();
  CHECK(shapes == std::vector<Shape>{{4, 3}, {4, 3}, {4, 1}});
  CHECK_FALSE(net.at<nn::Linear>(0).weight.grad().defined());  // detached behind it
  CHECK(net.at<nn::Linear>(2).weight.grad().defined());
  Cell cell;
  std::size_t tensors = 0;
  cell.add_forward_hook([&](nn::Module&, const nn::CallTensors& in, const nn::CallTensors& out) {
    tensors = 10 * in.size() + out.size();
  });
  cell(input({2, 3}), State{zeros({2, 3}), zeros({2, 3})});
  CHECK(tensors == 33);
}

TEST_CASE("forward hooks see the states of recurrent layers and cells, and may replace them") {
  nn::LSTM lstm(3, 2);
  nn::LSTMCell cell(3, 2);
  std::vector<std::size_t> inputs, outputs;
  const nn::ForwardHook hook = [&](nn::Module&, const nn::CallTensors& in,
                                   const nn::CallTensors& out) {
    inputs.push_back(in.size());
    outputs.push_back(out.size());
    out[0] = out[0] * 0.0;
  };
  lstm.add_forward_hook(hook);
  cell.add_forward_hook(hook);
  const NoGrad guard;
  const Tensor x = randn({4, 5, 3}), h = randn({1, 5, 2}), c = randn({1, 5, 2});
  const RecurrentResult all = lstm(x, nn::RecurrentInput{.h = h, .c = c});
  const nn::RecurrentInput without;
  lstm(x, without);
  const nn::CellState next = cell(x[0], nn::CellState{});
  CHECK(inputs == std::vector<std::size_t>{3, 1, 1});
  CHECK(outputs == std::vector<std::size_t>{3, 3, 2});
  CHECK(count_nonzero(all.output).item() == 0);
  CHECK(count_nonzero(next.h).item() == 0);
  CHECK(count_nonzero(next.c).item() > 0);
}

TEST_CASE("an empty forward hook is refused with what to give") {
  nn::Linear layer(2, 2);
  CHECK(message_of([&] { layer.add_forward_hook(nn::ForwardHook()); }) ==
        "[Module::add_forward_hook] the hook is empty; hint: give a function of the module, its "
        "inputs and its outputs");
  CHECK(message_of([&] { layer.add_forward_pre_hook(nn::ForwardPreHook()); }) ==
        "[Module::add_forward_pre_hook] the hook is empty; hint: give a function of the module and "
        "its inputs");
}

TEST_CASE("hooks may be added and removed by hooks, move along, and are not copied") {
  nn::Linear layer(2, 2);
  int first = 0, second = 0;
  nn::HookId self = 0;
  self = layer.add_forward_hook([&](nn::Module& m, auto&&...) {
    ++first;
    m.remove_hook(self);
    m.add_forward_hook([&](auto&&...) { ++second; });
  });
  layer(ones({1, 2}));
  CHECK(first == 1);
  CHECK(second == 0);  // from the next call on
  nn::Linear copy = layer, moved = std::move(layer);
  copy(ones({1, 2}));
  CHECK(second == 0);
  moved(ones({1, 2}));
  CHECK(first == 1);
  CHECK(second == 1);
  CHECK_THROWS_AS(moved.remove_hook(self), Error);  // no other hook has its id
}

TEST_CASE("a hook that pushes modules to the Sequential being called: they run in the same call") {
  nn::Sequential net{nn::ReLU()};
  for (int i = 0; i < 3; ++i) net.push_back(nn::ReLU());
  net[0].add_forward_hook([&](auto&&...) {
    for (int i = 0; i < 50; ++i) net.push_back(nn::Tanh());
  });
  const Tensor y = net(ones({1}));
  CHECK(net.size() == 54);
  CHECK(y.item() < 0.2);  // tanh 50 times
}

TEST_CASE("a forward() that writes to its argument does so with hooks, too") {
  struct Writes : nn::ModuleOf<Writes> {
    FIRN_MEMBERS()
    void forward(const Tensor& x, Tensor& state) { state = state + x; }
  } writes;
  Tensor state = zeros({1});
  writes(ones({1}), state);
  writes.add_forward_hook(
      [](nn::Module&, const nn::CallTensors&, const nn::CallTensors& out) { CHECK(out.empty()); });
  writes(ones({1}), state);
  CHECK(state.item() == 2);
}

TEST_CASE("summary runs a module with its inputs", "[host]") {
  const Attention attend;
  const std::string text = attend.summary(zeros({2, 5, 4}), zeros({2, 3, 4}));
  CHECK(text.find("Attention, f32 cpu: [2, 5, 4], [2, 3, 4] -> [2, 5, 4]\n") == 0);
  CHECK(text.find("k       Linear  [2, 3, 4]") != std::string::npos);
  const Cell cell;
  const std::string pair = cell.summary(zeros({1, 3}), State{zeros({1, 3}), zeros({1, 3})});
  CHECK(pair.find("Cell, f32 cpu: [1, 3], [1, 3], [1, 3] -> [1, 3], [1, 3], [1, 3]\n") == 0);
  CHECK(attend.summary().find("Attention, f32 cpu\n") == 0);
}

TEST_CASE("arguments that cannot be copied are passed on as they come") {
  struct Takes : nn::ModuleOf<Takes> {
    FIRN_MEMBERS()
    Tensor forward(const Tensor& x, std::tuple<std::unique_ptr<Tensor>> more, nn::Module& inner) {
      return inner(x) + *std::get<0>(more);
    }
  } takes;
  nn::ReLU relu;
  takes.add_forward_hook([](nn::Module&, const nn::CallTensors& in, const nn::CallTensors&) {
    CHECK(in.size() == 1);
  });
  CHECK(takes(ones({1}), std::tuple(std::make_unique<Tensor>(ones({1}))), relu).item() == 2);
}

// ---- Paths in errors ----

TEST_CASE("an error names the path of the module that failed, once", "[host]") {
  Model model;
  const std::string text = message_of([&] { model(ones({1, 3})); });
  CHECK(text.find("[linear] in (Linear): input [1, 3]") == 0);
  model.blocks[1].attend.k = nn::Linear(5, 4);
  const Tensor x = ones({1, 2, 2});
  const std::string deep = message_of([&] { model(x); });
  CHECK(deep.find("[linear] blocks.1.attend.k (Linear): input [1, 2, 4]") == 0);
  try {
    model(x);
  } catch (const Error& e) {
    CHECK(e.module() == "blocks.1.attend.k (Linear)");
    CHECK(e.op() == "linear");
  }
  nn::Sequential net{nn::Linear(2, 3), nn::ReLU(), nn::Linear(4, 1)};
  CHECK(message_of([&] { net(ones({1, 2})); }).find("[linear] 2 (Linear): ") == 0);
  CHECK(message_of([&] { net.at<nn::Linear>(2)(ones({1, 2})); }).find("[linear] input ") == 0);
  CHECK_NOTHROW(nn::Linear(2, 3)(ones({1, 2})));  // the failed call is over
}

TEST_CASE("an error in a forward() of one's own, and in a module that is no member", "[host]") {
  struct Inner : nn::Module {
    FIRN_MEMBERS()
    Tensor forward(const Tensor& x) override { return x + ones({7}); }
  };
  struct Outer : nn::Module {
    Inner inner;
    nn::Linear forgotten{3, 3};
    FIRN_MEMBERS(inner)
    Tensor forward(const Tensor& x) override { return x.size(0) == 2 ? forgotten(x) : inner(x); }
  } outer;
  CHECK(message_of([&] { outer(ones({1, 2})); }).find("[add] inner (Inner): ") == 0);
  CHECK(message_of([&] {
          outer(ones({2, 2}));
        }).find("[linear] Linear(3, 3), which is no member of Outer: ") == 0);
}

TEST_CASE("errors keep their type on the way through modules", "[host]") {
  struct Fails : nn::Module {
    int how = 0;
    FIRN_MEMBERS()
    Tensor forward(const Tensor& x) override {
      if (how == 0) throw OutOfMemory("no memory", 77);
      if (how == 1) throw IoError("read", "a/path", "is not there");
      if (how == 2) throw std::runtime_error("of another library");
      return x;
    }
  };
  nn::Sequential net{nn::ReLU(), Fails()};
  try {
    net(ones({1}));
    FAIL("no error");
  } catch (const OutOfMemory& e) {
    CHECK(e.requested_bytes() == 77);
    CHECK(std::string(e.what()).find("[allocate] 1 (Fails): no memory; hint: ") == 0);
  }
  net.at<Fails>(1).how = 1;
  try {
    net(ones({1}));
    FAIL("no error");
  } catch (const IoError& e) {
    CHECK(e.path() == "a/path");
    CHECK(std::string(e.what()) == "[read] 1 (Fails): a/path: is not there");
  }
  net.at<Fails>(1).how = 2;
  CHECK_THROWS_AS(net(ones({1})), std::runtime_error);
  net.at<Fails>(1).how = 3;
  CHECK_NOTHROW(net(ones({1})));
}

// ---- Messages ----

TEST_CASE("a layer that was moved from says so when it is called", "[host]") {
  nn::Linear linear(2, 2);
  nn::LayerNorm norm(2);
  nn::Conv2d conv(1, 1, 1);
  nn::Sequential net{nn::ReLU()};
  const nn::Linear a = std::move(linear);
  const nn::LayerNorm b = std::move(norm);
  const nn::Conv2d c = std::move(conv);
  const nn::Sequential d = std::move(net);
  const Tensor x = ones({1, 1, 1, 2});
  for (nn::Module* m : std::vector<nn::Module*>{&linear, &norm, &conv, &net}) {
    const std::string text = message_of([&] { (*m)(x); });
    INFO(text);
    CHECK(text.find("was moved from") != std::string::npos);
  }
  linear = nn::Linear(2, 3);
  CHECK(linear(x).shape() == Shape{1, 1, 1, 3});
}

TEST_CASE("an input of another dtype than the model: path, both dtypes and the fix", "[host]") {
  nn::Sequential net{nn::Flatten(), nn::Linear(4, 3, {.dtype = f16})};
  const std::string text = message_of([&] { net(zeros({2, 4}, f32, Device::cpu())); });
  CHECK(text ==
        "[linear] 1 (Linear): dtypes differ: [2, 4] f32 cpu and [3, 4] f16 cpu; hint: cast the "
        "first, .to(firn::f16), or the second, .to(firn::f32), or compute under Autocast");
  nn::Sequential conv{nn::Conv2d(1, 2, 3, {.dtype = f16})};
  CHECK(message_of([&] { conv(zeros({1, 1, 4, 4})); }).find(".to(firn::f16)") != std::string::npos);
  nn::MLP mlp({4, 3}, {.dtype = bf16});
  CHECK(message_of([&] { mlp(zeros({1, 4})); }).find(".to(firn::bf16)") != std::string::npos);
  nn::LSTM lstm(2, 2);
  CHECK(message_of([&] { lstm(zeros({3, 1, 2}, f64)); }).find("[LSTM] dtypes differ") == 0);
  nn::GRUCell cell(2, 2);
  CHECK(message_of([&] { cell(zeros({1, 2}, f64), Tensor()); }).find("[GRUCell] dtypes") == 0);
}

TEST_CASE("layers refuse a dtype without gradients by their own name", "[host]") {
  const auto text = [](const char* layer) {
    return std::string("[") + layer + "] parameters have gradients, and dtype = i8 has none";
  };
  CHECK(message_of([] { nn::Linear(2, 2, {.dtype = i8}); }).find(text("Linear")) == 0);
  CHECK(message_of([] { nn::Conv2d(2, 2, 3, {.dtype = i8}); }).find(text("Conv2d")) == 0);
  CHECK(message_of([] { nn::Embedding(2, 2, {.dtype = i8}); }).find(text("Embedding")) == 0);
  CHECK(message_of([] { nn::LayerNorm(2, {.dtype = i8}); }).find(text("LayerNorm")) == 0);
}

TEST_CASE("images without a channel axis: the way to give them one", "[host]") {
  nn::Conv2d conv(1, 8, 3);
  CHECK(message_of([&] {
          conv(zeros({5, 28, 28}));
        }).find("x.unsqueeze(1) makes") != std::string::npos);
  CHECK(conv(zeros({5, 28, 28}).unsqueeze(1)).shape() == Shape{5, 8, 26, 26});
  CHECK(conv(zeros({1, 28, 28})).shape() == Shape{8, 26, 26});  // one image
  nn::Conv2d rgb(3, 8, 3);
  CHECK(message_of([&] {
          rgb(zeros({5, 28, 28}));
        }).find("a batch has a first axis more") != std::string::npos);
  CHECK(message_of([&] {
          rgb(zeros({5, 28, 28, 3}));
        }).find("channels are axis 1") != std::string::npos);
}

TEST_CASE("the first call of a model takes time linear in its modules") {
  const auto seconds = [](int modules) {
    nn::Sequential net;
    for (int i = 0; i < modules; ++i) net.push_back(nn::ReLU());
    const Tensor x = ones({1});
    const auto start = std::chrono::steady_clock::now();
    net(x);
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  };
  seconds(2000);  // paths have their numbers
  double ratio = 1e9;
  for (int attempt = 0; attempt < 5 && ratio > 6; ++attempt)
    ratio = std::min(ratio, seconds(2000) / seconds(500));
  CHECK(ratio < 8);  // 4, and 16 if each module searches the tree for itself
}

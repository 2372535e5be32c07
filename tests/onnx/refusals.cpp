// What export_onnx() refuses, and what an error names. No refusal leaves a file.
#include <filesystem>
#include <string>
#include <vector>

#include "data/files.h"
#include "firn/firn.h"
#include "onnx/graph.h"
#include "support/catch.h"
#include "support/values.h"

namespace firn::testing {
namespace {

using test::TempFolder;
using Tensors = std::vector<Tensor>;
using Function = std::function<Tensors(const Tensors&)>;

/// The error of the export of a function of one tensor [4, 3].
std::string refused(const Function& f, const Tensors& inputs = {ones({4, 3})},
                    const io::OnnxOptions& options = {}) {
  const TempFolder folder;
  const std::string path = folder.file("m.onnx");
  const std::string error = error_of([&] { io::export_onnx(path, f, inputs, options); });
  CHECK(std::filesystem::is_empty(std::filesystem::path(path).parent_path()));
  return error;
}
std::string refused(const std::function<Tensor(const Tensor&)>& f) {
  return refused(Function([&](const Tensors& in) { return Tensors{f(in[0])}; }));
}

bool says(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}
#define CHECK_SAYS(text, part)       \
  do {                               \
    const std::string error_ = text; \
    INFO(error_);                    \
    CHECK(says(error_, part));       \
  } while (false)

}  // namespace

TEST_CASE("onnx refuses what draws random numbers, and draws none", "[host]") {
  const RandomKey before = default_generator().get();
  CHECK_SAYS(refused([](const Tensor& x) { return dropout(x, 0.5); }), "dropout has no place");
  CHECK_SAYS(refused([](const Tensor& x) { return x + randn({3}); }), "draws random numbers");
  CHECK_SAYS(refused([](const Tensor& x) { return x + rand({3}); }), "rand");
  CHECK_SAYS(refused([](const Tensor& x) { return index_select(x, 0, randperm(2)); }), "randperm");
  CHECK(default_generator().get().offset == before.offset);
}

TEST_CASE("onnx refuses a layer in training mode that only a function calls") {
  nn::Sequential net{nn::Linear(3, 4), nn::BatchNorm1d(4), nn::Dropout(0.5)};
  CHECK_SAYS(refused([&](const Tensor& x) { return net(x); }), "batch_norm has no place");
  const std::vector<NamedTensor> buffers = net.named_buffers();
  REQUIRE(buffers[0].name == "1.running_mean");
  CHECK(buffers[0].tensor.to_vector<float>() == std::vector<float>(4));
  CHECK_SAYS(refused([](const Tensor& x) { return batch_norm(x); }), "model.eval()");
}

TEST_CASE("onnx refuses losses and operations of users") {
  CHECK_SAYS(refused([](const Tensor& x) {
               return mse_loss(x, zeros({x.size(0), 3})).sum;
             }),
             "squared_error cannot be exported: it is a loss");
  CHECK_SAYS(refused([](const Tensor& x) { return cross_entropy(x, zeros({x.size(0)}, i64)).sum; }),
             "export the model without its loss");
  CHECK_SAYS(refused([](const Tensor& x) { return bincount(argmax(x)); }), "bincount");
  CHECK_SAYS(refused([](const Tensor& x) { return cumprod(x, 1); }), "cumprod");
  CHECK_SAYS(refused([](const Tensor& x) { return cummax(x, 1).values; }), "cummax");
  CHECK_SAYS(refused([](const Tensor& x) { return median(x, 1).values; }), "median");
  CHECK_SAYS(refused([](const Tensor& x) { return histogram(x, 3, {.low = 0, .high = 1}).hist; }),
             "histogram");
  CHECK_SAYS(refused([](const Tensor& x) {
               return scatter(x, 0, zeros({1, 3}, i64), 1.0);
             }),
             "scatter cannot be exported: ONNX leaves open");
  CHECK_SAYS(refused([](const Tensor& x) { return cast(searchsorted(sort(x).values, x), f32); }),
             "searchsorted");
  // Whatever its name: what it does with the elements is not known.
  for (const char* name : {"relu", "neg_", "clone", "batch_norm"})
    CHECK_SAYS(refused([name](const Tensor& x) {
                 const Tensor y = empty(x.shape(), f32);
                 for (std::int64_t i = 0; i < x.numel(); ++i)
                   y.data<float>()[i] = 2 * x.data<float>()[i];
                 return custom(name, {x}, y, {},
                               [](const CustomBackward& b) { return std::vector<Tensor>{b.grad}; });
               }),
               std::string(name) + " cannot be exported: its result is not that of recorded");
  CHECK_SAYS(refused([](const Tensor& x) { return topk(x, 2, -1, {.sorted = false}).values; }),
             "leave .sorted on");
}

TEST_CASE("onnx refuses a model that decides by the batch's size") {
  CHECK_SAYS(refused([](const Tensor& x) { return x.size(0) > 4 ? relu(x) : tanh(x); }),
             "operation 0 is tanh for a batch of 4 and relu for one of 5");
  CHECK_SAYS(refused([](const Tensor& x) { return x.size(0) > 4 ? relu(x) * 2 : relu(x); }),
             "the first that only one has is mul");
  CHECK_SAYS(refused([](const Tensor& x) { return x / static_cast<double>(x.size(0)); }),
             "a of div is 4 for a batch of 4 and 5 for one of 5");
  CHECK_SAYS(refused([](const Tensor& x) { return slice(x, 0, 1, x.size(0)); }), "no multiple");
  CHECK_SAYS(refused([](const Tensor& x) { return x + x.size(0) * ones({3}); }),
             "whose elements depend on the batch");
}

TEST_CASE("onnx refuses a part of the batch, whatever the example's size", "[host]") {
  for (const std::int64_t n : {1, 2, 3, 4, 15, 16, 17, 31, 64, 100}) {
    CAPTURE(n);
    const Tensors x = {ones({n, 3})};
    const auto refused_of = [&](const std::function<Tensor(const Tensor&)>& f) {
      return refused(Function([&](const Tensors& in) { return Tensors{f(in[0])}; }), x);
    };
    for (const std::int64_t part : {2, 3})
      CHECK_SAYS(refused_of([&](const Tensor& t) { return t.slice(0, 0, t.size(0) / part + 1); }),
                 "no multiple");
    CHECK_SAYS(refused_of([](const Tensor& t) {
                 return t.slice(0, 0, std::min<std::int64_t>(t.size(0), 8));
               }),
               "no multiple");
    CHECK_SAYS(refused_of([](const Tensor& t) { return t.size(0) < 9 ? relu(t) : tanh(t); }),
               "for a batch of");
    CHECK_SAYS(refused_of([](const Tensor& t) {
                 Tensor y = t;
                 for (std::int64_t i = 0; i < t.size(0) / 2; i += 2) y = y * 2;
                 return y;
               }),
               "operations for a batch of");
  }
}

TEST_CASE("onnx notices that elements were read on the host") {
  const Tensor x = arange(12, f32).reshape({4, 3});
  CHECK_SAYS(refused(Function([](const Tensors& in) {
                       return Tensors{in[0] + tensor(in[0].to_vector<float>(), in[0].shape())};
                     }),
                     {x}),
             "no recorded operation computes");
  CHECK_SAYS(
      refused(Function([](const Tensors& in) { return Tensors{in[0] * in[0][0].sum().item()}; }),
              {x}),
      "a of mul is 3 for a batch of 4 and 30 for one of 5");
  // The order of the rows does not matter to it.
  CHECK_SAYS(
      refused(Function([](const Tensors& in) { return Tensors{in[0] - min(in[0]).item()}; }), {x}),
      "and -9 for one of 5");
}

TEST_CASE("onnx refuses writes through views and to the model's state") {
  CHECK_SAYS(refused([](const Tensor& x) {
               const Tensor y = x * 2;
               select(y, 0, 0).fill_(1);
               return y;
             }),
             "whose memory fill_ has written through another tensor");
  CHECK_SAYS(refused([](const Tensor& x) {
               const Tensor y = x * 2;
               return y.as_strided({2, 2}, {1, 1}) + 1;
             }),
             "a view that no operation made");
  struct Counter : nn::Module {
    nn::Parameter count{zeros({3})};
    FIRN_MEMBERS(count)
    Tensor forward(const Tensor& x) override {
      const Tensor c = count.detach();
      c.copy_(c + 1);
      return x + c;
    }
  } net;
  const TempFolder folder;
  const std::string error = error_of([&] {
    io::export_onnx(folder.file("m.onnx"), net, ones({2, 3}));
  });
  CHECK_SAYS(error, "copy_ writes to \"count\", a part of the model's state");
  CHECK(net.count.to_vector<float>() == std::vector<float>{0, 0, 0});
}

TEST_CASE("onnx errors name the module") {
  struct Inner : nn::Module {
    Tensor forward(const Tensor& x) override { return bincount(argmax(x)); }
    FIRN_MEMBERS()
  };
  struct Outer : nn::Module {
    Inner inner;
    FIRN_MEMBERS(inner)
    Tensor forward(const Tensor& x) override { return inner(x); }
  } net;
  const TempFolder folder;
  const std::string error = error_of([&] {
    io::export_onnx(folder.file("m.onnx"), net, ones({2, 3}));
  });
  CHECK_SAYS(error, "inner");
  CHECK_SAYS(error, "the size of its result depends on the values");
}

TEST_CASE("onnx refuses bf16, names that clash, and batches that differ") {
  const Function same = [](const Tensors& in) { return Tensors{in[0] * 1}; };
  CHECK_SAYS(refused(same, {ones({2}, bf16)}), "net.to(firn::f32)");
  CHECK_SAYS(refused([](const Tensor& x) { return x.to(bf16).to(f32); }), "bf16");
  nn::Linear lowered(3, 2);
  lowered.set_autocast(bf16);
  CHECK_SAYS(refused([&](const Tensor& x) { return lowered(x); }), "set_autocast()");
  CHECK_SAYS(refused(same, {ones({2, 3})}, {.inputs = {"x"}, .outputs = {"x"}}),
             "\"x\" names two of");
  CHECK_SAYS(refused(same, {ones({2, 3})}, {.inputs = {"x", "y"}}), "2 names for 1 inputs");
  CHECK_SAYS(refused(same, {ones({2, 3}), ones({3})}), "inputs have 2 and 3 rows");
  CHECK_SAYS(refused(same, {ones({0, 3})}), "give one row at least");
  CHECK_SAYS(refused(same, {Tensor()}), "undefined");
  CHECK_SAYS(refused(Function([](const Tensors&) { return Tensors{}; })), "returned no tensor");
  CHECK_SAYS(refused(Function()), "the function is empty");
}

TEST_CASE("onnx: an error of the model in another batch says so, one in the examples' does not") {
  const Function four = [](const Tensors& in) { return Tensors{reshape(in[0], {4, 3})}; };
  CHECK_SAYS(refused(four), "the model fails for a batch of 5: [reshape]");
  const std::string wrong = refused([](const Tensor& x) { return reshape(x, {5, 5}); });
  CHECK(wrong.starts_with("[reshape]"));
  const TempFolder folder;
  io::export_onnx(folder.file("m.onnx"), four, {ones({4, 3})}, {.dynamic_batch = false});
  CHECK(std::filesystem::exists(folder.file("m.onnx")));
}

TEST_CASE("onnx refuses more than 2 GiB before it makes a copy") {
  io::onnx::Graph graph;
  graph.initializer("weight", ones({1}).expand({600'000'000}));
  const std::string error = error_of([&] { graph.encode(""); });
  CHECK_SAYS(error, "2400000000 bytes of parameters and constants");
}

TEST_CASE("onnx: a failed export leaves the old file") {
  const TempFolder folder;
  const std::string path = folder.file("m.onnx");
  test::write_file(path, "old");
  nn::Linear net(3, 2);
  CHECK_THROWS_AS(io::export_onnx(path, net, ones({2, 4})), Error);
  CHECK(test::read_file(path) == "old");
  CHECK_THROWS_AS(io::export_onnx(folder.file("none/m.onnx"), net, ones({2, 3})), IoError);
  io::export_onnx(path, net, ones({2, 3}));
  CHECK(test::read_file(path).size() > 50);
}

TEST_CASE("onnx refuses recurrent layers that its nodes cannot express") {
  nn::LSTM projected(3, 4, {.batch_first = true, .projection = 2});
  CHECK_SAYS(refused([&](const Tensor& x) {
               return projected(reshape(x, {-1, 1, 3}));
             }),
             "its LSTM has a projection");
  // Axis 0, the steps, would be the batch.
  nn::GRU steps_first(3, 4);
  CHECK_SAYS(refused([&](const Tensor& x) {
               return steps_first(reshape(x, {-1, 1, 3}));
             }),
             "is no multiple of it");
}

}  // namespace firn::testing

// What export_onnx() writes: nodes, names, constants, and sizes that follow the batch. Whether the
// numbers are right is what `scripts/interop onnx` asks ONNX Runtime.
#include <algorithm>
#include <string>
#include <vector>

#include "data/files.h"
#include "firn/firn.h"
#include "onnx/reader.h"
#include "support/catch.h"

namespace firn::testing {
namespace {

using test::TempFolder;
using Tensors = std::vector<Tensor>;
using Texts = std::vector<std::string>;
using Integers = std::vector<std::int64_t>;

OnnxFile exported(const std::function<Tensors(const Tensors&)>& f, const Tensors& inputs,
                  const io::OnnxOptions& options = {}) {
  const TempFolder folder;
  io::export_onnx(folder.file("m.onnx"), f, inputs, options);
  return onnx_file(test::read_file(folder.file("m.onnx")));
}
OnnxFile exported(nn::Module& m, const Tensor& input, const io::OnnxOptions& options = {}) {
  const TempFolder folder;
  io::export_onnx(folder.file("m.onnx"), m, input, options);
  return onnx_file(test::read_file(folder.file("m.onnx")));
}

struct Net : nn::Module {
  nn::Linear in{3, 4};
  nn::Sequential rest{nn::Linear(4, 2), nn::Dropout(0.5)};
  FIRN_MEMBERS(in, rest)
  Tensor forward(const Tensor& x) override { return rest(relu(in(x))); }
};

}  // namespace

TEST_CASE("onnx: a model's file has its nodes, parameters and ends") {
  Net net;
  const OnnxFile f = exported(net, randn({5, 3}), {.doc = "a test"});
  CHECK(f.ir_version == 8);
  CHECK(f.opset == 17);
  CHECK(f.producer == "firn");
  CHECK(f.doc == "a test");
  CHECK(f.types() == Texts{"Gemm", "Relu", "Gemm"});
  CHECK(f.nodes[0].name == "/in/Gemm");
  CHECK(f.nodes[1].name == "/Relu");
  CHECK(f.nodes[2].name == "/rest/0/Gemm");
  CHECK(f.nodes[0].inputs == Texts{"input", "in.weight", "in.bias"});
  CHECK(f.nodes[0].integers.at("transB") == Integers{1});
  CHECK(f.nodes[2].outputs == Texts{"output"});
  REQUIRE(f.inputs.size() == 1);
  CHECK(f.inputs[0].name == "input");
  CHECK(f.inputs[0].dtype == 1);
  CHECK(f.inputs[0].shape == Texts{"batch", "3"});
  CHECK(f.outputs[0].name == "output");
  CHECK(f.outputs[0].shape == Texts{"batch", "2"});
  REQUIRE(f.initializers.size() == 4);
  const OnnxTensor& weight = f.initializers.at("in.weight");
  CHECK(weight.shape == Integers{4, 3});
  CHECK(weight.floats() == net.in.weight.to_vector<float>());
}

TEST_CASE("onnx: einsum is exported through its matrix products") {
  const Tensor w = randn({4, 2});
  const OnnxFile f = exported(
      [&](const Tensors& in) {
        return Tensors{einsum("nij,jk->nki", {in[0], w})};
      },
      {randn({5, 3, 4})});
  const Texts types = f.types();
  CHECK(std::count(types.begin(), types.end(), "MatMul") == 1);
  CHECK(f.outputs[0].shape == Texts{"batch", "2", "3"});
}

TEST_CASE("onnx: a recurrent layer is one node, which multiplies the inputs too") {
  nn::LSTM lstm(3, 2, {.batch_first = true});
  const OnnxFile f = exported(lstm, randn({5, 4, 3}));
  const Texts types = f.types();
  CHECK(std::count(types.begin(), types.end(), "LSTM") == 1);
  CHECK(std::count(types.begin(), types.end(), "Gemm") == 0);
  const OnnxNode& node = f.node("LSTM");
  CHECK(node.integers.at("hidden_size") == Integers{2});
  CHECK(node.texts.at("direction") == "forward");
  REQUIRE(node.inputs.size() == 6);  // without c, which begins with zeros
  CHECK(node.inputs[4].empty());
  for (const char* name : {"weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0"})
    CHECK(f.initializers.contains(name));
  CHECK(f.outputs[0].shape == Texts{"batch", "4", "2"});

  nn::RNN rnn(3, 2, {.batch_first = true, .relu = true});
  CHECK(exported(rnn, randn({5, 4, 3})).node("RNN").texts.at("activations") == "Relu");
  nn::GRU gru(3, 2, {.batch_first = true});
  CHECK(exported(gru, randn({5, 4, 3})).node("GRU").integers.at("linear_before_reset") ==
        Integers{1});
}

TEST_CASE("onnx: what no output depends on is left out") {
  const auto f = [](const Tensors& in) {
    const Tensor unused = matmul(exp(in[0]), ones({3, 7}));
    const Loss loss = cross_entropy(unused, zeros({in[0].size(0)}, i64));  // has no rule
    return Tensors{relu(in[0])};
  };
  const OnnxFile file = exported(f, {randn({2, 3})});
  CHECK(file.types() == Texts{"Relu"});
  CHECK(file.initializers.empty());
}

TEST_CASE("onnx: a second export has the same bytes") {
  Net net;
  const TempFolder folder;
  const Tensor x = randn({2, 3});
  io::export_onnx(folder.file("a.onnx"), net, x);
  io::export_onnx(folder.file("b.onnx"), net, x);
  CHECK(test::read_file(folder.file("a.onnx")) == test::read_file(folder.file("b.onnx")));
}

TEST_CASE("onnx: names of ends are those given, and several are counted") {
  const auto f = [](const Tensors& in) { return Tensors{in[0] + in[1], in[0]}; };
  const Tensors x = {randn({2, 3}), randn({2, 3})};
  const OnnxFile counted = exported(f, x);
  CHECK(counted.inputs[0].name == "input_1");
  CHECK(counted.inputs[1].name == "input_2");
  CHECK(counted.outputs[0].name == "output_1");
  CHECK(counted.outputs[1].name == "output_2");
  CHECK(counted.types() == Texts{"Add", "Identity"});  // an input that is an output is copied
  const OnnxFile given = exported(f, x, {.inputs = {"a", "b"}, .outputs = {"sum", "same"}});
  CHECK(given.inputs[1].name == "b");
  CHECK(given.outputs[0].name == "sum");
  CHECK(given.nodes[0].outputs == Texts{"sum"});
}

TEST_CASE("onnx: a result may be several outputs, and is read by others too") {
  const auto f = [](const Tensors& in) {
    const Tensor h = relu(in[0]);
    return Tensors{h, h, tanh(h), h};
  };
  const OnnxFile file = exported(f, {randn({2, 3})});
  CHECK(file.types() == Texts{"Relu", "Tanh", "Identity", "Identity"});
  CHECK(file.nodes[0].outputs == Texts{"output_1"});
  CHECK(file.nodes[1].inputs == Texts{"output_1"});
  CHECK(file.nodes[2].inputs == Texts{"output_1"});
  CHECK(file.nodes[2].outputs == Texts{"output_2"});
  CHECK(file.nodes[3].outputs == Texts{"output_4"});
}

TEST_CASE("onnx: a custom() operation is exported as the operations that it runs") {
  const auto f = [](const Tensors& in) {
    const Tensor y = in[0].detach() * in[0].detach();
    return Tensors{
        custom("relu", {in[0]}, y, {}, [](const CustomBackward& b) { return Tensors{b.grad}; })};
  };
  CHECK(exported(f, {randn({2, 3})}).types() == Texts{"Mul"});
}

TEST_CASE("onnx: a parameter keeps its name whatever else is called so") {
  struct Named : nn::Module {
    nn::Parameter constant{ones({3})};
    FIRN_MEMBERS(constant)
    Tensor forward(const Tensor& x) override { return x + tensor({1.f, 2.f, 3.f}) + constant; }
  } net;
  const OnnxFile file = exported(net, randn({2, 3}));
  CHECK(file.initializers.at("constant").floats() == std::vector<float>{1, 1, 1});
  CHECK(file.initializers.at("constant_1").floats() == std::vector<float>{1, 2, 3});
}

TEST_CASE("onnx: a function of a module has the module's names and mode") {
  Net net;
  const auto f = [&](const Tensors& in) { return Tensors{net(in[0])}; };
  const OnnxFile with = exported(f, {randn({2, 3})}, {.module = &net});
  CHECK(with.initializers.contains("rest.0.bias"));
  CHECK(net.training());
  net.eval();
  const OnnxFile without = exported(f, {randn({2, 3})});
  CHECK_FALSE(without.initializers.contains("rest.0.bias"));
  CHECK(without.initializers.size() == 4);
}

TEST_CASE("onnx: sizes that follow the batch are symbolic, and others are not") {
  const auto f = [](const Tensors& in) {
    const Tensor& x = in[0];  // [n, 4, 6]
    return Tensors{reshape(x, {x.size(0) * 4, 6}), flatten(x, 1), reshape(x, {2, 2, x.size(0), 6})};
  };
  const OnnxFile dynamic = exported(f, {randn({1, 4, 6})});
  CHECK(dynamic.outputs[0].shape == Texts{"batch*4", "6"});
  CHECK(dynamic.outputs[1].shape == Texts{"batch", "24"});
  CHECK(dynamic.outputs[2].shape == Texts{"2", "2", "batch", "6"});
  const OnnxFile fixed = exported(f, {randn({1, 4, 6})}, {.dynamic_batch = false});
  CHECK(fixed.inputs[0].shape == Texts{"1", "4", "6"});
  CHECK(fixed.outputs[0].shape == Texts{"4", "6"});
}

TEST_CASE("onnx: what no input has a part in is a constant, computed once") {
  const Tensor table = randn({3, 3});
  const auto f = [&](const Tensors& in) {
    return Tensors{in[0] + exp(transpose(table, 0, 1)) * 2, zeros({in[0].size(0), 2}) + 1};
  };
  const OnnxFile file = exported(f, {randn({2, 3, 3})});
  CHECK(file.node("Add").inputs[1] == "constant");
  CHECK(file.initializers.at("constant").floats() ==
        (exp(transpose(table, 0, 1)) * 2).to_vector<float>());
  // The zeros grow with the batch.
  CHECK(file.outputs[1].shape == Texts{"batch", "2"});
  CHECK(file.node("Expand").inputs.size() == 2);
  CHECK(file.node("Shape").inputs == Texts{"input"});
}

TEST_CASE("onnx: attributes of layers") {
  struct Layers : nn::Module {
    nn::Conv2d conv{2, 4, {3, 5}, {.stride = {2, 1}, .padding = {1, 0}, .groups = 2}};
    nn::BatchNorm2d norm{4, {.eps = 0.25}};
    FIRN_MEMBERS(conv, norm)
    Tensor forward(const Tensor& x) override {
      return permute(max_pool2d(norm(conv(x)), 2), {0, 2, 3, 1});
    }
  } net;
  const OnnxFile f = exported(net, channels_last(randn({2, 2, 9, 10})));
  CHECK(f.types() == Texts{"Conv", "BatchNormalization", "MaxPool", "Transpose"});
  const OnnxNode& conv = f.node("Conv");
  CHECK(conv.integers.at("kernel_shape") == Integers{3, 5});
  CHECK(conv.integers.at("strides") == Integers{2, 1});
  CHECK(conv.integers.at("pads") == Integers{1, 0, 1, 0});
  CHECK(conv.integers.at("group") == Integers{2});
  const OnnxNode& norm = f.node("BatchNormalization");
  CHECK(norm.numbers.at("epsilon") == 0.25f);
  CHECK(norm.inputs[3] == "norm.running_mean");
  CHECK(f.node("Transpose").integers.at("perm") == Integers{0, 2, 3, 1});
}

TEST_CASE("onnx: writes in place make new values, and views of parameters keep their names") {
  struct Tied : nn::Module {
    nn::Embedding table{7, 4};
    FIRN_MEMBERS(table)
    Tensor forward(const Tensor& x) override {
      Tensor h = table(x);
      h += 1;
      relu_(h);
      return matmul(h, transpose(table.weight, 0, 1));
    }
  } net;
  const OnnxFile f = exported(net, zeros({2}, i64));
  CHECK(f.types() == Texts{"Gather", "Add", "Relu", "Transpose", "MatMul"});
  CHECK(f.node("Relu").inputs == f.node("Add").outputs);
  CHECK(f.node("Transpose").inputs == Texts{"table.weight"});
  CHECK(f.inputs[0].dtype == 7);
}

TEST_CASE("onnx: modes, random streams and state are as before", "[host]") {
  Net net;
  net.rest.eval();
  std::vector<std::vector<float>> values;
  for (const Tensor& p : net.parameters()) values.push_back(p.to_vector<float>());
  manual_seed(5);
  const RandomKey before = default_generator().get();
  const TempFolder folder;
  const Autocast autocast(bf16);
  io::export_onnx(folder.file("m.onnx"), net, randn({2, 3}));
  CHECK(onnx_file(test::read_file(folder.file("m.onnx"))).inputs[0].dtype == 1);
  CHECK(net.training());
  CHECK_FALSE(net.rest.training());
  CHECK(autocast_dtype() == bf16);
  CHECK(grad_enabled());
  CHECK(default_generator().get().seed == before.seed);
  CHECK(default_generator().get().offset == before.offset + 2);  // of randn({2, 3})
  const std::vector<Tensor> parameters = net.parameters();
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    CHECK(parameters[i].requires_grad());
    CHECK_FALSE(parameters[i].grad().defined());
    CHECK(parameters[i].to_vector<float>() == values[i]);
  }
}

}  // namespace firn::testing

// Layers of transformers, computed weights and bags beside PyTorch's (tests/goldens/modules.py):
// values, gradients, names, what a saved model of PyTorch loads into.
#include <filesystem>

#include "firn/firn.h"
#include "message_of.h"
#include "support/catch.h"
#include "support/golden.h"
#include "support/source_path.h"
#include "support/values.h"

using namespace firn;
using firn::testing::expect_close;
using firn::testing::Golden;
using firn::testing::largest;
using firn::testing::make;
using firn::testing::message_of;
using firn::testing::values_of;

namespace {

const Golden& golden(const std::string& name) {
  static const auto all =
      firn::testing::read_goldens(firn::testing::source_path("tests/goldens/modules.safetensors"));
  return all.at(name);
}

std::vector<Tensor> operands_of(const Golden& g, std::size_t count) {
  std::vector<Tensor> out;
  for (std::size_t i = 0; i < count; ++i) {
    out.push_back(make(g.inputs[i].values, g.inputs[i].shape, g.inputs[i].dtype));
    if (g.inputs[i].dtype == f64) out.back().set_requires_grad();
  }
  return out;
}

/// Runs `call` on the first `count` operands after the others were put into the module, and
/// compares the result and all gradients.
template <class Module, class Call>
void compare(const std::string& name, Module& m, std::size_t count, const Call& call) {
  INFO(name);
  const Golden& g = golden(name);
  std::vector<Tensor> all = operands_of(g, count);
  {
    const NoGrad guard;
    std::size_t i = count;
    for (const auto& list : {m.named_parameters(), m.named_buffers()})
      for (const auto& [path, t] : list) {
        INFO(path);
        REQUIRE(i < g.inputs.size());
        REQUIRE(t.shape() == g.inputs[i].shape);
        copy_(t, make(g.inputs[i].values, g.inputs[i].shape));
        all.push_back(t);
        ++i;
      }
    REQUIRE(i == g.inputs.size());
  }
  const Tensor y = call(all);
  expect_close(name, values_of(y), g.output.values, 1e-12 * (1 + largest(g.output.values)));
  backward(y, {.initial_gradient = make(g.seed, y.shape())});
  for (const auto& [i, values] : g.gradients) {
    INFO("operand " << i);
    expect_close("gradient", values_of(all[static_cast<std::size_t>(i)].grad()), values,
                 1e-11 * (1 + largest(values)));
  }
}

constexpr std::int64_t kWidth = 4, kHeads = 2;

nn::TransformerLayerOptions small(nn::TransformerLayerOptions o = {}) {
  o.hidden = 6;
  o.dropout = 0;
  o.dtype = f64;
  return o;
}

std::string names_of(const nn::Module& m) {
  std::string all;
  for (const auto& p : m.named_parameters()) all += p.name + " ";
  return all;
}

/// y, u and v in a row, as in the goldens.
template <class Layer>
Tensor with_vectors(Layer& layer, const Tensor& x) {
  const Tensor y = flatten(layer(x));
  const auto buffers = layer.named_buffers();
  return cat({y, buffers[0].tensor.clone(), buffers[1].tensor.clone()}, 0);
}

}  // namespace

TEST_CASE("transformer layers compute what PyTorch's do") {
  {
    nn::TransformerEncoderLayer layer(kWidth, kHeads, small());
    compare("encoder layer", layer, 1, [&](const auto& in) { return layer(in[0]); });
    CHECK(names_of(layer) ==
          "self_attn.qkv.weight self_attn.qkv.bias self_attn.out.weight self_attn.out.bias "
          "linear1.weight linear1.bias linear2.weight linear2.bias norm1.weight norm1.bias "
          "norm2.weight norm2.bias ");
    nn::TransformerEncoder encoder(layer, 2, nn::LayerNorm(kWidth, {.dtype = f64}));
    compare("encoder", encoder, 1, [&](const auto& in) { return encoder(in[0]); });
    CHECK(names_of(encoder).find("layers.1.norm2.bias norm.weight norm.bias") != std::string::npos);
  }
  {
    nn::TransformerEncoderLayer layer(
        kWidth, kHeads, small({.activation = gelu, .norm_first = true, .causal = true}));
    compare("encoder layer norm_first gelu causal", layer, 1,
            [&](const auto& in) { return layer(in[0]); });
    CHECK(layer.extra_repr() == "activation = gelu, norm_first = true");
  }
  {
    nn::TransformerEncoderLayer layer(kWidth, kHeads, small({.bias = false}));
    compare("encoder layer without bias, lengths", layer, 2,
            [&](const auto& in) { return layer(in[0], nn::SeenKeys{.lengths = in[1]}); });
  }
  {
    nn::TransformerDecoderLayer layer(kWidth, kHeads, small());
    compare("decoder layer", layer, 2, [&](const auto& in) { return layer(in[0], in[1]); });
    nn::TransformerDecoder decoder(layer, 2);
    compare("decoder", decoder, 2, [&](const auto& in) { return decoder(in[0], in[1]); });
    CHECK(names_of(decoder).find("layers.0.multihead_attn.kv.weight") != std::string::npos);
  }
  nn::TransformerDecoderLayer layer(kWidth, kHeads, small({.norm_first = true, .causal = true}));
  compare("decoder layer norm_first causal, lengths of the memory", layer, 3, [&](const auto& in) {
    return layer(in[0], in[1], nn::SeenKeys(), nn::SeenKeys{.lengths = in[2]});
  });
}

TEST_CASE("transformer layers: modes, autocast, copies, what is refused") {
  manual_seed(1);
  nn::TransformerEncoder net(nn::TransformerEncoderLayer(8, 2, {.hidden = 16, .dropout = 0.5}), 2);
  const Tensor x = randn({2, 3, 8});
  net.eval();
  const auto still = values_of(net(x));
  CHECK(values_of(net(x)) == still);
  CHECK(values_of(nn::clone(net)(x)) == still);
  {
    const Autocast guard(bf16);
    expect_close("autocast", values_of(net(x)), still, 0.1);
  }
  net.train();
  CHECK(values_of(net(x)) != still);
  const nn::TransformerLayerOptions o = {.hidden = 16};
  CHECK(nn::TransformerEncoderLayer(8, 2, o).extra_repr() == "activation = relu");
  CHECK(message_of([] { nn::TransformerEncoderLayer(8, 3); }).find("no multiple of heads = 3") !=
        std::string::npos);
  CHECK(message_of([] {
          nn::TransformerDecoderLayer(8, 2, {.hidden = 0});
        }).find("[TransformerDecoderLayer] hidden = 0") == 0);
  CHECK_THROWS_AS(nn::TransformerEncoderLayer(8, 2, {.activation = nullptr}), Error);
  CHECK(message_of([&] {
          nn::TransformerEncoder(nn::TransformerEncoderLayer(8, 2, o), 0);
        }).find("[TransformerEncoder] count = 0") == 0);
}

TEST_CASE("a saved encoder of PyTorch's names loads", "[host]") {
  CHECK(nn::name_from_torch("layers.0.self_attn.in_proj_weight") ==
        "layers.0.self_attn.qkv.weight");
  CHECK(nn::name_from_torch("in_proj_bias") == "qkv.bias");
  CHECK(nn::name_from_torch("out_proj.bias") == "out.bias");
  CHECK(nn::name_from_torch("a.self_attn.out_proj.weight") == "a.self_attn.out.weight");
  CHECK(nn::name_from_torch("layout_proj.weight") == "layout_proj.weight");
  CHECK(nn::name_from_torch("linear1.weight") == "linear1.weight");

  manual_seed(2);
  nn::TransformerEncoder one(nn::TransformerEncoderLayer(8, 2, {.hidden = 16, .dropout = 0}), 2),
      two(nn::TransformerEncoderLayer(8, 2, {.hidden = 16, .dropout = 0}), 2);
  std::vector<NamedTensor> state = io::state_of(one);
  int renamed = 0;
  for (NamedTensor& t : state) {
    const auto put = [&](const std::string& from, const std::string& to) {
      const std::size_t at = t.name.find(from);
      if (at == std::string::npos) return;
      t.name.replace(at, from.size(), to);
      ++renamed;
    };
    put("qkv.", "in_proj_");
    put("attn.out.", "attn.out_proj.");
  }
  CHECK(renamed == 8);
  const std::string path =
      (std::filesystem::temp_directory_path() / "firn_encoder.safetensors").string();
  io::save_safetensors(path, state);
  CHECK(io::load_safetensors(path, two, {.rename = nn::name_from_torch}).complete());
  std::filesystem::remove(path);
  const Tensor x = randn({2, 3, 8});
  CHECK(values_of(one(x)) == values_of(two(x)));
}

TEST_CASE("maxima of bags of a list are PyTorch's") {
  nn::EmbeddingBag bags(5, 3, {.mode = BagMode::max, .padding_idx = 1, .dtype = f64});
  compare("embedding_bag max", bags, 2, [&](const auto& in) { return bags(in[0], in[1]); });
}

TEST_CASE("weight norm computes what PyTorch's does") {
  auto fc = nn::weight_norm(nn::Linear(3, 4, {.dtype = f64}));
  compare("weight_norm linear", fc, 1, [&](const auto& in) { return fc(in[0]); });
  CHECK(names_of(fc) ==
        "bias parametrizations.weight.original0 parametrizations.weight.original1 ");
  nn::WeightNorm<nn::Conv2d> conv(nn::Conv2d(2, 3, 2, {.dtype = f64}), 1);
  CHECK(conv.original0.shape() == Shape{1, 2, 1, 1});
  compare("weight_norm conv2d axis 1", conv, 1, [&](const auto& in) { return conv(in[0]); });
  auto all = nn::weight_norm(nn::Conv2d(2, 3, 2, {.dtype = f64}), std::nullopt);
  compare("weight_norm conv2d of all", all, 1, [&](const auto& in) { return all(in[0]); });
}

TEST_CASE("spectral norm computes what PyTorch's does") {
  auto fc = nn::spectral_norm(nn::Linear(3, 4, {.dtype = f64}));
  const auto call = [](auto& layer) {
    return [&layer](const auto& in) { return with_vectors(layer, in[0]); };
  };
  CHECK(fc.named_parameters()[1].name == "parametrizations.weight.original");
  CHECK(fc.named_buffers()[0].name == "parametrizations.weight.0._u");
  CHECK(fc.named_buffers()[1].name == "parametrizations.weight.0._v");
  compare("spectral_norm linear", fc, 1, call(fc));
  auto conv = nn::spectral_norm(nn::Conv2d(2, 3, 2, {.dtype = f64}), {.iterations = 3});
  compare("spectral_norm conv2d, 3 iterations", conv, 1, call(conv));
  auto up = nn::spectral_norm(nn::ConvTranspose2d(2, 3, 2, {.dtype = f64}));
  CHECK(up.named_buffers()[0].tensor.shape() == Shape{3});
  compare("spectral_norm conv_transpose2d", up, 1, call(up));
  auto still = nn::spectral_norm(nn::Linear(3, 4, {.dtype = f64}));
  still.eval();
  compare("spectral_norm linear in evaluation", still, 1, call(still));
}

TEST_CASE("computed weights begin as the layer's, and change nothing else of it") {
  manual_seed(3);
  nn::Linear plain(5, 4);
  auto normed = nn::weight_norm(nn::clone(plain));
  const Tensor x = randn({3, 5});
  expect_close("start", values_of(normed(x)), values_of(plain(x)), 1e-6);
  expect_close("weight", values_of(normed.weight()), values_of(plain.weight), 1e-6);
  CHECK(normed.extra_repr() == "5, 4");
  CHECK(normed.type_name() == "WeightNorm<firn::nn::Linear>");
  CHECK(nn::weight_norm(nn::Linear(5, 4, {.bias = false})).parameters().size() == 2);

  auto spectral = nn::spectral_norm(nn::clone(plain));
  // 15 steps and more find the norm: it is 1 afterwards.
  for (int i = 0; i < 50; ++i) spectral(x);
  const Tensor w = spectral.weight();
  Tensor v = ones({5}) / 2.0;
  for (int i = 0; i < 200; ++i) {
    v = matmul(transpose(w, 0, 1), matmul(w, v));
    v = v / norm(v);
  }
  CHECK(norm(matmul(w, v)).item() == Approx(1).epsilon(1e-4));

  // A clone has its own; evaluation moves nothing, training does.
  auto copy = nn::clone(spectral);
  copy.eval();
  const auto before = values_of(copy(x));
  CHECK(values_of(copy(x)) == before);
  {
    const NoGrad guard;
    mul_(spectral.original, 3);
  }
  CHECK(values_of(copy(x)) == before);
  expect_close("divided out", values_of(spectral(x)), before, 1e-4);

  // Two passes, then backward: the first graph has its own vectors.
  Tensor one = x.detach().set_requires_grad();
  const Tensor y = spectral(one), z = spectral(one);
  sum(y + z).backward();
  CHECK(one.grad().defined());

  nn::Sequential net{nn::weight_norm(nn::Linear(5, 4)), nn::Tanh(),
                     nn::spectral_norm(nn::Linear(4, 1))};
  CHECK(net.named_parameters()[1].name == "0.parametrizations.weight.original0");
  net.to(f64);
  CHECK(net(x.to(f64)).dtype() == f64);
  net.to(f16);
  CHECK(net(x.to(f16)).dtype() == f16);
  CHECK(net.named_buffers()[0].tensor.dtype() == f32);
  std::unique_ptr<nn::Module> base = nn::clone(static_cast<const nn::Module&>(net));
  CHECK(base->named_parameters().size() == net.named_parameters().size());
  CHECK(net.summary().find("parametrizations.weight.original1") != std::string::npos);
}

TEST_CASE("computed weights train, in f32 and under autocast") {
  for (const bool casts : {false, true}) {
    manual_seed(4);
    nn::Sequential net{nn::spectral_norm(nn::Linear(3, 8)), nn::ReLU(),
                       nn::weight_norm(nn::Linear(8, 1))};
    optim::Adam opt(net.parameters(), {.lr = 0.05});
    const Tensor x = randn({16, 3}), y = sum(x, -1, true);
    double first = 0, last = 0;
    for (int i = 0; i < 40; ++i) {
      std::optional<Autocast> guard;
      if (casts) guard.emplace(bf16);
      const Loss loss = mse_loss(net(x), y);
      if (i == 0) first = loss.item();
      last = loss.item();
      opt.backward(loss);
      opt.step();
    }
    INFO(first << " to " << last);
    CHECK(last < 0.3 * first);
  }
}

TEST_CASE(
    "computed weights refuse axes and options that make none, and passes that cannot repeat") {
  CHECK(message_of([] { nn::weight_norm(nn::Linear(2, 3), 2); }).find("[weight_norm] axis 2") == 0);
  CHECK(message_of([] {
          nn::spectral_norm(nn::Linear(2, 3), {.axis = -3});
        }).find("[spectral_norm] axis -3") == 0);
  CHECK_THROWS_AS(nn::spectral_norm(nn::Linear(2, 3), {.iterations = 0}), Error);
  CHECK_THROWS_AS(nn::spectral_norm(nn::Linear(2, 3), {.eps = -1}), Error);
  auto layer = nn::spectral_norm(nn::Linear(2, 3));
  layer.set_checkpoint(CheckpointOptions{});
  const Tensor x = ones({1, 2}).set_requires_grad();
  CHECK(message_of([&] { layer(x); }).find("leave the layer out of checkpoints") !=
        std::string::npos);
  layer.eval();
  sum(layer(x)).backward();
  CHECK(x.grad().defined());
}

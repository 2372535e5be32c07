// Whole networks for `scripts/interop onnx`.
#include "interop/onnx/models.h"
#include "samples/images/models.h"

namespace firn::interop {
namespace {

Tensor images(std::int64_t n, std::int64_t c, std::int64_t h, std::int64_t w) {
  return randn({n, c, h, w});
}
Tensor tokens(std::int64_t n, std::int64_t length, std::int64_t vocabulary) {
  return rand({n, length}, {.high = static_cast<double>(vocabulary)}).to(i64).clone();
}

/// A decoder block: rotary positions, causal attention with grouped heads, RMSNorm, SwiGLU.
struct Block : nn::Module {
  nn::RMSNorm norm1{32}, norm2{32};
  nn::MultiHeadAttention attention{32, 4, {.key_heads = 2, .causal = true, .rope_theta = 10000.0}};
  nn::SwiGLU feed{32, 48};
  FIRN_MEMBERS(norm1, norm2, attention, feed)
  Tensor forward(const Tensor& x) override {
    const Tensor h = x + attention(norm1(x));
    return h + feed(norm2(h));
  }
};

struct Gpt : nn::Module {
  nn::Embedding tokens{50, 32};
  nn::Sequential blocks{Block(), Block()};
  nn::RMSNorm norm{32};
  FIRN_MEMBERS(tokens, blocks, norm)
  Tensor forward(const Tensor& x) override {
    return linear(norm(blocks(tokens(x))), tokens.weight);  // a tied head
  }
};

/// An encoder layer as BERT has it, with lengths of the sequences.
struct Encoder : nn::ModuleOf<Encoder> {
  nn::Embedding tokens{40, 24}, places{10, 24};
  nn::LayerNorm norm1{24}, norm2{24};
  nn::MultiHeadAttention attention{24, 3};
  nn::Linear up{24, 64}, down{64, 24};
  nn::Dropout drop{0.1};
  FIRN_MEMBERS(tokens, places, norm1, norm2, attention, up, down, drop)
  Tensor forward(const Tensor& x, const Tensor& lengths) {
    Tensor h = tokens(x) + places(arange(x.size(1)));
    h = norm1(h + drop(attention(h, nn::SeenKeys{.lengths = lengths})));
    return norm2(h + drop(down(gelu(up(h)))));
  }
};

struct CrossAttention : nn::ModuleOf<CrossAttention> {
  nn::MultiHeadAttention cross{16, 2, {.memory_width = 12}};
  FIRN_MEMBERS(cross)
  Tensor forward(const Tensor& x, const Tensor& memory) { return cross(x, memory); }
};

/// One step of decoding: the cache of keys and values is an input and an output.
Tensors decode(const Tensors& in) {
  const Tensor &q = in[0], keys = cat({in[1], in[2]}, 2), values = cat({in[3], in[4]}, 2);
  return {attention(q, keys, values, {.causal = true}), keys, values};
}

struct Autoencoder : nn::Module {
  nn::Conv2d in{1, 8, 3, {.stride = 2, .padding = 1}}, down{8, 12, 3, {.stride = 2, .padding = 1}};
  nn::ConvTranspose2d up{12, 8, 3, {.stride = 2, .padding = 1, .output_padding = 1}};
  nn::Upsample resize{Size2{28, 28}, Upsampling::bilinear};
  nn::Conv2d out{8, 1, 3, {.padding = 1}};
  FIRN_MEMBERS(in, down, up, resize, out)
  Tensor forward(const Tensor& x) override {
    const Tensor h = leaky_relu(down(elu(in(x))));
    return sigmoid(out(resize(relu(up(h)))));
  }
};

/// A recurrent cell: its state begins with zeros, whose size is the batch's.
struct Recurrent : nn::Module {
  nn::Linear in{6, 10}, state{10, 10}, out{10, 3};
  FIRN_MEMBERS(in, state, out)
  Tensor forward(const Tensor& x) override {  // [n, t, 6]
    Tensor h = zeros({x.size(0), 10});
    for (std::int64_t t = 0; t < x.size(1); ++t) h = tanh(in(select(x, 1, t)) + state(h));
    return log_softmax(out(h));
  }
};

/// Layers in both directions over sequences of several lengths, and all states.
struct Sequences : nn::ModuleOf<Sequences> {
  nn::LSTM lstm{6, 5, {.layers = 2, .batch_first = true, .bidirectional = true}};
  nn::GRU gru{10, 4, {.bias = false, .batch_first = true}};
  FIRN_MEMBERS(lstm, gru)
  Tensors forward(const Tensor& x, const Tensor& lengths) {
    const RecurrentResult a = lstm(x, nn::RecurrentInput{.lengths = lengths});
    const RecurrentResult b = gru(a.output, nn::RecurrentInput{.lengths = lengths});
    return {a.output, a.h, a.c, b.output, b.h};
  }
};

/// Every cell with given states, without lengths, and gates that no linear() gave.
struct Cells : nn::ModuleOf<Cells> {
  nn::LSTM lstm{6, 4, {.batch_first = true}};
  nn::GRU gru{6, 4, {.layers = 2, .batch_first = true, .bidirectional = true}};
  nn::RNN rnn{6, 4, {.batch_first = true, .relu = true}};
  nn::LSTMCell cell{6, 4};
  nn::RNNCell tanh{6, 4};
  FIRN_MEMBERS(lstm, gru, rnn, cell, tanh)
  Tensors forward(const Tensor& x, const Tensor& h) {
    const Tensor first = select(x, 1, 0), states = unsqueeze(h, 0);
    const RecurrentResult given = lstm(x, nn::RecurrentInput{.h = states, .c = 2 * states});
    const nn::CellState state = cell(first, nn::CellState{h, -h});
    const Tensor gates = transpose(slice(x, 2, 0, 4), 0, 1);
    const RecurrentResult bare = recurrent(RecurrentCell::rnn_tanh, gates,
                                           rnn.weights.at(0).weight_hh, {.h = h, .reverse = true});
    return {given.output, given.h, given.c,        gru(x),      rnn(x),
            state.h,      state.c, tanh(first, h), bare.output, bare.h};
  }
};

/// Every normalisation, with and without parameters.
struct Norms : nn::Module {
  nn::BatchNorm2d batch{6};
  nn::GroupNorm group{3, 6};
  nn::InstanceNorm2d instance{6};
  nn::LayerNorm layer{5};
  nn::RMSNorm rms{5};
  FIRN_MEMBERS(batch, group, instance, layer, rms)
  Tensor forward(const Tensor& x) override {
    return batch(x) + 2 * group(x) + 3 * instance(x) + rms(layer(x) + 0.5) + group_norm(x, 2) +
           layer_norm(x) * rms_norm(x);
  }
};

/// The norms of volumes.
struct VolumeNorms : nn::Module {
  nn::BatchNorm3d batch{4};
  nn::InstanceNorm3d instance{4, {.affine = true}};
  FIRN_MEMBERS(batch, instance)
  Tensor forward(const Tensor& x) override { return batch(x) + 2 * instance(x); }
};

std::shared_ptr<nn::Module> sample_model(const char* name) {
  return sample::make_model(name, sample::Options(), Device::cpu());
}

/// Gives running statistics and parameters values of their own.
template <class M>
std::shared_ptr<M> stirred(std::shared_ptr<M> m) {
  const NoGrad guard;
  for (const NamedTensor& p : m->named_parameters())
    if (p.tensor.rank() == 1) p.tensor.copy_(p.tensor + 0.1 * randn(p.tensor.shape()));
  for (const NamedTensor& b : m->named_buffers())
    if (b.name.ends_with("running_mean")) {
      b.tensor.copy_(0.1 * randn(b.tensor.shape()));
    } else if (b.name.ends_with("running_var")) {
      b.tensor.copy_(0.5 + rand(b.tensor.shape()));
    }
  return m;
}

}  // namespace

std::vector<OnnxModel> network_models() {
  manual_seed(1);
  std::vector<OnnxModel> out;
  const auto pixels = [](std::int64_t n) { return rand({n, 28, 28}); };
  out.push_back(of_module("sample_mlp", sample_model("mlp"), pixels));
  out.push_back(of_module("sample_cnn", sample_model("cnn"), pixels));
  out.push_back(of_module("sample_resnet", stirred(sample_model("resnet")), pixels));
  out.push_back(
      of_module("mlp_gelu",
                std::make_shared<nn::MLP>(std::vector<std::int64_t>{8, 32, 32, 4},
                                          nn::MLPOptions{.activation = Activation::gelu_tanh}),
                [](std::int64_t n) {
                  return randn({n, 5, 8});
                }));
  out.push_back(
      of_module("gpt", std::make_shared<Gpt>(), [](std::int64_t n) { return tokens(n, 9, 50); }));
  out.push_back(of_module("autoencoder", std::make_shared<Autoencoder>(),
                          [](std::int64_t n) { return images(n, 1, 28, 28); }));
  out.push_back(of_module("recurrent", std::make_shared<Recurrent>(), [](std::int64_t n) {
    return randn({n, 4, 6});
  }));
  out.push_back(of_module("norms", stirred(std::make_shared<Norms>()),
                          [](std::int64_t n) { return images(n, 6, 4, 5); }));
  out.push_back(
      of_module("volume_norms", stirred(std::make_shared<VolumeNorms>()), [](std::int64_t n) {
        return randn({n, 4, 2, 3, 5});
      }));
  const auto encoder = std::make_shared<Encoder>();
  out.push_back(
      {.name = "encoder",
       .f = [encoder](const Tensors& in) { return Tensors{(*encoder)(in[0], in[1])}; },
       .inputs =
           [](std::int64_t n) {
             return Tensors{tokens(n, 10, 40), (1 + rand({n}, {.high = 9.0})).to(i64).clone()};
           },
       .module = encoder});
  const auto sequences = std::make_shared<Sequences>();
  out.push_back({.name = "sequences",
                 .f = [sequences](const Tensors& in) { return (*sequences)(in[0], in[1]); },
                 .inputs =
                     [](std::int64_t n) {
                       return Tensors{randn({n, 7, 6}), rand({n}, {.high = 8.0}).to(i64).clone()};
                     },
                 .module = sequences});
  const auto cells = std::make_shared<Cells>();
  out.push_back({.name = "cells",
                 .f = [cells](const Tensors& in) { return (*cells)(in[0], in[1]); },
                 .inputs =
                     [](std::int64_t n) {
                       return Tensors{randn({n, 5, 6}), randn({n, 4})};
                     },
                 .module = cells});
  const auto cross = std::make_shared<CrossAttention>();
  out.push_back({.name = "cross_attention",
                 .f = [cross](const Tensors& in) { return Tensors{(*cross)(in[0], in[1])}; },
                 .inputs =
                     [](std::int64_t n) {
                       return Tensors{randn({n, 4, 16}), randn({n, 7, 12})};
                     },
                 .module = cross});
  out.push_back({.name = "decode", .f = decode, .inputs = [](std::int64_t n) {
                   return Tensors{randn({n, 4, 1, 8}), randn({n, 2, 6, 8}), randn({n, 2, 1, 8}),
                                  randn({n, 2, 6, 8}), randn({n, 2, 1, 8})};
                 }});
  // f16 is rounded at other places; f64 shows that nothing passes through f32.
  const auto half = std::make_shared<nn::Sequential>(nn::Linear(8, 16), nn::LayerNorm(16),
                                                     nn::GELU(), nn::Linear(16, 4), nn::Softmax());
  half->to(f16);
  out.push_back(of_module("half", half, [](std::int64_t n) { return randn({n, 8}, f16); }));
  out.back().tolerance = 4e-3;
  const auto lowered = std::make_shared<nn::Sequential>(nn::Linear(8, 16), nn::RMSNorm(16),
                                                        nn::SiLU(), nn::Linear(16, 4));
  lowered->set_autocast(f16);
  out.push_back(of_module("autocast", lowered, [](std::int64_t n) { return randn({n, 8}); }));
  out.back().tolerance = 4e-3;
  const auto wide = std::make_shared<nn::Sequential>(nn::Linear(8, 16), nn::Tanh(),
                                                     nn::Linear(16, 4), nn::Softmax());
  wide->to(f64);
  out.push_back(of_module("double", wide, [](std::int64_t n) { return randn({n, 8}, f64); }));
  out.back().tolerance = 1e-12;
  return out;
}

}  // namespace firn::interop

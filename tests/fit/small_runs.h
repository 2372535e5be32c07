// What the tests of fit() share: small nets, sets, and the bits of a run.
#pragma once

#include <cstdint>
#include <fstream>
#include <functional>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "firn/firn.h"
#include "io/bits.h"

namespace firn::testing {

using Json = nlohmann::ordered_json;

/// A residual, dropout of both kinds, so a random stream too.
struct FitNet : nn::Module {
  nn::Linear in{6, 16}, hidden{16, 16}, out{16, 3};
  nn::Dropout own{0.2, {.seed = 5}}, shared{0.2};
  FIRN_MEMBERS(in, hidden, out, own, shared)
  Tensor forward(const Tensor& x) override {
    const Tensor h = relu(in(x));
    return out(shared(h + relu(hidden(own(h)))));
  }
};

/// n rows with the class that a fixed function gives them.
inline data::TensorDataset rows(std::int64_t n, std::uint64_t seed) {
  Generator g(seed);
  const Tensor x = randn({n, 6}, {.generator = &g});
  return data::TensorDataset({x, argmax(x.slice(1, 0, 3))});
}

/// A hash of parameters, buffers, state of the optimizer and position of the random stream.
inline std::string bits_of_run(const nn::Module& net, const optim::Optimizer& opt) {
  std::string all;
  for (const auto& [name, t] : io::state_of(net)) all += name + bits_of(t);
  for (const auto& [name, t] : opt.state())
    if (!name.ends_with(".gradient")) all += name + bits_of(t);
  all += std::to_string(default_generator().get().offset);
  return std::to_string(std::hash<std::string>()(all));
}

inline Loss class_loss(const Tensor& output, const Tensor& y) { return cross_entropy(output, y); }

/// A run in f16 whose fifth batch has an infinite gradient, of "hidden.weight".
inline void overflow_run(const std::string& log) {
  manual_seed(4);
  FitNet net;
  net.to(f16);
  optim::AdamW opt(net.named_parameters(), {.lr = 1e-3},
                   {.loss_scale = optim::LossScale::dynamic({.init = 1024})});
  data::Loader loader(rows(64, 3), {.batch = 8});
  int batch = 0;
  add_hook(net.hidden.weight, [&](const Tensor& g) {
    return batch == 5 ? g * std::numeric_limits<double>::infinity() : g;
  });
  train::fit({.modules = {{"", net}}, .optimizers = {{"", opt}}}, loader,
             [&](const data::LoaderBatch& b) {
               ++batch;
               opt.backward(cross_entropy(net(b.x().to(f16)), b.y()));
               opt.step();
             },
             {.log = {.path = log, .every = 3}, .progress = false});
}

/// The records of a log, without what was measured if `timeless`.
inline std::vector<Json> records_of(const std::string& path, bool timeless = false) {
  std::vector<Json> out;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    out.push_back(Json::parse(line));
    if (timeless) out.back().erase("measured");
  }
  return out;
}

}  // namespace firn::testing

// firn's side of `scripts/interop transformers`: what a model of a folder computes.
//   firn_language_models FAMILY FOLDER IN OUT
// FAMILY is gpt2 or llama. IN is a safetensors file with
//   ids [n, t]; padded [n, t], positions [n, t] and mask [n, t] of the same rows padded in front;
//   prompt [1, p]; train [steps, n, t].
// OUT gets
//   f32, f64        logits of ids, computed in these dtypes
//   padded          logits of padded, f32
//   losses          the mean losses of as many steps of AdamW as `train` has, f32
//   tokens          64 tokens that follow the prompt, chosen greedily in f64 without a cache
// and OUT.saved the model as lm::save() writes it before the training.
#include <cstdio>
#include <exception>
#include <string>
#include <vector>

#include "firn/firn.h"

namespace {

using firn::Tensor;
namespace io = firn::io;
namespace lm = firn::lm;

constexpr int kNewTokens = 64;

template <class Model>
Tensor generated(Model& model, Tensor ids) {
  const std::int64_t prompt = ids.size(1);
  for (int i = 0; i < kNewTokens; ++i) {
    const Tensor logits = model(ids);
    ids = firn::cat({ids, firn::argmax(logits.slice(1, -1, logits.size(1)))}, 1);
  }
  return ids.slice(1, prompt, ids.size(1)).contiguous();
}

template <class Model>
std::vector<float> losses(Model& model, const Tensor& batches) {
  model.train();
  firn::optim::AdamW opt(model.parameters(), {.lr = 1e-3});
  std::vector<float> all;
  for (std::int64_t i = 0; i < batches.size(0); ++i) {
    const Tensor ids = batches[i];
    const firn::Loss loss = model.loss(ids, lm::next_ids(ids));
    opt.backward(loss);
    opt.step();
    all.push_back(static_cast<float>(loss.item()));
  }
  return all;
}

template <class Config, class Model>
void compute(const std::string& folder, const std::string& in, const std::string& out) {
  const io::SafetensorsFile file(in);
  Model model(Config::from_file(folder));
  lm::load(folder, model);
  lm::save(out + ".saved", model);
  std::vector<firn::NamedTensor> results;
  model.eval();
  {
    const firn::NoGrad guard;
    results.push_back({"f32", model(file.read("ids"))});
    const Tensor mask = file.read("mask");
    results.push_back(
        {"padded", model(file.read("padded"),
                         lm::Sequences{.positions = file.read("positions"),
                                       .seen = {.mask = ne(mask, 0).reshape(
                                                    {mask.size(0), 1, 1, mask.size(1)})}})});
    Model wide(model.config(), {.dtype = firn::f64});
    lm::load(folder, wide);
    wide.eval();
    results.push_back({"f64", wide(file.read("ids"))});
    results.push_back({"tokens", generated(wide, file.read("prompt"))});
  }
  const std::vector<float> all = losses(model, file.read("train"));
  results.push_back({"losses", firn::tensor(all, {static_cast<std::int64_t>(all.size())})});
  io::save_safetensors(out, results);
}

}  // namespace

int main(int argc, char** argv) {
  const std::string family = argc == 5 ? argv[1] : "";
  try {
    if (family == "gpt2") {
      compute<lm::Gpt2Config, lm::Gpt2>(argv[2], argv[3], argv[4]);
    } else if (family == "llama") {
      compute<lm::LlamaConfig, lm::Llama>(argv[2], argv[3], argv[4]);
    } else {
      std::fprintf(stderr, "usage: firn_language_models gpt2|llama FOLDER IN OUT\n");
      return 2;
    }
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
  }
  return 0;
}

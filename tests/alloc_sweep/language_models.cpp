// Folders of language models, in which every allocation fails once.
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "alloc_sweep/bytes.h"
#include "alloc_sweep/sweep.h"
#include "data/files.h"
#include "firn/firn.h"
#include "lm/models.h"
#include "support/catch.h"

namespace firn::testing {
namespace {

std::string weights_of(const nn::Module& m) {
  std::string all;
  for (const nn::NamedTensor& t : m.named_parameters()) all += t.name + bytes_of(t.tensor);
  return all;
}

lm::Gpt2Config tiny_gpt2() {
  lm::Gpt2Config c = test::small_gpt2();
  c.n_layer = 1;
  return c;
}

lm::LlamaConfig tiny_llama() {
  lm::LlamaConfig c = test::small_llama();
  c.num_hidden_layers = 1;
  c.sliding_layers.clear();
  return c;
}

/// Transposed weights, f32, into an f16 model.
class LoadModel : public Work {
 public:
  LoadModel() { lm::save(folder_.path().string(), lm::Gpt2(tiny_gpt2())); }
  void run() override { lm::load(path_, model_); }
  std::string kept() override { return weights_of(model_); }
  std::string made() override { return weights_of(model_); }

 private:
  test::TempFolder folder_;
  std::string path_ = folder_.path().string();
  lm::Gpt2 model_{tiny_gpt2(), {.dtype = f16}};
};

class SaveModel : public Work {
 public:
  void run() override { lm::save(path_, model_); }
  std::string kept() override { return weights_of(model_); }
  std::string made() override {
    lm::Llama again(tiny_llama(), {.draw = false});
    lm::load(path_, again);
    return weights_of(again);
  }

 private:
  test::TempFolder folder_;
  std::string path_ = folder_.path().string();
  lm::Llama model_{tiny_llama()};
};

/// A model is made, and computes a loss.
class MakeModel : public Work {
 public:
  void run() override {
    Generator generator(3);
    const GeneratorScope scope(generator);
    lm::Llama model(config_);
    const Loss loss = model.loss(ids_, lm::next_ids(ids_));
    loss.backward();
    model_.emplace(std::move(model));
    sum_ = loss.sum.detach();
  }
  std::string kept() override { return made(); }
  std::string made() override { return model_ ? weights_of(*model_) + bytes_of(sum_) : ""; }

 private:
  const lm::LlamaConfig config_ = tiny_llama();
  const Tensor ids_ = test::random_ids(1, 6);
  std::optional<lm::Llama> model_;
  Tensor sum_;
};

template <class W>
MakeWork work() {
  return [] {
    manual_seed(1);
    return std::make_unique<W>();
  };
}

}  // namespace

TEST_CASE("alloc_sweep: a folder is loaded into a language model or leaves it alone", "[host]") {
  CHECK(sweep(work<LoadModel>(), Fails::heap, 3) > 20);
  CHECK(sweep(work<LoadModel>(), Fails::blocks) > 2);
}

TEST_CASE("alloc_sweep: a language model is saved, or can be saved again", "[host]") {
  CHECK(sweep(work<SaveModel>(), Fails::heap, 3) > 20);
  sweep(work<SaveModel>(), Fails::blocks);
}

TEST_CASE("alloc_sweep: a language model is made and computes its loss", "[host]") {
  CHECK(sweep(work<MakeModel>(), Fails::heap, 5) > 20);
  CHECK(sweep(work<MakeModel>(), Fails::blocks, 3) > 5);
}

}  // namespace firn::testing

// Saving and loading, in which every allocation fails once.
#include <cstdint>
#include <filesystem>
#include <iterator>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "alloc_sweep/bytes.h"
#include "alloc_sweep/sweep.h"
#include "data/files.h"
#include "firn/firn.h"
#include "lm/gguf_writer.h"
#include "support/catch.h"

namespace firn::testing {
namespace {

struct Model : nn::Module {
  nn::Linear in{6, 5};
  nn::BatchNorm1d norm{5};
  nn::Linear out{5, 3};
  FIRN_MEMBERS(in, norm, out)
  explicit Model(DType dtype = f32) { to(dtype); }
};

std::string weights_of(const Model& m) {
  std::string all;
  for (const nn::NamedTensor& t : io::state_of(m)) all += t.name + bytes_of(t.tensor);
  return all;
}

/// All files of a folder, with what they hold.
std::string files_of(const test::TempFolder& folder) {
  std::string all;
  for (const auto& entry : std::filesystem::directory_iterator(folder.path()))
    all += entry.path().filename().string() + test::read_file(entry.path().string());
  return all;
}

/// Over a file that is there.
class Save : public Work {
 public:
  Save() { test::write_file(path_, "what was there before"); }
  void run() override { io::save_safetensors(path_, io::state_of(model_)); }
  std::string kept() override { return files_of(folder_) + weights_of(model_); }
  std::string made() override { return files_of(folder_); }

 private:
  test::TempFolder folder_;
  std::string path_ = folder_.file("model");
  Model model_;
};

/// Weights of another model, f32, into an f16 one: they are converted.
class Load : public Work {
 public:
  Load() { io::save_safetensors(path_, io::state_of(other_)); }
  void run() override { io::load_safetensors(path_, model_); }
  std::string kept() override { return weights_of(model_) + files_of(folder_); }
  std::string made() override { return weights_of(model_); }

 private:
  test::TempFolder folder_;
  std::string path_ = folder_.file("model");
  Model other_, model_{f16};
};

/// A model with its optimizer in the middle of a cycle.
struct Training {
  Model model{f16};
  optim::Adam opt{
      model.parameters(), {}, {.accumulate = 3, .loss_scale = optim::LossScale::dynamic({})}};
  std::int64_t steps = 0;
  data::Loader loader{data::Dataset(8, [](std::int64_t) { return data::Sample{ones({2})}; })};
  Generator stream{5};  ///< in place of the thread's, which differs in each thread of a sweep

  void train() {
    opt.backward(mse_loss(model.in(ones({4, 6}, f16)), zeros({4, 5}, f16)));
    opt.step();
    loader.seek({steps, 2});
    ++steps;
  }
  std::vector<io::RunPart> parts() {
    return {model, opt, loader, {"steps", steps}, {"rng", stream}};
  }
  std::string bits() {
    std::string all = weights_of(model) + std::to_string(steps);
    all += " " + std::to_string(loader.position().sample);
    for (const nn::NamedTensor& t : opt.state()) all += t.name + bytes_of(t.tensor);
    return all;
  }
};

class SaveRun : public Work {
 public:
  SaveRun() {
    training_.train();
    test::write_file(path_, "what was there before");
    parts_ = training_.parts();
  }
  void run() override { io::save_run(path_, parts_); }
  std::string kept() override { return files_of(folder_) + training_.bits(); }
  std::string made() override { return files_of(folder_); }

 private:
  test::TempFolder folder_;
  std::string path_ = folder_.file("run");
  Training training_;
  std::vector<io::RunPart> parts_;
};

/// Under a RollbackPoint, which notes where the loader was.
class LoadRun : public Work {
 public:
  LoadRun() {
    other_.train();
    io::save_run(path_, other_.parts());
    parts_ = training_.parts();
  }
  void run() override {
    const RollbackPoint start;
    io::load_run(path_, parts_);
  }
  std::string kept() override { return files_of(folder_) + training_.bits(); }
  std::string made() override { return training_.bits(); }

 private:
  test::TempFolder folder_;
  std::string path_ = folder_.file("run");
  Training other_, training_;
  std::vector<io::RunPart> parts_;
};

class LoadTensors : public Work {
 public:
  LoadTensors() { io::save_safetensors(path_, io::state_of(other_)); }
  void run() override { tensors_ = io::load_safetensors(path_); }
  std::string kept() override { return files_of(folder_) + made(); }
  std::string made() override {
    std::string all;
    for (const nn::NamedTensor& t : tensors_) all += t.name + bytes_of(t.tensor);
    return all;
  }

 private:
  test::TempFolder folder_;
  std::string path_ = folder_.file("model");
  Model other_;
  std::vector<nn::NamedTensor> tensors_;
};

/// In several files, over those of an earlier save.
class SaveShards : public Work {
 public:
  SaveShards() { save(other_); }
  void run() override { save(model_); }
  std::string kept() override { return read() + weights_of(model_); }
  std::string made() override { return read(); }

 private:
  void save(const Model& m) {
    io::save_safetensors_shards(path_, io::state_of(m), {}, {.max_bytes = 100});
  }
  /// What a reader of the folder sees, and how many files there are.
  std::string read() {
    std::string all;
    for (const auto& [name, t] : io::load_safetensors(folder_.path().string()))
      all += name + bytes_of(t);
    const std::filesystem::directory_iterator files(folder_.path());
    return all + std::to_string(std::distance(files, {}));
  }

  test::TempFolder folder_;
  std::string path_ = folder_.path().string();
  Model other_, model_;
};

/// A part of a file, through a map, under other names, from a folder of several files.
class LoadPart : public Work {
 public:
  LoadPart() {
    io::save_safetensors_shards(folder_.path().string(), io::state_of(other_), {},
                                {.max_bytes = 100});
  }
  void run() override { io::load_safetensors(path_, model_, options_); }
  std::string kept() override { return weights_of(model_) + files_of(folder_); }
  std::string made() override { return weights_of(model_); }

 private:
  test::TempFolder folder_;
  std::string path_ = folder_.path().string();
  io::LoadOptions options_{.strict = false, .rename = {{"in.bias", "nothing"}}, .map = true};
  Model other_, model_{f16};
};

class ReadByName : public Work {
 public:
  ReadByName() { io::save_safetensors(path_, io::state_of(other_)); }
  void run() override {
    const io::SafetensorsFile file(path_, {.map = true});
    const Tensor t = file.read(name_);
    names_ = file.names();
    tensor_ = t;
  }
  std::string kept() override { return made() + files_of(folder_); }
  std::string made() override {
    std::string all = tensor_.defined() ? bytes_of(tensor_) : "";
    for (const std::string& name : names_) all += name;
    return all;
  }

 private:
  test::TempFolder folder_;
  std::string path_ = folder_.file("model"), name_ = "norm.running_mean";
  Model other_;
  Tensor tensor_;
  std::vector<std::string> names_;
};

/// The metadata of a language model's file, a part of its map, and a tensor that is decoded.
class ReadGguf : public Work {
 public:
  ReadGguf() {
    test::GgufWriter w;
    w.keys = {{"texts", 9, test::gguf_texts({std::string(40, 'a'), "b"})},
              {"numbers", 9, test::gguf_array(4, 2, std::string(8, '\1'))}};
    w.tensors = {{"plain", {2}, 0, std::string(8, '\1')}, {"q", {32}, 2, std::string(18, '\1')}};
    test::write_file(path_, w.bytes());
  }
  void run() override {
    const lm::GgufFile file(path_);
    auto texts = file.texts("texts");
    auto numbers = file.integers("numbers");
    const Tensor plain = file.read("plain"), decoded = file.read("q", f16);
    texts_ = std::move(texts);
    numbers_ = std::move(numbers);
    plain_ = plain;
    decoded_ = decoded;
  }
  std::string kept() override { return made() + files_of(folder_); }
  std::string made() override {
    std::string all;
    for (const Tensor& t : {plain_, decoded_}) all += t.defined() ? bytes_of(t) : "";
    for (const std::string& text : texts_) all += text;
    for (const std::int64_t number : numbers_) all += std::to_string(number);
    return all;
  }

 private:
  test::TempFolder folder_;
  std::string path_ = folder_.file("model.gguf");
  Tensor plain_, decoded_;
  std::vector<std::string> texts_;
  std::vector<std::int64_t> numbers_;
};
class Npy : public Work {
 public:
  Npy() { io::write_npy(path_, zeros({3})); }
  void run() override {
    const Tensor t = io::read_npy(path_);
    io::write_npy(path_, full(t.shape(), 2));
  }
  std::string kept() override { return files_of(folder_); }
  std::string made() override { return files_of(folder_); }

 private:
  test::TempFolder folder_;
  std::string path_ = folder_.file("a.npy");
};

template <class W>
MakeWork work() {
  return [] {
    manual_seed(1);
    return std::make_unique<W>();
  };
}

TEST_CASE("alloc_sweep: saving leaves the file as it was, or whole", "[host]") {
  CHECK(sweep(work<Save>(), Fails::heap) > 20);
  CHECK(sweep(work<Save>(), Fails::heap_for_good) > 20);
  sweep(work<Save>(), Fails::blocks);
}

TEST_CASE("alloc_sweep: loading into a model changes all of it or nothing", "[host]") {
  CHECK(sweep(work<Load>(), Fails::heap) > 20);
  CHECK(sweep(work<Load>(), Fails::heap_for_good) > 20);
  CHECK(sweep(work<Load>(), Fails::blocks) > 2);
}

TEST_CASE("alloc_sweep: loading tensors", "[host]") {
  CHECK(sweep(work<LoadTensors>(), Fails::heap) > 20);
  CHECK(sweep(work<LoadTensors>(), Fails::blocks) > 2);
}

TEST_CASE("alloc_sweep: saving and loading a run in the middle of a cycle", "[host]") {
  CHECK(sweep(work<SaveRun>(), Fails::heap, 3) > 20);
  CHECK(sweep(work<SaveRun>(), Fails::blocks) >= 2);
  CHECK(sweep(work<LoadRun>(), Fails::heap, 3) > 20);
  CHECK(sweep(work<LoadRun>(), Fails::blocks) > 2);
}

TEST_CASE("alloc_sweep: several files are replaced by all new ones or by none", "[host]") {
  CHECK(sweep(work<SaveShards>(), Fails::heap) > 20);
  CHECK(sweep(work<SaveShards>(), Fails::heap_for_good) > 20);
  sweep(work<SaveShards>(), Fails::blocks);
}

TEST_CASE("alloc_sweep: loading a part of a model changes all of it or nothing", "[host]") {
  CHECK(sweep(work<LoadPart>(), Fails::heap) > 20);
  CHECK(sweep(work<LoadPart>(), Fails::heap_for_good) > 20);
  CHECK(sweep(work<LoadPart>(), Fails::blocks) > 0);
}

TEST_CASE("alloc_sweep: reading tensors by name, and arrays", "[host]") {
  CHECK(sweep(work<ReadByName>(), Fails::heap) > 10);
  sweep(work<ReadByName>(), Fails::blocks);
  CHECK(sweep(work<ReadGguf>(), Fails::heap) > 10);
  CHECK(sweep(work<ReadGguf>(), Fails::blocks) > 0);
  CHECK(sweep(work<Npy>(), Fails::heap) > 5);
  CHECK(sweep(work<Npy>(), Fails::blocks) > 1);
}

}  // namespace
}  // namespace firn::testing

// Saving and loading, in which every allocation fails once.
#include <filesystem>
#include <memory>
#include <string>

#include "alloc_sweep/bytes.h"
#include "alloc_sweep/sweep.h"
#include "data/files.h"
#include "firn/firn.h"
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
  Generator stream{5};  ///< in place of the thread's, which differs in each thread of a sweep

  void train() {
    opt.backward(mse_loss(model.in(ones({4, 6}, f16)), zeros({4, 5}, f16)));
    opt.step();
    ++steps;
  }
  std::vector<io::RunPart> parts() { return {model, opt, {"steps", steps}, {"rng", stream}}; }
  std::string bits() {
    std::string all = weights_of(model) + std::to_string(steps);
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

class LoadRun : public Work {
 public:
  LoadRun() {
    other_.train();
    io::save_run(path_, other_.parts());
    parts_ = training_.parts();
  }
  void run() override { io::load_run(path_, parts_); }
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

}  // namespace
}  // namespace firn::testing

// What is made around a training, in which every allocation fails once: metrics, layers, samples,
// a checkpointed call, the log of fit(), and the facts of the environment.
#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "alloc_sweep/bytes.h"
#include "alloc_sweep/sweep.h"
#include "base/check.h"
#include "data/files.h"
#include "data/files/fashion_mnist_files.h"
#include "firn/firn.h"
#include "optim/report/step_listener.h"
#include "support/catch.h"
#include "support/threads.h"

namespace firn::testing {
namespace {

/// Something that is made anew, and nothing that it changes.
class Make : public Work {
 public:
  explicit Make(std::function<std::string()> text) : text_(std::move(text)) {}
  std::string kept() override { return {}; }
  std::string made() override { return text_(); }

 private:
  std::function<std::string()> text_;
};

class MakeMetrics : public Make {
 public:
  MakeMetrics() : Make([this] { return std::to_string(confusion_->matrix().size()); }) {}
  void run() override {
    accuracy_.emplace(metrics::AccuracyOptions{.top_k = 2});
    confusion_.emplace(metrics::ConfusionOptions{.classes = 3});
    auroc_.emplace(metrics::AurocOptions{});
  }

 private:
  std::optional<metrics::Accuracy> accuracy_;
  std::optional<metrics::Confusion> confusion_;
  std::optional<metrics::Auroc> auroc_;
};

class MakeBatchNorm : public Make {
 public:
  MakeBatchNorm()
      : Make([this] { return bytes_of(norm_->running_var) + bytes_of(norm_->pooled); }) {}
  void run() override {
    norm_.emplace(4, nn::BatchNormOptions{.accumulation = nn::BatchNormMode::per_step});
  }

 private:
  std::optional<nn::BatchNorm2d> norm_;
};

/// A layer whose mode stays if its change fails.
class ChangeBatchNorm : public Work {
 public:
  void run() override { norm_.set_accumulation(nn::BatchNormMode::per_step); }
  std::string kept() override { return norm_.extra_repr(); }
  std::string made() override { return norm_.extra_repr() + bytes_of(norm_.pooled); }

 private:
  nn::BatchNorm2d norm_{4};
};

class ReadSample : public Make {
 public:
  ReadSample() : Make([this] { return bytes_of(sample_.at(0)); }) {
    data::RecordWriter out(folder_.file("set"));
    for (int i = 0; i < 3; ++i) out.write({full({2}, i)});
    out.finish();
    set_.emplace(folder_.file("set"));
  }
  void run() override { sample_ = (*set_)[1]; }

 private:
  test::TempFolder folder_;
  std::optional<data::RecordDataset> set_;
  data::Sample sample_;
};

class FindFashionMnist : public Make {
 public:
  FindFashionMnist() : Make([this] { return found_ == path_ ? "found" : "something else"; }) {
    for (const char* const name : {"train-images-idx3-ubyte", "train-labels-idx1-ubyte",
                                   "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"})
      test::write_file(folder_.file(name), "");
  }
  void run() override { found_ = data::find_fashion_mnist(path_); }

 private:
  test::TempFolder folder_;
  std::string path_ = folder_.path().string(), found_;
};

/// What a call keeps goes to a file and comes back.
class CallInFile : public Work {
 public:
  CallInFile() { x_.set_requires_grad(); }
  void run() override {
    y_ = checkpoint(
        {.keep = Keep::in_file}, [this](const Tensor& t) { return gelu(net_(t)); }, x_);
  }
  std::string kept() override { return y_.defined() ? bytes_of(y_) : "none"; }
  std::string made() override {
    y_.sum().backward();
    return bytes_of(y_) + bytes_of(x_.grad());
  }

 private:
  nn::Sequential net_{nn::Linear(6, 5), nn::Tanh(), nn::Linear(5, 5)};
  Tensor x_ = ones({3, 6}), y_;
};

/// What fails leaves the training where it was, as any error does. So only the errors are looked
/// at.
class FitWithLog : public Work {
 public:
  FitWithLog() { options_.log.path = folder_.file("log.jsonl"); }
  void run() override {
    train::fit(net_, opt_, loader_, loss_, options_);
    done_ = true;
  }
  std::string kept() override { return {}; }
  void prepare_again() override {
    opt_.zero_grad();
    loader_.seek({0, 0});
  }
  std::string made() override { return done_ ? "done" : ""; }

 private:
  test::TempFolder folder_;
  nn::Linear net_{2, 3};
  optim::SGD opt_{net_.parameters(), {.lr = 0.1}};
  data::Loader loader_{data::TensorDataset({ones({4, 2}), zeros({4}, i64)}), {.batch = 2}};
  train::LossFunction loss_ = [](const Tensor& y, const Tensor& t) { return cross_entropy(y, t); };
  train::FitOptions options_{.epochs = 1, .log = {.every = 1}, .progress = false};
  bool done_ = false;
};

/// Who cannot begin to listen to an optimizer's steps leaves the place to the next.
class Listen : public Make {
 public:
  Listen() : Make([this] { return std::to_string(steps_); }) {}
  void run() override try {
    const optim::StepListener listener(opt_, [this](const optim::StepReport&) { ++steps_; });
    opt_.zero_grad();
    opt_.backward(net_(ones({1, 2})).sum());
    opt_.step();
  }
  FIRN_OUT_OF_MEMORY("listen")
  void prepare_again() override { steps_ = 0; }

 private:
  nn::Linear net_{2, 3};
  optim::SGD opt_{net_.parameters(), {.lr = 0.1}};
  int steps_ = 0;
};

/// Only the errors: what the system says may differ from one call to the next.
class Facts : public Work {
 public:
  void run() override {
    const Environment e = environment({.open = false});
    json_ = to_json(e);
    text_ = to_string(e);
  }
  std::string kept() override { return {}; }
  std::string made() override { return json_.empty() || text_.empty() ? "" : "both"; }

 private:
  std::string json_, text_;
};

template <class W>
MakeWork work() {
  return [] {
    manual_seed(1);
    return std::make_unique<W>();
  };
}

TEST_CASE("alloc_sweep: metrics and layers with statistics that are made", "[host]") {
  const Threads one(1);
  CHECK(sweep(work<MakeMetrics>(), Fails::heap) >= 3);
  CHECK(sweep(work<MakeMetrics>(), Fails::heap_for_good) >= 3);
  CHECK(sweep(work<MakeBatchNorm>(), Fails::heap) > 5);
  CHECK(sweep(work<MakeBatchNorm>(), Fails::heap_for_good) > 5);
  CHECK(sweep(work<MakeBatchNorm>(), Fails::blocks) > 2);
  CHECK(sweep(work<ChangeBatchNorm>(), Fails::blocks) >= 2);
}

TEST_CASE("alloc_sweep: a sample of records, and the folder of FashionMNIST", "[host]") {
  const Threads one(1);
  CHECK(sweep(work<ReadSample>(), Fails::heap) > 2);
  CHECK(sweep(work<ReadSample>(), Fails::heap_for_good) > 2);
  CHECK(sweep(work<FindFashionMnist>(), Fails::heap) > 5);
  CHECK(sweep(work<FindFashionMnist>(), Fails::heap_for_good) > 5);
}

TEST_CASE("alloc_sweep: a call that keeps its activations in a file", "[host]") {
  const Threads one(1);
  CHECK(sweep(work<CallInFile>(), Fails::heap) > 10);
  CHECK(sweep(work<CallInFile>(), Fails::heap_for_good) > 10);
  CHECK(sweep(work<CallInFile>(), Fails::blocks) > 2);
}

TEST_CASE("alloc_sweep: fit() with a log", "[host]") {
  const Threads one(1);
  CHECK(sweep(work<FitWithLog>(), Fails::heap, 5) > 20);
  CHECK(sweep(work<FitWithLog>(), Fails::heap_for_good, 25) > 5);
}

TEST_CASE("alloc_sweep: a listener to an optimizer's steps", "[host]") {
  const Threads one(1);
  CHECK(sweep(work<Listen>(), Fails::heap) > 3);
}

TEST_CASE("alloc_sweep: the facts of the environment", "[host]") {
  CHECK(sweep(work<Facts>(), Fails::heap, 5) > 20);
  CHECK(sweep(work<Facts>(), Fails::heap_for_good, 15) > 5);
}

}  // namespace
}  // namespace firn::testing

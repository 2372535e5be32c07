// Folders of checkpoints and of images, in which every allocation fails once.
#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "alloc_sweep/bytes.h"
#include "alloc_sweep/sweep.h"
#include "data/files.h"
#include "firn/firn.h"
#include "support/catch.h"
#include "support/threads.h"

namespace firn::testing {
namespace {

namespace fs = std::filesystem;

std::string text_of(const std::vector<io::Checkpoint>& list) {
  std::string all;
  for (const io::Checkpoint& c : list) all += fs::path(c.path).filename().string() + " ";
  return all;
}

/// A folder with three checkpoints of a small run.
class OfCheckpoints : public Work {
 public:
  explicit OfCheckpoints(bool async = false)
      : checkpoints_(folder_.path().string(), {.async = async}) {
    for (std::int64_t step = 1; step <= 3; ++step) checkpoints_.save(step, parts(), 1.0);
    checkpoints_.wait();
  }
  std::string kept() override { return bytes_of(net_.weight) + std::to_string(steps_); }

 protected:
  std::vector<io::RunPart> parts() { return {net_, {"steps", steps_}}; }

  test::TempFolder folder_;
  io::Checkpoints checkpoints_;
  nn::Linear net_{2, 2};
  std::int64_t steps_ = 7;
};

class ListCheckpoints : public OfCheckpoints {
 public:
  void run() override {
    const io::Checkpoints opened(std::move(paths_.at(tries_++)), {.best = io::BestMetric::lowest});
    list_ = opened.list();
    const auto best = opened.best();
    best_ = best ? best->step : -1;
  }
  std::string made() override { return text_of(list_) + std::to_string(best_); }

 private:
  std::string path_ = folder_.path().string();
  std::array<std::string, 2> paths_ = {path_,
                                       path_};  ///< a copy would be an allocation of the test
  std::size_t tries_ = 0;
  std::vector<io::Checkpoint> list_;
  std::int64_t best_ = -1;
};

class ResumeCheckpoints : public OfCheckpoints {
 public:
  ResumeCheckpoints() { steps_ = 9; }
  void run() override { checkpoints_.resume(parts_); }
  std::string made() override { return kept(); }

 private:
  std::vector<io::RunPart> parts_ = parts();
};

/// Removes the third checkpoint and saves it anew.
class SaveCheckpoint : public OfCheckpoints {
 public:
  explicit SaveCheckpoint(bool async) : OfCheckpoints(async) {}
  void run() override {
    checkpoints_.discard_after(2);
    checkpoints_.save(3, parts_);
    checkpoints_.wait();
  }
  std::string made() override { return text_of(checkpoints_.list()); }

 private:
  std::vector<io::RunPart> parts_ = parts();
};

class ListImages : public Work {
 public:
  ListImages() {
    for (const char* const name : {"a/1.png", "a/in/2.jpg", "b/1.png"}) {
      fs::create_directories((folder_.path() / name).parent_path());
      test::write_file(folder_.file(name), "");
    }
  }
  void run() override { set_.emplace(path_); }
  std::string kept() override { return {}; }
  std::string made() override {
    std::string all;
    for (const std::string& name : set_->classes()) all += name + " ";
    for (std::int64_t i = 0; i < set_->size(); ++i) all += set_->path(i).substr(path_.size()) + " ";
    return all;
  }

 private:
  test::TempFolder folder_;
  std::string path_ = folder_.path().string();
  std::optional<data::ImageFolder> set_;
};

template <class W, class... Args>
MakeWork work(Args... args) {
  return [=]() -> std::unique_ptr<Work> {
    manual_seed(1);
    return std::make_unique<W>(args...);
  };
}

TEST_CASE("alloc_sweep: the list of checkpoints, and the best", "[host]") {
  const Threads one(1);
  CHECK(sweep(work<ListCheckpoints>(), Fails::heap, 2) > 20);
  CHECK(sweep(work<ListCheckpoints>(), Fails::heap_for_good, 2) > 20);
}

TEST_CASE("alloc_sweep: a run resumes from checkpoints as a whole or not at all", "[host]") {
  const Threads one(1);
  CHECK(sweep(work<ResumeCheckpoints>(), Fails::heap, 2) > 20);
  CHECK(sweep(work<ResumeCheckpoints>(), Fails::heap_for_good, 5) > 5);
}

TEST_CASE("alloc_sweep: checkpoints that are discarded and saved, also by a thread", "[host]") {
  const Threads one(1);
  const bool async = GENERATE(false, true);
  CHECK(sweep(work<SaveCheckpoint>(async), Fails::heap, 2) > 20);
  CHECK(sweep(work<SaveCheckpoint>(async), Fails::heap_for_good, 5) > 5);
}

TEST_CASE("alloc_sweep: the list of a folder's images", "[host]") {
  CHECK(sweep(work<ListImages>(), Fails::heap) > 10);
  CHECK(sweep(work<ListImages>(), Fails::heap_for_good) > 10);
}

}  // namespace
}  // namespace firn::testing

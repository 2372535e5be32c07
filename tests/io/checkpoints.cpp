// A folder of checkpoints: which stay, what resume() takes, and what it passes over.
#include "firn/io/checkpoints.h"

#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <string>
#include <thread>
#include <vector>

#include "data/files.h"
#include "firn/firn.h"
#include "io/bits.h"
#include "support/catch.h"
#include "support/matchers.h"

namespace firn::testing {
namespace {

namespace fs = std::filesystem;
using test::TempFolder;

/// A training whose steps are functions of their numbers.
struct Training {
  nn::Linear net = made();
  optim::Adam opt{net.parameters(), {.lr = 0.01}};
  std::int64_t step = 0;

  static nn::Linear made() {
    Generator g(3);
    const GeneratorScope scope(g);
    return nn::Linear(6, 4);
  }
  void advance(int steps) {
    for (int i = 0; i < steps; ++i, ++step) {
      Generator g(static_cast<std::uint64_t>(step));
      const GeneratorScope scope(g);
      opt.backward(mse_loss(net(rand({5, 6})), zeros({5, 4})));
      opt.step();
    }
  }
  std::vector<io::RunPart> parts() { return {net, opt, {"step", step}}; }
  std::string bits() const {
    std::string all = std::to_string(step);
    for (const auto& [name, t] : opt.state()) all += name + testing::bits_of(t);
    return all;
  }
};

class CollectedWarnings {
 public:
  CollectedWarnings()
      : before_(set_warning_handler([this](const std::string& t) { texts_.push_back(t); })) {}
  ~CollectedWarnings() { set_warning_handler(before_); }
  const std::vector<std::string>& texts() const { return texts_; }

 private:
  std::vector<std::string> texts_;
  WarningHandler before_;
};

std::vector<std::int64_t> steps_of(const io::Checkpoints& checkpoints) {
  std::vector<std::int64_t> steps;
  for (const io::Checkpoint& c : checkpoints.list()) steps.push_back(c.step);
  return steps;
}

std::size_t files_in(const fs::path& folder) {
  return static_cast<std::size_t>(
      std::distance(fs::directory_iterator(folder), fs::directory_iterator()));
}

void flip_a_bit(const std::string& path, std::streamoff at) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekg(at);
  const char old = static_cast<char>(file.get());
  file.seekp(at);
  file.put(static_cast<char>(old ^ 4));
}

}  // namespace

TEST_CASE("checkpoints: the newest and the best stay", "[host]") {
  const TempFolder folder;
  const std::string path = (folder.path() / "run").string();
  Training t;
  {
    io::Checkpoints checkpoints(path, {.keep = 2, .best = io::BestMetric::lowest});
    CHECK(!checkpoints.best());
    const double losses[] = {5, 1, 4, 3, 2};
    for (int i = 0; i < 5; ++i) {
      t.advance(1);
      checkpoints.save(t.step, t.parts(), losses[i]);
    }
    CHECK(steps_of(checkpoints) == std::vector<std::int64_t>{2, 4, 5});
    CHECK(checkpoints.best()->step == 2);
    CHECK(checkpoints.best()->metric == 1);
    t.advance(1);
    checkpoints.save(t.step, t.parts());  // without a metric
    CHECK(steps_of(checkpoints) == std::vector<std::int64_t>{2, 5, 6});
    CHECK(std::isnan(checkpoints.list().back().metric));
    CHECK(checkpoints.list().back().path == path + "/step-000000000006.safetensors");
    t.advance(1);
    checkpoints.save(t.step, t.parts(), 0.5);
    // The best is among the newest two.
    CHECK(steps_of(checkpoints) == std::vector<std::int64_t>{6, 7});
  }
  // Another object finds the best again, which load_run() loads.
  const io::Checkpoints again(path, {.best = io::BestMetric::lowest});
  CHECK(again.best()->step == 7);
  const io::Checkpoints highest(path, {.best = io::BestMetric::highest});
  CHECK(highest.best()->step == 7);  // the only one with a metric
  Training other;
  io::load_run(again.best()->path, other.parts());
  CHECK_THROWS_WITH(io::Checkpoints(path).best(), test::contains("give .best = io::BestMetric"));
  CHECK(other.bits() == t.bits());
}

TEST_CASE("[S34] checkpoints: a run goes on from the newest, with the same bits", "[host]") {
  const TempFolder folder;
  const bool async = GENERATE(false, true);
  Training whole;
  whole.advance(9);
  for (int stop = 0; whole.step == 9; ++stop) {
    Training t;
    io::Checkpoints checkpoints(folder.path().string(), {.async = async});
    const auto from = checkpoints.resume(t.parts());
    REQUIRE(from.has_value() == (stop > 0));
    if (from) CHECK(from->step == t.step);
    if (t.step == 9) {
      CHECK(t.net.weight.to_vector<float>() == whole.net.weight.to_vector<float>());
      break;
    }
    t.advance(3);
    checkpoints.save(t.step, t.parts());
    t.advance(2);  // lost
  }
}

TEST_CASE("checkpoints: an asynchronous save has the bits of its moment", "[host]") {
  const TempFolder a, b;
  io::Checkpoints now(a.path().string()), later(b.path().string(), {.async = true});
  Training t;
  for (int i = 0; i < 4; ++i) {
    t.advance(1);
    now.save(t.step, t.parts());
    later.save(t.step, t.parts());
    t.advance(2);  // while the thread writes
  }
  later.wait();
  const auto left = now.list(), right = later.list();
  REQUIRE(left.size() == 3);
  REQUIRE(right.size() == 3);
  for (std::size_t i = 0; i < 3; ++i)
    CHECK(test::read_file(left[i].path) == test::read_file(right[i].path));
}

TEST_CASE("checkpoints: an asynchronous failure is told once", "[host]") {
  const TempFolder folder;
  const fs::path path = folder.path() / "run";
  Training t;
  CollectedWarnings warnings;
  {
    io::Checkpoints checkpoints(path.string(), {.async = true});
    t.advance(1);
    checkpoints.save(t.step, t.parts());
    checkpoints.wait();
    fs::create_directory(path / "step-000000000002.safetensors");  // no file can replace it
    t.advance(1);
    checkpoints.save(t.step, t.parts());
    CHECK_THROWS_WITH(checkpoints.wait(), test::contains("is a directory, not a regular file"));
    checkpoints.wait();
    CHECK(warnings.texts().empty());
    fs::remove(path / "step-000000000002.safetensors");
    checkpoints.save(t.step, t.parts());  // the same step once more
    checkpoints.wait();
    CHECK(checkpoints.list().size() == 2);
    fs::create_directory(path / "step-000000000003.safetensors");
    t.advance(1);
    checkpoints.save(t.step, t.parts());
  }
  REQUIRE(warnings.texts().size() == 1);
  CHECK_THAT(warnings.texts().front(), test::contains("the last checkpoint was not written"));
}

TEST_CASE("[S32] checkpoints: a damaged one is passed over, and gone with the next save",
          "[host]") {
  const TempFolder folder;
  Training t;
  std::vector<std::string> bits;
  std::vector<io::Checkpoint> all;
  {
    io::Checkpoints checkpoints(folder.path().string());
    for (int i = 0; i < 3; ++i) {
      t.advance(1);
      bits.push_back(t.bits());
      checkpoints.save(t.step, t.parts());
    }
    all = checkpoints.list();
  }
  flip_a_bit(all[2].path, static_cast<std::streamoff>(fs::file_size(all[2].path)) - 20);
  fs::resize_file(all[1].path, 100);
  CollectedWarnings warnings;
  Training other;
  io::Checkpoints checkpoints(folder.path().string());
  REQUIRE(checkpoints.resume(other.parts())->step == 1);
  CHECK(other.bits() == bits[0]);
  REQUIRE(warnings.texts().size() == 2);
  CHECK_THAT(warnings.texts()[0], test::contains(all[2].path + " is passed over"));
  CHECK_THAT(warnings.texts()[1], test::contains(all[1].path + " is passed over"));
  // Steps 2 and 3 come again; step 3's damaged file must not stand in for the new one.
  other.advance(1);
  checkpoints.save(other.step, other.parts());
  CHECK(steps_of(checkpoints) == std::vector<std::int64_t>{1, 2});

  fs::resize_file(all[0].path, 7);
  fs::resize_file(all[1].path, 7);
  io::Checkpoints none(folder.path().string());
  const std::string before = other.bits();
  CHECK_THROWS_WITH(none.resume(other.parts()),
                    test::contains("none of its 2 checkpoints can be read"));
  CHECK(other.bits() == before);
}

TEST_CASE("checkpoints: damaged files take no place of the good ones", "[host]") {
  const TempFolder folder;
  Training t;
  {
    io::Checkpoints checkpoints(folder.path().string(), {.keep = 2});
    for (int i = 0; i < 3; ++i) {
      t.advance(1);
      checkpoints.save(t.step, t.parts());
    }
    fs::resize_file(checkpoints.list()[1].path, 100);
  }
  CollectedWarnings warnings;
  Training other;
  io::Checkpoints checkpoints(folder.path().string(), {.keep = 2});
  REQUIRE(checkpoints.resume(other.parts())->step == 2);
  other.advance(2);
  checkpoints.save(other.step, other.parts());
  CHECK(steps_of(checkpoints) == std::vector<std::int64_t>{2, 4});
}

TEST_CASE("checkpoints: a run goes on from an older one if the later ones are discarded",
          "[host]") {
  const TempFolder folder;
  Training t;
  io::Checkpoints checkpoints(folder.path().string(), {.best = io::BestMetric::lowest});
  const double losses[] = {3, 1, 2};
  std::string best_bits;
  for (const double loss : losses) {
    t.advance(1);
    checkpoints.save(t.step, t.parts(), loss);
    if (loss == 1) best_bits = t.bits();
  }
  const auto best = checkpoints.best();
  REQUIRE(best->step == 2);
  io::load_run(best->path, t.parts());
  CHECK(t.bits() == best_bits);
  CHECK_THROWS_WITH(checkpoints.save(t.step, t.parts()), test::contains("step 2 after step 3"));
  checkpoints.discard_after(best->step);
  CHECK(steps_of(checkpoints) == std::vector<std::int64_t>{1, 2});
  t.advance(1);
  checkpoints.save(t.step, t.parts(), 5);
  CHECK(steps_of(checkpoints) == std::vector<std::int64_t>{1, 2, 3});
}

TEST_CASE("checkpoints: a save after a failed one is done, and tells of that", "[host]") {
  const TempFolder folder;
  Training t;
  io::Checkpoints checkpoints(folder.path().string(), {.async = true});
  fs::create_directory(folder.path() / "step-000000000001.safetensors");
  // The folder counts as a checkpoint that was there before.
  CHECK_THROWS_WITH(checkpoints.save(1, t.parts()), test::contains("of another run"));
  checkpoints.discard_after(1);
  checkpoints.save(1, t.parts());
  CHECK_THROWS_WITH(checkpoints.save(2, t.parts()), test::contains("is a directory"));
  checkpoints.wait();
  CHECK(fs::is_regular_file(folder.path() / "step-000000000002.safetensors"));
}

TEST_CASE("checkpoints: the folder stays the same after chdir()", "[host]") {
  const TempFolder folder;
  const fs::path before = fs::current_path();
  fs::current_path(folder.path());
  Training t;
  io::Checkpoints checkpoints("run/");
  fs::current_path(before);
  checkpoints.save(1, t.parts());
  CHECK(checkpoints.folder() == fs::canonical(folder.path() / "run").string());
  CHECK(fs::exists(folder.path() / "run/step-000000000001.safetensors"));
}

TEST_CASE("checkpoints: names of parts may have any characters", "[host]") {
  const TempFolder folder;
  Training t;
  double number = 2.5;
  const std::vector<io::RunPart> parts = {t.net, {"a \"quoted\\ name\n\x01", number}};
  io::Checkpoints checkpoints(folder.path().string());
  checkpoints.save(1, parts);
  number = 0;
  CHECK(checkpoints.resume({t.net, {"a \"quoted\\ name\n\x01", number}})->step == 1);
  CHECK(number == 2.5);
}

TEST_CASE("checkpoints: refusals", "[host]") {
  const TempFolder folder;
  const std::string path = folder.path().string();
  Training t;
  io::Checkpoints checkpoints(path);
  t.advance(5);
  checkpoints.save(t.step, t.parts());
  CHECK_THROWS_WITH(checkpoints.save(4, t.parts()), test::contains("step 4 after step 5"));
  for (const std::int64_t step : {std::int64_t{-1}, std::numeric_limits<std::int64_t>::max(),
                                  std::numeric_limits<std::int64_t>::min()})
    CHECK_THROWS_WITH(checkpoints.save(step, t.parts()),
                      "[Checkpoints] step " + std::to_string(step) +
                          "; a checkpoint has 0 to 999999999999; hint: count the steps of the run "
                          "from 0");
  CHECK_THROWS_WITH(io::Checkpoints(path, {.keep = 0}), test::contains("keep is 0"));
  CHECK_THROWS_WITH(io::Checkpoints(path + "/no/such"), test::contains("is no folder"));
  CHECK_THROWS_WITH(io::Checkpoints(checkpoints.list()[0].path), test::contains("is no folder"));
  CHECK_THROWS_WITH(io::Checkpoints(""), test::contains("name a folder"));

  // A run that begins in the folder of another would remove that one's checkpoints.
  io::Checkpoints fresh(path);
  Training other;
  other.advance(1);
  CHECK_THROWS_WITH(fresh.save(other.step, other.parts()),
                    test::contains("is in the folder, of another run than this one"));
  // Of another kind: an error, not a reason to take an older one.
  nn::Linear net(6, 4);
  optim::SGD sgd(net.parameters(), {.lr = 0.1});
  const std::vector<io::RunPart> others = {net, sgd, {"step", other.step}};
  CHECK_THROWS_WITH(fresh.resume(others), test::contains("it is of another run"));

  io::Checkpoints moved = std::move(checkpoints);
  CHECK(moved.list().size() == 1);
  CHECK_THROWS_WITH(checkpoints.list(), test::contains("moved away"));  // NOLINT
}

TEST_CASE("checkpoints: a folder that was removed is named", "[host]") {
  const TempFolder folder;
  const std::string path = (folder.path() / "run").string();
  const io::Checkpoints checkpoints(path);
  fs::remove(path);
  CHECK_THROWS_WITH(checkpoints.list(),
                    "[Checkpoints] " + path +
                        ": cannot be listed: No such file or directory; hint: name a folder that "
                        "is there and may be read");
}

TEST_CASE("checkpoints: what dead processes left behind goes, other files stay", "[host]") {
  const TempFolder folder;
  for (const char* const name :
       {"step-000000000007.safetensors.tmp-0123456789abcdef", "notes.txt",
        "notes.txt.tmp-0123456789abcdef", "step-7.safetensors", "step-00000000000x.safetensors"})
    std::ofstream(folder.path() / name) << "text";
  Training t;
  io::Checkpoints checkpoints(folder.path().string());
  CHECK(checkpoints.list().empty());
  t.advance(1);
  checkpoints.save(t.step, t.parts());
  CHECK(files_in(folder.path()) == 5);
  CHECK(!fs::exists(folder.path() / "step-000000000007.safetensors.tmp-0123456789abcdef"));
}

}  // namespace firn::testing

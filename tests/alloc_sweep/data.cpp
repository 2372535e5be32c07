// Loaders and resident batches, in which every allocation fails once.
#include <array>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "alloc_sweep/bytes.h"
#include "alloc_sweep/sweep.h"
#include "firn/firn.h"
#include "support/catch.h"
#include "support/threads.h"

namespace firn::testing {
namespace {

data::LabelledImages images() {
  std::vector<std::uint8_t> pixels, labels;
  for (int i = 0; i < 20; ++i) labels.push_back(static_cast<std::uint8_t>(i));
  for (int i = 0; i < 20 * 12; ++i) pixels.push_back(static_cast<std::uint8_t>(i * 7));
  return {tensor(pixels, {20, 3, 4}, Device::cpu()), tensor(labels, {20}, Device::cpu())};
}

/// Batches that a run has made. Keeping them takes no memory.
struct Taken {
  std::array<data::LoaderBatch, 8> batches = {};
  std::size_t count = 0;

  void take(data::LoaderBatch& batch) { batches.at(count++) = std::move(batch); }
  std::string bits() const {
    std::string all;
    for (std::size_t i = 0; i < count; ++i) {
      all += bytes_of(batches[i].ids);
      for (const Tensor& field : batches[i].fields) all += bytes_of(field);
    }
    return all;
  }
};

/// A loader of sets of many kinds, an epoch of it, and a position in another.
class Epoch : public Work {
 public:
  explicit Epoch(int workers) : workers_(workers) {
    const data::Dataset each(20, [](std::int64_t i) {
      return data::Sample{full({3, 4}, static_cast<double>(i), u8),
                          full({}, static_cast<double>(i), i64)};
    });
    const data::ImageDataset parts(
        data::Concat({data::Subset(each, 0, 9), data::Subset(each, 9, 20)}),
        {.mean = 0.5f, .augment = {.crop_padding = 1, .flip = 0.5}});
    const data::Map noisy(parts, [](data::Sample s, Generator& g) {
      s[0] = s[0] + rand({3, 4}, {.generator = &g});
      return s;
    });
    set_.emplace(data::random_split(noisy, {0.8, 0.2}, 3)[0]);
  }
  void run() override {
    taken_ = {};
    data::Loader loader(
        *set_,
        {.batch = 5, .shuffle = true, .seed = 2, .workers = workers_, .device = Device::cpu()});
    for (auto& batch : loader.epoch(1)) taken_.take(batch);
    loader.seek({3, 7});
    taken_.take(*loader.begin());
  }
  std::string kept() override { return {}; }
  std::string made() override { return taken_.bits(); }

 private:
  int workers_;
  std::optional<data::Dataset> set_;
  Taken taken_;
};

/// A loop that begins in mid-epoch, by length: whatever fails, the position stays.
class OneBatch : public Work {
 public:
  void run() override {
    loader_.seek(loader_.position());
    taken_.take(*loader_.begin());
  }
  std::string kept() override {
    const data::LoaderPosition p = loader_.position();
    return std::to_string(p.epoch) + "/" + std::to_string(p.sample);
  }
  std::string made() override { return taken_.bits() + kept(); }

 private:
  data::Loader loader_{data::ImageDataset(images()),
                       {.batch = 6,
                        .shuffle = true,
                        .seed = 1,
                        .lengths = {4, 2, 4, 2, 4, 2, 4, 2, 4, 2, 4, 2, 4, 2, 4, 2, 4, 2, 4, 2},
                        .window = 2,
                        .device = Device::cpu()}};
  Taken taken_;
};

class Resident : public Work {
 public:
  void run() override {
    count_ = 0;
    batches_.begin_epoch(2);
    while (batches_.remaining() > 0) taken_.at(count_++) = batches_.next();
  }
  std::string kept() override { return batches_.order_description(); }
  std::string made() override {
    std::string all;
    for (std::size_t i = 0; i < count_; ++i) all += bytes_of(taken_[i].x) + bytes_of(taken_[i].y);
    return all;
  }

 private:
  data::ResidentBatches batches_{data::ImageDataset(images(), {.augment = {.flip = 0.5}}),
                                 {.batch = 6, .shuffle = true, .device = Device::cpu()}};
  std::array<data::Batch, 8> taken_ = {};
  std::size_t count_ = 0;
};

template <class W, class... Args>
MakeWork work(Args... args) {
  return [=]() -> std::unique_ptr<Work> { return std::make_unique<W>(args...); };
}

TEST_CASE("alloc_sweep: an epoch of a loader, and a place in another one", "[host]") {
  const Threads one(1);
  CHECK(sweep(work<Epoch>(0), Fails::heap, 2) > 50);
  CHECK(sweep(work<Epoch>(0), Fails::heap_for_good, 5) > 20);
  CHECK(sweep(work<Epoch>(0), Fails::blocks) > 20);
}

TEST_CASE("alloc_sweep: a batch and the batches of an epoch on the device", "[host]") {
  const Threads one(1);
  CHECK(sweep(work<OneBatch>(), Fails::heap) > 5);
  CHECK(sweep(work<OneBatch>(), Fails::blocks) > 2);
  CHECK(sweep(work<Resident>(), Fails::heap) > 2);
  CHECK(sweep(work<Resident>(), Fails::blocks) > 2);
}

}  // namespace
}  // namespace firn::testing

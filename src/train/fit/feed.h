// Source of the batches of a training: a Loader, or images on the device.
#pragma once

#include <cstdint>
#include <functional>
#include <utility>

#include "firn/data/loader.h"
#include "firn/io/run.h"

namespace firn::data {
class ResidentBatches;
}

namespace firn::train {

class Feed {
 public:
  virtual ~Feed() = default;
  virtual std::int64_t epoch_samples() const = 0;  ///< samples over all ranks
  virtual data::LoaderPosition position() const = 0;
  virtual io::RunPart part() = 0;
  virtual double seconds() const = 0;  ///< spent on batches so far, without steps
  /// Calls the step for each batch that is left of an epoch, and after it on_batch(samples). Stops
  /// within the epoch if on_batch returns false. Otherwise goes to the start of the next epoch, and
  /// returns true.
  virtual bool run(std::int64_t epoch, const std::function<bool(std::int64_t)>& on_batch) = 0;
};

using BatchStep = std::function<void(const data::LoaderBatch&)>;

class LoaderFeed final : public Feed {
 public:
  LoaderFeed(data::Loader& loader, BatchStep step) : loader_(loader), step_(std::move(step)) {}
  std::int64_t epoch_samples() const override;
  data::LoaderPosition position() const override;
  io::RunPart part() override;
  double seconds() const override { return loader_.stats().waited; }
  bool run(std::int64_t epoch, const std::function<bool(std::int64_t)>& on_batch) override;

 private:
  data::Loader& loader_;
  BatchStep step_;
};

class ResidentFeed final : public Feed {
 public:
  ResidentFeed(data::ResidentBatches& batches, std::function<void()> step)
      : batches_(batches), step_(std::move(step)) {}
  std::int64_t epoch_samples() const override;
  data::LoaderPosition position() const override;
  io::RunPart part() override;
  double seconds() const override { return 0; }
  bool run(std::int64_t epoch, const std::function<bool(std::int64_t)>& on_batch) override;

 private:
  data::ResidentBatches& batches_;
  std::function<void()> step_;
};

}  // namespace firn::train

#include "train/fit/feed.h"

#include "base/check.h"
#include "firn/data/resident_batches.h"

namespace firn::train {

std::int64_t LoaderFeed::epoch_samples() const { return loader_.samples(); }
data::LoaderPosition LoaderFeed::position() const { return loader_.position(); }
io::RunPart LoaderFeed::part() { return loader_; }

bool LoaderFeed::run(std::int64_t epoch, const std::function<bool(std::int64_t)>& on_batch) {
  for (const data::LoaderBatch& batch : loader_.epoch(epoch)) {
    step_(batch);
    if (!on_batch(batch.total)) return false;
  }
  return true;
}

std::int64_t ResidentFeed::epoch_samples() const { return batches_.samples(); }
data::LoaderPosition ResidentFeed::position() const { return batches_.position(); }
io::RunPart ResidentFeed::part() { return batches_; }

bool ResidentFeed::run(std::int64_t epoch, const std::function<bool(std::int64_t)>& on_batch) {
  if (batches_.position().epoch != epoch) batches_.begin_epoch(epoch);
  while (batches_.remaining() > 0) {
    const std::int64_t before = batches_.remaining();
    step_();
    const std::int64_t taken = before - batches_.remaining();
    FIRN_CHECK(taken > 0, "fit", "call next() of the batches in it",
               "the step has taken none of the {} samples that are left of epoch {}", before,
               epoch + 1);
    if (!on_batch(taken)) return false;
  }
  batches_.begin_epoch(epoch + 1);
  return true;
}

}  // namespace firn::train

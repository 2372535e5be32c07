#include "data/loader/batch_maker.h"

#include <algorithm>
#include <new>
#include <utility>
#include <vector>

#include "base/check.h"
#include "data/collate.h"
#include "firn/runtime/spans.h"

namespace firn::data {
namespace {

constexpr const char* kOp = "Loader";
constexpr const char* kHint = "BadSample::skip leaves out samples that throw";

std::string joined(const std::string& hint, const char* another) {
  return hint.empty() ? another : fmt::format("{}; {}", hint, another);
}

/// Returns the ids as a tensor.
Tensor id_tensor(const std::vector<std::int64_t>& ids) {
  return tensor(ids, {static_cast<std::int64_t>(ids.size())}, Device::cpu());
}

}  // namespace

void Failure::raise(LoaderPosition position, BadSample bad_sample) const {
  if (kind == Kind::memory && text.empty()) detail::out_of_memory(kOp);
  if (kind == Kind::memory) throw OutOfMemory(text, requested);
  if (kind == Kind::sample)
    throw SampleError(index,
                      fmt::format("epoch {}, the batch at position {}: {}", position.epoch,
                                  position.sample, text),
                      bad_sample == BadSample::skip ? hint : joined(hint, kHint), kOp);
  detail::fail(kOp, "", "the batch at position {} of epoch {}: {}", position.sample, position.epoch,
               text);
}

BatchMaker::BatchMaker(Dataset set, LoaderOptions options)
    : set_(std::move(set)),
      options_(checked_options(kOp, std::move(options))),
      size_(set_.size()),
      order_(kOp, size_, options_) {}

std::int64_t BatchMaker::count_at(LoaderPosition position) const noexcept {
  const std::int64_t left = order_.samples() - position.sample;
  return std::clamp<std::int64_t>(left, 0, options_.batch);
}

Sample BatchMaker::collate(std::span<const Sample> samples,
                           std::span<const std::int64_t> ids) const {
  if (!options_.collate) return collate_samples(kOp, samples, options_.pad, ids);
  Sample batch = options_.collate(samples);
  FIRN_CHECK(!batch.empty(), kOp, "return at least one tensor", "collate returned no fields");
  for (const Tensor& field : batch)
    FIRN_CHECK(field.defined() && field.device().is_cpu(), kOp, "the loader moves whole batches",
               "collate returned a field that is not on the CPU: {}", describe(field));
  return batch;
}

Sample BatchMaker::each(std::span<const std::int64_t> ids, const DrawContext& context) const {
  std::vector<Sample> samples;
  samples.reserve(ids.size());
  const DatasetSource& source = *set_.source();
  for (const std::int64_t id : ids)
    samples.push_back(make_sample(id, [&] { return take_sample(source, id, context); }));
  return collate(samples, ids);
}

Sample BatchMaker::make_fields(std::span<const std::int64_t> ids,
                               const DrawContext& context) const {
  if (options_.pad || options_.collate) return each(ids, context);
  Sample batch = set_.source()->collect(ids, context);
  FIRN_CHECK(!batch.empty(), kOp, "return one tensor or more", "collect() returned no fields");
  for (const Tensor& field : batch)
    FIRN_CHECK(field.defined() && field.device().is_cpu() && field.rank() > 0 &&
                   field.size(0) == static_cast<std::int64_t>(ids.size()),
               kOp, "axis 0 of every field is the batch", "collect() of {} samples returned {}",
               ids.size(), describe(field));
  return batch;
}

MadeBatch BatchMaker::without_bad(std::span<const std::int64_t> ids,
                                  const DrawContext& context) const {
  MadeBatch made;
  std::vector<Sample> samples;
  std::vector<std::int64_t> good;
  const DatasetSource& source = *set_.source();
  for (const std::int64_t id : ids) {
    try {
      samples.push_back(make_sample(id, [&] { return take_sample(source, id, context); }));
      good.push_back(id);
    } catch (const SampleError& e) {
      if (made.skipped++ == 0)
        made.why_skipped = fmt::format("sample {}: {}", e.index(), e.cause());
    }
  }
  if (good.empty()) {  // with other ranks, the batch still counts
    if (options_.group.size() > 1) made.ids = id_tensor(good);
    return made;
  }
  made.fields = collate(samples, good);
  made.ids = id_tensor(good);
  return made;
}

MadeBatch BatchMaker::try_make(LoaderPosition position, std::int64_t count) const {
  const runtime::Span span(runtime::SpanKind::phase, "make batch");
  const Share part = part_of(count);
  std::vector<std::int64_t> ids(static_cast<std::size_t>(part.size()));
  position.sample += part.first;
  order_.fill(position, ids);
  MadeBatch made;
  made.ids = id_tensor(ids);
  if (ids.empty()) return made;
  const DrawContext context{options_.seed, position.epoch};
  Generator own =
      context.generator(-1 - position.sample);  // for collate(); distinct from the samples' streams
  const GeneratorScope scope(own);
  const bool skips = options_.bad_sample == BadSample::skip;
  try {
    made.fields = make_fields(ids, context);
    return made;
  } catch (const OutOfMemory&) {
    throw;
  } catch (const std::bad_alloc&) {
    throw;
  } catch (const SampleError&) {
    if (!skips) throw;
  } catch (...) {
    if (!skips) {
      // The user's collect() failed: find the sample that is to blame.
      for (const std::int64_t id : ids)
        make_sample(id, [&] { return take_sample(*set_.source(), id, context); });
      throw;
    }
  }
  return without_bad(ids, context);
}

MadeBatch BatchMaker::make(LoaderPosition position, std::int64_t count) const noexcept {
  const Surroundings same_in_every_thread;
  MadeBatch made;
  try {
    try {
      made = try_make(position, count);
      if (!options_.device.is_cpu() && !made.fields.empty())
        made.pinned = pin(std::exchange(made.fields, {}));
      return made;
    } catch (const SampleError& e) {
      made.failure = Failure{Failure::Kind::sample, e.index(), 0, std::string(e.cause()), e.hint()};
    } catch (const OutOfMemory& e) {
      made.failure = Failure{Failure::Kind::memory, 0, e.requested_bytes(), e.message(), {}};
    } catch (const std::bad_alloc&) {
      made.failure.emplace();
    } catch (const std::exception& e) {
      made.failure = Failure{Failure::Kind::batch, 0, 0, e.what(), {}};
    } catch (...) {
      made.failure = Failure{Failure::Kind::batch, 0, 0, "the exception is no std::exception", {}};
    }
  } catch (...) {  // no memory for the text
    made.failure.emplace();
  }
  return made;
}

}  // namespace firn::data

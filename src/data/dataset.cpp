#include "firn/data/dataset.h"

#include <utility>

#include "base/check.h"
#include "data/collate.h"
#include "data/scramble.h"
#include "kernels/math/philox.h"

namespace firn::data {
namespace {

constexpr const char* kOp = "Dataset";

/// A set whose samples a function makes.
class Function : public DatasetSource {
 public:
  Function(std::int64_t size, std::function<Sample(std::int64_t)> get)
      : size_(size), get_(std::move(get)) {}
  std::int64_t size() const override { return size_; }
  Sample get(std::int64_t index) const override { return get_(index); }

 private:
  std::int64_t size_;
  std::function<Sample(std::int64_t)> get_;
};

std::shared_ptr<const DatasetSource> source_of(std::int64_t size,
                                               std::function<Sample(std::int64_t)> get) {
  FIRN_CHECK(size >= 0, kOp, "0 makes an empty set", "a set cannot have {} samples", size);
  require_function(kOp, get, "give a function of the sample's number",
                   "the function that gets a sample");
  return std::make_shared<const Function>(size, std::move(get));
}

}  // namespace

SampleError::SampleError(std::int64_t index, std::string_view message, std::string_view hint,
                         std::string_view op)
    : Error(op, fmt::format("sample {}: {}", index, message), hint), index_(index) {}

std::string_view SampleError::cause() const noexcept {
  return std::string_view(message()).substr(fmt::formatted_size("sample {}: ", index_));
}

SampleError SampleError::renumbered(std::int64_t index) const {
  return SampleError(index, fmt::format("sample {} of the set below: {}", index_, cause()), hint(),
                     op());
}

Generator DrawContext::generator(std::int64_t id) const noexcept {
  const math::PhiloxBlock b =
      math::philox(static_cast<std::uint64_t>(id), seed_for(seed, Purpose::sample),
                   static_cast<std::uint64_t>(epoch));
  return Generator(std::uint64_t{b.word[1]} << 32 | b.word[0]);
}

DrawContext DrawContext::inner(std::uint64_t part) const noexcept {
  return {seed_for(seed, Purpose::inner, part), epoch};
}

Sample DatasetSource::take(std::int64_t index, const DrawContext&) const { return get(index); }

Sample DatasetSource::collect(std::span<const std::int64_t> indices,
                              const DrawContext& context) const {
  std::vector<Sample> samples;
  samples.reserve(indices.size());
  for (const std::int64_t i : indices)
    samples.push_back(make_sample(i, [&] { return take_sample(*this, i, context); }));
  return collate_samples("collate", samples, false, indices);
}

Sample take_sample(const DatasetSource& source, std::int64_t index, const DrawContext& context) {
  Generator own = context.generator(index);
  const GeneratorScope scope(own);
  return source.take(index, context);
}

Dataset::Dataset(std::shared_ptr<const DatasetSource> source) : source_(std::move(source)) {
  FIRN_CHECK(source_, kOp, "give a data set", "the source is null");
}

Dataset::Dataset(std::int64_t size, std::function<Sample(std::int64_t)> get) try
    : source_(source_of(size, std::move(get))) {}
FIRN_OUT_OF_MEMORY("Dataset")

const std::shared_ptr<const DatasetSource>& Dataset::source() const {
  FIRN_CHECK(source_, kOp, "use the object that it was moved to", "this set was moved away");
  return source_;
}

std::int64_t Dataset::size() const { return source()->size(); }

Sample Dataset::get(std::int64_t index, const DrawContext& context) const try {
  FIRN_CHECK(index >= 0 && index < size(), kOp, "samples count from 0", "sample {} of a set of {}",
             index, size());
  const Surroundings as_in_a_loader;
  return take_sample(*source_, index, context);
}
FIRN_OUT_OF_MEMORY(kOp)

Sample Dataset::collect(std::span<const std::int64_t> indices, const DrawContext& context) const
    try {
  for (const std::int64_t i : indices)
    FIRN_CHECK(i >= 0 && i < size(), kOp, "samples count from 0", "sample {} of a set of {}", i,
               size());
  FIRN_CHECK(!indices.empty(), kOp, "give the numbers of samples",
             "a batch has at least one sample");
  const Surroundings as_in_a_loader;
  return source()->collect(indices, context);
}
FIRN_OUT_OF_MEMORY(kOp)

}  // namespace firn::data

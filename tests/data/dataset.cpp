// Datasets: of tensors, functions and other sets; a batch is its samples, one by one.
#include "firn/data/dataset.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "data/loader_sets.h"
#include "support/matchers.h"
#include "support/values.h"

using namespace firn;
using namespace firn::test;
using namespace firn::testing;
using data::Dataset;
using data::Sample;

namespace {

std::vector<std::int64_t> labels_of(const Dataset& set) {
  std::vector<std::int64_t> labels;
  for (std::int64_t i = 0; i < set.size(); ++i)
    labels.push_back(static_cast<std::int64_t>(set[i][1].item()));
  return labels;
}

/// collect() must be collate() of take().
void check_collect(const Dataset& set, const std::vector<std::int64_t>& indices) {
  const data::DrawContext context{4, 2};
  std::vector<Sample> samples;
  for (const std::int64_t i : indices) samples.push_back(set.get(i, context));
  const Sample one_by_one = data::collate(samples), batch = set.collect(indices, context);
  REQUIRE(batch.size() == one_by_one.size());
  for (std::size_t f = 0; f < batch.size(); ++f) {
    CHECK(batch[f].shape() == one_by_one[f].shape());
    CHECK(batch[f].dtype() == one_by_one[f].dtype());
    expect_same("field", values_of(batch[f]), values_of(one_by_one[f]));
  }
}

/// A set of one's own with a faster collect().
class Squares : public data::DatasetSource {
 public:
  std::int64_t size() const override { return 12; }
  Sample get(std::int64_t index) const override {
    return {full({}, static_cast<double>(index * index), i64)};
  }
  Sample collect(std::span<const std::int64_t> indices, const data::DrawContext&) const override {
    std::vector<std::int64_t> all;
    for (const std::int64_t i : indices) all.push_back(i * i);
    return {tensor(all, {static_cast<std::int64_t>(all.size())})};
  }
};

}  // namespace

TEST_CASE("a batch of every kind of set is its samples one by one", "[host]") {
  const std::vector<std::int64_t> indices{5, 0, 11, 5, 7};
  check_collect(numbered_set(12), indices);
  check_collect(Dataset(std::make_shared<const Squares>()), indices);
  check_collect(bad_set(12, {}), indices);
  check_collect(noisy_set(12), indices);
  check_collect(data::Subset(numbered_set(30), 10, 22), indices);
  check_collect(data::Subset(noisy_set(30), {29, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 0}), indices);
  check_collect(data::Concat({numbered_set(4), noisy_set(3), numbered_set(5)}), indices);
  check_collect(data::Concat({numbered_set(4), numbered_set(0), numbered_set(8)}), {1, 2});
  check_collect(data::random_split(noisy_set(30), {12, 18}, 1)[0], indices);
}

TEST_CASE("TensorDataset: rows of every field, of any dtype and layout", "[host]") {
  const Tensor wide = arange(24, f16).reshape({4, 6});
  const data::TensorDataset set(
      {wide.transpose(0, 1), zeros({6, 2, 3}, u8, Device::cpu()), arange(6, i64).reshape({6, 1})});
  CHECK(set.size() == 6);
  CHECK(values_of(set[2][0]) == std::vector<double>{2, 8, 14, 20});
  check_collect(set, {5, 5, 0});
  CHECK(set.collect(std::vector<std::int64_t>{1, 3})[1].shape() == Shape{2, 2, 3});
  // A sample is a copy: what a Map does in place must not reach the set.
  set[2][0].zero_();
  CHECK(values_of(set[2][0]) == std::vector<double>{2, 8, 14, 20});
  check_collect(data::TensorDataset({zeros({3, 0}, f32, Device::cpu())}), {0, 2});
}

TEST_CASE("Map: what a sample draws depends on seed, epoch and index", "[host]") {
  const auto set = noisy_set(8);
  const auto drawn = [&](std::int64_t i, data::DrawContext c) {
    return values_of(set.get(i, c)[0] - full({3}, static_cast<double>(10 * i), f32));
  };
  manual_seed(1);
  const auto first = drawn(3, {1, 0});
  manual_seed(2);
  CHECK(drawn(3, {1, 0}) == first);
  CHECK(default_generator().get().offset == 0);
  CHECK(drawn(3, {1, 1}) != first);
  CHECK(drawn(3, {2, 0}) != first);
  CHECK(drawn(4, {1, 0}) != first);
  // The same draws wherever the sample comes in a selection of it.
  const data::Subset chosen(set, {7, 3});
  expect_same("subset", values_of(chosen.get(1, {1, 0})[0]), values_of(set.get(3, {1, 0})[0]));
  // A map of a map, and the parts of a whole, have streams of their own.
  const auto draw = [](Sample s, Generator& g) {
    s.push_back(rand({4}, {.generator = &g}));
    return s;
  };
  const data::Map twice(data::Map(numbered_set(8), draw), draw);
  const Sample two = twice.get(3, {1, 0});
  CHECK(values_of(two[2]) != values_of(two[3]));
  const data::Concat both({data::Map(numbered_set(8), draw), data::Map(numbered_set(8), draw)});
  CHECK(values_of(both.get(3, {1, 0})[2]) != values_of(both.get(11, {1, 0})[2]));
}

TEST_CASE("Subset and Concat: the samples asked for, in their order", "[host]") {
  const auto set = numbered_set(10);
  CHECK(labels_of(data::Subset(set, {9, 0, 0, 4})) == std::vector<std::int64_t>{9, 0, 0, 4});
  CHECK(labels_of(data::Subset(set, 3, 6)) == std::vector<std::int64_t>{3, 4, 5});
  CHECK(data::Subset(set, 3, 3).size() == 0);
  const data::Concat joined({data::Subset(set, 8, 10), data::Subset(set, 4, 4), set});
  CHECK(labels_of(joined) == std::vector<std::int64_t>{8, 9, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9});
}

TEST_CASE("random_split: disjoint parts that are the whole set", "[host]") {
  const auto set = numbered_set(103);
  for (const auto& parts :
       {data::random_split(set, {0.8, 0.1, 0.1}, 3), data::random_split(set, {82, 0, 20, 1}, 3)}) {
    std::vector<std::int64_t> all;
    for (const Dataset& part : parts) {
      const auto labels = labels_of(part);
      all.insert(all.end(), labels.begin(), labels.end());
    }
    CHECK_FALSE(std::is_sorted(all.begin(), all.end()));
    CHECK(std::set<std::int64_t>(all.begin(), all.end()).size() == 103);
    CHECK(all.size() == 103);
  }
  const auto parts = data::random_split(set, {0.8, 0.1, 0.1}, 3);
  CHECK(parts[0].size() == 82);  // round(82.4), round(92.7)
  CHECK(parts[1].size() == 11);
  CHECK(parts[2].size() == 10);
  CHECK(labels_of(parts[0]) == labels_of(data::random_split(set, {82, 21}, 3)[0]));
  CHECK(labels_of(parts[0]) != labels_of(data::random_split(set, {82, 21}, 4)[0]));
  // A set of any size is split without its order in memory.
  const Dataset huge(std::int64_t{1} << 60, [](std::int64_t i) -> Sample {
    return {full({}, 0), tensor(i)};
  });
  CHECK(data::random_split(huge, {0.5, 0.5}, 1)[1].size() == std::int64_t{1} << 59);
}

TEST_CASE("collate: rows of one shape, or padded with zeros and their sizes", "[host]") {
  const std::vector<Sample> uneven{{tensor<std::int64_t>({1, 2, 3}), tensor(7.f)},
                                   {empty({0}, i64, Device::cpu()), tensor(8.f)},
                                   {tensor<std::int64_t>({4}), tensor(9.f)}};
  const Sample padded = data::collate_padded(uneven);
  REQUIRE(padded.size() == 3);
  CHECK(padded[0].shape() == Shape{3, 3});
  CHECK(values_of(padded[0]) == std::vector<double>{1, 2, 3, 0, 0, 0, 4, 0, 0});
  CHECK(values_of(padded[1]) == std::vector<double>{7, 8, 9});
  CHECK(values_of(padded[2]) == std::vector<double>{3, 0, 1});
  CHECK(padded[2].dtype() == i64);
  CHECK_THAT(error_of([&] { data::collate(uneven); }),
             contains("field 0 differs: [3] i64 cpu in sample 0, [0] i64 cpu in sample 1"));
  const std::vector<Sample> wide{{zeros({2, 3}, Device::cpu())}, {zeros({1, 4}, Device::cpu())}};
  CHECK_THAT(error_of([&] { data::collate_padded(wide); }), contains("evens out the first axis"));
  CHECK_THAT(error_of([] { data::collate({}); }), contains("no samples"));
  const std::vector<Sample> counts{{tensor(1.f)}, {}};
  CHECK_THAT(error_of([&] { data::collate(counts); }),
             contains("1 fields in sample 0, 0 in sample 1"));
  const std::vector<Sample> none{{}};
  CHECK_THAT(error_of([&] { data::collate(none); }), contains("the samples have no fields"));
  const std::vector<Sample> undefined{{Tensor()}};
  CHECK_THAT(error_of([&] { data::collate(undefined); }), contains("field 0 is undefined"));
}

TEST_CASE("sets that make no sense are refused", "[host]") {
  const auto set = numbered_set(5);
  CHECK_THAT(error_of([&] { set[5]; }), contains("sample 5 of a set of 5"));
  CHECK_THAT(error_of([&] { set[-1]; }), contains("sample -1 of a set of 5"));
  CHECK_THAT(error_of([&] {
               set.collect(std::vector<std::int64_t>{1, 5});
             }),
             contains("sample 5 of a set of 5"));
  CHECK_THAT(error_of([&] { set.collect({}); }), contains("at least one sample"));
  CHECK_THAT(error_of([] { Dataset(nullptr); }), contains("source is null"));
  CHECK_THAT(error_of([] { Dataset(-1, [](std::int64_t) { return Sample{}; }); }),
             contains("-1 samples"));
  CHECK_THAT(error_of([] { Dataset(1, nullptr); }), contains("function that gets a sample"));
  CHECK_THAT(error_of([] { data::TensorDataset({}); }), contains("no fields"));
  const Tensor three = zeros({3, 1}, Device::cpu()), four = zeros({4}, Device::cpu());
  CHECK_THAT(error_of([&] {
               data::TensorDataset({three, four});
             }),
             contains("field 1 has 4 samples, field 0 has 3"));
  CHECK_THAT(error_of([&] { data::TensorDataset({three, Tensor()}); }), contains("field 1"));
  CHECK_THAT(error_of([&] { data::TensorDataset({zeros({}, Device::cpu())}); }),
             contains("[n, ...]"));
  CHECK_THAT(error_of([&] { data::Map(set, std::function<Sample(Sample)>()); }),
             contains("[Map] the function is empty"));
  CHECK_THAT(error_of([&] { data::Subset(set, {0, 5}); }), contains("index 5 in a set of 5"));
  CHECK_THAT(error_of([&] { data::Subset(set, 2, 6); }), contains("samples [2, 6) of a set of 5"));
  CHECK_THAT(error_of([&] { data::Subset(set, 3, 2); }), contains("[3, 2)"));
  CHECK_THAT(error_of([] { data::Concat({}); }), contains("no parts"));
  CHECK_THAT(error_of([&] {
               data::random_split(set, {0.5, 0.4}, 1);
             }),
             contains("add up to 0.9, not to 1"));
  CHECK_THAT(error_of([&] { data::random_split(set, {1.5, -0.5}, 1); }), contains("-0.5"));
  CHECK(error_of([&] {
          data::random_split(set, {NAN, 0.5}, 1);
        }) == "[random_split] nan is no fraction; hint: give shares of the set, from 0 to 1");
  CHECK(error_of([&] {
          data::random_split(set, {-1, 6}, 1);
        }) == "[random_split] a part of -1 samples; hint: a part has 0 samples or more");
  CHECK_THAT(error_of([&] {
               data::random_split(set, {0.5, 2}, 1);
             }),
             contains("1 fractions and 1 numbers of samples"));
  CHECK(data::random_split(set, {set.size() - 2, 2}, 1)[1].size() == 2);
  CHECK_THAT(error_of([&] {
               data::random_split(set, {4, 2}, 1);
             }),
             contains("the parts have 6 samples, the set has 5"));
  Dataset moved = set;
  const Dataset here = std::move(moved);
  CHECK_THAT(error_of([&] { moved.size(); }), contains("moved away"));
  CHECK_THAT(error_of([&] { moved[0]; }), contains("moved away"));
  CHECK(here.size() == 5);
}

TEST_CASE("a sample that throws is named, in the set that was asked", "[host]") {
  const auto message = [](const Dataset& set, std::vector<std::int64_t> indices) {
    try {
      set.collect(indices);
    } catch (const data::SampleError& e) {
      return std::to_string(e.index()) + " " + e.what();
    }
    return std::string("no error");
  };
  const auto bad = bad_set(10, {7});
  CHECK_THAT(message(bad, {1, 7}), contains("7 [Dataset] sample 7: cannot read file 7"));
  CHECK_THAT(message(data::Subset(bad, 5, 10), {0, 2}),
             contains("2 [Dataset] sample 2: sample 7 of the set below: cannot read file 7"));
  CHECK_THAT(message(data::Concat({numbered_set(4), bad}), {0, 11}), contains("11 [Dataset]"));
  CHECK_THAT(message(data::Map(bad, [](Sample s) { return s; }), {7}), contains("7 [Dataset]"));
  const Dataset odd(3, [](std::int64_t) -> Sample { throw 1; });
  CHECK_THAT(message(odd, {2}), contains("2 [Dataset] sample 2: the exception is no std"));
}

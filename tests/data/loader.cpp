// Loader: the same batches for any number of threads, any prefetching, and from any position.
#include "firn/data/loader.h"

#include <algorithm>
#include <chrono>
#include <set>
#include <type_traits>
#include <utility>

#include "data/loader_sets.h"
#include "firn/runtime/storage.h"
#include "support/matchers.h"
#include "support/values.h"

using namespace firn;
using namespace firn::test;
using namespace firn::testing;
using data::BadSample;
using data::Loader;
using data::LoaderPosition;
using data::Sample;

namespace {

/// Hashes of single batches, from `position` to the end of epoch `last`.
std::vector<std::uint64_t> batches_from(Loader& loader, LoaderPosition position,
                                        std::int64_t last) {
  std::vector<std::uint64_t> all;
  loader.seek(position);
  while (loader.position().epoch <= last)
    for (const auto& batch : loader) {
      Hash hash;
      hash.add(batch);
      all.push_back(hash.value());
    }
  return all;
}

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

/// The index and the message of the SampleError that `fn` throws.
template <class Fn>
std::pair<std::int64_t, std::string> sample_error_of(Fn&& fn) {
  try {
    fn();
  } catch (const data::SampleError& e) {
    return {e.index(), e.what()};
  }
  return {-1, "no SampleError"};
}

}  // namespace

TEST_CASE("[S31] loader: the same batches for any number of threads and any prefetching",
          "[host]") {
  const auto make = [](int workers, int prefetch, std::uint64_t seed) {
    return Loader(
        noisy_set(103),
        {.batch = 10, .shuffle = true, .seed = seed, .workers = workers, .prefetch = prefetch});
  };
  Loader plain = make(0, 0, 3);
  const std::uint64_t first = hash_of(plain, 0), second = hash_of(plain, 1);
  CHECK(first != second);
  for (const int workers : {0, 1, 2, 4, 8})
    for (int prefetch = 1; prefetch <= 8; ++prefetch) {
      CAPTURE(workers, prefetch);
      Loader loader = make(workers, prefetch, 3);
      REQUIRE(hash_of(loader, 0) == first);
      REQUIRE(hash_of(loader, 1) == second);
    }
  Loader other = make(2, 0, 4);
  CHECK(hash_of(other, 0) != first);
  CHECK(hash_of(other, 1) != second);
}

TEST_CASE("[S31] loader: a run that goes on at any position has the batches of the unbroken one",
          "[host]") {
  const int workers = GENERATE(0, 2);
  const bool drop_last = GENERATE(false, true);
  const auto make = [&] {
    return Loader(
        noisy_set(33),
        {.batch = 5, .shuffle = true, .seed = 7, .drop_last = drop_last, .workers = workers});
  };
  Loader unbroken = make();
  const auto all = batches_from(unbroken, {}, 1);
  CHECK(all.size() == 2 * static_cast<std::size_t>(unbroken.batches()));
  std::size_t taken = 0;
  Loader first = make(), moved = make();
  for (int epoch = 0; epoch < 2; ++epoch)
    for (const auto& batch : first) {
      ++taken;
      CHECK(batch.position == first.position());
      // In a new loader, and in one that has prefetched other batches.
      Loader restarted = make();
      const std::vector<std::uint64_t> rest(all.begin() + static_cast<std::ptrdiff_t>(taken),
                                            all.end());
      REQUIRE(batches_from(restarted, batch.position, 1) == rest);
      REQUIRE(batches_from(moved, batch.position, 1) == rest);
    }
  CHECK(taken == all.size());
}

TEST_CASE(
    "[S31] loader: what a sample draws depends neither on the batch nor on the caller's modes",
    "[host]") {
  const auto values = [](std::int64_t batch, int workers) {
    Loader loader(noisy_set(12), {.batch = batch, .seed = 1, .workers = workers});
    std::vector<double> all;
    for (const auto& b : loader.epoch(2))
      for (const double v : values_of(b.x())) all.push_back(v);
    return all;
  };
  manual_seed(3);
  const auto expected = values(12, 0);
  CHECK(values(5, 0) == expected);
  CHECK(values(1, 2) == expected);
  CHECK(default_generator().get().offset == 0);
  CHECK(default_generator().get().seed == 3);
  const data::Map product(numbered_set(8), [](Sample s) {
    return Sample{matmul(s[0].unsqueeze(0), full({3, 2}, 0.1)) * 1.0};
  });
  Loader plain(product);
  const std::uint64_t hash = hash_of(plain, 0);
  const Autocast guard(bf16);
  Loader guarded(product);
  CHECK(hash_of(guarded, 0) == hash);
}

TEST_CASE("loader: every sample once, the last batch short or dropped", "[host]") {
  const auto set = numbered_set(103);
  Loader loader(set, {.batch = 10, .shuffle = true, .seed = 3, .workers = 2});
  CHECK(loader.batches() == 11);
  CHECK(loader.samples() == 103);
  std::vector<std::int64_t> sizes, ids;
  for (const auto& batch : loader) {
    sizes.push_back(batch.size());
    CHECK(batch.x().shape() == Shape{batch.size(), 3});
    CHECK(batch.fields.size() == 2);
    expect_same("y", values_of(batch.y()), values_of(batch.ids));
    for (const std::int64_t id : batch.ids.to_vector<std::int64_t>()) ids.push_back(id);
  }
  CHECK(sizes == std::vector<std::int64_t>{10, 10, 10, 10, 10, 10, 10, 10, 10, 10, 3});
  CHECK_FALSE(std::is_sorted(ids.begin(), ids.end()));
  std::sort(ids.begin(), ids.end());
  for (std::size_t i = 0; i < ids.size(); ++i) REQUIRE(ids[i] == static_cast<std::int64_t>(i));
  Loader dropped(set, {.batch = 10, .drop_last = true, .workers = 1});
  CHECK(dropped.batches() == 10);
  CHECK(dropped.samples() == 100);
  CHECK(ids_of(dropped, 0).size() == 100);
  Loader all_dropped(set, {.batch = 104, .drop_last = true});
  CHECK(all_dropped.batches() == 0);
  CHECK(ids_of(all_dropped, 0).empty());
  CHECK(all_dropped.position() == LoaderPosition{1, 0});
  Loader none(numbered_set(0), {.workers = 2});
  CHECK(none.batches() == 0);
  CHECK(ids_of(none, 0).empty());
}

TEST_CASE("loader: loops and positions", "[host]") {
  Loader loader(numbered_set(10), {.batch = 4, .shuffle = true, .seed = 1, .workers = 1});
  Loader same(numbered_set(10), {.batch = 4, .shuffle = true, .seed = 1});
  const auto order0 = ids_of(same, 0), order1 = ids_of(same, 1), order5 = ids_of(same, 5);
  CHECK(ids_of(loader, 0) == order0);
  CHECK(loader.position() == LoaderPosition{1, 0});
  for (const auto& batch : loader) {
    CHECK(batch.position == LoaderPosition{1, 4});
    break;
  }
  // seek() goes on with a loop that was left, also by the number of its epoch.
  loader.seek(loader.position());
  CHECK(ids_of(loader, 1) == std::vector<std::int64_t>(order1.begin() + 4, order1.end()));
  CHECK(ids_of(loader, 5) == order5);
  CHECK(ids_of(loader, 5) == order5);
  // The position in the last body is the end of the epoch: what follows is an empty rest.
  LoaderPosition last;
  for (const auto& batch : loader.epoch(0)) last = batch.position;
  CHECK(last == LoaderPosition{0, 10});
  loader.seek(last);
  CHECK(ids_of(loader, 0).empty());
  CHECK(loader.position() == LoaderPosition{1, 0});
  // Between two batches: the same order, cut otherwise.
  loader.seek({0, 3});
  CHECK(ids_of(loader, 0) == std::vector<std::int64_t>(order0.begin() + 3, order0.end()));
  static_assert(sizeof(LoaderPosition) <= 16 && std::is_trivially_copyable_v<LoaderPosition>);
}

TEST_CASE("[S31] loader: a loop has all of its epoch, whatever was looked at before", "[host]") {
  Loader loader(numbered_set(10), {.batch = 4, .shuffle = true, .seed = 1, .workers = 1});
  Loader same(numbered_set(10), {.batch = 4, .shuffle = true, .seed = 1});
  const auto order0 = ids_of(same, 0), order1 = ids_of(same, 1), order2 = ids_of(same, 2);
  CHECK(loader.begin()->size() == 4);
  std::vector<std::int64_t> ids;
  for (const auto& batch : loader)  // of epoch 1, since 0 was looked at
    for (const std::int64_t id : batch.ids.to_vector<std::int64_t>()) ids.push_back(id);
  CHECK(ids == order1);
  const auto look_at = [&](std::int64_t epoch, std::int64_t batches) {
    for (const auto& batch : loader.epoch(epoch))
      if (--batches == 0) return batch.size();
    return std::int64_t{0};
  };
  look_at(2, 1);
  CHECK(ids_of(loader, 2) == order2);
  CHECK(look_at(2, 3) == 2);  // the last batch
  CHECK(ids_of(loader, 2) == order2);
  look_at(0, 2);
  CHECK(loader.position() == LoaderPosition{0, 8});
  CHECK(loader.begin()->position == LoaderPosition{1, 4});
  // A position that was sought holds until a batch was taken.
  loader.seek({0, 4});
  CHECK(ids_of(loader, 0) == std::vector<std::int64_t>(order0.begin() + 4, order0.end()));
  CHECK(ids_of(loader, 0) == order0);
  loader.seek({0, 4});
  CHECK(ids_of(loader, 2) == order2);
  CHECK(data::LoaderBatch{}.size() == 0);
}

TEST_CASE("[S31] loader: drop_last leaves out the same samples wherever a seek() goes", "[host]") {
  const int workers = GENERATE(0, 2);
  for (const std::int64_t n : {32, 35})
    for (const std::int64_t from : {0, 8, 18, 31, 32, 35}) {
      if (from > n) continue;
      CAPTURE(n, from);
      Loader loader(numbered_set(n), {.batch = 8, .drop_last = true, .workers = workers});
      loader.seek({0, from});
      std::vector<std::int64_t> sizes;
      std::int64_t taken = 0;
      for (const auto& batch : loader.epoch(0)) {
        sizes.push_back(batch.size());
        taken += batch.size();
      }
      CHECK(loader.samples() == 32);
      CHECK(taken == std::max<std::int64_t>(32 - from, 0));
      for (std::size_t i = 0; i + 1 < sizes.size(); ++i) CHECK(sizes[i] == 8);
    }
}

TEST_CASE("loader: a position of a set of 10^9 samples is found at once", "[host]") {
  const data::Dataset huge(1'000'000'000, [](std::int64_t i) -> Sample { return {tensor(i)}; });
  Loader loader(huge, {.batch = 8, .shuffle = true, .seed = 1, .workers = 1});
  double fastest = 1;  // of ten: a busy machine stops some of them
  std::vector<std::int64_t> ids;
  for (int i = 0; i < 10; ++i) {
    const auto start = std::chrono::steady_clock::now();
    loader.seek({i, 999'999'999 - i});
    for (const auto& batch : loader) {
      ids.push_back(batch.ids.to_vector<std::int64_t>()[0]);
      break;
    }
    fastest = std::min(fastest, seconds_since(start));
  }
  CHECK(fastest < 0.01);  // with its batch: a scan would take seconds
  CHECK(std::set<std::int64_t>(ids.begin(), ids.end()).size() == 10);
}

TEST_CASE("loader: a sample that throws is named at its batch's turn", "[host]") {
  const int workers = GENERATE(0, 1, 4);
  const std::int64_t bad = GENERATE(0, 17, 29);
  CAPTURE(workers, bad);
  for (const bool own_collate : {false, true}) {
    data::LoaderOptions options{.batch = 4, .workers = workers};
    if (own_collate) options.collate = [](std::span<const Sample> s) { return data::collate(s); };
    Loader loader(bad_set(30, {bad}, true), options);
    std::int64_t delivered = 0;
    const auto [index, message] = sample_error_of([&] {
      for (const auto& batch : loader) delivered += batch.size();
    });
    CHECK(index == bad);
    CHECK_THAT(message,
               contains("[Loader] sample " + std::to_string(bad) + ": epoch 0, the batch at "));
    CHECK_THAT(message, contains(": cannot read file " + std::to_string(bad) + "; hint: "));
    CHECK_THAT(message, contains("BadSample::skip"));
    CHECK(delivered == bad / 4 * 4);
    // Nothing half done: the position is before the batch, and one can go on behind it.
    CHECK(loader.position() == LoaderPosition{0, bad / 4 * 4});
    CHECK(sample_error_of([&] { ids_of(loader, 0); }).first == bad);
    loader.seek({0, std::min<std::int64_t>(bad / 4 * 4 + 4, 30)});
    CHECK(ids_of(loader, 0).size() ==
          static_cast<std::size_t>(30 - std::min<std::int64_t>(bad / 4 * 4 + 4, 30)));
  }
}

TEST_CASE("loader: bad samples are left out if asked to", "[host]") {
  const int workers = GENERATE(0, 3);
  Loader loader(bad_set(12, {1, 4, 5, 6, 7, 11}),
                {.batch = 4, .workers = workers, .bad_sample = BadSample::skip});
  std::vector<std::int64_t> sizes;
  for (const auto& batch : loader) {
    sizes.push_back(batch.size());
    CHECK(batch.x().size(0) == batch.size());
    expect_same("y", values_of(batch.y()), values_of(batch.ids));
  }
  CHECK(sizes == std::vector<std::int64_t>{3, 3});  // the batch 4 to 7 has none left
  const data::LoaderStats stats = loader.stats();
  CHECK(stats.skipped == 6);
  CHECK(stats.samples == 6);
  CHECK(stats.batches == 2);
  CHECK(stats.bytes == 6 * (12 + 8));
  CHECK(stats.waited > 0);
  CHECK(stats.seconds >= stats.waited * 0.99);
  CHECK(stats.samples_per_second() > 0);
  Loader all_bad(bad_set(2, {0, 1}), {.workers = workers, .bad_sample = BadSample::skip});
  CHECK(ids_of(all_bad, 0).empty());
  CHECK(all_bad.stats().skipped == 2);
}

TEST_CASE("loader: an epoch without any batch is a warning, once, as is a sample left out",
          "[host]") {
  std::vector<std::string> warnings;
  const WarningHandler before =
      set_warning_handler([&](const std::string& text) { warnings.push_back(text); });
  Loader short_set(numbered_set(3), {.batch = 4, .drop_last = true});
  for (int epoch = 0; epoch < 3; ++epoch) ids_of(short_set, epoch);
  REQUIRE(warnings.size() == 1);
  CHECK_THAT(warnings[0], contains("epoch 0 had no batch: 3 samples in batches of 4"));
  Loader bad(bad_set(2, {0, 1}), {.bad_sample = BadSample::skip});
  ids_of(bad, 0);
  REQUIRE(warnings.size() == 3);
  CHECK_THAT(warnings[1], contains("sample 0: cannot read file 0; this one and others"));
  CHECK_THAT(warnings[2], contains("of which 2 were left out so far"));
  Loader at_end(numbered_set(3));
  at_end.seek({0, 3});  // a run that was resumed at the end of an epoch
  ids_of(at_end, 0);
  CHECK(warnings.size() == 3);
  set_warning_handler(before);
}

TEST_CASE("loader: what is not one sample's fault is an Error about the batch", "[host]") {
  const int workers = GENERATE(0, 2);
  const auto uneven = data::Dataset(6, [](std::int64_t i) -> Sample {
    return {full({i + 1}, static_cast<double>(i), i64), tensor(i)};
  });
  Loader stacked(uneven, {.batch = 3, .workers = workers, .bad_sample = BadSample::skip});
  CHECK_THAT(error_of([&] { ids_of(stacked, 0); }),
             contains("field 0 differs: [1] i64 cpu in sample 0, [2] i64 cpu in sample 1"));
  Loader padded(uneven, {.batch = 3, .workers = workers, .pad = true});
  std::vector<Shape> shapes;
  for (const auto& batch : padded) {
    REQUIRE(batch.fields.size() == 3);
    shapes.push_back(batch.x().shape());
    for (std::int64_t i = 0; i < 3; ++i) {
      const double id = batch.y()[i].item(), length = batch[2][i].item();
      CHECK(length == id + 1);
      CHECK(batch.x()[i].sum().item() == id * length);
    }
  }
  CHECK(shapes == std::vector<Shape>{{3, 3}, {3, 6}});
  Loader broken(numbered_set(4), {.workers = workers, .collate = [](std::span<const Sample>) {
                                    throw std::logic_error("no batch");
                                    return Sample{};
                                  }});
  CHECK_THAT(error_of([&] { ids_of(broken, 0); }),
             contains("the batch at position 0 of epoch 0: no batch"));
  Loader empty(numbered_set(4), {.workers = workers, .collate = [](std::span<const Sample>) {
                                   return Sample{Tensor()};
                                 }});
  CHECK_THAT(error_of([&] { ids_of(empty, 0); }), contains("not on the CPU: undefined"));
}

TEST_CASE("loader: memory that runs out in a worker is an OutOfMemory", "[host]") {
  const data::Dataset hungry(4, [](std::int64_t) -> Sample {
    return {empty({std::int64_t{1} << 54}, u8, Device::cpu())};
  });
  const int workers = GENERATE(0, 1);
  Loader loader(hungry, {.workers = workers, .bad_sample = BadSample::skip});
  CHECK_THROWS_AS(loader.begin(), OutOfMemory);
}

TEST_CASE("loader: calls that make no sense are refused", "[host]") {
  const auto set = numbered_set(10);
  CHECK_THAT(error_of([&] { Loader(set, {.batch = 0}); }),
             contains("at least 1 sample, not 0; hint: give the number of samples in a batch"));
  CHECK_THAT(error_of([&] { Loader(set, {.workers = -1}); }),
             contains("0 to 1024, not -1 and 0; hint: with 0 workers the caller makes each batch"));
  CHECK_THAT(error_of([&] { Loader(set, {.prefetch = 1025}); }), contains("1025"));
  CHECK_THAT(error_of([&] { Loader(set, {.pad = true, .collate = data::collate}); }),
             contains("both pad and collate"));
  Loader loader(set, {.batch = 4, .workers = 1});
  CHECK_THAT(error_of([&] { loader.seek({-1, 0}); }), contains("position 0 of epoch -1"));
  CHECK_THAT(error_of([&] { loader.seek({0, 11}); }), contains("position 11 of epoch 0"));
  CHECK_THAT(error_of([&] { loader.epoch(-1); }), contains("epoch -1"));
  auto first = loader.begin();
  CHECK_THAT(error_of([&] { (*first)[2]; }), contains("field 2 of a batch with 2"));
  auto second = loader.begin();
  CHECK(second->ids.to_vector<std::int64_t>()[0] == 0);
  CHECK(second->position == LoaderPosition{1, 4});
  CHECK_THAT(error_of([&] { ++first; }), contains("another loop has moved"));
  ++second;
  loader.seek({0, 0});
  CHECK_THAT(error_of([&] { ++second; }), contains("another loop has moved"));

  Loader here = std::move(loader);
  CHECK_THAT(error_of([&] { loader.position(); }), contains("this loader was moved away"));
  CHECK_THAT(error_of([&] { loader.begin(); }), contains("moved away"));
  CHECK_THAT(error_of([&] { loader.epoch(0); }), contains("moved away"));
  CHECK_THAT(error_of([&] { loader.seek({}); }), contains("moved away"));
  auto third = here.begin();
  here = Loader(set);
  CHECK_THAT(error_of([&] { ++third; }), contains("the loader of this loop is gone"));
  CHECK(ids_of(here, 0).size() == 10);
}

TEST_CASE("loader: its own data set cannot use it, and the batch that tries to says so", "[host]") {
  Loader* self = nullptr;
  Loader loader(data::Dataset(4,
                              [&self](std::int64_t i) {
                                if (i == 2) {
                                  for (auto& batch : *self) (void)batch;
                                }
                                return Sample{full({1}, double(i), f32, Device::cpu())};
                              }),
                {.batch = 2, .device = Device::cpu()});
  self = &loader;
  auto at = loader.begin();
  CHECK(values_of((*at).x()) == std::vector<double>{0, 1});
  const std::string error = error_of([&] { ++at; });
  for (const char* part : {"[Loader]", "sample 2", "its own data set uses it"})
    CHECK(error.find(part) != std::string::npos);
  // The position stays before the batch, as after any sample that throws.
  CHECK(loader.position().sample == 2);
}

TEST_CASE("loader: a batch of other rows than samples cannot be cut", "[host]") {
  const auto sum = [](std::span<const Sample> samples) {
    return Sample{full({1}, double(samples.size()), f32, Device::cpu())};
  };
  Loader loader(noisy_set(4), {.batch = 4, .collate = sum, .device = Device::cpu()});
  const auto& batch = *loader.begin();
  CHECK(values_of(batch.x()) == std::vector<double>{4});
  const std::string error = error_of([&] { batch.part(0, 2); });
  for (const char* part :
       {"[LoaderBatch]", "field 0 of 4 samples is [1] f32", "one row for each sample"})
    CHECK(error.find(part) != std::string::npos);
}

TEST_CASE("loader: memory is the data's, and batches are on the loader's device") {
  Loader loader(noisy_set(64), {.batch = 16, .workers = 2});
  const auto iterator = loader.begin();
  CHECK(iterator->x().device() == default_device());
  CHECK(iterator->x().storage()->owner() == Owner::data);
  CHECK(iterator->y().storage()->owner() == Owner::data);
  CHECK(iterator->ids.device().is_cpu());
  CHECK_FALSE(iterator->x().requires_grad());
  Loader host(noisy_set(64), {.batch = 16, .device = Device::cpu()});
  CHECK(hash_of(host, 1) == hash_of(loader, 1));
}

TEST_CASE("loader: memory depends on the prefetching, and not on the number of threads", "[host]") {
  constexpr std::int64_t kBatch = 8, kRow = 1 << 15;
  constexpr std::size_t kBytes = kBatch * kRow * sizeof(float);
  const data::TensorDataset set({zeros({10 * kBatch, kRow}, f32, Device::cpu())});
  const auto in_use = [] {
    return memory_stats(Device::cpu()).by_owner[static_cast<std::size_t>(Owner::data)];
  };
  for (const int workers : {1, 2, 4, 8}) {
    Loader loader(set,
                  {.batch = kBatch, .workers = workers, .prefetch = 3, .device = Device::cpu()});
    reset_peak_memory(Device::cpu());
    const std::size_t before = in_use().current;
    for (int epoch = 0; epoch < 3; ++epoch)
      for (const auto& batch : loader) CHECK(batch.size() == kBatch);
    CAPTURE(workers);
    // Three that wait or are in work, and the one in hand.
    CHECK(in_use().peak >= before + kBytes);
    CHECK(in_use().peak <= before + 4 * kBytes + 4096);
  }
}

TEST_CASE("[S31] loader: training that goes on at a position has the bits of the unbroken run",
          "[host]") {
  struct Net : nn::Module {
    nn::Linear in{3, 16}, out{16, 5};
    FIRN_MEMBERS(in, out)
    Tensor forward(const Tensor& x) override { return out(relu(in(x))); }
  };
  const int workers = GENERATE(0, 2);
  const std::int64_t stop = GENERATE(1, 7, 13);  // in mid-cycle, at the end of an epoch, later
  const data::Map set(noisy_set(50), [](Sample s) {
    return Sample{s[0] * 0.01, tensor(static_cast<std::int64_t>(s[1].item()) % 5)};
  });
  const auto train = [&](std::int64_t break_after) {
    const auto make = [&] {
      return Loader(set, {.batch = 8, .shuffle = true, .seed = 5, .workers = workers});
    };
    manual_seed(1);
    Net net;
    net.to(f16);
    optim::AdamW opt(net.parameters(), {.lr = 0.01}, {.accumulate = 4});
    Loader loader = make();
    std::int64_t seen = 0;
    for (std::int64_t epoch = 0; epoch < 3;) {
      bool broken = false;
      for (auto& batch : loader.epoch(epoch)) {
        opt.backward(cross_entropy(net(batch.x().to(f16)), batch.y()));
        opt.step();
        if ((broken = ++seen == break_after)) break;
      }
      if (broken) {
        const LoaderPosition position = loader.position();
        loader = make();
        loader.seek(position);
        continue;
      }
      opt.flush();
      ++epoch;
    }
    CHECK(seen == 21);
    std::vector<double> weights;
    for (const Tensor& p : net.parameters())
      for (const double v : values_of(p)) weights.push_back(v);
    return weights;
  };
  CHECK(train(stop) == train(-1));
}

// Loaders of ranks: each gets its part of every batch, and together they get what one rank gets.
#include <stdexcept>

#include "dist/training.h"
#include "support/thread_check.h"

namespace firn::testing {
namespace {

using dist::distribute;
using dist::Group;

/// Numbers 0 to n - 1 with a random number beside each.
data::Dataset numbers(std::int64_t n, std::int64_t bad = -1) {
  const data::Dataset plain(n, [bad](std::int64_t i) -> data::Sample {
    if (i == bad) throw std::runtime_error("bad");
    return {tensor(static_cast<float>(i))};
  });
  return data::Map(plain, [](data::Sample s, Generator& g) -> data::Sample {
    return {s[0], rand({}, {.generator = &g})};
  });
}

/// Of every batch of two epochs: first, total, ids, random numbers.
struct Seen {
  std::int64_t first, total;
  std::vector<double> ids, draws;
};
std::vector<Seen> load(const Group& group, data::LoaderOptions options, std::int64_t n = 37,
                       std::int64_t bad = -1) {
  options.group = group;
  data::Loader loader(numbers(n, bad), options);
  std::vector<Seen> out;
  for (int epoch = 0; epoch < 2; ++epoch)
    for (const auto& b : loader.epoch(epoch))
      out.push_back({b.first, b.total, values_of(b.ids),
                     b.size() > 0 ? values_of(b[1]) : std::vector<double>()});
  return out;
}

TEST_CASE("[S31][S33] ranks: the parts of a batch are those of one rank, whatever the workers",
          "[host]") {
  for (const std::int64_t chunk : {1, 4}) {
    const data::LoaderOptions options{.batch = 16, .shuffle = true, .seed = 3, .chunk = chunk};
    const auto one = load(Group(), options);
    REQUIRE(one.size() == 6);
    for (const int ranks : {1, 2, 3, 5, 7}) {
      CAPTURE(ranks, chunk);
      const auto all = on_ranks<std::vector<Seen>>(ranks, [&](const Group& g) {
        data::LoaderOptions mine = options;
        mine.workers = g.rank() % 3;
        return load(g, mine);
      });
      for (std::size_t b = 0; b < one.size(); ++b) {
        Seen joined{0, 0, {}, {}};
        for (const auto& rank : all) {
          REQUIRE(rank.size() == one.size());
          CHECK(rank[b].first == static_cast<std::int64_t>(joined.ids.size()));
          if (!rank[b].ids.empty()) CHECK(rank[b].first % chunk == 0);
          CHECK(rank[b].total == one[b].total);
          joined.ids.insert(joined.ids.end(), rank[b].ids.begin(), rank[b].ids.end());
          joined.draws.insert(joined.draws.end(), rank[b].draws.begin(), rank[b].draws.end());
        }
        CHECK(joined.ids == one[b].ids);
        CHECK(joined.draws == one[b].draws);
      }
    }
  }
}

TEST_CASE("ranks: a part whose samples are all left out is a batch without samples", "[host]") {
  const auto all = on_ranks<std::vector<Seen>>(4, [&](const Group& g) {
    return load(g, {.batch = 4, .bad_sample = data::BadSample::skip}, 8, 2);
  });
  for (int r = 0; r < 4; ++r) {
    const auto& seen = all[static_cast<std::size_t>(r)];
    REQUIRE(seen.size() == 4);
    CHECK(seen[0].ids.size() == (r == 2 ? 0u : 1u));
    CHECK(seen[1].ids.size() == 1);
  }
}

TEST_CASE("[S33][S39] exact: a loader's parts train to one set of bits on any number of ranks",
          "[host]") {
  const auto train = [](const Group& group) {
    manual_seed(7);
    nn::Sequential net{nn::Linear(4, 16), nn::Dropout(0.1), nn::Linear(16, 2)};
    optim::AdamW opt(net.parameters(), {.lr = 1e-2}, {.exact = {.chunk = 4}});
    distribute(opt, group);
    const data::TensorDataset set({Rows(50, 4, 2, 40).x, Rows(50, 4, 2, 40).y});
    data::Loader loader(
        set, {.batch = 16, .shuffle = true, .seed = 2, .workers = 1, .group = group, .chunk = 4});
    for (int epoch = 0; epoch < 2; ++epoch)
      for (const auto& b : loader.epoch(epoch))
        opt.run_batch(b.total, 8, [&](std::int64_t first, std::int64_t last) {
          const auto part = b.part(first, last);
          return cross_entropy(net(part.x()), part.y());
        });
    return bits_of_training(opt).bytes;
  };
  const std::string one = train(Group());
  for (const int ranks : {2, 3, 5})
    for (const auto& r : on_ranks<std::string>(ranks, train)) CHECK(r == one);
}

TEST_CASE("ranks: samples that a rank has not are refused", "[host]") {
  const data::TensorDataset set({Rows(16, 4, 2, 40).x, Rows(16, 4, 2, 40).y});
  const auto errors = on_ranks<std::string>(2, [&](const Group& group) {
    manual_seed(7);
    nn::Linear net(4, 2);
    optim::SGD opt(net.parameters(), {.lr = 1e-2}, {.exact = {.chunk = 5}});
    distribute(opt, group);
    data::Loader loader(set, {.batch = 16, .group = group});  // without .chunk
    for (const auto& b : loader.epoch(0)) {
      const auto some = b.part(b.first + 1, b.first + 3);
      THREAD_CHECK(some.size() == 2);
      THREAD_CHECK(some.first == b.first + 1);
      THREAD_CHECK(values_of(some.ids) == std::vector<double>{b.first + 1.0, b.first + 2.0});
      THREAD_CHECK(values_of(some.x()) == values_of(b.x().slice(0, 1, 3)));
      return error_of([&] {
        opt.run_batch(b.total, 5, [&](std::int64_t first, std::int64_t last) {
          const auto part = b.part(first, last);
          return cross_entropy(net(part.x()), part.y());
        });
      });
    }
    return std::string();
  });
  CHECK(mentions(errors[0], {"samples [5, 10) of 16", "this rank has [0, 8)", "chunk"}));
}

TEST_CASE("ranks: options of loaders that make no sense are refused", "[host]") {
  CHECK(mentions(error_of([] { data::Loader(numbers(4), {.chunk = 0}); }), {"chunk of 0"}));
}

}  // namespace
}  // namespace firn::testing

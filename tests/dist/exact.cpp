// Exact mode: the same bits however a batch is cut, over micro-batches, threads and ranks.
#include "dist/exact_runs.h"
#include "optim/exact/chunks.h"

namespace firn::testing {
namespace {

using dist::distribute;
using dist::Group;

TEST_CASE("[S39] exact: the tree over chunks is the same however they are divided") {
  const auto add = [](std::string& a, const std::string& b) { a = "(" + a + "+" + b + ")"; };
  for (std::int64_t n = 1; n <= 33; ++n) {
    optim::ChunkStack<std::string> whole;
    for (std::int64_t q = 0; q < n; ++q) whole.push({q, 1}, std::to_string(q), add);
    const std::string expected = whole.fold(add);
    for (std::int64_t parts = 1; parts <= 5; ++parts) {
      optim::ChunkStack<std::string> all;
      for (std::int64_t r = 0; r < parts; ++r) {
        const std::int64_t first = n * r / parts, last = n * (r + 1) / parts;
        optim::ChunkStack<std::string> mine;
        for (std::int64_t q = first; q < last; ++q) mine.push({q, 1}, std::to_string(q), add);
        const optim::ChunkPlan plan = optim::plan_chunks(optim::work_of(first, last));
        REQUIRE(plan.nodes.size() == mine.entries().size());
        for (const auto& e : mine.entries()) all.push(e.range, e.value, add);
      }
      CHECK(all.fold(add) == expected);
    }
  }
  optim::ChunkStack<std::string> six;
  for (std::int64_t q = 0; q < 6; ++q) six.push({q, 1}, std::to_string(q), add);
  CHECK(six.fold(add) == "(((0+1)+(2+3))+(4+5))");
}

TEST_CASE("[S39] exact: a network of dense layers has one set of bits for every cut", "[host]") {
  for (const DType dtype : {f32, f16, bf16, f64}) check_all_cuts<Mlp>(dtype);
}
TEST_CASE("[S39] exact: a transformer has one set of bits for every cut", "[host]") {
  for (const DType dtype : {f32, f16}) check_all_cuts<Gpt>(dtype);
}
TEST_CASE("[S39] exact: a convolutional network has one set of bits for every cut", "[host]") {
  for (const DType dtype : {f32, bf16}) check_all_cuts<Conv>(dtype);
}
TEST_CASE("[S39][S05] exact: steps that overflow are the same ones for every cut", "[host]") {
  const std::string run = train<Mlp>(Group(), {.dtype = f16, .loss_scale = 0x1p24});
  REQUIRE(mentions(run, {"false"}));  // the first one at least
  check_all_cuts<Mlp>(f16, 0x1p24);
}

// ---- Compared with the ordinary mode ----

TEST_CASE("[S39] exact: the result is the ordinary mode's to rounding", "[host]") {
  const auto weights = [](std::int64_t chunk) {
    manual_seed(4);
    nn::Linear net(6, 3, {.dtype = f64});
    optim::AdamW opt(net.parameters(), {.lr = 1e-2}, {.exact = {.chunk = chunk}});
    for (int step = 0; step < 3; ++step) {
      const Rows rows(22, 6, 3, 50 + static_cast<std::uint64_t>(step), f64);
      opt.run_batch(22, 8, [&](std::int64_t first, std::int64_t last) {
        return cross_entropy(net(rows.x.slice(0, first, last)), rows.y.slice(0, first, last));
      });
    }
    return weights_of(opt);
  };
  CHECK(relative_distance(weights(4), weights(0)) <= 1e-13);
}

TEST_CASE("[S17][S39] exact: a parameter that some chunks do not reach", "[host]") {
  const auto run = [](const Group& group) {
    Tensor a = parameter({1}, {1}, f32), b = parameter({2}, {1}, f32), c = parameter({3}, {1}, f32);
    optim::AdamW opt({a, b, c}, {.lr = 0.1}, {.exact = {.chunk = 1}});
    distribute(opt, group);
    for (int step = 0; step < 3; ++step)
      opt.run_batch(5, 1, [&](std::int64_t first, std::int64_t) -> Loss {
        Tensor sum = objective(a, {0.1 * double(first)});
        if (first == 3) sum = sum + objective(b, {0.3});  // in one chunk alone
        return {sum, make({1}, {}, f32)};
      });
    return bits_of_training(opt).bytes;
  };
  const std::string one = run(Group());
  for (const int ranks : {2, 3, 5, 7})
    for (const auto& r : on_ranks<std::string>(ranks, run)) CHECK(r == one);
}

TEST_CASE("[S37][S39] exact: a batch that fails leaves no trace in the next one", "[host]") {
  const auto run = [](bool fails) {
    manual_seed(8);
    Mlp net;
    optim::SGD opt(net.parameters(), {.lr = 0.1}, {.exact = {.chunk = 4}});
    const Rows rows(20, 6, 3, 60);
    const auto loss = [&](std::int64_t first, std::int64_t last) {
      return cross_entropy(net(rows.x.slice(0, first, last)), rows.y.slice(0, first, last));
    };
    opt.run_batch(20, 4, loss);
    const RandomKey stream = default_generator().get();
    for (const std::int64_t at : {0, 4, 8, 16}) {
      if (!fails) continue;
      CHECK_THROWS_AS(opt.run_batch(20, 4,
                                    [&](std::int64_t first, std::int64_t last) -> Loss {
                                      if (first == at) throw OutOfMemory("none", 1);
                                      return loss(first, last);
                                    }),
                      OutOfMemory);
      CHECK(gradients_are_zero(opt));
    }
    default_generator().set(stream);
    opt.run_batch(20, 4, loss);
    return bits_of_training(opt).bytes;
  };
  CHECK(run(true) == run(false));
}

TEST_CASE("[S15][S39] exact: a cycle that overflows is repeated with the same numbers", "[host]") {
  const auto run = [](const Group& group, double scale) {
    manual_seed(4);
    Mlp net;
    net.to(f16);
    optim::SGD opt(net.parameters(), {.lr = 0.1},
                   {.loss_scale = optim::LossScale::dynamic(
                        {.init = scale, .on_overflow = optim::OverflowPolicy::retry}),
                    .exact = {.chunk = 4}});
    distribute(opt, group);
    const Rows rows(16, 6, 3, 61);
    const auto report = opt.run_batch(16, 4, [&](std::int64_t first, std::int64_t last) {
      return cross_entropy(net(rows.x.slice(0, first, last).to(f16)), rows.y.slice(0, first, last));
    });
    if (!report.applied()) throw std::runtime_error("not applied");
    return bits_of_training(opt).bytes + fmt::format("{}", opt.loss_scale());
  };
  const std::string one = run(Group(), 0x1p24);
  for (const int ranks : {2, 3})
    for (const auto& r :
         on_ranks<std::string>(ranks, [&](const Group& g) { return run(g, 0x1p24); }))
      CHECK(r == one);
}

// ---- Refusals ----

TEST_CASE("[S39] exact: what it cannot keep is refused by name", "[host]") {
  const Rows rows(8, 6, 3, 70);
  const auto error_with = [&](nn::Module& net, const std::function<void(optim::Optimizer&)>& call) {
    optim::SGD opt(net.parameters(), {.lr = 0.1}, {.exact = {.chunk = 4}});
    return error_of([&] { call(opt); });
  };
  const auto batch_of = [&](nn::Module& net, std::int64_t micro_batch) {
    return [&net, &rows, micro_batch](optim::Optimizer& opt) {
      opt.run_batch(8, micro_batch, [&](std::int64_t first, std::int64_t last) {
        return cross_entropy(net(rows.x.slice(0, first, last)), rows.y.slice(0, first, last));
      });
    };
  };
  nn::Sequential norm{nn::Linear(6, 3), nn::BatchNorm1d(3)};
  CHECK(mentions(error_with(norm, batch_of(norm, 4)), {"BatchNorm1d", "chunks of 4"}));
  nn::Sequential own{nn::Linear(6, 3), nn::Dropout(0.5, {.seed = 7})};
  CHECK(mentions(error_with(own, batch_of(own, 4)), {"Dropout", "a stream of their own"}));
  nn::Sequential net{nn::Linear(6, 3)};
  CHECK(mentions(error_with(net, batch_of(net, 6)), {"6 samples", "chunks of 4"}));
  CHECK(mentions(
      error_with(net,
                 [&](optim::Optimizer& opt) { opt.backward(cross_entropy(net(rows.x), rows.y)); }),
      {"backward()", "run_batch"}));
  CHECK(mentions(error_with(net, [&](optim::Optimizer& opt) { opt.no_samples(); }), {"run_batch"}));
  CHECK(mentions(error_with(net,
                            [&](optim::Optimizer& opt) {
                              opt.run_batch(8, 4, [&](std::int64_t first, std::int64_t last) {
                                const Tensor y = net(rows.x.slice(0, first, last));
                                return info_nce(y, y);
                              });
                            }),
                 {"couples"}));
  CHECK(mentions(error_of([&] { optim::SGD opt(net.parameters(), {}, {.exact = {.chunk = -1}}); }),
                 {"a chunk of -1"}));
}

TEST_CASE("[S39] exact: calls of the optimizer within a batch are refused", "[host]") {
  using Call = void (*)(optim::Optimizer&);
  const std::pair<const char*, Call> calls[] = {
      {"step()", [](auto& opt) { opt.step(); }},
      {"flush()", [](auto& opt) { opt.flush(); }},
      {"zero_grad()", [](auto& opt) { opt.zero_grad(); }},
      {"distribute()", [](auto& opt) { distribute(opt, Group()); }}};
  const Rows rows(8, 6, 3, 70);
  for (const std::int64_t chunk : {0, 4})
    for (const auto& [name, refused] : calls) {
      INFO(name);
      const Call call = refused;  // Clang 14 lets no lambda capture a structured binding
      manual_seed(4);
      Mlp net;
      optim::SGD opt(net.parameters(), {.lr = 0.1}, {.exact = {.chunk = chunk}});
      const auto loss = [&](std::int64_t first, std::int64_t last) {
        return cross_entropy(net(rows.x.slice(0, first, last)), rows.y.slice(0, first, last));
      };
      const std::string error = error_of([&] {
        opt.run_batch(8, 4, [&](std::int64_t first, std::int64_t last) {
          if (first > 0) call(opt);
          return loss(first, last);
        });
      });
      CHECK(mentions(error, {name, "inside the function of run_batch()"}));
      CHECK(opt.run_batch(8, 4, loss).applied());
    }
}

TEST_CASE("[S39] exact: ranks whose random streams differ are refused", "[host]") {
  const auto errors = errors_on_ranks(2, [](const Group& group) {
    manual_seed(4);
    Mlp net;
    optim::SGD opt(net.parameters(), {.lr = 0.1}, {.exact = {.chunk = 4}});
    distribute(opt, group);
    seed_thread(static_cast<std::uint64_t>(group.rank()));
    const Rows rows(8, 6, 3, 70);
    opt.run_batch(8, 4, [&](std::int64_t first, std::int64_t last) {
      return cross_entropy(net(rows.x.slice(0, first, last)), rows.y.slice(0, first, last));
    });
  });
  for (const auto& e : errors) CHECK(mentions(e, {"random stream of rank 1", "manual_seed()"}));
}

TEST_CASE("[S38][S39] exact: a plan says the peak of a cycle", "[host]") {
  manual_seed(4);
  nn::MLP net({32, 64, 3});
  optim::AdamW opt(net.parameters(), {}, {.exact = {.chunk = 4}});
  const Rows rows(64, 32, 3, 71);
  const auto loss = [&](std::int64_t first, std::int64_t last) {
    return cross_entropy(net(rows.x.slice(0, first, last)), rows.y.slice(0, first, last));
  };
  const MemoryPlan plan = plan_memory([&] { opt.run_batch(64, 16, loss); });
  reset_peak_memory(Device::cpu());
  opt.run_batch(64, 16, loss);
  CHECK(memory_stats(Device::cpu()).total.peak == plan.peak);
  const MemoryPlan again = plan_memory([&] { opt.run_batch(64, 16, loss); });
  reset_peak_memory(Device::cpu());
  opt.run_batch(64, 16, loss);
  CHECK(memory_stats(Device::cpu()).total.peak == again.peak);
}

}  // namespace
}  // namespace firn::testing

// Memory formats of weights on several ranks: distribute() compares them, and runs with 8-bit
// states keep them.
#include <fmt/format.h>

#include <string>
#include <vector>

#include "data/files.h"
#include "dist/training.h"
#include "firn/io/run.h"

namespace firn::testing {
namespace {

using dist::distribute;
using dist::Group;
using dist::Mesh;

Tensor weight_in(bool channels_last, const Tensor& values) {
  const Tensor w = channels_last ? values.channels_last() : values;
  return w.detach().set_requires_grad();
}

/// Checks that all ranks refuse weights of which `rank` has one in channels-last order.
void check_refused(const std::vector<std::string>& errors, const char* rank) {
  for (const std::string& e : errors) {
    INFO(e);
    CHECK(mentions(e, {"[distribute] parameter 1, \"kernel\", [8, 6, 3, 3] f32",
                       fmt::format("is channels-last on {} and contiguous on rank 0", rank).c_str(),
                       "contiguous() or channels_last()"}));
  }
}

optim::ParamList list_of(const Tensor& bias, const Tensor& kernel) {
  return std::vector<NamedTensor>{{"bias", bias}, {"kernel", kernel}};
}

TEST_CASE("[S40] ranks: weights of other memory formats are refused on every rank", "[host]") {
  for (const bool equal : {false, true})
    for (const bool broadcast : {false, true})
      for (const bool eight_bits : {false, true})
        for (const int zero : {0, 1, 2, 3}) {
          CAPTURE(equal, broadcast, eight_bits, zero);
          const auto errors = errors_on_ranks(3, [&](const Group& g) {
            manual_seed(1);
            const Tensor values = equal ? zeros({8, 6, 3, 3}) : randn({8, 6, 3, 3});
            optim::AdamW opt(
                list_of(zeros({8}).set_requires_grad(), weight_in(g.rank() == 2, values)),
                {.state = eight_bits ? optim::StatePrecision::bits8 : optim::StatePrecision::full,
                 .min_8bit_size = 0});
            distribute(opt, g, {.broadcast = broadcast, .zero = zero});
          });
          check_refused(errors, "rank 2");
        }
}

TEST_CASE("[S40] ranks: a mesh refuses weights of other memory formats on every rank", "[host]") {
  for (const int other : {1, 2}) {  // the rank whose weight is channels-last
    CAPTURE(other);
    const auto errors = errors_on_ranks(4, [&](const Group& g) {
      const Mesh mesh(g, {.dp = 2, .tp = 2});
      optim::SGD opt(list_of(zeros({8}).set_requires_grad(),
                             weight_in(g.rank() == other, zeros({8, 6, 3, 3}))),
                     {.lr = 1});
      distribute(opt, mesh);
    });
    int named = 0;
    for (const std::string& e : errors) {
      INFO(e);
      CHECK(mentions(e, {"[distribute]"}));
      named += mentions(e, {"parameter 1, \"kernel\"", "rank 1", "rank 0", "channels-last",
                            "contiguous"})
                   ? 1
                   : 0;
    }
    CHECK(named == 2);  // the two that differ; the others learn that a rank has refused
  }
}

TEST_CASE("[S40] ranks: channels-last weights on all ranks train as contiguous ones do", "[host]") {
  for (const bool channels_last : {false, true})
    for (const int zero : {0, 1, 2, 3}) {
      CAPTURE(channels_last, zero);
      const auto errors = on_ranks<double>(2, [&](const Group& g) {
        manual_seed(1);
        const Tensor values = randn({8, 6, 3, 3}), slope = randn({8, 6, 3, 3});
        Tensor w = weight_in(channels_last, values.clone());
        optim::SGD opt({w}, {.lr = 1});
        distribute(opt, g, {.zero = zero});
        opt.run_batch(4, 1, [&](std::int64_t first, std::int64_t last) {
          const auto n = static_cast<double>(last - first);
          return Loss{(w * slope).sum() * n, full({}, n)};
        });
        const optim::GatheredWeights gathered(opt);
        return (values - w.detach() - slope).abs().max().item();
      });
      for (const double e : errors) CHECK(e <= 1e-5);
    }
}

TEST_CASE("[S33][S43] zero: 8-bit states go on in weights of their memory format alone", "[host]") {
  const test::TempFolder folder;
  const std::string path = folder.file("run");
  struct End {
    std::string error, bits;
  };
  // Loads the run if there is one, or else trains it and saves it; then goes on.
  const auto run = [&](const Group& g, int zero, bool channels_last, bool loads) {
    Tensor w = weight_in(channels_last, zeros({2, 256, 3, 3}));
    optim::AdamW opt({w}, {.lr = 1e-2, .state = optim::StatePrecision::bits8});
    distribute(opt, g, {.zero = zero});
    const Tensor sizes = exp(-0.05 * arange(256, f32)).reshape({1, 256, 1, 1});
    const auto train = [&] {
      for (int step = 0; step < 2; ++step)
        opt.run_batch(2, 1, [&](std::int64_t first, std::int64_t last) {
          const auto n = static_cast<double>(last - first);
          return Loss{(square(w - 1) * sizes).sum() * n, full({}, n)};
        });
    };
    try {
      if (loads) {
        io::load_run(path, {opt});
      } else {
        train();
        io::save_run(path, {opt});
      }
    } catch (const Error& e) {
      return End{e.what(), {}};
    }
    train();
    const optim::GatheredWeights gathered(opt);
    return End{{}, bits_of(w).bytes};
  };
  for (const bool saved : {false, true})
    for (const int ranks : {1, 2})
      for (const int zero : {0, 1, 2, 3}) {
        CAPTURE(saved, ranks, zero);
        const auto whole =
            on_ranks<End>(ranks, [&](const Group& g) { return run(g, zero, saved, false); });
        for (const int others : {1, 2}) {
          for (const End& e :
               on_ranks<End>(others, [&](const Group& g) { return run(g, zero, saved, true); })) {
            CHECK(e.error.empty());
            CHECK((e.bits == whole[0].bits));
          }
          for (const End& e :
               on_ranks<End>(others, [&](const Group& g) { return run(g, zero, !saved, true); })) {
            INFO(e.error);
            CHECK(mentions(e.error, {"first_moment\" has the 8-bit states of a", "row-major",
                                     "channels-last"}));
          }
        }
      }
}

}  // namespace
}  // namespace firn::testing

// Memory formats of weights on several ranks: distribute() compares them, and runs with 8-bit
// states keep them.
#include <string>
#include <vector>

#include "data/files.h"
#include "dist/training.h"
#include "firn/io/run.h"

namespace firn::testing {
namespace {

using dist::distribute;
using dist::Group;

Tensor weight_in(bool channels_last, const Tensor& values) {
  const Tensor w = channels_last ? values.channels_last() : values;
  return w.detach().set_requires_grad();
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

// The trainings of the sample: at every operation, owners and modules add up to the allocator's
// total.
#include <set>
#include <string>

#include "../samples/fashion_mnist/models.h"
#include "autograd/op_mode.h"
#include "memory/sums.h"
#include "support/catch.h"
#include "support/values.h"

using namespace firn;
using firn::testing::adds_up;

namespace {

/// Looks at the accounts after each operation of a forward pass.
class Looker final : public autograd::OpListener {
 public:
  ~Looker() override { stop(); }
  void ran(const char* op, std::span<const Tensor* const>, const Tensor&) override { look(op); }
  void look(const char* op) {
    ++looks;
    const MemoryReport r = memory_report();
    if (!adds_up(r) && wrong.empty()) wrong = op;
    for (const auto& m : r.modules) paths.insert(m.path);
  }
  int looks = 0;
  std::string wrong;  ///< the first operation after which they did not add up
  std::set<std::string> paths;
};

}  // namespace

TEST_CASE("memory_owners: owners and modules of the sample's trainings add up at every operation",
          "[memory]") {
  for (const char* model : {"mlp", "cnn", "resnet"}) {
    for (const char* precision : {"fp32", "fp16", "bf16", "amp-bf16"}) {
      CAPTURE(model, precision);
      manual_seed(1);
      sample::Options o;
      o.model = model;
      o.precision = precision;
      const auto net = sample::make_model(o, default_device());
      optim::AdamW opt(net->parameters(), {}, {.accumulate = 2});
      const Tensor x = randn({2, 784}).to(sample::model_dtype(precision));
      const Tensor y = zeros({2}, i64);
      Looker looker;
      for (int i = 0; i < 4; ++i) {
        std::optional<Autocast> guard;
        if (std::string(precision) == "amp-bf16") guard.emplace(bf16);
        const Loss loss = cross_entropy((*net)(x), y);
        guard.reset();
        opt.backward(loss);
        looker.look("backward");
        opt.step();
        looker.look("step");
      }
      CHECK(looker.wrong == "");
      CHECK(looker.looks >= 4 * 5);
      CHECK(looker.paths.size() >= 2);
      const MemoryReport r = memory_report();
      const bool half = sample::model_dtype(precision) != f32;
      CHECK((r.stats.of(Owner::masters).current > 0) == half);
      CHECK(r.stats.of(Owner::optimizer).current > r.stats.of(Owner::weights).current);
    }
  }
}

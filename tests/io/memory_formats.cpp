// Runs with 8-bit states, whose blocks follow the memory order of the weights.
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "data/files.h"
#include "firn/firn.h"
#include "io/bits.h"
#include "support/catch.h"

namespace firn::testing {
namespace {

using test::TempFolder;

std::string bits_of(const std::vector<NamedTensor>& tensors) {
  std::string all;
  for (const auto& [name, t] : tensors) all += name + testing::bits_of(t);
  return all;
}

/// A convolution's weight with 8-bit states, whose gradients have another size in each channel.
struct EightBits {
  Tensor w;
  std::optional<optim::AdamW> opt;
  explicit EightBits(const Tensor& initial) : w(initial.detach()) {
    w.set_requires_grad();
    opt.emplace(std::vector<Tensor>{w},
                optim::AdamWOptions{.lr = 1e-2, .state = optim::StatePrecision::bits8});
  }
  void step(int times) {
    const Tensor sizes = exp(-0.05 * arange(w.size(1), f32)).reshape({1, w.size(1), 1, 1});
    for (int i = 0; i < times; ++i) {
      opt->backward((square(w - 1) * sizes).sum(), 1);
      opt->step();
    }
  }
  std::string bits() const { return bits_of(opt->state()); }
};

Tensor rows_weight() { return zeros({2, 256, 3, 3}); }
Tensor channels_weight() { return rows_weight().channels_last(); }

TEST_CASE("[S33][S34][S43] run: 8-bit states go on in weights of their memory format alone") {
  const TempFolder folder;
  const std::string path = folder.file("run");
  for (const auto& from : {rows_weight, channels_weight}) {
    const bool rows = from().is_contiguous();
    CAPTURE(rows);
    EightBits run(from());
    run.step(3);
    io::save_run(path, {*run.opt});
    for (const auto& [name, t] : io::load_safetensors(path))
      if (name == "optim.parameters.0.first_moment")
        CHECK(t.shape() == (rows ? Shape{2, 256, 3, 3} : Shape{4608}));

    EightBits same(from());
    io::load_run(path, {*same.opt});
    CHECK((same.bits() == run.bits()));
    run.step(2);
    same.step(2);
    CHECK((same.bits() == run.bits()));

    EightBits other(rows ? channels_weight() : rows_weight());
    const std::string before = other.bits();
    std::string said;
    try {
      io::load_run(path, {*other.opt}, {.other_settings = true});
    } catch (const IoError& e) {
      said = e.what();
    }
    INFO(said);
    for (const char* part :
         {rows
              ? "first_moment\" has the 8-bit states of a row-major weight in the file, and of a "
                "channels-last one here"
              : "first_moment\" has the 8-bit states of a channels-last weight in the file, and of "
                "a row-major one here",
          "second_moment\"", "contiguous() or channels_last()"})
      CHECK(said.find(part) != std::string::npos);
    CHECK((other.bits() == before));
  }
}

TEST_CASE("[S33][S43] run: copies of 8-bit states fit weights of their memory format alone") {
  const NoGrad guard;
  const auto copy = [](const EightBits& from, EightBits& to) {
    const auto source = from.opt->state(), target = to.opt->state();
    REQUIRE(source.size() == target.size());
    for (std::size_t i = 0; i < source.size(); ++i) target[i].tensor.copy_(source[i].tensor);
  };
  for (const auto& from : {rows_weight, channels_weight}) {
    EightBits run(from()), same(from());
    EightBits other(from().is_contiguous() ? channels_weight() : rows_weight());
    {
      const EnableGrad grad;
      run.step(2);
    }
    copy(run, same);
    CHECK((same.bits() == run.bits()));
    CHECK_THROWS_AS(copy(run, other), Error);
  }
}

TEST_CASE("[S33][S43] run: 8-bit states of a transposed weight, or of one pixel, are row-major") {
  // The optimizer stores a transposed parameter in row-major order, and a kernel of one pixel has
  // both orders.
  const TempFolder folder;
  const std::string path = folder.file("run");
  const std::pair<Tensor, Tensor> weights[] = {
      {ones({40, 128}), ones({128, 40}).transpose(0, 1)},
      {ones({8, 600, 1, 1}), ones({8, 600, 1, 1}).channels_last()}};
  for (const auto& [from, to] : weights) {
    const auto trained = [&](const Tensor& w, int steps) {
      auto opt = std::make_unique<optim::AdamW>(
          std::vector<Tensor>{w}, optim::AdamWOptions{.state = optim::StatePrecision::bits8});
      const Tensor sizes = arange(w.numel(), f32).reshape(w.shape());
      for (int i = 0; i < steps; ++i) {
        opt->backward((w * sizes).sum(), 1);
        opt->step();
      }
      return opt;
    };
    const Tensor a = from.detach().set_requires_grad(), b = to.detach().set_requires_grad();
    const auto first = trained(a, 2);
    io::save_run(path, {*first});
    const auto second = trained(b, 0);
    io::load_run(path, {*second});
    CHECK((bits_of(second->state()) == bits_of(first->state())));
  }
}

}  // namespace
}  // namespace firn::testing

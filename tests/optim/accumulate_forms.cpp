// What converts to a number of micro-steps in a cycle: numbers, tables by epoch, functions.
#include <functional>
#include <type_traits>

#include "optim/problem.h"

namespace firn::testing {
namespace {

using optim::Accumulate;

std::int64_t doubling(std::int64_t epoch) { return epoch + 2; }

std::vector<std::int64_t> by_epoch(const Accumulate& a) { return {a.at(0), a.at(3), a.at(4)}; }
using Lengths = std::vector<std::int64_t>;

TEST_CASE("[S24] every form of accumulate is written in the options as it is") {
  CHECK(by_epoch(optim::StepOptions{}.accumulate) == Lengths{1, 1, 1});
  CHECK(by_epoch(optim::StepOptions{.accumulate = {}}.accumulate) == Lengths{1, 1, 1});
  CHECK(by_epoch(optim::StepOptions{.accumulate = 3}.accumulate) == Lengths{3, 3, 3});
  CHECK(by_epoch(optim::StepOptions{.accumulate = {3}}.accumulate) == Lengths{3, 3, 3});
  CHECK(by_epoch(optim::StepOptions{.accumulate = std::size_t{3}}.accumulate) == Lengths{3, 3, 3});
  CHECK(by_epoch(optim::StepOptions{.accumulate = {{0, 8}, {4, 2}}}.accumulate) ==
        Lengths{8, 8, 2});
  CHECK(by_epoch(optim::StepOptions{.accumulate = {{0, 8}}}.accumulate) == Lengths{8, 8, 8});
  const std::vector<std::pair<std::int64_t, std::int64_t>> table{{0, 8}, {4, 2}};
  CHECK(by_epoch(optim::StepOptions{.accumulate = table}.accumulate) == Lengths{8, 8, 2});

  const auto lambda = [](std::int64_t epoch) { return epoch < 4 ? 8 : 2; };
  CHECK(by_epoch(optim::StepOptions{.accumulate = lambda}.accumulate) == Lengths{8, 8, 2});
  CHECK(by_epoch(optim::StepOptions{.accumulate = [&](std::int64_t e) {
                   return 10 * lambda(e);
                 }}.accumulate) == Lengths{80, 80, 20});
  CHECK(by_epoch(optim::StepOptions{.accumulate = [n = 0](std::int64_t) mutable {
                   return ++n;
                 }}.accumulate) == Lengths{1, 2, 3});
  CHECK(by_epoch(optim::StepOptions{.accumulate = doubling}.accumulate) == Lengths{2, 5, 6});
  CHECK(by_epoch(optim::StepOptions{.accumulate = &doubling}.accumulate) == Lengths{2, 5, 6});
  const std::function<std::int64_t(std::int64_t)> function = doubling;
  CHECK(by_epoch(optim::StepOptions{.accumulate = function}.accumulate) == Lengths{2, 5, 6});
  const Accumulate copy = Accumulate(lambda);
  CHECK(by_epoch(Accumulate(copy)) == Lengths{8, 8, 2});
  static_assert(!std::is_convertible_v<std::string, Accumulate>);
  static_assert(!std::is_convertible_v<std::function<void()>, Accumulate>);
}

TEST_CASE("[S24] an optimizer takes a function of the epoch, and its cycles follow it") {
  const Tensor w = parameter({0}, {1}, f64);
  optim::SGD opt({w}, {.lr = 1}, {.accumulate = [](std::int64_t epoch) { return epoch + 1; }});
  CHECK(opt.cycle_length() == 1);
  opt.set_epoch(2);
  CHECK(opt.cycle_length() == 3);
}

TEST_CASE("[S24] an empty function is refused where it is given") {
  CHECK(mentions(error_of([] { Accumulate(std::function<std::int64_t(std::int64_t)>()); }),
                 {"[Accumulate]", "the function is empty"}));
  CHECK(mentions(error_of([] {
                   std::int64_t (*none)(std::int64_t) = nullptr;
                   const optim::StepOptions options{.accumulate = none};
                 }),
                 {"[Accumulate]", "the function is empty"}));
}

}  // namespace
}  // namespace firn::testing

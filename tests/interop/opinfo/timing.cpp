#include "interop/opinfo/timing.h"

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "interop/opinfo/table.h"
#include "interop/wire.h"

namespace firn::interop {
namespace {

template <class T>
T number() {
  T value{};
  if (std::fread(&value, sizeof value, 1, stdin) != 1)
    throw std::runtime_error("interop: the message ends early");
  return value;
}

/// A call of the table with its arguments, which runs many times.
class TimedCall {
 public:
  /// Throws if the table has no such operation, or if the operation refuses the arguments.
  explicit TimedCall(Request request)
      : entry_(find(request.op)), arguments_(std::move(request.arguments)) {
    if (!entry_) throw Refused("there is no such operation in the table");
    arguments_.timed = true;
    const std::vector<Tensor> results = entry_->call(arguments_);
    if (results.size() != request.seeds.size())
      throw Refused(std::to_string(results.size()) + " results");
    for (std::size_t i = 0; i < results.size(); ++i) {
      const Tensor& given = request.seeds[i];
      if (!given.defined() || !results[i].requires_grad()) continue;
      // In the memory format of the result, as PyTorch's seeds are in the format of its results.
      const Tensor seed = empty_like(results[i].detach());
      seed.copy_(given);
      places_.push_back(i);
      seeds_.push_back(seed);
    }
    if (!seeds_.empty()) backward();
  }

  double seconds(bool with_backward, std::int64_t calls) const {
    if (with_backward && seeds_.empty()) throw Refused("there is no seed to go back from");
    std::optional<NoGrad> unrecorded;
    if (!with_backward) unrecorded.emplace();
    using Clock = std::chrono::steady_clock;
    const auto start = Clock::now();
    for (std::int64_t i = 0; i < calls; ++i) with_backward ? backward() : forward();
    return std::chrono::duration<double>(Clock::now() - start).count();
  }

 private:
  void forward() const { entry_->call(arguments_); }
  void backward() const {
    const std::vector<Tensor> results = entry_->call(arguments_);
    std::vector<Tensor> flows;
    for (const std::size_t i : places_) flows.push_back(results[i]);
    grad(flows, arguments_.leaves, {.initial_gradients = seeds_, .allow_unused = true});
  }

  const Entry* entry_;
  Arguments arguments_;
  std::vector<std::size_t> places_;  ///< results from which a gradient flows back
  std::vector<Tensor> seeds_;        ///< initial gradients of those results
};

void answer(char letter, std::optional<TimedCall>& loaded) {
  if (letter == 'L') {
    Request request;
    loaded.reset();
    if (!read(stdin, request)) throw std::runtime_error("interop: the message ends early");
    loaded.emplace(std::move(request));
    return write_seconds(stdout, 0);
  }
  if (letter != 'T') throw std::runtime_error("interop: a message of an unknown kind");
  const auto threads = number<std::int32_t>();
  const bool with_backward = number<std::uint8_t>() != 0;
  const auto calls = number<std::int64_t>();
  if (!loaded) throw Refused("no call is loaded");
  if (num_threads() != threads) set_num_threads(threads);
  write_seconds(stdout, loaded->seconds(with_backward, calls));
}

}  // namespace

void answer_timings() {
  std::optional<TimedCall> loaded;
  for (int letter = std::fgetc(stdin); letter != EOF; letter = std::fgetc(stdin)) {
    try {
      answer(static_cast<char>(letter), loaded);
    } catch (const Error& e) {
      write_refusal(stdout, e.what());
    } catch (const Refused& e) {
      write_refusal(stdout, e.what());
    }
  }
}

}  // namespace firn::interop

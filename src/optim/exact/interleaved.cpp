#include "optim/exact/interleaved.h"

#include <algorithm>
#include <cstring>
#include <exception>
#include <utility>

#include "base/check.h"
#include "firn/runtime/kernel_support.h"

namespace firn::optim {
namespace {

constexpr const char* kSameLayers =
    "call the same layers in the same order for each quantum, or choose another BatchNormMode";

enum State : std::int64_t { done, waiting, failed };

std::string in_words(const autograd::BatchParts::Place& place) {
  return fmt::format("the {} pass of {}", place.backward ? "backward" : "forward", *place.layer);
}

}  // namespace

InterleavedQuanta::InterleavedQuanta(OptimizerImpl& impl, bool& in_quantum, std::int64_t quanta,
                                     const char* why_alone)
    : impl_(impl),
      in_quantum_(in_quantum),
      why_alone_(why_alone),
      quanta_(static_cast<std::size_t>(quanta)) {}

const std::string& InterleavedQuanta::op() const noexcept { return impl_.store.op(); }
const autograd::Peers* InterleavedQuanta::peers() const noexcept {
  return runtime::dry_run() ? nullptr : impl_.extension->copies();
}
double InterleavedQuanta::unit() const noexcept {
  return runtime::dry_run() ? 1 : impl_.seed_sums().unit;
}

// ---- Scheduling ----

void InterleavedQuanta::collect_into(std::int64_t i, std::vector<Tensor> place) {
  if (place.empty())
    impl_.store.collect_here();
  else
    impl_.store.collect_into(place);
  quanta_[static_cast<std::size_t>(i)].place = std::move(place);
}

void InterleavedQuanta::begin_turn(Quantum& quantum) {
  if (!met_) return;
  impl_.store.ledger().exchange(quantum.ledger);
  impl_.now.phase = quantum.phase;
  in_quantum_ = quantum.in_quantum;
  if (!quantum.place.empty()) impl_.store.collect_into(quantum.place);
  if (quantum.waits && !runtime::dry_run()) impl_.set_seed_sums(quantum.sums);
}

void InterleavedQuanta::end_turn(Quantum& quantum) {
  quantum.ledger = impl_.store.ledger().exchange({});
  quantum.sums = impl_.seed_sums();
  quantum.phase = std::exchange(impl_.now.phase, Phase::collecting);
  quantum.in_quantum = std::exchange(in_quantum_, false);
  if (!quantum.place.empty()) impl_.store.collect_here();
}

std::shared_ptr<const InterleavedQuanta::Numbers> InterleavedQuanta::meet(const Place& place,
                                                                          Numbers numbers,
                                                                          const Combine& combine) {
  FIRN_CHECK(!why_alone_, op(), "choose another BatchNormMode",
             "{} needs all quanta of the batch at a time, and {}", *place.layer, why_alone_);
  Quantum& quantum = quanta_[static_cast<std::size_t>(turn_)];
  quantum.waits = true;
  quantum.at = place;
  quantum.numbers = std::move(numbers);
  quantum.combine = &combine;
  {
    const autograd::BatchPartScope::Away away(op().c_str());
    Coroutine::stop();
  }
  return result_;
}

bool InterleavedQuanta::go_on(const std::function<void(std::int64_t)>& compute,
                              const std::function<void(std::int64_t)>& ended) {
  const auto n = static_cast<std::int64_t>(quanta_.size());
  bool wait = false;
  for (std::int64_t i = 0; i < n; ++i) {
    Quantum& quantum = quanta_[static_cast<std::size_t>(i)];
    if (!quantum.coroutine)
      quantum.coroutine = std::make_unique<Coroutine>([this, &compute, i] {
        const autograd::BatchPartScope part(*this);
        compute(i);
      });
    turn_ = i;
    begin_turn(quantum);
    const bool waits = quantum.coroutine->resume(op().c_str());
    if (waits) {
      met_ = true;
      end_turn(quantum);
    } else {
      quantum.coroutine.reset();
      if (!met_) ended(i);
    }
    FIRN_CHECK(
        i == 0 || waits == wait, op(), kSameLayers,
        "quantum {} of this rank has ended, or has no gradient for what is left, and quantum "
        "{} is at {}",
        waits ? 0 : i, waits ? i : 0,
        in_words(quanta_[static_cast<std::size_t>(waits ? i : 0)].at));
    wait = waits;
  }
  return wait;
}

void InterleavedQuanta::require_same_place() const {
  const Quantum& first = quanta_.front();
  for (std::size_t i = 1; i < quanta_.size(); ++i) {
    const Quantum& q = quanta_[i];
    const bool same = q.at.layer == first.at.layer && q.at.backward == first.at.backward &&
                      q.at.first == first.at.first;
    FIRN_CHECK(same, op(), kSameLayers, "quantum {} of this rank is at {}, and quantum 0 at {}", i,
               in_words(q.at), in_words(first.at));
    FIRN_CHECK(q.numbers.size() == first.numbers.size(), op(), kSameLayers,
               "quantum {} of this rank has other channels at {} than quantum 0", i,
               in_words(q.at));
  }
}

// ---- Ranks ----

bool InterleavedQuanta::exchange(bool waits, bool has_failed, std::vector<Numbers>& all) {
  const Quantum none;
  const Quantum& first = quanta_.empty() ? none : quanta_.front();
  all.clear();
  for (const Quantum& q : quanta_) all.push_back(q.numbers);
  if (!peers()) return waits;
  const OwnerScope owner(Owner::workspace);
  const int ranks = peers()->size();
  std::int64_t layer = -1;
  if (waits) {
    const auto known = std::find(layers_.begin(), layers_.end(), first.at.layer.get());
    layer = known - layers_.begin();
    if (known == layers_.end()) layers_.push_back(first.at.layer.get());
  }
  const Word mine{.state = has_failed ? failed
                           : waits    ? waiting
                                      : done,
                  .first = first.at.first,
                  .layer = layer,
                  .backward = first.at.backward,
                  .numbers = static_cast<std::int64_t>(first.numbers.size()),
                  .quanta = static_cast<std::int64_t>(quanta_.size())};
  const Tensor word = empty({sizeof(Word)}, DType::u8, Device::cpu());
  const Tensor words =
      empty({ranks * static_cast<std::int64_t>(sizeof(Word))}, DType::u8, Device::cpu());
  std::memcpy(word.mutable_view().data, &mine, sizeof(Word));
  peers()->all_gather(word, words);
  std::vector<Word> told(static_cast<std::size_t>(ranks));
  std::memcpy(told.data(), words.view().data, words.bytes());

  const auto is = [](std::int64_t state) {
    return [state](const Word& w) { return w.state == state; };
  };
  if (std::any_of(told.begin(), told.end(), is(failed))) {
    using autograd::Outcome;  // throws if this rank has not
    peers()->agree(op().c_str(), has_failed ? Outcome::failed : Outcome::done);
    return false;
  }
  const auto leader = std::find_if(told.begin(), told.end(), is(waiting));
  if (leader == told.end()) return false;
  std::int64_t most = 0;
  for (std::size_t r = 0; r < told.size(); ++r) {
    const Word& w = told[r];
    most = std::max(most, w.quanta);
    FIRN_CHECK(w.quanta == 0 ||
                   (w.state == waiting && w.first == leader->first && w.layer == leader->layer &&
                    w.backward == leader->backward && w.numbers == leader->numbers),
               op(), kSameLayers,
               "the quanta of rank {} and rank {} are at different layers that normalise the batch",
               r, leader - told.begin());
  }

  const std::int64_t row = leader->numbers;
  const Tensor here = zeros({most * row}, DType::f64, Device::cpu());
  const Tensor there = empty({ranks * most * row}, DType::f64, Device::cpu());
  auto* const to = here.mutable_view().as<double>();
  for (std::size_t q = 0; q < all.size(); ++q)
    std::copy(all[q].begin(), all[q].end(), to + static_cast<std::int64_t>(q) * row);
  peers()->all_gather(here, there);
  all.clear();
  for (std::int64_t r = 0; r < ranks; ++r)
    for (std::int64_t q = 0; q < told[static_cast<std::size_t>(r)].quanta; ++q) {
      const double* const from = there.view().as<double>() + (r * most + q) * row;
      all.emplace_back(from, from + row);
    }
  return true;
}

void InterleavedQuanta::run(const std::function<void(std::int64_t)>& compute,
                            const std::function<void(std::int64_t)>& ended) {
  // Unwind the chunks while the objects that they refer to are alive.
  struct Unwind {
    std::vector<Quantum>& quanta;
    void operator()() const noexcept {
      for (Quantum& q : quanta) q.coroutine.reset();
    }
    ~Unwind() { (*this)(); }
  } const unwind{quanta_};
  std::vector<Numbers> all;
  for (bool waits = true; waits;) {
    std::exception_ptr failure;
    try {
      waits = go_on(compute, ended);
      if (waits) require_same_place();
    } catch (...) {
      failure = std::current_exception();
      unwind();
    }
    try {
      waits = exchange(waits, failure != nullptr, all);
    } catch (...) {  // this rank's own failure says more
      if (!failure) throw;
    }
    if (failure) std::rethrow_exception(failure);
    if (!waits) return;
    ++serial_;
    if (quanta_.empty()) continue;
    const Quantum& first = quanta_.front();
    result_ =
        std::make_shared<const Numbers>(runtime::dry_run() ? first.numbers : (*first.combine)(all));
  }
}

}  // namespace firn::optim

// Moments pooled over parts of a batch, and running statistics, on the default device.
#include <cmath>
#include <cstring>

#include "firn/runtime/graph.h"
#include "kernels/channel_norm.h"
#include "kernels/math/optim/step_state.h"
#include "support/catch.h"
#include "support/values.h"

namespace firn::testing {
namespace {

using Values = std::vector<double>;

constexpr std::int64_t kChannels = 37, kPositions = 12;

Stream stream() { return current_stream(default_device()); }

struct Pool {
  Tensor moments = zeros({2, kChannels}, f64), count = zeros({1}, f64);

  void add(const Tensor& mean, const Tensor& var, double n) const {
    kernels::pool_moments(mean.view(), var.view(), n, moments.mutable_view(), count.mutable_view(),
                          stream());
  }
  void commit(double momentum, const ConstView& state, const Tensor& mean, const Tensor& var,
              const Tensor& batches) const {
    kernels::commit_moments(moments.mutable_view(), count.mutable_view(), momentum, state,
                            mean.mutable_view(), var.mutable_view(),
                            batches.defined() ? batches.mutable_view() : View{}, stream());
  }
  bool empty() const {
    for (const double v : values_of(moments))
      if (v != 0) return false;
    return values_of(count)[0] == 0;
  }
};

/// A batch of 64 samples, far from 0.
Values batch(DType t) {
  Rng rng(9);
  return rounded(rng.uniforms(64 * kChannels * kPositions, 98, 102), t);
}

/// The moments of samples [first, last), merged into the pool.
void add_samples(const Pool& pool, const Values& x, DType t, std::int64_t first,
                 std::int64_t last) {
  const std::int64_t sample = kChannels * kPositions;
  const Values part(x.begin() + first * sample, x.begin() + last * sample);
  const Tensor in = make(part, {last - first, kChannels, kPositions}, t);
  const Tensor mean = empty({kChannels}, t), var = empty({kChannels}, t);
  kernels::channel_moments(in.view(), kernels::NormCells{kChannels, false}, mean.mutable_view(),
                           var.mutable_view(), stream());
  pool.add(mean, var, static_cast<double>((last - first) * kPositions));
}

TEST_CASE("moments pooled over any cut of a batch are those of the batch") {
  for (const DType t : {f64, f32}) {
    const Values x = batch(t);
    const Pool whole;
    add_samples(whole, x, t, 0, 64);
    const Values want = values_of(whole.moments);
    for (const std::vector<std::int64_t>& cut :
         {std::vector<std::int64_t>{16, 32, 48, 64}, {5, 16, 64}, {63, 64}}) {
      const Pool pool;
      std::int64_t first = 0;
      for (const std::int64_t last : cut) {
        add_samples(pool, x, t, first, last);
        first = last;
      }
      CHECK(values_of(pool.count)[0] == 64 * kPositions);
      const Values got = values_of(pool.moments);
      for (std::size_t i = 0; i < got.size(); ++i) {
        INFO(to_string(t) << ", cut in " << cut.size() << ", number " << i);
        CHECK(std::abs(got[i] / want[i] - 1) <= (t == f64 ? 1e-12 : 1e-6));
      }
    }
  }
}

TEST_CASE("moments of no elements leave the pool as it is") {
  const Pool pool;
  const Tensor bad = full({kChannels}, std::nan(""));
  pool.add(bad, bad, 0);
  CHECK(pool.empty());
}

/// Running statistics that begin at 0 and 1.
struct Running {
  Tensor mean = zeros({kChannels}), var = ones({kChannels}), batches = zeros({1}, i64);

  void expect(const std::string& what, double want_mean, double want_var, double count) const {
    expect_close(what + ": mean", values_of(mean), Values(kChannels, want_mean), 1e-6);
    expect_close(what + ": var", values_of(var), Values(kChannels, want_var), 1e-6);
    expect_same(what + ": batches", values_of(batches), {count});
  }
};

void add_constant(const Pool& pool, double mean, double var, double count) {
  pool.add(full({kChannels}, mean), full({kChannels}, var), count);
}

TEST_CASE("commit moves the running statistics, the variance unbiased, and empties the pool") {
  const Pool pool;
  const Running r;
  add_constant(pool, 2, 4, 5);
  add_constant(pool, 2, 4, 4);  // 9 elements: unbiased 4 * 9/8 = 4.5
  pool.commit(0.25, ConstView{}, r.mean, r.var, r.batches);
  r.expect("first", 0.5, 0.75 + 0.25 * 4.5, 1);
  CHECK(pool.empty());
  pool.commit(0.25, ConstView{}, r.mean, r.var, r.batches);
  r.expect("an empty pool", 0.5, 0.75 + 0.25 * 4.5, 1);
  add_constant(pool, 1, 0, 1);  // a single element: there is no unbiased variance
  pool.commit(1, ConstView{}, r.mean, r.var, r.batches);
  r.expect("one element", 1, 0, 2);
  add_constant(pool, 3, 1, 2);
  pool.commit(0.5, ConstView{}, r.mean, r.var, Tensor());
  r.expect("without a counter", 2, 1, 2);
}

TEST_CASE("a negative momentum is the mean over all commits") {
  const Pool pool;
  const Running r;
  for (const double value : {3.0, 5.0, 10.0}) {
    add_constant(pool, value, value, 1e9);
    pool.commit(-1, ConstView{}, r.mean, r.var, r.batches);
  }
  r.expect("three", 6, 6, 3);
}

/// A StepState in the device's memory.
Tensor state_of(math::StepStatus status) {
  math::StepState s;
  s.last.status = status;
  s.decision = math::StepStatus::accumulating;
  unsigned char bytes[sizeof s];
  std::memcpy(bytes, &s, sizeof s);
  return make(Values(bytes, bytes + sizeof s), {static_cast<std::int64_t>(sizeof s)}, u8);
}

TEST_CASE("commit of a cycle that was not applied only empties the pool") {
  using math::StepStatus;
  for (const StepStatus status :
       {StepStatus::accumulating, StepStatus::applied, StepStatus::skipped_empty,
        StepStatus::skipped_non_finite, StepStatus::skipped_partner}) {
    const Pool pool;
    const Running r;
    const Tensor state = state_of(status);
    add_constant(pool, 2, 3, 4);
    pool.commit(0.5, state.view(), r.mean, r.var, r.batches);
    if (status == StepStatus::applied) {
      r.expect("applied", 1, 2.5, 1);
    } else {
      r.expect("skipped", 0, 1, 0);
    }
    CHECK(pool.empty());
  }
}

TEST_CASE("pool and commit as a graph: a replay asks for the outcome of its own cycle") {
  const Pool pool;
  const Running r;
  const Tensor applied = state_of(math::StepStatus::applied);
  const Tensor skipped = state_of(math::StepStatus::skipped_non_finite);
  const Tensor state = applied.clone(), mean = full({kChannels}, 8), var = full({kChannels}, 1);
  const auto cycle = [&] {
    pool.add(mean, var, 1e9);
    pool.add(mean, var, 1e9);
    pool.commit(0.5, state.view(), r.mean, r.var, r.batches);
  };
  cycle();
  graph::Graph graph = graph::Graph::capture(default_device(), cycle);
  r.expect("recorded and run", 6, 1, 2);
  copy_(state, skipped);
  graph.replay();
  r.expect("a skipped cycle", 6, 1, 2);
  CHECK(pool.empty());
  copy_(state, applied);
  graph.replay();
  r.expect("an applied one", 7, 1, 3);
}

TEST_CASE("an update is the commit of a pool of its own, statistics of any floating dtype") {
  for (const DType t : {f32, f64}) {
    for (const DType running : {f32, f64, f16}) {
      const auto one = [&](double v, DType d) { return full({kChannels}, v, d); };
      const Tensor mean = one(2, t), var = one(4, t), batches = zeros({1}, i64);
      const Tensor running_mean = one(0, running), running_var = one(1, running);
      const auto update = [&](double count, double momentum) {
        kernels::update_moments(mean.view(), var.view(), count, momentum,
                                running_mean.mutable_view(), running_var.mutable_view(),
                                batches.mutable_view(), stream());
      };
      update(9, 0.25);
      expect_close("mean", values_of(running_mean), Values(kChannels, 0.5), 1e-6);
      expect_close("var", values_of(running_var), Values(kChannels, 1.875), 1e-6);
      update(0, 0.25);
      update(9, -1);  // the second: half of it
      expect_close("mean", values_of(running_mean), Values(kChannels, 1.25), 1e-6);
      expect_close("var", values_of(running_var), Values(kChannels, 3.1875), 1e-3);
      expect_same("batches", values_of(batches), {2});
    }
  }
}

}  // namespace
}  // namespace firn::testing

// Replays of captured micro-steps under a RollbackPoint, and captures under one.
#include "firn/runtime/rollback.h"

#include <string>

#include "firn/firn.h"
#include "firn/runtime/graph.h"
#include "optim/problem.h"
#include "support/catch.h"
#include "support/values.h"

using namespace firn;
using namespace firn::testing;
using nn::BatchNormMode;

namespace {

struct Net : nn::Module {
  nn::Linear in{6, 5}, out{5, 3};
  nn::BatchNorm1d pools{5, {.accumulation = BatchNormMode::per_step}}, moves{5};
  nn::Dropout own{0.25, {.seed = 7}}, common{0.25};
  FIRN_MEMBERS(in, pools, moves, own, common, out)
  Tensor forward(const Tensor& x) override {
    return out(common(own(tanh(moves(tanh(pools(in(x))))))));
  }
};

struct Training {
  Net net;
  optim::AdamW opt;
  Tensor x, y;
  Training() : net((manual_seed(2), Net())), opt(net.parameters(), {.lr = 0.1}, {.accumulate = 9}) {
    x = make(Rng(1).uniforms(8 * 6, -1, 1), {8, 6}, f32);
    y = zeros({8}, i64);
  }
  void micro_step() { opt.backward(cross_entropy(net(x), y)); }
  Bits everything() const {
    Bits out;
    for (const nn::NamedTensor& b : net.named_buffers()) out = out + bits_of(b.tensor);
    for (const optim::NamedState& s : opt.state()) out = out + bits_of(s.tensor);
    out.bytes += std::to_string(default_generator().get().offset);
    return out;
  }
};

}  // namespace

TEST_CASE("[S22] replays are taken back like the micro-steps that they stand for", "[graph]") {
  const Warnings quiet;
  Training plain, t;
  manual_seed(5);
  for (int i = 0; i < 5; ++i) plain.micro_step();
  const Bits want = plain.everything();

  manual_seed(5);
  t.micro_step();
  t.micro_step();
  auto graph = graph::Graph::capture(default_device(), [&] { t.micro_step(); });
  const Bits before = t.everything();
  {
    RollbackPoint start;
    graph.replay();
    CHECK_FALSE(t.everything() == before);
    t.micro_step();
    start.roll_back();
    CHECK(t.everything() == before);
    graph.replay();
    graph.replay();
    start.roll_back();
    CHECK(t.everything() == before);
    t.opt.zero_grad();
    start.roll_back();
    CHECK(t.everything() == before);
  }
  graph.replay();
  t.micro_step();
  CHECK(t.everything() == want);
  plain.opt.flush();
  t.opt.flush();
  CHECK(t.everything() == plain.everything());
}

TEST_CASE("[S22] a capture that would have to copy for a point is refused", "[graph][gpu]") {
  if (!default_device().is_cuda()) return;
  const Warnings quiet;
  Training t;
  t.micro_step();
  const Bits before = t.everything();
  {
    RollbackPoint start;
    CHECK(error_of([&] {
            graph::Graph::capture(default_device(), [&] { t.micro_step(); });
          }).find("cannot be part of a captured graph") != std::string::npos);
    start.roll_back();
  }
  CHECK(t.everything() == before);
  const auto graph = graph::Graph::capture(default_device(), [&] { t.micro_step(); });
  CHECK(t.opt.last_report().micro_steps() == 2);
}

// RollbackPoints in whose work a run or a file is read: they go back to what was read.
#include <functional>
#include <string>
#include <vector>

#include "data/files.h"
#include "firn/runtime/rollback.h"
#include "semantics/batch_norm/net.h"

namespace firn::testing {
namespace {

/// Draws from a generator of its own.
struct Noise : nn::Module {
  Generator own{9};
  FIRN_MEMBERS(own)
  Tensor forward(const Tensor& x) override {
    return x + randn(x.shape(), {.dtype = x.dtype(), .generator = &own});
  }
};

struct Layers : nn::Module {
  nn::Linear in{kIn, kHidden}, out{kHidden, 3};
  Noise noise;
  nn::BatchNorm1d bn;
  nn::Dropout drop{0.25, {.seed = 7}};
  explicit Layers(BatchNormMode mode) : bn(kHidden, {.accumulation = mode}) {}
  FIRN_MEMBERS(in, noise, bn, drop, out)
  Tensor forward(const Tensor& x) override { return out(drop(tanh(bn(noise(in(x)))))); }
};

struct Training {
  Layers net;
  optim::AdamW opt;
  std::uint64_t batch = 0;
  explicit Training(BatchNormMode mode)
      : net((manual_seed(3), mode)), opt(net.parameters(), {.lr = 0.02}, {.accumulate = 3}) {}
  void micro_step() {
    const Batch b = batch_of(batch++, f32, 6);
    opt.backward(cross_entropy(net(b.x), b.y));
    opt.step();
    rand({4});
  }
  /// All that a saved run has, and what the layers draw next.
  Bits everything() {
    Bits out = bits_of_buffers(net) + bits_of(net.in.weight);
    for (const optim::NamedState& s : opt.state()) out = out + bits_of(s.tensor);
    RollbackPoint look;
    const NoGrad guard;
    const Tensor x = ones({4, 8});
    out = out + bits_of(net.noise(x)) + bits_of(net.drop(x)) + bits_of(rand({4}));
    look.roll_back();
    return out;
  }
};

TEST_CASE("[S22] a point in whose work a run is loaded goes back to the run as it was loaded") {
  const Warnings quiet;
  for (const BatchNormMode mode : {BatchNormMode::per_step, BatchNormMode::per_micro_batch})
    for (const int saved_after : {0, 2, 3, 4})
      for (const int before_load : {0, 1, 2, 4}) {
        CAPTURE(mode == BatchNormMode::per_step, saved_after, before_load);
        const test::TempFolder folder;
        const std::string path = folder.file("run");
        Training t(mode);
        for (int i = 0; i < saved_after; ++i) t.micro_step();
        io::save_run(path, {t.net, t.opt});
        const Bits loaded = t.everything();
        for (int i = 0; i < 2; ++i) t.micro_step();
        RollbackPoint outer;
        t.micro_step();
        RollbackPoint point;
        for (int i = 0; i < before_load; ++i) t.micro_step();
        io::load_run(path, {t.net, t.opt});
        CHECK(t.everything() == loaded);
        point.roll_back();
        CHECK(t.everything() == loaded);
        t.micro_step();  // no step is taken back, so the cycle must not end here
        if (t.opt.cycle_position() == 0) continue;
        outer.roll_back();
        CHECK(t.everything() == loaded);
      }
}

TEST_CASE("[S22] the position of a loader stays where a loaded run has put it") {
  const test::TempFolder folder;
  const std::string path = folder.file("run");
  data::Loader loader(data::TensorDataset({arange(12, f32, Device::cpu())}), {.batch = 2});
  auto it = loader.begin();
  io::save_run(path, {loader});
  const auto saved = loader.position();
  ++it;
  RollbackPoint point;
  ++it;
  io::load_run(path, {loader});
  CHECK(loader.position() == saved);
  point.roll_back();
  CHECK(loader.position() == saved);
}

TEST_CASE("[S22] a file or a model that was read into a module stays, and all else goes back") {
  const Warnings quiet;
  const test::TempFolder folder;
  const std::string path = folder.file("net.safetensors");
  Training t(BatchNormMode::per_micro_batch), source(BatchNormMode::per_micro_batch);
  for (int i = 0; i < 3; ++i) source.micro_step();
  std::vector<NamedTensor> all = source.net.named_parameters();
  for (const NamedTensor& b : source.net.named_buffers()) all.push_back(b);
  io::save_safetensors(path, all);
  const std::function<void()> loads[] = {[&] { io::load_safetensors(path, t.net); },
                                         [&] { t.net.copy_from(source.net); }};
  for (const auto& load : loads) {
    t.micro_step();
    const RandomKey key = default_generator().get(), own = t.net.noise.own.get();
    RollbackPoint point;
    t.net(batch_of(50, f32, 6).x);
    load();
    const Bits loaded = bits_of_buffers(t.net);
    CHECK(loaded == bits_of_buffers(source.net));
    t.net(batch_of(51, f32, 6).x);
    CHECK_FALSE(bits_of_buffers(t.net) == loaded);
    point.roll_back();
    CHECK(bits_of_buffers(t.net) == loaded);
    CHECK(bits_of(t.net.in.weight) == bits_of(source.net.in.weight));
    CHECK(default_generator().get().offset == key.offset);
    CHECK(t.net.noise.own.get().offset == own.offset);
  }
}

TEST_CASE("[S22] a load that fails changes nothing, and the point goes back to its beginning") {
  const Warnings quiet;
  const test::TempFolder folder;
  Training t(BatchNormMode::per_step);
  t.micro_step();
  const Bits before = t.everything();
  RollbackPoint point;
  t.micro_step();
  CHECK_THROWS_AS(io::load_run(folder.file("nowhere"), {t.net, t.opt}), IoError);
  point.roll_back();
  CHECK(t.everything() == before);
}

}  // namespace
}  // namespace firn::testing

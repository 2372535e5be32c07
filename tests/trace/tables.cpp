// Spans and the tables made of them.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "io/bits.h"
#include "support/matchers.h"
#include "support/values.h"
#include "trace/profiled.h"

using namespace firn;
using namespace firn::testing;

namespace {

/// Two epochs; returns the bits of the result.
std::string train_net(std::int64_t width = 32) {
  manual_seed(7);
  ProfiledNet net(width);
  optim::AdamW opt(net.parameters(), {.lr = 1e-2}, {.accumulate = 2, .clip_norm = 1});
  data::Loader loader(profiled_rows(64), {.batch = 8, .shuffle = true, .device = default_device()});
  std::string bits;
  for (int epoch = 0; epoch < 2; ++epoch)
    for (const auto& batch : loader.epoch(epoch)) {
      opt.backward(cross_entropy(net(batch[0]), batch[1]));
      opt.step();
    }
  for (const Tensor& p : net.parameters()) bits += bits_of(p.detach().to(Device::cpu()));
  return bits;
}

}  // namespace

TEST_CASE("trace: spans nest, and their own times add up to the wall time") {
  train_net();  // what is made once is there
  const auto start = std::chrono::steady_clock::now();
  Profile profile;
  {
    const Range all("all");
    train_net(256);
  }
  profile.stop();
  const double measured =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  CHECK(profile.seconds() <= measured);
  check_nesting(profile.log());
  check_totals(profile.log());
  for (const ProfileBy by : {ProfileBy::operation, ProfileBy::module_path, ProfileBy::kernel}) {
    double sum = 0;
    for (const ProfileRow& r : profile.rows(by)) sum += r.seconds;
    CHECK(sum == Approx(profile.seconds()).epsilon(1e-9));
  }
  const ProfileRow& all = row(profile.rows(ProfileBy::phase), "all");
  CHECK(all.seconds == Approx(profile.seconds()).epsilon(0.02));
}

TEST_CASE("trace: a profile changes no bit") {
  const std::string plain = train_net();
  Profile profile;
  CHECK(train_net() == plain);
}

TEST_CASE("trace: operations have their calls, products, bytes and direction") {
  nn::Linear layer(24, 40);
  const Tensor x = randn({16, 24});
  Profile profile;
  for (int i = 0; i < 3; ++i) backward(sum(gelu(layer(x))));
  profile.stop();
  const auto rows = profile.rows();
  const ProfileRow& forward = row(rows, "linear");
  CHECK(forward.calls == 3);
  CHECK(forward.flops == 3 * 2.0 * 16 * 24 * 40);
  // x, the weight, the bias and y at least.
  CHECK(forward.bytes >= 3 * 4.0 * (16 * 24 + 24 * 40 + 40 + 16 * 40));
  CHECK(forward.seconds > 0);
  const ProfileRow& gradient = row(rows, "linear", true);
  CHECK(gradient.calls == 3);
  CHECK(gradient.flops == 3 * 2.0 * 16 * 24 * 40);  // of the weight; x needs none
  CHECK(row(rows, "gelu").calls == 3);
  CHECK(row(rows, "gelu").flops == 0);
  CHECK(row(rows, "gelu").bytes == 3 * 2 * 4.0 * 16 * 40);
  CHECK(row(rows, "gelu", true).calls == 3);
  CHECK(std::isnan(row(rows, "(backward)").of_peak));
  for (const ProfileRow& r : profile.rows(ProfileBy::kernel))
    if (r.name != "(no kernel)" && r.name != "(outside of spans)") {
      INFO(r.name << " " << r.detail);
      CHECK(r.calls > 0);
      CHECK(r.detail.find("f32") != std::string::npos);
    }
}

TEST_CASE("trace: what makes or fills a tensor is an operation of its own") {
  Profile profile;
  const Tensor x = randn({64, 8});
  full({100}, 1);
  copy_(x, ones_like(x));
  (void)x.to(f64);
  (void)index_select(x, 0, tensor({std::int64_t{3}, std::int64_t{1}}));
  profile.stop();
  const auto rows = profile.rows();
  CHECK(row(rows, "cast").bytes == (4 + 8) * 64 * 8);
  CHECK(row(rows, "randn").calls == 1);
  CHECK(row(rows, "full").bytes == 4 * 100);
  CHECK(row(rows, "copy_").bytes == 2 * 4 * 64 * 8);
  CHECK(row(rows, "ones_like").calls == 1);
  // Two rows are read and written, and two indices are read.
  CHECK(row(rows, "index_select").bytes == 2 * 2 * 4 * 8 + 2 * 8);
}

TEST_CASE("trace: convolutions and attention count their products") {
  nn::Conv2d conv(3, 8, 3, {.padding = 1});
  const Tensor image = randn({2, 3, 10, 12}).set_requires_grad();
  const Tensor q = randn({2, 3, 6, 4}).set_requires_grad();
  Profile profile;
  backward(sum(conv(image)));
  backward(sum(attention(q, q, q, {.causal = true})));
  profile.stop();
  const auto rows = profile.rows();
  const double products = 2.0 * (2 * 8 * 10 * 12) * (3 * 3 * 3);
  CHECK(row(rows, "conv2d").flops == products);
  CHECK(row(rows, "conv2d", true).flops == 2 * products);
  const double pairs = 2 * 3 * (6 * 7 / 2);
  CHECK(row(rows, "attention").flops == 2 * pairs * (4 + 4));
  CHECK(row(rows, "attention", true).flops == 2 * pairs * (3 * 4 + 2 * 4));
}

TEST_CASE("trace: modules have their path, their calls and their backward pass") {
  Profile profile;
  train_net();
  profile.stop();
  const auto rows = profile.rows(ProfileBy::module_path);
  CHECK(row(rows, "ProfiledNet").calls == 16);
  CHECK(row(rows, "ProfiledNet.in").calls == 16);
  CHECK(row(rows, "ProfiledNet.in").flops == 16 * 2.0 * 8 * 8 * 32);
  CHECK(row(rows, "ProfiledNet.in", true).flops == 16 * 2.0 * 8 * 8 * 32);
  CHECK(row(rows, "ProfiledNet.out", true).flops == 2 * 16 * 2.0 * 8 * 32 * 4);
  CHECK(row(rows, "ProfiledNet.out", true).seconds > 0);
  const auto phases = profile.rows(ProfileBy::phase);
  CHECK(row(phases, "backward").calls == 16);
  CHECK(row(phases, "optimizer step").calls == 8);
  CHECK(row(phases, "recompute").calls == 16);
  CHECK(row(phases, "next batch").calls == 18);  // an epoch ends with a question
  CHECK(row(phases, "make batch").calls == 16);
}

TEST_CASE("trace: the share of the peak is the least time by the measured one", "[host]") {
  const Tensor a = randn({256, 256}), b = randn({256, 256});
  Profile profile;
  for (int i = 0; i < 20; ++i) (void)matmul(a, b);
  profile.stop();
  const MachinePeak peak = machine_peak(Device::cpu(), f32);
  CHECK(peak.flops > 1e8);
  CHECK(peak.bytes_per_second > 1e8);
  CHECK(machine_peak(Device::cpu(), f32).flops == peak.flops);
  const ProfileRow kernel = row(profile.rows(ProfileBy::kernel), "gemm");
  const double least = std::max(kernel.flops / peak.flops, kernel.bytes / peak.bytes_per_second);
  CHECK(kernel.of_peak == Approx(least / kernel.seconds));
  CHECK_THROWS_AS(machine_peak(Device::cpu(), i64), Error);
}

TEST_CASE("trace: spans of failed operations end, and later ones nest") {
  const Tensor x = randn({4, 4});
  Profile profile;
  {
    const Range range("range");
    CHECK_THROWS_AS(matmul(x, randn({3, 3})), Error);
    nn::Linear layer(5, 2);
    CHECK_THROWS_AS(layer(x), Error);
    (void)matmul(x, x);
  }
  profile.stop();
  check_nesting(profile.log());
  check_totals(profile.log());
  CHECK(row(profile.rows(), "matmul").calls == 1);
  CHECK(row(profile.rows(ProfileBy::phase), "range").calls == 1);
}

TEST_CASE("trace: only the newest totals grow when no more spans are kept") {
  Profile profile({.max_spans = 5});
  const Tensor x = randn({4, 4});
  for (int i = 0; i < 100; ++i) (void)(x + x);
  profile.stop();
  CHECK(profile.log().spans.size() == 5);
  CHECK(profile.log().left_out > 150);
  CHECK(row(profile.rows(), "add").calls == 100);
  CHECK(profile.table().find("are in no trace") != std::string::npos);
  Profile none({.max_spans = 0});
  (void)(x + x);
  none.stop();
  CHECK(none.log().spans.empty());
  CHECK(row(none.rows(), "add").calls == 1);
}

TEST_CASE("trace: a phase within one of the same name counts its time once") {
  Profile profile;
  {
    const Range outer("same");
    (void)randn({100, 100});
    const Range inner("same");
    (void)randn({100, 100});
  }
  profile.stop();
  const ProfileRow& same = row(profile.rows(ProfileBy::phase), "same");
  CHECK(same.calls == 2);
  CHECK(same.seconds <= profile.seconds());
}

TEST_CASE("trace: ranges that end in another order or thread are left out, and nothing breaks",
          "[host]") {
  for (int order = 0; order < 6; ++order) {
    Profile profile;
    std::optional<Range> ranges[3];
    for (int i = 0; i < 3; ++i) ranges[i].emplace("range " + std::to_string(i));
    (void)ones({2});
    int at[3] = {0, 1, 2};
    for (int i = 0; i < order; ++i) std::next_permutation(at, at + 3);
    for (const int i : at) {
      ranges[i].reset();
      (void)ones({2});
    }
    ranges[0].emplace("last");
    ranges[0].reset();
    profile.stop();
    check_nesting(profile.log());
    check_totals(profile.log());
    const auto rows = profile.rows(ProfileBy::phase);
    CHECK(row(rows, "last").calls == 1);
  }
  Profile profile;
  for (int i = 0; i < 50; ++i) {
    auto range = std::make_unique<Range>("made here");
    std::thread([&range] {
      const Range inside("in a thread");
      range.reset();
    }).join();
    const Range next("next");
    (void)ones({2});
  }
  std::optional<Range> late;
  {
    nn::Linear layer(2, 2);
    layer.add_forward_hook([&](nn::Module&, const nn::CallTensors&, const nn::CallTensors&) {
      late.emplace("outlives the call");
    });
    (void)layer(ones({1, 2}));
    (void)ones({2});
  }
  profile.stop();
  late.reset();
  check_nesting(profile.log());
  const auto rows = profile.rows(ProfileBy::phase);
  CHECK(row(rows, "next").calls == 50);
  CHECK(row(rows, "in a thread").calls == 50);
  CHECK(find_row(rows, "made here") == nullptr);
  CHECK(find_row(rows, "outlives the call") == nullptr);
}

TEST_CASE("trace: the name of a custom function outlives its node", "[host]") {
  Profile profile;
  for (int i = 0; i < 3; ++i) {
    const Tensor x = ones({3}).set_requires_grad();
    Tensor y;
    {
      const NoGrad guard;
      y = x * x;
    }
    const Tensor z = custom(
        "a name that is longer than a short string", {x}, y, {x},
        [](const CustomBackward& b) { return std::vector<Tensor>{b.grad * b.saved[0] * 2.0}; });
    backward(sum(z));
  }
  const std::vector<std::string> junk(100, std::string(48, 'J'));
  profile.stop();
  CHECK(row(profile.rows(), "a name that is longer than a short string", true).calls == 3);
}

TEST_CASE("trace: what a checkpoint computes again is forward") {
  ProfiledNet net;
  const Tensor x = randn({8, 8});
  Profile profile;
  backward(sum(net(x)));
  profile.stop();
  const auto rows = profile.rows();
  CHECK(row(rows, "linear", true).calls == 4);
  CHECK(row(rows, "linear").calls >= 5);  // four, and what is computed again
  CHECK(row(rows, "gelu", true).calls == 1);
}

TEST_CASE("trace: a table takes no tensor memory of the CPU", "[host]") {
  const Tensor x = randn({64, 64});
  Profile profile;
  (void)matmul(x, x);
  profile.stop();
  reset_peak_memory();
  const std::size_t before = memory_stats().total.peak;
  (void)profile.table();
  CHECK(memory_stats().total.peak <= before + (1 << 23));  // workspace of products
}

TEST_CASE("trace: a counter without a function is refused, in a profile and without one",
          "[host]") {
  const auto note = [] { runtime::note_counter("counter", {}); };
  const std::string refusal = "[note_counter] the function is empty";
  CHECK(error_of(note).starts_with(refusal));
  Profile profile;
  CHECK(error_of(note).starts_with(refusal));
}

TEST_CASE("trace: counters are bounded, and only scaled optimizers have one", "[host]") {
  nn::Linear plain(2, 2), scaled(2, 2);
  optim::SGD a(plain.parameters(), {.lr = 1e-3});
  optim::SGD b(scaled.parameters(), {.lr = 1e-3}, {.loss_scale = optim::LossScale::fixed(8)});
  const Tensor x = randn({2, 2});
  const auto steps = [&](std::int64_t keep) {
    Profile profile({.max_spans = keep});
    for (int i = 0; i < 20; ++i) {
      a.backward(sum(plain(x)), 2);
      a.step();
      b.backward(sum(scaled(x)), 2);
      b.step();
    }
    profile.stop();
    return profile.log();
  };
  const runtime::SpanLog all = steps(100'000);
  CHECK(all.counters.size() == 20);
  for (const auto& c : all.counters) {
    CHECK(std::string_view(c.name) == "loss scale, SGD");
    CHECK(c.value == 8);
  }
  CHECK(steps(10).counters.size() <= 10);
}

TEST_CASE("trace: what is planned and not run is in no table") {
  const Tensor x = randn({64, 64});
  Profile profile;
  plan_memory([&] { (void)matmul(x, x); });
  profile.stop();
  CHECK(find_row(profile.rows(), "matmul") == nullptr);
}

TEST_CASE("trace: the text has the rows, the others in one, and the wall time") {
  Profile profile;
  train_net();
  profile.stop();
  const std::string text = profile.table(ProfileBy::operation, 3);
  const auto lines = std::count(text.begin(), text.end(), '\n');
  CHECK(lines == 1 + 3 + 1 + 1);
  CHECK(text.starts_with("operation "));
  CHECK(text.find(" more ") != std::string::npos);
  CHECK(text.find("wall time ") != std::string::npos);
  const std::string all = profile.table(ProfileBy::module_path, 1000);
  CHECK(all.find("ProfiledNet.hidden.up backward") != std::string::npos);
  CHECK(all.find(" more ") == std::string::npos);
  CHECK_THROWS_WITH(profile.table(ProfileBy::operation, 0), test::contains("0 rows"));
}

TEST_CASE("trace: one profile at a time, and questions when it has ended") {
  Profile profile;
  CHECK(profile.running());
  CHECK_THROWS_WITH(Profile(), test::contains("one at a time"));
  CHECK_THROWS_WITH(profile.rows(), test::contains("stop()"));
  CHECK_THROWS_WITH(profile.seconds(), test::contains("stop()"));
  profile.stop();
  profile.stop();
  CHECK_FALSE(profile.running());
  CHECK(profile.rows(ProfileBy::phase).empty());
  Profile second;  // the first one's place is free
  CHECK_THROWS_WITH(Profile({.max_spans = -1}), test::contains("max_spans is -1"));
  second.stop();
  if (!built_with_cuda()) CHECK_THROWS_WITH(Profile({.nvtx = true}), test::contains("NVTX"));
}

TEST_CASE("trace: spans that begin or end in another profile are left out") {
  auto first = std::make_unique<Profile>();
  const Tensor x = randn({4, 4});
  {
    const Range across("across");
    (void)(x + x);
    first->stop();
    const Profile second;
    (void)(x * x);
  }
  CHECK(find_row(first->rows(ProfileBy::phase), "across") == nullptr);
  CHECK(row(first->rows(), "add").calls == 1);
  Profile third;
  (void)(x - x);
  third.stop();
  CHECK(row(third.rows(), "sub").calls == 1);
  CHECK(find_row(third.rows(), "mul") == nullptr);
  CHECK(find_row(third.rows(ProfileBy::phase), "across") == nullptr);
}

TEST_CASE("trace: kernels on a device are measured there", "[gpu]") {
  Profile profile;
  train_net();
  profile.stop();
  check_nesting(profile.log());
  double device = 0;
  for (const ProfileRow& r : profile.rows()) device += r.device_seconds;
  CHECK(device > 0);
  std::size_t measured = 0;
  for (const runtime::SpanRecord& s : profile.log().spans)
    if (s.kind == runtime::SpanKind::kernel && s.device.is_cuda()) {
      INFO(s.name);
      CHECK(s.device_seconds >= 0);
      CHECK(s.device_start >= 0);
      ++measured;
    }
  CHECK(measured > 100);
  CHECK(profile.table().find("device") != std::string::npos);
}
